#include "headgate/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace headgate {
namespace {

using namespace std::chrono_literals;

class Counter final : public ClockListener {
 public:
  void clock_moved() noexcept override { ++moves; }
  std::atomic<int> moves{0};
};

TEST(ManualClock, StandsStillUntilItIsTold) {
  ManualClock clock(5s);
  EXPECT_EQ(clock.now(), 5s);
  EXPECT_EQ(clock.now(), 5s);
  clock.advance(1ns);
  EXPECT_EQ(clock.now(), 5s + 1ns);
  clock.set(2s);
  EXPECT_EQ(clock.now(), 2s) << "it may be set back";
  EXPECT_EQ(ManualClock().now(), 0s);
}

TEST(ManualClock, WallClockStepsWithoutMovingTime) {
  ManualClock clock(5s);
  EXPECT_EQ(clock.wall(clock.now()), 5s);
  clock.step_wall(1h);
  EXPECT_EQ(clock.now(), 5s);
  EXPECT_EQ(clock.wall(clock.now()), 1h + 5s);
  clock.step_wall(-2h);
  EXPECT_EQ(clock.wall(10s), 10s - 1h) << "steps add up, and hold for any instant";
}

TEST(ManualClock, TellsItsListenersOfEveryMove) {
  ManualClock clock;
  Counter one;
  Counter two;
  clock.subscribe(&one);
  clock.advance(1s);
  clock.subscribe(&two);
  clock.set(0s);
  clock.step_wall(1s);
  clock.unsubscribe(&one);
  clock.advance(1s);
  EXPECT_EQ(one.moves, 3);
  EXPECT_EQ(two.moves, 3);
  clock.unsubscribe(&two);
  clock.unsubscribe(&two);
  clock.advance(1s);
  EXPECT_EQ(two.moves, 3);
}

TEST(ManualClock, WaitReturnsAtOnceWhenTheInstantHasCome) {
  const ManualClock clock(5s);
  std::mutex mutex;
  std::condition_variable wake;
  std::unique_lock lock(mutex);
  clock.wait(lock, wake, 5s);
  clock.wait(lock, wake, 0s);
  EXPECT_TRUE(lock.owns_lock());
}

TEST(ManualClock, WaitInAThreadEndsWithANotification) {
  ManualClock clock;
  std::mutex mutex;
  std::condition_variable wake;
  bool ready = false;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    while (!ready) clock.wait(lock, wake, 1s);
  });
  {
    const std::lock_guard guard(mutex);
    ready = true;
  }
  wake.notify_all();
  waiter.join();
  EXPECT_TRUE(ready);
}

TEST(ManualClock, ThreadsMayMoveItAtOnce) {
  ManualClock clock;
  Counter counter;
  clock.subscribe(&counter);
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) clock.advance(1ns);
  });
  for (int i = 0; i < 1000; ++i) clock.advance(1ns);
  other.join();
  EXPECT_EQ(clock.now(), 2000ns);
  EXPECT_EQ(counter.moves, 2000);
}

TEST(SystemClock, NeverRunsBackwards) {
  const SystemClock clock;
  Nanos last = clock.now();
  for (int i = 0; i < 10'000; ++i) {
    const Nanos now = clock.now();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(SystemClock, CountsFromTheUnixEpoch) {
  const SystemClock clock;
  const Nanos calendar = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_LT(std::chrono::abs(clock.now() - calendar), 1h);
  EXPECT_LT(std::chrono::abs(clock.wall(clock.now()) - calendar), 1h);
  EXPECT_LT(clock.now(), kMaxTime);
}

// The step between the two clocks is measured now and then, by the clock's own time, whatever instant is asked about.
TEST(SystemClock, WallClockFollowsAnyInstantAskedAbout) {
  const SystemClock clock;
  const Nanos now = clock.now();
  for (const Nanos instant : {kMaxTime, Nanos{0}, now, kMaxTime, now + 24h, now - 24h, now}) {
    EXPECT_LT(std::chrono::abs(clock.wall(instant) - instant), 1h);
  }
}

TEST(SystemClock, IsSharedByAllWhoNameNone) {
  EXPECT_EQ(&SystemClock::shared(), &SystemClock::shared());
  EXPECT_GT(SystemClock::shared().now(), 0s);
}

TEST(SystemClock, WaitForAnInstantPastReturnsAtOnce) {
  const SystemClock clock;
  std::mutex mutex;
  std::condition_variable wake;
  std::unique_lock lock(mutex);
  clock.wait(lock, wake, clock.now());
  clock.wait(lock, wake, 0s);
  EXPECT_TRUE(lock.owns_lock());
}

TEST(SystemClock, WaitInAThreadForAnInstantFarAheadEndsWithANotification) {
  const SystemClock clock;
  std::mutex mutex;
  std::condition_variable wake;
  bool ready = false;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    while (!ready) clock.wait(lock, wake, kMaxTime);
  });
  {
    const std::lock_guard guard(mutex);
    ready = true;
  }
  wake.notify_all();
  waiter.join();
  EXPECT_TRUE(ready);
}

// A clock that a user wrote need only say what time it is.
class Stopped final : public Clock {
 public:
  [[nodiscard]] Nanos now() const noexcept override { return 7s; }
};

TEST(Clock, AUsersOwnHasAWallClockAndNoListeners) {
  Stopped clock;
  Counter counter;
  clock.subscribe(&counter);
  clock.unsubscribe(&counter);
  EXPECT_EQ(clock.wall(clock.now()), 7s);
  EXPECT_EQ(counter.moves, 0);
}

}  // namespace
}  // namespace headgate
