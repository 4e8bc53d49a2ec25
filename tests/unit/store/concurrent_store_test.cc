// Threads that meet in the store. ThreadSanitizer runs these too.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "store/memory/memory_store.h"
#include "support/cells.h"

namespace headgate::test {
namespace {

using core::compile;
using core::Outcome;
using store::Ask;
using store::Charge;
using store::Effect;
using store::LiveLimit;
using store::MemoryStore;

constexpr int kThreads = 4;

// Runs the same in several threads that start together.
void together(const std::function<void(int thread)>& act, int threads = kThreads) {
  std::atomic<int> ready{0};
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      ++ready;
      while (ready.load() < threads) std::this_thread::yield();
      act(i);
    });
  }
  for (std::thread& thread : running) thread.join();
}

// Does something over and over, for as long as the work takes.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> act)
      : thread_([this, act = std::move(act)] {
          while (!done_.load()) act();
        }) {}
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

class ConcurrentEvery : public testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Store, ConcurrentEvery, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(ConcurrentEvery, OneKeyIsGivenItsLimitAndNoMore) {
  const LiveLimit live(compile(limit_of(GetParam(), {.limit = 1000})));
  MemoryStore store({.max_cells = 1000, .seed = 7});
  std::atomic<Units> admitted{0};
  together([&](int) {
    for (int i = 0; i < 1000; ++i) admitted += take(store, live, "key", 1, kStart) ? 1 : 0;
  });
  EXPECT_EQ(admitted, 1000);
  EXPECT_EQ(store.totals().acquired, 1000U);
  EXPECT_EQ(store.totals().throttled, 3000U);
}

