// Policies that are replaced while checks go on, and cells that outlive them; saving and restoring.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/cells.h"
#include "support/engines.h"

namespace headgate::test {
namespace {

using engine::CheckDecision;
using engine::Why;

class EngineReload : public EngineFixture {
 protected:
  double left_of(const std::string& id, std::string_view agent = "A") {
    return EngineFixture::left(Q("run").agent(agent))[id].at(0);
  }
};

TEST_F(EngineReload, CellsAreKeptWhenTheirLimitIsUnchanged) {
  load("policies: [{id: p, limit: 10/1h}]");
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(ask("A").allowed);
  load("enforcement: strict\npolicies: [{id: q, limit: 5/1h}, {id: p, priority: 7, warn_at: 0.5, limit: 10/1h}]");
  EXPECT_EQ(left_of("p"), 6);
  EXPECT_EQ(left_of("q"), 5);
}

TEST_F(EngineReload, AWindowGoesOnFromItsCountWhenNumbersChange) {
  load("policies: [{id: p, limit: 10/1h}]");
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(ask("A").allowed);
  load("policies: [{id: p, limit: 100/1h}]");
  EXPECT_EQ(left_of("p"), 96);
  load("policies: [{id: p, limit: 3/1h}]");
  EXPECT_EQ(left_of("p"), 0);
  EXPECT_FALSE(ask("A").allowed);
}

TEST_F(EngineReload, AnotherStrategyKeyUnitOrVariantBeginsAnew) {
  const char* first = "policies: [{id: p, limit: 10/1h}]";
  for (const char* other :
       {"policies: [{id: p, limit: {strategy: fixed_window, limit: 10, window: 1h}}]",
        "policies: [{id: p, key: [agent, operation], limit: 10/1h}]", "policies: [{id: other, limit: 10/1h}]",
        "policies: [{id: p, variants: [{name: v, limit: 10/1h}]}]"}) {
    load(first);
    ASSERT_TRUE(ask("A").allowed);
    load(other);
    EXPECT_EQ(EngineFixture::left(Q("run").agent("A")).begin()->second.at(0), 10) << other;
  }
}

TEST_F(EngineReload, AKeyOfAnotherAttributeBeginsAnewEvenForTheSameValue) {
  const Q q = std::move(Q("run").attr("x", "same").attr("y", "same"));
  load("policies: [{id: p, key: ['attr:x'], limit: 10/1h}]");
  ASSERT_TRUE(ask(q).allowed);
  load("policies: [{id: p, key: ['attr:y'], limit: 10/1h}]");
  EXPECT_EQ(EngineFixture::left(q)["p"].at(0), 10);
}

TEST_F(EngineReload, APolicyThatComesBackNeitherBreaksNorGivesMoreThanItsLimit) {
  for (const char* strategy : {"token_bucket", "gcra", "sliding_window", "sliding_window_counter", "fixed_window",
                               "leaky_bucket", "concurrency", "quota"}) {
    const auto document = [&](int limit) {
      const std::string number = std::to_string(limit);
      const std::string name = strategy;
      const std::string numbers = name == "token_bucket" ? "capacity: " + number + ", refill_rate: 0.0001"
                                  : name == "gcra"
                                      ? "max_burst: " + std::to_string(limit - 1) + ", count: 1, period: 1h"
                                  : name == "leaky_bucket" ? "rate: 0.001, queue: " + std::to_string(limit - 1)
                                  : name == "concurrency"  ? "max: " + number + ", lease_ttl: 1h"
                                  : name == "quota"        ? "limit: " + number + ", period: day"
                                                           : "limit: " + number + ", window: 1h";
      return "policies: [{id: " + name + ", limit: {strategy: " + name + ", " + numbers + "}}]";
    };
    load(document(100));
    for (int i = 0; i < 90; ++i) ASSERT_TRUE(ask("A").allowed) << strategy;
    load("policies: [{id: other, limit: 1/1h}]");
    load(document(10));
    const CheckDecision small = peek("A");
    EXPECT_GE(small.remaining, 0) << strategy;
    EXPECT_LE(small.remaining, 10) << strategy;
    EXPECT_LE(allowed("A"), 10) << strategy;
    load(document(200));
    EXPECT_LE(allowed("A", 500), 200) << strategy;
    EXPECT_GE(peek("A").remaining, 0) << strategy;
  }
}

TEST_F(EngineReload, IsTold) {
  load("policies: [{id: p, limit: 10/1h}, {id: q, limit: 10/1h}]");
  ASSERT_EQ(listener_.count(Event::Kind::kReload), 1U);
  EXPECT_EQ(listener_.all(Event::Kind::kReload)[0].value, 2);
  EXPECT_EQ(engine_.rules()->rules.policies().size(), 2U);
}

TEST_F(EngineReload, AHeldDecisionKeepsThePoliciesItSpeaksOf) {
  load("policies: [{id: old, limit: 1/1h, message: hello}]");
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision denied = ask("A");
  load("policies: [{id: new, limit: 5/1h}]");
  engine_.maintain();
  EXPECT_EQ(denied.denied_by()->id, "old");
  EXPECT_EQ(denied.denied_by()->message, "hello");
  EXPECT_EQ(denied.reason(), "Sliding window limit 1/3600s exceeded");
}

TEST_F(EngineReload, ALoadThatFailsLeavesTheOldPoliciesServingAsTheyWere) {
  load("policies: [{id: p, limit: 10/1h}, {id: fixed, adaptive: false, limit: 20/1h}]\nexempt: [robot]");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(ask("A").allowed);
  // Each of these decisions holds on to a state of its own.
  std::vector<CheckDecision> held;
  for (std::size_t i = 0; i < base::Published<engine::State>::kVersions; ++i) {
    held.push_back(peek("A"));
    engine_.controls().set_exempt({"x" + std::to_string(i)});
  }
  const Result<void> failed =
      engine_.load(read("policies: [{id: p, limit: 100/1h}, {id: fixed, adaptive: false, limit: 1/1h}]"));
  ASSERT_FALSE(failed);
  EXPECT_TRUE(failed.error().transient);
  EXPECT_EQ(peek("A").limit, 10);
  EXPECT_EQ(left_of("p"), 5);
  EXPECT_EQ(left_of("fixed"), 15);
  EXPECT_TRUE(ask("robot").allowed);
  EXPECT_EQ(ask("robot").why, Why::kExempt);
  held.clear();
  load("policies: [{id: p, limit: 100/1h}]");
  EXPECT_EQ(left_of("p"), 95);
}

TEST_F(EngineReload, ThreadsThatAskWhilePoliciesAreReplacedNeverGetMoreThanTheirLimits) {
  // The same limit under ever new documents; beside it a policy that comes and goes.
  const std::string with =
      "policies: [{id: p, key: [], limit: {strategy: fixed_window, limit: 500, window: 1h}}, "
      "{id: q, limit: 100000/1h}]";
  const std::string without = "policies: [{id: p, key: [], limit: {strategy: fixed_window, limit: 500, window: 1h}}]";
  load(with);
  std::atomic<int> admitted{0};
  std::atomic<int> strange{0};
  std::atomic<int> running{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      ++running;
      const std::string agent = "agent" + std::to_string(t);
      for (int i = 0; i < 1000; ++i) {
        const CheckDecision decision = engine_.check(Q("run").agent(agent).get());
        admitted += decision.allowed ? 1 : 0;
        const std::vector<std::string> met = ids(decision);
        if (met.empty() || met[0] != "p" || met.size() > 2) ++strange;
        if (!decision.allowed && decision.denied_by()->id != "p") ++strange;
        if (i % 50 == 0) (void)engine_.explain(Q("run").agent(agent).get());
      }
      --running;
    });
  }
  for (int i = 0; i < 30 || running.load() > 0; ++i) {
    ASSERT_TRUE(engine_.load(read(i % 2 == 0 ? without : with)));
    engine_.controls().report_load(i % 3 == 0 ? 0.5 : 0.6);
    engine_.controls().set_exempt({"somebody"});
    engine_.maintain();
    (void)engine_.poll();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admitted, 500);
  EXPECT_EQ(strange, 0);
}

