// What a store in Redis does beyond answering as the one in memory: keys, their size and their end, changed limits, and
// what it finds there that is not its own.
#include "store/redis/redis_store.h"

#include <gtest/gtest.h>

#include <deque>

#include "support/both_stores.h"

namespace headgate::test {
namespace {

using store::Ask;
using store::Charge;
using store::Effect;
using store::LiveLimit;

Charge charge_of(const LiveLimit& live, Units cost = 1, std::string_view name = "key") {
  Charge charge;
  charge.key = base::hash128(name, 1);
  charge.limit = &live;
  charge.cost = cost;
  return charge;
}

core::Outcome charge(RedisCells& redis, const Charge& what, Nanos now, Effect effect = Effect::kCharge) {
  core::Outcome outcome;
  redis.apply({&what, 1}, {now, now, effect, Nanos{0}, next_lease()}, {&outcome, 1});
  return outcome;
}

std::string name_of(const RedisCells& redis, const Charge& what) { return redis.store.key_of(what.key); }

TEST(RedisStore, NamesACellByPrefixAndHash) {
  RedisCells redis({.prefix = "shop:"});
  EXPECT_EQ(redis.store.key_of({0, 0}), "shop:c:{AAAAAAAAAAAAAAAAAAAAAA}");
  EXPECT_EQ(redis.store.key_of({~std::uint64_t{0}, ~std::uint64_t{0}}), "shop:c:{_____________________w}");
  EXPECT_EQ(redis.store.key_of({1, std::uint64_t{1} << 63}), "shop:c:{gAAAAAAAAAAAAAAAAAAAAQ}");
}

TEST(RedisStore, TakesOneRoundTripForAPlan) {
  RedisCells redis;
  std::deque<LiveLimit> limits;
  std::vector<Charge> charges;
  for (const Strategy strategy : all_strategies()) {
    limits.emplace_back(core::compile(limit_of(strategy, {})));
    charges.push_back(charge_of(limits.back(), 1, to_string(strategy)));
  }
  std::vector<core::Outcome> outcomes(charges.size());
  redis.apply(charges, {Nanos{0}, Nanos{0}, Effect::kCharge, Nanos{0}, 1}, outcomes);
  EXPECT_EQ(redis.caller.calls, 1);
  for (const core::Outcome& outcome : outcomes) EXPECT_EQ(outcome.remaining, 9);
}

TEST(RedisStore, KeepsAWindowOfOneHundredInHalfOfWhatASortedSetTakes) {
  RedisCells redis;
  LiveLimit live(core::compile(sliding_window(100, 60s)));
  for (int i = 0; i < 120; ++i) charge(redis, charge_of(live), Nanos{0});
  EXPECT_EQ(charge(redis, charge_of(live), Nanos{0}, Effect::kNone).remaining, 0);
  EXPECT_LE(std::stoi(redis.caller.ask({"MEMORY", "USAGE", name_of(redis, charge_of(live))})), 1093);
}

TEST(RedisStore, KeepsALargeWindowInTwelveBytesAUnit) {
  RedisCells redis;
  LiveLimit live(core::compile(sliding_window(1000, 60s)));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(charge(redis, charge_of(live), kStart + i * 1us).fits()) << i;
  const core::Outcome denied = charge(redis, charge_of(live), kStart + 2ms);
  EXPECT_EQ(denied.wait, 60s - 2ms);
  EXPECT_LE(std::stoi(redis.caller.ask({"MEMORY", "USAGE", name_of(redis, charge_of(live))})), 12'000);
  // All but the last have left.
  EXPECT_EQ(charge(redis, charge_of(live), kStart + 60s + 998us).remaining, 998);
}

TEST(RedisStore, LetsIdleKeysVanish) {
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(to_string(strategy));
    RedisCells redis;
    LiveLimit live(core::compile(limit_of(strategy, {10, 10s})));
    charge(redis, charge_of(live), Nanos{0});
    charge(redis, charge_of(live), Nanos{0});
    const long left_ms = std::stol(redis.caller.ask({"PTTL", name_of(redis, charge_of(live))}));
    EXPECT_GT(left_ms, 1000);
    EXPECT_LE(left_ms, 2 * 3'600'000 + 2000);
  }
}

TEST(RedisStore, KeepsTheTtlOfAKeyWhileItReachesFarEnough) {
  RedisCells redis;
  LiveLimit live(core::compile(limit_of(Strategy::kSlidingWindow, {10, 1000s})));
  charge(redis, charge_of(live), Nanos{0});
  redis.caller.ask({"PEXPIRE", name_of(redis, charge_of(live)), "5000000"});
  charge(redis, charge_of(live), Nanos{0});
  EXPECT_GT(std::stol(redis.caller.ask({"PTTL", name_of(redis, charge_of(live))})), 4'000'000);
}

TEST(RedisStore, CarriesAChangedLimitOverAsTheMemoryStoreDoes) {
  for (const Strategy strategy : all_strategies()) {
    for (const OnChange how : {OnChange::kKeepFraction, OnChange::kKeepUnits, OnChange::kReset}) {
      SCOPED_TRACE(std::string(to_string(strategy)) + " " + std::to_string(static_cast<int>(how)));
      // What is held in Redis stays held: others hold it too.
      if (strategy == Strategy::kConcurrency && how == OnChange::kReset) continue;
      store::MemoryStore memory({.seed = 1});
      RedisCells redis;
      LiveLimit live(core::compile(limit_of(strategy, {10, 10s})));
      const auto both = [&](Units cost, Nanos now) {
        const Charge what = charge_of(live, cost);
        core::Outcome here;
        memory.apply({&what, 1}, {now, now, Effect::kCharge, Nanos{0}, next_lease()}, {&here, 1});
        const core::Outcome there = charge(redis, what, now);
        EXPECT_TRUE(same(there, here)) << "redis  " << describe(there) << "\nmemory " << describe(here);
      };
      for (int i = 0; i < 3; ++i) both(1, kStart + i * 1ms);
      both(2, kStart + 5ms);
      memory.change(live, core::compile(limit_of(strategy, {40, 20s})), how);
      both(1, kStart + 7ms);
      both(3, kStart + 8ms);
      memory.change(live, core::compile(limit_of(strategy, {7, 5s, 2})), how);
      memory.change(live, core::compile(limit_of(strategy, {14, 5s, 2})), how);
      both(1, kStart + 9ms);
      both(1, kStart + 2s);
    }
  }
}

TEST(RedisStore, TakesACellOfUnknownNumbersAsItStandsAndAsksOnceOnly) {
  for (const Strategy strategy : all_strategies()) {
    if (strategy == Strategy::kConcurrency) continue;  // what is held is held
    SCOPED_TRACE(to_string(strategy));
    RedisCells redis;
    LiveLimit theirs(core::compile(limit_of(strategy, {10, 10s})));
    LiveLimit ours(core::compile(limit_of(strategy, {20, 20s})));
    for (int i = 0; i < 4; ++i) charge(redis, charge_of(theirs), kStart);
    charge(redis, charge_of(ours), kStart);
    redis.caller.calls = 0;
    EXPECT_EQ(charge(redis, charge_of(ours), kStart).remaining, 14);
    EXPECT_EQ(redis.caller.calls, 1);
    // It stays theirs, so they need not carry it over.
    EXPECT_EQ(charge(redis, charge_of(theirs), kStart).remaining, 3);
    EXPECT_EQ(redis.caller.calls, 2);
  }
}

TEST(RedisStore, RefundsACellOfOtherNumbersThoughItsLimitIsGoneMeanwhile) {
  store::MemoryStore memory({.seed = 1});
  RedisCells redis;
  LiveLimit live(core::compile(limit_of(Strategy::kFixedWindow, {10, 10s})));
  for (int i = 0; i < 4; ++i) charge(redis, charge_of(live), kStart);
  memory.change(live, core::compile(limit_of(Strategy::kFixedWindow, {20, 10s})), OnChange::kKeepFraction);
  redis.refund(charge_of(live, 2), kStart, kStart + 1ms);
  EXPECT_EQ(charge(redis, charge_of(live), kStart + 1ms, Effect::kNone).remaining, 20 - 6 - 1);
}

TEST(RedisStore, NamesAKeyThatIsNotItsOwnAndChargesNothing) {
  for (const Strategy strategy : all_strategies()) {
    for (const bool text : {true, false}) {
      SCOPED_TRACE(std::string(to_string(strategy)) + (text ? " text" : " hash"));
      RedisCells redis;
      LiveLimit good(core::compile(limit_of(Strategy::kTokenBucket, {})));
      LiveLimit live(core::compile(limit_of(strategy, {})));
      const Charge bad = charge_of(live, 1, "foreign");
      if (text) {
        redis.caller.ask({"SET", name_of(redis, bad), std::string(200, 'x')});
      } else {
        redis.caller.ask({"HSET", name_of(redis, bad), "a", "b"});
      }
      const std::array<Charge, 2> plan{charge_of(good), bad};
      std::array<core::Outcome, 2> outcomes;
      const auto answer = redis.try_apply(plan, {kStart, kStart, Effect::kCharge, Nanos{0}, 1}, outcomes);
      ASSERT_FALSE(answer);
      EXPECT_EQ(answer.error().code, ErrorCode::kCorrupt);
      EXPECT_NE(answer.error().message.find(name_of(redis, bad)), std::string::npos) << answer.error().message;
      EXPECT_EQ(charge(redis, charge_of(good), kStart, Effect::kNone).remaining, 9);
    }
  }
}

TEST(RedisStore, RefusesAWindowTooLargeToBeCountedThere) {
  RedisCells redis;
  LiveLimit live(core::compile(sliding_window(Units{1} << 50, 1s)));
  const Charge what = charge_of(live);
  core::Outcome outcome;
  const auto answer = redis.try_apply({&what, 1}, {kStart, kStart}, {&outcome, 1});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message,
            "a sliding_window counted in Redis must be of at most 140737488355328 units and 2 years, got "
            "1125899906842624 units in 0 days");
}

TEST(RedisStore, LooksUpThePeriodThatRedisIsIn) {
  RedisCells redis;
  LiveLimit live(core::compile(must(Limit::quota({2, Period::kHour, "Europe/Berlin"}))));
  const Ask reserve{kStart, kStart, Effect::kReserve, 5h, 1};
  const Charge what = charge_of(live, 2);
  core::Outcome outcome;
  // Each takes an hour of its own, further ahead than the periods sent with the call.
  for (int hour = 0; hour < 5; ++hour) {
    const store::Applied applied = redis.apply({&what, 1}, reserve, {&outcome, 1});
    EXPECT_EQ(applied.wait, hour * 1h);
  }
}

TEST(RedisStore, WidensAWindowWhenAChargeIsOfSeveralUnits) {
  store::MemoryStore memory({.seed = 1});
  RedisCells redis;
  LiveLimit live(core::compile(sliding_window(300, 10s)));
  Nanos now = kStart;
  for (int i = 0; i < 700; ++i) {
    const Charge what = charge_of(live, i == 100 ? 7 : i > 400 && i % 50 == 0 ? 3 : 1);
    core::Outcome here;
    memory.apply({&what, 1}, {now, now}, {&here, 1});
    const core::Outcome there = charge(redis, what, now);
    ASSERT_TRUE(same(there, here)) << i << "\nredis  " << describe(there) << "\nmemory " << describe(here);
    now += i % 3 == 0 ? 0us : 41'123us;
  }
}

// Keeps what it is told until it is let go, as a server far away does.
class SlowCaller final : public store::redis::Caller {
 public:
  explicit SlowCaller(store::redis::Caller& caller) : caller_(caller) {}
  void call(store::redis::Command command, Done done) override {
    held.emplace_back(std::move(command), std::move(done));
  }
  void let_go() {
    auto [command, done] = std::move(held.front());
    held.pop_front();
    caller_.call(std::move(command), std::move(done));
  }
  std::deque<std::pair<store::redis::Command, Done>> held;

