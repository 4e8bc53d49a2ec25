// Charge lists that Redis runs after the check was answered without it: nothing of them may stay charged.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <future>

#include "store/redis/client.h"
#include "support/both_stores.h"
#include "support/redis_calls.h"

namespace headgate::test {
namespace {

using store::Charge;
using store::Effect;
using store::LiveLimit;
using store::redis::RedisStore;

Charge late_charge(const LiveLimit& live, Units cost, std::string_view name) {
  Charge charge;
  charge.key = base::hash128(name, 1);
  charge.limit = &live;
  charge.cost = cost;
  return charge;
}

// Every strategy on its own, then all of them as one plan.
class LatePlans {
 public:
  LatePlans() {
    for (const Strategy strategy : all_strategies()) {
      limits_.emplace_back(core::compile(limit_of(strategy, {10, 1000s})));
      all_.push_back(late_charge(limits_.back(), 1, to_string(strategy)));
    }
    for (const Charge& charge : all_) plans.push_back({charge});
    plans.push_back(all_);
  }
  // What is left to each of them.
  std::vector<Units> remaining(RedisStore& store) const {
    std::vector<Units> left;
    for (const Charge& charge : all_) {
      core::Outcome outcome;
      Charge look = charge;
      look.cost = 0;
      std::promise<void> answered;
      store.apply({&look, 1}, {Nanos{0}, Nanos{0}, Effect::kNone}, {&outcome, 1}, [&](const auto& answer) {
        must(answer);
        answered.set_value();
      });
      answered.get_future().wait();
      left.push_back(outcome.remaining);
    }
    return left;
  }

  std::vector<std::vector<Charge>> plans;

 private:
  std::deque<LiveLimit> limits_;
  std::vector<Charge> all_;
};

TEST(RedisLate, WhatRanIntoItsDeadlineIsNotChargedWhenRedisComesToIt) {
  RedisServer server;
  redis::Options options = options_for(server.url());
  options.deadline = 100ms;
  std::unique_ptr<redis::Client> client = client_for(options);
  RedisStore store(*client, {});
  ASSERT_TRUE(client->wait_until_up(10s));
  const LatePlans late;
  ASSERT_TRUE(eventually([&] {  // once the script is known there
    const Charge look = late_charge(*late.plans[0][0].limit, 0, "look");
    core::Outcome outcome;
    std::promise<bool> answered;
    store.apply({&look, 1}, {Nanos{0}, Nanos{0}, Effect::kNone}, {&outcome, 1},
                [&](const auto& answer) { answered.set_value(answer.has_value()); });
    return answered.get_future().get();
  }));
  server.stop();
  std::deque<std::promise<bool>> answers;
  std::vector<std::vector<core::Outcome>> outcomes;
  outcomes.reserve(late.plans.size());
  for (const std::vector<Charge>& plan : late.plans) {
    auto& answered = answers.emplace_back();
    store.apply(plan, {Nanos{0}, Nanos{0}, Effect::kCharge, Nanos{0}, next_lease()}, outcomes.emplace_back(plan.size()),
                [&answered](const auto& answer) { answered.set_value(answer.has_value()); });
  }
  for (std::promise<bool>& answered : answers) EXPECT_FALSE(answered.get_future().get());
  server.cont();
  // One connection, if it lasted: its commands are done in their order. A new one was greeted after the old was read.
  ASSERT_TRUE(eventually([&] { return ask(*client, {"PING"}).text == "PONG"; }));
  EXPECT_EQ(server.ask({"DBSIZE"}), "0");
  client.reset();
}

// Says that there was no answer, and then has it all the same.
class LateCaller final : public store::redis::Caller {
 public:
  explicit LateCaller(store::redis::Caller& caller) : caller_(caller) {}
  void call(store::redis::Command command, Done done) override {
    if (!is_late || !command.hear_late) return caller_.call(std::move(command), std::move(done));
    done(Error{ErrorCode::kIo, "no answer in time", true});
    caller_.call(std::move(command), std::move(done));
  }
  bool is_late = false;

