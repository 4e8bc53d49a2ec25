// Back-off: each violation that follows another too soon is told to wait longer; a quiet period forgives all of them.
//
// Pure functions of a state, the settings and the time. Instants are taken in [0, kMaxTime]; one that lies before the
// last violation changes no instant, so a clock that goes backwards neither forgives nor lengthens anything.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::control {

struct BackoffSettings {
  // What the first, second, … violation in a row is told to wait; the last one repeats. None: no back-off.
  std::vector<Nanos> steps{std::chrono::seconds{1}, std::chrono::seconds{2}, std::chrono::seconds{5},
                           std::chrono::seconds{10}, std::chrono::seconds{30}};
  Nanos quiet{std::chrono::seconds{60}};  // this long without a violation ends the row
  bool enforced = false;                  // true: checks before the wait is over are denied
};

inline constexpr std::size_t kMaxBackoffSteps = 16;

// Settings as an operator gives them: 1 to 16 steps of 1ms to 1d, none shorter than the one before; quiet of 1s to 7d.
[[nodiscard]] Result<void> validate(const BackoffSettings& settings);

struct BackoffState {
  std::uint32_t consecutive = 0;
  Nanos last{0};  // the latest violation
};

[[nodiscard]] inline Nanos clamped(Nanos instant) noexcept { return std::clamp(instant, Nanos{0}, kMaxTime); }

// Whether there was a violation within the quiet period: what a scheduler reads as rate_limited. Exactly one quiet
// period after the last violation it is over.
[[nodiscard]] inline bool active(const BackoffState& state, const BackoffSettings& settings, Nanos now) noexcept {
  return state.consecutive > 0 && clamped(now) - state.last < settings.quiet;
}

[[nodiscard]] inline BackoffState violated(BackoffState state, const BackoffSettings& settings, Nanos now) noexcept {
  if (!active(state, settings, now)) state.consecutive = 0;
  if (state.consecutive < std::numeric_limits<std::uint32_t>::max()) ++state.consecutive;
  state.last = std::max(state.last, clamped(now));
  return state;
}

// The step for that many violations in a row.
[[nodiscard]] inline Nanos delay(const BackoffState& state, const BackoffSettings& settings) noexcept {
  if (state.consecutive == 0 || settings.steps.empty()) return Nanos{0};
  return settings.steps[std::min<std::size_t>(state.consecutive, settings.steps.size()) - 1];
}

// When enforced, the instant from which checks are judged again; else 0. A block never outlasts the quiet period, which
// forgives what it stands for.
[[nodiscard]] inline Nanos blocked_until(const BackoffState& state, const BackoffSettings& settings) noexcept {
  if (!settings.enforced || state.consecutive == 0) return Nanos{0};
  return state.last + std::min(delay(state, settings), settings.quiet);
}

}  // namespace headgate::control
