#include "base/utf8.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace headgate::base {
namespace {

// The length of the character that begins here, or 0 if none does.
std::size_t character_length(std::string_view bytes) noexcept {
  const auto at = [&](std::size_t i) -> std::uint32_t { return static_cast<unsigned char>(bytes[i]); };
  const std::uint32_t first = at(0);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  std::uint32_t least = 0;
  std::uint32_t code = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2, least = 0x80, code = first & 0x1F;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3, least = 0x800, code = first & 0x0F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4, least = 0x10000, code = first & 0x07;
  }
  if (length == 0 || bytes.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3F);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < least || code > 0x10FFFF || surrogate ? 0 : length;
}

// Of eight bytes at once.
bool all_ascii(const char* bytes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return (word & 0x8080808080808080U) == 0;
}

}  // namespace

bool is_plain_text(std::string_view bytes) noexcept {
  if (find_not_text(bytes) != std::string_view::npos) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < 0x20 || byte == 0x7F) return false;
    // U+0080 to U+009F are written as C2 and a byte below A0.
    if (byte == 0xC2 && static_cast<unsigned char>(bytes[i + 1]) < 0xA0) return false;
  }
  return true;
}

bool is_utf8(std::string_view bytes) noexcept {
  for (std::size_t i = 0; i < bytes.size();) {
    if (bytes.size() - i >= sizeof(std::uint64_t) && all_ascii(bytes.data() + i)) {
      i += sizeof(std::uint64_t);
      continue;
    }
    const std::size_t length = character_length(bytes.substr(i));
    if (length == 0) return false;
    i += length;
  }
  return true;
}

std::size_t find_not_text(std::string_view bytes) noexcept {
  for (std::size_t i = 0; i < bytes.size();) {
    const char first = bytes[i];
    const bool control = static_cast<unsigned char>(first) < 0x20 && first != '\t' && first != '\n' && first != '\r';
    const std::size_t length = control ? 0 : character_length(bytes.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

void repair(std::string& bytes) {
  if (is_utf8(bytes) && bytes.find('\0') == std::string::npos) return;
  const std::string_view all = bytes;
  std::string text;
  for (std::size_t i = 0; i < all.size();) {
    const std::size_t length = all[i] == '\0' ? 0 : character_length(all.substr(i));
    text += length == 0 ? std::string_view("\xEF\xBF\xBD") : all.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  bytes = std::move(text);
}

}  // namespace headgate::base
