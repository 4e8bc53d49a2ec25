// What comes of a limit that is exceeded, and what a decision says.
#include <gtest/gtest.h>

#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using engine::CheckDecision;
using engine::Why;

class EngineActions : public EngineFixture {};

TEST_F(EngineActions, BlockDenies) {
  load("policies: [{id: p, limit: 1/60s, action: block, message: Slow down}]");
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision denied = ask("A");
  EXPECT_FALSE(denied.allowed);
  EXPECT_STREQ(denied.action_text(), "block");
  EXPECT_EQ(denied.remaining, 0);
  EXPECT_EQ(denied.limit, 1);
  EXPECT_EQ(denied.reset_after, 60s);
  EXPECT_EQ(denied.reset_time(), kStart + 60s);
  EXPECT_EQ(counts("p").admitted, 1U);
  EXPECT_EQ(counts("p").denied, 1U);
  EXPECT_EQ(counts("p").exceeded, 1U);
  const auto told = listener_.all(Event::Kind::kViolation);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].policy_id, "p");
  EXPECT_EQ(told[0].agent, "A");
  EXPECT_EQ(told[0].text, "Sliding window limit 1/60s exceeded");
}

TEST_F(EngineActions, ThrottleAdmitsLaterUpToMaxWaitAndThenDenies) {
  load(
      "policies: [{id: p, limit: {strategy: token_bucket, capacity: 2, refill_rate: 1}, action: throttle, "
      "max_wait: 3s}]");
  EXPECT_EQ(ask("A").delay, 0s);
  EXPECT_EQ(ask("A").delay, 0s);
  for (const Nanos delay : {1s, 2s, 3s}) {
    const CheckDecision late = ask("A");
    ASSERT_TRUE(late.allowed);
    EXPECT_EQ(late.delay, delay);
    EXPECT_STREQ(late.action_text(), "throttle");
  }
  const CheckDecision denied = ask("A");
  EXPECT_FALSE(denied.allowed);
  EXPECT_GE(denied.retry_after, 4s);
  clock_.advance(1s);
  EXPECT_EQ(ask("A").delay, 3s) << "the denied one took no turn";
}

TEST_F(EngineActions, AThrottledCheckWaitsForTheSlowestOfItsPolicies) {
  load(R"(
policies:
  - {id: fast, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1}, action: throttle, max_wait: 10s}
  - {id: slow, limit: {strategy: token_bucket, capacity: 1, refill_rate: 0.25}, action: throttle, max_wait: 10s}
)");
  ASSERT_TRUE(ask("A").allowed);
  EXPECT_EQ(ask("A").delay, 4s);
}

TEST_F(EngineActions, APolicyThatBlocksIsNotWaitedForBecauseAnotherThrottles) {
  load(R"(
policies:
  - {id: gentle, limit: {strategy: token_bucket, capacity: 5, refill_rate: 1}, action: throttle, max_wait: 60s}
  - {id: hard, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1}}
)");
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision denied = ask("A");
  EXPECT_FALSE(denied.allowed);
  EXPECT_EQ(denied.denied_by()->id, "hard");
  EXPECT_EQ(left(Q("run").agent("A"))["gentle"], std::vector<double>{4});
}

TEST_F(EngineActions, WarnAdmitsWithAWarning) {
  load("policies: [{id: p, limit: 1/60s, action: warn}]");
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision warned = ask("A");
  EXPECT_TRUE(warned.allowed);
  EXPECT_STREQ(warned.action_text(), "warn");
  EXPECT_EQ(kinds(warned), std::vector<std::string>{"exceeded"});
  EXPECT_EQ(warned.warnings[0].capacity, 1);
  EXPECT_EQ(warned.warnings[0].remaining, 0);
  EXPECT_EQ(counts("p").exceeded, 1U);
  EXPECT_EQ(counts("p").admitted, 2U);
  EXPECT_EQ(listener_.count(Event::Kind::kExceeded), 1U);
  EXPECT_EQ(listener_.count(Event::Kind::kViolation), 0U);
  EXPECT_FALSE(engine_.aftermath().rate_limited("A"));
}

TEST_F(EngineActions, LogAdmitsAndOnlyTellsTheLog) {
  load("policies: [{id: p, limit: 1/60s, action: log}]");
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision logged = ask("A");
  EXPECT_TRUE(logged.allowed);
  EXPECT_STREQ(logged.action_text(), "log");
  EXPECT_TRUE(logged.warnings.empty());
  EXPECT_EQ(listener_.count(Event::Kind::kExceeded), 1U);
}

