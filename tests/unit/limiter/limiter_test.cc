// Each strategy through the public calls, as rows of (when, how much) and what is to come of it.
#include "headgate/limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "support/limiters.h"

namespace headgate::test {
namespace {

static_assert(sizeof(Decision) <= 64);
static_assert(std::is_trivially_copyable_v<Decision>);

struct Row {
  Nanos at;  // after kStart
  Units permits;
  bool allowed;
  Units remaining;
  Nanos retry_after{0};
  Nanos delay{0};
};

void expect_rows(const Limit& limit, const std::vector<Row>& rows) {
  ManualClock clock(kStart);
  const auto limiter = make(limit, clock);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    SCOPED_TRACE("row " + std::to_string(i) + " of " + limit.describe());
    const Decision foretold = limiter->peek_at(kStart + row.at, "key", row.permits);
    const Decision decision = limiter->try_acquire_at(kStart + row.at, "key", row.permits);
    EXPECT_TRUE(same(foretold, decision) || decision.lease != 0) << testing::PrintToString(foretold);
    EXPECT_EQ(decision.allowed(), row.allowed) << testing::PrintToString(decision);
    EXPECT_EQ(decision.reason, row.allowed                 ? Reason::kOk
                               : row.retry_after == kNever ? Reason::kCostExceedsLimit
                                                           : Reason::kLimited);
    EXPECT_EQ(decision.limit, limit.limit());
    EXPECT_EQ(decision.remaining, row.remaining) << testing::PrintToString(decision);
    EXPECT_EQ(decision.retry_after, row.retry_after) << testing::PrintToString(decision);
    EXPECT_EQ(decision.delay, row.delay) << testing::PrintToString(decision);
  }
}

const std::vector<Row> kBucketOfAHundred = {
    {0s, 100, true, 0},    {0s, 1, false, 0, 100ms},        {99ms, 1, false, 0, 1ms},
    {100ms, 1, true, 0},   {100ms, 1, false, 0, 100ms},     {1100ms, 11, false, 10, 100ms},
    {1100ms, 10, true, 0}, {1100ms, 101, false, 0, kNever}, {11100ms, 100, true, 0},
    {999s, 50, true, 50},
};

TEST(Limiter, TokenBucketAdmitsABurstThenItsRate) { expect_rows(token_bucket(100, 10), kBucketOfAHundred); }

TEST(Limiter, GcraIsTheSameBucket) { expect_rows(must(Limit::gcra({99, 10, 1s})), kBucketOfAHundred); }

TEST(Limiter, TokenBucketAdmitsABurstOf100ThenExactly10PerSecond) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(100, 10), clock);
  int burst = 0;
  for (int i = 0; i < 150; ++i) burst += limiter->try_acquire("key") ? 1 : 0;
  EXPECT_EQ(burst, 100);
  for (int second = 0; second < 60; ++second) {
    int admitted = 0;
    for (int step = 0; step < 100; ++step) {
      clock.advance(10ms);
      admitted += limiter->try_acquire("key") ? 1 : 0;
    }
    EXPECT_EQ(admitted, 10) << "in second " << second;
  }
}

TEST(Limiter, SlidingWindowHasHalfOpenBoundaries) {
  expect_rows(sliding_window(5, 10s), {
                                          {0s, 3, true, 2},
                                          {4s, 2, true, 0},
                                          {4s, 1, false, 0, 6s},
                                          {10s - 1ns, 1, false, 0, 1ns},
                                          {10s, 3, true, 0},
                                          {10s, 1, false, 0, 4s},
                                          {14s - 1ns, 1, false, 0, 1ns},
                                          {14s, 3, false, 2, 6s},
                                          {14s, 2, true, 0},
                                          {14s, 6, false, 0, kNever},
                                          {24s, 5, true, 0},
                                      });
}

// Where a fixed window admits twice its limit around a boundary, a sliding one does not.
TEST(Limiter, SlidingWindowCannotBeGamedAtAMinuteBoundary) {
  expect_rows(sliding_window(10, 60s), {{59s, 10, true, 0}, {60s, 1, false, 0, 59s}, {119s, 10, true, 0}});
}

TEST(Limiter, FixedWindowStartsAgainAtTheBoundary) {
  expect_rows(fixed_window(10, 60s), {
                                         {59s, 10, true, 0},
                                         {59s, 1, false, 0, 1s},
                                         {60s - 1ns, 1, false, 0, 1ns},
                                         {60s, 10, true, 0},
                                         {60s, 1, false, 0, 60s},
                                         {60s, 11, false, 0, kNever},
                                     });
}

