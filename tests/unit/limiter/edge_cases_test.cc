// What limiter.h says about the ends of every range, for every strategy.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/limiters.h"

namespace headgate::test {
namespace {

constexpr Units kMost = std::numeric_limits<Units>::max();
constexpr Units kLeast = std::numeric_limits<Units>::min();
constexpr Nanos kFirstInstant = Nanos::min();
constexpr Nanos kLastInstant = Nanos::max();

class EdgeCases : public testing::TestWithParam<Strategy> {
 protected:
  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(ten_of(GetParam()), clock_);
};
INSTANTIATE_TEST_SUITE_P(Limiter, EdgeCases, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EdgeCases, ZeroPermitsChargeNothingAndAreAllowed) {
  EXPECT_TRUE(limiter_->try_acquire("key", 0));
  EXPECT_EQ(limiter_->totals().cells, 0U);
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  const Decision decision = limiter_->try_acquire("key", 0);
  EXPECT_TRUE(decision.allowed());
  EXPECT_EQ(decision.remaining, 0);
  EXPECT_EQ(decision.lease, 0U);
  EXPECT_EQ(decision.delay, 0s);
  EXPECT_FALSE(decision.burst);
}

TEST_P(EdgeCases, NegativePermitsAreAnInvalidCost) {
  for (const Units permits : {Units{-1}, Units{-10}, kLeast}) {
    for (const Decision& decision :
         {limiter_->try_acquire("key", permits), limiter_->peek("key", permits),
          limiter_->reserve("key", permits, 1s).decision(), limiter_->acquire("key", {permits, 1s, 0}),
          limiter_->try_acquire_all(std::vector<Request>{{"other", 1}, {"key", permits}})}) {
      EXPECT_EQ(decision.verdict, Verdict::kNever);
      EXPECT_EQ(decision.reason, Reason::kInvalidCost);
      EXPECT_EQ(decision.retry_after, kNever);
    }
  }
  ASSERT_TRUE(limiter_->try_acquire("key", 4));
  EXPECT_EQ(limiter_->try_acquire("key", -4).reason, Reason::kInvalidCost);
  EXPECT_EQ(limiter_->remaining("key"), 6);
}

TEST_P(EdgeCases, PermitsAboveTheLimitAreNever) {
  for (const bool seen : {false, true}) {
    if (seen) {
      ASSERT_TRUE(limiter_->try_acquire("key", 4));
    }
    for (const Units permits : {Units{11}, Units{1} << 53, kMost - 1, kMost}) {
      for (const Decision& decision :
           {limiter_->try_acquire("key", permits), limiter_->peek("key", permits),
            limiter_->reserve("key", permits, 10h).decision(), limiter_->acquire("key", {permits, 10h, 0}),
            limiter_->try_acquire_all(std::vector<Request>{{"other", 1}, {"key", permits}})}) {
        EXPECT_EQ(decision.verdict, Verdict::kNever);
        EXPECT_EQ(decision.reason, Reason::kCostExceedsLimit);
        EXPECT_EQ(decision.retry_after, kNever);
      }
    }
    EXPECT_EQ(limiter_->remaining("key"), seen ? 6 : 10);
    EXPECT_EQ(limiter_->remaining("other"), 10);
  }
}

TEST_P(EdgeCases, AKeyNamedTwiceWithHugePermitsIsNever) {
  const std::vector<Request> twice = {{"key", kMost}, {"key", kMost}, {"key", 1}};
  const Decision decision = limiter_->try_acquire_all(twice);
  EXPECT_EQ(decision.verdict, Verdict::kNever);
  EXPECT_EQ(decision.reason, Reason::kCostExceedsLimit);
  EXPECT_EQ(limiter_->remaining("key"), 10);
}

TEST_P(EdgeCases, InstantsBeforeTheEpochAreTheEpoch) {
  EXPECT_TRUE(limiter_->try_acquire_at(kFirstInstant, "key", 4));
  EXPECT_EQ(limiter_->peek_at(-1s, "key", 0).remaining, 6);
  EXPECT_TRUE(limiter_->try_acquire_at(-1h, "key", 6));
  EXPECT_FALSE(limiter_->try_acquire_at(0s, "key", 1));
  EXPECT_FALSE(limiter_->try_acquire_at(kFirstInstant, "key", 1));
  EXPECT_EQ(limiter_->statistics_at(kFirstInstant, "key").available, 0);
}

TEST_P(EdgeCases, InstantsAfterTheLastAreTheLast) {
  EXPECT_TRUE(limiter_->try_acquire_at(kMaxTime, "key", 4));
  EXPECT_TRUE(limiter_->try_acquire_at(kLastInstant, "key", 6));
  EXPECT_FALSE(limiter_->try_acquire_at(kMaxTime, "key", 1));
  EXPECT_FALSE(limiter_->try_acquire_at(kLastInstant, "key", 1));
  EXPECT_EQ(limiter_->statistics_at(kLastInstant, "key").available, 0);
  EXPECT_EQ(limiter_->reserve_at(kLastInstant, "other", 1, kLastInstant).delay(), 0s);
}

TEST_P(EdgeCases, AClockOutsideTheRangeIsClampedToo) {
  for (const Nanos outside : {Nanos{-5s}, -1ns, kMaxTime + 1ns, kMaxTime + 1h, kLastInstant}) {
    SCOPED_TRACE(outside.count());
    ManualClock clock(outside);
    const auto limiter = make(Options().limit(ten_of(GetParam())).clock(clock).own_thread(false));
    const Decision first = limiter->try_acquire("key", 1);
    EXPECT_TRUE(first.allowed());
    EXPECT_EQ(first.remaining, 9);
    EXPECT_TRUE(limiter->try_acquire("key", 9));
    EXPECT_FALSE(limiter->try_acquire("key", 1));
    EXPECT_EQ(limiter->remaining("key"), 0);
    EXPECT_TRUE(limiter->reserve("other", 10, 1s).ok());
    limiter->maintain(100);
    EXPECT_FALSE(limiter->try_acquire("other", 1));
    int answers = 0;
    limiter->acquire_async("key", {1, 1h, 0}, [&](const Decision&) { ++answers; });
    limiter->poll();
    limiter->clear("key");
    limiter->poll();
    EXPECT_EQ(answers, 1);
  }
}

TEST_P(EdgeCases, EmptyHugeAndBinaryKeysAreKeysLikeOthers) {
  using namespace std::string_literals;
  const std::vector<std::string> keys = {"",
                                         "\0"s,
                                         "\0\0"s,
                                         "a"s,
                                         "a\0"s,
                                         "a\0b"s,
                                         "a\0c"s,
                                         "\xff\xfe"s,
                                         std::string(1 << 20, 'x'),
                                         std::string((1 << 20) - 1, 'x')};
  for (const std::string& key : keys) EXPECT_TRUE(limiter_->try_acquire(key, 10)) << "of " << key.size() << " bytes";
  for (const std::string& key : keys) EXPECT_FALSE(limiter_->try_acquire(key, 1)) << "of " << key.size() << " bytes";
  limiter_->clear(keys[1]);
  EXPECT_EQ(limiter_->remaining(keys[1]), 10);
  EXPECT_EQ(limiter_->remaining(keys[2]), 0);
  EXPECT_EQ(limiter_->remaining({}), 0);
}

TEST_P(EdgeCases, WaitsAndReservationsOfAnyLengthAreBounded) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  EXPECT_EQ(limiter_->acquire("key", {1, -1s, 0}).reason, Reason::kLimited);
  EXPECT_EQ(limiter_->acquire("key", {1, kFirstInstant, 0}).reason, Reason::kLimited);
  EXPECT_EQ(limiter_->reserve("key", 1, -1s).decision().reason, Reason::kLimited);
  EXPECT_EQ(limiter_->reserve("key", 1, kFirstInstant).decision().reason, Reason::kLimited);
  if (GetParam() != Strategy::kConcurrency) {
    EXPECT_TRUE(limiter_->reserve("key", 1, kLastInstant).ok());
  }
}

// The largest limits there may be: nothing overflows, the full amount fits once, and time does not help by mistake.
TEST(LimiterEdges, TheLargestLimitsWorkAtBothEndsOfTime) {
  constexpr Units kMostUnits = Units{1} << 52;
  constexpr Nanos kLongest = std::chrono::hours{24 * 3653};
  const std::vector<Limit> limits = {
      must(Limit::token_bucket({kMostUnits, {kMostUnits, kLongest}})),
      must(Limit::token_bucket({1, {1, kLongest}})),
      must(Limit::gcra({kMostUnits - 1, kMostUnits, kLongest})),
      must(Limit::sliding_window({kMostUnits, kLongest})),
      must(Limit::sliding_window_counter({kMostUnits, kLongest})),
      must(Limit::fixed_window({kMostUnits, kLongest})),
      must(Limit::leaky_bucket({{kMostUnits, kLongest}, kMostUnits - 1})),
      must(Limit::concurrency({65'536, kLongest})),
      must(Limit::quota({kMostUnits, Period::kYear, "Pacific/Kiritimati"})),
  };
  ManualClock clock(kStart);
  for (const Limit& limit : limits) {
    for (const Nanos now : {Nanos{0}, kStart, kMaxTime}) {
      SCOPED_TRACE(limit.describe() + " at " + std::to_string(now.count()));
      const auto limiter = make(limit, clock);
      EXPECT_EQ(limiter->remaining_at(now, "key"), limit.limit());
      EXPECT_TRUE(limiter->try_acquire_at(now, "key", limit.limit()));
      EXPECT_EQ(limiter->remaining_at(now, "key"), 0);
      const Decision denied = limiter->try_acquire_at(now, "key", limit.limit());
      EXPECT_EQ(denied.verdict, Verdict::kNotYet);
      EXPECT_GT(denied.retry_after, 0s);
      EXPECT_GE(denied.reset_after, 0s);
      EXPECT_EQ(limiter->try_acquire_at(now, "key", limit.limit() + 1).verdict, Verdict::kNever);
      // No reservation lies further ahead than the longest window, and a counter needs two of them to forget.
      const Reservation ahead = limiter->reserve_at(now, "key", limit.limit(), kLastInstant);
      const bool possible =
          limit.strategy() != Strategy::kConcurrency && limit.strategy() != Strategy::kSlidingWindowCounter;
      EXPECT_EQ(ahead.ok(), possible);
      EXPECT_FALSE(limiter->try_acquire_at(now, "key", 1));
    }
  }
}

TEST(LimiterEdges, ZeroInfiniteAndMeaninglessRatesAreRefusedByName) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double rate : {0.0, -0.0, -1.0, 1e-12, infinity, -infinity, std::nan(""), 1e18}) {
    const auto bucket = Limit::token_bucket({10, Rate::per_second(rate)});
    ASSERT_FALSE(bucket) << rate;
    EXPECT_EQ(bucket.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(bucket.error().message.starts_with("refill_rate must be ")) << bucket.error().message;
    const auto leaky = Limit::leaky_bucket({Rate::per_second(rate), 10});
    ASSERT_FALSE(leaky) << rate;
    EXPECT_TRUE(leaky.error().message.starts_with("rate must be ")) << leaky.error().message;
  }
}

TEST(LimiterEdges, SmallestLimitAdmitsOneAtATime) {
  ManualClock clock(kStart);
  for (const Limit& limit : {token_bucket(1, 1), sliding_window(1, 1ms), fixed_window(1, 1ms), leaky_bucket(1, 0)}) {
    const auto limiter = make(limit, clock);
    EXPECT_TRUE(limiter->try_acquire("key")) << limit.describe();
    const Decision denied = limiter->try_acquire("key");
    EXPECT_EQ(denied.verdict, Verdict::kNotYet) << limit.describe();
    EXPECT_TRUE(limiter->try_acquire_at(clock.now() + denied.retry_after, "key")) << limit.describe();
  }
}

}  // namespace
}  // namespace headgate::test
