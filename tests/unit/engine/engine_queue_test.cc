// Checks that wait for room.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>

#include "engine/waiting_room.h"
#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using engine::CheckDecision;
using engine::Why;

class EngineQueue : public EngineFixture {
 protected:
  // What came of a check that may wait; empty while it does.
  struct Answer {
    int times = 0;
    bool allowed = false;
    Why why = Why::kPassed;
    Nanos waited{0};
    Nanos retry_after{0};
    std::string reason;
    std::string lease;
    int order = 0;
  };
  std::shared_ptr<Answer> wait(const Q& q, engine::Done::Valid valid = {}) {
    auto answer = std::make_shared<Answer>();
    auto note = [answered = answered_, answer](const CheckDecision& decision) {
      ++answer->times;
      answer->allowed = decision.allowed;
      answer->why = decision.why;
      answer->waited = decision.waited;
      answer->retry_after = decision.retry_after;
      answer->reason = decision.reason();
      answer->lease = decision.lease;
      answer->order = ++*answered;
    };
    last_ = engine_.check_async(q.get(), {std::move(note), std::move(valid)});
    return answer;
  }
  std::shared_ptr<Answer> wait(std::string_view agent) { return wait(Q("run").agent(agent)); }

  static constexpr const char* kOnePerSecond =
      "policies: [{id: p, key: [], limit: {strategy: token_bucket, capacity: 1, refill_rate: 1}, behavior: queue, "
      "max_wait: 5s}]";
  static constexpr const char* kOneSlot =
      "policies: [{id: c, key: [], limit: {strategy: concurrency, max: 1, lease_ttl: 1m}, behavior: queue, "
      "max_wait: 5s}]";

  std::uint64_t last_ = 0;
  // Shared: the engine answers checks that still wait in its destructor, which runs after this class's.
  std::shared_ptr<int> answered_ = std::make_shared<int>(0);
};

TEST_F(EngineQueue, WithRoomItIsAnsweredAtOnce) {
  load(kOnePerSecond);
  const auto answer = wait("A");
  EXPECT_EQ(last_, 0U);
  EXPECT_EQ(answer->times, 1);
  EXPECT_TRUE(answer->allowed);
  EXPECT_EQ(answer->waited, 0s);
}

TEST_F(EngineQueue, OneThatWaitsForALimitOfItsOwnKeepsNoOtherFromRoomInASharedOne) {
  load(
      "policies: [{id: shared, key: [], limit: {strategy: token_bucket, capacity: 1, refill_rate: 1}, behavior: queue, "
      "max_wait: 1m}, {id: own, key: [agent], limit: {strategy: concurrency, max: 1, lease_ttl: 10m}, behavior: queue, "
      "max_wait: 1m}]");
  ASSERT_TRUE(wait("B")->allowed);
  const auto first = wait("A");
  const auto second = wait("A");
  const auto other = wait("C");
  clock_.advance(1s);
  (void)engine_.poll();
  ASSERT_TRUE(first->allowed);
  clock_.advance(1s);
  (void)engine_.poll();
  EXPECT_EQ(second->times, 0) << "its slot is taken";
  EXPECT_TRUE(other->allowed) << "the shared bucket has room";
  ASSERT_TRUE(engine_.holds().release(first->lease, {}));
  clock_.advance(1s);
  (void)engine_.poll();
  EXPECT_TRUE(second->allowed) << "its slot is free";
}

TEST_F(EngineQueue, AnAskerThatIsNotValidAnyMoreIsNotAdmittedWhenItsTurnComes) {
  load(kOneSlot);
  const auto holder = wait("A");
  bool valid = true;
  const auto revoked = wait(Q("run").agent("B"), [&] { return valid; });
  const auto next = wait(Q("run").agent("C"), [] { return true; });
  valid = false;
  ASSERT_TRUE(engine_.holds().release(holder->lease, {}));
  (void)engine_.poll();
  EXPECT_EQ(revoked->times, 1);
  EXPECT_FALSE(revoked->allowed);
  EXPECT_EQ(revoked->why, Why::kRevoked);
  EXPECT_TRUE(revoked->lease.empty());
  EXPECT_TRUE(next->allowed) << "the slot was not taken";
}

