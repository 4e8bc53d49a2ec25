// What the load and the emergency throttle do to limits.
#include <gtest/gtest.h>

#include "engine/scaled_limit.h"
#include "support/engines.h"
#include "support/limiters.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using control::LoadLevel;
using engine::CheckDecision;

class EngineControls : public EngineFixture {
 protected:
  double capacity(std::string_view agent = "A") { return peek(agent).limit; }
  static constexpr const char* kForty = "policies: [{id: p, limit: 40/1h}]";
};

TEST_F(EngineControls, AHighLoadHalvesAndALowOneRaisesByAQuarter) {
  load(kForty);
  EXPECT_EQ(capacity(), 40);
  engine_.controls().report_load(0.85);
  EXPECT_EQ(capacity(), 20) << "on the very next check";
  EXPECT_EQ(engine_.controls().load_state().factor, 0.5);
  EXPECT_EQ(engine_.controls().load_state().level, LoadLevel::kHigh);
  clock_.advance(10s);
  engine_.controls().report_load(0.2);
  EXPECT_EQ(capacity(), 50);
  clock_.advance(10s);
  engine_.controls().report_load(0.5);
  EXPECT_EQ(capacity(), 40);
  ASSERT_EQ(listener_.count(Event::Kind::kAdaptive), 3U);
  EXPECT_EQ(listener_.all(Event::Kind::kAdaptive)[0].value, 0.5);
  EXPECT_EQ(listener_.all(Event::Kind::kAdaptive)[1].value, 1.25);
  EXPECT_EQ(listener_.all(Event::Kind::kAdaptive)[2].value, 1);
}

TEST_F(EngineControls, ChangesNeverCompound) {
  load(kForty);
  for (int i = 0; i < 20; ++i) {
    engine_.controls().report_load(i % 2 == 0 ? 0.85 : 0.2);
    EXPECT_EQ(capacity(), i % 2 == 0 ? 20 : 50);
    clock_.advance(10s);
    engine_.controls().report_load(0.5);
    EXPECT_EQ(capacity(), 40);
    clock_.advance(10s);
  }
}

TEST_F(EngineControls, TwoChangesAreADwellTimeApartAndPollMakesTheSecond) {
  load(kForty);
  engine_.controls().report_load(0.85);
  clock_.advance(5s);
  engine_.controls().report_load(0.5);
  EXPECT_EQ(capacity(), 20);
  clock_.advance(5s);
  engine_.poll();
  EXPECT_EQ(capacity(), 40);
}

TEST_F(EngineControls, PollKeepsToTheDocumentsThresholds) {
  load(
      "adaptive: {high: 0.6, low: 0.5, margin: 0.01, emergency_at: 0.95}\n"
      "policies: [{id: p, limit: 40/1h}, {id: busy, match: {system_load: [high]}, limit: 5/1h}]");
  engine_.controls().report_load(0.7);
  EXPECT_EQ(engine_.controls().load_state().level, LoadLevel::kHigh);
  EXPECT_EQ(ids(peek("A")), (std::vector<std::string>{"p", "busy"}));
  clock_.advance(2s);
  engine_.poll();
  EXPECT_EQ(engine_.controls().load_state().level, LoadLevel::kHigh);
  EXPECT_EQ(ids(peek("A")), (std::vector<std::string>{"p", "busy"}));
}

TEST_F(EngineControls, LimitsFollowOurOwnSensorsOnlyWhereTheDocumentSaysSo) {
  load(
      "policies: [{id: p, limit: 40/1h}, {id: sensed, match: {operations: [here]}, limit: 40/1h, adaptive: {sensors: "
      "true}}]");
  control::LoadReading reading;
  reading.cpu = 0.99;
  engine_.controls().observe_load(reading);
  EXPECT_EQ(capacity(), 40);
  EXPECT_FALSE(engine_.controls().emergency().active);
  EXPECT_EQ(engine_.controls().load_state().level, LoadLevel::kNormal);
  EXPECT_LT(engine_.controls().throttle_factor(), 1) << "commands run here";
  EXPECT_EQ(ask(Q("here").agent("A")).limit, 20) << "one policy asks for it";
  load("adaptive: {sensors: true}\npolicies: [{id: p, limit: 40/1h}]");
  engine_.controls().observe_load(reading);
  EXPECT_TRUE(engine_.controls().emergency().active);
  EXPECT_EQ(engine_.controls().load_state().level, LoadLevel::kCritical);
  EXPECT_EQ(capacity(), 4);
}

