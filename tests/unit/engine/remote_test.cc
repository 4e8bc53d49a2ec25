#include <gtest/gtest.h>

#include "support/remote_engine.h"

namespace headgate::engine {
namespace {

using std::chrono::seconds;

class RemoteEngine : public test::RemoteEngineFixture {};

TEST_F(RemoteEngine, AnswersWhenTheStoreDoes) {
  load_ten();
  remote.holds_back = true;
  CheckDecision decision;
  int answers = 0;
  bool allowed = false;
  const std::uint64_t waiting =
      engine.check_or_wait({clock.now(), check_of("a"), {}, OnDenial::kQueue}, decision, [&]() -> Engine::Done {
        return [&](const CheckDecision& decided) {
          ++answers;
          allowed = decided.allowed;
          EXPECT_EQ(decided.remaining, 9);
        };
      });
  EXPECT_TRUE(Engine::in_flight(waiting));
  EXPECT_EQ(answers, 0);
  EXPECT_FALSE(engine.queue().cancel(waiting));  // it will be answered either way
  remote.answer_all();
  EXPECT_EQ(answers, 1);
  EXPECT_TRUE(allowed);
}

TEST_F(RemoteEngine, ChargesTheRemoteCellsAndNotItsOwn) {
  load_ten();
  EXPECT_EQ(admitted(12), 10);
  EXPECT_EQ(engine.cells().totals().cells, 0U);
  EXPECT_EQ(remote.asked, 12);
}

TEST_F(RemoteEngine, AsksNobodyWhileUnitsTakenAheadLast) {
  load_ten(", consistency: leased");
  remote.leased_units = 3;
  EXPECT_EQ(admitted(3), 3);
  EXPECT_EQ(remote.asked, 0);
  EXPECT_EQ(admitted(1), 1);
  EXPECT_EQ(remote.asked, 1);
}

TEST_F(RemoteEngine, AStrictPolicyIsNeverAnsweredFromUnitsTakenAhead) {
  load_ten();
  remote.leased_units = 3;
  EXPECT_EQ(admitted(2), 2);
  EXPECT_EQ(remote.asked, 2);
}

TEST_F(RemoteEngine, AClosedPolicyDeniesWhileTheStoreIsAway) {
  load_ten(", on_store_failure: closed");
  remote.why = ErrorCode::kIo;
  const CheckDecision decision = engine.check(check_of("a"));
  EXPECT_FALSE(decision.allowed);
  EXPECT_EQ(decision.error(), "store_unavailable");
  EXPECT_EQ(decision.retry_after, seconds{1});
  ASSERT_NE(decision.denied_by(), nullptr);
  EXPECT_EQ(decision.denied_by()->id, "ten");
  EXPECT_FALSE(engine.aftermath().rate_limited("a"));  // the store failed, not the agent
}

TEST_F(RemoteEngine, AnOpenPolicyAdmitsWhileTheStoreIsAway) {
  load_ten(", on_store_failure: open");
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(25), 25);
}

TEST_F(RemoteEngine, ALocalPolicyAdmitsItsShareWhileTheStoreIsAway) {
  load_ten();
  engine.controls().set_local_share(0.3);
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(25), 3);
  engine.controls().set_local_share(0.5);
  EXPECT_EQ(admitted(25), 2);
}

class RemoteAllowances : public RemoteEngine {
 protected:
  int admitted(policy::OnStoreFailure while_away, int asks) {
    Allowances allowances;
    allowances.on_store_failure = while_away;
    allowances.all.emplace_back() = {engine.allowances().limit(*Limit::quota({.limit = 10, .period = Period::kDay})),
                                     engine.allowances().cell(std::array<std::string_view, 1>{"a"})};
    int count = 0;
    for (int i = 0; i < asks; ++i) {
      last = engine.check_at(clock.now(), check_of("a"), {{}, &allowances});
      count += last.allowed ? 1 : 0;
    }
    return count;
  }
  CheckDecision last;
};

TEST_F(RemoteAllowances, AreChargedInTheStore) {
  EXPECT_EQ(admitted(policy::OnStoreFailure::kLocal, 12), 10);
  EXPECT_EQ(last.why, Why::kQuota);
  EXPECT_EQ(engine.cells().totals().cells, 0U);
}

