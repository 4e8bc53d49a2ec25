// A remote store that is there but late, and one that is away: what is admitted without it.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>

#include "support/engines.h"

namespace headgate::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Answers from cells in memory, or not, or when the test says so.
class LateRemote final : public store::RemoteStore {
 public:
  explicit LateRemote(Clock& clock) : clock_(clock), cells_({.seed = 1}) {}

  void apply(std::span<const store::Charge> charges, const store::Ask& ask, std::span<core::Outcome> outcomes,
             Done done) override {
    auto answer = [this, charges, ask, outcomes, done = std::move(done)] {
      if (why) return done(Error{*why, "no answer", true});
      store::Ask now = ask;
      now.now = clock_.now();
      now.wall = clock_.wall(now.now);
      done(Answer{cells_.apply(charges, now, outcomes), now.now});
    };
    if (holds_back) {
      waiting.emplace_back(std::move(answer));
    } else {
      answer();
    }
  }
  void refund(const store::Charge& charge, Nanos charged_at, Told) override {
    cells_.refund(charge, charged_at, clock_.now());
  }
  void release(const store::Charge& charge, LeaseId lease, Told) override {
    cells_.release(charge, lease, clock_.now());
  }
  void renew(const store::Charge& charge, LeaseId lease, Told) override { cells_.renew(charge, lease, clock_.now()); }
  Nanos now_approx() const noexcept override { return clock_.now(); }

  void answer_all() {
    while (!waiting.empty()) {
      const auto next = std::move(waiting.front());
      waiting.pop_front();
      next();
    }
  }

  std::optional<ErrorCode> why;  // it does not answer
  bool holds_back = false;
  std::deque<std::function<void()>> waiting;

 private:
  Clock& clock_;
  store::MemoryStore cells_;
};

struct LateStore : testing::Test {
  ManualClock clock{seconds{1'000'000}};
  LateRemote remote{clock};
  Engine engine{{.clock = &clock, .seed = 1, .remote = &remote}};

  void load_late(const std::string& rest) {
    policy::ReadResult read = policy::read_text(
        "policies: [{id: ten, match: {operations: [op]}, key: [agent], "
        "limit: {strategy: sliding_window, limit: 10, window: 60s}" +
            rest + "}]",
        "test");
    for (const auto& problem : read.problems) ADD_FAILURE() << problem.message;
    ASSERT_TRUE(engine.load(std::move(read.document)));
  }
  static Check late_check(std::string_view agent = "a") {
    Check check;
    check.agent = agent;
    check.operation = "op";
    return check;
  }
};

TEST_F(LateStore, ALateAnswerDeniesForAMomentAndAdmitsNothingHere) {
  load_late("");
  remote.why = ErrorCode::kTimedOut;
  const CheckDecision decision = engine.check(late_check());
  EXPECT_FALSE(decision.allowed);
  EXPECT_EQ(decision.error(), "store_late");
  EXPECT_EQ(decision.retry_after, milliseconds{100});
  EXPECT_FALSE(decision.stand_in);
  EXPECT_EQ(engine.late_answers(), 1U);
  EXPECT_EQ(engine.stand_ins(), 0U);
  EXPECT_EQ(engine.arrears(), 0U);
  EXPECT_FALSE(engine.rate_limited("a")) << "it is no fault of the agent";
}

TEST_F(LateStore, AStoreThatIsAwayHasAStandInWhichSaysSo) {
  load_late("");
  remote.why = ErrorCode::kIo;
  const CheckDecision decision = engine.check(late_check());
  EXPECT_TRUE(decision.allowed);
  EXPECT_TRUE(decision.stand_in);
  EXPECT_EQ(engine.stand_ins(), 1U);
  EXPECT_EQ(engine.late_answers(), 0U);
}

TEST_F(LateStore, AnOpenPolicyAdmitsWhatIsLate) {
  load_late(", on_store_failure: open");
  remote.why = ErrorCode::kTimedOut;
  EXPECT_TRUE(engine.check(late_check()).allowed);
  EXPECT_EQ(engine.late_answers(), 1U);
  EXPECT_EQ(engine.stand_ins(), 0U) << "it is not away";
}

