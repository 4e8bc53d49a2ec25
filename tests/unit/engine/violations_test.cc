// Back-off, escalation, exclusion, tiers, overrides and exemptions.
#include <gtest/gtest.h>

#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using engine::CheckDecision;
using engine::Override;
using engine::Why;
using policy::Tier;
using policy::TierLimit;

class EngineBackoff : public EngineFixture {};

TEST_F(EngineBackoff, ViolationsInARowWaitLongerAndSixtySecondsOfQuietForgive) {
  // A limit whose own wait is always shorter than the back-off.
  load("policies: [{id: p, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1000}}]");
  for (int round = 0; round < 2; ++round) {
    for (const Nanos expected : {1s, 2s, 5s, 10s, 30s, 30s, 30s}) {
      ASSERT_TRUE(ask("A").allowed);
      const CheckDecision denied = ask("A");
      ASSERT_FALSE(denied.allowed);
      EXPECT_EQ(denied.retry_after, expected);
      clock_.advance(59s);
    }
    clock_.advance(1s);
  }
}

TEST_F(EngineBackoff, TheLimitsOwnWaitWinsWhereItIsLonger) {
  load("policies: [{id: p, limit: 1/20s}]");
  ASSERT_TRUE(ask("A").allowed);
  for (const Nanos expected : {20s, 20s, 20s, 20s, 30s}) EXPECT_EQ(ask("A").retry_after, expected);
}

TEST_F(EngineBackoff, StepsAreConfigurableAndPerAgent) {
  load("backoff: {steps: [3s, 7s], quiet: 10s}\npolicies: [{id: p, limit: 1/1s}]");
  for (const char* agent : {"A", "B"}) {
    ASSERT_TRUE(ask(agent).allowed);
    EXPECT_EQ(ask(agent).retry_after, 3s) << agent;
    EXPECT_EQ(ask(agent).retry_after, 7s) << agent;
    EXPECT_EQ(ask(agent).retry_after, 7s) << agent;
  }
  clock_.advance(10s);
  ASSERT_TRUE(ask("A").allowed);
  EXPECT_EQ(ask("A").retry_after, 3s);
}

TEST_F(EngineBackoff, IsOnlyAdviceUnlessEnforced) {
  load("policies: [{id: p, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1000}}]");
  ASSERT_TRUE(ask("A").allowed);
  EXPECT_EQ(ask("A").retry_after, 1s);
  clock_.advance(1ms);
  EXPECT_TRUE(ask("A").allowed);
}

TEST_F(EngineBackoff, EnforcedItDeniesUntilItsTimeIsOver) {
  load(
      "backoff: {enforced: true}\n"
      "policies: [{id: p, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1000}}]");
  ASSERT_TRUE(ask("A").allowed);
  EXPECT_EQ(ask("A").retry_after, 1s);
  clock_.advance(999ms);
  const CheckDecision early = ask("A");
  EXPECT_FALSE(early.allowed);
  EXPECT_EQ(early.error(), "backing_off");
  EXPECT_EQ(early.retry_after, 1ms);
  EXPECT_TRUE(ask("B").allowed) << "somebody else";
  clock_.advance(1ms);
  EXPECT_TRUE(ask("A").allowed) << "asking too early did not lengthen it";
  load("policies: [{id: p, limit: 1/1s}]");
  ASSERT_TRUE(ask("C").allowed);
  ASSERT_FALSE(ask("C").allowed);
  clock_.advance(1s - 1ns);
  EXPECT_NE(ask("C").why, Why::kBackingOff) << "no longer enforced";
}

TEST_F(EngineBackoff, AnAgentReadsRateLimitedUntilItHasBeenQuiet) {
  load("policies: [{id: p, limit: 1/1s}]");
  ASSERT_TRUE(ask("A").allowed);
  EXPECT_FALSE(engine_.aftermath().rate_limited("A"));
  ASSERT_FALSE(ask("A").allowed);
  EXPECT_TRUE(engine_.aftermath().rate_limited("A"));
  EXPECT_FALSE(engine_.aftermath().rate_limited("B"));
  ASSERT_EQ(engine_.aftermath().offenders(10).size(), 1U);
  EXPECT_EQ(engine_.aftermath().offenders(10)[0].agent, "A");
  clock_.advance(60s - 1ns);
  EXPECT_TRUE(engine_.aftermath().rate_limited("A"));
  clock_.advance(1ns);
  EXPECT_FALSE(engine_.aftermath().rate_limited("A"));
  EXPECT_TRUE(engine_.aftermath().offenders(10).empty());
}

