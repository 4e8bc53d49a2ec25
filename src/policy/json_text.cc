#include "policy/json_text.h"

#include <charconv>
#include <cstdint>

namespace headgate::policy {
namespace {

constexpr std::size_t kEscape = 6;  // \uXXXX

// The code of an escape that begins here, or 0.
std::uint32_t escape_at(std::string_view text, std::size_t at) {
  if (at + kEscape > text.size() || text[at] != '\\' || text[at + 1] != 'u') return 0;
  std::uint32_t code = 0;
  const char* end = text.data() + at + kEscape;
  const auto [stopped, error] = std::from_chars(text.data() + at + 2, end, code, 16);
  return error == std::errc{} && stopped == end ? code : 0;
}

std::string wide_escape(std::uint32_t code) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string escape = "\\U";
  for (int shift = 28; shift >= 0; shift -= 4) escape += kDigits[code >> shift & 15];
  return escape;
}

}  // namespace

std::string with_joined_surrogates(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool like_json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  if (!like_json || text.find("\\u") == std::string_view::npos) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      out += text[i++];
      continue;
    }
    const std::uint32_t high = escape_at(text, i);
    const std::uint32_t low = high >= 0xD800 && high <= 0xDBFF ? escape_at(text, i + kEscape) : 0;
    if (low >= 0xDC00 && low <= 0xDFFF) {
      out += wide_escape(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
      i += 2 * kEscape;
    } else {
      // The character after a backslash belongs to it, so that \\ud83d stays what it is.
      out += text.substr(i, 2);
      i += 2;
    }
  }
  return out;
}

}  // namespace headgate::policy
