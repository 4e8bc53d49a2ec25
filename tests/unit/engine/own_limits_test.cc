// Limits that callers name, several checks at once, and refunds.
#include <gtest/gtest.h>

#include "support/engines.h"

namespace headgate::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::EngineFixture;
using test::Q;

class OwnLimits : public EngineFixture {
 protected:
  Decision throttle(std::string_view key, const Gcra& bucket, Units quantity = 1) {
    Result<Decision> decision = engine_.own_limits().throttle(clock_.now(), {key}, bucket, quantity);
    EXPECT_TRUE(decision);
    return decision ? *decision : Decision{};
  }
  double left(const Q& q) {
    Check peek = q.get();
    peek.peek = true;
    return engine_.check_at(clock_.now(), peek).remaining;
  }
};

constexpr Gcra kThirtyAMinute{.max_burst = 15, .count = 30, .period = seconds{60}};

TEST_F(OwnLimits, ThrottleAnswersAsRedisCellDoes) {
  const Decision first = throttle("user123", kThirtyAMinute);
  EXPECT_TRUE(first.allowed());
  EXPECT_EQ(first.limit, 16);
  EXPECT_EQ(first.remaining, 15);
  EXPECT_EQ(first.reset_after, seconds{2});

  const Gcra one{.max_burst = 0, .count = 1, .period = seconds{2}};
  EXPECT_TRUE(throttle("e", one).allowed());
  const Decision again = throttle("e", one);
  EXPECT_FALSE(again.allowed());
  EXPECT_EQ(again.retry_after, seconds{2});
  EXPECT_EQ(again.remaining, 0);
}

TEST_F(OwnLimits, ThrottleOfNothingLooksAndChargesNothing) {
  EXPECT_EQ(throttle("k", kThirtyAMinute, 0).remaining, 16);
  EXPECT_EQ(throttle("k", kThirtyAMinute, 0).remaining, 16);
  EXPECT_EQ(throttle("k", kThirtyAMinute, 3).remaining, 13);
  EXPECT_EQ(throttle("k", kThirtyAMinute, 0).remaining, 13);
}

TEST_F(OwnLimits, ThrottleOfMoreThanTheBucketHoldsNeverFits) {
  const Decision decision = throttle("k", kThirtyAMinute, 17);
  EXPECT_EQ(decision.verdict, Verdict::kNever);
  EXPECT_EQ(decision.retry_after, kNever);
  EXPECT_EQ(throttle("k", kThirtyAMinute, 0).remaining, 16);
}

TEST_F(OwnLimits, OtherNumbersForTheSameKeyGoOnFromWhatWasUsed) {
  EXPECT_EQ(throttle("k", kThirtyAMinute, 16).remaining, 0);
  EXPECT_FALSE(throttle("k", {.max_burst = 1, .count = 30, .period = seconds{60}}).allowed());
  EXPECT_TRUE(throttle("other", {.max_burst = 1, .count = 30, .period = seconds{60}}).allowed());
}

TEST_F(OwnLimits, ManyDifferentBucketsAreKeptApart) {
  for (Units burst = 0; burst < 500; ++burst) {
    EXPECT_EQ(throttle("k" + std::to_string(burst), {.max_burst = burst, .count = 1, .period = seconds{60}}).limit,
              burst + 1);
  }
}

TEST_F(OwnLimits, NumbersThatMakeNoBucketAreAnError) {
  const Result<Decision> decision =
      engine_.own_limits().throttle(clock_.now(), {"k"}, {.max_burst = 1, .count = 0, .period = seconds{60}}, 1);
  ASSERT_FALSE(decision);
  EXPECT_NE(decision.error().message.find("count"), std::string::npos) << decision.error().message;
  const Result<Decision> negative = engine_.own_limits().throttle(clock_.now(), {"k"}, kThirtyAMinute, -1);
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().message, "quantity must be at least 0, got -1");
}

