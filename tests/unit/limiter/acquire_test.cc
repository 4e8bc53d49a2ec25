// Waiting for permits. Everything here is served by poll() on a manual clock, so every test is exact; the thread that
// serves waits by itself is in threads_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "support/limiters.h"

namespace headgate::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Answers = std::vector<std::pair<std::string, Reason>>;

class Acquire : public testing::Test {
 protected:
  void use(Options options) { limiter_ = make(options.clock(clock_).own_thread(false)); }
  void use(const Limit& limit) { use(Options().limit(limit)); }

  // Asks for permits under a name; the answer is noted in answers_.
  WaitId ask(const std::string& name, const AcquireOptions& options, std::string_view key = "key") {
    return limiter_->acquire_async(key, options, [this, name](const Decision& decision) {
      answers_.emplace_back(name, decision.reason);
      decisions_[name] = decision;
    });
  }
  // The answers since the last call.
  Answers answers() { return std::exchange(answers_, {}); }
  Answers advance(Nanos by) {
    clock_.advance(by);
    limiter_->poll();
    return answers();
  }
  [[nodiscard]] std::uint64_t waiting() const { return limiter_->totals().waiting; }

  ManualClock clock_{kStart};
  std::map<std::string, Decision> decisions_;
  Answers answers_;
  std::unique_ptr<MemoryLimiter> limiter_;
};

TEST_F(Acquire, IsAnsweredByTheCallItselfWhenThereIsRoom) {
  use(token_bucket(2, 1));
  EXPECT_EQ(ask("a", {2, 10s, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kOk)));
  EXPECT_EQ(decisions_["a"].remaining, 0);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(Acquire, WithoutPatienceIsTryAcquire) {
  use(token_bucket(2, 1));
  EXPECT_TRUE(limiter_->acquire("key", {2, 0s, 0}));
  const Decision denied = limiter_->acquire("key", {1, 0s, 0});
  EXPECT_EQ(denied.verdict, Verdict::kNotYet);
  EXPECT_EQ(denied.reason, Reason::kLimited);
  EXPECT_EQ(denied.retry_after, 1s);
}

TEST_F(Acquire, ServesInOrderOfArrival) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  EXPECT_NE(ask("a", {1, 10s, 0}), 0U);
  EXPECT_NE(ask("b", {1, 10s, 0}), 0U);
  EXPECT_NE(ask("c", {1, 10s, 0}), 0U);
  EXPECT_EQ(waiting(), 3U);
  EXPECT_THAT(advance(1s - 1ns), IsEmpty());
  EXPECT_THAT(advance(1ns), ElementsAre(std::pair("a", Reason::kOk)));
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("b", Reason::kOk)));
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("c", Reason::kOk)));
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(Acquire, PollSaysWhenTheNextOneIsDue) {
  use(token_bucket(1, 1));
  EXPECT_EQ(limiter_->poll(), kMaxTime);
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 10s, 0});
  ask("b", {1, 1500ms, 0});
  EXPECT_EQ(limiter_->poll(), kStart + 1s);
  clock_.advance(1s);
  EXPECT_EQ(limiter_->poll(), kStart + 1500ms) << "b's deadline comes before its turn";
  clock_.advance(500ms);
  EXPECT_EQ(limiter_->poll(), kMaxTime);
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kOk), std::pair("b", Reason::kTimedOut)));
}

TEST_F(Acquire, OnePollServesAllThatIsDue) {
  use(token_bucket(3, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 3));
  ASSERT_TRUE(limiter_->try_acquire("other", 3));
  for (const char* name : {"a", "b", "c"}) ask(name, {1, 10s, 0});
  ask("d", {2, 10s, 0}, "other");
  EXPECT_EQ(advance(3s).size(), 4U);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(Acquire, HigherPriorityGoesFirstEqualsInOrderOfArrival) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("low", {1, 10s, -1});
  ask("normal", {1, 10s, 0});
  ask("high", {1, 10s, 5});
  ask("high too", {1, 10s, 5});
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) {
    const Answers served = advance(1s);
    ASSERT_EQ(served.size(), 1U);
    order.push_back(served[0].first);
  }
  EXPECT_THAT(order, ElementsAre("high", "high too", "normal", "low"));
}

