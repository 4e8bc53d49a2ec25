// Concurrency through the public calls: leases, their release, renewal and expiry.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "support/limiters.h"

namespace headgate::test {
namespace {

class ConcurrencyLimit : public testing::Test {
 protected:
  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(concurrency(3, 10s), clock_);
};

TEST_F(ConcurrencyLimit, ReleaseMakesRoomAtOnce) {
  const Decision held = limiter_->try_acquire("key", 3);
  ASSERT_TRUE(held);
  ASSERT_FALSE(limiter_->try_acquire("key"));
  EXPECT_TRUE(limiter_->release("key", held.lease));
  EXPECT_EQ(limiter_->remaining("key"), 3);
  EXPECT_TRUE(limiter_->try_acquire("key", 3));
}

TEST_F(ConcurrencyLimit, ALeaseIsReleasedOnceAndOnlyUnderItsKey) {
  const Decision held = limiter_->try_acquire("key");
  EXPECT_FALSE(limiter_->release("other", held.lease));
  EXPECT_FALSE(limiter_->release("key", held.lease + 1));
  EXPECT_FALSE(limiter_->release("key", 0));
  EXPECT_TRUE(limiter_->release("key", held.lease));
  EXPECT_FALSE(limiter_->release("key", held.lease));
  EXPECT_FALSE(limiter_->renew("key", held.lease));
}

TEST_F(ConcurrencyLimit, EveryHoldHasALeaseOfItsOwn) {
  std::set<LeaseId> leases;
  for (int i = 0; i < 1000; ++i) {
    const Decision held = limiter_->try_acquire("key " + std::to_string(i % 500));
    ASSERT_TRUE(held);
    EXPECT_NE(held.lease, 0U);
    leases.insert(held.lease);
  }
  EXPECT_EQ(leases.size(), 1000U);
}

TEST_F(ConcurrencyLimit, ALostHoldersLeaseExpires) {
  const Decision lost = limiter_->try_acquire("key", 3);
  clock_.advance(10s - 1ns);
  EXPECT_FALSE(limiter_->try_acquire("key"));
  clock_.advance(1ns);
  EXPECT_TRUE(limiter_->try_acquire("key", 3));
  EXPECT_FALSE(limiter_->release("key", lost.lease)) << "it had expired; the new holder keeps its slots";
  EXPECT_EQ(limiter_->remaining("key"), 0);
}

TEST_F(ConcurrencyLimit, RenewKeepsAHoldForAnotherTimeToLive) {
  const Decision held = limiter_->try_acquire("key", 3);
  for (int i = 0; i < 10; ++i) {
    clock_.advance(9s);
    EXPECT_TRUE(limiter_->renew("key", held.lease));
  }
  EXPECT_FALSE(limiter_->try_acquire("key"));
  clock_.advance(10s);
  EXPECT_FALSE(limiter_->renew("key", held.lease));
  EXPECT_TRUE(limiter_->try_acquire("key"));
}

TEST_F(ConcurrencyLimit, ARenewedHoldSurvivesTheSweeping) {
  const Decision held = limiter_->try_acquire("key", 3);
  clock_.advance(9s);
  ASSERT_TRUE(limiter_->renew("key", held.lease));
  clock_.advance(9s);
  limiter_->maintain(1'000'000);
  EXPECT_FALSE(limiter_->try_acquire("key"));
  EXPECT_TRUE(limiter_->release("key", held.lease));
  clock_.advance(1ns);
  limiter_->maintain(1'000'000);
  EXPECT_EQ(limiter_->totals().cells, 0U) << "nothing is held, so nothing need be kept";
}

TEST_F(ConcurrencyLimit, OneLeaseCoversEveryKeyOfACall) {
  const std::vector<Request> both = {{"a", 2}, {"b", 3}};
  const Decision held = limiter_->try_acquire_all(both);
  ASSERT_TRUE(held);
  EXPECT_TRUE(limiter_->release("a", held.lease));
  EXPECT_EQ(limiter_->remaining("a"), 3);
  EXPECT_EQ(limiter_->remaining("b"), 0);
  EXPECT_TRUE(limiter_->release("b", held.lease));
  EXPECT_EQ(limiter_->remaining("b"), 3);
}

TEST_F(ConcurrencyLimit, AKeyNamedTwiceInOneCallIsReleasedWhole) {
  const std::vector<Request> twice = {{"key", 1}, {"key", 2}};
  const Decision held = limiter_->try_acquire_all(twice);
  ASSERT_TRUE(held);
  EXPECT_EQ(limiter_->remaining("key"), 0);
  EXPECT_TRUE(limiter_->release("key", held.lease));
  EXPECT_EQ(limiter_->remaining("key"), 3);
}

TEST_F(ConcurrencyLimit, PeekNamesNoLease) {
  EXPECT_EQ(limiter_->peek("key").lease, 0U);
  EXPECT_EQ(limiter_->try_acquire("key", 0).lease, 0U);
  EXPECT_EQ(limiter_->totals().cells, 0U);
}

TEST(Concurrency, OtherStrategiesHaveNothingToRelease) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(10, 10), clock);
  ASSERT_TRUE(limiter->try_acquire("key"));
  EXPECT_FALSE(limiter->release("key", 1));
  EXPECT_FALSE(limiter->renew("key", 1));
}

