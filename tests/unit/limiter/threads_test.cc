// Many threads at once. Names contain Concurrent or Thread, by which the ThreadSanitizer build picks them. Threads wait
// for each other by looking at totals(), never by sleeping.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "support/limiters.h"

namespace headgate::test {
namespace {

// Runs `act(index)` in so many threads, all let go at once, and waits for them.
template <class Act>
void in_threads(int count, Act act) {
  std::latch start(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      act(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void until_waiting(const MemoryLimiter& limiter, std::uint64_t count) {
  while (limiter.totals().waiting != count) std::this_thread::yield();
}

class ConcurrentCallers : public testing::TestWithParam<Strategy> {
 protected:
  ManualClock clock_{kStart};
};
INSTANTIATE_TEST_SUITE_P(Limiter, ConcurrentCallers, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(ConcurrentCallers, OnOneKeyGetExactlyTheLimit) {
  for (const int threads : {2, 4, 8}) {
    const auto limiter = make(ten_of(GetParam()), clock_);
    std::atomic<int> admitted{0};
    in_threads(threads, [&](int) {
      for (int i = 0; i < 500; ++i) admitted += limiter->try_acquire("key") ? 1 : 0;
    });
    EXPECT_EQ(admitted, 10);
    EXPECT_EQ(limiter->totals().acquired, 10U);
    EXPECT_EQ(limiter->totals().acquired + limiter->totals().throttled, 500U * static_cast<unsigned>(threads));
  }
}

TEST_P(ConcurrentCallers, OnManyKeysGetExactlyTheLimitOfEach) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  std::vector<std::string> keys;
  for (int i = 0; i < 50; ++i) keys.push_back("key " + std::to_string(i));
  std::vector<std::atomic<int>> admitted(keys.size());
  in_threads(4, [&](int thread) {
    for (std::size_t i = 0; i < 1000; ++i) {
      const std::size_t at = (i * 7 + static_cast<std::size_t>(thread)) % keys.size();
      admitted[at] += limiter->try_acquire(keys[at]) ? 1 : 0;
    }
  });
  for (const auto& count : admitted) EXPECT_EQ(count, 10);
  EXPECT_EQ(limiter->totals().cells, keys.size());
}

TEST_P(ConcurrentCallers, WhoTakeSeveralKeysAtOnceTakeAllOrNothing) {
  const auto limiter = make(ten_of(GetParam()), clock_);
  std::atomic<int> both{0};
  std::atomic<int> single{0};
  in_threads(4, [&](int thread) {
    // In opposite orders, so that locks taken as named would end in a deadlock.
    const std::vector<Request> forth = {{"a", 1}, {"b", 1}, {"c", 1}};
    const std::vector<Request> back = {{"c", 1}, {"b", 1}, {"a", 1}};
    for (int i = 0; i < 300; ++i) {
      both += limiter->try_acquire_all(thread % 2 == 0 ? forth : back) ? 1 : 0;
      single += limiter->try_acquire("b") ? 1 : 0;
    }
  });
  EXPECT_EQ(both + single, 10);
  EXPECT_EQ(limiter->remaining("a"), 10 - both);
  EXPECT_EQ(limiter->remaining("b"), 0);
  EXPECT_EQ(limiter->remaining("c"), 10 - both);
}

TEST_P(ConcurrentCallers, MixEveryCallWithoutExceedingTheLimit) {
  const auto limiter = make(Options().limit(ten_of(GetParam())).clock(clock_).track_keys());
  std::atomic<int> admitted{0};
  in_threads(4, [&](int thread) {
    std::array<Decision, 2> decisions;
    const std::string own = "own " + std::to_string(thread);
    const std::vector<Request> requests = {{"key", 1}, {own, 1}};
    for (int i = 0; i < 200; ++i) {
      (void)limiter->peek("key");
      (void)limiter->statistics("key");
      (void)limiter->reset_time("key");
      limiter->try_acquire_many(requests, decisions);
      admitted += decisions[0] ? 1 : 0;
      Reservation reservation = limiter->reserve("key");
      admitted += reservation.ok() ? 1 : 0;
      limiter->clear("never seen");
      limiter->maintain(10);
      limiter->for_each_key([](std::string_view, std::uint64_t, std::uint64_t) {});
    }
  });
  EXPECT_EQ(admitted, 10);
}

// Long enough that a lost update would show without a sanitizer.
TEST(ConcurrentTokenBucket, HandsOutExactlyItsCapacity) {
  constexpr Units kCapacity = 200'000;
  ManualClock clock(kStart);
  for (const int threads : {2, 4, 8}) {
    const auto limiter = make(token_bucket(kCapacity, 1), clock);
    std::atomic<Units> admitted{0};
    in_threads(threads, [&](int) {
      Units own = 0;
      while (limiter->try_acquire("key")) ++own;
      admitted += own;
    });
    EXPECT_EQ(admitted, kCapacity);
    EXPECT_EQ(limiter->remaining("key"), 0);
  }
}

TEST(ConcurrentChange, OfTheLimitIsSeenWholeOrNotAtAll) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(10, 10), clock);
  std::atomic<bool> stop{false};
  std::atomic<int> odd{0};
  std::thread changer([&] {
    for (int i = 0; i < 60; ++i) {
      EXPECT_TRUE(limiter->set_limit(i % 2 == 0 ? token_bucket(1000, 500) : token_bucket(10, 10), OnChange::kReset));
      std::this_thread::yield();
    }
    stop = true;
  });
  in_threads(2, [&](int) {
    while (!stop) {
      const Decision decision = limiter->try_acquire("key");
      if (decision.limit != 10 && decision.limit != 1000) ++odd;
      if (decision.remaining >= decision.limit) ++odd;
    }
  });
  changer.join();
  EXPECT_EQ(odd, 0);
}

TEST(ConcurrentLeases, NeverExceedTheMaximumWhileTheyComeAndGo) {
  ManualClock clock(kStart);
  const auto limiter = make(concurrency(3), clock);
  std::atomic<int> holding{0};
  std::atomic<int> most{0};
  std::atomic<int> held{0};
  in_threads(6, [&](int) {
    for (int i = 0; i < 500; ++i) {
      const Decision decision = limiter->try_acquire("key");
      if (!decision) continue;
      const int now = ++holding;
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::yield();  // while holding, so that others come and find no room
      --holding;
      ++held;
      EXPECT_TRUE(limiter->release("key", decision.lease));
    }
  });
  EXPECT_LE(most, 3);
  EXPECT_GT(held, 0);
  EXPECT_EQ(limiter->remaining("key"), 3);
}

// The clock never moves, so a wake-up that went missing would leave a thread waiting for ever.
TEST(ConcurrentWaiters, AreWokenByEveryRelease) {
  ManualClock clock(kStart);
  const auto limiter = make(concurrency(2), clock);
  std::atomic<int> holding{0};
  std::atomic<int> most{0};
  std::atomic<int> served{0};
  in_threads(6, [&](int) {
    for (int i = 0; i < 100; ++i) {
      const Decision decision = limiter->acquire("key", {1, 1h, i % 3});
      ASSERT_TRUE(decision.allowed());
      const int now = ++holding;
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      ++served;
      std::this_thread::yield();
      --holding;
      EXPECT_TRUE(limiter->release("key", decision.lease));
    }
  });
  EXPECT_EQ(served, 600);
  EXPECT_LE(most, 2);
  EXPECT_EQ(limiter->remaining("key"), 2);
  EXPECT_EQ(limiter->totals().waiting, 0U);
}

TEST(ConcurrentWaiters, MayBeCancelledWhileTheyAreServed) {
  ManualClock clock(kStart);
  const auto limiter = make(concurrency(1), clock);
  std::atomic<int> answers{0};
  std::atomic<int> cancels{0};
  std::atomic<int> cancelled{0};
  in_threads(4, [&](int) {
    for (int i = 0; i < 200; ++i) {
      const WaitId wait = limiter->acquire_async("key", {1, 1h, 0}, [&](const Decision& decision) {
        ++answers;
        if (decision) limiter->release("key", decision.lease);
        if (decision.reason == Reason::kCancelled) ++cancelled;
      });
      if (i % 2 == 0 && limiter->cancel(wait)) ++cancels;
    }
  });
  until_waiting(*limiter, 0);
  // The last callbacks may still run when the queue is empty.
  while (answers != 800) std::this_thread::yield();
  EXPECT_EQ(answers, 800);
  EXPECT_EQ(cancelled, cancels);
  EXPECT_EQ(limiter->remaining("key"), 1);
}

TEST(WaitingThread, IsServedAfterTheClockHasMoved) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(1, 1), clock);
  ASSERT_TRUE(limiter->try_acquire("key"));
  Decision decision;
  std::thread waiter([&] { decision = limiter->acquire("key", {1, 10s, 0}); });
  until_waiting(*limiter, 1);
  clock.advance(1s);
  waiter.join();
  EXPECT_TRUE(decision.allowed());
  EXPECT_EQ(limiter->totals().waiting, 0U);
}

TEST(WaitingThread, ManyAreServedInOrderOfArrival) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(1, 1), clock);
  ASSERT_TRUE(limiter->try_acquire("key"));
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 5; ++i) {
    waiters.emplace_back([&, i] {
      const Decision decision = limiter->acquire("key", {1, 100s, 0});
      const std::lock_guard guard(mutex);
      if (decision) order.push_back(i);
    });
    until_waiting(*limiter, static_cast<std::uint64_t>(i) + 1);
  }
  for (std::size_t i = 0; i < waiters.size(); ++i) {
    clock.advance(1s);
    waiters[i].join();
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(WaitingThread, TimesOutByTheClockOfTheLimiter) {
  ManualClock clock(kStart);
  const auto limiter = make(concurrency(1), clock);
  ASSERT_TRUE(limiter->try_acquire("key"));
  Decision decision;
  std::thread waiter([&] { decision = limiter->acquire("key", {1, 5s, 0}); });
  until_waiting(*limiter, 1);
  clock.advance(5s);
  waiter.join();
  EXPECT_EQ(decision.reason, Reason::kTimedOut);
}

TEST(WaitingThread, EndsWhenTheLimiterDoes) {
  for (int round = 0; round < 50; ++round) {
    ManualClock clock(kStart);
    auto limiter = make(token_bucket(1, 1), clock);
    ASSERT_TRUE(limiter->try_acquire("key"));
    std::array<Decision, 2> decisions;
    std::thread one([&, raw = limiter.get()] { decisions[0] = raw->acquire("key", {1, 10s, 0}); });
    std::thread two([&, raw = limiter.get()] { decisions[1] = raw->acquire("key", {1, 20s, 0}); });
    until_waiting(*limiter, 2);
    limiter.reset();
    one.join();
    two.join();
    EXPECT_EQ(decisions[0].reason, Reason::kCancelled);
    EXPECT_EQ(decisions[1].reason, Reason::kCancelled);
  }
}

TEST(WaitingThread, IsWokenByClearChangeAndCancel) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(1, 1), clock);
  const auto wait_for = [&](auto act) {
    Reservation taken = limiter->reserve("key");
    EXPECT_TRUE(taken.ok());
    Decision decision;
    std::thread waiter([&] { decision = limiter->acquire("key", {1, 10s, 0}); });
    until_waiting(*limiter, 1);
    act(taken);
    waiter.join();
    limiter->clear("key");
    return decision.allowed();
  };
  EXPECT_TRUE(wait_for([&](Reservation&) { limiter->clear("key"); }));
  EXPECT_TRUE(wait_for([&](Reservation&) { ASSERT_TRUE(limiter->set_limit(token_bucket(1, 1), OnChange::kReset)); }));
  EXPECT_TRUE(wait_for([&](Reservation& taken) { taken.cancel(); }));
}