TEST_F(EngineBackoff, SustainedAbuseIsToldOnce) {
  load("policies: [{id: p, limit: 1/1h}]");
  ASSERT_TRUE(ask("A").allowed);
  for (int i = 1; i <= 50; ++i) {
    ASSERT_FALSE(ask("A").allowed);
    EXPECT_EQ(listener_.count(Event::Kind::kSustainedAbuse), i >= 10 ? 1U : 0U) << i;
    clock_.advance(1s);
  }
  EXPECT_EQ(listener_.all(Event::Kind::kSustainedAbuse)[0].agent, "A");
}

TEST_F(EngineBackoff, PeeksAreNoViolations) {
  load("policies: [{id: p, limit: 1/1h}]");
  ASSERT_TRUE(ask("A").allowed);
  for (int i = 0; i < 20; ++i) ASSERT_FALSE(peek("A").allowed);
  EXPECT_FALSE(engine_.aftermath().rate_limited("A"));
  EXPECT_EQ(ask("A").retry_after, 1h);
}

class EngineEscalation : public EngineFixture {};

TEST_F(EngineEscalation, IsRaisedByAsManyViolationsWithinTheWindow) {
  load("policies: [{id: p, limit: 1/1h, message: too much, escalation: {to: BOSS, threshold: 3, time_window: 10s}}]");
  ASSERT_TRUE(ask("A").allowed);
  ASSERT_TRUE(ask("B").allowed);
  ASSERT_FALSE(ask("A").allowed);
  ASSERT_FALSE(ask("A").allowed);
  ASSERT_FALSE(ask("B").allowed);
  EXPECT_EQ(listener_.count(Event::Kind::kEscalation), 0U) << "each agent for itself";
  clock_.advance(10s);
  ASSERT_FALSE(ask("A").allowed);
  EXPECT_EQ(listener_.count(Event::Kind::kEscalation), 0U) << "the first two have left the window";
  ASSERT_FALSE(ask("A").allowed);
  ASSERT_FALSE(ask("A").allowed);
  ASSERT_EQ(listener_.count(Event::Kind::kEscalation), 1U);
  const Told told = listener_.all(Event::Kind::kEscalation)[0];
  EXPECT_EQ(told.to, "BOSS");
  EXPECT_EQ(told.policy_id, "p");
  EXPECT_EQ(told.agent, "A");
  EXPECT_EQ(told.text, "too much");
  EXPECT_EQ(told.value, 3);
  for (int i = 0; i < 2; ++i) ASSERT_FALSE(ask("A").allowed);
  EXPECT_EQ(listener_.count(Event::Kind::kEscalation), 1U) << "counting starts anew";
  ASSERT_FALSE(ask("A").allowed);
  EXPECT_EQ(listener_.count(Event::Kind::kEscalation), 2U);
}

TEST_F(EngineEscalation, AWindowOfZeroEscalatesAtOnce) {
  load("policies: [{id: p, limit: 1/1h, escalation: {to: BOSS, threshold: 3, time_window: 0}}]");
  ASSERT_TRUE(ask("A").allowed);
  ASSERT_FALSE(ask("A").allowed);
  EXPECT_EQ(listener_.count(Event::Kind::kEscalation), 1U);
}

TEST_F(EngineEscalation, PoliciesThatWarnEscalateAndMonitoredOnesDoNot) {
  load(R"(
policies:
  - {id: w, limit: 1/1h, action: warn, escalation: {to: W, threshold: 1, time_window: 10s}}
  - {id: m, limit: 1/1h, mode: monitor, escalation: {to: M, threshold: 1, time_window: 10s}}
)");
  ASSERT_TRUE(ask("A").allowed);
  ASSERT_TRUE(ask("A").allowed);
  ASSERT_EQ(listener_.count(Event::Kind::kEscalation), 1U);
  EXPECT_EQ(listener_.all(Event::Kind::kEscalation)[0].to, "W");
}