TEST_F(EngineActions, OfSeveralExceededTheStrongestActionIsTold) {
  load("policies: [{id: l, limit: 1/60s, action: log}, {id: w, limit: 1/60s, action: warn}]");
  ASSERT_TRUE(ask("A").allowed);
  EXPECT_STREQ(ask("A").action_text(), "warn");
}

TEST_F(EngineActions, StrictEnforcementDeniesWhateverTheAction) {
  for (const char* action : {"block", "throttle", "warn", "log"}) {
    load(std::string("enforcement: strict\npolicies: [{id: ") + action + ", limit: 1/60s, action: " + action + "}]");
    ASSERT_TRUE(ask("A").allowed) << action;
    const CheckDecision denied = ask("A");
    EXPECT_FALSE(denied.allowed) << action;
    EXPECT_STREQ(denied.action_text(), "block") << action;
  }
}

TEST_F(EngineActions, AMonitoredPolicyCountsAndReportsButNeverBlocks) {
  load("policies: [{id: p, limit: 1/60s, mode: monitor}]");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask("A").allowed);
  const CheckDecision watched = ask("A");
  EXPECT_STREQ(watched.action_text(), "allow");
  EXPECT_EQ(kinds(watched), std::vector<std::string>{"monitor"});
  EXPECT_EQ(counts("p").monitored, 3U);
  EXPECT_EQ(counts("p").denied, 0U);
  EXPECT_EQ(listener_.count(Event::Kind::kMonitored), 3U);
  EXPECT_FALSE(engine_.aftermath().rate_limited("A"));
}

TEST_F(EngineActions, ADocumentInMonitorModeMonitorsEveryPolicyEvenInStrictEnforcement) {
  load(
      "mode: monitor\nenforcement: strict\npolicies: [{id: p, limit: 1/60s}, {id: q, limit: 1/60s, action: throttle}]");
  for (int i = 0; i < 5; ++i) {
    const CheckDecision decision = ask("A");
    EXPECT_TRUE(decision.allowed);
    EXPECT_EQ(decision.delay, 0s);
  }
  EXPECT_EQ(counts("p").monitored, 4U);
  EXPECT_EQ(counts("q").monitored, 4U);
}

TEST_F(EngineActions, AMonitoredPolicyNeitherDelaysNorLimitsWhatIsTold) {
  load(R"(
policies:
  - {id: watched, mode: monitor, limit: 2/1h}
  - {id: real, limit: 10/60s}
)");
  const CheckDecision decision = ask("A");
  EXPECT_EQ(decision.remaining, 9);
  EXPECT_EQ(decision.limit, 10);
  EXPECT_EQ(decision.reset_after, 60s);
}

TEST_F(EngineActions, WarningsComeOncePerCrossingAndAgainAfterRecovery) {
  load("policies: [{id: p, limit: {strategy: token_bucket, capacity: 10, refill_rate: 1}}]");
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i <= 10; ++i) {
      const CheckDecision decision = ask("A");
      ASSERT_TRUE(decision.allowed);
      EXPECT_EQ(kinds(decision), i == 8 ? std::vector<std::string>{"approaching"} : std::vector<std::string>{}) << i;
      if (i == 8) {
        EXPECT_EQ(decision.warnings[0].remaining, 2);
        EXPECT_EQ(decision.warnings[0].capacity, 10);
      }
    }
    EXPECT_EQ(listener_.count(Event::Kind::kWarning), static_cast<std::size_t>(round + 1));
    clock_.advance(10s);
  }
}

TEST_F(EngineActions, ACostThatStepsOverTheThresholdWarns) {
  load("policies: [{id: p, limit: 10/60s, warn_at: 0.5}]");
  EXPECT_EQ(kinds(ask(Q("run").agent("A").cost(4))).size(), 0U);
  EXPECT_EQ(kinds(ask(Q("run").agent("A").cost(5))), std::vector<std::string>{"approaching"});
  EXPECT_EQ(kinds(ask(Q("run").agent("A").cost(1))).size(), 0U);
  load("policies: [{id: never, limit: 10/60s, warn_at: 1}]");
  EXPECT_EQ(kinds(ask(Q("run").agent("A").cost(10))).size(), 0U);
}

