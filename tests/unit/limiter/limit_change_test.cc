// Limits that change while keys use them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/cells.h"
#include "support/draws.h"
#include "support/limiters.h"

namespace headgate::test {
namespace {

class EveryChange : public testing::TestWithParam<Strategy> {
 protected:
  void change(const Size& size, OnChange how = OnChange::kKeepFraction) {
    const auto changed = limiter_->set_limit(limit_of(GetParam(), size), how);
    ASSERT_TRUE(changed) << changed.error().message;
  }
  [[nodiscard]] bool counts() const { return GetParam() != Strategy::kConcurrency; }

  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(limit_of(GetParam(), {}), clock_);
};
INSTANTIATE_TEST_SUITE_P(LimitChange, EveryChange, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EveryChange, HalfUsedStaysHalfUsed) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  change({.limit = 100});
  EXPECT_EQ(limiter_->remaining("key"), counts() ? 50 : 95);
  change({.limit = 2});
  EXPECT_EQ(limiter_->remaining("key"), counts() ? 1 : 0);
  change({.limit = 10});
  EXPECT_EQ(limiter_->remaining("key"), 5);
}

TEST_P(EveryChange, FiveUsedStayFiveUsedIfTold) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  change({.limit = 100}, OnChange::kKeepUnits);
  EXPECT_EQ(limiter_->remaining("key"), 95);
  change({.limit = 7}, OnChange::kKeepUnits);
  EXPECT_EQ(limiter_->remaining("key"), 2);
  change({.limit = 3}, OnChange::kKeepUnits);
  EXPECT_EQ(limiter_->remaining("key"), 0);
  EXPECT_EQ(limiter_->try_acquire("key").reason, Reason::kLimited);
}

TEST_P(EveryChange, AResetForgetsWhatWasUsed) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  change({.limit = 20}, OnChange::kReset);
  EXPECT_EQ(limiter_->remaining("key"), 20);
  EXPECT_TRUE(limiter_->try_acquire("key", 20));
}

TEST_P(EveryChange, ANewKeyHasTheNewLimit) {
  change({.limit = 3});
  EXPECT_EQ(limiter_->try_acquire("key", 4).reason, Reason::kCostExceedsLimit);
  EXPECT_TRUE(limiter_->try_acquire("key", 3));
  EXPECT_EQ(limiter_->try_acquire("key").reason, Reason::kLimited);
  EXPECT_EQ(limiter_->peek("key").limit, 3);
}

TEST_P(EveryChange, ALoweredLimitAdmitsNothingUntilEnoughHasComeBack) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  change({.limit = 2});
  EXPECT_FALSE(limiter_->try_acquire("key"));
  clock_.advance(whole_again({}));
  EXPECT_TRUE(limiter_->try_acquire("key", 2));
  EXPECT_FALSE(limiter_->try_acquire("key"));
}

TEST_P(EveryChange, ARaisedLimitHasRoomAtOnceForWhatIsNew) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  change({.limit = 30}, OnChange::kKeepUnits);
  EXPECT_TRUE(limiter_->try_acquire("key", 20));
  EXPECT_FALSE(limiter_->try_acquire("key"));
}

TEST_P(EveryChange, WaitingAsLongAsToldIsEnoughAfterAChange) {
  // Whether the new limit refills faster or slower, and for any number of calls in between.
  for (const Size& size :
       {Size{.limit = 100, .window = 10s}, Size{.limit = 10, .window = 1s}, Size{.limit = 5, .window = 60s}}) {
    const auto limiter = make(limit_of(GetParam(), {}), clock_);
    ASSERT_TRUE(limiter->try_acquire("key", 10));
    clock_.advance(1ms);
    ASSERT_TRUE(limiter->set_limit(limit_of(GetParam(), size)));
    const Decision denied = limiter->try_acquire("key", size.limit);
    ASSERT_EQ(denied.verdict, Verdict::kNotYet);
    clock_.advance(denied.retry_after / 2);
    (void)limiter->try_acquire("key", size.limit);
    clock_.advance(denied.retry_after - denied.retry_after / 2);
    EXPECT_TRUE(limiter->try_acquire("key", size.limit))
        << to_string(GetParam()) << " " << size.limit << " in " << size.window.count();
  }
}