TEST_F(OwnLimits, ALimitThatTheAskerNamesIsChargedPeekedAndRefunded) {
  const Limit limit = *Limit::fixed_window({.limit = 3, .window = seconds{60}});
  const engine::OwnLimit own{.space = "envoy", .key = "a", .limit = limit};
  EXPECT_EQ(engine_.own_limits().check(clock_.now(), own, 2).remaining, 1);
  EXPECT_EQ(engine_.own_limits().check(clock_.now(), own, 1, engine::OwnLimits::Use::kPeek).remaining, 0);
  EXPECT_FALSE(engine_.own_limits().check(clock_.now(), own, 2).allowed());
  engine_.own_limits().refund(own, 2, clock_.now());
  EXPECT_EQ(engine_.own_limits().check(clock_.now(), own, 0, engine::OwnLimits::Use::kPeek).remaining, 3);
  const engine::OwnLimit elsewhere{.space = "other", .key = "a", .limit = limit};
  EXPECT_TRUE(engine_.own_limits().check(clock_.now(), elsewhere, 3).allowed());
}

constexpr const char* kTwo = R"(
policies:
  - {id: wide, match: {operations: [wide]}, limit: 20/60s}
  - {id: narrow, match: {operations: [narrow]}, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1/min}}
)";

TEST_F(OwnLimits, SeveralChecksAreChargedTogetherOrNotAtAll) {
  load(kTwo);
  const Q wide = std::move(Q("wide").agent("a").cost(3));
  const Q nothing = std::move(Q("wide").agent("a").cost(0));
  const Q narrow = std::move(Q("narrow").agent("a"));
  const std::array<Check, 3> checks{wide.get(), narrow.get(), wide.get()};
  // For each whether it was allowed, and by whom not; then whether all were.
  const auto ask_all = [&] {
    std::string told;
    engine_.check_all(clock_.now(), checks,
                      {.each =
                           [&](std::size_t, const CheckDecision& decision) {
                             told += decision.allowed ? "yes " : decision.denied_by()->id + " ";
                           },
                       .done = [&](bool allowed) { told += allowed ? "all" : "none"; }});
    return told;
  };
  EXPECT_EQ(ask_all(), "yes yes yes all");
  EXPECT_EQ(left(nothing), 14);
  EXPECT_EQ(engine_.holds().open(), 0u);
  EXPECT_EQ(ask_all(), "yes narrow yes none");
  EXPECT_EQ(left(nothing), 14) << "what the first was charged has been given back";
  EXPECT_EQ(engine_.holds().open(), 0u);
}

TEST_F(OwnLimits, SeveralChecksThatAreDeniedLeaveNoTraceOnAPolicyWithoutHolds) {
  load(R"(
policies:
  - {id: wide, match: {operations: [wide]}, limit: 20/60s, holds: false}
  - {id: narrow, match: {operations: [narrow]}, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1/min}}
)");
  const Q wide = std::move(Q("wide").agent("a").cost(3));
  const Q nothing = std::move(Q("wide").agent("a").cost(0));
  const Q narrow = std::move(Q("narrow").agent("a").cost(2));
  const std::array<Check, 2> checks{wide.get(), narrow.get()};
  bool allowed = true;
  engine_.check_all(clock_.now(), checks,
                    {.each = [](std::size_t, const CheckDecision&) {}, .done = [&](bool all) { allowed = all; }});
  EXPECT_FALSE(allowed);
  EXPECT_EQ(left(nothing), 20) << "nothing was admitted, so nothing is charged";
}

TEST_F(OwnLimits, ARefundGivesBackWhatIsStatedAndNothingToAPolicyWithoutHolds) {
  load(R"(
policies:
  - {id: least, match: {operations: [x]}, limit: 20/60s, least_cost: 5}
  - {id: final, match: {operations: [y]}, limit: 20/60s, holds: false}
)");
  const Q x = std::move(Q("x").agent("a").cost(10));
  const Q y = std::move(Q("y").agent("a").cost(10));
  ASSERT_TRUE(ask(x).allowed);
  ASSERT_TRUE(ask(y).allowed);
  engine_.refund(clock_.now(), Q("x").agent("a").get());
  EXPECT_EQ(ask(Q("x").agent("a").cost(6)).remaining, 5) << "one came back, not five";
  engine_.refund(clock_.now(), y.get());
  EXPECT_EQ(left(Q("y").agent("a").cost(0)), 10);
  engine_.refund(clock_.now(), y.get(), engine::GiveBack::kUndo);
  EXPECT_EQ(left(Q("y").agent("a").cost(0)), 20) << "a check that was denied after all is undone";
}