TEST_F(Acquire, OnlyAHigherPriorityMayTakeWhatASmallerOneCouldUse) {
  use(token_bucket(10, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 8));
  ask("big", {5, 60s, 0});
  ask("small", {1, 60s, 0});
  EXPECT_EQ(waiting(), 2U) << "two are left, but big was first";
  EXPECT_EQ(ask("urgent", {1, 60s, 1}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("urgent", Reason::kOk)));
  EXPECT_THAT(advance(4s), ElementsAre(std::pair("big", Reason::kOk)));
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("small", Reason::kOk)));
}

TEST_F(Acquire, TimesOutAtItsDeadline) {
  use(concurrency(1, 30s));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 5s, 0});
  ask("b", {1, 3s, 0});
  EXPECT_THAT(advance(3s - 1ns), IsEmpty());
  EXPECT_THAT(advance(1ns), ElementsAre(std::pair("b", Reason::kTimedOut)));
  EXPECT_THAT(advance(2s), ElementsAre(std::pair("a", Reason::kTimedOut)));
  EXPECT_EQ(decisions_["a"].verdict, Verdict::kNotYet);
  EXPECT_EQ(decisions_["a"].limit, 1) << "who was first knows what stood in the way";
  EXPECT_EQ(decisions_["a"].lease, 0U);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(Acquire, PermitsThatComeAtTheDeadlineAreGranted) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 1s, 0});
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("a", Reason::kOk)));
}

TEST_F(Acquire, WhoTimesOutLetsTheNextGoAtThatVeryInstant) {
  use(token_bucket(10, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  ask("urgent", {1, 10s, 1});
  ask("big", {8, 5s, 0});  // would need eight seconds once urgent had its turn
  ask("small", {2, 5s, 0});
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("urgent", Reason::kOk)));
  EXPECT_THAT(advance(4s), ElementsAre(std::pair("big", Reason::kTimedOut), std::pair("small", Reason::kOk)));
}

TEST_F(Acquire, WhoCameFirstButStandsBehindIsTriedOnceThoseBeforeItHaveTimedOut) {
  use(token_bucket(10, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  ask("small", {2, 5s, 0});
  ask("big", {5, 5s, 1});
  ask("urgent", {1, 10s, 2});
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("urgent", Reason::kOk)));
  EXPECT_THAT(advance(4s), ElementsAre(std::pair("big", Reason::kTimedOut), std::pair("small", Reason::kOk)));
}

TEST_F(Acquire, AHopelessWaitIsAnsweredAtOnce) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  EXPECT_EQ(ask("a", {1, 1s - 1ns, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kLimited)));
  EXPECT_EQ(decisions_["a"].verdict, Verdict::kNotYet);
  EXPECT_EQ(decisions_["a"].retry_after, 1s);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(Acquire, AConcurrencySlotMayComeEarlySoThatWaitIsNotHopeless) {
  use(concurrency(1, 30s));
  const Decision held = limiter_->try_acquire("key");
  EXPECT_NE(ask("a", {1, 1s, 0}), 0U);
  ASSERT_TRUE(limiter_->release("key", held.lease));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kOk)));
}

TEST_F(Acquire, WhatCouldNeverFitIsAnsweredAtOnce) {
  use(token_bucket(2, 1));
  EXPECT_EQ(ask("first", {3, 10s, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("first", Reason::kCostExceedsLimit)));
  ASSERT_TRUE(limiter_->try_acquire("key", 2));
  ask("in line", {1, 10s, 0});
  EXPECT_EQ(ask("behind", {3, 10s, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("behind", Reason::kCostExceedsLimit)));
  EXPECT_EQ(decisions_["behind"].verdict, Verdict::kNever);
}

TEST_F(Acquire, NegativePermitsAreAnInvalidCost) {
  use(token_bucket(2, 1));
  EXPECT_EQ(ask("a", {-1, 10s, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kInvalidCost)));
}

TEST_F(Acquire, ZeroPermitsNeverWait) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 10s, 0});
  EXPECT_EQ(ask("nothing", {0, 10s, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("nothing", Reason::kOk)));
  EXPECT_TRUE(limiter_->try_acquire("key", 0));
}