TEST_F(EngineQueue, AskersThatAreNotValidAnyMoreLeaveTheLineWhereverTheyStand) {
  load(kOneSlot);
  const auto holder = wait("A");
  bool valid = true;
  const auto first = wait("B");
  const auto second = wait(Q("run").agent("C"), [&] { return valid; });
  EXPECT_EQ(engine_.queue().revoke_invalid(), 0U);
  EXPECT_EQ(engine_.queue().size(), 2U);
  valid = false;
  EXPECT_EQ(engine_.queue().revoke_invalid(), 1U);
  EXPECT_EQ(second->why, Why::kRevoked);
  EXPECT_EQ(engine_.queue().size(), 1U);
  EXPECT_EQ(first->times, 0);
}

TEST_F(EngineQueue, AnAskerThatIsNotValidAnyMoreIsToldSoAlsoWhereItsTimeIsUp) {
  load(kOneSlot);
  const auto holder = wait("A");
  bool valid = true;
  const auto revoked = wait(Q("run").agent("B"), [&] { return valid; });
  valid = false;
  clock_.advance(5s);
  (void)engine_.poll();
  EXPECT_EQ(revoked->why, Why::kRevoked);
}

TEST_F(EngineQueue, WaitersAreServedInOrderOfArrival) {
  load(kOnePerSecond);
  ASSERT_TRUE(wait("A")->allowed);
  const auto first = wait("B");
  const auto second = wait("C");
  const auto third = wait("D");
  EXPECT_EQ(engine_.queue().size(), 3U);
  EXPECT_EQ(first->times, 0);
  for (int second_passed = 1; second_passed <= 3; ++second_passed) {
    const Nanos due = engine_.poll();
    EXPECT_GT(due, clock_.now());
    EXPECT_LE(due, kStart + second_passed * 1s);
    clock_.set(kStart + second_passed * 1s - 1ns);
    engine_.poll();
    EXPECT_EQ(*answered_, second_passed);
    clock_.advance(1ns);
    engine_.poll();
    EXPECT_EQ(*answered_, second_passed + 1);
  }
  EXPECT_TRUE(first->allowed && second->allowed && third->allowed);
  EXPECT_EQ(first->order, 2);
  EXPECT_EQ(second->order, 3);
  EXPECT_EQ(third->order, 4);
  EXPECT_EQ(third->waited, 3s);
  EXPECT_EQ(engine_.queue().size(), 0U);
  EXPECT_FALSE(engine_.aftermath().rate_limited("B")) << "waiting is no violation";
  EXPECT_EQ(counts("p").denied, 0U);
}

TEST_F(EngineQueue, HigherPriorityGoesFirst) {
  load(kOnePerSecond);
  ASSERT_TRUE(wait("A")->allowed);
  const auto low = wait(Q("run").agent("B").priority(1));
  const auto high = wait(Q("run").agent("C").priority(9));
  const auto middle = wait(Q("run").agent("D").priority(5));
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1s);
    engine_.poll();
  }
  EXPECT_EQ(high->order, 2);
  EXPECT_EQ(middle->order, 3);
  EXPECT_EQ(low->order, 4);
}

TEST_F(EngineQueue, AWaitIsOverAfterMaxWait) {
  load(kOneSlot);
  ASSERT_TRUE(wait("A")->allowed);
  const auto answer = wait("B");
  clock_.advance(5s - 1ns);
  engine_.poll();
  EXPECT_EQ(answer->times, 0);
  clock_.advance(1ns);
  engine_.poll();
  ASSERT_EQ(answer->times, 1);
  EXPECT_FALSE(answer->allowed);
  EXPECT_EQ(answer->why, Why::kTimedOut);
  EXPECT_EQ(answer->waited, 5s);
  EXPECT_GT(answer->retry_after, 0s);
  EXPECT_EQ(answer->reason, "Timed out waiting: Concurrency limit 1 reached");
  EXPECT_TRUE(engine_.aftermath().rate_limited("B"));
  EXPECT_EQ(counts("c").denied, 1U);
}