TEST_F(EngineActions, APeekNeitherWarnsNorCountsNorCharges) {
  load("policies: [{id: p, limit: 10/60s, warn_at: 0.1}]");
  for (int i = 0; i < 20; ++i) {
    const CheckDecision looked = peek("A");
    EXPECT_TRUE(looked.allowed);
    EXPECT_EQ(looked.remaining, 9) << "as the check itself would answer";
    EXPECT_TRUE(looked.warnings.empty());
  }
  EXPECT_EQ(counts("p").admitted, 0U);
  EXPECT_EQ(allowed("A"), 10);
  const std::size_t violations = listener_.count(Event::Kind::kViolation);
  EXPECT_FALSE(peek("A").allowed);
  EXPECT_EQ(listener_.count(Event::Kind::kViolation), violations);
}

TEST_F(EngineActions, UnitsPastTheLimitAreAdmittedAsBurstWithAWarning) {
  load("policies: [{id: p, limit: {strategy: sliding_window, limit: 2, window: 60s, burst_allowance: 2}, warn_at: 1}]");
  EXPECT_TRUE(kinds(ask("A")).empty());
  EXPECT_TRUE(kinds(ask("A")).empty());
  for (int i = 0; i < 2; ++i) {
    const CheckDecision burst = ask("A");
    EXPECT_TRUE(burst.allowed);
    EXPECT_EQ(kinds(burst), std::vector<std::string>{"burst"});
    EXPECT_EQ(burst.remaining, 0);
  }
  EXPECT_FALSE(ask("A").allowed);
}

TEST_F(EngineActions, ACostThatCanNeverFitIsAnErrorOfItsOwn) {
  load("policies: [{id: p, limit: {strategy: sliding_window, limit: 10, window: 60s, burst_allowance: 2}}]");
  const CheckDecision denied = ask(Q("run").agent("A").cost(13));
  EXPECT_FALSE(denied.allowed);
  EXPECT_EQ(denied.why, Why::kCostExceedsLimit);
  EXPECT_EQ(denied.error(), "cost_exceeds_limit");
  EXPECT_EQ(denied.retry_after, kNever);
  EXPECT_EQ(denied.denied_by()->id, "p");
  EXPECT_FALSE(engine_.aftermath().rate_limited("A")) << "a mistake is no violation";
  EXPECT_TRUE(ask(Q("run").agent("A").cost(12)).allowed);
  load("policies: [{id: t, limit: 10/60s, action: throttle}]");
  EXPECT_EQ(ask(Q("run").agent("A").cost(13)).why, Why::kCostExceedsLimit);
  load("policies: [{id: w, limit: 10/60s, action: warn}]");
  EXPECT_TRUE(ask(Q("run").agent("A").cost(13)).allowed) << "a policy that only warns";
}

TEST_F(EngineActions, WhatCanNeverFitGoesBeforeWhatMerelyHasToWait) {
  load("policies: [{id: first, limit: 1/60s, priority: 1}, {id: second, limit: 5/60s, priority: 2}]");
  ASSERT_TRUE(ask("A").allowed);
  // Neither could ever admit ten, and the first has no room besides.
  const CheckDecision denied = ask(Q("run").agent("A").cost(10));
  EXPECT_EQ(denied.denied_by()->id, "first");
  EXPECT_EQ(denied.retry_after, kNever);
  load("policies: [{id: wide, limit: 20/60s, priority: 1, key: []}, {id: small, limit: 5/60s, priority: 2}]");
  EXPECT_EQ(allowed(Q("run").agent("A").cost(5), 1), 1);
  EXPECT_EQ(allowed(Q("run").agent("B").cost(5), 1), 1);
  EXPECT_EQ(allowed(Q("run").agent("C").cost(5), 1), 1);
  const CheckDecision never = ask(Q("run").agent("D").cost(6));
  EXPECT_EQ(never.denied_by()->id, "small");
  EXPECT_EQ(never.error(), "cost_exceeds_limit");
}

TEST_F(EngineActions, IsDeniedByTheFirstInPriorityAndRetriesAfterTheLongest) {
  load(R"(
policies:
  - {id: late, priority: 9, limit: 1/600s}
  - {id: early, priority: 1, limit: 1/60s}
  - {id: roomy, priority: 0, limit: 100/60s}
)");
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision denied = ask("A");
  EXPECT_EQ(denied.denied_by()->id, "early");
  EXPECT_EQ(denied.reason(), "Sliding window limit 1/60s exceeded");
  EXPECT_EQ(denied.retry_after, 600s) << "sooner would be denied again";
  EXPECT_EQ(ids(denied), (std::vector<std::string>{"roomy", "early", "late"}));
}

