#include "observe/repeats.h"

#include <gtest/gtest.h>

namespace headgate::observe {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kStart = 1'000h;

Notice escalation_of(std::string agent, Nanos time) {
  Notice notice;
  notice.kind = "escalation";
  notice.agent = std::move(agent);
  notice.policy_id = "p";
  notice.time = time;
  return notice;
}

TEST(Repeats, OneConditionIsQueuedOnceAndCounted) {
  Repeats repeats;
  EXPECT_TRUE(repeats.arrives(escalation_of("A", kStart)));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(repeats.arrives(escalation_of("A", kStart)));
  EXPECT_TRUE(repeats.arrives(escalation_of("B", kStart))) << "another condition";
  const Repeats::Turn turn = repeats.leaves(escalation_of("A", kStart));
  EXPECT_EQ(turn.count, 10U);
  EXPECT_FALSE(turn.again);
  EXPECT_EQ(repeats.leaves(escalation_of("B", kStart)).count, 1U);
}

TEST(Repeats, MadeUpOperationsAreOneCondition) {
  Repeats repeats;
  const auto come = [&](std::string operation) {
    Notice notice = escalation_of("A", kStart);
    notice.operation = std::move(operation);
    return repeats.arrives(notice);
  };
  EXPECT_TRUE(come("made-up-0"));
  for (int i = 1; i < 100; ++i) EXPECT_FALSE(come("made-up-" + std::to_string(i)));
  EXPECT_EQ(repeats.leaves(escalation_of("A", kStart)).count, 100U);
}

TEST(Repeats, WhatComesWithinTheCoolDownIsARepeatAndGoesOnCounting) {
  Repeats repeats;
  const auto come = [&](Nanos at) {
    EXPECT_TRUE(repeats.arrives(escalation_of("A", at)));
    return repeats.leaves(escalation_of("A", at));
  };
  EXPECT_FALSE(come(kStart).again);
  EXPECT_TRUE(come(kStart + 4min).again);
  const Repeats::Turn later = come(kStart + 6min);
  EXPECT_FALSE(later.again) << "the last telling is six minutes old";
  EXPECT_EQ(later.count, 3U) << "but the condition was never quiet";
  const Repeats::Turn anew = come(kStart + 11min);
  EXPECT_FALSE(anew.again);
  EXPECT_EQ(anew.count, 1U) << "it was quiet for a whole cool-down";
}

TEST(Repeats, AClockSetBackTellsAnew) {
  Repeats repeats;
  EXPECT_TRUE(repeats.arrives(escalation_of("A", kStart)));
  EXPECT_FALSE(repeats.leaves(escalation_of("A", kStart)).again);
  EXPECT_TRUE(repeats.arrives(escalation_of("A", kStart - 1h)));
  EXPECT_FALSE(repeats.leaves(escalation_of("A", kStart - 1h)).again);
}

TEST(Repeats, BeyondTheBoundTheOneHeardOfLeastLatelyIsForgotten) {
  Repeats repeats;
  for (std::size_t i = 0; i <= Repeats::kMost; ++i) {
    EXPECT_TRUE(repeats.arrives(escalation_of("A" + std::to_string(i), kStart)));
  }
  EXPECT_TRUE(repeats.arrives(escalation_of("A0", kStart))) << "as if it were new";
  EXPECT_FALSE(repeats.arrives(escalation_of("A" + std::to_string(Repeats::kMost), kStart)));
}

}  // namespace
}  // namespace headgate::observe