TEST(Limiter, SlidingWindowCounterWeighsThePreviousWindow) {
  expect_rows(must(Limit::sliding_window_counter({10, 10s})), {
                                                                  {5s, 10, true, 0},
                                                                  {10s, 1, false, 0, 1s},
                                                                  {11s, 1, true, 0},
                                                                  {15s, 5, false, 4, 1s},
                                                                  {15s, 4, true, 0},
                                                                  {20s, 5, true, 0},
                                                                  {20s, 11, false, 0, kNever},
                                                                  {60s, 10, true, 0},
                                                              });
}

TEST(Limiter, LeakyBucketSpacesItsOutputEvenly) {
  expect_rows(leaky_bucket(10, 2), {
                                       {0s, 1, true, 2},
                                       {0s, 1, true, 1, 0s, 100ms},
                                       {0s, 1, true, 0, 0s, 200ms},
                                       {0s, 1, false, 0, 100ms},
                                       {100ms, 1, true, 0, 0s, 200ms},
                                       {150ms, 1, false, 0, 50ms},
                                       {150ms, 4, false, 0, kNever},
                                       {10s, 3, true, 0},
                                   });
}

TEST(Limiter, ConcurrencyAdmitsUpToItsMaximumUntilLeasesExpire) {
  expect_rows(concurrency(3, 10s), {
                                       {0s, 2, true, 1},
                                       {4s, 1, true, 0},
                                       {4s, 1, false, 0, 6s},
                                       {10s, 2, true, 0},
                                       {10s, 2, false, 0, 10s},
                                       {10s, 4, false, 0, kNever},
                                   });
}

TEST(Limiter, QuotaFollowsTheCalendarOfItsTimeZone) {
  // 2023-11-14 23:59:59 in Berlin is 22:59:59 UTC.
  constexpr Nanos kBeforeMidnight = std::chrono::seconds{1'700'002'799};
  expect_rows(must(Limit::quota({5, Period::kDay, "Europe/Berlin"})),
              {
                  {kBeforeMidnight - kStart, 5, true, 0},
                  {kBeforeMidnight - kStart, 1, false, 0, 1s},
                  {kBeforeMidnight - kStart + 1s, 4, true, 1},
                  {kBeforeMidnight - kStart + 2s, 2, false, 1, 24h - 1s},
              });
}

TEST(Limiter, BurstAllowanceAdmitsPastTheLimitAndSaysSo) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(10, 10, 2), clock);
  EXPECT_FALSE(limiter->try_acquire("key", 10).burst);
  const Decision past = limiter->try_acquire("key", 2);
  EXPECT_TRUE(past.allowed());
  EXPECT_TRUE(past.burst);
  EXPECT_EQ(past.remaining, 0);
  const Decision over = limiter->try_acquire("key", 1);
  EXPECT_EQ(over.verdict, Verdict::kNotYet);
  EXPECT_FALSE(over.burst);
  EXPECT_EQ(limiter->try_acquire("key", 12).verdict, Verdict::kNotYet);
  EXPECT_EQ(limiter->try_acquire("key", 13).verdict, Verdict::kNever);
}

class EveryStrategy : public testing::TestWithParam<Strategy> {
 protected:
  ManualClock clock_{kStart};
};
INSTANTIATE_TEST_SUITE_P(Limiter, EveryStrategy, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EveryStrategy, AdmitsTenOfTenAndNoMore) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  for (Units i = 1; i <= 10; ++i) {
    const Decision decision = limiter->try_acquire("key");
    EXPECT_TRUE(decision.allowed());
    EXPECT_EQ(decision.remaining, 10 - i);
    EXPECT_GT(decision.reset_after, 0s);
    EXPECT_EQ(decision.lease != 0, GetParam() == Strategy::kConcurrency);
  }
  const Decision denied = limiter->try_acquire("key");
  EXPECT_EQ(denied.verdict, Verdict::kNotYet);
  EXPECT_EQ(denied.reason, Reason::kLimited);
  EXPECT_EQ(denied.remaining, 0);
  EXPECT_EQ(denied.lease, 0U);
  EXPECT_FALSE(denied);
}

TEST_P(EveryStrategy, RetryAfterIsTheFirstInstantThatWouldDo) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  ASSERT_TRUE(limiter->try_acquire("key", 7));
  const Decision denied = limiter->try_acquire("key", 5);
  ASSERT_EQ(denied.verdict, Verdict::kNotYet);
  ASSERT_GT(denied.retry_after, 0s);
  const Nanos then = clock_.now() + denied.retry_after;
  EXPECT_FALSE(limiter->peek_at(then - 1ns, "key", 5));
  EXPECT_TRUE(limiter->try_acquire_at(then, "key", 5));
}