TEST_F(EngineActions, OfEqualPrioritiesTheLongestRetryDenies) {
  load("policies: [{id: a, limit: 1/60s}, {id: b, limit: 1/600s}, {id: c, limit: 1/300s}]");
  ASSERT_TRUE(ask("A").allowed);
  EXPECT_EQ(ask("A").denied_by()->id, "b");
}

TEST_F(EngineActions, OfAllPoliciesTheLeastRemainingAndTheLatestResetAreTold) {
  load(R"(
policies:
  - {id: a, limit: 10/60s}
  - {id: c, limit: 100/1h}
  - {id: b, limit: 3/10s}
  - {id: d, limit: 7/5s}
  - {id: other, match: {agents: [B]}, limit: 1/1s}
)");
  const CheckDecision decision = ask("A");
  EXPECT_EQ(decision.remaining, 2);
  EXPECT_EQ(decision.limit, 3);
  EXPECT_EQ(decision.reset_after, 1h);
  EXPECT_EQ(ids(decision), (std::vector<std::string>{"a", "c", "b", "d"}));
  EXPECT_EQ(decision.why, Why::kPassed);
}

TEST_F(EngineActions, SeveralLimitsOfOnePolicyAllHold) {
  load("policies: [{id: p, limit: [2/1s, 5/60s]}]");
  int admitted = 0;
  for (int second = 0; second < 5; ++second) {
    admitted += allowed("A");
    clock_.advance(1s);
  }
  EXPECT_EQ(admitted, 5);
  EXPECT_EQ(ask("A").reason(), "Sliding window limit 5/60s exceeded");
  EXPECT_EQ(counts("p").admitted, 5U) << "a check counts once";
}

TEST_F(EngineActions, AnUnlimitedPolicyIsCountedAndNeverExceeded) {
  load("policies: [{id: p, limit: unlimited}]");
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(ask("A").allowed);
  EXPECT_EQ(counts("p").admitted, 1000U);
  EXPECT_EQ(ids(ask("A")), std::vector<std::string>{"p"});
  load("policies: [{id: p, limit: unlimited}, {id: q, limit: 1/60s}]");
  EXPECT_EQ(allowed("A"), 1);
}

TEST_F(EngineActions, WithoutAMatchingPolicyAChecksIsAllowed) {
  load("policies: [{id: p, match: {operations: [other]}, limit: 1/60s}]");
  const CheckDecision decision = ask("A");
  EXPECT_TRUE(decision.allowed);
  EXPECT_EQ(decision.why, Why::kNoPolicy);
  EXPECT_TRUE(ids(decision).empty());
}

TEST_F(EngineActions, FractionsOfAUnitAreCountedExactly) {
  load("policies: [{id: p, unit: usd, limit: {strategy: fixed_window, limit: 0.3, window: 60s}}]");
  int admitted = 0;
  for (; admitted < 100 && ask(Q("run").agent("A").cost("usd", 0.03)).allowed; ++admitted) {
  }
  EXPECT_EQ(admitted, 10) << "thirty cents hold ten times three";
  clock_.advance(60s);
  const CheckDecision decision = ask(Q("run").agent("A").cost("usd", 0.1));
  EXPECT_DOUBLE_EQ(decision.remaining, 0.2);
  EXPECT_DOUBLE_EQ(decision.limit, 0.3);
  EXPECT_EQ(ask(Q("run").agent("A").cost("usd", 0.31)).error(), "cost_exceeds_limit");
}

TEST_F(EngineActions, WholeUnitsAreRoundedUp) {
  load("policies: [{id: p, limit: 10/60s}]");
  EXPECT_EQ(ask(Q("run").agent("A").cost(1.5)).remaining, 8);
  EXPECT_EQ(ask(Q("run").agent("A").cost(0)).remaining, 8) << "nothing costs nothing";
}