TEST_F(LateStore, AClosedPolicyDeniesWhatIsLate) {
  load_late(", on_store_failure: closed");
  remote.why = ErrorCode::kTimedOut;
  EXPECT_EQ(engine.check(late_check()).error(), "store_late");
}

TEST_F(LateStore, ABucketThatTheAskerNamesIsDeniedWhenLateAndJudgedHereWhenAway) {
  const Gcra bucket{.max_burst = 9, .count = 10, .period = seconds{10}};
  std::vector<bool> allowed;
  const auto ask = [&] {
    const auto now = engine.throttle_or_wait(clock.now(), {"k"}, bucket, 1, [&]() -> Engine::Throttled {
      return [&](const Decision& decision) { allowed.push_back(decision.allowed()); };
    });
    EXPECT_FALSE(now.has_value());
  };
  remote.why = ErrorCode::kTimedOut;
  ask();
  remote.why = ErrorCode::kIo;
  ask();
  EXPECT_EQ(allowed, (std::vector<bool>{false, true}));
}

TEST_F(LateStore, ChecksThatDoNotWaitInLineAreAnsweredWhenTheStoreAnswers) {
  load_late(", behavior: queue, max_wait: 10s");
  remote.holds_back = true;
  std::vector<bool> allowed;
  for (int i = 0; i < 12; ++i) {
    CheckDecision decision;
    const std::uint64_t asked = engine.check_later(clock.now(), late_check(), decision, [&]() -> Engine::Done {
      return [&](const CheckDecision& decided) { allowed.push_back(decided.allowed); };
    });
    EXPECT_TRUE(Engine::in_flight(asked));
  }
  EXPECT_TRUE(allowed.empty());
  remote.answer_all();
  std::vector<bool> expected(10, true);
  expected.resize(12, false);
  EXPECT_EQ(allowed, expected);
  EXPECT_EQ(engine.waiting(), 0U);
}

TEST_F(LateStore, ChecksThatAreAllAdmittedOrNoneWaitForOneAnotherAndNotForTheCaller) {
  load_late("");
  remote.holds_back = true;
  std::string told;
  {
    // What was asked may be gone by the time that it is answered.
    const std::string agent = "an agent whose name is too long to lie in the string itself";
    std::vector<Check> checks{late_check(agent), late_check("b")};
    engine.check_all(clock.now(), checks,
                     {.each =
                          [&](std::size_t nth, const CheckDecision& decision) {
                            told += std::to_string(nth) + (decision.allowed ? "yes " : "no ");
                          },
                      .done = [&](bool all) { told += all ? "all" : "none"; }});
    checks.clear();
  }
  EXPECT_EQ(told, "");
  ASSERT_EQ(remote.waiting.size(), 1U) << "one after the other";
  remote.answer_all();
  EXPECT_EQ(told, "0yes 1yes all");
  EXPECT_EQ(engine.open_leases(), 0U);
}

TEST_F(LateStore, WhatAnEarlierCheckWasChargedComesBackWhenALaterOneIsDenied) {
  load_late("");
  Check all = late_check("b");
  const std::array<Cost, 1> ten{{{"requests", 10}}};
  all.costs = ten;
  ASSERT_TRUE(engine.check(all).allowed);
  remote.holds_back = true;
  std::string told;
  const std::array<Check, 3> checks{late_check("a"), late_check("b"), late_check("c")};
  engine.check_all(clock.now(), checks,
                   {.each = [&](std::size_t, const CheckDecision& d) { told += d.allowed ? "yes " : "no "; },
                    .done = [&](bool allowed) { told += allowed ? "all" : "none"; }});
  remote.answer_all();
  EXPECT_EQ(told, "yes no yes none");
  remote.holds_back = false;
  Check look = late_check("a");
  look.peek = true;
  EXPECT_EQ(engine.check(look).remaining, 9);
}

}  // namespace
}  // namespace headgate::engine
