// Text that people type and that ends up in logs, files and JSON.
#pragma once

#include <cstdint>
#include <string_view>

namespace headgate::control {

// Whether the text is well-formed UTF-8 without control characters (below U+0020, and U+007F to U+009F).
[[nodiscard]] constexpr bool is_plain_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
    const std::uint32_t first = byte(0);
    std::size_t size = 1;
    std::uint32_t least = 0x20;  // of a character this long
    std::uint32_t point = first;
    if (first >= 0xF0 && first < 0xF8) {
      size = 4, least = 0x10000, point = first & 0x07U;
    } else if (first >= 0xE0 && first < 0xF0) {
      size = 3, least = 0x800, point = first & 0x0FU;
    } else if (first >= 0xC0 && first < 0xE0) {
      size = 2, least = 0xA0, point = first & 0x1FU;
    } else if (first >= 0x7F) {
      return false;
    }
    if (text.size() < size) return false;
    for (std::size_t i = 1; i < size; ++i) {
      if ((byte(i) & 0xC0U) != 0x80U) return false;
      point = (point << 6U) | (byte(i) & 0x3FU);
    }
    if (point < least || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace headgate::control
