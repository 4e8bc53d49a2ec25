#include "control/adaptive.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <vector>

#include "unit/control/figures.h"

namespace headgate::control {
namespace {

using namespace std::chrono_literals;

using enum AdaptiveLevel;

// The level a load leads to from another one, long after the last change.
AdaptiveLevel led(AdaptiveLevel from, std::optional<double> load, bool reported = true,
                  const AdaptiveSettings& settings = {}) {
  return step({from, kStart - 1h}, settings, {load, reported}, kStart).state.level;
}

TEST(Adaptive, LowersOverHighAndStaysUntilAMarginBelow) {
  EXPECT_EQ(led(kBase, 0.8), kBase) << "strictly over";
  EXPECT_EQ(led(kBase, std::nextafter(0.8, 1)), kLowered);
  EXPECT_EQ(led(kLowered, 0.76), kLowered);
  EXPECT_EQ(led(kLowered, 0.8 - 0.05), kBase);
  EXPECT_EQ(led(kRaised, 0.81), kLowered) << "in one step";
}

TEST(Adaptive, RaisesUnderLowAndStaysUntilAMarginAbove) {
  EXPECT_EQ(led(kBase, 0.3), kBase) << "strictly under";
  EXPECT_EQ(led(kBase, std::nextafter(0.3, 0)), kRaised);
  EXPECT_EQ(led(kRaised, 0.34), kRaised);
  EXPECT_EQ(led(kRaised, 0.3 + 0.05), kBase);
  EXPECT_EQ(led(kLowered, 0.1), kRaised) << "in one step";
}

TEST(Adaptive, OurOwnSensorsOnlyEverLower) {
  EXPECT_EQ(led(kBase, 0.0, false), kBase);
  EXPECT_EQ(led(kLowered, 0.0, false), kBase);
  EXPECT_EQ(led(kRaised, 0.0, false), kBase) << "whoever reported has stopped";
  EXPECT_EQ(led(kBase, 0.9, false), kLowered);
}

TEST(Adaptive, AnUnknownLoadLeadsBackToBase) {
  for (const AdaptiveLevel from : {kLowered, kBase, kRaised}) {
    EXPECT_EQ(led(from, std::nullopt), kBase);
    EXPECT_EQ(led(from, kNan), kBase);
  }
}

TEST(Adaptive, LoadsOutOfRangeAreCut) {
  EXPECT_EQ(led(kBase, 7.0), kLowered);
  EXPECT_EQ(led(kBase, -7.0), kRaised);
}

TEST(Adaptive, TheFirstChangeIsImmediateAndLaterOnesDwell) {
  const AdaptiveSettings settings;
  AdaptiveOutcome outcome = step({}, settings, {0.9, false}, kStart);
  EXPECT_TRUE(outcome.changed);
  EXPECT_EQ(outcome.factor, 0.5);
  outcome = step(outcome.state, settings, {0.1, true}, kStart + 10s - 1ns);
  EXPECT_FALSE(outcome.changed);
  EXPECT_EQ(outcome.factor, 0.5);
  EXPECT_EQ(outcome.state.changed_at, kStart) << "waiting does not lengthen the wait";
  outcome = step(outcome.state, settings, {0.1, true}, kStart - 1h);
  EXPECT_FALSE(outcome.changed) << "a clock that goes backwards ends no dwell time";
  outcome = step(outcome.state, settings, {0.1, true}, kStart + 10s);
  EXPECT_TRUE(outcome.changed);
  EXPECT_EQ(outcome.factor, 1.25);
  outcome = step(outcome.state, settings, {1.0, true}, kStart + 11s);
  EXPECT_FALSE(outcome.changed) << "lowering dwells like everything after the first";
}

TEST(Adaptive, SwitchedOffItIsAtBaseAtOnce) {
  AdaptiveSettings settings;
  const AdaptiveState lowered = step({}, settings, {0.9, false}, kStart).state;
  settings.enabled = false;
  const AdaptiveOutcome outcome = step(lowered, settings, {0.9, false}, kStart + 1ns);
  EXPECT_TRUE(outcome.changed);
  EXPECT_EQ(outcome.factor, 1);
  EXPECT_EQ(outcome.reason, AdaptiveReason::kDisabled);
  EXPECT_FALSE(step(outcome.state, settings, {1.0, true}, kStart + 1h).changed);
}

TEST(Adaptive, EveryChangeSaysWhy) {
  const AdaptiveSettings settings;
  const auto why = [&](AdaptiveLevel from, AdaptiveInput input, const AdaptiveSettings& with) {
    const AdaptiveOutcome outcome = step({from, std::nullopt}, with, input, kStart);
    EXPECT_EQ(outcome.changed, outcome.reason != AdaptiveReason::kNone);
    return describe(outcome, with, input);
  };
  EXPECT_EQ(why(kBase, {0.86, false}, settings), "load 0.86 is over 0.8: limits are multiplied by 0.5");
  EXPECT_EQ(why(kBase, {0.25, true}, settings), "load 0.25 is under 0.3: limits are multiplied by 1.25");
  EXPECT_EQ(why(kLowered, {0.5, true}, settings), "load 0.5 is high no longer: limits are multiplied by 1");
  EXPECT_EQ(why(kRaised, {0.5, true}, settings), "load 0.5 is low no longer: limits are multiplied by 1");
  EXPECT_EQ(why(kRaised, {0.1, false}, settings),
            "no load is reported from outside any more: limits are multiplied by 1");
  EXPECT_EQ(why(kLowered, {std::nullopt, false}, settings), "the load is unknown: limits are multiplied by 1");
  EXPECT_EQ(why(kLowered, {0.9, false}, {.enabled = false}), "adaptive limits are off: limits are multiplied by 1");
  EXPECT_EQ(why(kLowered, {0.9, false}, settings), "load 0.9: limits stay multiplied by 0.5");
}

RC_GTEST_PROP(Adaptive, TheFactorIsOneOfThreeAndChangesAreADwellTimeApart, ()) {
  AdaptiveSettings settings;
  settings.dwell = std::chrono::seconds{*rc::gen::inRange(0, 30)};
  AdaptiveState state;
  Nanos now = kStart;
  std::optional<Nanos> changed_at;
  const auto moves = *rc::gen::container<std::vector<std::tuple<int, bool, int>>>(
      rc::gen::tuple(rc::gen::inRange(-10, 120), rc::gen::arbitrary<bool>(), rc::gen::inRange(-3, 20)));
  for (const auto& [percent, reported, gap] : moves) {
    now += std::chrono::seconds{gap};
    const AdaptiveOutcome outcome = step(state, settings, {percent / 100.0, reported}, now);
    RC_ASSERT(outcome.factor == 0.5 || outcome.factor == 1.0 || outcome.factor == 1.25);
    RC_ASSERT(outcome.factor == factor_of(outcome.state.level, settings));
    RC_ASSERT(outcome.changed == (outcome.state.level != state.level));
    if (outcome.factor > 1 && outcome.changed) RC_ASSERT(reported);
    if (outcome.changed) {
      if (changed_at) RC_ASSERT(now - *changed_at >= settings.dwell);
      changed_at = now;
    }
    state = outcome.state;
  }
}

TEST(Adaptive, AnEmergencyLowersFurtherAndNeverRaises) {
  EXPECT_EQ(factor_in_force(kLowered, false, {}), 0.5);
  EXPECT_EQ(factor_in_force(kRaised, false, {}), 1.25);
  for (const AdaptiveLevel level : {kLowered, kBase, kRaised}) EXPECT_EQ(factor_in_force(level, true, {}), 0.1);
  EXPECT_EQ(factor_in_force(kLowered, true, {.high_factor = 0.05}), 0.05);
}

TEST(Adaptive, SettingsOutOfRangeAreRefusedByName) {
  const auto refusal = [](const AdaptiveSettings& settings) {
    const auto valid = validate(settings);
    return valid ? std::string("accepted") : valid.error().message;
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.high = 1.5}), "high must be between 0.01 and 1, got 1.5");
  EXPECT_EQ(refusal({.low = 0.85}), "low must be between 0 and 0.8, got 0.85");
  EXPECT_EQ(refusal({.high_factor = 0}), "high_factor must be between 0.01 and 1, got 0");
  EXPECT_EQ(refusal({.low_factor = kNan}), "low_factor must be between 1 and 10, got nan");
  EXPECT_EQ(refusal({.margin = 0.3}), "margin must be between 0 and 0.25, got 0.3");
  EXPECT_EQ(refusal({.dwell = 2h}), "dwell must be between 0s and 1h, got 2h");
  EXPECT_EQ(refusal({.emergency_at = 0}), "emergency_at must be between 0.01 and 1, got 0");
  EXPECT_EQ(refusal({.emergency_margin = 1}), "emergency_margin must be between 0 and 0.9, got 1");
  EXPECT_EQ(refusal({.emergency_factor = -1}), "emergency_factor must be between 0.01 and 1, got -1");
}

