// Plans that wait for others: how long at the most, and what becomes of them when those fail.
#include <gtest/gtest.h>

#include <deque>
#include <list>
#include <vector>

#include "store/redis/charge_queue.h"
#include "store/redis/request.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using store::redis::ChargeQueue;
using store::redis::Command;
using store::redis::Reply;
using store::redis::Request;
using store::redis::Requests;
using store::redis::steady_now;

// Keeps what it is told until the test answers, or fails it at once.
class Far final : public store::redis::Caller {
 public:
  struct Held {
    Nanos asked;
    std::string wire;
    Done done;
    void fail(ErrorCode code = ErrorCode::kIo) const { done(Error{code, "no answer in time", true}); }
  };
  void call(Command command, Done done) override {
    ++calls;
    held.push_back({command.asked, std::move(command.wire), std::move(done)});
    if (!down) return;
    const Held last = std::move(held.back());
    held.pop_back();
    last.fail();
  }
  [[nodiscard]] Nanos deadline() const noexcept override { return 1h; }

  std::deque<Held> held;
  int calls = 0;
  bool down = false;
};

constexpr int kGone = ChargeQueue::kMaxInFlight;  // as many go at once, each alone

constexpr int kFew = ChargeQueue::kMaxTogether - 1;  // so many wait, since they do not fill a call

class RedisQueue : public ::testing::Test {
 protected:
  void ask(int plans, Nanos asked, std::string blob = "plan", bool ahead = false, std::string owner = {}) {
    for (int i = 0; i < plans; ++i) {
      queue_.ask({{&key_, 1}, blob, asked, ahead, owner, [this](const Result<Reply>& reply) {
                    ++answered_;
                    if (!reply) errors_.push_back(reply.error().message);
                    if (!reply) codes_.push_back(reply.error().code);
                    return Far::Done{};
                  }});
    }
  }
  void fail_first(ErrorCode code = ErrorCode::kIo) {
    const Far::Held first = std::move(far_.held.front());
    far_.held.pop_front();
    first.fail(code);
  }

  const std::string key_ = "cell";
  Far far_;
  ChargeQueue queue_{far_, [](Nanos) { return kMaxTime; }};
  int answered_ = 0;
  std::vector<std::string> errors_;
  std::vector<ErrorCode> codes_;
};

TEST_F(RedisQueue, WhatWaitedForACallThatFailedIsSentAllTheSame) {
  ask(kGone + kFew, steady_now());
  ASSERT_EQ(far_.held.size(), ChargeQueue::kMaxInFlight);
  fail_first();
  EXPECT_EQ(answered_, 1);
  EXPECT_EQ(far_.held.size(), ChargeQueue::kMaxInFlight);  // all that waited have taken its place
  fail_first();
  EXPECT_EQ(answered_, 2);
  while (!far_.held.empty()) fail_first();
  EXPECT_EQ(answered_, kGone + kFew);
  EXPECT_EQ(far_.calls, kGone + 1);
}