TEST_P(EveryChange, ManyChangesInARowAreLikeOne) {
  for (const int times : {1, 3, 7, 8, 20}) {
    const auto limiter = make(limit_of(GetParam(), {}), clock_);
    ASSERT_TRUE(limiter->try_acquire("key", 5));
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(limiter->set_limit(limit_of(GetParam(), {.limit = i % 2 == 0 ? 20 : 10})));
      (void)limiter->try_acquire("key", 0);
      (void)limiter->try_acquire("key", 20);  // too much, but it was seen
    }
    const Units limit = times % 2 == 0 ? 10 : 20;
    EXPECT_EQ(limiter->remaining("key"), counts() ? limit / 2 : limit - 5) << times << " changes";
  }
}

TEST_P(EveryChange, AKeyMaySleepThroughSeveralChanges) {
  for (int times = 1; times <= 7; ++times) {
    const auto limiter = make(limit_of(GetParam(), {}), clock_);
    ASSERT_TRUE(limiter->try_acquire("key", 5));
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(limiter->set_limit(limit_of(GetParam(), {.limit = i % 2 == 0 ? 20 : 10})));
    }
    const Units limit = times % 2 == 0 ? 10 : 20;
    EXPECT_EQ(limiter->remaining("key"), counts() ? limit / 2 : limit - 5) << times << " changes";
  }
}

TEST_P(EveryChange, AKeyThatSleptThroughMoreIsTakenAsItStands) {
  for (const int times : {8, 9, 20, 2047, 2048, 2049, 5000}) {
    const auto limiter = make(limit_of(GetParam(), {}), clock_);
    ASSERT_TRUE(limiter->try_acquire("key", 10));
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(limiter->set_limit(limit_of(GetParam(), {.limit = 10 + i % 2})));
    }
    EXPECT_LE(limiter->remaining("key"), 1) << times << " changes";
    clock_.advance(whole_again({}));
    EXPECT_EQ(limiter->remaining("key"), 11 - times % 2) << times << " changes";
  }
}

TEST_P(EveryChange, AResetAmongTheChangesSleptThroughCounts) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  change({.limit = 20});
  change({.limit = 30}, OnChange::kReset);
  change({.limit = 10}, OnChange::kKeepUnits);
  EXPECT_EQ(limiter_->remaining("key"), 10);
}

TEST_P(EveryChange, AShorterWindowIsWholeAgainSooner) {
  if (GetParam() == Strategy::kQuota) {  // whose periods are the calendar's
    ASSERT_TRUE(limiter_->set_limit(must(Limit::quota({10, Period::kDay, "UTC"}))));
    ASSERT_TRUE(limiter_->try_acquire("key", 10));
    ASSERT_TRUE(limiter_->set_limit(must(Limit::quota({10, Period::kHour, "UTC"}))));
    EXPECT_FALSE(limiter_->try_acquire("key"));  // a cell is carried over when it is next asked for permits
    clock_.advance(1h);
    EXPECT_EQ(limiter_->remaining("key"), 10);
    return;
  }
  change({.limit = 10, .window = 1h});
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  change({.limit = 10, .window = 1s});
  EXPECT_FALSE(limiter_->try_acquire("key"));  // a cell is carried over when it is next asked for permits
  // A hold keeps the time to live that it was given.
  clock_.advance(counts() ? Nanos{2s} : Nanos{1h});
  EXPECT_EQ(limiter_->remaining("key"), 10);
}

TEST_P(EveryChange, ALongerWindowRemembersWhatIsStillInIt) {
  if (GetParam() == Strategy::kQuota) {
    ASSERT_TRUE(limiter_->try_acquire("key", 10));
    ASSERT_TRUE(limiter_->set_limit(must(Limit::quota({10, Period::kDay, "UTC"}))));
    EXPECT_FALSE(limiter_->try_acquire("key"));
    clock_.advance(1h);
    EXPECT_EQ(limiter_->remaining("key"), 0);
    clock_.advance(24h);
    EXPECT_EQ(limiter_->remaining("key"), 10);
    return;
  }
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  change({.limit = 10, .window = 1h});
  EXPECT_FALSE(limiter_->try_acquire("key"));
  clock_.advance(20s);
  EXPECT_EQ(limiter_->remaining("key"), counts() ? 0 : 10);
  clock_.advance(2h);
  EXPECT_EQ(limiter_->remaining("key"), 10);
}

