// What can be read without changing anything.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "support/limiters.h"

namespace headgate::test {
namespace {

class Reading : public testing::TestWithParam<Strategy> {
 protected:
  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(ten_of(GetParam()), clock_);
};
INSTANTIATE_TEST_SUITE_P(Statistics, Reading, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(Reading, PeekSaysWhatTryAcquireWouldAnswer) {
  for (const Units permits : {3, 0, 7, 1, 11, -1}) {
    const Decision foretold = limiter_->peek("key", permits);
    Decision decision = limiter_->try_acquire("key", permits);
    decision.lease = 0;  // only a hold has one
    EXPECT_TRUE(same(foretold, decision))
        << testing::PrintToString(foretold) << " then " << testing::PrintToString(decision);
  }
}

TEST_P(Reading, NothingThatOnlyReadsChangesAnything) {
  ASSERT_TRUE(limiter_->try_acquire("key", 4));
  const Decision before = limiter_->peek("key", 6);
  for (int i = 0; i < 100; ++i) {
    (void)limiter_->peek("key", i % 12);
    (void)limiter_->peek_at(kStart + std::chrono::hours{i}, "key", 5);
    (void)limiter_->peek("never seen", 3);
    (void)limiter_->remaining("key");
    (void)limiter_->reset_time("key");
    (void)limiter_->statistics("key");
  }
  EXPECT_TRUE(same(limiter_->peek("key", 6), before));
  const LimiterTotals totals = limiter_->totals();
  EXPECT_EQ(totals.cells, 1U);
  EXPECT_EQ(totals.acquired, 1U);
  EXPECT_EQ(totals.throttled, 0U);
  EXPECT_TRUE(limiter_->try_acquire("key", 6));
}

// Calls drop idle cells in passing; a look into the future must not take them for idle already.
TEST_P(Reading, PeekingAheadForgetsNothing) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  for (int i = 0; i < 200; ++i) {
    (void)limiter_->peek_at(kStart + 24h, "key");
    (void)limiter_->statistics_at(kStart + 24h, "key");
    ASSERT_FALSE(limiter_->try_acquire("key")) << "after " << i;
  }
}

TEST_P(Reading, StatisticsShowAvailableAndCapacity) {
  ASSERT_TRUE(limiter_->try_acquire("key", 4));
  const Statistics statistics = limiter_->statistics("key");
  EXPECT_EQ(statistics.available, 6);
  EXPECT_EQ(statistics.capacity, 10);
  EXPECT_EQ(limiter_->statistics("never seen").available, 10);
}

TEST_P(Reading, ResetTimeIsReadOnTheWallClock) {
  const Decision decision = limiter_->try_acquire("key", 4);
  EXPECT_EQ(limiter_->reset_time("key"), kStart + decision.reset_after);
  EXPECT_EQ(limiter_->reset_time("never seen"), kStart);
  clock_.step_wall(24h);
  const bool follows_wall = GetParam() == Strategy::kFixedWindow || GetParam() == Strategy::kQuota;
  // What follows the calendar is whole again by now; all else takes as long as before, and people read a later hour.
  EXPECT_EQ(limiter_->reset_time("key"), kStart + 24h + (follows_wall ? Nanos{0} : decision.reset_after));
}

TEST(Statistics, RateIsInUnitsPerSecond) {
  ManualClock clock(kStart);
  const std::vector<std::pair<Limit, double>> rates = {
      {token_bucket(100, 10), 10},
      {must(Limit::token_bucket({5, Rate::per_second(2.5)})), 2.5},
      {must(Limit::gcra({9, 30, 60s})), 0.5},
      {sliding_window(50, 10s), 5},
      {must(Limit::sliding_window_counter({50, 10s})), 5},
      {fixed_window(50, 10s), 5},
      {leaky_bucket(7, 3), 7},
      {concurrency(5), 0},
      {must(Limit::quota({7200, Period::kHour, "UTC"})), 2},
  };
  for (const auto& [limit, rate] : rates) {
    EXPECT_DOUBLE_EQ(make(limit, clock)->statistics("key").rate, rate) << limit.describe();
  }
}

TEST(Statistics, LastRefillOfAWindowIsWhenItBegan) {
  ManualClock clock(kStart + 25s);
  EXPECT_EQ(make(fixed_window(5, 10s), clock)->statistics("key").last_refill, kStart + 20s);
  EXPECT_EQ(make(sliding_window(5, 10s), clock)->statistics("key").last_refill, kStart + 15s);
  EXPECT_EQ(make(must(Limit::quota({5, Period::kHour, "UTC"})), clock)->statistics("key").last_refill, kStart);
  clock.step_wall(10s);
  EXPECT_EQ(make(fixed_window(5, 10s), clock)->statistics("key").last_refill, kStart + 30s);
}

TEST(Statistics, LastRefillOfABucketThatIsFillingIsNow) {
  ManualClock clock(kStart);
  for (const Strategy strategy : {Strategy::kTokenBucket, Strategy::kGcra, Strategy::kLeakyBucket}) {
    const auto limiter = make(ten_of(strategy), clock);
    ASSERT_TRUE(limiter->try_acquire("key", 10));
    EXPECT_EQ(limiter->statistics_at(kStart + 300ms, "key").last_refill, kStart + 300ms);
  }
}

TEST(Statistics, WithoutTrackingTotalsAreTheWholeLimiters) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(3, 1), clock);
  for (int i = 0; i < 5; ++i) (void)limiter->try_acquire("a");
  (void)limiter->try_acquire("b", 2);
  const Statistics statistics = limiter->statistics("a");
  EXPECT_FALSE(statistics.per_key);
  EXPECT_EQ(statistics.total_acquired, 4U);
  EXPECT_EQ(statistics.total_throttled, 2U);
  int visited = 0;
  limiter->for_each_key([&](std::string_view, std::uint64_t, std::uint64_t) { ++visited; });
  EXPECT_EQ(visited, 0);
}