TEST_F(EngineQueue, TheAskersOwnPatienceCountsWhereItIsShorter) {
  load(kOneSlot);
  ASSERT_TRUE(wait("A")->allowed);
  const auto impatient = wait(Q("run").agent("B").max_wait(2s));
  const auto patient = wait(Q("run").agent("C").max_wait(1h));
  clock_.advance(2s);
  engine_.poll();
  EXPECT_EQ(impatient->why, Why::kTimedOut);
  EXPECT_EQ(patient->times, 0);
  clock_.advance(3s);
  engine_.poll();
  EXPECT_EQ(patient->why, Why::kTimedOut);
}

TEST_F(EngineQueue, AWaitMayBeCancelledOnce) {
  load(kOneSlot);
  ASSERT_TRUE(wait("A")->allowed);
  const auto answer = wait("B");
  const std::uint64_t id = last_;
  ASSERT_NE(id, 0U);
  clock_.advance(1s);
  EXPECT_TRUE(engine_.queue().cancel(id));
  EXPECT_EQ(answer->times, 1);
  EXPECT_EQ(answer->why, Why::kCancelled);
  EXPECT_EQ(answer->waited, 1s);
  EXPECT_FALSE(engine_.queue().cancel(id));
  EXPECT_EQ(engine_.queue().size(), 0U);
}

TEST_F(EngineQueue, WhoeverIsBehindACancelledOneMovesUp) {
  load(kOnePerSecond);
  ASSERT_TRUE(wait("A")->allowed);
  (void)wait("B");
  const std::uint64_t first = last_;
  const auto second = wait("C");
  EXPECT_TRUE(engine_.queue().cancel(first));
  clock_.advance(1s);
  engine_.poll();
  EXPECT_TRUE(second->allowed);
}

TEST_F(EngineQueue, AFullQueueIsToldAtOnce) {
  load(std::string("queue: {max_waiting: 2}\n") + kOneSlot);
  ASSERT_TRUE(wait("A")->allowed);
  const auto first = wait("B");
  const auto second = wait("C");
  const auto third = wait("D");
  EXPECT_EQ(last_, 0U);
  EXPECT_EQ(third->times, 1);
  EXPECT_EQ(third->why, Why::kQueueFull);
  EXPECT_GT(third->retry_after, 0s);
  EXPECT_EQ(engine_.queue().size(), 2U);
}

TEST_F(EngineQueue, AHopelessWaitIsAnsweredAtOnce) {
  load("policies: [{id: p, key: [], limit: 1/60s, behavior: queue, max_wait: 5s}]");
  ASSERT_TRUE(wait("A")->allowed);
  const auto answer = wait("B");
  ASSERT_EQ(answer->times, 1);
  EXPECT_FALSE(answer->allowed);
  EXPECT_EQ(answer->why, Why::kExceeded);
  EXPECT_EQ(answer->retry_after, 60s);
  EXPECT_EQ(engine_.queue().size(), 0U);
}

TEST_F(EngineQueue, ACostThatCanNeverFitDoesNotWaitEvenBehindOthers) {
  load(kOnePerSecond);
  ASSERT_TRUE(wait("A")->allowed);
  const auto waiting = wait("B");
  EXPECT_EQ(waiting->times, 0);
  const auto never = wait(Q("run").agent("C").cost(5));
  ASSERT_EQ(never->times, 1);
  EXPECT_EQ(never->why, Why::kCostExceedsLimit);
}

TEST_F(EngineQueue, APolicyThatRejectsIsNotWaitedForEvenBehindOthers) {
  load(R"(
policies:
  - {id: q, key: [], limit: {strategy: token_bucket, capacity: 2, refill_rate: 1}, behavior: queue}
  - {id: r, limit: 1/1h}
)");
  ASSERT_TRUE(wait("A")->allowed);
  ASSERT_TRUE(wait("B")->allowed);
  const auto rejected = wait("A");
  ASSERT_EQ(rejected->times, 1) << "another policy rejects";
  EXPECT_FALSE(rejected->allowed);
  const auto waiting = wait("C");
  EXPECT_EQ(waiting->times, 0);
  const auto behind = wait("B");
  ASSERT_EQ(behind->times, 1);
  EXPECT_EQ(behind->why, Why::kExceeded);
  EXPECT_GE(behind->retry_after, 59min);
}