TEST_F(EngineControls, AReportIsForgottenAndItsEmergencyWithIt) {
  load(kForty);
  engine_.controls().report_load(0.95);
  EXPECT_TRUE(engine_.controls().emergency().active);
  clock_.advance(59s);
  engine_.poll();
  EXPECT_TRUE(engine_.controls().emergency().active);
  clock_.advance(1s);
  engine_.poll();
  EXPECT_FALSE(engine_.controls().emergency().active);
  EXPECT_FALSE(engine_.controls().load_state().load);
  EXPECT_EQ(capacity(), 40);
}

TEST_F(EngineControls, LimitsComeBackAfterTheDwellTimeThoughNoLoadIsKnown) {
  load(kForty);
  engine_.controls().report_load(0.85);
  EXPECT_EQ(capacity(), 20);
  clock_.advance(1s);
  engine_.controls().clear_load_report();
  EXPECT_EQ(capacity(), 20) << "the last change is a second old";
  clock_.advance(9s);
  engine_.poll();
  EXPECT_EQ(capacity(), 40);
}

TEST_F(EngineControls, ARestoredAutomaticEmergencyWaitsForALoadAsLongAsAReportHolds) {
  load(kForty);
  control::Emergency before;
  before.active = before.automatic = true;
  before.reason = "load 0.95 is over 0.9";
  before.by = "headgate";
  engine_.controls().restore_emergency(before);
  clock_.advance(59s);
  engine_.poll();
  EXPECT_TRUE(engine_.controls().emergency().active);
  clock_.advance(1s);
  engine_.poll();
  EXPECT_FALSE(engine_.controls().emergency().active);
}

TEST_F(EngineControls, OurOwnSensorsOnlyEverLower) {
  load("adaptive: {sensors: true}\n" + std::string(kForty));
  control::LoadReading reading;
  reading.cpu = 0.05;
  engine_.controls().observe_load(reading);
  EXPECT_EQ(capacity(), 40);
  clock_.advance(20s);
  reading.cpu = 0.99;
  engine_.controls().observe_load(reading);
  EXPECT_LE(capacity(), 20);
}

TEST_F(EngineControls, ClearingTheReportGoesBackToBase) {
  load(kForty);
  engine_.controls().report_load(0.2);
  EXPECT_EQ(capacity(), 50);
  clock_.advance(10s);
  engine_.controls().clear_load_report();
  EXPECT_EQ(capacity(), 40);
  EXPECT_FALSE(engine_.controls().load_state().load);
}

TEST_F(EngineControls, APolicyMayOptOut) {
  load("policies: [{id: p, limit: 40/1h, adaptive: false}]");
  engine_.controls().report_load(0.85);
  EXPECT_EQ(capacity(), 40);
  ASSERT_TRUE(engine_.controls().emergency_on({"test", "me"}));
  EXPECT_EQ(capacity(), 40);
}

TEST_F(EngineControls, SwitchedOffNothingIsScaled) {
  load("adaptive: {enabled: false}\npolicies: [{id: p, limit: 40/1h}]");
  engine_.controls().report_load(0.85);
  EXPECT_EQ(capacity(), 40);
}

TEST_F(EngineControls, QuotasAreNotScaled) {
  load("policies: [{id: q, limit: {strategy: quota, limit: 40, period: day}}]");
  engine_.controls().report_load(0.85);
  EXPECT_EQ(capacity(), 40);
  ASSERT_TRUE(engine_.controls().emergency_on({"test", "me"}));
  EXPECT_EQ(capacity(), 40);
}

