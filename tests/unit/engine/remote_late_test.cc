// A remote store that is late, and one that is unreachable: what is admitted without it.
#include <gtest/gtest.h>

#include <string>

#include "support/remote_engine.h"

namespace headgate::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LateStore : public test::RemoteEngineFixture {};

TEST_F(LateStore, ALateAnswerDeniesForAMomentAndAdmitsNothingHere) {
  load_ten();
  remote.why = ErrorCode::kTimedOut;
  const CheckDecision decision = engine.check(check_of());
  EXPECT_FALSE(decision.allowed);
  EXPECT_EQ(decision.error(), "store_late");
  EXPECT_EQ(decision.retry_after, milliseconds{100});
  EXPECT_FALSE(decision.stand_in);
  EXPECT_EQ(engine.cells().late_answers(), 1U);
  EXPECT_EQ(engine.cells().stand_ins(), 0U);
  EXPECT_EQ(engine.cells().arrears().size(), 0U);
  EXPECT_FALSE(engine.aftermath().rate_limited("a")) << "it is no fault of the agent";
}

TEST_F(LateStore, AStoreThatIsAwayHasAStandInWhichSaysSo) {
  load_ten();
  remote.why = ErrorCode::kIo;
  const CheckDecision decision = engine.check(check_of());
  EXPECT_TRUE(decision.allowed);
  EXPECT_TRUE(decision.stand_in);
  EXPECT_EQ(engine.cells().stand_ins(), 1U);
  EXPECT_EQ(engine.cells().late_answers(), 0U);
}

TEST_F(LateStore, AnOpenPolicyAdmitsWhatIsLate) {
  load_ten(", on_store_failure: open");
  remote.why = ErrorCode::kTimedOut;
  EXPECT_TRUE(engine.check(check_of()).allowed);
  EXPECT_EQ(engine.cells().late_answers(), 1U);
  EXPECT_EQ(engine.cells().stand_ins(), 0U) << "it is not away";
}

TEST_F(LateStore, AnOverloadOfThisNodeDeniesUnderEveryRule) {
  for (const char* rule : {"open", "local", "closed"}) {
    load_ten(std::string(", on_store_failure: ") + rule);
    remote.why = ErrorCode::kOverloaded;
    const CheckDecision decision = engine.check(check_of());
    EXPECT_FALSE(decision.allowed) << rule;
    EXPECT_EQ(decision.error(), "store_late") << rule;
    EXPECT_FALSE(decision.stand_in) << rule;
  }
  EXPECT_EQ(engine.cells().late_answers(), 3U);
  EXPECT_EQ(engine.cells().arrears().size(), 0U);
}

TEST_F(LateStore, AClosedPolicyDeniesWhatIsLate) {
  load_ten(", on_store_failure: closed");
  remote.why = ErrorCode::kTimedOut;
  EXPECT_EQ(engine.check(check_of()).error(), "store_late");
}

TEST_F(LateStore, ABucketThatTheAskerNamesIsDeniedWhenLateAndJudgedHereWhenAway) {
  const Gcra bucket{.max_burst = 9, .count = 10, .period = seconds{10}};
  std::vector<bool> allowed;
  const auto ask = [&] {
    const auto now =
        engine.own_limits().throttle_or_wait(clock.now(), {"k"}, bucket, 1, [&]() -> engine::OwnLimits::Done {
          return [&](const Decision& decision) { allowed.push_back(decision.allowed()); };
        });
    EXPECT_FALSE(now.has_value());
  };
  for (const ErrorCode why : {ErrorCode::kTimedOut, ErrorCode::kOverloaded, ErrorCode::kIo}) {
    remote.why = why;
    ask();
  }
  EXPECT_EQ(allowed, (std::vector<bool>{false, false, true}));
}

TEST_F(LateStore, ChecksThatDoNotWaitInLineAreAnsweredWhenTheStoreAnswers) {
  load_ten(", behavior: queue, max_wait: 10s");
  remote.holds_back = true;
  std::vector<bool> allowed;
  for (int i = 0; i < 12; ++i) {
    CheckDecision decision;
    const std::uint64_t asked = engine.check_or_wait(
        {clock.now(), check_of(), {}, OnDenial::kAnswer}, decision,
        [&]() -> Engine::Done { return [&](const CheckDecision& decided) { allowed.push_back(decided.allowed); }; });
    EXPECT_TRUE(Engine::in_flight(asked));
  }
  EXPECT_TRUE(allowed.empty());
  remote.answer_all();
  std::vector<bool> expected(10, true);
  expected.resize(12, false);
  EXPECT_EQ(allowed, expected);
  EXPECT_EQ(engine.queue().size(), 0U);
}

