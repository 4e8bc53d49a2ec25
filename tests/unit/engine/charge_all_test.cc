// Every matching policy is charged, or none: against a slow model in one thread, and with many threads.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "support/allocation_counter.h"
#include "support/cells.h"
#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using engine::CheckDecision;

// A limit of fixed or sliding windows as a list of everything that was admitted.
class Model {
 public:
  struct Limit {
    bool sliding = false;
    std::int64_t most = 0;  // with burst
    Nanos window{0};
  };
  explicit Model(Limit limit) : limit_(limit) {}

  [[nodiscard]] std::int64_t used(const std::string& key, Nanos now) const {
    std::int64_t sum = 0;
    for (const auto& [who, when, cost] : admitted_) {
      const bool counts = limit_.sliding ? when > now - limit_.window : when / limit_.window == now / limit_.window;
      if (who == key && counts) sum += cost;
    }
    return sum;
  }
  [[nodiscard]] bool fits(const std::string& key, std::int64_t cost, Nanos now) const {
    return cost == 0 || used(key, now) + cost <= limit_.most;
  }
  void charge(const std::string& key, std::int64_t cost, Nanos now) { admitted_.push_back({key, now, cost}); }
  [[nodiscard]] const Limit& limit() const { return limit_; }

 private:
  struct Admitted {
    std::string who;
    Nanos when;
    std::int64_t cost;
  };
  Limit limit_;
  std::vector<Admitted> admitted_;
};

struct ModelPolicy {
  std::string id;
  std::string unit;
  std::string agents;      // "", "A" or "B"
  std::string operations;  // "", "read" or "write"
  std::vector<std::string> key;
  bool soft = false;
  std::vector<Model> limits;

  [[nodiscard]] bool matches(const std::string& agent, const std::string& operation) const {
    return (agents.empty() || agents == agent) && (operations.empty() || operations == operation);
  }
  [[nodiscard]] std::string key_of(const std::string& agent, const std::string& operation) const {
    std::string text;
    for (const std::string& part : key) text += (part == "agent" ? agent : operation) + "\n";
    return text;
  }
};