TEST_F(EngineActions, APolicyIgnoresChecksWithoutItsUnit) {
  load(R"(
policies:
  - {id: requests, limit: 3/60s}
  - {id: tokens, unit: tokens, limit: 1000/60s}
  - {id: usd, unit: usd, limit: 1/60s}
)");
  EXPECT_EQ(ids(ask("A")), std::vector<std::string>{"requests"});
  EXPECT_EQ(ids(ask(Q("run").agent("A").cost("tokens", 900))), std::vector<std::string>{"tokens"});
  EXPECT_EQ(ids(ask(Q("run").agent("A").cost("requests", 1).cost("usd", 0.5))),
            (std::vector<std::string>{"requests", "usd"}));
  EXPECT_EQ(ask(Q("run").agent("A").cost("other", 5)).why, Why::kNoPolicy);
  const CheckDecision denied = ask(Q("run").agent("A").cost("requests", 1).cost("tokens", 200));
  EXPECT_EQ(denied.denied_by()->id, "tokens");
  EXPECT_TRUE(ask("A").allowed) << "the denied one took no request";
}

TEST_F(EngineActions, CostsOfOneUnitAddUp) {
  load("policies: [{id: p, limit: 10/60s}]");
  EXPECT_EQ(ask(Q("run").agent("A").cost(2).cost(3)).remaining, 5);
}

TEST_F(EngineActions, SlotsAreCountedOneByOneWhateverTheUnitBesideThem) {
  load(
      "policies: [{id: p, unit: usd, limit: [{strategy: concurrency, max: 4}, "
      "{strategy: fixed_window, limit: 10, window: 60s}]}]");
  const CheckDecision decision = ask(Q("run").agent("A").cost("usd", 2));
  ASSERT_TRUE(decision.allowed);
  EXPECT_DOUBLE_EQ(decision.remaining, 3);
  EXPECT_DOUBLE_EQ(decision.limit, 4);
  EXPECT_EQ(left(Q("run").agent("A").cost("usd", 2))["p"], (std::vector<double>{2, 8})) << "a slot is looked for";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ask(Q("run").agent("A").cost("usd", 0.1)).allowed) << i;
  const CheckDecision denied = ask(Q("run").agent("A").cost("usd", 0.1));
  EXPECT_FALSE(denied.allowed);
  EXPECT_DOUBLE_EQ(denied.limit, 4);
  EXPECT_EQ(denied.reason(), "Concurrency limit 4 reached");
}

TEST_F(EngineActions, ALeakyBucketSpacesWhatItAdmits) {
  load("policies: [{id: p, limit: {strategy: leaky_bucket, rate: 2, queue: 2}}]");
  EXPECT_EQ(ask("A").delay, 0ms);
  EXPECT_EQ(ask("A").delay, 500ms);
  EXPECT_EQ(ask("A").delay, 1s);
  EXPECT_FALSE(ask("A").allowed);
}

TEST_F(EngineActions, ALoopIsDetectedByItsFingerprint) {
  load("policies: [{id: loop, repeat: {fingerprint: [args], max: 2, window: 60s}}]");
  EXPECT_EQ(allowed(Q("run").agent("A").session("s").attr("args", "x")), 2);
  const CheckDecision denied = ask(Q("run").agent("A").session("s").attr("args", "x"));
  EXPECT_EQ(denied.error(), "loop_detected");
  EXPECT_TRUE(ask(Q("run").agent("A").session("s").attr("args", "y")).allowed);
  EXPECT_TRUE(ask(Q("run").agent("A").session("t").attr("args", "x")).allowed);
  EXPECT_TRUE(ask(Q("walk").agent("A").session("s").attr("args", "x")).allowed);
  EXPECT_TRUE(ask(Q("run").agent("A").session("s")).allowed);
}

TEST_F(EngineActions, SaysInWordsWhichLimitWasExceeded) {
  const std::pair<const char*, const char*> rows[] = {
      {"{strategy: token_bucket, capacity: 1, refill_rate: 0.5}", "Token bucket exhausted, 2.00s to refill"},
      {"{strategy: gcra, max_burst: 0, count: 1, period: 60s}", "GCRA limit 1 exceeded, 60.00s to refill"},
      {"{strategy: sliding_window, limit: 1, window: 1h}", "Sliding window limit 1/3600s exceeded"},
      {"{strategy: sliding_window_counter, limit: 1, window: 60s}", "Sliding window counter limit 1/60s exceeded"},
      {"{strategy: fixed_window, limit: 1, window: 500ms}", "Fixed window limit 1/500ms exceeded"},
      {"{strategy: leaky_bucket, rate: 1, queue: 0}", "Leaky bucket full, 1.00s until there is room"},
      {"{strategy: concurrency, max: 1}", "Concurrency limit 1 reached"},
      {"{strategy: quota, limit: 1, period: day}", "Quota 1/day exceeded"}};
  for (const auto& [limit, reason] : rows) {
    load(std::string("policies: [{id: p, limit: ") + limit + "}]");
    ASSERT_TRUE(ask("A").allowed) << limit;
    EXPECT_EQ(ask("A").reason(), reason);
  }
}