TEST(ThrottleFactor, EveryRowBeginsAtItsLowerBoundAndOnlyMoreThan95PercentBlocks) {
  struct Row {
    double share;
    double factor;
  };
  const Row cpu[] = {{-1, 1},       {0, 1},     {0.6999, 1}, {0.7, 0.8},  {0.7999, 0.8}, {0.8, 0.6},
                     {0.8999, 0.6}, {0.9, 0.3}, {0.95, 0.3}, {0.9501, 0}, {1, 0},        {5, 0}};
  const Row memory[] = {{-1, 1},     {0, 1},      {0.7499, 1}, {0.75, 0.8}, {0.8499, 0.8},
                        {0.85, 0.6}, {0.95, 0.6}, {0.9501, 0}, {1, 0},      {5, 0}};
  for (const auto& [share, factor] : cpu) EXPECT_EQ(throttle_factor(share, 0.0), factor) << "cpu " << share;
  for (const auto& [share, factor] : memory) EXPECT_EQ(throttle_factor(0.0, share), factor) << "memory " << share;
  EXPECT_EQ(throttle_factor(std::nextafter(0.7, 0), 0.0), 1);
  EXPECT_EQ(throttle_factor(std::nextafter(0.95, 1), 0.0), 0);
  EXPECT_EQ(throttle_factor(0.0, std::nextafter(0.95, 1)), 0);
}

TEST(ThrottleFactor, IsTheLowerOfTheTwo) {
  EXPECT_EQ(throttle_factor(0.92, 0.8), 0.3);
  EXPECT_EQ(throttle_factor(0.75, 0.9), 0.6);
  EXPECT_EQ(throttle_factor(0.1, 0.99), 0);
}

TEST(ThrottleFactor, WhatIsUnknownSlowsNothing) {
  EXPECT_EQ(throttle_factor(std::nullopt, std::nullopt), 1);
  EXPECT_EQ(throttle_factor(kNan, 0.8), 0.8);
  EXPECT_EQ(throttle_factor(0.85, std::nullopt), 0.6);
}

}  // namespace
}  // namespace headgate::control
