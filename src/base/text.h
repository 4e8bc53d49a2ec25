// How numbers read to people.
#pragma once

#include <string>

#include "headgate/limit.h"

namespace headgate::base {

// The largest unit that divides it: 500ms, 60s, 5m, 1h, 7d; 90s stays 90s.
[[nodiscard]] std::string format_duration(Nanos duration);

// "10/s", "120/m", "1/3s".
[[nodiscard]] std::string format_rate(Rate rate);

}  // namespace headgate::base
