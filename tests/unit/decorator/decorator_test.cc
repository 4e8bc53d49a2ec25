// The decorator over a fake limiter that records what it is asked, and over the real one.
#include "headgate/decorator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <any>
#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace headgate {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

Decision allow() {
  Decision decision;
  decision.verdict = Verdict::kAllowed;
  return decision;
}

Decision refuse(Nanos retry_after) {
  Decision decision;
  decision.verdict = Verdict::kNotYet;
  decision.reason = Reason::kLimited;
  decision.retry_after = retry_after;
  return decision;
}

// Gives the answers that were set and records the calls.
class FakeLimiter final : public Limiter {
 public:
  Decision try_acquire(std::string_view key, Units permits) noexcept override {
    asked.push_back("try " + std::string(key) + " " + std::to_string(permits));
    return answer;
  }
  Decision acquire(std::string_view key, const AcquireOptions& options) override {
    asked.push_back("acquire " + std::string(key) + " " + std::to_string(options.permits) + " within " +
                    std::to_string(options.max_wait.count()) + " priority " + std::to_string(options.priority));
    return answer;
  }
  Decision peek(std::string_view, Units) const noexcept override { return answer; }
  Statistics statistics(std::string_view) const override { return {}; }
  void clear(std::string_view) noexcept override {}

  Decision answer = allow();
  std::vector<std::string> asked;
};

// Jumps to the instant that a caller waits for, and records the jump.
class JumpingClock final : public Clock {
 public:
  Nanos now() const noexcept override { return now_; }
  void wait(std::unique_lock<std::mutex>&, std::condition_variable&, Nanos until) const override {
    waits.push_back(until - now_);
    now_ = until;
  }
  mutable std::vector<Nanos> waits;

 private:
  mutable Nanos now_{100s};
};

std::unique_ptr<MemoryLimiter> limiter_of(const Result<Limit>& limit, Clock& clock) {
  return *MemoryLimiter::make(Options().limit(*limit).clock(clock));
}

struct Message {
  std::string agent;
  Units size = 1;
};

TEST(Decorator, PassesArgumentsInAndTheResultOut) {
  FakeLimiter limiter;
  const auto add = limited([](int a, int b) { return a + b; }, limiter);
  const auto sum = add(2, 3);
  ASSERT_TRUE(sum);
  EXPECT_EQ(*sum, 5);
  EXPECT_EQ(sum.value(), 5);
  EXPECT_TRUE(sum.called());
  EXPECT_TRUE(sum.decision().allowed());
}

TEST(Decorator, CountsAllCallsUnderOneKeyAtOnePermitByDefault) {
  FakeLimiter limiter;
  auto call = limited([](int) {}, limiter);
  EXPECT_TRUE(call(1));
  EXPECT_TRUE(call(2));
  EXPECT_THAT(limiter.asked, ElementsAre("try  1", "try  1"));
}

TEST(Decorator, DoesNotCallWhenRefusedAndHandsOverTheDecision) {
  FakeLimiter limiter;
  limiter.answer = refuse(250ms);
  int calls = 0;
  auto call = limited([&] { return ++calls; }, limiter);
  auto result = call();
  EXPECT_FALSE(result);
  EXPECT_FALSE(result.called());
  EXPECT_EQ(result.decision().retry_after, 250ms);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(result.value_or(-1), -1);
}

TEST(Decorator, TakesAFixedKeyInAnyKindOfString) {
  FakeLimiter limiter;
  const auto nothing = [] {};
  EXPECT_TRUE(limited(nothing, limiter, DecoratorOptions().key("literal"))());
  EXPECT_TRUE(limited(nothing, limiter, DecoratorOptions().key(std::string("string")))());
  EXPECT_TRUE(limited(nothing, limiter, DecoratorOptions().key(std::string_view("view")))());
  EXPECT_THAT(limiter.asked, ElementsAre("try literal 1", "try string 1", "try view 1"));
}

struct Name {
  operator std::string() const { return "converted"; }
};

