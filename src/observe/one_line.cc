#include "observe/one_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace headgate::observe {
namespace {

std::size_t length_of(unsigned char first) noexcept {
  if (first >= 0xF0) return 4;
  if (first >= 0xE0) return 3;
  return 2;
}

void append_escape(unsigned code, std::string& out) { fmt::format_to(std::back_inserter(out), "\\u{:04x}", code); }

// The character past ASCII that begins at `at`; returns how many bytes it took.
std::size_t append_wide(std::string_view text, std::size_t at, std::string& out) {
  const std::string_view bytes = text.substr(at, length_of(static_cast<unsigned char>(text[at])));
  if (bytes.size() < length_of(static_cast<unsigned char>(text[at])) ||
      base::find_not_text(bytes) != std::string_view::npos) {
    // A control character past U+007F is no text either, but it is a character: it keeps its number.
    if (bytes.size() >= 2 && bytes[0] == '\xC2' && static_cast<unsigned char>(bytes[1]) < 0xA0 &&
        static_cast<unsigned char>(bytes[1]) >= 0x80) {
      append_escape(static_cast<unsigned char>(bytes[1]), out);
      return 2;
    }
    out += "\\ufffd";
    return 1;
  }
  if (bytes == "\u2028" || bytes == "\u2029") {
    append_escape(bytes == "\u2028" ? 0x2028 : 0x2029, out);
  } else if (!base::is_plain_text(bytes)) {
    append_escape(static_cast<unsigned char>(bytes[1]), out);
  } else {
    out += bytes;
  }
  return bytes.size();
}

}  // namespace

void append_quoted(std::string_view text, std::string& out) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80) {
      i += append_wide(text, i, out);
      continue;
    }
    switch (text[i]) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (byte < 0x20 || byte == 0x7F) {
          append_escape(byte, out);
        } else {
          out += text[i];
        }
    }
    ++i;
  }
  out += '"';
}

void append_word(std::string_view text, std::string& out) {
  const bool plain = !text.empty() && base::is_plain_text(text) && text.find("\u2028") == std::string_view::npos &&
                     text.find("\u2029") == std::string_view::npos &&
                     std::none_of(text.begin(), text.end(), [](char c) { return c == ' ' || c == '"' || c == '='; });
  if (plain) {
    out += text;
  } else {
    append_quoted(text, out);
  }
}

}  // namespace headgate::observe