TEST(WaitingThread, SeesTheWallClockStepIntoTheNextWindow) {
  ManualClock clock(kStart);
  const auto limiter = make(fixed_window(1, 1h), clock);
  ASSERT_TRUE(limiter->try_acquire("key"));
  Decision decision;
  std::thread waiter([&] { decision = limiter->acquire("key", {1, 2h, 0}); });
  until_waiting(*limiter, 1);
  clock.step_wall(1h);
  waiter.join();
  EXPECT_TRUE(decision.allowed());
}

TEST(WaitingThread, WaitsOnTheMachinesClockToo) {
  const auto limiter = make(Options().limit(must(Limit::token_bucket({1, {200, 1s}}))));
  int admitted = 0;
  for (int i = 0; i < 5; ++i) admitted += limiter->acquire("key", {1, 60s, 0}) ? 1 : 0;
  EXPECT_EQ(admitted, 5);
}

TEST(WaitingThread, CallbacksFromTheServingThreadMayCallTheLimiter) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(1, 1), clock);
  ASSERT_TRUE(limiter->try_acquire("key"));
  std::atomic<int> turns{0};
  std::function<void(const Decision&)> again = [&](const Decision& decision) {
    EXPECT_TRUE(decision.allowed());
    (void)limiter->peek("key");
    if (turns < 2) limiter->acquire_async("key", {1, 10s, 0}, again);
    ++turns;
  };
  limiter->acquire_async("key", {1, 10s, 0}, again);
  for (int expected = 1; expected <= 3; ++expected) {
    clock.advance(1s);
    while (turns != expected) std::this_thread::yield();
  }
  EXPECT_EQ(turns, 3);
}

TEST(WaitingThread, ClockMayBeMovedByManyThreadsAtOnce) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(1, 1000), clock);
  std::atomic<int> served{0};
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    while (!stop) clock.advance(1ms);
  });
  in_threads(3, [&](int) {
    for (int i = 0; i < 50; ++i) {
      if (limiter->acquire("key", {1, 1h, 0})) ++served;
    }
  });
  stop = true;
  mover.join();
  EXPECT_EQ(served, 150);
}

}  // namespace
}  // namespace headgate::test
