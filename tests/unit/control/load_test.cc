#include "control/load.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "unit/control/figures.h"

namespace headgate::control {
namespace {

using namespace std::chrono_literals;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

LoadState seen(const LoadReading& reading, LoadState before = {}, Nanos now = kStart,
               const LoadSettings& settings = {}) {
  return observe(before, settings, reading, now);
}

TEST(Load, IsTheWorstOfWhatIsKnown) {
  EXPECT_EQ(worst({}), std::nullopt);
  EXPECT_EQ(worst({.cpu = 0.2, .memory = 0.7, .pressure = 0.1, .reported = 0.3}), 0.7);
  EXPECT_EQ(worst({.pressure = 0.4, .reported = 0.9}), 0.9);
  EXPECT_EQ(seen({.cpu = 0.2, .memory = 0.7}).load(), 0.7);
  EXPECT_EQ(seen({}).load(), std::nullopt);
}

TEST(Load, FiguresOutOfRangeAreCutAndNanIsNone) {
  EXPECT_EQ(load_figure(-0.5), 0.0);
  EXPECT_EQ(load_figure(1.5), 1.0);
  EXPECT_EQ(load_figure(kInfinity), 1.0);
  EXPECT_EQ(load_figure(-kInfinity), 0.0);
  EXPECT_EQ(load_figure(kNan), std::nullopt);
  EXPECT_EQ(seen({.cpu = kNan, .memory = -1}).load(), 0.0);
  EXPECT_EQ(seen({.cpu = kNan, .reported = kNan}).load(), std::nullopt);
  const LoadState before = seen({.reported = 0.6});
  EXPECT_EQ(seen({.reported = kNan}, before).load(), 0.6) << "no report, so the last one stands";
}

TEST(Load, SensorsAreSmoothedByElapsedTime) {
  const LoadSettings settings{.smoothing = 5s};
  const LoadState first = seen({.cpu = 1.0}, {}, kStart, settings);
  EXPECT_EQ(first.load(), 1.0) << "the first is taken as it is";
  const LoadState later = seen({.cpu = 0.0}, first, kStart + 5s, settings);
  EXPECT_NEAR(*later.load(), std::exp(-1.0), 1e-12);
  // Whether the same time passes in one step or in many makes no difference.
  LoadState many = first;
  for (int i = 1; i <= 50; ++i) many = seen({.cpu = 0.0}, many, kStart + i * 100ms, settings);
  EXPECT_NEAR(*many.load(), *later.load(), 1e-9);
}

TEST(Load, EachSourceIsSmoothedByItself) {
  const LoadState first = seen({.cpu = 0.5});
  const LoadState second = seen({.cpu = 0.5, .memory = 0.9}, first, kStart + 1s);
  EXPECT_EQ(second.memory->value, 0.9) << "its first";
  EXPECT_NEAR(second.cpu->value, 0.5, 1e-12);
}

TEST(Load, WithoutSmoothingTheLatestReadingCounts) {
  const LoadSettings settings{.smoothing = 0s};
  EXPECT_EQ(seen({.cpu = 0.1}, seen({.cpu = 0.9}, {}, kStart, settings), kStart + 1ns, settings).load(), 0.1);
}

TEST(Load, AReadingFromThePastChangesNothing) {
  const LoadState first = seen({.cpu = 0.5});
  EXPECT_EQ(seen({.cpu = 1.0}, first, kStart).load(), 0.5);
  EXPECT_EQ(seen({.cpu = 1.0}, first, kStart - 1h).load(), 0.5);
  EXPECT_EQ(seen({.cpu = 1.0}, first, Nanos::min()).load(), 0.5);
}

TEST(Load, ASourceThatFallsSilentIsForgottenAfterAWhile) {
  const LoadState first = seen({.cpu = 0.95, .memory = 0.1});
  EXPECT_EQ(seen({.memory = 0.1}, first, kStart + 30s - 1ns).load(), 0.95);
  EXPECT_NEAR(*seen({.memory = 0.1}, first, kStart + 30s).load(), 0.1, 1e-9);
  const LoadState silent = seen({}, first, kStart + 30s);
  EXPECT_EQ(silent.load(), std::nullopt);
  EXPECT_EQ(silent.level, LoadLevel::kNormal);
}

TEST(Load, AReportIsNotSmoothedAndStaysUntilReplacedOrCleared) {
  LoadState state = seen({.reported = 0.2});
  state = seen({.reported = 0.9}, state, kStart + 1ns);
  EXPECT_EQ(state.load(), 0.9);
  state = seen({}, state, kStart + 24h * 365);
  EXPECT_EQ(state.load(), 0.9);
  state = clear_report(state, {});
  EXPECT_EQ(state.load(), std::nullopt);
  EXPECT_EQ(state.level, LoadLevel::kNormal);
}

TEST(Load, AReportWithATimeToLiveIsForgotten) {
  const LoadSettings settings{.report_ttl = 10s};
  const LoadState state = seen({.reported = 0.9}, {}, kStart, settings);
  EXPECT_EQ(seen({}, state, kStart + 10s - 1ns, settings).load(), 0.9);
  EXPECT_EQ(seen({}, state, kStart + 10s, settings).load(), std::nullopt);
  EXPECT_EQ(seen({}, state, kStart - 1h, settings).load(), 0.9);
}

TEST(Load, LevelsBeginAtTheirThresholds) {
  const std::pair<double, LoadLevel> rows[] = {
      {0, LoadLevel::kLow},    {0.29, LoadLevel::kLow},  {0.3, LoadLevel::kNormal},   {0.79, LoadLevel::kNormal},
      {0.8, LoadLevel::kHigh}, {0.89, LoadLevel::kHigh}, {0.9, LoadLevel::kCritical}, {1, LoadLevel::kCritical}};
  for (const auto& [load, level] : rows) EXPECT_EQ(seen({.reported = load}).level, level) << load;
  EXPECT_EQ(seen({}).level, LoadLevel::kNormal) << "an unknown load is not a low one";
}

TEST(Load, LevelsAreLeftAMarginLater) {
  struct Row {
    LoadLevel before;
    double load;
    LoadLevel after;
  };
  const Row rows[] = {
      {LoadLevel::kLow, 0.34, LoadLevel::kLow},         {LoadLevel::kLow, 0.35, LoadLevel::kNormal},
      {LoadLevel::kLow, 0.8, LoadLevel::kHigh},         {LoadLevel::kLow, 0.95, LoadLevel::kCritical},
      {LoadLevel::kNormal, 0.31, LoadLevel::kNormal},   {LoadLevel::kHigh, 0.75, LoadLevel::kHigh},
      {LoadLevel::kHigh, 0.74, LoadLevel::kNormal},     {LoadLevel::kHigh, 0.9, LoadLevel::kCritical},
      {LoadLevel::kHigh, 0.1, LoadLevel::kLow},         {LoadLevel::kCritical, 0.86, LoadLevel::kCritical},
      {LoadLevel::kCritical, 0.84, LoadLevel::kHigh},   {LoadLevel::kCritical, 0.76, LoadLevel::kHigh},
      {LoadLevel::kCritical, 0.74, LoadLevel::kNormal}, {LoadLevel::kCritical, 0.1, LoadLevel::kLow}};
  for (const Row& row : rows) {
    EXPECT_EQ(next_level(row.before, row.load, {}), row.after) << to_string(row.before) << " at " << row.load;
  }
}

RC_GTEST_PROP(Load, ALoadThatWigglesLessThanTheMarginChangesLevelAtMostOnce, ()) {
  const LoadSettings settings;
  const double centre = *rc::gen::inRange(0, 1000) / 1000.0;
  const auto wiggles = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-24, 25));
  LoadLevel level = next_level(LoadLevel::kNormal, centre, settings);
  int changes = 0;
  for (const int wiggle : wiggles) {
    const LoadLevel next = next_level(level, std::clamp(centre + wiggle / 1000.0, 0.0, 1.0), settings);
    changes += next != level ? 1 : 0;
    level = next;
  }
  RC_ASSERT(changes <= 1);
}

