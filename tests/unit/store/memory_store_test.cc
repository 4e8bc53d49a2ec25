// The store as a whole: plans are taken all or not at all, and each cell answers as it would on its own.
#include "store/memory/memory_store.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "support/cells.h"
#include "support/draws.h"

namespace headgate::test {
namespace {

using core::compile;
using core::Outcome;
using store::Applied;
using store::Ask;
using store::Charge;
using store::Effect;
using store::LiveLimit;
using store::MemoryStore;

// One live limit per strategy.
class Limits {
 public:
  explicit Limits(const Size& size) {
    for (const Strategy strategy : all_strategies()) {
      lives_.push_back(std::make_unique<LiveLimit>(compile(limit_of(strategy, size))));
    }
  }
  [[nodiscard]] LiveLimit& of(Strategy strategy) const { return *lives_[static_cast<std::size_t>(strategy)]; }

 private:
  std::vector<std::unique_ptr<LiveLimit>> lives_;
};

// What the store must do, done slowly: a map of cells that are never swept, and a plan tried out on copies of them.
class Oracle {
 public:
  struct Part {
    int key;
    Strategy strategy;
    Units cost;
  };
  explicit Oracle(const Limits& limits) : limits_(limits) {}

  bool take(const std::vector<Part>& plan, Nanos now, LeaseId lease) {
    Cells tried = cells_;
    for (const Part& part : plan) {
      if (!cell(tried, part).take(limits_.of(part.strategy).current(), part.cost, now, lease)) return false;
    }
    cells_ = std::move(tried);
    return true;
  }
  [[nodiscard]] Outcome look(int key, Strategy strategy, Units cost, Nanos now) const {
    const auto found = cells_.find({key, strategy});
    const core::CompiledLimit& limit = limits_.of(strategy).current();
    return found == cells_.end() ? BareCell(strategy).judge(limit, cost, now) : found->second.judge(limit, cost, now);
  }

 private:
  using Cells = std::map<std::pair<int, Strategy>, BareCell>;
  static BareCell& cell(Cells& cells, const Part& part) {
    return cells.try_emplace({part.key, part.strategy}, part.strategy).first->second;
  }

