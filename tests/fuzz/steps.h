// What fuzz targets share that read their input as a list of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace headgate::test {

// Aborts where the claim does not hold, with the claim.
inline void check_that(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", claim);
  std::abort();
}

// The input, byte by byte; zeros once it is used up.
class Steps {
 public:
  Steps(const std::uint8_t* data, std::size_t size) noexcept : data_(data), left_(size) {}
  [[nodiscard]] bool more() const noexcept { return left_ > 0; }
  [[nodiscard]] std::uint8_t byte() noexcept {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  [[nodiscard]] std::string_view bytes(std::size_t count) noexcept {
    count = count < left_ ? count : left_;
    const std::string_view taken(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    left_ -= count;
    return taken;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace headgate::test
