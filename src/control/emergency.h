// The emergency throttle: turned on by an operator, or by a load over the limit.
//
// Pure transitions from one state to the next; the caller applies, audits and saves what comes out. `now` is wall time,
// since people read it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "control/adaptive.h"
#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::control {

struct Emergency {
  bool active = false;
  bool automatic = false;  // turned on by the load, which may turn it off again
  bool held_off = false;   // turned off by hand in spite of the load, which may not turn it on before it has fallen
  std::string reason{};
  std::string by{};
  std::string node{};  // automatic: the other node whose load turned it on, and turns it off; empty: this one's did
  Nanos since{0};

  friend bool operator==(const Emergency&, const Emergency&) = default;
};

inline constexpr std::size_t kMaxEmergencyReason = 500;
inline constexpr std::size_t kMaxEmergencyBy = 200;

struct EmergencyOrder {
  std::string reason;  // 1 to 500 bytes of UTF-8 without control characters
  std::string by;      // 1 to 200 of such bytes
};

// On by hand. What is on already stays on since then, with the new reason, and is no longer automatic.
[[nodiscard]] Result<Emergency> turn_on(const Emergency& state, const EmergencyOrder& order, Nanos now);

// Off by hand. With a load over the one at which it turns itself off, it is held off until that has been reached; so it
// is where another node's load has turned it on.
[[nodiscard]] Emergency turn_off(const Emergency& state, const AdaptiveSettings& settings, std::optional<double> load);

// What the load does by itself: on over emergency_at, off again at emergency_at - emergency_margin or when the load is
// no longer known, but only what it has turned on: what another node's load has turned on is not this one's to end. An
// unknown load ends a hold as well. The caller sees a change by comparing.
[[nodiscard]] Emergency follow_load(const Emergency& state, const AdaptiveSettings& settings,
                                    std::optional<double> load, Nanos now);

// Kept across restarts in a small text file. A missing file is an inactive throttle; one that is torn, altered or not
// ours is an error, and the caller decides whether to start throttled.
[[nodiscard]] Result<void> save_emergency(const std::string& path, const Emergency& state);
[[nodiscard]] Result<Emergency> load_emergency(const std::string& path);

}  // namespace headgate::control
