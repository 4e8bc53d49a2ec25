// Plans over several slots of a cluster: charged in all of them or in none, also when the server crashes before that
// is known.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <vector>

#include "store/redis/charge_script.h"
#include "support/both_stores.h"
#include "support/redis_calls.h"
#include "support/redis_cluster.h"

namespace headgate::test {
namespace {

using store::Ask;
using store::Charge;
using store::Effect;
using store::LiveLimit;
using store::MemoryStore;
using store::redis::kNoteLasts;
using store::redis::RedisStore;

// Carries everything but how plans end, once its server is lost.
class Doomed final : public store::redis::Caller {
 public:
  explicit Doomed(store::redis::Caller& caller) : caller_(caller) {}
  void call(store::redis::Command command, Done done) override {
    if (lost && command.script == &store::redis::settle_script()) {
      return done(Error{ErrorCode::kIo, "the server is gone", true});
    }
    caller_.call(std::move(command), std::move(done));
  }
  std::atomic<bool> lost = true;

 private:
  store::redis::Caller& caller_;
};

class RedisSlots : public ::testing::Test {
 protected:
  static RedisStore::Options cluster() { return {.prefix = "headgate:", .cluster = true}; }
  static Charge of(const LiveLimit& live, Units cost, std::string_view name) {
    Charge charge;
    charge.key = base::hash128(name, 1);
    charge.limit = &live;
    charge.cost = cost;
    return charge;
  }
  // By a server that is lost as soon as every slot has answered.
  store::Applied ask_and_vanish(const std::vector<Charge>& charges, Nanos now, Effect effect = Effect::kCharge,
                                Nanos patience = Nanos{0}) {
    std::vector<core::Outcome> outcomes(charges.size());
    store::Applied applied;
    lost_.apply_at(now, charges, {now, now, effect, patience, next_lease()}, outcomes,
                   [&](const auto& answer) { applied = must(answer).applied; });
    return applied;
  }
  store::Applied ask(const std::vector<Charge>& charges, Nanos now, Effect effect = Effect::kCharge,
                     Nanos patience = Nanos{0}) {
    outcomes_.assign(charges.size(), {});
    return redis_.apply(charges, {now, now, effect, patience, next_lease()}, outcomes_);
  }
  core::Outcome look(const LiveLimit& live, Nanos now, std::string_view name, Units cost = 0) {
    ask({of(live, cost, name)}, now, Effect::kNone);
    return outcomes_[0];
  }
  bool noted(std::string_view name) {
    return redis_.caller.ask({"EXISTS", redis_.store.key_of(base::hash128(name, 1)) + ":p"}) == "1";
  }

  RedisCells redis_{cluster()};
  Doomed doomed_{redis_.caller};
  RedisStore lost_{doomed_, cluster()};
  std::vector<core::Outcome> outcomes_;
};

// A cell in memory that was charged the same, for comparison.
class Twin {
 public:
  explicit Twin(const LiveLimit& live) : live_(live) {}
  void charge(Units cost, Nanos now) { static_cast<void>(ask(cost, now, Effect::kCharge)); }
  core::Outcome look(Nanos now) { return ask(0, now, Effect::kNone); }

