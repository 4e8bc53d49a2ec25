// How numbers read to people.
#pragma once

#include <string>
#include <string_view>

#include "headgate/limit.h"

namespace headgate::base {

// The largest unit that divides it: 500ms, 60s, 5m, 1h, 7d; 90s stays 90s.
[[nodiscard]] std::string format_duration(Nanos duration);

// "10/s", "120/m", "1/3s".
[[nodiscard]] std::string format_rate(Rate rate);

// Without blanks and tabs at either end.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace headgate::base
