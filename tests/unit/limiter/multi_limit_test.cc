// Several limits on each key: a burst and a sustained rate, taken together or not at all.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/limiters.h"

namespace headgate::test {
namespace {

class BurstAndSustained : public testing::Test {
 protected:
  ManualClock clock_{kStart};
  // Five at once, refilled within a second; twenty in any minute.
  std::unique_ptr<MemoryLimiter> limiter_ =
      make(Options().limit(token_bucket(5, 5)).limit(sliding_window(20, 60s)).clock(clock_));
};

TEST_F(BurstAndSustained, BothMustHaveRoom) {
  int admitted = 0;
  for (int i = 0; i < 10; ++i) {
    while (limiter_->try_acquire("key")) ++admitted;
    EXPECT_EQ(admitted, std::min(5 * (i + 1), 20)) << "after second " << i;
    clock_.advance(1s);
  }
}

TEST_F(BurstAndSustained, DecisionShowsTheLeastRemainingAndTheLongestReset) {
  const Decision first = limiter_->try_acquire("key");
  EXPECT_EQ(first.limit, 5);
  EXPECT_EQ(first.remaining, 4);
  EXPECT_EQ(first.reset_after, 60s);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1s);
    ASSERT_TRUE(limiter_->try_acquire("key", 5));
  }
  clock_.advance(1s);
  const Decision last = limiter_->try_acquire("key", 2);
  EXPECT_EQ(last.limit, 20);
  EXPECT_EQ(last.remaining, 2);
}

TEST_F(BurstAndSustained, RetryAfterIsTheLongerOfTheTwo) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  EXPECT_EQ(limiter_->try_acquire("key").retry_after, 200ms);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1s);
    ASSERT_TRUE(limiter_->try_acquire("key", 5));
  }
  EXPECT_EQ(limiter_->try_acquire("key").retry_after, 57s);
}

TEST_F(BurstAndSustained, ADenialByOneChargesNeither) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  for (int i = 0; i < 50; ++i) ASSERT_FALSE(limiter_->try_acquire("key"));
  clock_.advance(1s);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(limiter_->try_acquire("key", 5)) << i;
    clock_.advance(1s);
  }
  EXPECT_FALSE(limiter_->try_acquire("key"));
}

TEST_F(BurstAndSustained, WhatOneOfThemCouldNeverHoldIsNever) {
  const Decision decision = limiter_->try_acquire("key", 6);
  EXPECT_EQ(decision.verdict, Verdict::kNever);
  EXPECT_EQ(decision.reason, Reason::kCostExceedsLimit);
  EXPECT_EQ(limiter_->remaining("key"), 5);
}

TEST_F(BurstAndSustained, ClearForgetsBoth) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(limiter_->try_acquire("key", 5));
    clock_.advance(1s);
  }
  EXPECT_EQ(limiter_->totals().cells, 2U);
  limiter_->clear("key");
  EXPECT_EQ(limiter_->totals().cells, 0U);
  EXPECT_TRUE(limiter_->try_acquire("key", 5));
}

TEST_F(BurstAndSustained, ACallCountsOnce) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  ASSERT_FALSE(limiter_->try_acquire("key", 5));
  EXPECT_EQ(limiter_->totals().acquired, 1U);
  EXPECT_EQ(limiter_->totals().throttled, 1U);
}

TEST_F(BurstAndSustained, EachLimitIsChangedByItsIndex) {
  ASSERT_TRUE(limiter_->set_limit(sliding_window(6, 60s), OnChange::kKeepUnits, 1));
  EXPECT_EQ(limiter_->try_acquire("key", 5).remaining, 0);
  clock_.advance(1s);
  EXPECT_FALSE(limiter_->try_acquire("key", 2));
  EXPECT_TRUE(limiter_->try_acquire("key", 1));
  EXPECT_FALSE(limiter_->set_limit(sliding_window(6, 60s), OnChange::kKeepUnits, 0));
  EXPECT_FALSE(limiter_->set_limit(sliding_window(6, 60s), OnChange::kKeepUnits, 2));
}

TEST_F(BurstAndSustained, ReservationsWaitForBothAndCancelGivesBackBoth) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  Reservation soon = limiter_->reserve("key", 2, 1s);
  ASSERT_TRUE(soon.ok());
  EXPECT_EQ(soon.delay(), 400ms);
  soon.cancel();
  clock_.advance(1s);
  EXPECT_EQ(limiter_->remaining("key"), 5);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(limiter_->try_acquire("key", 5)) << i;
    clock_.advance(1s);
  }
  EXPECT_EQ(limiter_->try_acquire("key").retry_after, 56s);
}