TEST_P(EveryChange, LookingDoesNotBringAKeyUpToDateAtTheWrongTime) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  change({.limit = 20});
  (void)limiter_->peek_at(kMaxTime, "key");
  (void)limiter_->statistics_at(kMaxTime, "key");
  EXPECT_EQ(limiter_->remaining("key"), counts() ? 0 : 10);
}

TEST(LimitChange, OnlyTheStrategyMustStay) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(10, 10), clock);
  const auto other = limiter->set_limit(sliding_window(10, 1s));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(other.error().message, "strategy must stay token_bucket, got sliding_window");
  const auto beyond = limiter->set_limit(token_bucket(10, 10), OnChange::kReset, 1);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().message, "index must be between 0 and 0, got 1");
  EXPECT_EQ(limiter->remaining("key"), 10);
}

TEST(LimitChange, OneOfSeveralLimitsChangesAlone) {
  ManualClock clock(kStart);
  const auto limiter =
      make(Options().limit(token_bucket(10, 1)).limit(sliding_window(100, 1h)).limit(token_bucket(50, 1)).clock(clock));
  ASSERT_TRUE(limiter->try_acquire("key", 10));
  ASSERT_TRUE(limiter->set_limit(token_bucket(30, 1), OnChange::kKeepUnits, 0));
  EXPECT_EQ(limiter->remaining("key"), 20);
  ASSERT_TRUE(limiter->set_limit(sliding_window(15, 1h), OnChange::kKeepUnits, 1));
  EXPECT_EQ(limiter->remaining("key"), 5);
  EXPECT_EQ(limiter->peek("key").limit, 15);
  ASSERT_TRUE(limiter->set_limit(token_bucket(12, 1), OnChange::kKeepUnits, 2));
  EXPECT_EQ(limiter->remaining("key"), 2);
}

// --- Promises
// ----------------------------------------------------------------------------------------------------------

using Acts = std::vector<std::pair<Nanos, Units>>;

Units admitted_in(const Acts& acts, Nanos from, Nanos end) {
  Units units = 0;
  for (const auto& [at, cost] : acts) units += at >= from && at < end ? cost : 0;
  return units;
}

// However often the limit changes, no window sees more than the largest limit it has met.
RC_GTEST_PROP(LimitChange, NoWindowAdmitsMoreThanTheLargestLimit, ()) {
  const Strategy strategy = *rc::gen::element(Strategy::kSlidingWindow, Strategy::kFixedWindow,
                                              Strategy::kSlidingWindowCounter, Strategy::kQuota);
  const Nanos window = strategy == Strategy::kQuota ? Nanos{1h} : Nanos{10s};
  const auto size = [&] { return Size{*rc::gen::inRange<Units>(1, 40), window, 0}; };
  const Size first = size();
  Units largest = first.limit;
  ManualClock clock(kStart);
  const auto limiter = make(limit_of(strategy, first), clock);
  // One way of keeping, not both by turns: half of two kept as a fraction is one, and kept as units one of two again.
  const OnChange how = *rc::gen::element(OnChange::kKeepFraction, OnChange::kKeepUnits);
  Acts acts;
  for (int i = 0; i < 120; ++i) {
    clock.advance(up_to(window / 15));
    if (*rc::gen::inRange(0, 8) == 0) {
      const Size next = size();
      largest = std::max(largest, next.limit);
      RC_ASSERT(static_cast<bool>(limiter->set_limit(limit_of(strategy, next), how)));
    }
    const Units cost = *rc::gen::inRange<Units>(1, 6);
    if (limiter->try_acquire("key", cost)) acts.emplace_back(clock.now(), cost);
  }
  for (const auto& [at, unused] : acts) {
    const Nanos from = strategy == Strategy::kSlidingWindow ? at : at - at % window;
    RC_ASSERT(admitted_in(acts, from, from + window) <= largest);
  }
}

