// How busy the system is: the worst of what the sensors read, smoothed, and of what is reported from outside.
//
// Pure functions of a state, the settings and the time. Figures are taken in [0, 1]: lower ones count as 0, higher ones
// as 1, and NaN as none at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::control {

// One look at the sources. A source that could not be read is absent.
struct LoadReading {
  std::optional<double> cpu{};
  std::optional<double> memory{};
  std::optional<double> pressure{};  // the share of time in which a task waited for CPU, memory or I/O
  std::optional<double> reported{};  // by the service behind us, about itself
};

enum class LoadLevel : std::uint8_t { kLow, kNormal, kHigh, kCritical };

// As policies spell them: "low", "normal", "high", "critical".
[[nodiscard]] const char* to_string(LoadLevel level) noexcept;

struct LoadSettings {
  double normal_at = 0.3;  // below: low
  double high_at = 0.8;
  double critical_at = 0.9;
  double margin = 0.05;                      // how far back towards normal the load must go to leave a level
  Nanos smoothing{std::chrono::seconds{5}};  // after so long a new reading weighs 63 %; 0: no smoothing
  Nanos report_ttl{0};  // a report is forgotten after so long; 0: it stays until replaced or cleared
  bool sensors = true;  // whether the level follows the sensors, besides the report
};

[[nodiscard]] Result<void> validate(const LoadSettings& settings);

// A source that has not been read for this long is unknown again.
inline constexpr Nanos kLoadSourceTtl = std::chrono::seconds{30};

struct LoadSource {
  double value = 0;
  Nanos at{0};
};

struct LoadState {
  std::optional<LoadSource> cpu;
  std::optional<LoadSource> memory;
  std::optional<LoadSource> pressure;
  std::optional<LoadSource> reported;
  LoadLevel level = LoadLevel::kNormal;  // of nothing known: an unknown load is not a low one
  bool known = false;                    // there has been a figure to take the level from

  // The worst of what is known; without the sensors: what is reported.
  [[nodiscard]] std::optional<double> load(bool sensors = true) const noexcept;
};

// The figure within [0, 1]; none for NaN.
[[nodiscard]] std::optional<double> load_figure(std::optional<double> figure) noexcept;

// The worst of these, as they are.
[[nodiscard]] std::optional<double> worst(const LoadReading& reading) noexcept;

// Takes a reading in. The sensors' figures are smoothed by the time since the last one, the first taken as it is; a
// reading from before that changes nothing. A reported figure replaces the last one and is not smoothed: its
// source has done so. Call it also with an empty reading, so that old figures are forgotten.
[[nodiscard]] LoadState observe(LoadState state, const LoadSettings& settings, const LoadReading& reading, Nanos now);

// Takes the report back.
[[nodiscard]] LoadState clear_report(LoadState state, const LoadSettings& settings);

// The level that follows on `before`. Low, high and critical are entered at their thresholds, and left when the load is
// a margin back towards normal.
[[nodiscard]] LoadLevel next_level(LoadLevel before, double load, const LoadSettings& settings) noexcept;

// What policies see: while the emergency throttle is on, the level reads at least high.
[[nodiscard]] constexpr LoadLevel level_in_force(LoadLevel level, bool emergency) noexcept {
  return emergency && level < LoadLevel::kHigh ? LoadLevel::kHigh : level;
}

}  // namespace headgate::control