 private:
  core::Outcome ask(Units cost, Nanos now, Effect effect) {
    Charge charge;
    charge.limit = &live_;
    charge.cost = cost;
    core::Outcome outcome;
    memory_.apply({&charge, 1}, {now, now, effect, Nanos{0}, next_lease()}, {&outcome, 1});
    return outcome;
  }
  const LiveLimit& live_;
  MemoryStore memory_{{.seed = 1}};
};

TEST_F(RedisSlots, AServerLostBeforeAPlanIsSettledLeavesNothingChargedAfterTwoSeconds) {
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(std::string(to_string(strategy)));
    redis_.caller.ask({"FLUSHALL"});
    const LiveLimit live(core::compile(limit_of(strategy, {10, 100s})));
    const LiveLimit other(core::compile(token_bucket(10, 1)));
    Twin with(live);
    Twin without(live);
    for (Twin* const twin : {&with, &without}) twin->charge(3, kStart);
    ASSERT_EQ(ask({of(live, 3, "a")}, kStart).wait, Nanos{0});

    const Nanos charged = kStart + 1s;
    ASSERT_EQ(ask_and_vanish({of(live, 2, "a"), of(other, 2, "b")}, charged).wait, Nanos{0});
    with.charge(2, charged);
    const Nanos meanwhile = charged + kNoteLasts - 1us;
    EXPECT_EQ(describe(look(live, meanwhile, "a")), describe(with.look(meanwhile)));
    const Nanos after = charged + kNoteLasts;
    EXPECT_EQ(describe(look(live, after, "a")), describe(without.look(after)));
    EXPECT_FALSE(noted("a"));
    EXPECT_EQ(look(other, after, "b").remaining, 10);
  }
}

TEST_F(RedisSlots, WhatALostServerHadChargedIsUndoneHoweverLateSomebodyComes) {
  const LiveLimit quota(core::compile(must(Limit::quota({10, Period::kMonth, "UTC", 0}))));
  const LiveLimit slow(core::compile(must(Limit::token_bucket({10, {10, 240h}, 0}))));  // a unit a day
  ask({of(quota, 4, "quota")}, kStart);
  ask({of(slow, 4, "slow")}, kStart);
  ask_and_vanish({of(quota, 5, "quota"), of(slow, 5, "slow")}, kStart + 1s);
  EXPECT_EQ(look(quota, kStart + 40h, "quota").remaining, 6);
  EXPECT_EQ(look(slow, kStart + 40h, "slow").remaining, 7);  // and one refilled
}

TEST_F(RedisSlots, OthersCountWhatIsNotYetSettled) {
  const LiveLimit live(core::compile(sliding_window(10, 100s)));
  const LiveLimit other(core::compile(token_bucket(10, 1)));
  ask_and_vanish({of(live, 8, "a"), of(other, 1, "b")}, kStart);
  EXPECT_NE(ask({of(live, 3, "a")}, kStart + 1s).wait, Nanos{0});
  EXPECT_EQ(ask({of(live, 2, "a")}, kStart + 1s).wait, Nanos{0});
  // Eight came back, of others nothing.
  EXPECT_EQ(look(live, kStart + 2s, "a").remaining, 8);
}

TEST_F(RedisSlots, APlanThatWasSettledStaysCharged) {
  std::deque<LiveLimit> limits;
  std::vector<Charge> plan;
  for (const Strategy strategy : all_strategies()) {
    limits.emplace_back(core::compile(limit_of(strategy, {10, 100s})));
    plan.push_back(of(limits.back(), 2, to_string(strategy)));
  }
  ASSERT_EQ(ask(plan, kStart).wait, Nanos{0});
  for (const LiveLimit& live : limits) {
    EXPECT_FALSE(noted(to_string(live.strategy())));
    EXPECT_EQ(look(live, kStart + 3s, to_string(live.strategy())).remaining, 8) << to_string(live.strategy());
  }
}

TEST_F(RedisSlots, WhereOneSlotHasNoRoomTheOthersGetBackWhatTheyWereCharged) {
  const LiveLimit full(core::compile(sliding_window(1, 100s)));
  ASSERT_EQ(ask({of(full, 1, "full")}, kStart).wait, Nanos{0});
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(std::string(to_string(strategy)));
    const LiveLimit live(core::compile(limit_of(strategy, {10, 100s})));
    const std::vector<Charge> plan{of(live, 2, to_string(strategy)), of(full, 1, "full")};
    EXPECT_EQ(ask(plan, kStart + 1s).wait, 99s);
    EXPECT_FALSE(noted(to_string(strategy)));
    EXPECT_EQ(look(live, kStart + 1s, to_string(strategy)).remaining, 10);
    // And if no server is left to refund it, somewhat later.
    EXPECT_EQ(ask_and_vanish(plan, kStart + 1s).wait, 99s);
    EXPECT_EQ(look(live, kStart + 2s, to_string(strategy)).remaining, 8);
    EXPECT_EQ(look(live, kStart + 3s, to_string(strategy)).remaining, 10);
  }
}

TEST_F(RedisSlots, AReservationOfALostServerIsUndone) {
  const LiveLimit bucket(core::compile(must(Limit::token_bucket({10, {10, 100s}, 0}))));
  const LiveLimit window(core::compile(sliding_window(10, 100s)));
  for (const auto& [live, name] : {std::pair{&bucket, "bucket"}, std::pair{&window, "window"}}) {
    ASSERT_EQ(ask({of(*live, 10, name)}, kStart).wait, Nanos{0});
  }
  const std::vector<Charge> plan{of(bucket, 1, "bucket"), of(window, 1, "window")};
  ASSERT_TRUE(ask_and_vanish(plan, kStart + 1s, Effect::kReserve, 200s).reserved);
  EXPECT_EQ(look(window, kStart + 2s, "window", 10).wait, 198s);
  EXPECT_EQ(look(window, kStart + 3s, "window", 10).wait, 97s);
  EXPECT_EQ(look(bucket, kStart + 3s, "bucket", 1).wait, 7s);
}