TEST_F(OwnLimits, ARefundGivesCostBackToEveryPolicyThatMatches) {
  load(R"(
policies:
  - {id: window, match: {operations: [x]}, limit: 10/60s}
  - {id: bucket, match: {operations: [x]}, limit: {strategy: token_bucket, capacity: 10, refill_rate: 1/min}}
  - {id: fixed, match: {operations: [x]}, limit: {strategy: fixed_window, limit: 10, window: 60s}}
)");
  const Q q = std::move(Q("x").agent("a").cost(6));
  EXPECT_TRUE(engine_.check_at(clock_.now(), q.get()).allowed);
  EXPECT_FALSE(engine_.check_at(clock_.now(), q.get()).allowed);
  clock_.advance(seconds{1});
  engine_.refund(clock_.now(), Q("x").agent("a").cost(4).get());
  EXPECT_TRUE(engine_.check_at(clock_.now(), q.get()).allowed);
  // Never more than was charged.
  engine_.refund(clock_.now(), Q("x").agent("a").cost(1000).get());
  EXPECT_EQ(left(Q("x").agent("a").cost(0)), 10);
}

// At a second each, these refill in 0.3 seconds and 2^64 nanoseconds: in 0.3 seconds, for code that lets that wrap
// around.
constexpr Units kTooMuch = 18'446'744'074;

TEST_F(OwnLimits, ARefundOfMoreThanABucketHoldsFillsItAndNoMore) {
  load(R"(
policies:
  - {id: gcra, match: {operations: [x]}, limit: {strategy: gcra, max_burst: 9, count: 10, period: 10s}}
)");
  const Q q = std::move(Q("x").agent("a").cost(6));
  EXPECT_TRUE(engine_.check_at(clock_.now(), q.get()).allowed);
  engine_.refund(clock_.now(), Q("x").agent("a").cost(static_cast<double>(kTooMuch)).get());
  EXPECT_EQ(left(Q("x").agent("a").cost(0)), 10);
}

TEST_F(OwnLimits, ARefundOfMoreThanAnAskersOwnBucketHoldsFillsItAndNoMore) {
  const Limit limit = *Limit::gcra({.max_burst = 9, .count = 10, .period = seconds{10}});
  const engine::OwnLimit own{.space = "envoy", .key = "a", .limit = limit};
  EXPECT_EQ(engine_.own_limits().check(clock_.now(), own, 6).remaining, 4);
  engine_.own_limits().refund(own, kTooMuch, clock_.now());
  EXPECT_EQ(engine_.own_limits().check(clock_.now(), own, 0, engine::OwnLimits::Use::kPeek).remaining, 10);
}

TEST_F(OwnLimits, ACheckThatWouldBeRefusedGivesNothingBack) {
  load("policies: [{id: all, limit: 10/60s}]");
  EXPECT_TRUE(engine_.check_at(clock_.now(), Q("x").agent("a").cost(6).get()).allowed);
  engine_.refund(clock_.now(), Q("").agent("a").cost(6).get());
  EXPECT_EQ(left(Q("x").agent("a").cost(0)), 4) << "an operation is required";
  engine_.refund(clock_.now(), Q("x").agent("a").cost(2 * kMaxCost).get());
  EXPECT_EQ(left(Q("x").agent("a").cost(0)), 4) << "no check may cost as much";
}

TEST_F(OwnLimits, TierUsageTellsEachTierAndChannelApart) {
  EXPECT_TRUE(engine_.check_at(clock_.now(), Q("ping").agent("a").channel("ws").get()).allowed);
  const auto ws = engine_.tier_usage("a", "ws");
  const auto http = engine_.tier_usage("a", "http");
  ASSERT_EQ(ws.size(), 3u);
  ASSERT_EQ(http.size(), 3u);
  double used_ws = 0;
  double used_http = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    used_ws += ws[i].limit - ws[i].remaining;
    used_http += http[i].limit - http[i].remaining;
  }
  EXPECT_EQ(used_ws, 1);
  EXPECT_EQ(used_http, 0);
  EXPECT_EQ(ws[0].tier, "light");
  EXPECT_EQ(ws[0].limit, 120);
  EXPECT_EQ(ws[2].limit, 10);
}

}  // namespace
}  // namespace headgate::engine