TEST_F(RemoteAllowances, DoAsTheyWereToldWhileTheStoreIsAway) {
  engine.controls().set_local_share(0.3);
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(policy::OnStoreFailure::kClosed, 3), 0);
  EXPECT_EQ(last.error(), "store_unavailable");
  EXPECT_EQ(engine.cells().arrears().size(), 0U);
  EXPECT_EQ(admitted(policy::OnStoreFailure::kLocal, 5), 3);
  EXPECT_EQ(last.why, Why::kQuota);
  EXPECT_EQ(admitted(policy::OnStoreFailure::kOpen, 5), 5);
  EXPECT_EQ(engine.cells().arrears().size(), 1U);
  remote.why.reset();
  engine.cells().make_up();
  EXPECT_EQ(admitted(policy::OnStoreFailure::kLocal, 5), 2);  // of ten, eight are used
}

TEST_F(RemoteEngine, ALocalShareIsAtLeastOne) {
  load_ten();
  engine.controls().set_local_share(0.001);
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(5), 1);
}

TEST_F(RemoteEngine, AClosedPolicyKeepsTheOthersFromBeingCharged) {
  load(R"(
policies:
  - {id: ten, match: {operations: [op]}, limit: {strategy: sliding_window, limit: 10, window: 60s}}
  - {id: shut, match: {operations: [op]}, limit: 100/60s, on_store_failure: closed}
)");
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(5), 0);
  EXPECT_EQ(engine.cells().arrears().size(), 0U);
  EXPECT_EQ(engine.cells().totals().cells, 0U);
}

TEST_F(RemoteEngine, WhatWasAdmittedMeanwhileIsChargedAfterwards) {
  load_ten();
  EXPECT_EQ(admitted(2), 2);
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(5), 5);
  EXPECT_EQ(engine.cells().arrears().size(), 1U);
  remote.why.reset();
  engine.cells().make_up();
  EXPECT_EQ(engine.cells().arrears().size(), 0U);
  EXPECT_EQ(admitted(10), 3);
}

TEST_F(RemoteEngine, WhatIsOwedBeyondTheLimitIsChargedAsFarAsItGoes) {
  load_ten();
  EXPECT_EQ(admitted(7), 7);
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(9), 9);
  remote.why.reset();
  engine.cells().make_up();
  EXPECT_EQ(admitted(1), 0);
}

TEST_F(RemoteEngine, WhatHasLeftTheWindowIsOwedNoMore) {
  load_ten();
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(9), 9);
  remote.why.reset();
  clock.advance(seconds{61});
  engine.cells().make_up();
  EXPECT_EQ(admitted(20), 10);
}

TEST_F(RemoteEngine, WhatCouldNotBeMadeUpIsKeptForTheNextTime) {
  load_ten();
  remote.why = ErrorCode::kIo;
  EXPECT_EQ(admitted(4), 4);
  engine.cells().make_up();
  EXPECT_EQ(engine.cells().arrears().size(), 1U);
  remote.why.reset();
  engine.cells().make_up();
  EXPECT_EQ(admitted(20), 6);
}

TEST_F(RemoteEngine, SettlingForLessGivesTheRestBackThere) {
  load_ten();
  Check check = check_of("a");
  const std::array<Cost, 1> cost{Cost{"requests", 8}};
  check.costs = cost;
  check.hold = true;
  const CheckDecision held = engine.check(check);
  ASSERT_TRUE(held.allowed);
  EXPECT_EQ(admitted(5), 2);
  const std::array<Cost, 1> actual{Cost{"requests", 1}};
  ASSERT_TRUE(engine.holds().settle(held.lease, "a", actual));
  EXPECT_EQ(admitted(10), 7);
}

TEST_F(RemoteEngine, AHoldTakenWhileTheStoreWasAwayIsReleasedHere) {
  load_ten();
  remote.why = ErrorCode::kIo;
  Check check = check_of("a");
  check.hold = true;
  const CheckDecision held = engine.check(check);
  ASSERT_TRUE(held.allowed);
  ASSERT_TRUE(engine.holds().release(held.lease, "a"));
  EXPECT_EQ(admitted(20), 10);
}

TEST_F(RemoteEngine, ACheckThatMayQueueWaitsForRoomThere) {
  load_ten(", behavior: queue, max_wait: 90s");
  EXPECT_EQ(admitted(10), 10);
  CheckDecision decision;
  int answers = 0;
  const std::uint64_t waiting =
      engine.check_or_wait({clock.now(), check_of("a"), {}, OnDenial::kQueue}, decision, [&]() -> Engine::Done {
        return [&](const CheckDecision& decided) {
          ++answers;
          EXPECT_TRUE(decided.allowed);
          EXPECT_EQ(decided.waited, seconds{60});
        };
      });
  EXPECT_TRUE(Engine::in_flight(waiting));
  EXPECT_EQ(engine.queue().size(), 1U);
  EXPECT_EQ(wakes, 1);
  clock.advance(seconds{60});
  (void)engine.poll();
  EXPECT_EQ(answers, 1);
}