std::string yaml_of(const std::vector<ModelPolicy>& policies) {
  std::string text = "policies:\n";
  for (const ModelPolicy& policy : policies) {
    const double scale = policy.unit == "usd" ? 1e6 : 1;
    text += "  - {id: " + policy.id + ", unit: " + policy.unit + ", match: {";
    if (!policy.agents.empty()) text += "agents: [" + policy.agents + "], ";
    if (!policy.operations.empty()) text += "operations: [" + policy.operations + "]";
    text += "}, key: [";
    for (const std::string& part : policy.key) text += part + ", ";
    text += std::string("], action: ") + (policy.soft ? "warn" : "block") + ", limit: [";
    for (const Model& model : policy.limits) {
      char number[64];
      std::snprintf(number, sizeof number, "%.6f", static_cast<double>(model.limit().most) / scale);
      text += std::string("{strategy: ") + (model.limit().sliding ? "sliding_window" : "fixed_window") +
              ", limit: " + (scale == 1 ? std::to_string(model.limit().most) : number) +
              ", window: " + std::to_string(model.limit().window.count() / 1'000'000'000) + "s}, ";
    }
    text += "]}\n";
  }
  return text;
}

// For every answer of the engine: the model's, and afterwards what every cell has left.
RC_GTEST_PROP(EngineChargesAll, OrNothingAsASlowModelDoes, ()) {
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  static const std::string kUnits[] = {"requests", "tokens", "usd"};
  std::vector<ModelPolicy> policies;
  for (std::uint32_t i = 0, count = 1 + below(5); i < count; ++i) {
    ModelPolicy& policy = policies.emplace_back();
    policy.id = "p" + std::to_string(i);
    policy.unit = kUnits[below(3)];
    policy.agents = std::array{"", "A", "B"}[below(3)];
    policy.operations = std::array{"", "read", "write"}[below(3)];
    if (below(2) == 0) policy.key.emplace_back("agent");
    if (below(3) == 0) policy.key.emplace_back("operation");
    policy.soft = below(4) == 0;
    for (std::uint32_t k = 0, limits = 1 + below(2); k < limits; ++k) {
      const std::int64_t scale = policy.unit == "usd" ? 10'000 : 1;  // cents
      policy.limits.emplace_back(
          Model::Limit{below(2) == 0, scale * (3 + below(20)), std::chrono::seconds{5 + below(60)}});
    }
  }
  ManualClock clock(kStart);
  engine::Engine engine({.clock = &clock});
  const std::string yaml = yaml_of(policies);
  RC_LOG() << yaml;
  policy::ReadResult read = policy::read_text(yaml, "f");
  RC_ASSERT(read.ok());
  RC_ASSERT(!!engine.load(std::move(read.document)));

  for (int step = 0; step < 60; ++step) {
    clock.advance(Nanos{1'000'000} * static_cast<std::int64_t>(below(4) * below(3000)));
    const Nanos now = clock.now();
    const std::string agent = below(2) == 0 ? "A" : "B";
    const std::string operation = below(2) == 0 ? "read" : "write";
    std::map<std::string, std::int64_t> cost;  // in units of cells
    Q q(operation);
    q.agent(agent);
    for (const std::string& unit : kUnits) {
      if (below(2) == 0) continue;
      const std::int64_t amount = below(6);
      cost[unit] = unit == "usd" ? amount * 10'000 : amount;
      q.cost(unit, unit == "usd" ? static_cast<double>(amount) / 100 : static_cast<double>(amount));
    }
    if (cost.empty()) cost["requests"] = 1;
    bool fits = true;
    for (const ModelPolicy& policy : policies) {
      if (!policy.matches(agent, operation) || !cost.contains(policy.unit) || policy.soft) continue;
      for (const Model& model : policy.limits) {
        fits = fits && model.fits(policy.key_of(agent, operation), cost[policy.unit], now);
      }
    }
    const CheckDecision decision = engine.check(q.get());
    RC_ASSERT(decision.allowed == fits);
    if (fits) {
      for (ModelPolicy& policy : policies) {
        if (!policy.matches(agent, operation) || !cost.contains(policy.unit)) continue;
        const std::string key = policy.key_of(agent, operation);
        // A limit that only warns is charged where it has room.
        for (Model& model : policy.limits) {
          if (model.fits(key, cost[policy.unit], now)) model.charge(key, cost[policy.unit], now);
        }
      }
    }
    // Every cell of every policy, as an outsider may see it.
    for (const char* who : {"A", "B"}) {
      for (const char* what : {"read", "write"}) {
        Q look(what);
        look.agent(who).peek();
        for (const std::string& unit : kUnits) look.cost(unit, 0);
        const CheckDecision seen = engine.check(look.get());
        for (const engine::Judged& judged : seen.judged) {
          const ModelPolicy& policy = policies.at(std::stoul(seen.policy(judged).id.substr(1)));
          for (std::size_t k = 0; k < judged.count; ++k) {
            const Model& model = policy.limits.at(k);
            RC_ASSERT(seen.outcomes[judged.first + k].remaining ==
                      model.limit().most - model.used(policy.key_of(who, what), now));
          }
        }
      }
    }
  }
}

// The same for every strategy, with a bare cell for each key of each limit, judged and charged one by one.
RC_GTEST_PROP(EngineChargesAll, OrNothingWhateverTheStrategies, ()) {
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  struct Part {
    core::CompiledLimit limit;
    std::map<std::string, BareCell> cells;
  };
  policy::Document document;
  document.has_policies = true;
  std::vector<std::vector<Part>> model;
  for (std::uint32_t i = 0, count = 2 + below(4); i < count; ++i) {
    policy::Policy& policy = document.policies.emplace_back();
    policy.id = "p" + std::to_string(i);
    policy.key.clear();
    if (below(3) != 0) policy.key.push_back({policy::Dimension::kAgent, {}});
    if (below(3) == 0) policy.match.agents = {"A"};
    policy.mode = below(5) == 0 ? policy::Mode::kMonitor : policy::Mode::kEnforce;
    auto& parts = model.emplace_back();
    for (std::uint32_t k = 0, limits = 1 + below(2); k < limits; ++k) {
      const auto strategy = static_cast<Strategy>(below(kStrategyCount));
      Size size{.limit = 2 + below(12), .window = std::chrono::seconds{1 + below(30)}, .burst = below(3)};
      // A lease lasts for the shortest time that any of its slots does; then all of them come back.
      if (strategy == Strategy::kConcurrency) size.window = 7s;
      policy.limits.push_back(limit_of(strategy, size));
      RC_LOG() << policy.id << ": " << policy.limits.back().describe() << '\n';
      parts.push_back({core::compile(policy.limits.back()), {}});
    }
  }
  ManualClock clock(kStart);
  engine::Engine engine({.clock = &clock});
  RC_ASSERT(!!engine.load(document));
  for (int step = 0; step < 80; ++step) {
    clock.advance(Nanos{1'000'000} * static_cast<std::int64_t>(below(3) * below(4000)));
    const Nanos now = clock.now();
    const std::string agent = below(2) == 0 ? "A" : "B";
    const Units cost = below(4);
    bool fits = true;
    const auto for_each = [&](const auto& act) {
      for (std::size_t i = 0; i < model.size(); ++i) {
        const policy::Policy& policy = document.policies[i];
        if (!policy.match.agents.empty() && agent != "A") continue;
        for (Part& part : model[i]) {
          BareCell& cell = part.cells.try_emplace(policy.key.empty() ? "" : agent, part.limit.strategy).first->second;
          act(policy, part.limit, cell);
        }
      }
    };
    for_each([&](const policy::Policy& policy, const core::CompiledLimit& limit, const BareCell& cell) {
      const bool room = cost <= limit.most && cell.judge(limit, cost, now).fits();
      fits = fits && (room || policy.mode == policy::Mode::kMonitor);
    });
    const CheckDecision decision = engine.check(Q("run").agent(agent).cost(static_cast<double>(cost)).get());
    RC_ASSERT(decision.allowed == fits);
    if (fits) {
      for_each([&](const policy::Policy&, const core::CompiledLimit& limit, BareCell& cell) {
        (void)cell.take(limit, cost, now);
      });
    }
    std::vector<Units> expected;
    for_each([&](const policy::Policy&, const core::CompiledLimit& limit, const BareCell& cell) {
      expected.push_back(cell.judge(limit, 0, now).remaining);
    });
    const CheckDecision seen = engine.check(Q("run").agent(agent).cost(0).peek().get());
    std::vector<Units> found;
    for (const core::Outcome& outcome : seen.outcomes) found.push_back(outcome.remaining);
    RC_ASSERT(found == expected);
  }
}

constexpr int kTogether = 4;

void together(const std::function<void(int thread)>& act) {
  std::atomic<int> ready{0};
  std::vector<std::thread> running;
  for (int i = 0; i < kTogether; ++i) {
    running.emplace_back([&, i] {
      ++ready;
      while (ready.load() < kTogether) std::this_thread::yield();
      act(i);
    });
  }
  for (std::thread& thread : running) thread.join();
}

// Agents share one budget, have one each, and pay in two units; the clock stands still.
class EngineThreads : public EngineFixture {
 protected:
  double left_of(const std::string& id, const std::string& agent) {
    return EngineFixture::left(Q("run").agent(agent).cost("requests", 1).cost("tokens", 1))[id].at(0);
  }
};

TEST_F(EngineThreads, NoLimitIsExceededAndWhatWasAdmittedIsWhatCellsSay) {
  for (const char* strategy : {"sliding_window", "fixed_window", "sliding_window_counter"}) {
    const std::string s = strategy;
    load(
        "policies:\n"
        "  - {id: all-" +
        s + ", key: [], limit: {strategy: " + s +
        ", limit: 900, window: 1h}}\n"
        "  - {id: own-" +
        s + ", limit: {strategy: " + s +
        ", limit: 260, window: 1h}}\n"
        "  - {id: tokens-" +
        s + ", unit: tokens, key: [], limit: {strategy: " + s + ", limit: 2000, window: 1h}}\n");
    std::array<std::atomic<int>, 4> requests{};
    std::atomic<int> tokens{0};
    together([&](int thread) {
      std::mt19937 random(static_cast<std::uint32_t>(thread));
      for (int i = 0; i < 600; ++i) {
        const auto agent = random() % 4;
        const int cost = static_cast<int>(random() % 3);
        const int words = static_cast<int>(random() % 5);
        const CheckDecision decision = engine_.check(
            Q("run").agent("agent" + std::to_string(agent)).cost("requests", cost).cost("tokens", words).get());
        if (!decision.allowed) continue;
        requests.at(agent) += cost;
        tokens += words;
      }
    });
    int sum = 0;
    for (std::size_t agent = 0; agent < requests.size(); ++agent) {
      EXPECT_LE(requests.at(agent), 260);
      EXPECT_EQ(left_of("own-" + s, "agent" + std::to_string(agent)), 260 - requests.at(agent));
      sum += requests.at(agent);
    }
    EXPECT_LE(sum, 900);
    EXPECT_EQ(left_of("all-" + s, "agent0"), 900 - sum);
    EXPECT_EQ(left_of("tokens-" + s, "agent0"), 2000 - tokens);
  }
}

TEST_F(EngineThreads, DeniedChecksLeaveEveryCellAsItWasAmongOthersThatAreAdmitted) {
  load(R"(
policies:
  - {id: shared, key: [], limit: 100000/1h}
  - {id: own, limit: {strategy: token_bucket, capacity: 10, refill_rate: 0.000001}}
  - {id: slots, key: [], limit: {strategy: concurrency, max: 60000, lease_ttl: 1h}}
)");
  std::atomic<int> admitted{0};
  together([&](int thread) {
    for (int i = 0; i < 300; ++i) {
      const CheckDecision decision = engine_.check(Q("run").agent("agent" + std::to_string(thread % 2)).get());
      admitted += decision.allowed ? 1 : 0;
    }
  });
  EXPECT_EQ(admitted, 20);
  const auto left = EngineFixture::left(Q("run").agent("agent0"));
  EXPECT_EQ(left.at("shared").at(0), 100000 - 20);
  EXPECT_EQ(left.at("slots").at(0), 60000 - 20);
  EXPECT_EQ(engine_.holds().open(), 20U);
  const engine::Counts shared = counts("shared");
  EXPECT_EQ(shared.admitted, 20U);
  EXPECT_EQ(counts("own").denied, 1200U - 20U);
}

TEST_F(EngineThreads, SlotsAreNeverHeldByMoreThanMaxAtOnce) {
  load("policies: [{id: c, key: [], limit: {strategy: concurrency, max: 3, lease_ttl: 1h}}]");
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<int> lost{0};
  together([&](int thread) {
    const std::string agent = "agent" + std::to_string(thread);
    for (int i = 0; i < 500; ++i) {
      const CheckDecision decision = engine_.check(Q("run").agent(agent).get());
      if (!decision.allowed) continue;
      const int now = ++inside;
      int seen = most.load();
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      if (i % 16 == 0) std::this_thread::yield();
      --inside;
      const bool ended = i % 2 == 0 ? engine_.holds().release(decision.lease, agent).has_value()
                                    : engine_.holds().settle(decision.lease, agent, {}).has_value();
      if (!ended) ++lost;
    }
  });
  EXPECT_LE(most, 3);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(engine_.holds().open(), 0U);
  EXPECT_EQ(allowed("last"), 3);
}

TEST_F(EngineThreads, EveryOneThatWaitsIsAnsweredOnceAndNoLimitIsExceeded) {
  load(
      "queue: {max_waiting: 50}\n"
      "policies: [{id: c, key: [], limit: {strategy: concurrency, max: 2, lease_ttl: 1h}, behavior: queue, "
      "max_wait: 10s}]");
  std::atomic<int> answered{0};
  std::atomic<int> inside{0};
  std::atomic<int> wrong{0};
  constexpr int kChecks = 200;
  together([&](int thread) {
    const std::string agent = "agent" + std::to_string(thread);
    for (int i = 0; i < kChecks; ++i) {
      auto times = std::make_shared<std::atomic<int>>(0);
      const std::uint64_t id =
          engine_.check_async(Q("run").agent(agent).priority(i % 3).get(), [&, times](const CheckDecision& decision) {
            if (times->fetch_add(1) != 0) ++wrong;
            ++answered;
            if (!decision.allowed) return;
            if (++inside > 2) ++wrong;
            --inside;
            if (!engine_.holds().release(decision.lease, {})) ++wrong;
          });
      if (i % 7 == 0 && id != 0) engine_.queue().cancel(id);
      engine_.poll();
    }
  });
  while (engine_.queue().size() > 0) {
    engine_.poll();
    clock_.advance(1s);
  }
  EXPECT_EQ(answered, kTogether * kChecks);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(engine_.holds().open(), 0U);
}

TEST_F(EngineThreads, OverridesExemptionsAndTheBrakeMayChangeUnderChecks) {
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::atomic<int> asking{0};
  std::thread operator_thread([&] {
    while (asking.load() < kTogether) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) {
      engine::Override own{"agent" + std::to_string(i % 4), {}};
      own.tiers[static_cast<std::size_t>(i % 3)] = policy::TierLimit{100 + i, 100};
      if (!engine_.controls().set_override(own)) ++wrong;
      engine_.controls().add_exempt("agent3");
      if (i % 5 == 0 && !engine_.controls().emergency_on({"test", "me"})) ++wrong;
      if (i % 5 == 2) engine_.controls().emergency_off("me");
      (void)engine_.controls().clear_override("agent" + std::to_string((i + 1) % 4));
      engine_.controls().remove_exempt("agent3");
      (void)engine_.aftermath().counts();
      (void)engine_.aftermath().offenders(5);
      clock_.advance(10ms);
      std::this_thread::yield();
    }
    done = true;
  });
  together([&](int thread) {
    const std::string agent = "agent" + std::to_string(thread);
    bool counted = false;
    while (!done.load()) {
      const CheckDecision decision = engine_.check(Q("ping").agent(agent).channel("ws").get());
      if (decision.why == engine::Why::kInvalid || decision.remaining < 0) ++wrong;
      if (!counted) ++asking;
      counted = true;
    }
  });
  operator_thread.join();
  EXPECT_EQ(wrong, 0);
}

