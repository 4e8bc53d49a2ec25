#include "control/backoff.h"

#include <string>

#include "control/ranges.h"

namespace headgate::control {
namespace {

using std::chrono::hours;
constexpr Range<Nanos> kStep{std::chrono::milliseconds{1}, hours{24}};
constexpr Range<Nanos> kQuiet{std::chrono::seconds{1}, hours{24 * 7}};

}  // namespace

Result<void> validate(const BackoffSettings& settings) {
  const auto& steps = settings.steps;
  if (steps.empty() || steps.size() > kMaxBackoffSteps) {
    return Error{ErrorCode::kInvalidArgument, "steps must be between 1 and " + std::to_string(kMaxBackoffSteps) +
                                                  " durations, got " + std::to_string(steps.size())};
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string field = "steps[" + std::to_string(i) + "]";
    if (!kStep.holds(steps[i])) return out_of_range(field, kStep, steps[i]);
    if (i > 0 && steps[i] < steps[i - 1]) {
      return Error{ErrorCode::kInvalidArgument, field + " must be no shorter than the step before it, " +
                                                    base::format_duration(steps[i - 1]) + ", got " +
                                                    base::format_duration(steps[i])};
    }
  }
  if (!kQuiet.holds(settings.quiet)) return out_of_range("quiet", kQuiet, settings.quiet);
  return {};
}

}  // namespace headgate::control
