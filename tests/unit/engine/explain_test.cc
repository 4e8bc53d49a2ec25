// What the engine tells of itself: explanations, counts, and what it forgets.
#include <gtest/gtest.h>

#include <thread>

#include "engine/counters.h"
#include "engine/owned_check.h"
#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using engine::Counters;
using engine::Explained;
using engine::Explanation;

class EngineExplain : public EngineFixture {};

TEST_F(EngineExplain, ShowsEveryPolicyWithItsKeyItsCellsAndWhyItDoesNotMatch) {
  load(R"(
policies:
  - {id: mine, key: [agent, "attr:model", session], limit: [10/60s, {strategy: token_bucket, capacity: 5, refill_rate: 1}]}
  - {id: other, match: {agents: [B]}, key: [], limit: 1/1h}
  - {id: watched, mode: monitor, limit: 3/60s}
  - {id: resting, mode: "off", limit: 3/60s}
  - {id: tokens, unit: tokens, limit: 3/60s}
)");
  ASSERT_TRUE(ask(Q("run").agent("A").attr("model", 3.0)).allowed);
  const Explanation explanation = engine_.explain(Q("run").agent("A").attr("model", 3.0).get());
  ASSERT_EQ(explanation.policies.size(), 5U);
  const Explained& mine = explanation.policies[0];
  EXPECT_EQ(mine.why_not, "");
  EXPECT_EQ(mine.key, "agent=A model=3 session=-");
  EXPECT_TRUE(mine.enforced);
  ASSERT_EQ(mine.cells.size(), 2U);
  EXPECT_EQ(mine.cells[0].limit, "sliding_window 10/60s");
  EXPECT_EQ(mine.cells[0].capacity, 10);
  EXPECT_EQ(mine.cells[0].reset_after, 60s);
  EXPECT_TRUE(mine.cells[0].fits);
  EXPECT_EQ(mine.cells[1].capacity, 5);
  const Explained& other = explanation.policies[1];
  EXPECT_EQ(other.why_not, "agent \"A\" is not among B");
  EXPECT_EQ(other.key, "(all)");
  EXPECT_TRUE(other.cells.empty());
  EXPECT_FALSE(explanation.policies[2].enforced);
  EXPECT_EQ(explanation.policies[2].cells.size(), 1U);
  EXPECT_EQ(explanation.policies[3].why_not, "its mode is off");
  EXPECT_EQ(explanation.policies[4].why_not, "") << "it matches, but there is nothing for it to count";
  EXPECT_TRUE(explanation.policies[4].cells.empty());
  EXPECT_TRUE(explanation.decision.allowed);
}

TEST_F(EngineExplain, ChargesAndTellsNothing) {
  load("policies: [{id: p, limit: 1/60s, warn_at: 0.5, escalation: {to: X, threshold: 1, time_window: 0}}]");
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(engine_.explain(Q("run").agent("A").hold().get()).decision.allowed);
  ASSERT_TRUE(ask("A").allowed);
  const Explanation denied = engine_.explain(Q("run").agent("A").get());
  EXPECT_FALSE(denied.decision.allowed);
  EXPECT_FALSE(denied.policies[0].cells[0].fits);
  EXPECT_EQ(engine_.holds().open(), 0U);
  EXPECT_EQ(listener_.count(Event::Kind::kViolation), 0U);
  EXPECT_EQ(listener_.count(Event::Kind::kEscalation), 0U);
}

TEST_F(EngineExplain, ShowsTheVariantAndTheScaledNumbers) {
  load("policies: [{id: p, variants: [{name: only, limit: 40/60s}]}]");
  engine_.controls().report_load(0.85);
  const Explanation explanation = engine_.explain(Q("run").agent("A").get());
  EXPECT_EQ(explanation.policies[0].variant, "only");
  EXPECT_EQ(explanation.policies[0].cells[0].limit, "sliding_window 20/60s");
  EXPECT_EQ(explanation.policies[0].cells[0].capacity, 20);
}

TEST_F(EngineExplain, OfABadCheckOnlyTheProblemIsTold) {
  const Explanation explanation = engine_.explain(Q("").get());
  EXPECT_EQ(explanation.decision.why, engine::Why::kInvalid);
  EXPECT_TRUE(explanation.policies.empty());
}

