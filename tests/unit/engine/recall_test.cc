// What an engine remembers of checks: never anything but what matching anew would find.
#include "engine/recall.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "support/engines.h"

namespace headgate::test {
namespace {

using engine::Leg;
using engine::Recall;
using engine::Route;

constexpr std::uint64_t kState = 7;

Route route(std::size_t legs, std::size_t cells, std::uint64_t seed) {
  Route made;
  for (std::size_t i = 0; i < legs; ++i) made.legs.emplace_back() = {static_cast<std::uint32_t>(seed + i), 3, 1};
  for (std::size_t i = 0; i < cells; ++i) made.cells.emplace_back() = {seed, i};
  return made;
}

std::string name_of(std::uint64_t check) { return std::to_string(check); }
void keep(Recall::Memory& memory, std::uint64_t check, const Route& route, const Recall::Draft* draft) {
  memory.keep(check, kState, name_of(check), route, draft);
}
Recall::Memory::Known find(Recall::Memory& memory, std::uint64_t check, std::uint64_t state = kState) {
  return memory.find(check, state, [&](std::string_view names) { return names == name_of(check); });
}

TEST(RecallMemory, GivesBackWhatItWasTold) {
  const auto memory = std::make_unique<Recall::Memory>();
  EXPECT_TRUE(find(*memory, 77).legs.empty());
  keep(*memory, 77, route(2, 5, 40), nullptr);
  const Recall::Memory::Known known = find(*memory, 77);
  ASSERT_EQ(known.legs.size(), 2);
  EXPECT_EQ(known.legs[1].policy, 41);
  EXPECT_EQ(known.legs[1].strand, 3);
  EXPECT_EQ(known.legs[1].enforced, 1);
  ASSERT_EQ(known.cells.size(), 5);
  EXPECT_EQ(known.cells[4], (base::Hash128{40, 4}));
  EXPECT_TRUE(find(*memory, 78).legs.empty());
}

TEST(RecallMemory, KnowsThatNothingMatched) {
  const auto memory = std::make_unique<Recall::Memory>();
  EXPECT_EQ(find(*memory, 0).legs.data(), nullptr) << "a place where nothing is";
  keep(*memory, 77, route(0, 0, 0), nullptr);
  EXPECT_NE(find(*memory, 77).legs.data(), nullptr);
  EXPECT_TRUE(find(*memory, 77).legs.empty());
}

TEST(RecallMemory, KeepsFourOfThoseThatHaveOnePlaceAndLetsTheOldestGo) {
  const auto memory = std::make_unique<Recall::Memory>();
  const auto nth = [](std::uint64_t n) { return (n << 32) | 5; };
  for (std::uint64_t n = 1; n <= 5; ++n) keep(*memory, nth(n), route(1, 1, n), nullptr);
  EXPECT_TRUE(find(*memory, nth(1)).legs.empty());
  for (std::uint64_t n = 2; n <= 5; ++n) {
    ASSERT_FALSE(find(*memory, nth(n)).legs.empty()) << n;
    EXPECT_EQ(find(*memory, nth(n)).cells[0].low, n);
  }
}

TEST(RecallMemory, DoesNotKeepWhatIsTooLong) {
  const auto memory = std::make_unique<Recall::Memory>();
  keep(*memory, 1, route(6, 6, 0), nullptr);
  keep(*memory, 2, route(7, 6, 0), nullptr);
  keep(*memory, 3, route(6, 7, 0), nullptr);
  EXPECT_EQ(find(*memory, 1).cells.size(), 6);
  EXPECT_TRUE(find(*memory, 2).legs.empty());
  EXPECT_TRUE(find(*memory, 3).legs.empty());
}

TEST(RecallMemory, AHashThatAgreesIsNotEnough) {
  const auto memory = std::make_unique<Recall::Memory>();
  keep(*memory, 77, route(1, 1, 1), nullptr);
  EXPECT_NE(find(*memory, 77).legs.data(), nullptr);
  EXPECT_EQ(find(*memory, 77, kState + 1).legs.data(), nullptr) << "other policies";
  const auto another = memory->find(77, kState, [](std::string_view) { return false; });
  EXPECT_EQ(another.legs.data(), nullptr) << "other names";
  memory->keep(78, kState, std::string(Recall::kMostNames + 1, 'a'), route(1, 1, 1), nullptr);
  const auto long_one = memory->find(78, kState, [](std::string_view) { return true; });
  EXPECT_EQ(long_one.legs.data(), nullptr) << "longer names than are kept";
}

TEST(RecallMemory, DraftsAreSharedByThoseOfTheSameLegs) {
  const auto memory = std::make_unique<Recall::Memory>();
  bool is_new = false;
  Recall::Draft* const first = memory->draft(kState, route(2, 2, 1), is_new);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(is_new);
  EXPECT_EQ(memory->draft(kState, route(2, 3, 1), is_new), first) << "cells do not matter";
  EXPECT_FALSE(is_new);
  EXPECT_NE(memory->draft(kState, route(3, 3, 1), is_new), first);
  EXPECT_NE(memory->draft(kState, route(2, 2, 2), is_new), first);
  keep(*memory, 77, route(2, 2, 1), first);
  EXPECT_EQ(find(*memory, 77).draft, first);
  keep(*memory, 78, route(2, 2, 1), nullptr);
  EXPECT_EQ(find(*memory, 78).draft, nullptr);
}

TEST(RecallMemory, DraftsOfAnotherStateAreNeitherFoundNorMixedUp) {
  const auto memory = std::make_unique<Recall::Memory>();
  bool is_new = false;
  keep(*memory, 77, route(1, 1, 1), memory->draft(kState, route(1, 1, 1), is_new));
  EXPECT_NE(memory->draft(kState + 1, route(1, 1, 9), is_new), nullptr);
  EXPECT_TRUE(is_new);
  EXPECT_EQ(find(*memory, 77).draft, nullptr) << "its place has been given away";
  EXPECT_EQ(memory->draft(kState, route(1, 1, 1), is_new), nullptr) << "time does not go back";
  EXPECT_FALSE(is_new);
}

TEST(RecallMemory, ThereAreOnlySoManyDrafts) {
  const auto memory = std::make_unique<Recall::Memory>();
  bool is_new = false;
  for (std::uint64_t n = 0; n < 64; ++n) ASSERT_NE(memory->draft(kState, route(1, 1, n), is_new), nullptr) << n;
  EXPECT_EQ(memory->draft(kState, route(1, 1, 64), is_new), nullptr);
  EXPECT_NE(memory->draft(kState, route(1, 1, 63), is_new), nullptr) << "known";
  EXPECT_EQ(memory->draft(kState, route(7, 6, 1), is_new), nullptr) << "too long";
}

TEST(RecallMemory, HardlyLooksForWhatNeverComesAgainUntilItDoes) {
  const auto memory = std::make_unique<Recall::Memory>();
  std::uint64_t fresh = 1'000'000;
  const auto asked_of_160 = [&](const auto& next) {
    int asked = 0;
    for (int i = 0; i < 160; ++i) {
      const std::uint64_t check = next();
      if (!memory->is_worth_it()) continue;
      ++asked;
      if (find(*memory, check).legs.empty()) keep(*memory, check, route(1, 1, check), nullptr);
    }
    return asked;
  };
  const auto never_again = [&] { return ++fresh; };
  EXPECT_EQ(asked_of_160(never_again), 160) << "at first it has nothing to go by";
  for (int i = 0; i < 200; ++i) (void)asked_of_160(never_again);
  EXPECT_EQ(asked_of_160(never_again), 10);
  (void)asked_of_160([] { return 7; });
  EXPECT_EQ(asked_of_160([] { return 7; }), 160);
}

TEST(Recall, ThreadsRememberApart) {
  Recall recall;
  Recall::Memory* mine = recall.mine();
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(recall.mine(), mine);
  std::thread([&] { EXPECT_NE(recall.mine(), mine); }).join();
}

// Policies and checks of few words, so that the same are asked again and again; and what to expect of them.
struct Conditions {
  std::string id;
  std::string agent, operation, model;  // empty: any
  std::string unit;
  std::vector<std::string> key;
};
constexpr double kLimit = 1'000'000;

class EngineRecall : public EngineFixture {
 protected:
  template <class... Words>
  std::string one_of(Words... words) {
    const std::array<std::string, sizeof...(words)> all{words...};
    return all[random_() % all.size()];
  }