 private:
  store::redis::Caller& caller_;
};

TEST(RedisLate, WhatTurnsOutToHaveBeenChargedComesBack) {
  RedisCells redis;
  LateCaller caller(redis.caller);
  RedisStore store(caller, {});
  const LatePlans late;
  const auto ask = [&](std::vector<Charge> plan) {
    std::vector<core::Outcome> outcomes(plan.size());
    bool admitted = false;
    store.apply(plan, {Nanos{0}, Nanos{0}, Effect::kCharge, Nanos{0}, next_lease()}, outcomes,
                [&](const auto& answer) { admitted = answer.has_value(); });
    return admitted;
  };
  EXPECT_TRUE(ask(late.plans.back()));
  const std::vector<Units> before = late.remaining(store);
  caller.is_late = true;
  for (const std::vector<Charge>& plan : late.plans) EXPECT_FALSE(ask(plan));
  caller.is_late = false;
  EXPECT_EQ(late.remaining(store), before);
}

TEST(RedisLate, WhatHadNoRoomOrWasOnlyLookedAtGivesNothingBack) {
  RedisCells redis;
  LateCaller caller(redis.caller);
  RedisStore store(caller, {});
  LiveLimit live(core::compile(limit_of(Strategy::kFixedWindow, {10, 1000s})));
  const auto ask = [&](Units cost, Effect effect) {
    const Charge what = late_charge(live, cost, "key");
    core::Outcome outcome;
    store.apply({&what, 1}, {Nanos{0}, Nanos{0}, effect}, {&outcome, 1}, [](const auto&) {});
    return outcome.remaining;
  };
  ask(8, Effect::kCharge);
  caller.is_late = true;
  ask(3, Effect::kCharge);
  ask(1, Effect::kNone);
  ask(11, Effect::kCharge);
  caller.is_late = false;
  EXPECT_EQ(ask(0, Effect::kNone), 2);
}

// Keeps what it is told until it is let go: in time, or as if the clock of Redis were far ahead of ours.
class Ahead final : public store::redis::Caller {
 public:
  explicit Ahead(store::redis::Caller& caller) : caller_(caller) {}
  void call(store::redis::Command command, Done done) override {
    held.emplace_back(std::move(command), std::move(done));
  }
  void let_go(bool ahead = false) {
    auto [command, done] = std::move(held.front());
    held.pop_front();
    const std::string_view before_instant = "$16\r\n";  // in microseconds
    if (ahead) command.wire.replace(command.wire.find(before_instant) + before_instant.size(), 16, 16, '0');
    caller_.call(std::move(command), std::move(done));
  }
  [[nodiscard]] Nanos deadline() const noexcept override { return 1h; }
  std::deque<std::pair<store::redis::Command, Done>> held;

 private:
  store::redis::Caller& caller_;
};

TEST(RedisLate, WhoTookTheClockOfRedisForAnotherAsksAgainAndIsChargedOnce) {
  RedisCells redis;
  Ahead caller(redis.caller);
  RedisStore store(caller, {});
  LiveLimit live(core::compile(sliding_window(100, 1000s)));
  const Charge what = late_charge(live, 1, "key");
  constexpr std::size_t kAlone = store::redis::ChargeQueue::kMaxInFlight;
  // The last of them in one call, which they do not fill: so it waits for an answer.
  constexpr std::size_t kPlans = kAlone + store::redis::ChargeQueue::kMaxTogether - 1;
  std::array<core::Outcome, kPlans> outcomes;
  std::size_t admitted = 0;
  for (core::Outcome& outcome : outcomes) {
    store.apply({&what, 1}, {Nanos{0}, Nanos{0}, Effect::kCharge}, {&outcome, 1},
                [&](const auto& answer) { admitted += must(answer).applied.wait == Nanos{0} ? 1 : 0; });
  }
  ASSERT_EQ(caller.held.size(), kAlone);
  caller.let_go(true);
  EXPECT_EQ(admitted, 0u);
  for (std::size_t i = 1; i < kAlone; ++i) caller.let_go();
  EXPECT_EQ(admitted, kAlone - 1);
  caller.let_go(true);  // the others
  EXPECT_EQ(admitted, kAlone - 1);
  while (!caller.held.empty()) caller.let_go();
  EXPECT_EQ(admitted, kPlans);
  const Charge look = late_charge(live, 0, "key");
  core::Outcome outcome;
  store.apply({&look, 1}, {Nanos{0}, Nanos{0}, Effect::kNone}, {&outcome, 1}, [](const auto&) {});
  caller.let_go();
  EXPECT_EQ(outcome.remaining, 100 - static_cast<Units>(kPlans));
}

}  // namespace
}  // namespace headgate::test