TEST_F(EngineControls, OverridesAreScaledToo) {
  engine::Override own{"A", {}};
  own.tiers[0] = policy::TierLimit{80, 80};
  ASSERT_TRUE(engine_.controls().set_override(own));
  engine_.controls().report_load(0.85);
  EXPECT_EQ(peek("A", "ping").limit, 40);
  EXPECT_EQ(peek("B", "ping").limit, 60);
  own.agent = "C";
  ASSERT_TRUE(engine_.controls().set_override(own));
  EXPECT_EQ(peek("C", "ping").limit, 40) << "set while the load is high";
}

TEST_F(EngineControls, ADocumentLoadedUnderLoadStandsAtTheFactor) {
  load(kForty);
  engine_.controls().report_load(0.85);
  load("policies: [{id: p, limit: 100/1h}, {id: new, limit: 60/1h}]");
  EXPECT_EQ(capacity(), 30);
  EXPECT_EQ(left(Q("run").agent("A"))["p"].at(0), 50);
}

TEST_F(EngineControls, ABucketKeepsTheFractionUsedAndAWindowItsCount) {
  struct Case {
    const char* limit;
    int under_load;
  };
  for (const Case& each : {Case{"{strategy: token_bucket, capacity: 40, refill_rate: 0.001}", 14},
                           Case{"{strategy: gcra, max_burst: 39, count: 1, period: 1000s}", 14},
                           Case{"{strategy: sliding_window, limit: 40, window: 1h}", 8},
                           Case{"{strategy: sliding_window_counter, limit: 40, window: 1h}", 8},
                           Case{"{strategy: fixed_window, limit: 40, window: 1h}", 8}}) {
    load(std::string("policies: [{id: p, limit: ") + each.limit + "}]");
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(ask("A").allowed) << each.limit;
    engine_.controls().report_load(0.85);
    EXPECT_EQ(left(Q("run").agent("A"))["p"].at(0), each.under_load) << each.limit;
    clock_.advance(10s);
    engine_.controls().report_load(0.5);
    EXPECT_EQ(left(Q("run").agent("A"))["p"].at(0), 28) << each.limit;
    clock_.advance(10s);
  }
}

TEST_F(EngineControls, AnEmergencyThatAnotherNodesLoadTurnedOnEndsOnlyWithThatNode) {
  load(kForty);
  control::Emergency elsewhere{.active = true, .automatic = true, .reason = "load 0.95 is over 0.9", .by = "headgate"};
  elsewhere.node = "n2";
  engine_.controls().restore_emergency(elsewhere);
  for (const double load : {0.1, 0.5}) {
    engine_.controls().report_load(load);
    EXPECT_EQ(capacity(), 4) << load;
  }
  clock_.advance(2h);
  engine_.poll();
  EXPECT_EQ(engine_.controls().load_state().load, std::nullopt);
  EXPECT_TRUE(engine_.controls().emergency().active) << "an unknown load here says nothing about the load there";
  engine_.controls().emergency_node_lost("n3");
  EXPECT_TRUE(engine_.controls().emergency().active) << "that is another one";
  engine_.controls().emergency_node_lost("n2");
  EXPECT_FALSE(engine_.controls().emergency().active);
}

TEST_F(EngineControls, AnEmergencyOfALostNodeGoesOnWhereTheLoadHereIsReasonEnough) {
  load(kForty);
  control::Emergency elsewhere{.active = true, .automatic = true, .reason = "load 0.95 is over 0.9", .by = "headgate"};
  elsewhere.node = "n2";
  engine_.controls().restore_emergency(elsewhere);
  engine_.controls().report_load(0.95);
  engine_.controls().emergency_node_lost("n2");
  EXPECT_TRUE(engine_.controls().emergency().active);
  engine_.controls().report_load(0.1);
  EXPECT_FALSE(engine_.controls().emergency().active) << "from then on it follows the load here";
}

