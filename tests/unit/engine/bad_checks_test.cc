// Invalid checks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/engines.h"

namespace headgate::test {
namespace {

using engine::CheckDecision;
using engine::Why;

class BadChecks : public EngineFixture {
 protected:
  void SetUp() override {
    load("policies: [{id: p, key: [], limit: 10/1h}, {id: usd, unit: usd, key: [], limit: 9/1h}]");
  }
  // What is wrong with it, if nothing was charged, counted or told of it.
  std::string problem(const Q& q) {
    const CheckDecision decision = ask(q);
    EXPECT_FALSE(decision.allowed);
    EXPECT_EQ(decision.why, Why::kInvalid);
    EXPECT_EQ(decision.error(), "invalid_check");
    EXPECT_EQ(decision.reason(), decision.problem);
    EXPECT_EQ(left(Q("run"))["p"], std::vector<double>{10});
    EXPECT_EQ(listener_.count(Event::Kind::kViolation), 0U);
    EXPECT_EQ(engine_.cells().totals().acquired, 0U);
    return decision.problem;
  }
};

TEST_F(BadChecks, AnOperationIsRequired) {
  EXPECT_EQ(problem(Q("")), "operation is required: what does the agent want to do?");
}

TEST_F(BadChecks, EveryFieldIsBounded) {
  const std::string most(512, 'x');
  const std::string over(513, 'x');
  EXPECT_EQ(problem(Q("run").agent(std::string(10'000, 'x'))), "agent must be at most 512 bytes long, got 10000");
  EXPECT_EQ(problem(Q(over)), "operation must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").session(over)), "session must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").user(over)), "user must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").tenant(over)), "tenant must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").plan(over)), "plan must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").channel(over)), "channel must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").ip(over)), "ip must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").context(over)), "context.type must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").resource(over)), "resource must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").parent(over)), "parent.session must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").parent("s", over)), "parent.agent must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").attr(over, 1)), "an attribute's name must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").attr("x", std::string_view(over))), "context.x must be at most 512 bytes long, got 513");
  EXPECT_EQ(problem(Q("run").cost(over, 1)), "a unit of cost must be at most 512 bytes long, got 513");
  EXPECT_TRUE(ask(Q(most).agent(most).attr(most, std::string_view(most))).allowed);
}

TEST_F(BadChecks, AttributesAreBoundedNamedAndFinite) {
  Q many("run");
  for (int i = 0; i < 1000; ++i) many.attr("a" + std::to_string(i), i);
  EXPECT_EQ(problem(many), "context must have at most 64 attributes, got 1000");
  EXPECT_EQ(problem(Q("run").attr("", 1)), "context must not have an attribute without a name");
  EXPECT_EQ(problem(Q("run").attr("x", std::numeric_limits<double>::infinity())),
            "context.x must be a finite number, got inf");
}

TEST_F(BadChecks, CostsAreBoundedNamedAndNumbers) {
  EXPECT_EQ(problem(Q("run").cost(-1)), "cost.requests must be between 0 and 1000000000000, got -1");
  EXPECT_EQ(problem(Q("run").cost(std::nan(""))), "cost.requests must be between 0 and 1000000000000, got nan");
  EXPECT_EQ(problem(Q("run").cost(1.1e12)), "cost.requests must be between 0 and 1000000000000, got 1100000000000");
  EXPECT_EQ(problem(Q("run").cost("usd", std::numeric_limits<double>::infinity())),
            "cost.usd must be between 0 and 1000000000000, got inf");
  EXPECT_EQ(problem(Q("run").cost("", 1)), "cost must not have a unit without a name");
  Q many("run");
  for (int i = 0; i < 9; ++i) many.cost("unit" + std::to_string(i), 1);
  EXPECT_EQ(problem(many), "cost must have at most 8 units, got 9");
  EXPECT_EQ(ask(Q("run").cost(1e12)).error(), "cost_exceeds_limit") << "the largest there may be is judged";
  EXPECT_EQ(ask(Q("run").cost("usd", 1e12)).error(), "cost_exceeds_limit");
}

TEST_F(BadChecks, AWaitIsNotNegative) {
  EXPECT_EQ(problem(Q("run").max_wait(std::chrono::milliseconds{-5})), "max_wait_ms must not be negative, got -5");
}

TEST_F(BadChecks, MoreLimitsThanAPlanHoldsAreRefusedWithoutCharging) {
  for (const int policies : {64, 65}) {
    std::string text = "policies:\n";
    for (int i = 0; i < policies; ++i) text += "  - {id: p" + std::to_string(i) + ", limit: 10/1h}\n";
    load(text);
    const CheckDecision decision = ask("A");
    EXPECT_EQ(decision.allowed, policies == 64);
    if (decision.allowed) continue;
    EXPECT_EQ(decision.why, Why::kInvalid);
    EXPECT_EQ(decision.problem, "at most 64 limits may apply to one check, and more policies than that match it");
  }
  load("policies: [" + [] {
    std::string list;
    for (int i = 0; i < 33; ++i) list += "{id: q" + std::to_string(i) + ", limit: [10/1h, 10/2h]},";
    return list;
  }() + "]");
  EXPECT_EQ(ask("B").why, Why::kInvalid);
  EXPECT_EQ(counts("q0").admitted, 0U);
}

TEST_F(BadChecks, AParentsLimitsCountTowardsThePlan) {
  std::string text = "policies:\n";
  for (int i = 0; i < 40; ++i) text += "  - {id: p" + std::to_string(i) + ", key: [session], limit: 10/1h}\n";
  load(text);
  EXPECT_TRUE(ask(Q("run").session("s")).allowed);
  EXPECT_EQ(ask(Q("run").session("s").parent("root")).why, Why::kInvalid);
  EXPECT_EQ(left(Q("run").session("s"))["p0"], std::vector<double>{9});
}

}  // namespace
}  // namespace headgate::test