TEST_P(EveryStrategy, IsWholeAgainAfterResetAfter) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  const Decision decision = limiter->try_acquire("key", 6);
  clock_.advance(decision.reset_after - 1ns);
  // The estimate of a counter reads as whole a little before the last of it has gone.
  if (GetParam() != Strategy::kSlidingWindowCounter) {
    EXPECT_LT(limiter->remaining("key"), 10);
  }
  clock_.advance(1ns);
  EXPECT_EQ(limiter->remaining("key"), 10);
  EXPECT_TRUE(limiter->try_acquire("key", 10));
}

TEST_P(EveryStrategy, DeniedCallLeavesNoTrace) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  ASSERT_TRUE(limiter->try_acquire("key", 6));
  const Decision before = limiter->peek("key", 3);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(limiter->try_acquire("key", 5));
  EXPECT_TRUE(same(limiter->peek("key", 3), before));
  EXPECT_TRUE(limiter->try_acquire("key", 4));
}

TEST_P(EveryStrategy, ClockGoingBackwardsGrantsNothingTwice) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  clock_.advance(2h);
  ASSERT_TRUE(limiter->try_acquire("key", 10));
  for (const Nanos back : {Nanos{1ns}, Nanos{1s}, Nanos{1h}, Nanos{2h}}) {
    EXPECT_FALSE(limiter->try_acquire_at(clock_.now() - back, "key")) << "back by " << back.count();
  }
  // Two hours are more than a window: its count has moved there, and the clock has moved on again.
  const bool windows = GetParam() == Strategy::kFixedWindow || GetParam() == Strategy::kQuota;
  EXPECT_EQ(limiter->try_acquire("key").allowed(), windows);
}

TEST_P(EveryStrategy, CallsThatReadTheClockEqualTheirTwins) {
  const auto by_clock = make(ten_of(GetParam()), clock_);
  const auto by_hand = make(ten_of(GetParam()), clock_);
  for (int i = 0; i < 60; ++i) {
    const Units permits = i % 4;
    const Nanos now = clock_.now();
    EXPECT_TRUE(same(by_clock->peek("key", permits), by_hand->peek_at(now, "key", permits)));
    EXPECT_TRUE(same(by_clock->try_acquire("key", permits), by_hand->try_acquire_at(now, "key", permits)));
    EXPECT_EQ(by_clock->remaining("key"), by_hand->remaining_at(now, "key"));
    const std::vector<Request> both = {{"key", 1}, {"other", permits}};
    EXPECT_TRUE(same(by_clock->try_acquire_all(both), by_hand->try_acquire_all_at(now, both)));
    EXPECT_TRUE(same(by_clock->reserve("third", permits, 1s).decision(),
                     by_hand->reserve_at(now, "third", permits, 1s).decision()));
    clock_.advance(37ms);
  }
}

TEST_P(EveryStrategy, ClearMakesAKeyAsIfNeverSeen) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  ASSERT_TRUE(limiter->try_acquire("key", 10));
  ASSERT_TRUE(limiter->try_acquire("other", 10));
  limiter->clear("key");
  limiter->clear("never seen");
  EXPECT_EQ(limiter->totals().cells, 1U);
  EXPECT_EQ(limiter->remaining("key"), 10);
  EXPECT_TRUE(limiter->try_acquire("key", 10));
  EXPECT_FALSE(limiter->try_acquire("other"));
}

// What happens to one key is the same whether or not another is used in between.
RC_GTEST_PROP(Limiter, TwoKeysNeverAffectEachOther, ()) {
  const Strategy strategy = *rc::gen::elementOf(all_strategies());
  const auto trace = *rc::gen::container<std::vector<std::tuple<int, int, bool>>>(
      rc::gen::tuple(rc::gen::inRange(0, 400), rc::gen::inRange(0, 13), rc::gen::arbitrary<bool>()));
  ManualClock clock(kStart);
  const auto shared = make(ten_of(strategy), clock);
  const auto alone = make(ten_of(strategy), clock);
  for (const auto& [millis, permits, other] : trace) {
    clock.advance(std::chrono::milliseconds{millis});
    const Decision decision = shared->try_acquire(other ? "other" : "key", permits);
    if (!other) RC_ASSERT(same(decision, alone->try_acquire("key", permits)));
  }
}

