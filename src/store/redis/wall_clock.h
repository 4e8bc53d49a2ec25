// This machine's wall clock, to tell how far that of Redis is from it.
#pragma once

#include <chrono>

#include "headgate/clock.h"

namespace headgate::store::redis {

[[nodiscard]] inline Nanos wall_now() noexcept {
  return std::chrono::duration_cast<Nanos>(std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace headgate::store::redis