TEST_P(ConcurrentEvery, ManyKeysAreGivenTheirLimitsAndNoMore) {
  constexpr int kKeys = 50;
  const LiveLimit live(compile(limit_of(GetParam(), {.limit = 20})));
  MemoryStore store({.max_cells = 10'000, .seed = 7});
  std::array<std::atomic<Units>, kKeys> admitted{};
  together([&](int thread) {
    for (int i = 0; i < 2000; ++i) {
      const int key = (i * 7 + thread * 13) % kKeys;
      const Units cost = 1 + i % 3;
      if (take(store, live, name_of(key), cost, kStart)) admitted[static_cast<std::size_t>(key)] += cost;
    }
  });
  for (const auto& units : admitted) EXPECT_EQ(units, 20);
}

TEST_P(ConcurrentEvery, ChangesOfTheLimitAdmitNoMoreThanTheLargest) {
  const core::CompiledLimit small = compile(limit_of(GetParam(), {.limit = 100}));
  const core::CompiledLimit large = compile(limit_of(GetParam(), {.limit = 200}));
  LiveLimit live(small);
  MemoryStore store({.max_cells = 1000, .seed = 7});
  std::array<std::atomic<Units>, 4> admitted{};
  {
    bool grown = false;
    const Meanwhile changing([&] {
      grown = !grown;
      store.change(live, grown ? large : small, OnChange::kKeepUnits);
    });
    together([&](int) {
      for (int i = 0; i < 3000; ++i) {
        const auto key = static_cast<std::size_t>(i) % admitted.size();
        if (take(store, live, name_of(i % 4), 1, kStart)) ++admitted[key];
      }
    });
  }
  // A bucket cannot be more than empty: what was used beyond a smaller one is forgiven when it shrinks.
  const bool bucket =
      GetParam() == Strategy::kTokenBucket || GetParam() == Strategy::kGcra || GetParam() == Strategy::kLeakyBucket;
  for (const auto& units : admitted) {
    EXPECT_GE(units, 100);
    EXPECT_TRUE(bucket || units <= 200) << units;
  }
}

TEST(ConcurrentStore, PlansInOppositeOrdersNeitherLockUpNorComeApart) {
  const LiveLimit bucket(compile(token_bucket(1'000'000, 1)));
  const LiveLimit window(compile(sliding_window(1'000'000, 1h)));
  MemoryStore store({.max_cells = 100'000, .seed = 7});
  const auto charge = [&](int key, const LiveLimit& live) {
    return Charge{store.hash(name_of(key)), &live, 1, "", true};
  };
  // Four cells, in as many shards as they like; always charged together, so they must always hold the same.
  const std::array<Charge, 4> plan = {charge(1, bucket), charge(2, window), charge(3, bucket), charge(4, window)};
  std::atomic<int> uneven{0};
  {
    const Meanwhile watching([&] {
      std::array<Outcome, 4> outcomes;
      store.apply(plan, {kStart, kStart, Effect::kNone, Nanos{0}, 0}, outcomes);
      for (const Outcome& outcome : outcomes) uneven += outcome.remaining == outcomes[0].remaining ? 0 : 1;
    });
    together([&](int thread) {
      std::array<Charge, 4> mine = plan;
      if (thread % 2 == 1) std::reverse(mine.begin(), mine.end());
      if (thread >= 2) std::swap(mine[0], mine[1]);
      std::array<Outcome, 4> outcomes;
      for (int i = 0; i < 2000; ++i) store.apply(mine, {kStart, kStart, Effect::kCharge, Nanos{0}, 0}, outcomes);
    });
  }
  EXPECT_EQ(uneven, 0);
  for (const Charge& each : plan) {
    Outcome outcome;
    Charge nothing = each;
    nothing.cost = 0;
    store.apply({&nothing, 1}, {kStart, kStart, Effect::kNone, Nanos{0}, 0}, {&outcome, 1});
    EXPECT_EQ(outcome.remaining, 1'000'000 - kThreads * 2000);
  }
}

TEST(ConcurrentStore, AScarceCellHoldsBackThePlansThatNeedIt) {
  const LiveLimit plenty(compile(sliding_window(1'000'000, 1h)));
  const LiveLimit scarce(compile(must(Limit::fixed_window({500, 1h}))));
  MemoryStore store({.max_cells = 100'000, .seed = 7});
  std::atomic<Units> admitted{0};
  together([&](int thread) {
    std::array<Charge, 2> plan = {Charge{store.hash("a"), &plenty, 1, "", true},
                                  Charge{store.hash("b"), &scarce, 1, "", true}};
    if (thread % 2 == 1) std::swap(plan[0], plan[1]);
    std::array<Outcome, 2> outcomes;
    for (int i = 0; i < 1000; ++i) {
      if (store.apply(plan, {kStart, kStart, Effect::kCharge, Nanos{0}, 0}, outcomes).wait == Nanos{0}) ++admitted;
    }
  });
  EXPECT_EQ(admitted, 500);
  EXPECT_EQ(look(store, plenty, "a", 0, kStart).remaining, 1'000'000 - 500) << "a denied plan charges nothing";
}

TEST(ConcurrentStore, NeverMoreHoldersThanSlots) {
  const LiveLimit live(compile(concurrency(3, 1h)));
  MemoryStore store({.max_cells = 1000, .seed = 7});
  std::atomic<int> holders{0};
  std::atomic<int> most{0};
  std::atomic<int> lost{0};
  together([&](int) {
    const Charge charge{store.hash("key"), &live, 1, "", true};
    for (int i = 0; i < 3000; ++i) {
      const LeaseId lease = next_lease();
      if (apply(store, charge, {kStart, kStart, Effect::kCharge, Nanos{0}, lease}).wait != Nanos{0}) continue;
      const int now = ++holders;
      for (int seen = most.load(); now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      lost += store.renew(charge, lease, kStart) ? 0 : 1;
      --holders;
      lost += store.release(charge, lease, kStart) ? 0 : 1;
    }
  });
  EXPECT_LE(most, 3);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(look(store, live, "key", 0, kStart).remaining, 3);
}

TEST(ConcurrentStore, TheCapHolds) {
  for (const AtCap at_cap : {AtCap::kRefuseNew, AtCap::kEvictOldest}) {
    const LiveLimit small(compile(token_bucket(10, 1)));
    const LiveLimit large(compile(sliding_window(10, 1h)));
    MemoryStore store({.max_cells = 600, .at_cap = at_cap, .seed = 7});
    together([&](int thread) {
      for (int i = 0; i < 3000; ++i) {
        (void)take(store, i % 2 == 0 ? small : large, name_of(thread * 10'000 + i), 1, kStart);
        if (i % 16 == 0) store.clear({store.hash(name_of(thread * 10'000 + i)), &small, 0, "", true});
      }
    });
    const LimiterTotals totals = store.totals();
    EXPECT_LE(totals.cells, 600U);
    EXPECT_GT(totals.cells, 500U);
    EXPECT_GT(at_cap == AtCap::kRefuseNew ? totals.refused : totals.evicted, 0U);
    // What is counted is what is there.
    store.maintain(std::numeric_limits<std::size_t>::max(), kStart + 24h);
    EXPECT_EQ(store.totals().cells, 0U);
  }
}

TEST(ConcurrentStore, EverythingAtOnce) {
  // Keys that come and become idle, a limit that changes, maintenance, snapshots and onlookers.
  const TempFolder folder;
  LiveLimit bucket(compile(token_bucket(50, 50)));
  LiveLimit window(compile(sliding_window(50, 1s)));
  LiveLimit holds(compile(concurrency(50, 1s)));
  MemoryStore store({.max_cells = 5000, .track_keys = true, .seed = 7});
  std::atomic<std::int64_t> ticks{0};
  std::atomic<int> failed{0};
  const auto now = [&] { return kStart + ticks.load() * 100us; };
  {
    int turn = 0;
    const Meanwhile changing([&] {
      ++turn;
      store.change(bucket, compile(token_bucket(50 + turn % 7, 50)), static_cast<OnChange>(turn % 3));
      store.change(window, compile(sliding_window(50 + turn % 5, 1s + turn % 2 * 1s)), static_cast<OnChange>(turn % 3));
    });
    const Meanwhile saving([&] { failed += store.save(folder.file("cells"), "meta", now()) ? 0 : 1; });
    const Meanwhile maintaining([&] {
      store.maintain(500, now());
      (void)store.totals();
      store.for_each_record([](const store::KeyRecord&) {});
    });
    together([&](int thread) {
      std::array<Outcome, 3> outcomes;
      for (int i = 0; i < 3000; ++i) {
        ++ticks;
        const std::string key = name_of((i * 31 + thread) % 300);
        const LeaseId lease = next_lease();
        const std::array<Charge, 3> plan = {Charge{store.hash(key), &bucket, 1, key, true},
                                            Charge{store.hash(key), &window, 1, key, false},
                                            Charge{store.hash(key), &holds, 1, key, false}};
        const Ask ask{now(), now(), static_cast<Effect>(i % 3), 1s, lease};
        store.apply(plan, ask, outcomes);
        if (i % 3 == 0) store.release(plan[2], lease, now());
        if (i % 5 == 0) store.refund(plan[0], now(), now());
        if (i % 50 == 0) store.clear(plan[i % 3]);
        store.prefetch(std::array{store.hash(key)}, Strategy::kTokenBucket);
      }
    });
  }
  EXPECT_EQ(failed, 0);
  MemoryStore restored({.max_cells = 5000, .seed = 9});
  const auto count = restored.restore(folder.file("cells"), kStart, [](std::string_view) { return Result<void>(); });
  ASSERT_TRUE(count) << count.error().message;
  store.maintain(std::numeric_limits<std::size_t>::max(), kStart + 24h);
  EXPECT_EQ(store.totals().cells, 0U);
}

TEST(ConcurrentStore, TwoSavesOfOneFileLeaveOneWholeFile) {
  const TempFolder folder;
  const LiveLimit live(compile(token_bucket(10, 1)));
  MemoryStore few({.max_cells = 100'000, .seed = 7});
  MemoryStore many({.max_cells = 100'000, .seed = 7});
  for (int key = 0; key < 10; ++key) ASSERT_TRUE(take(few, live, name_of(key), 1, kStart));
  for (int key = 0; key < 2000; ++key) ASSERT_TRUE(take(many, live, name_of(key), 1, kStart));
  std::atomic<int> failed{0};
  together([&](int thread) {
    for (int i = 0; i < 10; ++i) {
      failed += (thread % 2 == 0 ? few : many).save(folder.file("cells"), "", kStart) ? 0 : 1;
    }
  });
  EXPECT_EQ(failed, 0);
  MemoryStore restored({.max_cells = 100'000, .seed = 9});
  const auto count = restored.restore(folder.file("cells"), kStart, [](std::string_view) { return Result<void>(); });
  ASSERT_TRUE(count) << count.error().message;
  EXPECT_TRUE(*count == 10 || *count == 2000) << *count;
  EXPECT_FALSE(std::filesystem::exists(folder.file("cells.new")));
}

TEST(ConcurrentStore, TheFastWayNeverAdmitsTooMuchEither) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(1000, 1), clock);
  std::atomic<int> admitted{0};
  together([&](int) {
    for (int i = 0; i < 2000; ++i) admitted += limiter->try_acquire("key") ? 1 : 0;
  });
  EXPECT_EQ(admitted, 1000);
  EXPECT_EQ(limiter->totals().acquired, 1000U);
}

TEST(ConcurrentStore, WhoeverHoldsNoLockSeesEachGenerationOfALimitWhole) {
  // Of each the window is as many seconds as there are units.
  const auto of = [](int n) { return compile(sliding_window(n % 50 + 1, (n % 50 + 1) * 1s)); };
  const auto whole = [](const core::CompiledLimit& limit) {
    return limit.numbers.log.window == limit.limit * Nanos{1s} && limit.most == limit.limit;
  };
  MemoryStore store({.seed = 1});
  LiveLimit live(of(0));
  std::atomic<bool> ended{false};
  std::atomic<int> torn{0};
  together([&](int thread) {
    if (thread == 0) {
      for (int i = 1; i < 2'000; ++i) store.change(live, of(i), OnChange::kKeepFraction);
      ended = true;
      return;
    }
    while (!ended) {
      if (!whole(live.current())) ++torn;
      const LiveLimit copy(live);
      std::uint32_t generation = copy.generation();
      for (; copy.remembers(generation); --generation) {
        if (copy.entry(generation).limit.limit != generation % 50 + 1 || !whole(copy.entry(generation).limit)) ++torn;
        if (generation == 0) break;
      }
    }
  });
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace headgate::test