TEST_F(RedisSlots, WhatIsChargedOnlyIfItFitsIsUndoneOnlyIfItDid) {
  const LiveLimit live(core::compile(sliding_window(3, 100s)));
  const LiveLimit other(core::compile(token_bucket(10, 1)));
  Charge soft = of(live, 2, "soft");
  soft.soft = true;
  ask({soft}, kStart);
  EXPECT_EQ(ask_and_vanish({soft, of(other, 1, "b")}, kStart + 1s).wait, Nanos{0});
  EXPECT_FALSE(noted("soft"));
  EXPECT_EQ(look(live, kStart + 4s, "soft").remaining, 1);
}

TEST_F(RedisSlots, AskingTakesOneCallUnlessANoteMayHaveLapsed) {
  const LiveLimit live(core::compile(sliding_window(10, 100s)));
  const LiveLimit other(core::compile(token_bucket(10, 1)));
  ask_and_vanish({of(live, 1, "a"), of(other, 1, "b")}, Nanos{0});
  redis_.caller.calls = 0;
  // One unit by the clock of Redis: the short form.
  ASSERT_EQ(ask({of(live, 1, "a")}, Nanos{0}).wait, Nanos{0});
  EXPECT_EQ(redis_.caller.calls, 1);
  redis_.caller.ask({"HSET", redis_.store.key_of(base::hash128("a", 1)) + ":p", "e", "1"});
  ASSERT_EQ(ask({of(live, 1, "a")}, Nanos{0}).wait, Nanos{0});
  EXPECT_EQ(redis_.caller.calls, 1 + 3);
  ASSERT_EQ(ask({of(live, 1, "a")}, Nanos{0}).wait, Nanos{0});
  EXPECT_EQ(redis_.caller.calls, 1 + 3 + 1);
}

TEST_F(RedisSlots, NotesEndWithTheirCells) {
  const LiveLimit live(core::compile(sliding_window(10, 100s)));
  const LiveLimit other(core::compile(token_bucket(10, 1)));
  ask_and_vanish({of(live, 1, "a"), of(other, 1, "b")}, Nanos{0});
  const std::string cell = redis_.store.key_of(base::hash128("a", 1));
  const int notes = std::stoi(redis_.caller.ask({"PTTL", cell + ":p"}));
  EXPECT_GE(notes, 100'000);
  EXPECT_LE(notes, 202'000);
}

TEST(RedisSlotsOfACluster, PlansAskedAtOnceChargeEverySlotTheSameAndTheLostOnesNone) {
  RedisCluster cluster(3);
  const auto client = client_for(options_for(cluster.url()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  Doomed doomed(*client);
  RedisStore store(*client, {.prefix = "headgate:", .cluster = true});
  RedisStore lost(doomed, {.prefix = "headgate:", .cluster = true});
  const LiveLimit live(core::compile(must(Limit::quota({60, Period::kYear, "UTC", 0}))));
  std::vector<Charge> plan(4);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    plan[i].key = base::hash128("cell" + std::to_string(i), 1);
    plan[i].limit = &live;
    plan[i].cost = 1;
  }
  constexpr std::size_t kPlans = 200;
  std::vector<std::array<core::Outcome, 4>> outcomes(kPlans);
  std::atomic<std::size_t> answered{0};
  std::atomic<Units> kept{0};
  for (std::size_t i = 0; i < kPlans; ++i) {
    const bool vanishes = i % 10 == 0;
    (vanishes ? lost : store).apply(plan, {.lease = i + 1}, outcomes[i], [&, vanishes](const auto& answer) {
      if (!vanishes && must(answer).applied.wait == Nanos{0}) ++kept;
      ++answered;
    });
  }
  ASSERT_TRUE(eventually([&] { return answered == kPlans; }));
  EXPECT_GT(kept, 0);
  EXPECT_LE(kept, 60);
  const auto left = [&] {
    std::array<core::Outcome, 4> seen;
    std::atomic<bool> told{false};
    store.apply(plan, {.effect = Effect::kNone}, seen, [&](const auto&) { told = true; });
    EXPECT_TRUE(eventually([&] { return told.load(); }));
    std::vector<Units> used;
    for (const core::Outcome& each : seen) used.push_back(60 - 1 - each.remaining);
    return used;
  };
  const std::vector<Units> all(4, kept);
  EXPECT_TRUE(eventually([&] { return left() == all; })) << kept << " " << ::testing::PrintToString(left());
}

}  // namespace
}  // namespace headgate::test