TEST(Decorator, SelectsTheKeyFromTheArgumentsAsViewStringReferencePointerOrConvertible) {
  FakeLimiter limiter;
  const auto send = [](const Message&) {};
  const Message message{"agent", 1};
  EXPECT_TRUE(limited(send, limiter,
                      DecoratorOptions().key([](const Message& m) { return std::string_view(m.agent); }))(message));
  EXPECT_TRUE(limited(send, limiter, DecoratorOptions().key([](const Message& m) { return m.agent + "!"; }))(message));
  EXPECT_TRUE(limited(send, limiter, DecoratorOptions().key(&Message::agent))(message));
  EXPECT_TRUE(limited(send, limiter, DecoratorOptions().key([](const Message&) { return "pointer"; }))(message));
  EXPECT_TRUE(limited(send, limiter, DecoratorOptions().key([](const Message&) { return Name{}; }))(message));
  EXPECT_THAT(limiter.asked,
              ElementsAre("try agent 1", "try agent! 1", "try agent 1", "try pointer 1", "try converted 1"));
}

TEST(Decorator, TakesPermitsAsANumberOrFromTheArguments) {
  FakeLimiter limiter;
  const auto send = [](const Message&) {};
  EXPECT_TRUE(limited(send, limiter, DecoratorOptions().permits(7))(Message{}));
  EXPECT_TRUE(limited(send, limiter, DecoratorOptions().permits(&Message::size))(Message{"", 42}));
  EXPECT_TRUE(limited(send, limiter, DecoratorOptions().permits([](const Message& m) {
    return static_cast<int>(m.size) * 2;
  }))(Message{"", 4}));
  EXPECT_THAT(limiter.asked, ElementsAre("try  7", "try  42", "try  8"));
}

TEST(Decorator, SettersKeepWhatOthersHaveSetInAnyOrder) {
  FakeLimiter limiter;
  limiter.answer = refuse(1s);
  int told = 0;
  const auto send = [](const Message&) {};
  const auto tell = [&](const Decision&) { ++told; };
  const Message message{"a", 3};
  EXPECT_FALSE(
      limited(send, limiter,
              DecoratorOptions().queue(2ns, 5).key(&Message::agent).permits(&Message::size).on_limited(tell))(message));
  EXPECT_FALSE(
      limited(send, limiter,
              DecoratorOptions().on_limited(tell).permits(&Message::size).key(&Message::agent).queue(2ns, 5))(message));
  EXPECT_THAT(limiter.asked, ElementsAre("acquire a 3 within 2 priority 5", "acquire a 3 within 2 priority 5"));
  EXPECT_EQ(told, 2);
}

TEST(Decorator, TellsTheCallbackTheDecisionAndTheArguments) {
  FakeLimiter limiter;
  std::vector<std::string> told;
  auto send = limited(
      [](const Message&, int) { return 1; }, limiter,
      DecoratorOptions().on_limited([&](const Decision& decision, const Message& message, int n) {
        told.push_back(message.agent + " " + std::to_string(n) + " " + std::to_string(decision.retry_after.count()));
      }));
  EXPECT_TRUE(send(Message{"a", 1}, 5));
  EXPECT_TRUE(told.empty());
  limiter.answer = refuse(9ns);
  EXPECT_FALSE(send(Message{"b", 1}, 6));
  EXPECT_THAT(told, ElementsAre("b 6 9"));
}

TEST(Decorator, QueuesWithMaxWaitAndPriorityAndRejectsAgainWhenToldTo) {
  FakeLimiter limiter;
  const auto nothing = [] {};
  EXPECT_TRUE(limited(nothing, limiter, DecoratorOptions().queue(3s))());
  EXPECT_TRUE(limited(nothing, limiter, DecoratorOptions().queue(3s, -2))());
  EXPECT_TRUE(limited(nothing, limiter, DecoratorOptions().queue(3s).reject())());
  EXPECT_THAT(limiter.asked, ElementsAre("acquire  1 within 3000000000 priority 0",
                                         "acquire  1 within 3000000000 priority -2", "try  1"));
}