TEST_F(EngineQueue, AReleaseWakesTheFirstOfTheLine) {
  load(kOneSlot);
  const std::string lease = wait("A")->lease;
  const auto first = wait("B");
  const auto second = wait("C");
  engine_.poll();
  EXPECT_EQ(first->times, 0);
  clock_.advance(1s);
  ASSERT_TRUE(engine_.holds().release(lease, {}));
  engine_.poll();
  ASSERT_EQ(first->times, 1);
  EXPECT_TRUE(first->allowed);
  EXPECT_EQ(second->times, 0);
  ASSERT_TRUE(engine_.holds().settle(first->lease, {}, {}));
  engine_.poll();
  EXPECT_TRUE(second->allowed);
}

TEST_F(EngineQueue, AnExpiredLeaseWakesTheFirstOfTheLine) {
  load("policies: [{id: c, key: [], limit: {strategy: concurrency, max: 1, lease_ttl: 2s}, behavior: queue}]");
  ASSERT_TRUE(wait("A")->allowed);
  const auto answer = wait("B");
  EXPECT_EQ(engine_.poll(), kStart + 2s);
  clock_.advance(2s);
  engine_.poll();
  EXPECT_TRUE(answer->allowed);
}

TEST_F(EngineQueue, NewcomersDoNotOvertake) {
  load(kOnePerSecond);
  ASSERT_TRUE(wait("A")->allowed);
  const auto first = wait("B");
  clock_.advance(1s);
  // There is room now, but it is B's, although poll() has not run yet.
  const auto newcomer = wait("C");
  EXPECT_EQ(newcomer->times, 0);
  const CheckDecision at_once = ask("D");
  EXPECT_FALSE(at_once.allowed);
  EXPECT_TRUE(at_once.waits);
  EXPECT_TRUE(ask(Q("run").agent("E").peek()).allowed) << "looking takes nothing";
  engine_.poll();
  EXPECT_TRUE(first->allowed);
  EXPECT_EQ(newcomer->times, 0);
}

TEST_F(EngineQueue, ANewcomerThatIsDeniedForTheLineIsToldWhenToComeBackAndIsAViolation) {
  load(kOnePerSecond);
  ASSERT_TRUE(wait("A")->allowed);
  (void)wait("B");
  const CheckDecision denied = ask("C");
  EXPECT_FALSE(denied.allowed);
  EXPECT_GE(denied.retry_after, 1s);
  EXPECT_TRUE(engine_.aftermath().rate_limited("C"));
  EXPECT_EQ(counts("p").denied, 1U);
}

TEST_F(EngineQueue, ANewcomerOfHigherPriorityGoesBeforeTheLine) {
  load(kOnePerSecond);
  ASSERT_TRUE(wait("A")->allowed);
  const auto low = wait("B");
  clock_.advance(1s);
  EXPECT_TRUE(wait(Q("run").agent("C").priority(1))->allowed);
  engine_.poll();
  EXPECT_EQ(low->times, 0);
}

TEST_F(EngineQueue, LinesOfDifferentCellsDoNotHoldEachOtherUp) {
  load("policies: [{id: p, limit: {strategy: token_bucket, capacity: 1, refill_rate: 1}, behavior: queue}]");
  ASSERT_TRUE(wait("A")->allowed);
  const auto behind = wait("A");
  EXPECT_EQ(behind->times, 0);
  EXPECT_TRUE(wait("B")->allowed);
}

TEST_F(EngineQueue, AskedWithoutPatienceItIsDeniedAndSaysThatItCouldWait) {
  load(kOnePerSecond);
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision denied = ask("B");
  EXPECT_FALSE(denied.allowed);
  EXPECT_TRUE(denied.waits);
  EXPECT_TRUE(engine_.aftermath().rate_limited("B"));
  EXPECT_EQ(engine_.queue().size(), 0U);
}