// A limiter that a user wrote: allows each key's first call.
class FirstCallOnly final : public Limiter {
 public:
  Decision try_acquire(std::string_view key, Units permits) noexcept override {
    const Decision decision = peek(key, permits);
    ++calls_[std::string(key)];
    return decision;
  }
  Decision acquire(std::string_view key, const AcquireOptions& options) override {
    return try_acquire(key, options.permits);
  }
  Decision peek(std::string_view key, Units) const noexcept override {
    Decision decision;
    const bool first = !calls_.contains(std::string(key));
    decision.verdict = first ? Verdict::kAllowed : Verdict::kNever;
    decision.remaining = first ? 1 : 0;
    return decision;
  }
  Statistics statistics(std::string_view key) const override {
    Statistics statistics;
    if (const auto found = calls_.find(std::string(key)); found != calls_.end()) {
      statistics.total_acquired = 1;
      statistics.total_throttled = found->second - 1;
    }
    return statistics;
  }
  void clear(std::string_view key) noexcept override { calls_.erase(std::string(key)); }

 private:
  std::map<std::string, std::uint64_t> calls_;
};

Units drain(Limiter& limiter, std::string_view key) {
  Units taken = 0;
  while (limiter.try_acquire(key)) ++taken;
  return taken;
}

TEST(LimiterInterface, AUsersOwnLimiterServesWhereAnyLimiterDoes) {
  FirstCallOnly own;
  Limiter& limiter = own;
  EXPECT_EQ(limiter.remaining("key"), 1);
  EXPECT_EQ(drain(limiter, "key"), 1);
  EXPECT_EQ(limiter.remaining("key"), 0);
  EXPECT_FALSE(limiter.acquire("key", {}));
  EXPECT_EQ(limiter.statistics("key").total_throttled, 2U);
  limiter.clear("key");
  EXPECT_EQ(drain(limiter, "key"), 1);
}

TEST(LimiterInterface, MemoryLimiterIsUsableThroughTheInterface) {
  ManualClock clock(kStart);
  const std::unique_ptr<Limiter> limiter = make(token_bucket(10, 10), clock);
  EXPECT_EQ(drain(*limiter, "key"), 10);
  EXPECT_EQ(limiter->acquire("key", {}).reason, Reason::kLimited);
  EXPECT_EQ(limiter->remaining("key"), 0);
  EXPECT_EQ(limiter->peek("key").retry_after, 100ms);
  EXPECT_EQ(limiter->statistics("key").capacity, 10);
  limiter->clear("key");
  EXPECT_EQ(limiter->remaining("key"), 10);
}

TEST(Decision, IsDeniedUntilSomebodyAnswers) {
  const Decision decision;
  EXPECT_FALSE(decision);
  EXPECT_EQ(decision.verdict, Verdict::kNever);
}

TEST(Decision, EveryReasonHasItsName) {
  const std::vector<std::pair<Reason, std::string>> names = {
      {Reason::kOk, "ok"},
      {Reason::kLimited, "limited"},
      {Reason::kCostExceedsLimit, "cost_exceeds_limit"},
      {Reason::kInvalidCost, "invalid_cost"},
      {Reason::kTooManyKeys, "too_many_keys"},
      {Reason::kQueueFull, "queue_full"},
      {Reason::kTimedOut, "timed_out"},
      {Reason::kCancelled, "cancelled"},
  };
  for (const auto& [reason, name] : names) EXPECT_EQ(to_string(reason), name);
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<std::string> good = std::string("yes");
  EXPECT_TRUE(good);
  EXPECT_EQ(*good, "yes");
  EXPECT_EQ(good->size(), 3U);
  const Result<std::string> bad = Error{ErrorCode::kIo, "no", true};
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::kIo);
  EXPECT_EQ(bad.error().message, "no");
  EXPECT_TRUE(bad.error().transient);
}

TEST(Result, GivesUpAValueThatCannotBeCopied) {
  Result<std::unique_ptr<int>> owner = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(owner);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, OfNothingIsFineUnlessAnErrorCame) {
  EXPECT_TRUE(Result<void>{});
  Result<void> bad = Error{ErrorCode::kCorrupt, "torn", false};
  EXPECT_FALSE(bad);
  EXPECT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().message, "torn");
  const Error taken = std::move(bad).error();
  EXPECT_EQ(taken.message, "torn");
}

TEST(Limit, WithoutItsBurstIsTheSameLimit) {
  const Limit limit = must(Limit::fixed_window({.limit = 5, .window = 60s, .burst_allowance = 2}));
  EXPECT_EQ(limit.without_burst(), must(Limit::fixed_window({.limit = 5, .window = 60s})));
  EXPECT_EQ(limit.burst_allowance(), 2);
}

}  // namespace
}  // namespace headgate::test