TEST_F(RemoteEngine, AnAskerWhoIsGoneLeavesTheLineByTheNumberItWasGivenInFlight) {
  load_ten(", behavior: queue, max_wait: 90s");
  EXPECT_EQ(admitted(10), 10);
  CheckDecision decision;
  Why why = Why::kPassed;
  const std::uint64_t waiting =
      engine.check_or_wait({clock.now(), check_of("a"), {}, OnDenial::kQueue}, decision,
                           [&]() -> Engine::Done { return [&](const CheckDecision& decided) { why = decided.why; }; });
  EXPECT_TRUE(engine.queue().cancel(waiting));
  EXPECT_EQ(why, Why::kCancelled);
  EXPECT_EQ(engine.queue().size(), 0U);
}

TEST_F(RemoteEngine, AThrottledAskerIsToldWhenTheStoreAnswers) {
  const Gcra bucket{.max_burst = 0, .count = 1, .period = seconds{60}};
  std::vector<bool> told;
  const auto ask = [&] {
    return engine.own_limits().throttle_or_wait(clock.now(), {"k"}, bucket, 1, [&]() -> engine::OwnLimits::Done {
      return [&](const Decision& decision) { told.push_back(decision.allowed()); };
    });
  };
  remote.holds_back = true;
  EXPECT_FALSE(ask());
  EXPECT_FALSE(ask());
  EXPECT_TRUE(told.empty());
  remote.answer_all();
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
  remote.holds_back = false;
  remote.why = ErrorCode::kIo;
  EXPECT_FALSE(ask());
  EXPECT_EQ(told, (std::vector<bool>{true, false, true}));  // its own cells stand in
}

TEST_F(RemoteEngine, AStandInWithoutRoomDeniesABucketThatIsNew) {
  Engine small{{.clock = &clock, .max_cells = 1, .seed = 1, .remote = &remote}};
  remote.why = ErrorCode::kIo;
  std::vector<std::string> told;
  for (const char* key : {"k", "other", "k"}) {
    const Gcra bucket{.max_burst = 9, .count = 10, .period = seconds{60}};
    const auto now =
        small.own_limits().throttle_or_wait(clock.now(), {key}, bucket, 1, [&]() -> engine::OwnLimits::Done {
          return [&](const Decision& decision) { told.emplace_back(to_string(decision.reason)); };
        });
    EXPECT_FALSE(now.has_value());
  }
  EXPECT_EQ(told, (std::vector<std::string>{"ok", "too_many_keys", "ok"}));
}

TEST_F(RemoteEngine, APolicyWithoutHoldsKeepsWhatIsReleased) {
  load_ten(", holds: false");
  Check check = check_of();
  check.hold = true;
  for (int i = 0; i < 10; ++i) {
    const CheckDecision held = engine.check(check);
    ASSERT_TRUE(held.allowed) << i;
    ASSERT_TRUE(engine.holds().release(held.lease, "a"));
  }
  EXPECT_FALSE(engine.check(check).allowed);
}

TEST_F(RemoteEngine, ALeastCostIsChargedThere) {
  load_ten(", least_cost: 5");
  const std::array<Cost, 1> nothing{Cost{"requests", 0}};
  Check check = check_of();
  check.costs = nothing;
  EXPECT_EQ(engine.check(check).remaining, 5);
  EXPECT_EQ(engine.check(check_of()).remaining, 0);
  EXPECT_FALSE(engine.check(check).allowed);
}

TEST_F(RemoteEngine, BucketsThatAskersNameAreThereToo) {
  const Gcra bucket{.max_burst = 1, .count = 1, .period = seconds{60}};
  EXPECT_TRUE(engine.own_limits().throttle(clock.now(), {"k"}, bucket, 1)->allowed());
  EXPECT_TRUE(engine.own_limits().throttle(clock.now(), {"k"}, bucket, 1)->allowed());
  EXPECT_FALSE(engine.own_limits().throttle(clock.now(), {"k"}, bucket, 1)->allowed());
  EXPECT_EQ(remote.asked, 3);
  remote.why = ErrorCode::kIo;
  EXPECT_TRUE(engine.own_limits().throttle(clock.now(), {"k"}, bucket, 1)->allowed());  // its own cells stand in
}

}  // namespace
}  // namespace headgate::engine
