// Options of a limiter, and those that it refuses.
#include <gtest/gtest.h>

#include "support/limiters.h"

namespace headgate::test {
namespace {

std::string refusal(const Options& options) {
  const auto made = MemoryLimiter::make(options);
  if (made) return "made";
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(made.error().transient);
  return made.error().message;
}

Options with_limits(int count) {
  Options options;
  for (int i = 0; i < count; ++i) options.limit(token_bucket(10, 10));
  return options;
}

TEST(Options, BetweenOneAndEightLimits) {
  EXPECT_EQ(refusal(with_limits(0)), "limits must be between 1 and 8, got 0");
  EXPECT_EQ(refusal(with_limits(1)), "made");
  EXPECT_EQ(refusal(with_limits(8)), "made");
  EXPECT_EQ(refusal(with_limits(9)), "limits must be between 1 and 8, got 9");
}

TEST(Options, MaxKeysMustHoldOneKeyAndFitFourBillion) {
  EXPECT_EQ(refusal(with_limits(2).max_keys(1)), "max_keys must be between the number of limits and 4294967296, got 1");
  EXPECT_EQ(refusal(with_limits(1).max_keys(0)), "max_keys must be between the number of limits and 4294967296, got 0");
  EXPECT_EQ(refusal(with_limits(1).max_keys((std::size_t{1} << 32) + 1)),
            "max_keys must be between the number of limits and 4294967296, got 4294967297");
  EXPECT_EQ(refusal(with_limits(2).max_keys(2)), "made");
}

TEST(Options, WaitersAreBounded) {
  EXPECT_EQ(refusal(with_limits(1).max_waiters(1'000'001)), "max_waiters must be between 0 and 1000000, got 1000001");
  EXPECT_EQ(refusal(with_limits(1).max_waiters(0)), "made");
}

TEST(Options, ReadAsASentenceAndCanBeReused) {
  ManualClock clock(kStart);
  const Options options = Options()
                              .limit(token_bucket(10, 10))
                              .clock(clock)
                              .max_keys(100'000, AtCap::kEvictOldest)
                              .max_waiters(5)
                              .track_keys()
                              .own_thread(false)
                              .seed(42);
  const auto one = make(options);
  const auto two = make(options);
  ASSERT_TRUE(one->try_acquire("key", 10));
  EXPECT_EQ(two->remaining("key"), 10);
}

TEST(Options, WithoutAClockTheMachinesIsUsed) {
  const auto limiter = make(Options().limit(must(Limit::token_bucket({1, {1, 24h}}))));
  EXPECT_TRUE(limiter->try_acquire("key"));
  EXPECT_FALSE(limiter->try_acquire("key"));
  EXPECT_GT(limiter->reset_time("key"), kStart);
}

TEST(Options, AtTheCapNewKeysAreRefusedAndOldOnesStayKnown) {
  ManualClock clock(kStart);
  const auto limiter = make(with_limits(1).clock(clock).max_keys(2));
  ASSERT_TRUE(limiter->try_acquire("a", 3));
  ASSERT_TRUE(limiter->try_acquire("b", 3));
  const Decision refused = limiter->try_acquire("c");
  EXPECT_EQ(refused.verdict, Verdict::kNotYet);
  EXPECT_EQ(refused.reason, Reason::kTooManyKeys);
  EXPECT_EQ(limiter->remaining("a"), 7);
  EXPECT_EQ(limiter->totals().refused, 1U);
  EXPECT_EQ(limiter->totals().cells, 2U);
  clock.advance(10s);  // both are full again, and so worth nothing
  EXPECT_TRUE(limiter->try_acquire("c"));
  EXPECT_GT(limiter->totals().dropped_idle, 0U);
}

TEST(Options, AtTheCapTheOldestMayBeEvictedInstead) {
  ManualClock clock(kStart);
  const auto limiter = make(with_limits(1).clock(clock).max_keys(2, AtCap::kEvictOldest));
  ASSERT_TRUE(limiter->try_acquire("soon idle", 1));
  ASSERT_TRUE(limiter->try_acquire("busy", 9));
  ASSERT_TRUE(limiter->try_acquire("new", 5));
  EXPECT_EQ(limiter->totals().evicted, 1U);
  EXPECT_EQ(limiter->totals().cells, 2U);
  EXPECT_EQ(limiter->remaining("busy"), 1);
  EXPECT_EQ(limiter->remaining("new"), 5);
}

TEST(Options, SetLimitRefusesAnotherStrategyOrIndex) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(10, 10), clock);
  const auto other = limiter->set_limit(sliding_window(10, 1s));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "strategy must stay token_bucket, got sliding_window");
  const auto beyond = limiter->set_limit(token_bucket(5, 5), OnChange::kReset, 1);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().message, "index must be between 0 and 0, got 1");
  EXPECT_EQ(limiter->remaining("key"), 10);
}

class ChangedLimit : public testing::TestWithParam<Strategy> {
 protected:
  // The same strategy with room for twenty.
  static Limit twenty_of(Strategy strategy) {
    switch (strategy) {
      case Strategy::kTokenBucket: return token_bucket(20, 10);
      case Strategy::kGcra: return must(Limit::gcra({19, 10, 1s}));
      case Strategy::kSlidingWindow: return sliding_window(20, 1s);
      case Strategy::kSlidingWindowCounter: return must(Limit::sliding_window_counter({20, 1s}));
      case Strategy::kFixedWindow: return fixed_window(20, 1s);
      case Strategy::kLeakyBucket: return leaky_bucket(10, 19);
      case Strategy::kConcurrency: return concurrency(20, 1s);
      case Strategy::kQuota: return must(Limit::quota({20, Period::kHour, "UTC"}));
    }
    return ten_of(strategy);
  }
  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(ten_of(GetParam()), clock_);
};
INSTANTIATE_TEST_SUITE_P(Limiter, ChangedLimit, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(ChangedLimit, KeepsTheFractionUsed) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  ASSERT_TRUE(limiter_->set_limit(twenty_of(GetParam())));
  // What is held is held: a slot is not a fraction of anything.
  EXPECT_EQ(limiter_->remaining("key"), GetParam() == Strategy::kConcurrency ? 15 : 10);
  EXPECT_EQ(limiter_->remaining("new"), 20);
}

TEST_P(ChangedLimit, KeepsTheUnitsUsed) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  ASSERT_TRUE(limiter_->set_limit(twenty_of(GetParam()), OnChange::kKeepUnits));
  EXPECT_EQ(limiter_->remaining("key"), 15);
}

TEST_P(ChangedLimit, StartsAfresh) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  ASSERT_TRUE(limiter_->set_limit(twenty_of(GetParam()), OnChange::kReset));
  EXPECT_EQ(limiter_->remaining("key"), 20);
}

TEST_P(ChangedLimit, ToALowerOneGrantsNothingExtra) {
  ASSERT_TRUE(limiter_->set_limit(twenty_of(GetParam())));
  ASSERT_TRUE(limiter_->try_acquire("key", 20));
  ASSERT_TRUE(limiter_->set_limit(ten_of(GetParam())));
  EXPECT_EQ(limiter_->remaining("key"), 0);
  EXPECT_FALSE(limiter_->try_acquire("key"));
  EXPECT_EQ(limiter_->try_acquire("key", 11).verdict, Verdict::kNever);
}

}  // namespace
}  // namespace headgate::test
