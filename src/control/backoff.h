// Temporary: replaced by the control branch.
#pragma once
#include <vector>

#include "headgate/clock.h"
namespace headgate::control {
struct BackoffSettings {
  std::vector<Nanos> steps{std::chrono::seconds{1}, std::chrono::seconds{2}, std::chrono::seconds{5},
                           std::chrono::seconds{10}, std::chrono::seconds{30}};
  Nanos quiet{std::chrono::seconds{60}};
  bool enforced = false;
};
}  // namespace headgate::control