TEST(Decorator, ResultsMayBeReferences) {
  FakeLimiter limiter;
  int stored = 1;
  const auto get = limited([&]() -> int& { return stored; }, limiter);
  auto result = get();
  static_assert(std::is_same_v<decltype(result), Limited<int&>>);
  *result = 9;
  EXPECT_EQ(stored, 9);
  EXPECT_EQ(&*result, &stored);

  const auto get_const = limited([&]() -> const int& { return stored; }, limiter);
  EXPECT_EQ(&*get_const(), &stored);
  std::string text = "given";
  const auto give = limited([&]() -> std::string&& { return std::move(text); }, limiter);
  static_assert(std::is_same_v<decltype(*give()), std::string&&>);
  const std::string taken = *give();
  EXPECT_EQ(taken, "given");

  EXPECT_EQ(result.value_or(4), 9);
  limiter.answer = refuse(1s);
  EXPECT_FALSE(get());
  EXPECT_EQ(get().value_or(4), 4);
}

TEST(Decorator, ResultsMayBeNothing) {
  FakeLimiter limiter;
  int calls = 0;
  const auto call = limited([&] { ++calls; }, limiter);
  static_assert(std::is_same_v<decltype(call()), Limited<void>>);
  EXPECT_TRUE(call().called());
  limiter.answer = refuse(1s);
  EXPECT_FALSE(call().called());
  EXPECT_EQ(calls, 1);
}

struct Pinned {
  explicit Pinned(int n) : value(n) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  int value;
};

TEST(Decorator, ResultsNeedNotBeCopyableOrMovable) {
  FakeLimiter limiter;
  const auto make = limited([](int n) { return std::make_unique<int>(n); }, limiter);
  auto made = make(3);
  const std::unique_ptr<int> owned = *std::move(made);
  EXPECT_EQ(*owned, 3);
  EXPECT_EQ(*make(5).value_or(nullptr), 5);

  const auto pin = limited([](int n) { return Pinned(n); }, limiter);
  EXPECT_EQ(pin(4)->value, 4);
}

TEST(Decorator, ResultsThatConvertFromAnythingHoldWhatWasReturned) {
  FakeLimiter limiter;
  const auto any = limited([] { return std::any(5); }, limiter);
  EXPECT_EQ(std::any_cast<int>(*any()), 5);
  const auto maybe = limited([] { return std::optional<bool>(); }, limiter);
  const auto result = maybe();
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->has_value());
}

TEST(Decorator, ArgumentsAreForwardedWithoutCopies) {
  FakeLimiter limiter;
  auto take = limited([](std::unique_ptr<std::string> text) { return *text; }, limiter,
                      DecoratorOptions().key([](const std::unique_ptr<std::string>& text) { return *text; }));
  EXPECT_EQ(*take(std::make_unique<std::string>("moved")), "moved");
  EXPECT_THAT(limiter.asked, ElementsAre("try moved 1"));

  limiter.answer = refuse(1s);
  auto kept = std::make_unique<std::string>("kept");
  const std::string* const before = kept.get();
  EXPECT_FALSE(take(static_cast<std::unique_ptr<std::string>&&>(kept)));
  EXPECT_EQ(kept.get(), before);  // a call that was not made takes nothing

  limiter.answer = allow();
  int n = 1;
  auto increment = limited([](int& x) { ++x; }, limiter);
  EXPECT_TRUE(increment(n));
  EXPECT_EQ(n, 2);
}

class Session {
 public:
  int fetch(int n) { return fetched_ += n; }

 private:
  int fetched_ = 0;
};

int twice(int n) { return 2 * n; }

TEST(Decorator, WrapsFunctionsMembersAndMutableCallables) {
  FakeLimiter limiter;
  Session session;
  EXPECT_EQ(*limited(twice, limiter)(4), 8);
  auto fetch = limited(&Session::fetch, limiter);
  EXPECT_EQ(*fetch(session, 2), 2);
  EXPECT_EQ(*fetch(&session, 3), 5);
  auto count = limited([n = 0]() mutable { return ++n; }, limiter);
  EXPECT_EQ(*count(), 1);
  EXPECT_EQ(*count(), 2);
}

TEST(Decorator, ExceptionsPassThroughAndRefundNothing) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::token_bucket({2, {1, 1s}}), clock);
  auto fail = limited(
      [](bool really) {
        if (really) throw std::runtime_error("broken");
        return 1;
      },
      *limiter);
  EXPECT_THROW((void)fail(true), std::runtime_error);
  EXPECT_EQ(limiter->remaining(""), 1);
  EXPECT_TRUE(fail(false));
  EXPECT_FALSE(fail(false));
}