TEST_F(EngineControls, AReportThatAnotherNodeWasToldExpiresAsEarlyAsThere) {
  load(kForty);
  engine_.controls().report_load(0.5, 59s);
  EXPECT_EQ(engine_.controls().load_state().load, 0.5);
  clock_.advance(1s);
  engine_.poll();
  EXPECT_EQ(engine_.controls().load_state().load, std::nullopt);
  engine_.controls().report_load(0.5, 60s);
  EXPECT_EQ(engine_.controls().load_state().load, std::nullopt) << "it has expired already";
  engine_.controls().report_load(0.5, -5s);
  EXPECT_EQ(engine_.controls().load_state().load, 0.5) << "the other node's clock is ahead";
}

TEST_F(EngineControls, TheEmergencyThrottleActsOnTheVeryNextCheckAndItsEndToo) {
  load(kForty);
  ASSERT_TRUE(engine_.controls().emergency_on({"the model loops", "alice"}));
  EXPECT_EQ(capacity(), 4);
  const control::Emergency state = engine_.controls().emergency();
  EXPECT_TRUE(state.active);
  EXPECT_EQ(state.reason, "the model loops");
  EXPECT_EQ(state.by, "alice");
  EXPECT_EQ(state.since, kStart);
  engine_.controls().emergency_off("bob");
  EXPECT_EQ(capacity(), 40);
  EXPECT_FALSE(engine_.controls().emergency().active);
  const auto told = listener_.all(Event::Kind::kEmergency);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].agent, "alice");
  EXPECT_EQ(told[0].value, 1);
  EXPECT_EQ(told[1].agent, "bob");
  EXPECT_EQ(told[1].value, 0);
  EXPECT_FALSE(engine_.controls().emergency_on({"", "alice"}));
  EXPECT_EQ(capacity(), 40);
}

TEST_F(EngineControls, TheReasonNamesTheNumbersInForce) {
  const auto reason = [&](const std::string& limit) {
    load("policies: [{id: p, limit: " + limit + "}]");
    engine_.controls().emergency_off("bob");
    EXPECT_TRUE(engine_.controls().emergency_on({"the model loops", "alice"}));
    for (int i = 0; i < 100; ++i) {
      const CheckDecision decision = ask(Q("run").agent("A"));
      if (!decision.allowed) return decision.reason();
    }
    return std::string();
  };
  EXPECT_EQ(reason("100/1000s"), "Sliding window limit 10/1000s exceeded");
  EXPECT_EQ(reason("{strategy: fixed_window, limit: 200, window: 60s}"), "Fixed window limit 20/60s exceeded");
  EXPECT_EQ(reason("{strategy: gcra, max_burst: 49, count: 1, period: 60s}"),
            "GCRA limit 5 exceeded, 600.00s to refill");
  load("policies: [{id: p, limit: 100/1000s}]");
  EXPECT_EQ(ask(Q("run").agent("A").cost("requests", 11)).reason(),
            "The cost is more than sliding_window 10/1000s could ever admit");
  engine_.controls().emergency_off("bob");
  EXPECT_TRUE(ask(Q("run").agent("B").cost("requests", 11)).allowed);
}

TEST_F(EngineControls, TheEmergencyThrottleTurnsItselfOnOverNineTenthsAndOffAgain) {
  load(kForty);
  engine_.controls().report_load(0.9);
  EXPECT_FALSE(engine_.controls().emergency().active);
  engine_.controls().report_load(0.91);
  EXPECT_TRUE(engine_.controls().emergency().active);
  EXPECT_TRUE(engine_.controls().emergency().automatic);
  EXPECT_EQ(capacity(), 4);
  engine_.controls().report_load(0.81);
  EXPECT_TRUE(engine_.controls().emergency().active);
  engine_.controls().report_load(0.8);
  EXPECT_FALSE(engine_.controls().emergency().active);
  EXPECT_EQ(capacity(), 20) << "the load is still within the margin of high";
}