TEST_F(Acquire, AFullQueueAnswersSo) {
  use(Options().limit(token_bucket(1, 1)).max_waiters(2));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ASSERT_TRUE(limiter_->try_acquire("other"));
  ask("a", {1, 10s, 0});
  ask("b", {1, 10s, 0}, "other");
  EXPECT_EQ(ask("c", {1, 10s, 0}), 0U);
  EXPECT_EQ(ask("d", {1, 10s, 9}), 0U) << "no priority makes room";
  EXPECT_EQ(ask("e", {1, 0s, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("c", Reason::kQueueFull), std::pair("d", Reason::kQueueFull),
                                     std::pair("e", Reason::kLimited)));
  EXPECT_EQ(decisions_["c"].verdict, Verdict::kNotYet);
  EXPECT_EQ(advance(1s).size(), 2U);
  EXPECT_NE(ask("f", {1, 10s, 0}), 0U) << "there is room again";
}

TEST_F(Acquire, ANewKeyAtTheCapIsAnsweredAtOnce) {
  use(Options().limit(token_bucket(1, 1)).max_keys(1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  EXPECT_EQ(ask("a", {1, 10s, 0}, "other"), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kTooManyKeys)));
}

TEST_F(Acquire, NobodyOvertakesThoseWhoWait) {
  use(token_bucket(10, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 8));
  ask("a", {5, 60s, 0});
  const Decision overtaking = limiter_->try_acquire("key");
  EXPECT_EQ(overtaking.verdict, Verdict::kNotYet);
  EXPECT_EQ(overtaking.reason, Reason::kLimited);
  EXPECT_FALSE(limiter_->acquire("key", {1, 0s, 0}));
  EXPECT_FALSE(limiter_->reserve("key", 1, 60s).ok());
  EXPECT_FALSE(limiter_->try_acquire_all(std::vector<Request>{{"other", 1}, {"key", 1}}));
  std::array<Decision, 2> decisions;
  limiter_->try_acquire_many(std::vector<Request>{{"key", 1}, {"other", 1}}, decisions);
  EXPECT_FALSE(decisions[0]);
  EXPECT_TRUE(decisions[1]) << "another key has no queue";
  EXPECT_EQ(limiter_->remaining("other"), 9);
  clock_.advance(3s);  // there is room for a, though poll() has not run yet
  EXPECT_FALSE(limiter_->try_acquire("key"));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kOk)));
  clock_.advance(1s);
  EXPECT_TRUE(limiter_->try_acquire("key"));
}

TEST_F(Acquire, PeekSaysWhatTryAcquireWouldAnswerWhileOthersWait) {
  use(token_bucket(10, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 8));
  ask("a", {5, 60s, 0});
  EXPECT_TRUE(same(limiter_->peek("key"), limiter_->try_acquire("key")));
  EXPECT_FALSE(limiter_->peek("key"));
  EXPECT_EQ(limiter_->remaining("key"), 2);
}

TEST_F(Acquire, CancelEndsAWaitOnce) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  const WaitId a = ask("a", {1, 10s, 0});
  EXPECT_FALSE(limiter_->cancel(0));
  EXPECT_FALSE(limiter_->cancel(a + 1));
  EXPECT_TRUE(limiter_->cancel(a));
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kCancelled)));
  EXPECT_EQ(decisions_["a"].verdict, Verdict::kNotYet);
  EXPECT_FALSE(limiter_->cancel(a));
  EXPECT_THAT(advance(10s), IsEmpty());
  EXPECT_TRUE(limiter_->try_acquire("key")) << "a cancelled wait takes nothing";
}

TEST_F(Acquire, CancellingTheFirstLetsTheNextHaveItsTurn) {
  use(token_bucket(10, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 8));
  const WaitId big = ask("big", {5, 60s, 0});
  ask("small", {2, 60s, 0});
  ASSERT_TRUE(limiter_->cancel(big));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("big", Reason::kCancelled), std::pair("small", Reason::kOk)));
}

TEST_F(Acquire, AServedWaitCannotBeCancelled) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  const WaitId a = ask("a", {1, 10s, 0});
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("a", Reason::kOk)));
  EXPECT_FALSE(limiter_->cancel(a));
}

