#include "control/adaptive.h"

#include <algorithm>
#include <cmath>

#include "control/load.h"
#include "control/ranges.h"

namespace headgate::control {
namespace {

struct Target {
  AdaptiveLevel level;
  AdaptiveReason reason;
};

// Where the load wants the limits, whatever the dwell time says.
Target target(AdaptiveLevel level, const AdaptiveSettings& settings, const AdaptiveInput& input) noexcept {
  const std::optional<double> load = load_figure(input.load);
  if (!settings.enabled) return {AdaptiveLevel::kBase, AdaptiveReason::kDisabled};
  if (!load) return {AdaptiveLevel::kBase, AdaptiveReason::kUnknown};
  if (*load > settings.high) return {AdaptiveLevel::kLowered, AdaptiveReason::kOverHigh};
  if (level == AdaptiveLevel::kLowered && *load > settings.high - settings.margin)
    return {level, AdaptiveReason::kNone};
  if (level == AdaptiveLevel::kRaised) {
    if (!input.reported_present) return {AdaptiveLevel::kBase, AdaptiveReason::kUnreported};
    if (*load < settings.low + settings.margin) return {level, AdaptiveReason::kNone};
    return {AdaptiveLevel::kBase, AdaptiveReason::kBusier};
  }
  if (*load < settings.low && input.reported_present) return {AdaptiveLevel::kRaised, AdaptiveReason::kUnderLow};
  return {AdaptiveLevel::kBase, AdaptiveReason::kRelaxed};
}

}  // namespace

const char* to_string(AdaptiveLevel level) noexcept {
  switch (level) {
    case AdaptiveLevel::kLowered: return "lowered";
    case AdaptiveLevel::kBase: return "base";
    case AdaptiveLevel::kRaised: return "raised";
  }
  return "unknown";
}

Result<void> validate(const AdaptiveSettings& settings) {
  struct Row {
    const char* field;
    Range<double> range;
    double got;
  };
  const double middle = (settings.high - settings.low) / 2;
  const Row rows[] = {
      {"high", {0.01, 1}, settings.high},
      {"low", {0, settings.high}, settings.low},
      {"high_factor", {0.01, 1}, settings.high_factor},
      {"low_factor", {1, 10}, settings.low_factor},
      {"margin", {0, middle}, settings.margin},
      {"emergency_at", {0.01, 1}, settings.emergency_at},
      {"emergency_margin", {0, settings.emergency_at}, settings.emergency_margin},
      {"emergency_factor", {0.01, 1}, settings.emergency_factor},
  };
  for (const Row& row : rows) {
    if (!row.range.holds(row.got)) return out_of_range(row.field, row.range, row.got);
  }
  constexpr Range<Nanos> kDwell{Nanos{0}, std::chrono::hours{1}};
  if (!kDwell.holds(settings.dwell)) return out_of_range("dwell", kDwell, settings.dwell);
  return {};
}

AdaptiveOutcome step(const AdaptiveState& state, const AdaptiveSettings& settings, const AdaptiveInput& input,
                     Nanos now) noexcept {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  const AdaptiveOutcome unchanged{state, false, factor_of(state.level, settings), AdaptiveReason::kNone};
  const Target wanted = target(state.level, settings, input);
  if (wanted.level == state.level) return unchanged;
  // Switching it off takes effect at once.
  const bool dwelling = state.changed_at && now - *state.changed_at < settings.dwell;
  if (dwelling && wanted.reason != AdaptiveReason::kDisabled) return unchanged;
  return {{wanted.level, now}, true, factor_of(wanted.level, settings), wanted.reason};
}

std::string describe(const AdaptiveOutcome& outcome, const AdaptiveSettings& settings, const AdaptiveInput& input) {
  const std::string load = "load " + (input.load ? format_load(*input.load) : std::string("unknown"));
  std::string why;
  switch (outcome.reason) {
    case AdaptiveReason::kNone: return load + ": limits stay multiplied by " + format_number(outcome.factor);
    case AdaptiveReason::kOverHigh: why = load + " is over " + format_number(settings.high); break;
    case AdaptiveReason::kUnderLow: why = load + " is under " + format_number(settings.low); break;
    case AdaptiveReason::kRelaxed: why = load + " is high no longer"; break;
    case AdaptiveReason::kBusier: why = load + " is low no longer"; break;
    case AdaptiveReason::kUnreported: why = "no load is reported from outside any more"; break;
    case AdaptiveReason::kUnknown: why = "the load is unknown"; break;
    case AdaptiveReason::kDisabled: why = "adaptive limits are off"; break;
  }
  return why + ": limits are multiplied by " + format_number(outcome.factor);
}

double factor_of(AdaptiveLevel level, const AdaptiveSettings& settings) noexcept {
  switch (level) {
    case AdaptiveLevel::kLowered: return settings.high_factor;
    case AdaptiveLevel::kBase: return 1;
    case AdaptiveLevel::kRaised: return settings.low_factor;
  }
  return 1;
}

double factor_in_force(AdaptiveLevel level, bool emergency, const AdaptiveSettings& settings) noexcept {
  const double factor = factor_of(level, settings);
  return emergency ? std::min(factor, settings.emergency_factor) : factor;
}

double throttle_factor(std::optional<double> cpu, std::optional<double> memory) noexcept {
  const auto by_cpu = [](double share) {
    if (share > 0.95) return 0.0;
    if (share >= 0.9) return 0.3;
    if (share >= 0.8) return 0.6;
    return share >= 0.7 ? 0.8 : 1.0;
  };
  const auto by_memory = [](double share) {
    if (share > 0.95) return 0.0;
    if (share >= 0.85) return 0.6;
    return share >= 0.75 ? 0.8 : 1.0;
  };
  // NaN compares as under every bound.
  return std::min(by_cpu(cpu.value_or(0)), by_memory(memory.value_or(0)));
}

}  // namespace headgate::control