// A bucket gives at most what the larger bucket holds and the faster one refills.
RC_GTEST_PROP(LimitChange, NoBucketGivesMoreThanTheLargerOneHoldsAndTheFasterOneRefills, ()) {
  const Strategy strategy = *rc::gen::element(Strategy::kTokenBucket, Strategy::kGcra);
  const auto size = [] { return Size{*rc::gen::inRange<Units>(1, 40), *rc::gen::element<Nanos>(1s, 4s, 10s, 60s), 0}; };
  const Size before = size();
  const Size after = size();
  ManualClock clock(kStart);
  const auto limiter = make(limit_of(strategy, before), clock);
  Acts acts;
  const int change_at = *rc::gen::inRange(0, 60);
  for (int i = 0; i < 60; ++i) {
    clock.advance(up_to(800ms));
    if (i == change_at) {
      RC_ASSERT(static_cast<bool>(limiter->set_limit(
          limit_of(strategy, after), *rc::gen::element(OnChange::kKeepFraction, OnChange::kKeepUnits))));
    }
    const Units cost = *rc::gen::inRange<Units>(1, 8);
    if (limiter->try_acquire("key", cost)) acts.emplace_back(clock.now(), cost);
  }
  const auto rate = [](const Size& s) { return static_cast<double>(s.limit) / static_cast<double>(s.window.count()); };
  const double fastest = std::max(rate(before), rate(after));
  const auto largest = static_cast<double>(std::max(before.limit, after.limit));
  for (std::size_t i = 0; i < acts.size(); ++i) {
    Units units = 0;
    for (std::size_t j = i; j < acts.size(); ++j) {
      units += acts[j].second;
      const auto elapsed = static_cast<double>((acts[j].first - acts[i].first).count());
      RC_ASSERT(static_cast<double>(units) <= largest + fastest * elapsed + 1e-3);
    }
  }
}

TEST(LimitChange, AWindowThatGrewUnseenForgetsNothingWhenTheClockIsSetBack) {
  ManualClock clock(kStart);
  const auto limiter = make(limit_of(Strategy::kSlidingWindow, {.limit = 10, .window = 1s}), clock);
  ASSERT_TRUE(limiter->try_acquire_at(kStart, "key", 1));
  ASSERT_TRUE(limiter->try_acquire_at(kStart, "key", 1));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(limiter->set_limit(limit_of(Strategy::kSlidingWindow, {.limit = 10, .window = i % 2 == 0 ? 1s : 1h}),
                                   OnChange::kKeepUnits));
  }
  // Denied, so that nothing but the numbers it is judged by changes; then one more.
  ASSERT_FALSE(limiter->try_acquire_at(kStart - 10min, "key", 9));
  ASSERT_TRUE(limiter->try_acquire_at(kStart - 10min, "key", 1));
  EXPECT_EQ(limiter->try_acquire_at(kStart + 55min, "key", 1).remaining, 6) << "none is an hour old";
}

// What is used is the same fraction of the limit before and after, to the unit.
RC_GTEST_PROP(LimitChange, TheFractionUsedIsKeptToTheUnit, ()) {
  const Strategy strategy =
      *rc::gen::suchThat(rc::gen::elementOf(all_strategies()), [](Strategy s) { return s != Strategy::kConcurrency; });
  const Size before{*rc::gen::inRange<Units>(1, 1000), *rc::gen::element<Nanos>(1s, 7s, 60s), 0};
  const Size after{*rc::gen::inRange<Units>(1, 1000), *rc::gen::element<Nanos>(1s, 7s, 60s), 0};
  ManualClock clock(kStart);
  const auto limiter = make(limit_of(strategy, before), clock);
  const Units used = *rc::gen::inRange<Units>(0, before.limit + 1);
  RC_ASSERT(static_cast<bool>(limiter->try_acquire("key", used)));
  RC_ASSERT(static_cast<bool>(limiter->set_limit(limit_of(strategy, after))));
  const Units now_used = after.limit - limiter->remaining("key");
  // redis-cell counts `remaining` in whole microseconds, and so may read a unit too many.
  const Units slack = strategy == Strategy::kGcra ? before.limit : 0;
  RC_ASSERT(now_used * before.limit + slack >= used * after.limit);
  RC_ASSERT(now_used * before.limit <= used * after.limit + before.limit);
}

}  // namespace
}  // namespace headgate::test