TEST_F(LateStore, ChecksThatAreAllAdmittedOrNoneWaitForOneAnotherAndNotForTheCaller) {
  load_ten();
  remote.holds_back = true;
  std::string told;
  {
    // What was asked may be gone by the time that it is answered.
    const std::string agent = "an agent whose name is too long to lie in the string itself";
    std::vector<Check> checks{check_of(agent), check_of("b")};
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
  EXPECT_EQ(engine.holds().open(), 0U);
}

TEST_F(LateStore, WhatAnEarlierCheckWasChargedComesBackWhenALaterOneIsDenied) {
  load_ten();
  Check all = check_of("b");
  const std::array<Cost, 1> ten{{{"requests", 10}}};
  all.costs = ten;
  ASSERT_TRUE(engine.check(all).allowed);
  remote.holds_back = true;
  std::string told;
  const std::array<Check, 3> checks{check_of("a"), check_of("b"), check_of("c")};
  engine.check_all(clock.now(), checks,
                   {.each = [&](std::size_t, const CheckDecision& d) { told += d.allowed ? "yes " : "no "; },
                    .done = [&](bool allowed) { told += allowed ? "all" : "none"; }});
  remote.answer_all();
  EXPECT_EQ(told, "yes no yes none");
  remote.holds_back = false;
  Check look = check_of("a");
  look.peek = true;
  EXPECT_EQ(engine.check(look).remaining, 9);
}

TEST_F(LateStore, AnOwnerWithoutRoomForArrearsIsDeniedAndOthersAreNot) {
  load(
      "policies: [{id: ten, match: {operations: [op]}, key: [agent, session], limit: {strategy: sliding_window, limit: "
      "10, window: 60s}}]");
  remote.why = ErrorCode::kIo;
  Check check = check_of();
  std::string session;
  std::size_t allowed = 0;
  for (std::size_t i = 0; i < Arrears::kMost / 10 + 5; ++i) {
    session = std::to_string(i);
    check.session = session;
    allowed += engine.check(check).allowed ? 1 : 0;
  }
  EXPECT_EQ(allowed, Arrears::kMost / 10);
  EXPECT_EQ(engine.check(check).error(), "store_unavailable");
  EXPECT_TRUE(engine.check(check_of("b")).allowed);
  remote.why.reset();
  engine.cells().make_up();
  EXPECT_EQ(engine.cells().arrears().size(), 0U) << "one portion after the other";
}

TEST_F(LateStore, AWaitEndsInTimeWhileOthersAreBeingTried) {
  load(
      "policies: [{id: one, match: {operations: [op]}, key: [agent], limit: {strategy: concurrency, max: 1, lease_ttl: "
      "600s}, behavior: queue, max_wait: 500s}]");
  std::vector<std::string> agents;
  for (int i = 0; i < 200; ++i) agents.push_back("a" + std::to_string(i));
  int answered = 0;
  for (const std::string& agent : agents) {
    for (int i = 0; i < 2; ++i) (void)engine.check_async(check_of(agent), [&](const CheckDecision&) { ++answered; });
  }
  EXPECT_EQ(answered, 200) << "the first of each holds the slot, the second waits";
  Check brief = check_of("b");
  brief.max_wait = seconds{3};
  std::vector<Why> heard;
  for (int i = 0; i < 2; ++i)
    (void)engine.check_async(brief, [&](const CheckDecision& it) { heard.push_back(it.why); });
  remote.holds_back = true;  // retries are in flight from now on
  clock.advance(seconds{2});
  for (int i = 0; i < 10; ++i) (void)engine.poll();
  const std::size_t in_flight = remote.waiting.size();
  EXPECT_LE(in_flight, 64U);
  clock.advance(seconds{2});
  (void)engine.poll();
  ASSERT_EQ(heard.size(), 2U) << "its time is over, whatever the store is asked meanwhile";
  EXPECT_EQ(heard.back(), Why::kTimedOut);
  remote.answer_all();
}

}  // namespace
}  // namespace headgate::engine