class EngineTiers : public EngineFixture {
 protected:
  int burst(std::string_view agent, std::string_view operation, std::string_view channel = {}) {
    return allowed(Q(operation).agent(agent).channel(channel), 500);
  }
  static Override override(const std::string& agent, Tier tier, TierLimit limit) {
    Override made{agent, {}};
    made.tiers[static_cast<std::size_t>(tier)] = limit;
    return made;
  }
};

TEST_F(EngineTiers, ABareEngineHasTheBuiltInLimits) {
  EXPECT_EQ(burst("A", "ping"), 120);
  EXPECT_EQ(burst("A", "message"), 60);
  EXPECT_EQ(burst("A", "deploy"), 10);
  EXPECT_EQ(burst("A", "whatever"), 0) << "normal, which is used up";
  EXPECT_EQ(burst("B", "whatever"), 60);
  EXPECT_EQ(ask("A", "deploy").tier, "heavy");
  clock_.advance(6s);
  EXPECT_EQ(burst("A", "deploy"), 1) << "ten a minute";
}

TEST_F(EngineTiers, ChannelsHaveBucketsOfTheirOwn) {
  EXPECT_EQ(burst("A", "deploy", "ws"), 10);
  EXPECT_EQ(burst("A", "deploy", "http"), 10);
  EXPECT_EQ(burst("A", "deploy", "ws"), 0);
}

TEST_F(EngineTiers, CallersWithoutAnAgentAreLimitedByIp) {
  EXPECT_EQ(allowed(Q("identify").ip("10.0.0.1")), 60);
  EXPECT_EQ(allowed(Q("ping").ip("10.0.0.1")), 0);
  EXPECT_EQ(allowed(Q("ping").ip("10.0.0.2")), 60);
  EXPECT_EQ(allowed(Q("register").ip("10.0.0.1")), 5);
  EXPECT_EQ(allowed(Q("register").ip("10.0.0.3")), 5);
  EXPECT_FALSE(engine_.aftermath().rate_limited("10.0.0.1")) << "an agent of that name is somebody else";
  EXPECT_EQ(engine_.aftermath().offenders(10).size(), 3U);
  for (const control::Offender& each : engine_.aftermath().offenders(10))
    EXPECT_EQ(each.kind, control::Subject::Kind::kAddress);
}

TEST_F(EngineTiers, AnUnknownOperationIsToldOnce) {
  for (int i = 0; i < 3; ++i) {
    (void)ask("A", "mystery");
    (void)ask("B", "mystery");
    (void)ask("A", "ping");
  }
  (void)ask("A", "riddle");
  const auto told = listener_.all(Event::Kind::kUnknownOperation);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].operation, "mystery");
  EXPECT_EQ(told[1].operation, "riddle");
}

TEST_F(EngineTiers, AnOverrideHoldsFromTheVeryNextCheckForItsAgentAndTierOnly) {
  EXPECT_EQ(burst("A", "deploy"), 10);
  ASSERT_TRUE(engine_.controls().set_override(override("A", Tier::kHeavy, {25, 60})));
  EXPECT_EQ(burst("A", "deploy"), 25);
  EXPECT_EQ(burst("A", "message"), 60);
  EXPECT_EQ(burst("B", "deploy"), 10);
  clock_.advance(1s);
  EXPECT_EQ(burst("A", "deploy"), 1) << "refilled at sixty a minute";
  ASSERT_EQ(engine_.controls().overrides().size(), 1U);
  EXPECT_TRUE(engine_.controls().clear_override("A"));
  EXPECT_FALSE(engine_.controls().clear_override("A"));
  EXPECT_EQ(burst("A", "deploy"), 0) << "back to the built-in bucket, as it was left";
  clock_.advance(60s);
  EXPECT_EQ(burst("A", "deploy"), 10);
}

