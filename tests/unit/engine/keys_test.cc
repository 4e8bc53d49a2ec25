// Which checks share a cell, and which do not.
#include <gtest/gtest.h>

#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;

class EngineKeys : public EngineFixture {};

TEST_F(EngineKeys, DifferentValuesOfADimensionHaveDifferentCellsAndTheSameShare) {
  struct Row {
    const char* dimension;
    Q& (Q::*set)(std::string_view);
  };
  for (const Row& row : {Row{"agent", &Q::agent}, Row{"session", &Q::session}, Row{"user", &Q::user},
                         Row{"tenant", &Q::tenant}, Row{"plan", &Q::plan}, Row{"channel", &Q::channel},
                         Row{"context", &Q::context}, Row{"resource", &Q::resource}, Row{"ip", &Q::ip}}) {
    load(std::string("policies: [{id: ") + row.dimension + ", key: [" + row.dimension + "], limit: 2/60s}]");
    Q one("run"), two("run"), none("run");
    (one.*row.set)("one");
    (two.*row.set)("two");
    EXPECT_EQ(allowed(one), 2) << row.dimension;
    EXPECT_EQ(allowed(two), 2) << row.dimension;
    EXPECT_EQ(allowed(none), 2) << row.dimension << ": those without one share one";
    EXPECT_EQ(allowed(one), 0) << row.dimension;
  }
}

TEST_F(EngineKeys, OperationTierAndAttributesAreDimensionsToo) {
  load("policies: [{id: p, key: [operation], limit: 2/60s}]");
  EXPECT_EQ(allowed(Q("a")), 2);
  EXPECT_EQ(allowed(Q("b")), 2);
  load("policies: [{id: p, key: [tier], limit: 2/60s}]");
  EXPECT_EQ(allowed(Q("ping")), 2);
  EXPECT_EQ(allowed(Q("status")), 0) << "light as well";
  EXPECT_EQ(allowed(Q("deploy")), 2);
  load("policies: [{id: p, key: ['attr:model'], limit: 2/60s}]");
  EXPECT_EQ(allowed(Q("run").attr("model", "large")), 2);
  EXPECT_EQ(allowed(Q("run").attr("model", "small")), 2);
  EXPECT_EQ(allowed(Q("run")), 2);
}

TEST_F(EngineKeys, AnEmptyKeyIsOneForAll) {
  load("policies: [{id: p, key: [], limit: 2/60s}]");
  EXPECT_EQ(allowed("A"), 2);
  EXPECT_EQ(allowed("B"), 0);
}

TEST_F(EngineKeys, TheOrderOfDimensionsKeepsSwappedValuesApart) {
  load("policies: [{id: p, key: [agent, session], limit: 2/60s}]");
  EXPECT_EQ(allowed(Q("run").agent("x").session("y")), 2);
  EXPECT_EQ(allowed(Q("run").agent("y").session("x")), 2);
  EXPECT_EQ(allowed(Q("run").agent("x")), 2);
  EXPECT_EQ(allowed(Q("run").session("x")), 2);
  EXPECT_EQ(allowed(Q("run").agent("x").session("x")), 2);
  EXPECT_EQ(allowed(Q("run").agent("xx")), 2);
  EXPECT_EQ(allowed(Q("run").agent("x").session("y")), 0);
}

TEST_F(EngineKeys, NumbersAndTextThatReadTheSameShareACell) {
  load("policies: [{id: p, key: ['attr:n'], limit: 3/60s}]");
  EXPECT_TRUE(ask(Q("run").attr("n", 3)).allowed);
  EXPECT_TRUE(ask(Q("run").attr("n", 3.0)).allowed);
  EXPECT_TRUE(ask(Q("run").attr("n", "3")).allowed);
  EXPECT_FALSE(ask(Q("run").attr("n", 3)).allowed);
  EXPECT_TRUE(ask(Q("run").attr("n", 4)).allowed);
  EXPECT_EQ(allowed(Q("run").attr("n", 100000)), 3);
  EXPECT_EQ(allowed(Q("run").attr("n", "100000")), 0);
  EXPECT_EQ(allowed(Q("run").attr("n", true)), 3);
  EXPECT_EQ(allowed(Q("run").attr("n", "true")), 0);
}

TEST_F(EngineKeys, PoliciesWithTheSameDimensionsDoNotShareCells) {
  load("policies: [{id: p, limit: 5/60s}, {id: q, limit: 7/60s}]");
  EXPECT_EQ(allowed("A"), 5);
  EXPECT_EQ(left(Q("run").agent("A"))["q"], std::vector<double>{2});
}

TEST_F(EngineKeys, LimitsOfOnePolicyDoNotShareCells) {
  load("policies: [{id: p, limit: [5/60s, 7/1h]}]");
  EXPECT_EQ(allowed("A"), 5);
  clock_.advance(60s);
  EXPECT_EQ(allowed("A"), 2);
}

class EngineParents : public EngineFixture {};

TEST_F(EngineParents, AChildSessionDebitsTheRootsCellToo) {
  load("policies: [{id: p, key: [agent, session], limit: 10/60s}]");
  ASSERT_TRUE(ask(Q("run").agent("A").session("child").parent("root")).allowed);
  EXPECT_EQ(left(Q("run").agent("A").session("child"))["p"], std::vector<double>{9});
  EXPECT_EQ(left(Q("run").agent("A").session("root"))["p"], std::vector<double>{9});
  ASSERT_TRUE(ask(Q("run").agent("A").session("other").parent("root")).allowed);
  EXPECT_EQ(left(Q("run").agent("A").session("root"))["p"], std::vector<double>{8});
}

TEST_F(EngineParents, ACellThatIsBothsIsDebitedOnce) {
  load("policies: [{id: p, key: [agent], limit: 10/60s}, {id: q, key: [], limit: 10/60s}]");
  ASSERT_TRUE(ask(Q("run").agent("A").session("child").parent("root")).allowed);
  EXPECT_EQ(left(Q("run").agent("A"))["p"], std::vector<double>{9});
  EXPECT_EQ(left(Q("run").agent("A"))["q"], std::vector<double>{9});
  ASSERT_TRUE(ask(Q("run").agent("A").session("root").parent("root")).allowed);
  EXPECT_EQ(left(Q("run").agent("A"))["p"], std::vector<double>{8});
}

TEST_F(EngineParents, AnExhaustedRootDeniesItsChildrenAndChargesNone) {
  load("policies: [{id: p, key: [agent, session], limit: 3/60s}]");
  for (const char* child : {"a", "b", "c"}) {
    ASSERT_TRUE(ask(Q("run").agent("A").session(child).parent("root")).allowed);
  }
  const auto denied = ask(Q("run").agent("A").session("d").parent("root"));
  EXPECT_FALSE(denied.allowed);
  EXPECT_TRUE(denied.judged[static_cast<std::size_t>(denied.decider)].parent);
  EXPECT_EQ(left(Q("run").agent("A").session("d"))["p"], std::vector<double>{3});
}

TEST_F(EngineParents, TheRootMayBeAnotherAgentsWithPoliciesOfItsOwn) {
  load(R"(
policies:
  - {id: boss, match: {agents: [BOSS]}, limit: 2/60s}
  - {id: worker, match: {agents: ["w*"]}, limit: 5/60s}
)");
  EXPECT_EQ(allowed(Q("run").agent("w1").session("s").parent("root", "BOSS")), 2);
  EXPECT_EQ(left(Q("run").agent("w1"))["worker"], std::vector<double>{3});
  EXPECT_EQ(allowed(Q("run").agent("w1")), 3) << "on its own account";
}

}  // namespace
}  // namespace headgate::test
