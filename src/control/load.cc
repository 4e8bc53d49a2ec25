#include "control/load.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "control/ranges.h"

namespace headgate::control {
namespace {

std::optional<double> larger(std::optional<double> a, std::optional<double> b) noexcept {
  if (!a) return b;
  if (!b) return a;
  return std::max(*a, *b);
}

std::optional<double> value_of(const std::optional<LoadSource>& source) noexcept {
  return source ? std::optional(source->value) : std::nullopt;
}

void smooth(std::optional<LoadSource>& source, std::optional<double> reading, Nanos smoothing, Nanos now) {
  const std::optional<double> figure = load_figure(reading);
  if (figure && !source) {
    source = LoadSource{*figure, now};
  } else if (figure && now > source->at) {
    const double elapsed = std::chrono::duration<double>(now - source->at).count();
    const double constant = std::chrono::duration<double>(smoothing).count();
    const double weight = constant > 0 ? -std::expm1(-elapsed / constant) : 1.0;
    source = LoadSource{std::lerp(source->value, *figure, weight), now};
  } else if (source && now - source->at >= kLoadSourceTtl) {
    source.reset();
  }
}

void settle_level(LoadState& state, const LoadSettings& settings) {
  const std::optional<double> load = state.load(settings.sensors);
  state.level = load ? next_level(state.known ? state.level : LoadLevel::kNormal, *load, settings) : LoadLevel::kNormal;
  state.known = load.has_value();
}

LoadLevel plain_level(double load, const LoadSettings& settings) noexcept {
  if (load < settings.normal_at) return LoadLevel::kLow;
  if (load < settings.high_at) return LoadLevel::kNormal;
  return load < settings.critical_at ? LoadLevel::kHigh : LoadLevel::kCritical;
}

}  // namespace

const char* to_string(LoadLevel level) noexcept {
  switch (level) {
    case LoadLevel::kLow: return "low";
    case LoadLevel::kNormal: return "normal";
    case LoadLevel::kHigh: return "high";
    case LoadLevel::kCritical: return "critical";
  }
  return "unknown";
}

Result<void> validate(const LoadSettings& settings) {
  constexpr Range<double> kShare{0, 1};
  constexpr Range<double> kMargin{0, 0.25};
  constexpr Range<Nanos> kSmoothing{Nanos{0}, std::chrono::hours{1}};
  constexpr Range<Nanos> kReportTtl{Nanos{0}, std::chrono::hours{24 * 7}};
  if (!kShare.holds(settings.normal_at)) return out_of_range("normal_at", kShare, settings.normal_at);
  const Range<double> high{settings.normal_at, 1};
  if (!high.holds(settings.high_at)) return out_of_range("high_at", high, settings.high_at);
  const Range<double> critical{settings.high_at, 1};
  if (!critical.holds(settings.critical_at)) return out_of_range("critical_at", critical, settings.critical_at);
  if (!kMargin.holds(settings.margin)) return out_of_range("margin", kMargin, settings.margin);
  if (!kSmoothing.holds(settings.smoothing)) return out_of_range("smoothing", kSmoothing, settings.smoothing);
  if (!kReportTtl.holds(settings.report_ttl)) return out_of_range("report_ttl", kReportTtl, settings.report_ttl);
  return {};
}

std::optional<double> LoadState::load(bool sensors) const noexcept {
  if (!sensors) return value_of(reported);
  return worst({value_of(cpu), value_of(memory), value_of(pressure), value_of(reported)});
}

std::optional<double> load_figure(std::optional<double> figure) noexcept {
  if (!figure || std::isnan(*figure)) return std::nullopt;
  return std::clamp(*figure, 0.0, 1.0);
}

std::optional<double> worst(const LoadReading& reading) noexcept {
  return larger(larger(load_figure(reading.cpu), load_figure(reading.memory)),
                larger(load_figure(reading.pressure), load_figure(reading.reported)));
}

LoadState observe(LoadState state, const LoadSettings& settings, const LoadReading& reading, Nanos now) {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  smooth(state.cpu, reading.cpu, settings.smoothing, now);
  smooth(state.memory, reading.memory, settings.smoothing, now);
  smooth(state.pressure, reading.pressure, settings.smoothing, now);
  if (const auto figure = load_figure(reading.reported)) {
    state.reported = LoadSource{*figure, now};
  } else if (state.reported && settings.report_ttl > Nanos{0} && now - state.reported->at >= settings.report_ttl) {
    state.reported.reset();
  }
  settle_level(state, settings);
  return state;
}

LoadState clear_report(LoadState state, const LoadSettings& settings) {
  state.reported.reset();
  settle_level(state, settings);
  return state;
}

LoadLevel next_level(LoadLevel before, double load, const LoadSettings& settings) noexcept {
  const LoadLevel plain = plain_level(load, settings);
  switch (before) {
    case LoadLevel::kLow:
      return plain == LoadLevel::kNormal && load < settings.normal_at + settings.margin ? before : plain;
    case LoadLevel::kNormal: return plain;
    case LoadLevel::kHigh: return plain < before && load >= settings.high_at - settings.margin ? before : plain;
    case LoadLevel::kCritical:
      if (load >= settings.critical_at - settings.margin) return before;
      return next_level(LoadLevel::kHigh, load, settings);
  }
  return plain;
}

}  // namespace headgate::control