TEST_F(EngineControls, TurnedOffByHandItStaysOffUntilTheLoadHasFallen) {
  load(kForty);
  engine_.controls().report_load(0.95);
  EXPECT_TRUE(engine_.controls().emergency().active);
  engine_.controls().emergency_off("alice");
  engine_.controls().report_load(0.96);
  EXPECT_FALSE(engine_.controls().emergency().active);
  EXPECT_EQ(capacity(), 20);
  engine_.controls().report_load(0.5);
  engine_.controls().report_load(0.95);
  EXPECT_TRUE(engine_.controls().emergency().active);
}

TEST_F(EngineControls, APolicyForEmergenciesUnderHighLoadMatchesThen) {
  load(R"(
policies:
  - {id: brake, match: {emergency: true, system_load: high}, key: [], limit: {strategy: fixed_window, limit: 1, window: 1h}, adaptive: false}
)");
  EXPECT_TRUE(ids(peek("A")).empty());
  ASSERT_TRUE(engine_.controls().emergency_on({"test", "me"}));
  EXPECT_EQ(ids(peek("A")), std::vector<std::string>{"brake"}) << "the level reads at least high";
  EXPECT_EQ(engine_.controls().load_state().level, LoadLevel::kHigh);
  EXPECT_EQ(allowed("A"), 1);
  engine_.controls().emergency_off("me");
  EXPECT_TRUE(ids(ask("A")).empty());
}

TEST_F(EngineControls, AnEmergencyFromBeforeARestartIsInForce) {
  load(kForty);
  control::Emergency before;
  before.active = true;
  before.reason = "before";
  before.by = "alice";
  engine_.controls().restore_emergency(before);
  EXPECT_EQ(capacity(), 4);
  load("policies: [{id: p, limit: 50/1h}]");
  EXPECT_EQ(capacity(), 5) << "and stays in force through a reload";
  EXPECT_EQ(engine_.controls().emergency(), before);
}

TEST_F(EngineControls, NonsenseIsNotALoad) {
  load(kForty);
  engine_.controls().report_load(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(capacity(), 40);
  EXPECT_FALSE(engine_.controls().load_state().load);
}

TEST(ScaledLimit, HalvesNumbersAndRatesOfEveryStrategyButQuotas) {
  for (const Strategy strategy : all_strategies()) {
    const Limit base = ten_of(strategy);
    const Limit half = engine::scaled(base, 0.5);
    EXPECT_EQ(half.strategy(), strategy);
    if (strategy == Strategy::kQuota) {
      EXPECT_EQ(half, base);
      continue;
    }
    EXPECT_EQ(half.limit(), 5) << to_string(strategy);
    EXPECT_EQ(engine::scaled(base, 1.25).limit(), 12) << to_string(strategy);
    EXPECT_EQ(engine::scaled(base, 0.1).limit(), 1) << to_string(strategy);
    EXPECT_EQ(engine::scaled(base, 0.001).limit(), 1) << to_string(strategy) << ": at least one";
    EXPECT_EQ(engine::scaled(base, 1), base) << to_string(strategy);
    EXPECT_EQ(engine::scaled(base, 0), base) << to_string(strategy);
  }
  EXPECT_EQ(engine::scaled(token_bucket(100, 10), 0.1).limit(), 10);
  const Rate rate = engine::scaled(token_bucket(100, 10), 0.1).rate();
  EXPECT_EQ(rate.per.count() / rate.units, Nanos{1s}.count());
  EXPECT_EQ(engine::scaled(token_bucket(30, 10, 10), 0.1).limit(), 3) << "not two, whatever a double makes of it";
  EXPECT_EQ(engine::scaled(token_bucket(30, 10, 10), 0.1).burst_allowance(), 1);
}

}  // namespace
}  // namespace headgate::test
