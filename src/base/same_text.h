// Whether two short texts are the same, without a call: names mostly are, and mostly have at most 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace headgate::base {

[[nodiscard]] inline bool same_text(std::string_view a, std::string_view b) noexcept {
  const std::size_t size = a.size();
  if (size != b.size()) return false;
  const auto differ = [&]<class Word>(Word, std::size_t at) {
    Word x;
    Word y;
    std::memcpy(&x, a.data() + at, sizeof(Word));
    std::memcpy(&y, b.data() + at, sizeof(Word));
    return x ^ y;
  };
  // The first bytes and the last, which may overlap.
  if (size >= 8 && size <= 16) return (differ(std::uint64_t{}, 0) | differ(std::uint64_t{}, size - 8)) == 0;
  if (size >= 4 && size < 8) return (differ(std::uint32_t{}, 0) | differ(std::uint32_t{}, size - 4)) == 0;
  return size == 0 || std::memcmp(a.data(), b.data(), size) == 0;
}

// One bit of 64: texts that differ mostly have bits that do.
[[nodiscard]] constexpr std::uint64_t hint_of(std::string_view text) noexcept {
  if (text.empty()) return 1;
  const auto first = static_cast<unsigned char>(text.front());
  const auto last = static_cast<unsigned char>(text.back());
  return std::uint64_t{1} << ((first * 5U + last * 3U + text.size()) & 63U);
}

}  // namespace headgate::base