TEST_F(RedisQueue, WhatFillsACallGoesAtOnceAndInOrder) {
  const Nanos now = steady_now();
  std::size_t plans = 0;
  const auto ask_one = [&] { ask(1, now, "<" + std::to_string(plans++) + ">"); };
  while (far_.held.size() < ChargeQueue::kMostInFlight) ask_one();
  const std::size_t whole = ChargeQueue::kMostInFlight - ChargeQueue::kMaxInFlight;
  EXPECT_EQ(plans, ChargeQueue::kMaxInFlight + whole * ChargeQueue::kMaxTogether);
  for (int i = 0; i < 100; ++i) ask_one();
  EXPECT_EQ(far_.held.size(), ChargeQueue::kMostInFlight) << "no more are on their way";
  std::string all;
  while (!far_.held.empty()) {
    all += far_.held.front().wire;
    fail_first();
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < plans; ++i) {
    at = all.find("<" + std::to_string(i) + ">", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_EQ(answered_, static_cast<int>(plans));
}

TEST_F(RedisQueue, ACallHasTheTimeThatIsLeftToTheFirstOfItsPlans) {
  const Nanos now = steady_now();
  ask(kGone, now - 10min);
  ask(1, now - 5min);
  ask(1, now);
  for (const Far::Held& held : far_.held) EXPECT_EQ(held.asked, now - 10min);
  fail_first();
  ASSERT_EQ(far_.held.size(), ChargeQueue::kMaxInFlight);
  EXPECT_EQ(far_.held.back().asked, now - 5min);
}

TEST_F(RedisQueue, WhatManyDependOnGoesAheadAndKeepsNobodyWaitingForLonger) {
  const Nanos now = steady_now();
  ask(kGone, now);
  ask(kFew - 5, now - 5min);
  ask(5, now, "urgent", true);
  fail_first();
  ASSERT_EQ(far_.held.size(), ChargeQueue::kMaxInFlight);
  EXPECT_LT(far_.held.back().wire.find("urgent"), far_.held.back().wire.find("plan"));
  EXPECT_EQ(far_.held.back().asked, now - 5min);
  while (!far_.held.empty()) fail_first();
  EXPECT_EQ(answered_, kGone + kFew);
}

TEST_F(RedisQueue, WhatHasWaitedForThreeQuartersOfItsTimeFailsByItself) {
  const Nanos now = steady_now();
  ask(kGone, now);
  ask(kFew - 1, now - 46min);
  ask(1, now - 44min);
  fail_first();
  // All of them at once, and the one that has time left goes.
  EXPECT_EQ(answered_, kFew);
  ASSERT_EQ(errors_.size(), static_cast<std::size_t>(kFew));
  EXPECT_EQ(errors_.front(), "redis: others were asked before, until too little time was left");
  EXPECT_EQ(errors_.back(), "no answer in time");
  ASSERT_EQ(far_.held.size(), ChargeQueue::kMaxInFlight);
  EXPECT_EQ(far_.held.back().asked, now - 44min);
}

TEST_F(RedisQueue, ATurnThatComesTooLateIsAnOverloadUnlessRedisIsLateItself) {
  const Nanos now = steady_now();
  for (const ErrorCode redis : {ErrorCode::kIo, ErrorCode::kTimedOut}) {
    codes_.clear();
    ask(kGone, now);
    ask(1, now - 46min);
    fail_first(redis);
    const ErrorCode expected = redis == ErrorCode::kTimedOut ? ErrorCode::kTimedOut : ErrorCode::kOverloaded;
    EXPECT_EQ(codes_, (std::vector<ErrorCode>{expected, redis}));
    while (!far_.held.empty()) fail_first();
  }
}

TEST_F(RedisQueue, OneOwnerHasAShareOfThePlaces) {
  const Nanos now = steady_now();
  const std::size_t whole = ChargeQueue::kMostInFlight - ChargeQueue::kMaxInFlight;
  ask(static_cast<int>(ChargeQueue::kMaxInFlight + whole * ChargeQueue::kMaxTogether), now, "plan", false, "flood");
  ASSERT_EQ(far_.held.size(), ChargeQueue::kMostInFlight);
  ask(static_cast<int>(ChargeQueue::kMaxOfOwner), now, "plan", false, "flood");
  EXPECT_EQ(answered_, 0);
  ask(1, now, "plan", false, "flood");
  EXPECT_EQ(codes_, std::vector{ErrorCode::kOverloaded});
  ask(1, now, "plan", false, "other");
  ask(1, now);
  EXPECT_EQ(answered_, 1) << "others wait";
  fail_first();  // a call's worth has left the queue
  codes_.clear();
  ask(static_cast<int>(ChargeQueue::kMaxTogether), now, "plan", false, "flood");
  EXPECT_TRUE(codes_.empty());
  ask(1, now, "plan", false, "flood");
  EXPECT_EQ(codes_, std::vector{ErrorCode::kOverloaded});
  while (!far_.held.empty()) fail_first();
}

TEST_F(RedisQueue, AllThatWaitFailOneAfterTheOtherWhereNobodyCanBeAsked) {
  const std::size_t whole = ChargeQueue::kMostInFlight - ChargeQueue::kMaxInFlight;
  const std::size_t most = ChargeQueue::kMaxInFlight + whole * ChargeQueue::kMaxTogether + ChargeQueue::kMaxQueued;
  ask(static_cast<int>(most), steady_now());
  EXPECT_EQ(answered_, 0);
  ask(1, steady_now());
  EXPECT_EQ(codes_, std::vector{ErrorCode::kOverloaded}) << "no more may wait";
  far_.down = true;
  fail_first();
  EXPECT_EQ(answered_, 1 + 1 + static_cast<int>(ChargeQueue::kMaxQueued));
  while (!far_.held.empty()) fail_first();
  EXPECT_EQ(answered_, 1 + static_cast<int>(most));
  far_.down = false;
  ask(1, steady_now());
  EXPECT_EQ(far_.held.size(), 1U);  // and the next list is sent at once
}

TEST(RedisRequests, TheDeadlineCountsFromWhenACommandWasAsked) {
  std::vector<std::string> late;
  Requests requests({1h, 100});  // answers what is left when it goes
  const Nanos now = steady_now();
  for (const auto& [name, asked] : {std::pair{"new", Nanos{0}}, {"old", now - 50min}, {"older", now - 55min}}) {
    Command command;
    command.asked = asked;
    store::redis::Caller::Done done = [&late, name = std::string(name)](const Result<Reply>& reply) {
      EXPECT_FALSE(reply);
      late.push_back(name);
    };
    static_cast<void>(requests.submit(command, done));
  }
  std::list<Request> fresh = requests.take_or_sleep();
  requests.accept(fresh);
  EXPECT_EQ(requests.expire(now), now + 5min);
  EXPECT_EQ(requests.expire(now + 5min), now + 10min);
  EXPECT_EQ(late, (std::vector<std::string>{"older"}));
  static_cast<void>(requests.expire(now + 10min));
  EXPECT_EQ(late, (std::vector<std::string>{"older", "old"}));
}

}  // namespace
}  // namespace headgate::test