RC_GTEST_PROP(Load, StaysBetweenNoughtAndOneWhateverIsRead, ()) {
  LoadState state;
  Nanos now = kStart;
  for (const auto& [figure, gap] : *rc::gen::container<std::vector<std::pair<double, int>>>(
           rc::gen::pair(rc::gen::arbitrary<double>(), rc::gen::inRange(-5, 40)))) {
    now += std::chrono::seconds{gap};
    state = observe(state, {}, {.cpu = figure, .memory = -figure, .reported = figure / 3}, now);
    if (state.load()) RC_ASSERT(*state.load() >= 0 && *state.load() <= 1);
  }
}

TEST(Load, AnEmergencyReadsAtLeastHigh) {
  EXPECT_EQ(level_in_force(LoadLevel::kLow, false), LoadLevel::kLow);
  EXPECT_EQ(level_in_force(LoadLevel::kLow, true), LoadLevel::kHigh);
  EXPECT_EQ(level_in_force(LoadLevel::kHigh, true), LoadLevel::kHigh);
  EXPECT_EQ(level_in_force(LoadLevel::kCritical, true), LoadLevel::kCritical);
}

TEST(Load, SettingsOutOfRangeAreRefusedByName) {
  const auto refusal = [](const LoadSettings& settings) {
    const auto valid = validate(settings);
    return valid ? std::string("accepted") : valid.error().message;
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.normal_at = kNan}), "normal_at must be between 0 and 1, got nan");
  EXPECT_EQ(refusal({.high_at = 0.2}), "high_at must be between 0.3 and 1, got 0.2");
  EXPECT_EQ(refusal({.critical_at = 1.1}), "critical_at must be between 0.8 and 1, got 1.1");
  EXPECT_EQ(refusal({.margin = -0.1}), "margin must be between 0 and 0.25, got -0.1");
  EXPECT_EQ(refusal({.smoothing = -1s}), "smoothing must be between 0s and 1h, got -1s");
  EXPECT_EQ(refusal({.report_ttl = 8 * 24h}), "report_ttl must be between 0s and 7d, got 8d");
}

}  // namespace
}  // namespace headgate::control
