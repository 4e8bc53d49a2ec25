// Reservations: permits taken now for an act that may have to wait.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "support/limiters.h"

namespace headgate::test {
namespace {

std::vector<Strategy> reservable_strategies() {
  std::vector<Strategy> all = all_strategies();
  std::erase(all, Strategy::kConcurrency);
  return all;
}

class Reserve : public testing::TestWithParam<Strategy> {
 protected:
  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(ten_of(GetParam()), clock_);
};
INSTANTIATE_TEST_SUITE_P(Limiter, Reserve, testing::ValuesIn(reservable_strategies()), StrategyName());

TEST_P(Reserve, WithRoomActsAtOnceAndChargesLikeTryAcquire) {
  const Reservation reservation = limiter_->reserve("key", 4);
  EXPECT_TRUE(reservation.ok());
  EXPECT_EQ(reservation.delay(), 0s);
  EXPECT_EQ(reservation.decision().remaining, 6);
  EXPECT_EQ(limiter_->remaining("key"), 6);
  EXPECT_EQ(limiter_->totals().acquired, 1U);
}

TEST_P(Reserve, WithoutRoomActsWhenThereIs) {
  ASSERT_TRUE(limiter_->try_acquire("key", 7));
  const Nanos wait = limiter_->peek("key", 5).retry_after;
  const Reservation reservation = limiter_->reserve("key", 5, 2h);
  ASSERT_TRUE(reservation.ok());
  // A leaky bucket's turn comes when all before it have left; elsewhere it is when the permits have come.
  EXPECT_EQ(reservation.delay(), GetParam() == Strategy::kLeakyBucket ? Nanos{700ms} : wait);
}

TEST_P(Reserve, MaxWaitIsRespectedToTheNanosecond) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  const Decision before = limiter_->peek("key", 1);
  const Nanos delay = GetParam() == Strategy::kLeakyBucket ? Nanos{1s} : before.retry_after;
  const Reservation refused = limiter_->reserve("key", 1, delay - 1ns);
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.decision().verdict, Verdict::kNotYet);
  EXPECT_EQ(refused.decision().reason, Reason::kLimited);
  EXPECT_FALSE(limiter_->reserve("key", 1).ok());
  EXPECT_TRUE(same(limiter_->peek("key", 1), before)) << "a refused reservation leaves no trace";
  const Reservation taken = limiter_->reserve("key", 1, delay);
  EXPECT_TRUE(taken.ok());
  EXPECT_EQ(taken.delay(), delay);
}

TEST_P(Reserve, LaterCallersQueueBehindIt) {
  ASSERT_TRUE(limiter_->try_acquire("key", 7));
  const Reservation big = limiter_->reserve("key", 8, 2h);
  ASSERT_TRUE(big.ok());
  const Decision small = limiter_->try_acquire("key", 1);
  EXPECT_FALSE(small) << "though without the reservation there was room";
  const Reservation next = limiter_->reserve("key", 1, 5h);
  ASSERT_TRUE(next.ok());
  EXPECT_GE(next.delay(), big.delay());
  EXPECT_FALSE(limiter_->try_acquire_at(clock_.now() + big.delay() - 1ns, "key", 3));
}

TEST_P(Reserve, CancelGivesTheRoomBack) {
  ASSERT_TRUE(limiter_->try_acquire("key", 4));
  const Decision before = limiter_->peek("key", 6);
  Reservation reservation = limiter_->reserve("key", 6, 1s);
  ASSERT_TRUE(reservation.ok());
  EXPECT_FALSE(limiter_->try_acquire("key"));
  reservation.cancel();
  EXPECT_TRUE(same(limiter_->peek("key", 6), before));
  EXPECT_TRUE(limiter_->try_acquire("key", 6));
}

TEST_P(Reserve, CancelOfOneAheadGivesItsRoomBack) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  const Decision before = limiter_->peek("key", 10);
  Reservation reservation = limiter_->reserve("key", 6, 2h);
  ASSERT_TRUE(reservation.ok());
  reservation.cancel();
  const Nanos then = clock_.now() + before.retry_after;
  EXPECT_TRUE(limiter_->try_acquire_at(then, "key", 10)) << "as if it had never been";
}

TEST_P(Reserve, CancelTwiceGivesBackOnce) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  Reservation reservation = limiter_->reserve("key", 2, 1s);
  reservation.cancel();
  reservation.cancel();
  EXPECT_EQ(limiter_->remaining("key"), 5);
}

TEST_P(Reserve, OnlyTheObjectMovedToCancels) {
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  Reservation first = limiter_->reserve("key", 2, 1s);
  Reservation second = std::move(first);
  first.cancel();  // NOLINT: a moved-from reservation is harmless
  EXPECT_EQ(limiter_->remaining("key"), 3);
  EXPECT_TRUE(second.ok());
  Reservation& itself = second;
  second = std::move(itself);
  second.cancel();
  EXPECT_EQ(limiter_->remaining("key"), 5);
}