TEST_F(EngineActions, TheStoreAtItsCapRefusesNewKeysAndSaysSo) {
  engine::Engine small({.clock = &clock_, .max_cells = 16});
  ASSERT_TRUE(small.load(read("policies: [{id: p, limit: 5/60s}]")));
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const CheckDecision decision = small.check(Q("run").agent("agent" + std::to_string(i)).get());
    if (decision.allowed) continue;
    ++refused;
    EXPECT_EQ(decision.error(), "too_many_keys");
    EXPECT_GT(decision.retry_after, 0s);
    EXPECT_FALSE(small.aftermath().rate_limited("agent" + std::to_string(i))) << "it is not the agent's doing";
  }
  EXPECT_GT(refused, 0);
}

class EngineRollout : public EngineFixture {};

TEST_F(EngineRollout, EnforcesForAStableShareOfTheKeysOnly) {
  const std::string yaml = "policies: [{id: p, limit: 1/60s, rollout: 10%}]";
  load(yaml);
  engine::Engine other({.clock = &clock_});
  ASSERT_TRUE(other.load(read(yaml)));
  int enforced = 0;
  for (int i = 0; i < 5000; ++i) {
    const Q q = std::move(Q("run").agent("agent" + std::to_string(i)));
    ASSERT_TRUE(ask(q).allowed);
    ASSERT_TRUE(other.check(q.get()).allowed);
    const bool denied = !ask(q).allowed;
    enforced += denied ? 1 : 0;
    ASSERT_EQ(!other.check(q.get()).allowed, denied) << "the same after a restart, whatever the seed: " << i;
  }
  EXPECT_GT(enforced, 400);
  EXPECT_LT(enforced, 600);
}

TEST_F(EngineRollout, WhoIsEnforcedStaysSoWhenTheShareGrows) {
  std::vector<int> enforced;
  for (const char* share : {"5%", "50%", "100%", "0%"}) {
    load(std::string("policies: [{id: p, limit: 1/60s, rollout: ") + share + "}]");
    std::vector<int> now;
    for (int i = 0; i < 500; ++i) {
      const auto decision = peek("agent" + std::to_string(i));
      ASSERT_EQ(decision.judged.size(), 1U);
      if (decision.judged[0].enforced) now.push_back(i);
    }
    if (std::string_view(share) == "0%") {
      EXPECT_TRUE(now.empty());
      continue;
    }
    EXPECT_TRUE(std::includes(now.begin(), now.end(), enforced.begin(), enforced.end())) << share;
    EXPECT_GT(now.size(), enforced.size()) << share;
    enforced = now;
  }
  EXPECT_EQ(enforced.size(), 500U);
}

TEST_F(EngineRollout, VariantsHaveNumbersAndCountsOfTheirOwn) {
  load("policies: [{id: p, variants: [{name: a, weight: 3, limit: 2/60s}, {name: b, limit: 5/60s}]}]");
  int of_a = 0;
  for (int i = 0; i < 2000; ++i) {
    const int admitted = allowed("agent" + std::to_string(i));
    ASSERT_TRUE(admitted == 2 || admitted == 5) << admitted;
    of_a += admitted == 2 ? 1 : 0;
  }
  EXPECT_GT(of_a, 1400);
  EXPECT_LT(of_a, 1600);
  EXPECT_EQ(counts("p/a").admitted, static_cast<std::uint64_t>(2 * of_a));
  EXPECT_EQ(counts("p/a").denied, static_cast<std::uint64_t>(of_a));
  EXPECT_EQ(counts("p/b").admitted, static_cast<std::uint64_t>(5 * (2000 - of_a)));
}

TEST_F(EngineRollout, VariantsOfSlotsInAnyUnitAreSlots) {
  load("policies: [{id: p, unit: usd, variants: [{name: a, limit: {strategy: concurrency, max: 4}}]}]");
  const CheckDecision decision = ask(Q("run").agent("A").cost("usd", 0.5));
  EXPECT_DOUBLE_EQ(decision.limit, 4);
  EXPECT_DOUBLE_EQ(decision.remaining, 3);
}

}  // namespace
}  // namespace headgate::test