  std::vector<Conditions> document(int number) {
    std::vector<Conditions> all;
    const std::size_t count = 1 + random_() % 8;  // some more than are remembered
    for (std::size_t i = 0; i < count; ++i) {
      Conditions& made = all.emplace_back();
      made.id = fmt::format("d{}p{}", number, i);
      made.agent = one_of("", "", "a", "b");
      made.operation = one_of("", "", "x", "y");
      made.model = one_of("", "", "", "m", "n");
      made.unit = one_of("requests", "requests", "tokens");
      for (const char* part : {"agent", "session", "operation", "attr:model"}) {
        if (random_() % 2 == 0) made.key.emplace_back(part);
      }
    }
    return all;
  }

  void load(const std::vector<Conditions>& document) {
    std::string yaml = "policies:\n";
    for (const Conditions& each : document) {
      std::string match;
      if (!each.agent.empty()) match += fmt::format("agents: [{}], ", each.agent);
      if (!each.operation.empty()) match += fmt::format("operations: [{}], ", each.operation);
      if (!each.model.empty()) match += fmt::format("attributes: {{model: {}}}, ", each.model);
      yaml += fmt::format(
          "  - {{id: {}, match: {{{}}}, key: [{}], unit: {}, limit: {{strategy: fixed_window, limit: "
          "1000000, window: 1h}}}}\n",
          each.id, match, fmt::join(each.key, ", "), each.unit);
    }
    EngineFixture::load(yaml);
    stands_ = &document;
  }