TEST_F(Acquire, ReleaseWakesTheNextWaiter) {
  use(concurrency(1, 30s));
  const Decision held = limiter_->try_acquire("key");
  ask("a", {1, 10s, 0});
  ask("b", {1, 10s, 0});
  EXPECT_THAT(advance(1s), IsEmpty());
  ASSERT_TRUE(limiter_->release("key", held.lease));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kOk)));
  EXPECT_NE(decisions_["a"].lease, 0U);
  ASSERT_TRUE(limiter_->release("key", decisions_["a"].lease));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("b", Reason::kOk)));
}

TEST_F(Acquire, AnExpiredLeaseServesTheNextWaiterAndARenewedOneDoesNot) {
  use(concurrency(1, 30s));
  const Decision held = limiter_->try_acquire("key");
  ask("a", {1, 100s, 0});
  EXPECT_THAT(advance(20s), IsEmpty());
  ASSERT_TRUE(limiter_->renew("key", held.lease));
  EXPECT_THAT(advance(29s), IsEmpty());
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("a", Reason::kOk)));
}

TEST_F(Acquire, ClearWakesWaiters) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 10s, 0});
  limiter_->clear("other");
  EXPECT_THAT(advance(0s), IsEmpty());
  limiter_->clear("key");
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kOk)));
}

TEST_F(Acquire, ARaisedLimitWakesWaiters) {
  use(token_bucket(4, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 4));
  ask("a", {1, 10s, 0});
  ask("b", {4, 10s, 0});
  ASSERT_TRUE(limiter_->set_limit(token_bucket(6, 1), OnChange::kKeepUnits));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kOk)));
  ASSERT_TRUE(limiter_->set_limit(token_bucket(6, 1), OnChange::kReset));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("b", Reason::kOk)));
}

TEST_F(Acquire, ALoweredLimitEndsWaitsThatCanNeverBeServed) {
  use(token_bucket(5, 1));
  ASSERT_TRUE(limiter_->try_acquire("key", 5));
  ask("a", {4, 100s, 0});
  ASSERT_TRUE(limiter_->set_limit(token_bucket(3, 1)));
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kCostExceedsLimit)));
}

TEST_F(Acquire, ACancelledReservationWakesWaiters) {
  use(token_bucket(10, 1));
  Reservation reservation = limiter_->reserve("key", 10, 0s);
  ASSERT_TRUE(reservation.ok());
  ask("a", {5, 10s, 0});
  EXPECT_THAT(advance(0s), IsEmpty());
  reservation.cancel();
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kOk)));
}

TEST_F(Acquire, AStepOfTheWallClockIntoTheNextWindowWakesWaiters) {
  use(fixed_window(1, 1h));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 2h, 0});
  EXPECT_EQ(limiter_->poll(), kStart + 1h);
  clock_.step_wall(1h);
  EXPECT_THAT(advance(0s), ElementsAre(std::pair("a", Reason::kOk)));
}

TEST_F(Acquire, WaitsAreServedOnEveryStrategy) {
  for (const Strategy strategy : all_strategies()) {
    use(ten_of(strategy));
    answers_.clear();
    ASSERT_TRUE(limiter_->try_acquire("key", 7));
    const Nanos due = clock_.now() + limiter_->peek("key", 5).retry_after;
    ask("a", {5, 2h, 0});
    EXPECT_EQ(limiter_->poll(), due) << to_string(strategy);
    clock_.set(due - 1ns);
    EXPECT_THAT(advance(0s), IsEmpty()) << to_string(strategy);
    EXPECT_THAT(advance(1ns), ElementsAre(std::pair("a", Reason::kOk))) << to_string(strategy);
  }
}

TEST_F(Acquire, DestructionEndsWaitsInOrderOfArrival) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ASSERT_TRUE(limiter_->try_acquire("other"));
  for (const char* name : {"a", "b", "c"}) ask(name, {1, 10s, 0});
  ask("d", {1, 10s, 3}, "other");
  limiter_.reset();
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kCancelled), std::pair("b", Reason::kCancelled),
                                     std::pair("c", Reason::kCancelled), std::pair("d", Reason::kCancelled)));
}