class EngineAllocation : public EngineFixture {};

TEST_F(EngineAllocation, AnAllowedCheckOnExistingCellsAllocatesNothing) {
  load(R"(
policies:
  - {id: a, limit: {strategy: token_bucket, capacity: 1000, refill_rate: 1000}}
  - {id: b, key: [agent, session, "attr:model"], match: {operations: ["ru*"]}, limit: {strategy: fixed_window, limit: 100000, window: 1h}}
  - {id: c, unit: tokens, key: [], match: {attributes: {model: [large]}}, limit: {strategy: gcra, max_burst: 100000, count: 100000, period: 1s}}
)");
  const Q q = std::move(Q("run")
                            .agent("an agent with a name longer than fifteen")
                            .session("s")
                            .attr("model", "large")
                            .attr("size", 3)
                            .cost("requests", 1)
                            .cost("tokens", 120));
  ASSERT_EQ(ids(ask(q)).size(), 3U);
  int admitted = 0;
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < 1000; ++i) {
                clock_.advance(1ms);
                admitted += engine_.check(q.get()).allowed ? 1 : 0;
              }
            }),
            0U);
  EXPECT_EQ(admitted, 1000);
}

TEST_F(EngineAllocation, NeitherDoTheBuiltInTiersNorAnOverrideNorAnExemption) {
  engine::Override own{"B", {}};
  own.tiers[0] = policy::TierLimit{100'000, 100'000};
  ASSERT_TRUE(engine_.controls().set_override(own));
  engine_.controls().add_exempt("robot");
  for (const char* agent : {"A", "B", "robot"}) {
    const Q q = std::move(Q("ping").agent(agent).channel("http"));
    ASSERT_TRUE(ask(q).allowed);
    EXPECT_EQ(allocations_in([&] {
                for (int i = 0; i < 50; ++i) (void)engine_.check(q.get());
              }),
              0U)
        << agent;
  }
}

}  // namespace
}  // namespace headgate::test