// A leaky bucket admits at once and acts later; what else is charged is charged now, and comes back on cancel.
TEST(MultiLimit, CancelGivesBackToAWindowBesideALeakyBucket) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(leaky_bucket(10, 9)).limit(sliding_window(8, 60s)).clock(clock));
  ASSERT_TRUE(limiter->try_acquire("key", 3));
  Reservation reservation = limiter->reserve("key", 5, 1s);
  ASSERT_TRUE(reservation.ok());
  EXPECT_EQ(reservation.delay(), 300ms);
  EXPECT_EQ(limiter->remaining("key"), 0);
  reservation.cancel();
  EXPECT_EQ(limiter->remaining("key"), 5);
  EXPECT_TRUE(limiter->try_acquire("key", 5));
}

TEST(MultiLimit, TwoLimitsOfOneStrategyAreTwoCells) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(fixed_window(2, 1s)).limit(fixed_window(3, 60s)).clock(clock));
  EXPECT_TRUE(limiter->try_acquire("key", 2));
  EXPECT_EQ(limiter->totals().cells, 2U);
  clock.advance(1s);
  EXPECT_FALSE(limiter->try_acquire("key", 2));
  EXPECT_TRUE(limiter->try_acquire("key", 1));
  clock.advance(1s);
  EXPECT_EQ(limiter->try_acquire("key").retry_after, 58s);
}

TEST(MultiLimit, ADenialLeavesNoTraceInAWindowThatThenGrows) {
  ManualClock clock(kStart);
  const auto asked = make(Options().limit(sliding_window(4, 1s)).limit(fixed_window(4, 1h)).clock(clock));
  const auto not_asked = make(Options().limit(sliding_window(4, 1s)).limit(fixed_window(4, 1h)).clock(clock));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(asked->try_acquire("key"));
    ASSERT_TRUE(not_asked->try_acquire("key"));
    clock.advance(200ms);
  }
  // The first has left the small window, so there is room again; but not in the large one.
  clock.set(kStart + 1100ms);
  EXPECT_FALSE(asked->try_acquire("key"));
  for (MemoryLimiter* limiter : {asked.get(), not_asked.get()}) {
    ASSERT_TRUE(limiter->set_limit(sliding_window(8, 10s), OnChange::kKeepUnits, 0));
    ASSERT_TRUE(limiter->set_limit(fixed_window(100, 1h), OnChange::kReset, 1));
  }
  for (Units permits = 1; permits <= 8; ++permits) {
    EXPECT_TRUE(same(asked->peek("key", permits), not_asked->peek("key", permits))) << permits;
  }
  EXPECT_EQ(asked->remaining("key"), 4);
}

TEST(MultiLimit, KeysTimesLimitsMayNotPassTheMostPerCall) {
  ManualClock clock(kStart);
  Options options;
  for (int i = 0; i < 8; ++i) options.limit(token_bucket(10, 10));
  const auto limiter = make(options.clock(clock));
  std::vector<Request> requests(8, Request{"key", 1});
  EXPECT_TRUE(limiter->try_acquire_all(requests));
  requests.push_back({"key", 1});
  EXPECT_EQ(limiter->try_acquire_all(requests).reason, Reason::kInvalidCost);
  EXPECT_EQ(limiter->remaining("key"), 2);
}

// The oracle asks two limiters with one limit each, and charges them only if both would admit.
RC_GTEST_PROP(MultiLimit, AgreesWithTwoLimitersAskedInTurn, ()) {
  const Strategy a = *rc::gen::elementOf(all_strategies());
  const Strategy b = *rc::gen::elementOf(all_strategies());
  const auto trace = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 700), rc::gen::inRange(0, 12)));
  ManualClock clock(kStart);
  const auto both = make(Options().limit(ten_of(a)).limit(ten_of(b)).clock(clock));
  const auto first = make(ten_of(a), clock);
  const auto second = make(ten_of(b), clock);
  for (const auto& [millis, permits] : trace) {
    clock.advance(std::chrono::milliseconds{millis});
    const bool expected = first->peek("key", permits).allowed() && second->peek("key", permits).allowed();
    const Decision decision = both->try_acquire("key", permits);
    RC_ASSERT(decision.allowed() == expected);
    if (expected) {
      const Decision x = first->try_acquire("key", permits);
      const Decision y = second->try_acquire("key", permits);
      RC_ASSERT(decision.remaining == std::min(x.remaining, y.remaining));
      RC_ASSERT(decision.reset_after == std::max(x.reset_after, y.reset_after));
      RC_ASSERT(decision.delay == std::max(x.delay, y.delay));
    } else {
      const Decision x = first->peek("key", permits);
      const Decision y = second->peek("key", permits);
      const bool never = x.verdict == Verdict::kNever || y.verdict == Verdict::kNever;
      RC_ASSERT(decision.retry_after == (never ? kNever : std::max(x.retry_after, y.retry_after)));
    }
  }
}

}  // namespace
}  // namespace headgate::test