TEST_F(EngineQueue, OneThatWaitsOwnsItsText) {
  load(
      "policies: [{id: p, key: ['attr:x'], limit: {strategy: token_bucket, capacity: 1, refill_rate: 1}, "
      "behavior: queue}]");
  std::shared_ptr<Answer> answer;
  {
    const Q q = std::move(Q("run").agent("somebody with a rather long name").attr("x", "a value that is long as well"));
    ASSERT_TRUE(wait(q)->allowed);
    answer = wait(q);
  }
  EXPECT_EQ(answer->times, 0);
  clock_.advance(1s);
  engine_.poll();
  EXPECT_TRUE(answer->allowed);
}

TEST_F(EngineQueue, RaisedLimitsWakeWhoeverWaits) {
  load("policies: [{id: c, key: [], limit: {strategy: concurrency, max: 4, lease_ttl: 1m}, behavior: queue}]");
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(wait("A")->allowed);
  const auto answer = wait("B");
  EXPECT_EQ(answer->times, 0);
  engine_.controls().report_load(0.1);
  engine_.poll();
  EXPECT_TRUE(answer->allowed) << "five slots now";
}

TEST_F(EngineQueue, TheEndOfTheEngineAnswersAll) {
  int answers = 0;
  Why why = Why::kPassed;
  {
    engine::Engine engine({.clock = &clock_});
    ASSERT_TRUE(engine.load(read(kOneSlot)));
    const auto done = [&](const CheckDecision& decision) {
      ++answers;
      why = decision.why;
    };
    for (int i = 0; i < 4; ++i) engine.check_async(Q("run").agent("A").get(), done);
    EXPECT_EQ(answers, 1);
  }
  EXPECT_EQ(answers, 4);
  EXPECT_EQ(why, Why::kCancelled);
}

TEST(WaitingRoom, OneThatIsCancelledWhileItIsTriedIsNotPutBack) {
  engine::WaitingRoom room;
  std::array<std::uint64_t, 2> ids{};
  for (std::uint64_t& id : ids) {
    auto waiting = std::make_shared<engine::WaitingRoom::Waiting>();
    waiting->deadline = kMaxTime;
    id = waiting->id = room.new_id();
    room.add(room.take_place(10), waiting, room.kicks());
  }
  auto taken = room.take_first_due(Nanos{10});
  ASSERT_EQ(taken->id, ids[0]);
  EXPECT_EQ(room.take(ids[0]), nullptr);
  EXPECT_FALSE(room.put_back(taken, room.kicks()));
  EXPECT_EQ(room.size(), 1U);
  taken = room.take_first_due(Nanos{10});
  ASSERT_EQ(taken->id, ids[1]);
  EXPECT_EQ(room.take(ids[0]), nullptr) << "long gone";
  EXPECT_TRUE(room.put_back(taken, room.kicks()));
  EXPECT_NE(room.take(ids[1]), nullptr);
}

TEST(WaitingRoom, AKickThatComesWhileOneIsTriedIsNotLost) {
  engine::WaitingRoom room;
  auto waiting = std::make_shared<engine::WaitingRoom::Waiting>();
  waiting->deadline = kMaxTime;
  waiting->retry_at = Nanos{10};
  waiting->id = room.new_id();
  room.add(room.take_place(10), waiting, room.kicks());
  EXPECT_EQ(room.next_due(), Nanos{10});
  std::uint64_t kicks = room.kicks();
  auto taken = room.take_first_due(Nanos{10});
  ASSERT_NE(taken, nullptr);
  taken->retry_at = Nanos{1000};
  room.kick();
  EXPECT_TRUE(room.put_back(taken, kicks));
  EXPECT_EQ(room.next_due(), Nanos{0}) << "room may have come since it was judged";
  kicks = room.kicks();
  taken = room.take_first_due(Nanos{10});
  taken->retry_at = Nanos{1000};
  EXPECT_TRUE(room.put_back(taken, kicks));
  EXPECT_EQ(room.next_due(), Nanos{1000});
  // The same for one that was judged before it joined the line.
  kicks = room.kicks();
  room.kick();
  auto late = std::make_shared<engine::WaitingRoom::Waiting>();
  late->line = {7, 7};
  late->deadline = kMaxTime;
  late->retry_at = Nanos{2000};
  late->id = room.new_id();
  room.add(room.take_place(10), late, kicks);
  EXPECT_EQ(room.next_due(), Nanos{0});
}

}  // namespace
}  // namespace headgate::test