TEST_F(EngineReload, ThreadsThatAskWhileLimitsAreScaledAgreeWithOneOfTheScales) {
  load("adaptive: {dwell: 0s}\npolicies: [{id: p, limit: {strategy: token_bucket, capacity: 40, refill_rate: 1000}}]");
  std::atomic<bool> done{false};
  std::atomic<int> strange{0};
  std::atomic<int> asked{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const std::string agent = "agent" + std::to_string(t);
      while (!done.load()) {
        const CheckDecision decision = engine_.check(Q("run").agent(agent).get());
        if (decision.limit != 40 && decision.limit != 20 && decision.limit != 50 && decision.limit != 4) ++strange;
        for (const engine::Explained& about : engine_.explain(Q("run").agent(agent).get()).policies) {
          if (about.cells.size() != 1 || about.cells[0].limit.empty()) ++strange;
        }
        ++asked;
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    engine_.controls().report_load(i % 3 == 0 ? 0.85 : i % 3 == 1 ? 0.2 : 0.95);
    clock_.advance(1ms);
    for (const int before = asked.load(); asked.load() == before;) std::this_thread::yield();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(strange, 0);
}

class EngineSnapshot : public EngineFixture {
 protected:
  static constexpr const char* kYaml = R"(
policies:
  - {id: window, limit: 10/1h}
  - {id: bucket, limit: {strategy: token_bucket, capacity: 20, refill_rate: 0.001}}
  - {id: day, unit: tokens, limit: {strategy: quota, limit: 1000, period: day}}
)";
  TempFolder folder_;
};

TEST_F(EngineSnapshot, CellsSurviveARestart) {
  load(kYaml);
  const Q q = std::move(Q("run").agent("A").cost("requests", 3).cost("tokens", 400));
  ASSERT_TRUE(ask(q).allowed);
  const auto before = left(q);
  const std::string file = folder_.file("cells");
  ASSERT_TRUE(engine_.save(file));

  engine::Engine next({.clock = &clock_});
  ASSERT_TRUE(next.load(read(kYaml)));
  const Result<std::size_t> restored = next.restore(file);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(*restored, 3U);
  const CheckDecision decision = next.check(q.get());
  EXPECT_EQ(decision.remaining, 4);
  EXPECT_EQ(before.at("window").at(0), 7);
  EXPECT_EQ(next.check(Q("run").agent("A").cost("requests", 5).get()).allowed, false);
  EXPECT_EQ(next.check(Q("run").agent("A").cost("tokens", 300).get()).allowed, false) << "two hundred are left";
  EXPECT_TRUE(next.check(Q("run").agent("B").cost("tokens", 1000).get()).allowed);
  // Exemptions and reloads use the file's seed from now on.
  next.controls().add_exempt("dashboard");
  EXPECT_EQ(next.check(Q("run").agent("dashboard").get()).why, Why::kExempt);
  ASSERT_TRUE(next.load(read(kYaml)));
  EXPECT_EQ(next.check(Q("run").agent("A").cost("requests", 5).get()).allowed, false);
}

TEST_F(EngineSnapshot, OverridesSetBeforeRestoringHoldAfterIt) {
  const std::string file = folder_.file("cells");
  ASSERT_TRUE(ask("A", "deploy").allowed);
  ASSERT_TRUE(engine_.save(file));
  engine::Engine next({.clock = &clock_});
  engine::Override own{"A", {}};
  own.tiers[2] = policy::TierLimit{3, 1};
  ASSERT_TRUE(next.controls().set_override(own));
  ASSERT_TRUE(next.restore(file));
  EXPECT_EQ(next.check(Q("deploy").agent("A").get()).limit, 3);
  EXPECT_EQ(next.check(Q("deploy").agent("B").get()).limit, 10);
}

TEST_F(EngineSnapshot, AMissingOrForeignFileIsAnErrorAndChangesNothing) {
  load(kYaml);
  EXPECT_FALSE(engine_.restore(folder_.file("nowhere")));
  write_bytes(folder_.file("other"), "this is not a snapshot");
  EXPECT_FALSE(engine_.restore(folder_.file("other")));
  EXPECT_TRUE(ask("A").allowed);
}

}  // namespace
}  // namespace headgate::test
