#include "base/json_pen.h"

#include <array>
#include <cmath>

namespace headgate::base {
namespace {

constexpr double kExactBelow = 9e15;  // whole numbers that a double has exactly

// Which bytes JSON text may not have as they are.
constexpr std::array<bool, 256> kEscaped = [] {
  std::array<bool, 256> escaped{};
  for (std::size_t c = 0; c < 0x20; ++c) escaped[c] = true;
  escaped[0x7F] = escaped['"'] = escaped['\\'] = true;
  return escaped;
}();

}  // namespace

void JsonPen::string(std::string_view value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  put('"');
  std::size_t begin = 0;  // of what has not been written yet; most text is written in one piece
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto byte = static_cast<unsigned char>(value[i]);
    if (!kEscaped[byte]) continue;
    text(value.substr(begin, i - begin));
    begin = i + 1;
    switch (value[i]) {
      case '"': put("\\\""); break;
      case '\\': put("\\\\"); break;
      case '\n': put("\\n"); break;
      case '\r': put("\\r"); break;
      case '\t': put("\\t"); break;
      default:
        put("\\u00");
        put(kDigits[byte >> 4]);
        put(kDigits[byte & 15]);
    }
  }
  text(value.substr(begin));
  put('"');
}

void JsonPen::real(double value) {
  if (std::abs(value) < kExactBelow && value == static_cast<double>(static_cast<std::int64_t>(value))) {
    number(static_cast<std::int64_t>(value));
  } else if (std::isfinite(value)) {
    fraction(value);
  } else {
    put("null");
  }
}

}  // namespace headgate::base
