// The keys of a benchmark, and the order in which they are asked for.
//
// An order is a chain of shuffles: every key comes equally often, at random places, and with at most two rounds between
// two of its turns, so that windows which slide as the walk goes on neither overflow nor run empty.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace headgate::bench {

inline constexpr std::size_t kKeyBytes = 21;

// "agent-000000000012345"
inline std::array<char, kKeyBytes> key_text(std::uint64_t number) noexcept {
  std::array<char, kKeyBytes> text;
  std::copy_n("agent-", 6, text.begin());
  for (std::size_t i = kKeyBytes; i-- > 6; number /= 10) text[i] = static_cast<char>('0' + number % 10);
  return text;
}
inline std::string_view view(const std::array<char, kKeyBytes>& text) noexcept { return {text.data(), text.size()}; }

// Keys [first, first + count).
struct KeyRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

inline std::vector<std::uint32_t> shuffled(KeyRange range, int rounds) {
  std::mt19937_64 random(range.first + 7);
  std::vector<std::uint32_t> order;
  order.reserve(std::size_t{range.count} * static_cast<std::size_t>(rounds));
  for (int round = 0; round < rounds; ++round) {
    order.resize(order.size() + range.count);
    const auto begin = order.end() - range.count;
    std::iota(begin, order.end(), range.first);
    std::shuffle(begin, order.end(), random);
  }
  return order;
}

// Bytes laid out in the order in which they are asked for, as a server finds them in its read buffer: the key itself
// costs no cache miss, so nothing hides what the table costs.
class AccessOrder {
 public:
  AccessOrder(KeyRange range, int rounds) {
    const auto order = shuffled(range, rounds);
    size_ = order.size();
    bytes_.reserve(size_ * kKeyBytes);
    for (const std::uint32_t number : order) bytes_ += view(key_text(number));
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view operator[](std::size_t i) const noexcept {
    return {bytes_.data() + i * kKeyBytes, kKeyBytes};
  }

 private:
  std::string bytes_;
  std::size_t size_ = 0;
};

// Strings kept in a vector, found through an array of indices.
class Indexed {
 public:
  Indexed(KeyRange range, int rounds) : order_(shuffled(range, rounds)), first_(range.first) {
    keys_.reserve(range.count);
    for (std::uint32_t i = 0; i < range.count; ++i) keys_.emplace_back(view(key_text(range.first + i)));
    for (std::uint32_t& number : order_) number -= first_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  [[nodiscard]] std::string_view operator[](std::size_t i) const noexcept { return keys_[order_[i]]; }

 private:
  std::vector<std::string> keys_;
  std::vector<std::uint32_t> order_;
  std::uint32_t first_;
};

}  // namespace headgate::bench
