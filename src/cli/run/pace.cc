#include "cli/run/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace headgate::cli {

double usable_factor(double told) noexcept { return std::isnan(told) ? 1.0 : std::clamp(told, kLeastFactor, 1.0); }

int niceness(double factor) noexcept {
  constexpr double kSlow = 0.6;
  if (factor >= 1) return 0;
  return factor > kSlow ? 5 : 10;
}

Duty duty(double factor) noexcept {
  const Nanos run{std::llround(static_cast<double>(kPacePeriod.count()) * usable_factor(factor))};
  return {run, kPacePeriod - run};
}

std::string cpu_max(double factor, int wanted, int cores) {
  // The kernel takes no quota below a millisecond.
  constexpr std::int64_t kLeastQuota = 1000;
  const std::int64_t period = std::chrono::duration_cast<std::chrono::microseconds>(kPacePeriod).count();
  if (factor >= 1) return fmt::format("max {}", period);
  const int used = std::clamp(wanted, 1, std::max(cores, 1));
  const auto quota = std::llround(static_cast<double>(period) * usable_factor(factor) * used);
  return fmt::format("{} {}", std::max<std::int64_t>(quota, kLeastQuota), period);
}

}  // namespace headgate::cli
