// What is kept of checks that wait and of leases that have ended is bounded, and found without looking at all of it.
#include <gtest/gtest.h>

#include "engine/leases.h"
#include "engine/waiting_room.h"
#include "support/engines.h"

namespace headgate::test {
namespace {

using engine::CheckDecision;
using engine::Lease;
using engine::Leases;
using engine::WaitingRoom;
using engine::Why;
using namespace std::chrono_literals;

class EngineBounds : public EngineFixture {};

TEST_F(EngineBounds, NothingIsMadeForACheckThatFindsTheLineFull) {
  load(R"(
queue: {max_waiting: 2}
policies:
  - {id: p, key: [], limit: {strategy: concurrency, max: 1, lease_ttl: 60s}, behavior: queue, max_wait: 30s}
)");
  int made = 0;
  const auto ask = [&](const char* agent, CheckDecision& decision) {
    const Q check = std::move(Q("run").agent(agent));
    return engine_.check_or_wait({clock_.now(), check.get(), {}, engine::OnDenial::kQueue}, decision,
                                 [&]() -> engine::Engine::Done {
                                   ++made;
                                   return [](const CheckDecision&) {};
                                 });
  };
  for (const char* agent : {"A", "B", "C"}) {
    CheckDecision decision;
    (void)ask(agent, decision);
  }
  EXPECT_EQ(made, 2) << "the first was admitted";
  CheckDecision decision;
  EXPECT_EQ(ask("D", decision), 0U);
  EXPECT_EQ(made, 2) << "who has a promise made hears of it, so none is made that is not kept";
  EXPECT_EQ(decision.why, Why::kQueueFull);
  EXPECT_EQ(engine_.queue().size(), 2U);
}

std::shared_ptr<WaitingRoom::Waiting> somebody(WaitingRoom& room, std::uint64_t cell, Nanos retry_at) {
  auto waiting = std::make_shared<WaitingRoom::Waiting>();
  waiting->id = room.new_id();
  waiting->line = {cell, cell};
  waiting->deadline = 1h;
  waiting->retry_at = retry_at;
  return waiting;
}

TEST(WaitingRoomBounds, OneOwnerHasATenthOfThePlaces) {
  WaitingRoom room;
  constexpr std::size_t kPlaces = 2'000;
  for (std::size_t i = 0; i < kPlaces / 10; ++i) {
    ASSERT_TRUE(room.take_place(kPlaces, "A")) << "given back at once";
    room.add(room.take_place(kPlaces, "A"), somebody(room, i, 1min), room.kicks());
  }
  EXPECT_FALSE(room.take_place(kPlaces, "A"));
  EXPECT_TRUE(room.take_place(kPlaces, "B"));
  ASSERT_NE(room.take_any(), nullptr);
  EXPECT_TRUE(room.take_place(kPlaces, "A")) << "one of its places is free again";
}

TEST(WaitingRoomBounds, APlaceThatIsNotUsedIsGivenBack) {
  WaitingRoom room;
  {
    const WaitingRoom::Place first = room.take_place(2);
    const WaitingRoom::Place second = room.take_place(2);
    EXPECT_TRUE(first);
    EXPECT_TRUE(second);
    EXPECT_FALSE(room.take_place(2));
    EXPECT_EQ(room.size(), 2U);
  }
  EXPECT_TRUE(room.empty());
  room.add(room.take_place(1), somebody(room, 1, 10ns), room.kicks());
  EXPECT_EQ(room.size(), 1U);
  EXPECT_FALSE(room.take_place(1));
}

TEST(WaitingRoomBounds, RoomInACellIsForThoseWhomItHeldUp) {
  WaitingRoom room;
  for (std::uint64_t cell = 1; cell <= 3; ++cell) {
    room.add(room.take_place(10), somebody(room, cell, 1min), room.kicks());
  }
  EXPECT_EQ(room.next_due(), 1min);
  room.kick({2, 2});
  EXPECT_EQ(room.next_due(), 0ns);
  const std::uint64_t kicks = room.kicks();
  const auto taken = room.take_first_due(1ns);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->line, (base::Hash128{2, 2}));
  EXPECT_EQ(room.take_first_due(1ns), nullptr) << "the others wait for something else";
  taken->retry_at = 2min;
  taken->line = {9, 9};  // what holds it up now
  ASSERT_TRUE(room.put_back(taken, kicks));
  room.kick({2, 2});
  EXPECT_EQ(room.take_first_due(1ns), nullptr);
  room.kick({9, 9});
  EXPECT_EQ(room.take_first_due(1ns), taken);
}

TEST(WaitingRoomBounds, OwnersOfOneLineTakeTurns) {
  WaitingRoom room;
  const auto join = [&](std::string_view owner, int priority = 0) {
    auto waiting = somebody(room, 1, 0ns);
    waiting->priority = priority;
    room.add(room.take_place(1'000, owner), std::move(waiting), room.kicks());
  };
  for (int i = 0; i < 4; ++i) join("A");
  join("B");
  join("B");
  join("C", 5);
  std::string order;
  while (const auto next = room.take_first_due(1ns)) {
    order += next->owner;
    room.answered(*next);
    if (order == "CAB") join("D");
  }
  EXPECT_EQ(order, "CABABDAA");
}

TEST(WaitingRoomBounds, LinesTakeTurnsHoweverOftenOneIsKicked) {
  WaitingRoom room;
  for (std::uint64_t cell = 1; cell <= 2; ++cell)
    room.add(room.take_place(10), somebody(room, cell, 1min), room.kicks());
  room.kick({1, 1});
  room.kick({2, 2});
  const std::uint64_t kicks = room.kicks();
  const auto first = room.take_first_due(1ns);
  room.kick({1, 1});
  first->retry_at = 2min;
  ASSERT_TRUE(room.put_back(first, kicks));
  const auto second = room.take_first_due(1ns);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->line, (base::Hash128{2, 2}));
  EXPECT_EQ(room.take_first_due(1ns), first) << "its cell was kicked while it was tried";
  second->retry_at = 2min;
  ASSERT_TRUE(room.put_back(second, kicks));
  EXPECT_EQ(room.take_first_due(1ns), nullptr) << "only the other cell was kicked";
}

TEST(WaitingRoomBounds, TheNextOneIsTriedAfterOneThatWasServed) {
  WaitingRoom room;
  for (int i = 0; i < 3; ++i) room.add(room.take_place(10), somebody(room, 1, 1min), room.kicks());
  room.kick({1, 1});  // and another one, before poll()
  room.kick({1, 1});
  EXPECT_NE(room.take_first_due(1ns), nullptr);
  EXPECT_NE(room.take_first_due(1ns), nullptr) << "there may be room for two";
}

TEST(WaitingRoomBounds, ThousandsComeAndGoInOrder) {
  WaitingRoom room;
  constexpr std::uint64_t kMany = 9'900;
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    auto waiting = somebody(room, i % 7, Nanos{static_cast<std::int64_t>(1000 + i)});
    waiting->deadline = Nanos{static_cast<std::int64_t>(5000 + kMany - i)};
    ids.push_back(waiting->id);
    room.add(room.take_place(kMany, std::to_string(i % 20)), waiting, room.kicks());
  }
  for (std::uint64_t i = 0; i < kMany; i += 2) ASSERT_NE(room.take(ids[i]), nullptr);
  EXPECT_EQ(room.size(), kMany / 2);
  EXPECT_EQ(room.take_overdue(Nanos{5000}), nullptr);
  Nanos before{0};
  for (std::uint64_t i = 0; i < kMany / 2; ++i) {
    const auto overdue = room.take_overdue(1h);
    ASSERT_NE(overdue, nullptr);
    ASSERT_LE(before, overdue->deadline);
    before = overdue->deadline;
  }
  EXPECT_TRUE(room.empty());
  EXPECT_EQ(room.next_due(), kMaxTime);
}

std::shared_ptr<Lease> lease_of(const std::string& id, Nanos ttl = 24h) {
  auto lease = std::make_shared<Lease>();
  lease->id = id;
  lease->agent = "A";
  lease->ttl = ttl;
  lease->expires = ttl;
  return lease;
}

TEST(LeaseBounds, OfEndedOnesTheLatestAreRemembered) {
  Leases leases(10);
  const std::size_t most = Leases::kMostEnded;
  for (std::size_t i = 0; i < most + 100; ++i) {
    const auto lease = lease_of(std::to_string(i));
    ASSERT_TRUE(leases.add(lease));
    std::unique_lock<std::mutex> guard;
    ASSERT_EQ(leases.find(lease->id, guard), lease);
    leases.end(*lease, {{{"requests", 1}}, 0, false}, 0ns);
  }
  EXPECT_EQ(leases.open(), 0U);
  EXPECT_EQ(leases.remembered(), most);
  EXPECT_EQ(leases.next_expiry(), kMaxTime) << "nothing is to be done for them";
  std::unique_lock<std::mutex> guard;
  EXPECT_EQ(leases.find("99", guard), nullptr);
  EXPECT_EQ(leases.find_ended("99", 0ns), nullptr);
  ASSERT_NE(leases.find_ended("100", 0ns), nullptr);
  EXPECT_EQ(leases.find_ended("100", 0ns)->settled.costs[0].second, 1);
  EXPECT_EQ(leases.find_ended("100", 24h), nullptr) << "it would have lasted until then";
}

TEST(LeaseBounds, LongNamesTakeNoMoreMemoryThanThereIsForThem) {
  Leases leases(10);
  for (int i = 0; i < 20'000; ++i) {
    const auto lease = lease_of(std::to_string(i));
    lease->agent = std::string(512, 'a');
    ASSERT_TRUE(leases.add(lease));
    engine::Settled settled;
    for (int unit = 0; unit < 8; ++unit) settled.costs.emplace_back(std::string(512, 'u'), 1);
    std::unique_lock<std::mutex> guard;
    ASSERT_NE(leases.find(lease->id, guard), nullptr);
    leases.end(*lease, settled, 0ns);
  }
  EXPECT_LT(leases.remembered() * 8 * 512, Leases::kMostEndedBytes);
  EXPECT_GT(leases.remembered(), 1000U);
}

TEST(LeaseBounds, ThoseWhoseTimeIsOverMakeRoom) {
  Leases leases(10);
  for (int i = 0; i < 100; ++i) {
    const auto lease = lease_of(std::to_string(i), 1s);
    ASSERT_TRUE(leases.add(lease));
    std::unique_lock<std::mutex> guard;
    ASSERT_NE(leases.find(lease->id, guard), nullptr);
    leases.end(*lease, {}, std::chrono::seconds{i});
  }
  EXPECT_EQ(leases.remembered(), 1U);
}

TEST_F(EngineBounds, EndedTwiceIsToldTheSameTwice) {
  load("policies: [{id: p, limit: 10/1h}]");
  const CheckDecision held = engine_.check(Q("run").agent("A").hold().get());
  ASSERT_FALSE(held.lease.empty());
  const auto first = engine_.holds().settle(held.lease, "A", {});
  const auto again = engine_.holds().release(held.lease, "A");
  ASSERT_TRUE(first);
  ASSERT_TRUE(again);
  EXPECT_FALSE(first->again);
  EXPECT_TRUE(again->again);
  EXPECT_EQ(again->costs, first->costs) << "as it was settled";
  EXPECT_EQ(engine_.holds().settle(held.lease, "B", {}).error().code, ErrorCode::kForbidden);
  EXPECT_EQ(engine_.holds().renew(held.lease, "A").error().code, ErrorCode::kNotFound);
}

TEST_F(EngineBounds, BackOffOfAnAgentIsNotThatOfAnAddressOrUserOfItsName) {
  load("backoff: {enforced: true}\npolicies: [{id: p, match: {operations: [run]}, key: [], limit: 1/1h}]");
  (void)engine_.check(Q("run").agent("10.0.0.1").get());
  EXPECT_EQ(engine_.check(Q("run").agent("10.0.0.1").get()).why, Why::kExceeded);
  EXPECT_EQ(engine_.check(Q("look").agent("10.0.0.1").get()).why, Why::kBackingOff);
  EXPECT_TRUE(engine_.check(Q("look").ip("10.0.0.1").get()).allowed);
  EXPECT_TRUE(engine_.check(Q("look").user("10.0.0.1").get()).allowed);
}

}  // namespace
}  // namespace headgate::test
