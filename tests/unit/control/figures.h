// Figures that tests of control share.
#pragma once

#include <limits>

#include "headgate/clock.h"

namespace headgate::control {

inline constexpr Nanos kStart = std::chrono::seconds{1'700'000'000};
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace headgate::control