TEST(Statistics, TrackedKeysHaveTotalsOfTheirOwn) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(token_bucket(3, 1)).clock(clock).track_keys());
  for (int i = 0; i < 5; ++i) (void)limiter->try_acquire("a");
  (void)limiter->try_acquire("b", 2);
  const Statistics a = limiter->statistics("a");
  EXPECT_TRUE(a.per_key);
  EXPECT_EQ(a.total_acquired, 3U);
  EXPECT_EQ(a.total_throttled, 2U);
  EXPECT_EQ(limiter->statistics("b").total_acquired, 1U);
  const Statistics unseen = limiter->statistics("never seen");
  EXPECT_TRUE(unseen.per_key);
  EXPECT_EQ(unseen.total_acquired, 0U);
  EXPECT_EQ(unseen.available, 3);

  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> seen;
  limiter->for_each_key([&](std::string_view key, std::uint64_t acquired, std::uint64_t throttled) {
    seen[std::string(key)] = {acquired, throttled};
  });
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen["a"], (std::pair<std::uint64_t, std::uint64_t>{3, 2}));
  EXPECT_EQ(seen["b"], (std::pair<std::uint64_t, std::uint64_t>{1, 0}));
}

TEST(Statistics, ClearForgetsATrackedKeysTotals) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(sliding_window(3, 1s)).clock(clock).track_keys());
  (void)limiter->try_acquire("a");
  limiter->clear("a");
  EXPECT_EQ(limiter->statistics("a").total_acquired, 0U);
  EXPECT_EQ(limiter->totals().acquired, 1U) << "the limiter's own totals stay";
  int visited = 0;
  limiter->for_each_key([&](std::string_view, std::uint64_t, std::uint64_t) { ++visited; });
  EXPECT_EQ(visited, 0);
}

TEST(Statistics, TotalsCountCallsNotUnits) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(10, 1), clock);
  (void)limiter->try_acquire("a", 7);
  (void)limiter->try_acquire("a", 7);
  (void)limiter->try_acquire("a", 0);
  EXPECT_EQ(limiter->totals().acquired, 2U);
  EXPECT_EQ(limiter->totals().throttled, 1U);
  EXPECT_EQ(limiter->totals().waiting, 0U);
}

TEST(Statistics, MaintainDropsWhatHasBecomeIdle) {
  ManualClock clock(kStart);
  for (const Strategy strategy : all_strategies()) {
    const auto limiter = make(ten_of(strategy), clock);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(limiter->try_acquire("key " + std::to_string(i)));
    limiter->maintain(1'000'000);
    EXPECT_EQ(limiter->totals().cells, 100U) << to_string(strategy);
    clock.advance(2h);
    limiter->maintain(1'000'000);
    EXPECT_EQ(limiter->totals().cells, 0U) << to_string(strategy);
    EXPECT_EQ(limiter->totals().dropped_idle, 100U) << to_string(strategy);
  }
}

// Peeking between the calls of any trace changes none of its answers.
RC_GTEST_PROP(Statistics, PeekingNeverChangesATrace, ()) {
  const Strategy strategy = *rc::gen::elementOf(all_strategies());
  const auto trace = *rc::gen::container<std::vector<std::tuple<int, int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 900), rc::gen::inRange(0, 12), rc::gen::inRange(-900, 5000)));
  ManualClock clock(kStart);
  const auto peeked = make(ten_of(strategy), clock);
  const auto plain = make(ten_of(strategy), clock);
  for (const auto& [millis, permits, elsewhere] : trace) {
    clock.advance(std::chrono::milliseconds{millis});
    (void)peeked->peek_at(clock.now() + std::chrono::milliseconds{elsewhere}, "key", permits);
    (void)peeked->statistics_at(clock.now() + std::chrono::milliseconds{elsewhere}, "key");
    RC_ASSERT(same(peeked->try_acquire("key", permits), plain->try_acquire("key", permits)));
  }
}

}  // namespace
}  // namespace headgate::test