 private:
  store::redis::Caller& caller_;
};

TEST(RedisStore, GathersWhatIsAskedWhileOthersAreOnTheirWay) {
  RedisCells redis;
  SlowCaller slow(redis.caller);
  store::redis::RedisStore far(slow, {});
  std::deque<LiveLimit> limits;
  for (const Strategy strategy : all_strategies()) limits.emplace_back(core::compile(limit_of(strategy, {100, 100s})));
  constexpr std::size_t kPlans = 40;
  std::vector<std::array<Charge, 2>> plans(kPlans);
  std::vector<std::array<core::Outcome, 2>> outcomes(kPlans);
  std::vector<int> answers(kPlans);
  for (std::size_t i = 0; i < kPlans; ++i) {
    const LiveLimit& first = limits[i % limits.size()];
    plans[i] = {charge_of(first, 1, to_string(first.strategy())), charge_of(limits[2], 1, "all")};
    // Every third is a plan of one, and so of the short form.
    const std::span<const Charge> plan = std::span(plans[i]).subspan(i % 3 == 0 ? 1 : 0);
    far.apply(plan, {Nanos{0}, Nanos{0}, Effect::kCharge, Nanos{0}, i + 1}, outcomes[i],
              [&answers, i](const auto& answer) {
                EXPECT_EQ(must(answer).applied.wait, Nanos{0});
                ++answers[i];
              });
  }
  EXPECT_EQ(slow.held.size(), store::redis::ChargeQueue::kMaxInFlight + 2);
  int calls = 0;
  for (; !slow.held.empty(); ++calls) slow.let_go();
  // Some alone, and then sixteen at a time.
  EXPECT_EQ(calls, static_cast<int>(store::redis::ChargeQueue::kMaxInFlight) + 2);
  for (std::size_t i = 0; i < kPlans; ++i) {
    EXPECT_EQ(answers[i], 1) << i;
    EXPECT_EQ(outcomes[i][i % 3 == 0 ? 0 : 1].remaining, 100 - 1 - static_cast<Units>(i)) << i;
  }
}

TEST(RedisStore, KnowsHowFarTheClockOfRedisIsFromOurs) {
  RedisCells redis;
  LiveLimit live(core::compile(token_bucket(10, 1)));
  charge(redis, charge_of(live), Nanos{0});
  EXPECT_LT(std::chrono::abs(redis.store.clock_offset()), 10s);  // the same machine
}

}  // namespace
}  // namespace headgate::test