TEST_F(Acquire, WhoAsksAgainDuringDestructionIsCancelledAtOnce) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  WaitId other = 0;
  WaitId again = 1;
  bool cancelled_other = true;
  MemoryLimiter* limiter = limiter_.get();
  limiter->acquire_async("key", {1, 10s, 0}, [&](const Decision& decision) {
    answers_.emplace_back("first", decision.reason);
    cancelled_other = limiter->cancel(other);
    again = limiter->acquire_async("key", {1, 10s, 0},
                                   [&](const Decision& second) { answers_.emplace_back("again", second.reason); });
  });
  other = ask("other", {1, 10s, 0});
  limiter_.reset();
  EXPECT_EQ(again, 0U);
  EXPECT_FALSE(cancelled_other);
  EXPECT_THAT(answers(), ElementsAre(std::pair("first", Reason::kCancelled), std::pair("again", Reason::kCancelled),
                                     std::pair("other", Reason::kCancelled)));
}

TEST_F(Acquire, CallbacksMayCallTheLimiter) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  int turns = 0;
  WaitId behind = 0;
  std::function<void(const Decision&)> again = [&](const Decision& decision) {
    EXPECT_TRUE(decision.allowed());
    (void)limiter_->peek("key");
    (void)limiter_->statistics("key");
    (void)limiter_->totals();
    EXPECT_EQ(limiter_->cancel(behind), turns == 0);
    if (++turns < 3) limiter_->acquire_async("key", {1, 10s, 0}, again);
    limiter_->poll();
  };
  limiter_->acquire_async("key", {1, 10s, 0}, again);
  behind = ask("behind", {1, 10s, 0});
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("behind", Reason::kCancelled)));
  EXPECT_EQ(turns, 1);
  advance(1s);
  EXPECT_EQ(turns, 2);
  advance(1s);
  advance(10s);
  EXPECT_EQ(turns, 3);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(Acquire, AWaitCountsAsOneCallHoweverOftenItWasTried) {
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 10s, 0});
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(limiter_->set_limit(token_bucket(1, 1)));  // has it tried again
    advance(1ms);
  }
  EXPECT_EQ(limiter_->totals().acquired, 1U);
  EXPECT_EQ(limiter_->totals().throttled, 0U) << "nobody has been turned away yet";
  EXPECT_EQ(advance(1s).size(), 1U);
  EXPECT_EQ(limiter_->totals().acquired, 2U);
  EXPECT_EQ(limiter_->totals().throttled, 0U);
}

TEST_F(Acquire, AWaitInVainCountsAsThrottledOnce) {
  use(concurrency(1, 30s));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 5s, 0});
  ask("b", {1, 4s, 0});
  advance(5s);
  EXPECT_EQ(limiter_->totals().acquired, 1U);
  EXPECT_EQ(limiter_->totals().throttled, 2U);
}

TEST_F(Acquire, AtTheEndOfTimeNobodyWaits) {
  clock_.set(kMaxTime);
  use(token_bucket(1, 1));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  EXPECT_EQ(ask("a", {1, 10s, 0}), 0U);
  EXPECT_THAT(answers(), ElementsAre(std::pair("a", Reason::kLimited)));
  EXPECT_EQ(limiter_->poll(), kMaxTime);
}

TEST_F(Acquire, AWaitThatReachesTheEndOfTimeEndsThere) {
  clock_.set(kMaxTime - 10s);
  use(concurrency(1, 1h));
  ASSERT_TRUE(limiter_->try_acquire("key"));
  ask("a", {1, 1h, 0});
  EXPECT_THAT(advance(9s), IsEmpty());
  EXPECT_THAT(advance(1s), ElementsAre(std::pair("a", Reason::kTimedOut)));
}

// Whatever is asked, cancelled and waited for: each callback comes exactly once, and those who were served got no more
// than the bucket had to give.
RC_GTEST_PROP(Waiting, EveryCallbackComesExactlyOnceAndNothingIsGrantedTwice, ()) {
  const auto trace = *rc::gen::container<std::vector<std::tuple<int, int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 6), rc::gen::inRange(1, 11), rc::gen::inRange(0, 3000)));
  ManualClock clock(kStart);
  auto limiter = make(Options().limit(token_bucket(10, 10)).clock(clock).own_thread(false).max_waiters(4));
  std::vector<int> calls;
  std::vector<WaitId> waits{0};
  Units granted = 0;
  for (const auto& [act, units, millis] : trace) {
    switch (act) {
      case 0:
      case 1:
      case 2: {
        const std::size_t index = calls.size();
        calls.push_back(0);
        const Units permits = units;
        waits.push_back(limiter->acquire_async("key", {permits, std::chrono::milliseconds{millis}, act % 2},
                                               [&calls, &granted, index, permits](const Decision& decision) {
                                                 ++calls[index];
                                                 if (decision) granted += permits;
                                               }));
        break;
      }
      case 3: limiter->cancel(waits[static_cast<std::size_t>(millis) % waits.size()]); break;
      case 4: granted += limiter->try_acquire("key", units) ? units : 0; break;
      default: clock.advance(std::chrono::milliseconds{millis / 4});
    }
    limiter->poll();
    const Units most = 10 + (clock.now() - kStart) / 100ms;
    RC_ASSERT(granted <= most);
  }
  limiter.reset();
  for (const int count : calls) RC_ASSERT(count == 1);
}