TEST(Decorator, LimitsEachKeyOnItsOwn) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::token_bucket({2, {1, 1s}}), clock);
  const auto send =
      limited([](const Message& m) { return m.agent; }, *limiter, DecoratorOptions().key(&Message::agent));
  EXPECT_TRUE(send(Message{"a", 1}));
  EXPECT_TRUE(send(Message{"a", 1}));
  EXPECT_FALSE(send(Message{"a", 1}));
  EXPECT_TRUE(send(Message{"b", 1}));
  clock.advance(1s);
  EXPECT_TRUE(send(Message{"a", 1}));
}

TEST(Decorator, ACostThatNeverFitsIsToldApartFromOneThatMust) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::token_bucket({2, {1, 1s}}), clock);
  const auto send = limited([](const Message&) {}, *limiter, DecoratorOptions().permits(&Message::size));
  EXPECT_EQ(send(Message{"", 3}).decision().reason, Reason::kCostExceedsLimit);
  EXPECT_EQ(send(Message{"", -1}).decision().reason, Reason::kInvalidCost);
  EXPECT_TRUE(send(Message{"", 2}));
  EXPECT_EQ(send(Message{"", 2}).decision().retry_after, 2s);
}

TEST(Decorator, ConcurrencyIsHeldDuringTheCallAndGivenBackAfterIt) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::concurrency({1, 30s}), clock);
  auto nested = limited([&] { return limiter->remaining("k"); }, *limiter, DecoratorOptions().key("k"));
  for (int i = 0; i < 3; ++i) {
    const auto during = nested();
    ASSERT_TRUE(during);
    EXPECT_EQ(*during, 0);
    EXPECT_EQ(limiter->remaining("k"), 1);
  }
}

TEST(Decorator, ConcurrencyIsGivenBackWhenTheCallThrows) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::concurrency({1, 30s}), clock);
  auto fail = limited([]() -> int { throw std::runtime_error("broken"); }, *limiter, DecoratorOptions().key("k"));
  EXPECT_THROW((void)fail(), std::runtime_error);
  EXPECT_EQ(limiter->remaining("k"), 1);
}

TEST(Decorator, ConcurrencyIsGivenBackThroughTheInterfaceAlone) {
  ManualClock clock(100s);
  const auto memory = limiter_of(Limit::concurrency({1, 30s}), clock);
  Limiter& limiter = *memory;
  const auto call = limited([] {}, limiter);
  EXPECT_TRUE(call());
  EXPECT_TRUE(call());
}

TEST(Decorator, ALeaseIsReleasedUnderItsKeyEvenIfTheCallMovedFromIt) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::concurrency({1, 30s}), clock);
  auto swallow = limited(
      [](Message&& message) {
        std::string taken = std::move(message.agent);
        taken.assign(taken.size(), '#');  // the bytes that the view is of
      },
      *limiter, DecoratorOptions().key([](const Message& m) { return std::string_view(m.agent); }));
  const std::string agent = "a name too long to be kept inside the string object itself";
  EXPECT_TRUE(swallow(Message{agent, 1}));
  EXPECT_EQ(limiter->remaining(agent), 1);
}

TEST(Decorator, ALimiterThatCannotReleaseIsAskedForNothingMore) {
  FakeLimiter limiter;
  limiter.answer.lease = 77;
  EXPECT_EQ(limited([] {}, limiter)().decision().lease, 77U);
  EXPECT_EQ(limiter.asked.size(), 1U);
}

TEST(Decorator, PassesTheDelayOnByDefault) {
  FakeLimiter limiter;
  limiter.answer.delay = 3s;
  const auto result = limited([] { return 1; }, limiter)();
  EXPECT_TRUE(result);
  EXPECT_EQ(result.decision().delay, 3s);
}