TEST_F(EngineTiers, AnOverrideReplacesTheOneBeforeItAndStartsAnew) {
  ASSERT_TRUE(engine_.controls().set_override(override("A", Tier::kHeavy, {20, 1})));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(ask("A", "deploy").allowed);
  ASSERT_TRUE(engine_.controls().set_override(override("A", Tier::kHeavy, {40, 1})));
  EXPECT_EQ(burst("A", "deploy"), 40);
  EXPECT_EQ(engine_.controls().overrides().size(), 1U);
}

TEST_F(EngineTiers, AnOverrideSurvivesAReload) {
  ASSERT_TRUE(engine_.controls().set_override(override("A", Tier::kHeavy, {3, 1})));
  EXPECT_EQ(burst("A", "deploy"), 3);
  load("tiers: {heavy: {capacity: 50}}");
  EXPECT_EQ(burst("A", "deploy"), 0);
  EXPECT_EQ(burst("B", "deploy"), 50);
}

TEST_F(EngineTiers, BadOverridesAreRefusedNamingTheField) {
  EXPECT_EQ(engine_.controls().set_override(override("", Tier::kHeavy, {1, 1})).error().message,
            "agent must be 1 to 512 bytes long");
  EXPECT_EQ(engine_.controls().set_override(override("A", Tier::kHeavy, {10, 0})).error().message,
            "heavy.refill_per_minute must be at least 1, got 0");
  EXPECT_NE(
      engine_.controls().set_override(override("A", Tier::kLight, {0, 5})).error().message.find("light: capacity"),
      std::string::npos);
  EXPECT_FALSE(engine_.controls().set_override(Override{"A", {}}));
  EXPECT_TRUE(engine_.controls().overrides().empty());
}

TEST_F(EngineTiers, ExplainsTheOverrideAndNotWhatItStandsInFor) {
  ASSERT_TRUE(engine_.controls().set_override(override("A", Tier::kHeavy, {3, 6})));
  const engine::Explanation explanation = engine_.explain(Q("deploy").agent("A").get());
  for (const engine::Explained& about : explanation.policies) {
    if (about.policy->id != "tier-heavy") continue;
    ASSERT_EQ(about.cells.size(), 1U);
    EXPECT_EQ(about.cells[0].capacity, 3);
    EXPECT_EQ(about.cells[0].limit.find("token_bucket 10"), std::string::npos) << about.cells[0].limit;
  }
  const CheckDecision never = ask(Q("deploy").agent("A").cost(5));
  EXPECT_EQ(never.error(), "cost_exceeds_limit");
  EXPECT_EQ(never.reason().find("token_bucket 10"), std::string::npos) << never.reason();
}

TEST_F(EngineTiers, ExemptAgentsPassEverythingAndNoNameIsExemptByItself) {
  load("exempt: [robot]\npolicies: [{id: p, key: [], limit: 1/1h}]");
  for (int i = 0; i < 5; ++i) {
    const CheckDecision decision = ask("robot");
    EXPECT_TRUE(decision.allowed);
    EXPECT_EQ(decision.why, Why::kExempt);
  }
  EXPECT_TRUE(ask("A").allowed) << "exempt checks charge nothing";
  EXPECT_FALSE(ask("A").allowed);
  engine_.controls().add_exempt("A");
  EXPECT_TRUE(ask("A").allowed);
  EXPECT_EQ(engine_.controls().exempt(), (std::vector<std::string>{"A", "robot"}));
  EXPECT_TRUE(engine_.controls().remove_exempt("A"));
  EXPECT_FALSE(engine_.controls().remove_exempt("A"));
  EXPECT_FALSE(ask("A").allowed);
  engine_.controls().set_exempt({"B", "C"});
  EXPECT_TRUE(ask("B").allowed);
  engine_.controls().set_exempt({});
  EXPECT_FALSE(ask("B").allowed);
  EXPECT_FALSE(ask("dashboard").allowed);
  EXPECT_TRUE(ask("robot").allowed);
  load("policies: [{id: p, key: [], limit: 1/1h}]");
  EXPECT_FALSE(ask("robot").allowed);
}

}  // namespace
}  // namespace headgate::test