  const Limits& limits_;
  Cells cells_;
};

struct Plan {
  std::vector<Charge> charges;
  std::vector<Outcome> outcomes;
};
Plan plan_of(const MemoryStore& store, const Limits& limits, const std::vector<Oracle::Part>& parts) {
  Plan plan;
  for (const auto& part : parts) {
    plan.charges.push_back({store.hash(name_of(part.key)), &limits.of(part.strategy), part.cost, "", true});
  }
  plan.outcomes.resize(parts.size());
  return plan;
}
Applied apply_plan(MemoryStore& store, const Limits& limits, const std::vector<Oracle::Part>& parts, const Ask& ask) {
  Plan plan = plan_of(store, limits, parts);
  return store.apply(plan.charges, ask, plan.outcomes);
}

constexpr int kKeys = 3;

void check_every_cell(MemoryStore& store, const Limits& limits, const Oracle& oracle, Nanos now) {
  for (int key = 0; key < kKeys; ++key) {
    for (const Strategy strategy : all_strategies()) {
      RC_ASSERT(same(look(store, limits.of(strategy), name_of(key), 1, now), oracle.look(key, strategy, 1, now)));
    }
  }
}

// Plans of mixed strategies, keys named twice, costs of nothing and of too much, times that leave cells idle for the
// store to drop: whatever happens, no cell may answer otherwise than one that was never dropped.
RC_GTEST_PROP(MemoryStore, AnswersLikeCellsThatAreNeverDropped, ()) {
  const Size size{*rc::gen::inRange<Units>(1, 8), *rc::gen::element<Nanos>(1s, 10s), *rc::gen::element<Units>(0, 2)};
  const Limits limits(size);
  MemoryStore store({.max_cells = *rc::gen::element<std::size_t>(1000, 100'000), .seed = 7});
  Oracle oracle(limits);
  Nanos now = kStart;
  const int steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    now += *rc::gen::inRange(0, 8) == 0 ? up_to(3h) : up_to(size.window / 3);
    std::vector<Oracle::Part> parts;
    const int length = *rc::gen::inRange(1, 5);
    for (int p = 0; p < length; ++p) {
      parts.push_back({*rc::gen::inRange(0, kKeys), *rc::gen::elementOf(all_strategies()),
                       *rc::gen::inRange<Units>(0, size.limit + 3)});
    }
    const LeaseId lease = next_lease();
    const Applied applied = apply_plan(store, limits, parts, {now, now, Effect::kCharge, Nanos{0}, lease});
    RC_ASSERT(applied.store_full == false);
    RC_ASSERT((applied.wait == Nanos{0}) == oracle.take(parts, now, lease));
    check_every_cell(store, limits, oracle, now);
  }
}

RC_GTEST_PROP(MemoryStore, LookingChangesNothingWhateverTheTime, ()) {
  const Size size{*rc::gen::inRange<Units>(1, 8), 10s, 0};
  const Limits limits(size);
  MemoryStore store({.max_cells = 100, .seed = 7});
  Oracle oracle(limits);
  Nanos now = kStart;
  // Sweeping goes by the number of calls: let any number have been before.
  const int before = *rc::gen::inRange(0, 64);
  for (int i = 0; i < before; ++i) (void)take(store, limits.of(Strategy::kTokenBucket), "another", 1, now);
  const int steps = *rc::gen::inRange(1, 80);
  for (int i = 0; i < steps; ++i) {
    now += up_to(1s);
    const std::vector<Oracle::Part> parts = {
        {*rc::gen::inRange(0, kKeys), *rc::gen::elementOf(all_strategies()), *rc::gen::inRange<Units>(1, 4)}};
    const LeaseId lease = next_lease();
    const Applied applied = apply_plan(store, limits, parts, {now, now, Effect::kCharge, Nanos{0}, lease});
    RC_ASSERT((applied.wait == Nanos{0}) == oracle.take(parts, now, lease));
    // Looks at some other time, often when nearly everything would be idle.
    const Nanos other = *rc::gen::element<Nanos>(0ns, kStart / 2, now + 1h, now + 24h, kMaxTime);
    for (int key = 0; key < kKeys; ++key) {
      for (const Strategy strategy : all_strategies()) {
        (void)look(store, limits.of(strategy), name_of(key), *rc::gen::inRange<Units>(0, 20), other);
      }
    }
    check_every_cell(store, limits, oracle, now);
  }
}

RC_GTEST_PROP(MemoryStore, LookingAheadAtALimitThatHasChangedChangesNothing, ()) {
  const Strategy strategy = *rc::gen::elementOf(all_strategies());
  const Size small{*rc::gen::inRange<Units>(1, 20), 10s, 0};
  const Size large{*rc::gen::inRange<Units>(1, 20), *rc::gen::element<Nanos>(10s, 30s, 2s), 0};
  const OnChange how = *rc::gen::element(OnChange::kKeepFraction, OnChange::kKeepUnits, OnChange::kReset);
  const Units used = *rc::gen::inRange<Units>(1, small.limit + 1);
  // Two stores with the same charges; one of them is also peeked at.
  const auto make = [&](MemoryStore& store, LiveLimit& live) {
    RC_ASSERT(take(store, live, "key", used, kStart));
    store.change(live, compile(limit_of(strategy, large)), how);
  };
  MemoryStore watched({.max_cells = 100, .seed = 7});
  MemoryStore alone({.max_cells = 100, .seed = 7});
  LiveLimit watched_live(compile(limit_of(strategy, small)));
  LiveLimit alone_live(compile(limit_of(strategy, small)));
  make(watched, watched_live);
  make(alone, alone_live);
  for (const Nanos at : {kStart, kStart + 1s, kStart + 1h, kMaxTime}) (void)look(watched, watched_live, "key", 1, at);
  const Nanos now = kStart + up_to(5s);
  for (const Units cost : {Units{0}, Units{1}, large.limit}) {
    RC_ASSERT(same(look(watched, watched_live, "key", cost, now), look(alone, alone_live, "key", cost, now)));
  }
}

class EveryStore : public testing::TestWithParam<Strategy> {
 protected:
  [[nodiscard]] LiveLimit& live() const { return limits_.of(GetParam()); }
  Limits limits_{Size{}};
  MemoryStore store_{{.max_cells = 1000, .seed = 7}};
};
INSTANTIATE_TEST_SUITE_P(MemoryStore, EveryStore, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EveryStore, APlanWithOneDenialLeavesEveryCellAsItWas) {
  // Every other strategy has room, this one has not.
  std::vector<Oracle::Part> parts;
  for (const Strategy strategy : all_strategies()) {
    ASSERT_TRUE(take(store_, limits_.of(strategy), "key-1", 3, kStart));
    parts.push_back({1, strategy, 2});
  }
  ASSERT_TRUE(take(store_, live(), "key-1", 7, kStart));
  std::vector<Outcome> before;
  for (const Strategy strategy : all_strategies()) {
    before.push_back(look(store_, limits_.of(strategy), "key-1", 1, kStart + 1ms));
  }
  const LimiterTotals totals = store_.totals();

  const Applied applied =
      apply_plan(store_, limits_, parts, {kStart + 1ms, kStart + 1ms, Effect::kCharge, Nanos{0}, next_lease()});

  EXPECT_GT(applied.wait, Nanos{0});
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Strategy strategy = all_strategies()[i];
    EXPECT_TRUE(same(look(store_, limits_.of(strategy), "key-1", 1, kStart + 1ms), before[i])) << to_string(strategy);
  }
  EXPECT_EQ(store_.totals().cells, totals.cells);
  EXPECT_EQ(store_.totals().acquired, totals.acquired);
  EXPECT_EQ(store_.totals().throttled, totals.throttled + parts.size());
}

TEST_P(EveryStore, ACellNamedTwiceMustHaveRoomForBoth) {
  const Ask ask{kStart, kStart, Effect::kCharge, Nanos{0}, next_lease()};
  ASSERT_TRUE(take(store_, live(), "key-1", 1, kStart));
  EXPECT_GT(apply_plan(store_, limits_, {{1, GetParam(), 6}, {1, GetParam(), 4}}, ask).wait, Nanos{0}) << "ten of nine";
  EXPECT_EQ(look(store_, live(), "key-1", 0, kStart).remaining, 9);
  EXPECT_EQ(apply_plan(store_, limits_, {{1, GetParam(), 6}, {1, GetParam(), 3}}, ask).wait, Nanos{0});
  EXPECT_EQ(look(store_, live(), "key-1", 0, kStart).remaining, 0);
}

TEST_P(EveryStore, CostsOnOneCellThatTogetherNeverFitAreNever) {
  const Ask ask{kStart, kStart, Effect::kCharge, Nanos{0}, next_lease()};
  EXPECT_EQ(apply_plan(store_, limits_, {{1, GetParam(), 6}, {1, GetParam(), 5}}, ask).wait, kNever);
  EXPECT_EQ(apply_plan(store_, limits_, {{1, GetParam(), 6}, {2, GetParam(), 5}}, ask).wait, Nanos{0});
}

TEST_P(EveryStore, ACostThatCanNeverFitIsNeverEvenNearTheEndOfTheIntegers) {
  constexpr Units kHuge = std::numeric_limits<Units>::max();
  const Ask ask{kStart, kStart, Effect::kCharge, Nanos{0}, next_lease()};
  EXPECT_EQ(apply_plan(store_, limits_, {{1, GetParam(), 11}}, ask).wait, kNever);
  EXPECT_EQ(apply_plan(store_, limits_, {{1, GetParam(), kHuge}}, ask).wait, kNever);
  EXPECT_EQ(apply_plan(store_, limits_, {{1, GetParam(), kHuge}, {1, GetParam(), kHuge}}, ask).wait, kNever);
  EXPECT_EQ(apply_plan(store_, limits_, {{1, GetParam(), 1}, {1, GetParam(), kHuge}}, ask).wait, kNever);
  EXPECT_EQ(look(store_, live(), "key-1", kHuge, kStart).remaining, 10) << "as things stand";
  EXPECT_EQ(store_.totals().cells, 0U);
}

TEST_P(EveryStore, ACostThatCanNeverFitReadsAChangedLimitAsThingsStand) {
  ASSERT_TRUE(take(store_, live(), "key-1", 5, kStart));
  store_.change(live(), compile(limit_of(GetParam(), {.limit = 20})), OnChange::kKeepUnits);
  const Outcome never = look(store_, live(), "key-1", 21, kStart);
  EXPECT_EQ(never.wait, kNever);
  EXPECT_EQ(never.remaining, look(store_, live(), "key-1", 0, kStart).remaining);
}

TEST_P(EveryStore, NothingIsChargedForACostOfNothing) {
  EXPECT_TRUE(take(store_, live(), "key-1", 0, kStart));
  EXPECT_EQ(store_.totals().cells, 0U);
  ASSERT_TRUE(take(store_, live(), "key-1", 10, kStart));
  EXPECT_TRUE(take(store_, live(), "key-1", 0, kStart));
}

TEST_P(EveryStore, AClearedKeyIsAsIfNeverSeen) {
  ASSERT_TRUE(take(store_, live(), "key-1", 10, kStart));
  ASSERT_TRUE(take(store_, live(), "key-2", 10, kStart));
  store_.clear({store_.hash("key-1"), &live(), 0, "", true});
  EXPECT_EQ(store_.totals().cells, 1U);
  EXPECT_EQ(look(store_, live(), "key-1", 0, kStart).remaining, 10);
  EXPECT_EQ(look(store_, live(), "key-2", 0, kStart).remaining, 0);
  store_.clear({store_.hash("never seen"), &live(), 0, "", true});
  EXPECT_EQ(store_.totals().cells, 1U);
}

TEST_P(EveryStore, ARefundGivesBackWhatIsRefunded) {
  ASSERT_TRUE(take(store_, live(), "key-1", 10, kStart));
  store_.refund({store_.hash("key-1"), &live(), 4, "", true}, kStart, kStart);
  store_.refund({store_.hash("never seen"), &live(), 4, "", true}, kStart, kStart);
  // Holds are given back by release, and of a leaky bucket's turns only the last can be.
  const Units back = GetParam() == Strategy::kConcurrency || GetParam() == Strategy::kLeakyBucket ? 0 : 4;
  EXPECT_EQ(look(store_, live(), "key-1", 0, kStart).remaining, back);
  EXPECT_EQ(store_.totals().cells, 1U);
}

TEST_P(EveryStore, AReservationIsTakenAtTheInstantAtWhichItFits) {
  ASSERT_TRUE(take(store_, live(), "key-1", 10, kStart));
  const Outcome later = look(store_, live(), "key-1", 5, kStart);
  const Charge charge{store_.hash("key-1"), &live(), 5, "", true};
  // Five places come free in a leaky bucket before the five that follow have their turn.
  const Nanos patience = GetParam() == Strategy::kLeakyBucket ? later.wait * 2 : later.wait;
  const Applied short_of = apply(store_, charge, {kStart, kStart, Effect::kReserve, patience - 1ns, next_lease()});
  EXPECT_FALSE(short_of.reserved) << "one nanosecond too impatient";
  const Applied applied = apply(store_, charge, {kStart, kStart, Effect::kReserve, patience, next_lease()});
  EXPECT_EQ(applied.wait, later.wait);
  if (GetParam() == Strategy::kConcurrency) {
    EXPECT_FALSE(applied.reserved) << "slots come free when their holders choose";
    EXPECT_EQ(look(store_, live(), "key-1", 1, kStart + 10s).remaining, 9);
    return;
  }
  EXPECT_TRUE(applied.reserved);
  // A later check queues behind it.
  EXPECT_GE(look(store_, live(), "key-1", 1, kStart).wait, later.wait);
  const Outcome then = look(store_, live(), "key-1", 0, kStart + later.wait);
  EXPECT_LE(then.remaining, 5);
}

TEST_P(EveryStore, AReservationThatFitsNowIsAnOrdinaryCharge) {
  const Charge charge{store_.hash("key-1"), &live(), 5, "", true};
  const Applied applied = apply(store_, charge, {kStart, kStart, Effect::kReserve, 1h, next_lease()});
  EXPECT_EQ(applied.wait, Nanos{0});
  EXPECT_FALSE(applied.reserved);
  EXPECT_EQ(look(store_, live(), "key-1", 0, kStart).remaining, 5);
}

TEST(MemoryStore, AReservationOverSeveralCellsWaitsForTheSlowest) {
  const Limits limits(Size{});
  MemoryStore store({.max_cells = 1000, .seed = 7});
  ASSERT_TRUE(take(store, limits.of(Strategy::kTokenBucket), "key-1", 10, kStart));
  ASSERT_TRUE(take(store, limits.of(Strategy::kSlidingWindow), "key-1", 10, kStart));
  const Applied applied = apply_plan(store, limits, {{1, Strategy::kTokenBucket, 1}, {1, Strategy::kSlidingWindow, 1}},
                                     {kStart, kStart, Effect::kReserve, 1h, 0});
  EXPECT_TRUE(applied.reserved);
  EXPECT_EQ(applied.wait, 10s);
  EXPECT_GE(look(store, limits.of(Strategy::kSlidingWindow), "key-1", 1, kStart).wait, 10s);
  EXPECT_FALSE(look(store, limits.of(Strategy::kTokenBucket), "key-1", 10, kStart + 10s).fits());
}

TEST(MemoryStore, ConcurrencyIsHeldByLease) {
  LiveLimit live(compile(concurrency(2, 30s)));
  MemoryStore store({.max_cells = 1000, .seed = 7});
  const Charge charge{store.hash("key"), &live, 1, "", true};
  ASSERT_EQ(apply(store, charge, {kStart, kStart, Effect::kCharge, Nanos{0}, 11}).wait, Nanos{0});
  ASSERT_EQ(apply(store, charge, {kStart, kStart, Effect::kCharge, Nanos{0}, 12}).wait, Nanos{0});
  EXPECT_FALSE(take(store, live, "key", 1, kStart));

  EXPECT_FALSE(store.release(charge, 99, kStart)) << "no such lease";
  EXPECT_TRUE(store.renew(charge, 11, kStart + 20s));
  EXPECT_FALSE(store.renew(charge, 99, kStart + 20s));
  EXPECT_FALSE(store.renew(charge, 12, kStart + 31s)) << "its time had passed";
  EXPECT_EQ(look(store, live, "key", 0, kStart + 31s).remaining, 1) << "the renewed one is still held";
  EXPECT_TRUE(store.release(charge, 11, kStart + 31s));
  EXPECT_FALSE(store.release(charge, 11, kStart + 31s)) << "it had ended";
  EXPECT_EQ(look(store, live, "key", 0, kStart + 31s).remaining, 2);
}

TEST(MemoryStore, ALeaseOnACellNamedTwiceIsReleasedWhole) {
  LiveLimit live(compile(concurrency(10, 30s)));
  MemoryStore store({.max_cells = 1000, .seed = 7});
  const Charge charge{store.hash("key"), &live, 3, "", true};
  const std::array<Charge, 2> twice = {charge, charge};
  std::array<Outcome, 2> outcomes;
  ASSERT_EQ(store.apply(twice, {kStart, kStart, Effect::kCharge, Nanos{0}, 5}, outcomes).wait, Nanos{0});
  EXPECT_EQ(look(store, live, "key", 0, kStart).remaining, 4);
  EXPECT_TRUE(store.release(charge, 5, kStart));
  EXPECT_EQ(look(store, live, "key", 0, kStart).remaining, 10);
}

TEST(MemoryStore, LeasesAreOnlyForConcurrency) {
  const Limits limits(Size{});
  MemoryStore store({.max_cells = 1000, .seed = 7});
  for (const Strategy strategy : all_strategies()) {
    if (strategy == Strategy::kConcurrency) continue;
    const Charge charge{store.hash("key"), &limits.of(strategy), 1, "", true};
    ASSERT_EQ(apply(store, charge, {kStart, kStart, Effect::kCharge, Nanos{0}, 5}).wait, Nanos{0});
    EXPECT_FALSE(store.release(charge, 5, kStart));
    EXPECT_FALSE(store.renew(charge, 5, kStart));
  }
}

TEST(MemoryStore, WindowsFollowTheWallClockAndBucketsDoNot) {
  const Limits limits(Size{});
  MemoryStore store({.max_cells = 1000, .seed = 7});
  for (const Strategy strategy : {Strategy::kFixedWindow, Strategy::kSlidingWindow}) {
    ASSERT_TRUE(take(store, limits.of(strategy), "key", 10, kStart));
    // The wall clock is set forward by an hour.
    const Charge charge{store.hash("key"), &limits.of(strategy), 1, "", true};
    const Applied applied = apply(store, charge, {kStart, kStart + 1h, Effect::kNone, Nanos{0}, 0});
    EXPECT_EQ(applied.wait == Nanos{0}, strategy == Strategy::kFixedWindow) << to_string(strategy);
  }
}

TEST(MemoryStore, CountsACallOnceHoweverManyLimitsItHas) {
  const Limits limits(Size{});
  MemoryStore store({.max_cells = 1000, .seed = 7});
  const std::array<Charge, 2> charges = {
      Charge{store.hash("key"), &limits.of(Strategy::kTokenBucket), 6, "key", true},
      Charge{base::nth(store.hash("key"), 1), &limits.of(Strategy::kSlidingWindow), 6, "key", false}};
  std::array<Outcome, 2> outcomes;
  store.apply(charges, {kStart, kStart, Effect::kCharge, Nanos{0}, 0}, outcomes);
  store.apply(charges, {kStart, kStart, Effect::kCharge, Nanos{0}, 0}, outcomes);
  store.apply(charges, {kStart, kStart, Effect::kNone, Nanos{0}, 0}, outcomes);
  EXPECT_EQ(store.totals().acquired, 1U);
  EXPECT_EQ(store.totals().throttled, 1U);
  EXPECT_EQ(store.totals().cells, 2U);
}

TEST(MemoryStore, KeepsNamesAndTotalsOnlyIfAsked) {
  const Limits limits(Size{});
  MemoryStore plain({.max_cells = 1000, .seed = 7});
  ASSERT_TRUE(take(plain, limits.of(Strategy::kTokenBucket), "key", 1, kStart));
  EXPECT_FALSE(plain.record(plain.hash("key")).has_value());

  MemoryStore tracking({.max_cells = 1000, .track_keys = true, .seed = 7});
  ASSERT_TRUE(take(tracking, limits.of(Strategy::kTokenBucket), "key", 6, kStart));
  EXPECT_FALSE(take(tracking, limits.of(Strategy::kTokenBucket), "key", 6, kStart));
  const auto record = tracking.record(tracking.hash("key"));
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->name, "key");
  EXPECT_EQ(record->acquired, 1U);
  EXPECT_EQ(record->throttled, 1U);
  int visited = 0;
  tracking.for_each_record([&](const store::KeyRecord& each) { visited += each.name == "key" ? 1 : 100; });
  EXPECT_EQ(visited, 1);
  tracking.clear({tracking.hash("key"), &limits.of(Strategy::kTokenBucket), 0, "", true});
  EXPECT_EQ(tracking.record(tracking.hash("key"))->acquired, 0U);
}

enum class Way { kInlined, kOutOfLine };

// try_one() gives up now and then; whichever way a call goes, it must answer the same. How often it did not give up.
template <Strategy kStrategy, Way kWay>
int one_compared(const Limit& limit, Nanos step, Units most_cost) {
  const LiveLimit live(compile(limit));
  MemoryStore fast({.max_cells = 1000, .seed = 7});
  MemoryStore general({.max_cells = 1000, .track_keys = true, .seed = 7});  // with names there is no optimistic way
  int taken_fast = 0;
  std::mt19937_64 random(7);
  Nanos now = kStart;
  for (int i = 0; i < 4000; ++i) {
    // Bursts, pauses, and a clock that goes back.
    const std::uint64_t mood = random() % 64;
    now += mood == 0 ? 40 * step : mood < 4 ? -3 * step : static_cast<std::int64_t>(random() % 3) * step;
    const Units cost = 1 + i % most_cost;
    const std::string name = "key " + std::to_string(random() % 3);
    const Charge charge{general.hash(name), &live, cost, name, true};
    Outcome expected;
    general.apply({&charge, 1}, {now, now, Effect::kCharge, Nanos{0}, 0}, {&expected, 1});
    Outcome outcome;
    bool done = false;
    if constexpr (kWay == Way::kInlined) {
      done = fast.try_one<kStrategy>(charge.key, live, cost, now, outcome);
    } else {
      outcome = fast.try_one(charge.key, live, cost, now, 0, done);
    }
    taken_fast += done ? 1 : 0;
    if (!done) fast.apply({&charge, 1}, {now, now, Effect::kCharge, Nanos{0}, 0}, {&outcome, 1});
    EXPECT_TRUE(same(outcome, expected));
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_EQ(fast.totals().acquired, general.totals().acquired);
  EXPECT_EQ(fast.totals().throttled, general.totals().throttled);
  return taken_fast;
}

TEST(MemoryStore, OneChargeAnswersAlikeOnEveryWay) {
  const Limit bucket = token_bucket(50, 5);
  EXPECT_GT((one_compared<Strategy::kTokenBucket, Way::kInlined>(bucket, 37ms, 7)), 3000);
  EXPECT_GT((one_compared<Strategy::kTokenBucket, Way::kOutOfLine>(bucket, 37ms, 7)), 3000);

  const Limit window = *Limit::sliding_window({20, 1s, 5});
  EXPECT_GT((one_compared<Strategy::kSlidingWindow, Way::kInlined>(window, 10ms, 1)), 3000);
  EXPECT_GT((one_compared<Strategy::kSlidingWindow, Way::kOutOfLine>(window, 10ms, 1)), 3000);
  EXPECT_GT((one_compared<Strategy::kSlidingWindow, Way::kInlined>(window, 30ms, 1)), 2000);
  // Rings of runs with totals are left to the general way.
  (void)one_compared<Strategy::kSlidingWindow, Way::kInlined>(window, 30ms, 3);
}

// Lists of charges of any strategies, some soft, some of a cell named twice, against a store that tracks names and so
// has no optimistic way. What the optimistic way has charged before it fails must leave no trace.
RC_GTEST_PROP(MemoryStoreWays, ChargeListsAnswerAlikeOnBothWays, ()) {
  MemoryStore optimistic({.max_cells = 1000, .seed = 7});
  MemoryStore general({.max_cells = 1000, .track_keys = true, .seed = 7});
  const Limits limits(Size{.limit = *rc::gen::inRange<Units>(3, 9)});
  Nanos now = kStart;
  const int calls = *rc::gen::inRange(1, 120);
  for (int call = 0; call < calls; ++call) {
    now += *rc::gen::element<Nanos>(0ms, 0ms, 1ms, 50ms, 400ms, 3s, -20ms);
    std::vector<Charge> charges;
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
      const auto strategy = static_cast<Strategy>(*rc::gen::inRange(0, 8));
      const std::string key = "key " + std::to_string(*rc::gen::inRange(0, 2));
      Charge charge{general.hash(key), &limits.of(strategy), *rc::gen::element<Units>(1, 1, 1, 2, 3), "", true};
      charge.soft = *rc::gen::element(false, false, false, true);
      // Of a cell named twice no charge is soft: whether the other one needs room for it is the list's order.
      for (Charge& other : charges) {
        if (other.key == charge.key && other.limit == charge.limit) other.soft = charge.soft = false;
      }
      charges.push_back(charge);
    }
    const auto effect = *rc::gen::element(Effect::kCharge, Effect::kCharge, Effect::kReserve);
    const store::Ask ask{now, now, effect, 100ms, static_cast<LeaseId>(call + 1)};
    std::vector<Outcome> got(charges.size());
    std::vector<Outcome> expected(charges.size());
    const store::Applied fast = optimistic.apply(charges, ask, got);
    const store::Applied slow = general.apply(charges, ask, expected);
    RC_ASSERT(fast.wait == slow.wait);
    RC_ASSERT(fast.reserved == slow.reserved);
    for (std::size_t i = 0; i < charges.size(); ++i) RC_ASSERT(same(got[i], expected[i]));
  }
  RC_ASSERT(optimistic.totals().acquired == general.totals().acquired);
  RC_ASSERT(optimistic.totals().throttled == general.totals().throttled);
}

}  // namespace
}  // namespace headgate::test