TEST(Decorator, WaitsOutTheDelayBeforeTheCallWhenToldTo) {
  JumpingClock clock;
  const auto limiter = limiter_of(Limit::leaky_bucket({{2, 1s}, 3}), clock);
  std::vector<Nanos> ran;
  const auto call =
      limited([&] { ran.push_back(clock.now() - 100s); }, *limiter, DecoratorOptions().wait_out_delay(clock));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(call());
  EXPECT_THAT(ran, ElementsAre(0s, 500ms, 1s, 1500ms));
  EXPECT_THAT(clock.waits, ElementsAre(500ms, 500ms, 500ms));
}

TEST(Decorator, DoesNotWaitOutARefusal) {
  JumpingClock clock;
  FakeLimiter limiter;
  limiter.answer = refuse(5s);
  limiter.answer.delay = 5s;
  EXPECT_FALSE(limited([] {}, limiter, DecoratorOptions().wait_out_delay(clock))());
  EXPECT_TRUE(clock.waits.empty());
}

TEST(Decorator, AManualClockWakesWhoeverWaitsOutADelay) {
  ManualClock clock(100s);
  FakeLimiter limiter;
  limiter.answer.delay = 10s;
  std::atomic<bool> ran = false;
  const auto call = limited([&] { ran = true; }, limiter, DecoratorOptions().wait_out_delay(clock));
  std::thread thread([&] { EXPECT_TRUE(call()); });
  while (!ran) clock.advance(1s);
  thread.join();
  EXPECT_GE(clock.now(), 110s);
}

TEST(Decorator, QueuedCallsRunWhenTheirTurnComes) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::token_bucket({1, {1, 1s}}), clock);
  const auto call = limited([] { return true; }, *limiter, DecoratorOptions().queue(1h));
  ASSERT_TRUE(call());
  std::atomic<bool> ran = false;
  std::thread thread([&] { ran = call().called(); });
  while (limiter->totals().waiting == 0) std::this_thread::yield();
  clock.advance(1s);
  thread.join();
  EXPECT_TRUE(ran);
}

TEST(Decorator, QueuedCallsAreRefusedWhenTheirWaitCannotBeEnough) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::token_bucket({1, {1, 1s}}), clock);
  int told = 0;
  const auto call =
      limited([] {}, *limiter, DecoratorOptions().queue(500ms).on_limited([&](const Decision&) { ++told; }));
  EXPECT_TRUE(call());
  EXPECT_FALSE(call());
  EXPECT_EQ(told, 1);
}

TEST(Decorator, ThreadsSharingOneCallableNeverHoldMoreThanAllowed) {
  ManualClock clock(100s);
  const auto limiter = limiter_of(Limit::concurrency({3, 30s}), clock);
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  std::atomic<int> calls = 0;
  const auto call = limited(
      [&] {
        const int now = ++running;
        int seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        ++calls;
        std::this_thread::yield();
        --running;
      },
      *limiter);
  std::vector<std::thread> threads;
  threads.reserve(6);
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) (void)call();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(limiter->remaining(""), 3);
}

// The oracle: each key may spend `capacity` in all, since time stands still.
RC_GTEST_PROP(Decorator, RunsExactlyTheCallsThatTheirKeysBudgetCovers, ()) {
  ManualClock clock(100s);
  const auto capacity = *rc::gen::inRange<Units>(1, 20);
  const auto limiter = limiter_of(Limit::token_bucket({capacity, {1, 1h}}), clock);
  std::map<std::string, Units> left;
  int refusals = 0;
  const auto send = limited(
      [](const Message& m) { return m.size; }, *limiter,
      DecoratorOptions().key(&Message::agent).permits(&Message::size).on_limited([&](const Decision&) { ++refusals; }));
  const auto messages = *rc::gen::container<std::vector<std::pair<int, Units>>>(
      rc::gen::pair(rc::gen::inRange(0, 3), rc::gen::inRange<Units>(0, 8)));
  int expected_refusals = 0;
  for (const auto& [agent, size] : messages) {
    Units& budget = left.try_emplace(std::to_string(agent), capacity).first->second;
    const bool fits = size <= budget;
    if (fits) budget -= size;
    expected_refusals += fits ? 0 : 1;
    const auto result = send(Message{std::to_string(agent), size});
    RC_ASSERT(result.called() == fits);
    if (fits) RC_ASSERT(*result == size);
  }
  RC_ASSERT(refusals == expected_refusals);
}

}  // namespace
}  // namespace headgate
