// Adaptive limits: while the load is high every limit is lowered, while the service says it is idle they are raised.
//
// Pure functions. A factor is always one of three and always times the base value of a limit, so that changes never
// compound. Raising needs a load figure reported from outside: an idle gatekeeper says nothing about the service behind
// it, so our own sensors only ever lower.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::control {

struct AdaptiveSettings {
  double high = 0.8;  // over it limits are lowered, until the load is at most high - margin
  double low = 0.3;   // under it limits are raised, until the load is at least low + margin
  double high_factor = 0.5;
  double low_factor = 1.25;
  double margin = 0.05;
  Nanos dwell{std::chrono::seconds{10}};  // the least time between two changes
  double emergency_at = 0.9;              // over it the emergency throttle turns itself on,
  double emergency_margin = 0.1;          // and off again at emergency_at - emergency_margin
  double emergency_factor = 0.1;
  bool enabled = true;  // false: limits stand at their base
  bool auto_emergency = true;
  // Whether limits and the automatic emergency follow this machine's own sensors, besides what is reported from
  // outside.
  bool sensors = false;
};

[[nodiscard]] Result<void> validate(const AdaptiveSettings& settings);

enum class AdaptiveLevel : std::uint8_t { kLowered, kBase, kRaised };

// "lowered", "base", "raised".
[[nodiscard]] const char* to_string(AdaptiveLevel level) noexcept;

struct AdaptiveState {
  AdaptiveLevel level = AdaptiveLevel::kBase;
  std::optional<Nanos> changed_at{};  // none: no change made yet, so the first is not held back
};

struct AdaptiveInput {
  std::optional<double> load{};   // absent or NaN: unknown, and limits go back to their base
  bool reported_present = false;  // a figure is reported from outside
};

enum class AdaptiveReason : std::uint8_t {
  kNone,        // nothing changed
  kOverHigh,    // lowered
  kUnderLow,    // raised
  kRelaxed,     // back to base: the load left the high side
  kBusier,      // back to base: the load left the low side
  kUnreported,  // back to base: nothing is reported from outside any more
  kUnknown,     // back to base: no load is known
  kDisabled,    // back to base: switched off
};

struct AdaptiveOutcome {
  AdaptiveState state;
  bool changed = false;
  double factor = 1;
  AdaptiveReason reason = AdaptiveReason::kNone;
};

// One step of the controller. Within the dwell time of the last change only switching it off changes anything.
[[nodiscard]] AdaptiveOutcome step(const AdaptiveState& state, const AdaptiveSettings& settings,
                                   const AdaptiveInput& input, Nanos now) noexcept;

// Why it changed, for the audit log: "load 0.86 is over 0.8: limits are multiplied by 0.5".
[[nodiscard]] std::string describe(const AdaptiveOutcome& outcome, const AdaptiveSettings& settings,
                                   const AdaptiveInput& input);

[[nodiscard]] double factor_of(AdaptiveLevel level, const AdaptiveSettings& settings) noexcept;

// What limits are multiplied by: the emergency throttle's factor where that is lower.
[[nodiscard]] double factor_in_force(AdaptiveLevel level, bool emergency, const AdaptiveSettings& settings) noexcept;

// The pace at which commands run, by the share of CPU and memory in use; the lower of the two, and 0 blocks.
//
//   CPU     under 70 %: 1    from 70 %: 0.8    from 80 %: 0.6    from 90 %: 0.3    over 95 %: 0
//   memory  under 75 %: 1    from 75 %: 0.8    from 85 %: 0.6                      over 95 %: 0
//
// A row begins at its lower bound; exactly 95 % does not block yet. A figure that is absent or NaN slows nothing.
[[nodiscard]] double throttle_factor(std::optional<double> cpu, std::optional<double> memory) noexcept;

}  // namespace headgate::control