// The oracle walks through time in steps of a tenth of a second and serves a plain list.
RC_GTEST_PROP(Waiting, TurnsAgreeWithAPlainList, ()) {
  struct Caller {
    int index;
    Units permits;
    int priority;
    Nanos deadline;
  };
  struct Arrival {
    Units permits;
    int priority;
    int patience;  // tenths of a second
    int gap;
  };
  std::vector<Arrival> arrivals;
  for (const auto& [permits, priority, patience, gap] :
       *rc::gen::container<std::vector<std::tuple<int, int, int, int>>>(rc::gen::tuple(
           rc::gen::inRange(1, 6), rc::gen::inRange(0, 3), rc::gen::inRange(1, 60), rc::gen::inRange(0, 8)))) {
    arrivals.push_back({permits, priority, patience, gap});
  }

  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(token_bucket(5, 10)).clock(clock).own_thread(false));
  std::vector<std::string> real;
  std::vector<std::string> expected;
  Units tokens = 5;
  std::vector<Caller> line;
  const auto first = [&] {
    return std::min_element(line.begin(), line.end(), [](const Caller& a, const Caller& b) {
      return a.priority != b.priority ? a.priority > b.priority : a.index < b.index;
    });
  };
  const auto leave = [&](std::vector<Caller>::iterator who, const char* how) {
    expected.push_back(how + std::to_string(who->index));
    line.erase(who);
  };
  // Once the first has left, for whatever reason, the next is looked at, and so on.
  const auto serve_from_the_front = [&](Nanos now) {
    while (!line.empty() && (first()->permits <= tokens || first()->deadline <= now)) {
      const bool fits = first()->permits <= tokens;
      if (fits) tokens -= first()->permits;
      leave(first(), fits ? "served " : "late ");
    }
  };
  const auto serve = [&](Nanos now) {
    if (!line.empty() && first()->permits <= tokens) serve_from_the_front(now);
    for (;;) {
      auto late = line.end();  // the earliest deadline that has passed, then the earliest to come
      for (auto each = line.begin(); each != line.end(); ++each) {
        if (each->deadline <= now && (late == line.end() || each->deadline < late->deadline)) late = each;
      }
      if (late == line.end()) return;
      if (first()->deadline <= now) {
        serve_from_the_front(now);
      } else {
        leave(late, "late ");
      }
    }
  };
  const auto tick = [&] {
    clock.advance(100ms);
    tokens = std::min<Units>(tokens + 1, 5);
    limiter->poll();
    serve(clock.now());
  };
  int index = 0;
  for (const Arrival& arrival : arrivals) {
    for (int i = 0; i < arrival.gap; ++i) tick();
    const Nanos patience = arrival.patience * 100ms;
    const int own = index++;
    const bool goes_first =
        std::all_of(line.begin(), line.end(), [&](const Caller& each) { return each.priority < arrival.priority; });
    if (goes_first && (arrival.permits - tokens) * 100ms > patience) {
      expected.push_back("late " + std::to_string(own));
    } else {
      line.push_back({own, arrival.permits, arrival.priority, clock.now() + patience});
    }
    limiter->acquire_async("key", {arrival.permits, patience, arrival.priority}, [&real, own](const Decision& d) {
      real.push_back((d ? "served " : "late ") + std::to_string(own));
    });
    serve(clock.now());
  }
  for (int i = 0; i < 100; ++i) tick();
  RC_ASSERT(real == expected);
}

}  // namespace
}  // namespace headgate::test