  struct Asked {
    std::string agent, session, operation, model, unit;
    [[nodiscard]] std::string part(const std::string& name) const {
      if (name == "agent") return agent;
      if (name == "session") return session;
      return name == "operation" ? operation : model;
    }
  };
  Asked some() {
    return {one_of("a", "b", "c"), one_of("", "s", "t"), one_of("x", "y"), one_of("", "m", "n"),
            one_of("requests", "tokens")};
  }

  // What is left of each policy that matches once this has been charged.
  std::map<std::string, double> expected(const Asked& asked) {
    std::map<std::string, double> left;
    for (const Conditions& each : *stands_) {
      const auto holds = [](const std::string& wanted, const std::string& came) {
        return wanted.empty() || wanted == came;
      };
      if (!holds(each.agent, asked.agent) || !holds(each.operation, asked.operation) ||
          !holds(each.model, asked.model) || each.unit != asked.unit) {
        continue;
      }
      std::string cell = each.id;
      for (const std::string& part : each.key) cell += "/" + asked.part(part);
      left[each.id] = kLimit - ++used_[cell];
    }
    return left;
  }

  std::map<std::string, double> came(const Asked& asked) {
    Q q(asked.operation);
    q.agent(asked.agent).session(asked.session).cost(asked.unit, 1);
    if (!asked.model.empty()) q.attr("model", std::string_view(asked.model));
    const engine::CheckDecision decision = ask(q);
    std::map<std::string, double> left;
    for (const engine::Judged& judged : decision.judged) {
      left[decision.policy(judged).id] = static_cast<double>(decision.outcomes[judged.first].remaining);
    }
    return left;
  }

  std::mt19937 random_{20261116};
  const std::vector<Conditions>* stands_ = nullptr;
  std::map<std::string, double> used_;  // by cell
};

TEST_F(EngineRecall, EveryCheckIsChargedToTheCellsOfThePoliciesThatStandNow) {
  std::vector<std::vector<Conditions>> documents;
  for (int i = 0; i < 12; ++i) documents.push_back(document(i));
  bool exempt = false;
  load(documents[0]);
  for (int step = 0; step < 20'000; ++step) {
    if (random_() % 50 == 0) load(documents[random_() % documents.size()]);
    if (random_() % 100 == 0) {
      exempt = !exempt;
      engine_.controls().set_exempt(exempt ? std::vector<std::string>{"b"} : std::vector<std::string>{});
    }
    const Asked asked = some();
    const std::map<std::string, double> should =
        exempt && asked.agent == "b" ? std::map<std::string, double>{} : expected(asked);
    ASSERT_EQ(came(asked), should) << "step " << step << ": " << asked.agent << "/" << asked.session << "/"
                                   << asked.operation << "/" << asked.model << "/" << asked.unit;
  }
}

// As many limits may match as there are; as many may be charged as fit a plan.
TEST_F(EngineRecall, LimitsInUnitsThatTheCheckDoesNotCostAreNotTooMany) {
  std::string yaml = "policies:\n  - {id: own, limit: 2/1h}\n";
  for (int i = 0; i < 40; ++i) yaml += fmt::format("  - {{id: t{}, unit: tokens, limit: [100/1m, 1000/1h]}}\n", i);
  EngineFixture::load(yaml);
  EXPECT_EQ(allowed(Q("run").agent("A")), 2);
  EXPECT_EQ(ask(Q("run").agent("A").cost("tokens", 1)).why, engine::Why::kInvalid) << "eighty at once";
}

TEST_F(EngineRecall, AnEmergencyIsSeenAtOnceAndItsEndToo) {
  EngineFixture::load(R"(
policies:
  - {id: always, limit: 100/1h}
  - {id: crisis, match: {emergency: true}, limit: 100/1h}
)");
  const Q q = std::move(Q("run").agent("A"));
  const auto ids = [&] {
    std::string all;
    const engine::CheckDecision decision = ask(q);
    for (const engine::Judged& judged : decision.judged) all += decision.policy(judged).id + " ";
    return all;
  };
  EXPECT_EQ(ids(), "always ");
  EXPECT_EQ(ids(), "always ");
  ASSERT_TRUE(engine_.controls().emergency_on({.reason = "a test", .by = "tester"}));
  EXPECT_EQ(ids(), "always crisis ");
  EXPECT_EQ(ids(), "always crisis ");
  engine_.controls().emergency_off("test");
  EXPECT_EQ(ids(), "always ");
}

}  // namespace
}  // namespace headgate::test
