// The queue by itself, where the limiter's own calls cannot reach: what an attempt sees, and in which order things are
// done.
#include "limiter/wait_queue.h"

#include <gtest/gtest.h>

#include "support/limiters.h"

namespace headgate::test {
namespace {

class WaitQueueTest : public testing::Test {
 protected:
  // A queue whose attempts answer what `answer_` says.
  WaitQueue make_queue(std::size_t max_waiters = 10, bool room_may_come_early = false) {
    return WaitQueue(
        {&clock_, max_waiters, false, room_may_come_early, [this](const WaitQueue::Waiter& waiter, Nanos now) {
           tried_.emplace_back(waiter.name, now);
           if (during_attempt_) during_attempt_();
           return answer_;
         }});
  }
  WaitQueue::Waiter waiter(const std::string& name, Nanos patience) {
    return {{1, 1},
            name,
            1,
            0,
            clock_.now() + patience,
            [this](const Decision& decision) {
              reasons_.push_back(decision.reason); }};
  }
  static Decision allowed() {
    Decision decision;
    decision.verdict = Verdict::kAllowed;
    return decision;
  }
  static Decision in(Nanos retry_after) {
    Decision decision;
    decision.verdict = Verdict::kNotYet;
    decision.reason = Reason::kLimited;
    decision.retry_after = retry_after;
    return decision;
  }

  ManualClock clock_{kStart};
  Decision answer_ = in(1s);
  std::function<void()> during_attempt_;
  std::vector<std::pair<std::string, Nanos>> tried_;
  std::vector<Reason> reasons_;
};

// A release looks for waiters only after it has freed the room. So a waiter must be visible before it looks for
// room, or the two could miss each other and the waiter would sleep on.
TEST_F(WaitQueueTest, AWaiterIsAnnouncedBeforeItIsTried) {
  WaitQueue queue = make_queue();
  bool seen = false;
  during_attempt_ = [&] { seen = !queue.empty_approx(); };
  EXPECT_NE(queue.add(waiter("a", 10s)), 0U);
  EXPECT_TRUE(seen);
  EXPECT_FALSE(queue.empty_approx());
  EXPECT_EQ(queue.size(), 1U);
}

TEST_F(WaitQueueTest, WhoDidNotHaveToWaitLeavesNoTrace) {
  WaitQueue queue = make_queue(0);
  answer_ = allowed();
  EXPECT_EQ(queue.add(waiter("a", 10s)), 0U);
  answer_ = in(1s);
  EXPECT_EQ(queue.add(waiter("hopeless", 1ms)), 0U);
  EXPECT_EQ(queue.add(waiter("no room to wait", 10s)), 0U);
  EXPECT_TRUE(queue.empty_approx());
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_EQ(reasons_, (std::vector{Reason::kOk, Reason::kLimited, Reason::kQueueFull}));
}

TEST_F(WaitQueueTest, OnlyTheFirstOfAKeyIsTried) {
  WaitQueue queue = make_queue();
  queue.add(waiter("a", 10s));
  queue.add(waiter("b", 10s));
  clock_.advance(1s);
  queue.poll();
  EXPECT_EQ(tried_, (std::vector<std::pair<std::string, Nanos>>{{"a", kStart}, {"a", kStart + 1s}}));
}

TEST_F(WaitQueueTest, APollBeforeAnythingIsDueTriesNobody) {
  WaitQueue queue = make_queue();
  queue.add(waiter("a", 10s));
  clock_.advance(999ms);
  EXPECT_EQ(queue.poll(), kStart + 1s);
  EXPECT_EQ(tried_.size(), 1U);
  queue.kick({2, 2});
  EXPECT_EQ(queue.poll(), kStart + 1s) << "another key's room is no reason";
  queue.kick({1, 1});
  queue.poll();
  EXPECT_EQ(tried_.size(), 2U);
}

TEST_F(WaitQueueTest, ARetryThatIsDueAtOnceDoesNotSpin) {
  WaitQueue queue = make_queue();
  queue.add(waiter("a", 10s));
  answer_ = in(0s);
  clock_.advance(1s);
  EXPECT_EQ(queue.poll(), kStart + 1s + 1ns);
  EXPECT_EQ(tried_.size(), 2U);
}

TEST_F(WaitQueueTest, ADenialThatNamesNoInstantEndsTheWait) {
  WaitQueue queue = make_queue();
  queue.add(waiter("a", 10s));
  answer_ = in(0s);
  answer_.reason = Reason::kTooManyKeys;
  clock_.advance(1s);
  EXPECT_EQ(queue.poll(), kMaxTime);
  EXPECT_EQ(reasons_, std::vector{Reason::kTooManyKeys});
}

TEST_F(WaitQueueTest, KickAllTriesTheFirstOfEveryKey) {
  WaitQueue queue = make_queue();
  queue.add(waiter("a", 10s));
  WaitQueue::Waiter other = waiter("b", 10s);
  other.key = {2, 2};
  queue.add(std::move(other));
  tried_.clear();
  answer_ = allowed();
  queue.kick_all();
  EXPECT_EQ(queue.poll(), kMaxTime);
  EXPECT_EQ(tried_.size(), 2U);
  EXPECT_FALSE(queue.has_waiters({1, 1}));
}

TEST_F(WaitQueueTest, HasWaitersIsPerKey) {
  WaitQueue queue = make_queue();
  queue.add(waiter("a", 10s));
  EXPECT_TRUE(queue.has_waiters({1, 1}));
  EXPECT_FALSE(queue.has_waiters({1, 2}));
  EXPECT_FALSE(queue.has_waiters({2, 1}));
}

}  // namespace
}  // namespace headgate::test