TEST(Concurrency, BesideARateOnlyTheSlotsComeBack) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(concurrency(2)).limit(fixed_window(3, 60s)).clock(clock));
  const Decision held = limiter->try_acquire("key", 2);
  ASSERT_TRUE(held);
  EXPECT_NE(held.lease, 0U);
  ASSERT_FALSE(limiter->try_acquire("key"));
  EXPECT_TRUE(limiter->release("key", held.lease));
  EXPECT_EQ(limiter->remaining("key"), 1);
  EXPECT_FALSE(limiter->try_acquire("key", 2));
  EXPECT_TRUE(limiter->try_acquire("key"));
}

// The oracle is a plain list of holds.
RC_GTEST_PROP(Concurrency, HoldsAgreeWithAPlainList, ()) {
  struct Held {
    LeaseId lease;
    Units units;
    Nanos until;
  };
  const auto trace = *rc::gen::container<std::vector<std::tuple<int, int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 3000), rc::gen::inRange(0, 4), rc::gen::inRange(1, 5)));
  ManualClock clock(kStart);
  const auto limiter = make(concurrency(8, 10s), clock);
  std::vector<Held> holds;
  std::vector<LeaseId> ever{12345};
  for (const auto& [millis, act, units] : trace) {
    clock.advance(std::chrono::milliseconds{millis});
    std::erase_if(holds, [&](const Held& held) { return held.until <= clock.now(); });
    const LeaseId lease = ever[static_cast<std::size_t>(millis) % ever.size()];
    const auto found = std::find_if(holds.begin(), holds.end(), [&](const Held& h) { return h.lease == lease; });
    Units sum = 0;
    for (const Held& held : holds) sum += held.units;
    if (act == 0) {
      RC_ASSERT(limiter->release("key", lease) == (found != holds.end()));
      if (found != holds.end()) holds.erase(found);
    } else if (act == 1) {
      RC_ASSERT(limiter->renew("key", lease) == (found != holds.end()));
      if (found != holds.end()) found->until = clock.now() + 10s;
    } else {
      const Decision decision = limiter->try_acquire("key", units);
      RC_ASSERT(decision.allowed() == (sum + units <= 8));
      if (decision) {
        holds.push_back({decision.lease, units, clock.now() + 10s});
        ever.push_back(decision.lease);
      }
    }
    Units now_held = 0;
    for (const Held& held : holds) now_held += held.units;
    RC_ASSERT(limiter->remaining("key") == 8 - now_held);
  }
}

}  // namespace
}  // namespace headgate::test