TEST_P(Reserve, AFailedOrEmptyOneHasNothingToGiveBack) {
  Reservation none;
  EXPECT_FALSE(none.ok());
  none.cancel();
  ASSERT_TRUE(limiter_->try_acquire("key", 9));
  Reservation failed = limiter_->reserve("key", 5);
  EXPECT_FALSE(failed.ok());
  failed.cancel();
  Reservation nothing = limiter_->reserve("key", 0);
  EXPECT_TRUE(nothing.ok());
  EXPECT_EQ(nothing.delay(), 0s);
  nothing.cancel();
  EXPECT_EQ(limiter_->remaining("key"), 1);
}

TEST_P(Reserve, LettingItGoKeepsThePermits) {
  EXPECT_TRUE(limiter_->reserve("key", 6).ok());
  EXPECT_EQ(limiter_->remaining("key"), 4);
}

TEST_P(Reserve, OneKeysReservationsDoNotTouchAnother) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  Reservation reservation = limiter_->reserve("key", 5, 2h);
  ASSERT_TRUE(reservation.ok());
  EXPECT_TRUE(limiter_->try_acquire("other", 10));
  reservation.cancel();
  EXPECT_EQ(limiter_->remaining("other"), 0);
}

// Permits that have been refilled, or have left the window, are not refunded.
TEST_P(Reserve, CancelAfterItNoLongerCountsGivesNothing) {
  Reservation reservation = limiter_->reserve("key", 5);
  ASSERT_TRUE(reservation.ok());
  clock_.advance(2h);
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  reservation.cancel();
  EXPECT_FALSE(limiter_->try_acquire("key", 1));
}

TEST_P(Reserve, CancelAfterTheKeyWasClearedGivesNothing) {
  Reservation reservation = limiter_->reserve("key", 5);
  ASSERT_TRUE(reservation.ok());
  limiter_->clear("key");
  reservation.cancel();
  EXPECT_EQ(limiter_->remaining("key"), 10);
}

TEST(LeakyBucket, ReservationsKeepTheOutputEvenlySpaced) {
  ManualClock clock(kStart);
  const auto limiter = make(leaky_bucket(1, 2), clock);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limiter->try_acquire("key").delay, i * 1s);
  ASSERT_FALSE(limiter->try_acquire("key"));
  const Reservation fourth = limiter->reserve("key", 1, 10s);
  ASSERT_TRUE(fourth.ok());
  EXPECT_EQ(fourth.delay(), 3s);
  const Reservation fifth = limiter->reserve("key", 1, 10s);
  ASSERT_TRUE(fifth.ok());
  EXPECT_EQ(fifth.delay(), 4s);
}

TEST(LeakyBucket, ATurnLaterThanMaxWaitIsNoReservation) {
  ManualClock clock(kStart);
  const auto limiter = make(leaky_bucket(1, 9), clock);
  ASSERT_TRUE(limiter->try_acquire("key", 3));
  EXPECT_FALSE(limiter->reserve("key", 1, 3s - 1ns).ok()) << "there is room in the queue, but its turn comes too late";
  EXPECT_EQ(limiter->remaining("key"), 7);
  EXPECT_EQ(limiter->reserve("key", 1, 3s).delay(), 3s);
}

TEST(LeakyBucket, CancelLeavesTheTurnsOfOthersAlone) {
  ManualClock clock(kStart);
  const auto limiter = make(leaky_bucket(10, 9), clock);
  Reservation first = limiter->reserve("key", 1, 1s);
  Reservation second = limiter->reserve("key", 1, 1s);
  ASSERT_EQ(second.delay(), 100ms);
  first.cancel();
  EXPECT_EQ(limiter->peek("key").delay, 200ms) << "the second turn is taken";
  second.cancel();
  EXPECT_EQ(limiter->try_acquire("key").delay, 100ms);
}

TEST(ConcurrencyReserve, SlotsCannotBeReservedAhead) {
  ManualClock clock(kStart);
  const auto limiter = make(concurrency(2, 30s), clock);
  Reservation held = limiter->reserve("key", 2, 1h);
  ASSERT_TRUE(held.ok()) << "what is free now can be had now";
  EXPECT_EQ(held.delay(), 0s);
  EXPECT_NE(held.decision().lease, 0U);
  const Reservation ahead = limiter->reserve("key", 1, 1h);
  EXPECT_FALSE(ahead.ok());
  EXPECT_EQ(ahead.decision().verdict, Verdict::kNotYet);
  EXPECT_EQ(ahead.decision().retry_after, 30s);
  EXPECT_EQ(ahead.decision().lease, 0U);
  held.cancel();
  EXPECT_EQ(limiter->remaining("key"), 2);
}

