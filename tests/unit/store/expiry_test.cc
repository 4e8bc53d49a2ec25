// Cells that have become idle go by themselves, and only those; and the cap on cells holds.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "store/memory/memory_store.h"
#include "support/cells.h"

namespace headgate::test {
namespace {

using core::compile;
using core::Outcome;
using store::Applied;
using store::Charge;
using store::Effect;
using store::LiveLimit;
using store::MemoryStore;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

class EveryExpiry : public testing::TestWithParam<Strategy> {
 protected:
  LiveLimit live_{compile(limit_of(GetParam(), {}))};
  static constexpr Nanos kIdle = kStart + 3h;  // whatever was used at kStart has come back by then
};
INSTANTIATE_TEST_SUITE_P(Expiry, EveryExpiry, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EveryExpiry, IdleCellsGoWhenAnotherKeyPassesBy) {
  MemoryStore store({.max_cells = 255, .seed = 7});
  for (std::size_t key = 0; key < 200; ++key) ASSERT_TRUE(take(store, live_, name_of(key), 1, kStart));
  ASSERT_EQ(store.totals().cells, 200U);
  for (int i = 0; i < 10'000; ++i) (void)take(store, live_, "another", 1, kIdle);
  EXPECT_EQ(store.totals().cells, 1U);
  EXPECT_EQ(store.totals().dropped_idle, 200U);
  EXPECT_EQ(store.totals().evicted, 0U);
}

TEST_P(EveryExpiry, MaintainingDropsTheIdleOnesAndNoOther) {
  MemoryStore store({.max_cells = 100'000, .seed = 7});
  for (std::size_t key = 0; key < 3000; ++key) ASSERT_TRUE(take(store, live_, name_of(key), 1, kStart));
  const std::size_t before = store.totals().cells;
  EXPECT_EQ(before, 3000U);
  for (std::size_t key = 0; key < 3000; key += 3) ASSERT_TRUE(take(store, live_, name_of(key), 10, kIdle));
  store.maintain(kAll, kIdle);
  EXPECT_EQ(store.totals().cells, 1000U);
  EXPECT_EQ(store.totals().dropped_idle, 2000U);
  for (std::size_t key = 0; key < 3000; key += 3) {
    ASSERT_EQ(look(store, live_, name_of(key), 0, kIdle).remaining, 0) << key;
  }
  store.maintain(kAll, kIdle + 3h);
  EXPECT_EQ(store.totals().cells, 0U);
  EXPECT_EQ(store.totals().dropped_idle, 3000U);
}

TEST_P(EveryExpiry, AStreamOfKeysUsedOnceDoesNotPileUp) {
  MemoryStore store({.max_cells = 200, .seed = 7});
  // Ten new keys in the time that a cell needs to become idle.
  const Nanos step = GetParam() == Strategy::kQuota ? Nanos{6min} : Nanos{2s};
  Nanos now = kStart;
  for (std::size_t key = 0; key < 20'000; ++key) {
    now += step;
    ASSERT_TRUE(take(store, live_, name_of(key), 1, now));
    ASSERT_LE(store.totals().cells, 100U) << key;
  }
  EXPECT_EQ(store.totals().refused, 0U);
  EXPECT_EQ(store.totals().evicted, 0U);
}

TEST(Expiry, MaintainingInSmallStepsGetsRound) {
  const LiveLimit live(compile(token_bucket(10, 10)));
  MemoryStore store({.max_cells = 100'000, .seed = 7});
  for (std::size_t key = 0; key < 5000; ++key) ASSERT_TRUE(take(store, live, name_of(key), 1, kStart));
  std::size_t cells = store.totals().cells;
  int calls = 0;
  for (; cells > 0 && calls < 10'000; ++calls) {
    store.maintain(50, kStart + 1h);
    ASSERT_LE(store.totals().cells, cells);
    cells = store.totals().cells;
  }
  EXPECT_EQ(cells, 0U);
  EXPECT_GT(calls, 5) << "a small step must not do everything at once";
}

TEST(Expiry, ACellIsNotIdleAtTheInstantAtWhichItIsWhole) {
  // At that very instant a part of a nanosecond may still be missing.
  const LiveLimit live(compile(must(Limit::token_bucket({3, {3, 1s}, 0}))));
  MemoryStore store({.max_cells = 100, .seed = 7});
  ASSERT_TRUE(take(store, live, "key", 1, kStart));
  const Nanos whole = kStart + 333'333'333ns;
  store.maintain(kAll, whole);
  EXPECT_EQ(store.totals().cells, 1U);
  store.maintain(kAll, whole + 1ns);
  EXPECT_EQ(store.totals().cells, 0U);
}

TEST(Expiry, AReleasedKeyGoesAtOnce) {
  const LiveLimit live(compile(concurrency(5, 1h)));
  MemoryStore store({.max_cells = 100, .seed = 7});
  const Charge charge{store.hash("key"), &live, 1, "", true};
  ASSERT_EQ(apply(store, charge, {kStart, kStart, Effect::kCharge, Nanos{0}, 5}).wait, Nanos{0});
  store.maintain(kAll, kStart + 1s);
  EXPECT_EQ(store.totals().cells, 1U);
  EXPECT_TRUE(store.release(charge, 5, kStart + 1s));
  store.maintain(kAll, kStart + 1s);
  EXPECT_EQ(store.totals().cells, 0U);
}

TEST(Expiry, WindowsGoByTheClockThatIsFurtherBehind) {
  // The wall clock was set back: by it the window has not ended, whatever the steady timeline says.
  const LiveLimit live(compile(fixed_window(10, 10s)));
  MemoryStore store({.max_cells = 100, .seed = 7});
  ASSERT_TRUE(take(store, live, "key", 10, kStart));
  for (int i = 0; i < 1000; ++i) {
    const Charge charge{store.hash("another"), &live, 1, "", true};
    (void)apply(store, charge, {kStart + 1h, kStart + 1s, Effect::kCharge, Nanos{0}, 0});
  }
  EXPECT_FALSE(take(store, live, "key", 1, kStart + 2s));
}

TEST(Expiry, ANameGoesWithItsCell) {
  const LiveLimit live(compile(token_bucket(10, 10)));
  MemoryStore store({.max_cells = 1000, .track_keys = true, .seed = 7});
  for (std::size_t key = 0; key < 100; ++key) ASSERT_TRUE(take(store, live, name_of(key), 1, kStart));
  ASSERT_TRUE(take(store, live, name_of(3), 1, kStart + 1h));
  store.maintain(kAll, kStart + 1h);
  std::vector<std::string> names;
  store.for_each_record([&](const store::KeyRecord& record) { names.push_back(record.name); });
  EXPECT_EQ(names, std::vector<std::string>{name_of(3)});
}

// --- The cap
// -----------------------------------------------------------------------------------------------------------

class EveryCap : public EveryExpiry {};
INSTANTIATE_TEST_SUITE_P(Cap, EveryCap, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EveryCap, RefusesNewKeysAndKeepsServingThoseItKnows) {
  MemoryStore store({.max_cells = 50, .at_cap = AtCap::kRefuseNew, .seed = 7});
  for (std::size_t key = 0; key < 50; ++key) ASSERT_TRUE(take(store, live_, name_of(key), 1, kStart)) << key;
  for (std::size_t key = 50; key < 80; ++key) {
    const Charge charge{store.hash(name_of(key)), &live_, 1, "", true};
    const Applied applied = apply(store, charge, {kStart, kStart, Effect::kCharge, Nanos{0}, next_lease()});
    ASSERT_TRUE(applied.store_full);
    ASSERT_EQ(applied.wait, Nanos{0}) << "the limit itself has room";
  }
  EXPECT_EQ(store.totals().cells, 50U);
  EXPECT_EQ(store.totals().refused, 30U);
  EXPECT_EQ(store.totals().evicted, 0U);
  EXPECT_EQ(store.totals().acquired, 50U);
  EXPECT_EQ(store.totals().throttled, 30U);
  for (std::size_t key = 0; key < 50; ++key) {
    ASSERT_EQ(look(store, live_, name_of(key), 0, kStart).remaining, 9);
    ASSERT_TRUE(take(store, live_, name_of(key), 9, kStart));
    ASSERT_FALSE(take(store, live_, name_of(key), 1, kStart));
  }
}

TEST_P(EveryCap, IdleCellsMakeRoomBeforeAnybodyIsRefused) {
  MemoryStore store({.max_cells = 50, .at_cap = AtCap::kRefuseNew, .seed = 7});
  for (std::size_t key = 0; key < 50; ++key) ASSERT_TRUE(take(store, live_, name_of(key), 1, kStart));
  for (std::size_t key = 50; key < 100; ++key) ASSERT_TRUE(take(store, live_, name_of(key), 1, kIdle)) << key;
  EXPECT_EQ(store.totals().refused, 0U);
  EXPECT_EQ(store.totals().dropped_idle, 50U);
  EXPECT_EQ(store.totals().cells, 50U);
}

TEST_P(EveryCap, EvictsWhoIsIdleFirstIfTold) {
  MemoryStore store({.max_cells = 50, .at_cap = AtCap::kEvictOldest, .seed = 7});
  for (std::size_t key = 0; key < 50; ++key) {
    ASSERT_TRUE(take(store, live_, name_of(key), 1, kStart + static_cast<int>(key) * 1ms));
  }
  for (std::size_t key = 50; key < 80; ++key) {
    ASSERT_TRUE(take(store, live_, name_of(key), 1, kStart + static_cast<int>(key) * 1ms)) << key;
    ASSERT_EQ(store.totals().cells, 50U);
  }
  EXPECT_EQ(store.totals().evicted, 30U);
  EXPECT_EQ(store.totals().refused, 0U);
  EXPECT_EQ(store.totals().dropped_idle, 0U);
}

TEST_P(EveryCap, EvictsNobodyWhileThereAreIdleCells) {
  MemoryStore store({.max_cells = 20, .at_cap = AtCap::kEvictOldest, .seed = 7});
  ASSERT_TRUE(take(store, live_, "idle by then", 1, kStart));
  for (std::size_t key = 1; key < 20; ++key) ASSERT_TRUE(take(store, live_, name_of(key), 10, kIdle));
  ASSERT_TRUE(take(store, live_, "new", 1, kIdle));
  EXPECT_EQ(store.totals().evicted, 0U);
  EXPECT_EQ(store.totals().dropped_idle, 1U);
  for (std::size_t key = 1; key < 20; ++key) EXPECT_FALSE(take(store, live_, name_of(key), 1, kIdle));
}

TEST_P(EveryCap, APlanThatFindsNoRoomLeavesNoTrace) {
  MemoryStore store({.max_cells = 3, .at_cap = AtCap::kRefuseNew, .seed = 7});
  ASSERT_TRUE(take(store, live_, "known", 4, kStart));
  ASSERT_TRUE(take(store, live_, "other", 1, kStart));
  const Outcome before = look(store, live_, "known", 1, kStart + 1ms);
  const auto charge = [&](std::string_view name) { return Charge{store.hash(name), &live_, 2, name, true}; };
  const std::array<Charge, 3> plan = {charge("known"), charge("first new"), charge("second new")};
  std::array<Outcome, 3> outcomes;
  const Applied applied =
      store.apply(plan, {kStart + 1ms, kStart + 1ms, Effect::kCharge, Nanos{0}, next_lease()}, outcomes);
  EXPECT_TRUE(applied.store_full);
  EXPECT_TRUE(same(look(store, live_, "known", 1, kStart + 1ms), before));
  EXPECT_EQ(look(store, live_, "first new", 0, kStart + 1ms).remaining, 10);
  EXPECT_EQ(store.totals().cells, 2U) << "the room must still be there for somebody else";
  EXPECT_TRUE(take(store, live_, "third", 1, kStart + 1ms));
}

TEST(Cap, ACapOfOneCellHoldsOneCell) {
  const LiveLimit live(compile(token_bucket(10, 10)));
  MemoryStore store({.max_cells = 1, .at_cap = AtCap::kEvictOldest, .seed = 7});
  for (std::size_t key = 0; key < 100; ++key) {
    ASSERT_TRUE(take(store, live, name_of(key), 1, kStart));
    ASSERT_EQ(store.totals().cells, 1U);
  }
  EXPECT_EQ(store.totals().evicted, 99U);
}

TEST(Cap, SmallAndLargeCellsShareIt) {
  const LiveLimit small(compile(token_bucket(10, 10)));
  const LiveLimit large(compile(sliding_window(10, 10s)));
  MemoryStore store({.max_cells = 10, .at_cap = AtCap::kRefuseNew, .seed = 7});
  for (std::size_t key = 0; key < 5; ++key) ASSERT_TRUE(take(store, small, name_of(key), 1, kStart));
  for (std::size_t key = 0; key < 5; ++key) ASSERT_TRUE(take(store, large, name_of(key), 1, kStart));
  EXPECT_FALSE(take(store, small, "new", 1, kStart));
  EXPECT_FALSE(take(store, large, "new", 1, kStart));
  EXPECT_EQ(store.totals().cells, 10U);
}

RC_GTEST_PROP(Cap, HoldsWhateverComesAndTheCountIsRight, ()) {
  const auto max_cells = *rc::gen::inRange<std::size_t>(1, 40);
  const AtCap at_cap = *rc::gen::element(AtCap::kRefuseNew, AtCap::kEvictOldest);
  const LiveLimit small(compile(token_bucket(10, 10)));
  const LiveLimit large(compile(sliding_window(10, 1s)));
  MemoryStore store({.max_cells = max_cells, .at_cap = at_cap, .seed = 7});
  Nanos now = kStart;
  for (int i = 0; i < 150; ++i) {
    now += Nanos{*rc::gen::inRange<std::int64_t>(0, 100'000'000)};
    const LiveLimit& live = *rc::gen::arbitrary<bool>() ? small : large;
    const std::string key = name_of(*rc::gen::inRange<std::size_t>(0, 60));
    const bool fits = look(store, live, key, 1, now).fits();
    const std::uint64_t refused = store.totals().refused;
    const bool taken = take(store, live, key, 1, now);
    RC_ASSERT(taken == (fits && store.totals().refused == refused));
    if (at_cap == AtCap::kEvictOldest) RC_ASSERT(store.totals().refused == 0U);
    if (*rc::gen::inRange(0, 10) == 0) store.clear({store.hash(key), &live, 0, "", true});
    RC_ASSERT(store.totals().cells <= max_cells);
  }
  store.maintain(kAll, now + 1h);
  RC_ASSERT(store.totals().cells == 0U);
}

TEST(Cap, TheLimiterSaysThatThereAreTooManyKeys) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(token_bucket(10, 10)).clock(clock).max_keys(2).seed(7));
  ASSERT_TRUE(limiter->try_acquire("a"));
  ASSERT_TRUE(limiter->try_acquire("b"));
  const Decision decision = limiter->try_acquire("c");
  EXPECT_EQ(decision.verdict, Verdict::kNotYet);
  EXPECT_EQ(decision.reason, Reason::kTooManyKeys);
  EXPECT_TRUE(limiter->try_acquire("a"));
  EXPECT_EQ(limiter->totals().refused, 1U);
  clock.advance(1h);
  EXPECT_TRUE(limiter->try_acquire("c"));
}

}  // namespace
}  // namespace headgate::test
