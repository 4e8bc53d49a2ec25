#include "base/thread_slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace headgate::base {
namespace {

// The slots of so many threads that are alive at once.
std::vector<std::size_t> slots_of(std::size_t threads) {
  std::vector<std::size_t> slots(threads);
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      slots[i] = thread_slot();
      ++ready;
      while (ready.load() < threads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : running) thread.join();
  return slots;
}

TEST(ThreadSlot, AThreadKeepsItsSlot) {
  const std::size_t slot = thread_slot();
  EXPECT_LT(slot, kThreadSlots);
  EXPECT_EQ(thread_slot(), slot);
}

TEST(ThreadSlot, ThreadsThatAreAliveTogetherOwnDifferentSlots) {
  std::set<std::size_t> different{thread_slot()};
  for (const std::size_t slot : slots_of(20)) different.insert(slot);
  EXPECT_EQ(different.size(), 21U);
  EXPECT_LT(*different.rbegin(), kOwnedSlots);
}

TEST(ThreadSlot, SlotsAreUsedAgainWhenTheirThreadsHaveEnded) {
  for (int round = 0; round < 10; ++round) {
    for (const std::size_t slot : slots_of(20)) EXPECT_LT(slot, kOwnedSlots) << round;
  }
}

TEST(ThreadSlot, ThreadsBeyondTheLastShareOne) {
  const std::vector<std::size_t> slots = slots_of(kOwnedSlots + 10);
  const std::set<std::size_t> different(slots.begin(), slots.end());
  EXPECT_GE(std::count(slots.begin(), slots.end(), kOwnedSlots), 10);
  EXPECT_EQ(*different.rbegin(), kOwnedSlots);
  for (const std::size_t slot : slots_of(5)) EXPECT_LT(slot, kOwnedSlots) << "and there is room again";
}

}  // namespace
}  // namespace headgate::base