TEST(ConcurrencyReserve, ASlotIsHeldFromNowOnWhileALimitBesideItIsWaitedFor) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(token_bucket(1, 1)).limit(concurrency(2, 30s)).clock(clock));
  ASSERT_TRUE(limiter->try_acquire("key"));
  Reservation reservation = limiter->reserve("key", 1, 1h);
  ASSERT_TRUE(reservation.ok());
  EXPECT_EQ(reservation.delay(), 1s);
  EXPECT_NE(reservation.decision().lease, 0U);
  EXPECT_FALSE(limiter->reserve("key", 1, 1h).ok()) << "both slots are taken";
  reservation.cancel();
  EXPECT_TRUE(limiter->reserve("key", 1, 1h).ok());
}

// Every unit is counted at the instant at which its holder may act. In no interval as long as the window are there more
// than the limit.
RC_GTEST_PROP(SlidingWindowReserve, NeverMoreThanTheLimitInAnyWindow, ()) {
  const auto trace = *rc::gen::container<std::vector<std::tuple<int, int, int, int>>>(rc::gen::tuple(
      rc::gen::inRange(0, 400), rc::gen::inRange(1, 11), rc::gen::inRange(0, 3), rc::gen::inRange(0, 4000)));
  ManualClock clock(kStart);
  const auto limiter = make(sliding_window(10, 1s), clock);
  struct Act {
    Nanos at;
    Units units;
    Reservation reservation;
  };
  std::vector<Act> acts;
  for (const auto& [gap, units, kind, patience] : trace) {
    clock.advance(std::chrono::milliseconds{gap});
    if (kind == 0) {
      if (limiter->try_acquire("key", units)) acts.push_back({clock.now(), units, {}});
    } else if (kind == 1) {
      Reservation reservation = limiter->reserve("key", units, std::chrono::milliseconds{patience});
      RC_ASSERT(!reservation.ok() || reservation.delay() <= std::chrono::milliseconds{patience});
      if (reservation.ok()) acts.push_back({clock.now() + reservation.delay(), units, std::move(reservation)});
    } else if (!acts.empty()) {
      // A reservation whose time has not come may be cancelled.
      Act& act = acts[static_cast<std::size_t>(patience) % acts.size()];
      if (act.at > clock.now() && act.units > 0) {
        act.reservation.cancel();
        act.units = 0;
      }
    }
  }
  for (const Act& start : acts) {
    Units sum = 0;
    for (const Act& act : acts) sum += act.at >= start.at && act.at < start.at + 1s ? act.units : 0;
    RC_ASSERT(sum <= 10);
  }
}

// The same for buckets: in any interval no more than the capacity and what is refilled meanwhile.
RC_GTEST_PROP(BucketReserve, NeverMoreThanTheBucketHasToGive, ()) {
  const Strategy strategy = *rc::gen::element(Strategy::kTokenBucket, Strategy::kGcra);
  const auto trace = *rc::gen::container<std::vector<std::tuple<int, int, int, int>>>(rc::gen::tuple(
      rc::gen::inRange(0, 400), rc::gen::inRange(1, 11), rc::gen::inRange(0, 3), rc::gen::inRange(0, 4000)));
  ManualClock clock(kStart);
  const auto limiter = make(ten_of(strategy), clock);
  struct Act {
    Nanos at;
    Units units;
    Reservation reservation;
  };
  std::vector<Act> acts;
  for (const auto& [gap, units, kind, patience] : trace) {
    clock.advance(std::chrono::milliseconds{gap});
    if (kind == 0) {
      if (limiter->try_acquire("key", units)) acts.push_back({clock.now(), units, {}});
    } else if (kind == 1) {
      Reservation reservation = limiter->reserve("key", units, std::chrono::milliseconds{patience});
      if (reservation.ok()) acts.push_back({clock.now() + reservation.delay(), units, std::move(reservation)});
    } else if (!acts.empty()) {
      // At any time, even long after: what was not used is given back as far as it still counts.
      Act& act = acts[static_cast<std::size_t>(patience) % acts.size()];
      if (act.reservation.ok() && act.units > 0) {
        act.reservation.cancel();
        act.units = 0;
      }
    }
  }
  for (const Act& start : acts) {
    for (const Act& end : acts) {
      if (end.at < start.at) continue;
      Units sum = 0;
      for (const Act& act : acts) sum += act.at >= start.at && act.at <= end.at ? act.units : 0;
      RC_ASSERT(sum <= 10 + (end.at - start.at) / 100ms);
    }
  }
}

}  // namespace
}  // namespace headgate::test
