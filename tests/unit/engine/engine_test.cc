// The engine through its public calls.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include "policy/reader.h"

namespace headgate::engine {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kStart = 1'000'000s;

class EngineTest : public testing::Test {
 protected:
  void load(const std::string& yaml) {
    policy::ReadResult read = policy::read_text(yaml, "test.yaml");
    ASSERT_TRUE(read.ok()) << read.problems[0].text();
    const Result<void> loaded = engine_.load(std::move(read.document));
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
  CheckDecision ask(std::string_view agent, std::string_view operation) {
    Check check;
    check.agent = agent;
    check.operation = operation;
    return engine_.check(check);
  }

  ManualClock clock_{kStart};
  Engine engine_{{.clock = &clock_}};
};

TEST_F(EngineTest, AdmitsUpToTheLimitAndThenDenies) {
  load("policies: [{id: p, limit: 3/60s}]");
  for (int i = 0; i < 3; ++i) {
    const CheckDecision decision = ask("A", "run");
    ASSERT_TRUE(decision.allowed);
    EXPECT_EQ(decision.remaining, 2 - i);
    EXPECT_EQ(decision.limit, 3);
    EXPECT_EQ(decision.reason(), "All rate limit policies passed");
    EXPECT_STREQ(decision.action_text(), "allow");
  }
  const CheckDecision denied = ask("A", "run");
  EXPECT_FALSE(denied.allowed);
  EXPECT_EQ(denied.reason(), "Sliding window limit 3/60s exceeded");
  EXPECT_EQ(denied.denied_by()->id, "p");
  EXPECT_EQ(denied.retry_after, 60s);
  EXPECT_TRUE(ask("B", "run").allowed) << "another agent has a cell of its own";
}

TEST_F(EngineTest, ADeniedCheckChargesNoPolicy) {
  load(R"(
policies:
  - {id: wide, limit: 10/60s, key: []}
  - {id: narrow, limit: 1/60s}
)");
  ASSERT_TRUE(ask("A", "run").allowed);
  for (int i = 0; i < 5; ++i) ASSERT_FALSE(ask("A", "run").allowed);
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(ask("agent" + std::to_string(i), "run").allowed) << i;
  EXPECT_FALSE(ask("last", "run").allowed);
}

}  // namespace
}  // namespace headgate::engine