TEST_F(EngineExplain, OfAnExemptAgentThePoliciesAreShownAllTheSame) {
  load("exempt: [robot]\npolicies: [{id: p, limit: 1/60s}]");
  const Explanation explanation = engine_.explain(Q("run").agent("robot").get());
  EXPECT_EQ(explanation.decision.why, engine::Why::kExempt);
  EXPECT_EQ(explanation.policies.size(), 1U);
}

TEST_F(EngineExplain, MaintenanceDropsIdleCellsAndNoOthers) {
  load("policies: [{id: p, limit: 5/10s}]");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(ask("agent" + std::to_string(i)).allowed);
  EXPECT_EQ(engine_.cells().totals().cells, 100U);
  clock_.advance(5s);
  ASSERT_TRUE(ask("agent7").allowed);
  for (int i = 0; i < 20; ++i) engine_.maintain();
  EXPECT_EQ(engine_.cells().totals().cells, 100U);
  clock_.advance(5s + 1ns);
  for (int i = 0; i < 20; ++i) engine_.maintain();
  EXPECT_EQ(engine_.cells().totals().cells, 1U);
  EXPECT_EQ(left(Q("run").agent("agent7"))["p"].at(0), 4);
}

TEST(Counters, CountByNameAndKeepTheirNumbersForGood) {
  Counters counters;
  const Counters::Id a = counters.id_of("a");
  const Counters::Id b = counters.id_of("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(counters.id_of("a"), a);
  for (int i = 0; i < 3; ++i) counters.add(a, Counters::kAdmitted);
  counters.add(b, Counters::kDenied);
  counters.add(b, Counters::kExceeded);
  counters.add(b, Counters::kMonitored);
  EXPECT_EQ(counters.of(a).admitted, 3U);
  EXPECT_EQ(counters.of(a).denied, 0U);
  EXPECT_EQ(counters.of(b).denied, 1U);
  EXPECT_EQ(counters.of(b).exceeded, 1U);
  EXPECT_EQ(counters.of(b).monitored, 1U);
  ASSERT_EQ(counters.all().size(), 2U);
  EXPECT_EQ(counters.all()[1].first, "b");
}

TEST(Counters, ThreadsLoseNoCountEvenWhenThereAreMoreThanSlots) {
  Counters counters;
  const Counters::Id id = counters.id_of("x");
  constexpr int kThreads = 80;
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) counters.add(id, Counters::kAdmitted);
      ++ready;
      while (ready.load() < kThreads) std::this_thread::yield();  // so that all slots are taken at once
      for (int i = 0; i < 50; ++i) counters.add(id, Counters::kAdmitted);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.of(id).admitted, 100U * kThreads);
}

TEST(OwnedCheck, OwnsEveryField) {
  engine::OwnedCheck owned;
  {
    Q q = std::move(Q("an operation that is long enough").agent("an agent that is long enough").session("s").user("u"));
    q.tenant("t").plan("p").channel("c").ip("i").context("x").resource("r").parent("ps", "pa");
    q.attr("name of it", "value of it").attr("n", 3).cost("unit of it", 5).hold().priority(4).max_wait(7s);
    const std::string owner = "an owner that is long enough";
    owned = engine::OwnedCheck(q.get(), {owner});
  }
  const Check& check = owned.get();
  EXPECT_EQ(check.operation, "an operation that is long enough");
  EXPECT_EQ(check.agent, "an agent that is long enough");
  EXPECT_EQ(check.session, "s");
  EXPECT_EQ(check.user, "u");
  EXPECT_EQ(check.tenant, "t");
  EXPECT_EQ(check.plan, "p");
  EXPECT_EQ(check.channel, "c");
  EXPECT_EQ(check.ip, "i");
  EXPECT_EQ(check.context, "x");
  EXPECT_EQ(check.resource, "r");
  EXPECT_EQ(check.parent_session, "ps");
  EXPECT_EQ(check.parent_agent, "pa");
  EXPECT_EQ(owned.account().owner, "an owner that is long enough");
  ASSERT_EQ(check.attributes.size(), 2U);
  EXPECT_EQ(check.attributes[0].name, "name of it");
  EXPECT_EQ(check.attributes[0].value.text, "value of it");
  EXPECT_EQ(check.attributes[1].value.number, 3);
  ASSERT_EQ(check.costs.size(), 1U);
  EXPECT_EQ(check.costs[0].unit, "unit of it");
  EXPECT_EQ(check.costs[0].amount, 5);
  EXPECT_TRUE(check.hold);
  EXPECT_EQ(check.priority, 4);
  EXPECT_EQ(check.max_wait, 7s);
}

}  // namespace
}  // namespace headgate::test
