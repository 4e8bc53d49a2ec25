#include "quota/run_queue.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;
using Entered = RunQueue::Entered;

Arrival of(const std::string& user, const std::string& id, Nanos until = kMaxTime, int priority = 0,
           double weight = 1) {
  Arrival arrival;
  arrival.id = id;
  arrival.user = user;
  arrival.until = until;
  arrival.priority = priority;
  arrival.weight = weight;
  return arrival;
}

std::string ids(const std::vector<Arrival>& arrivals) {
  std::string text;
  for (const Arrival& arrival : arrivals) text += (text.empty() ? "" : " ") + arrival.id;
  return text;
}
std::string line_of(const RunQueue& queue) {
  std::string text;
  for (const auto& one : queue.waiting(1, 0s, 1'000)) text += (text.empty() ? "" : " ") + one.arrival.id;
  return text;
}
// All that start one after the other, each ending before the next.
std::string drained(RunQueue& queue, std::size_t most = 1'000) {
  std::vector<Arrival> all;
  while (all.size() < most && queue.waiting_count() > 0) {
    for (const auto& run : queue.running(1'000)) (void)queue.end(run.arrival.id, "", 0s);
    for (Arrival& arrival : queue.step(1, 0s).started) all.push_back(std::move(arrival));
  }
  return ids(all);
}

RunQueueOptions one_at_a_time() { return {.concurrent = 1, .release_every = 0ns}; }

TEST(RunQueue, OneOwnerHasAShareOfThePlacesForAllUsersThatItNames) {
  RunQueue queue({.concurrent = 1, .max_waiting = 200, .release_every = 0ns});
  ASSERT_EQ(queue.enter(of("ann", "running"), 1, 0s), Entered::kStarted);
  const auto enter = [&](const std::string& owner, int n) {
    Arrival arrival = of("made-up-" + std::to_string(n), owner + std::to_string(n));
    arrival.owner = owner;
    return queue.enter(std::move(arrival), 1, 0s);
  };
  for (int n = 0; n < 20; ++n) EXPECT_EQ(enter("token:1", n), Entered::kWaits);
  EXPECT_EQ(enter("token:1", 20), Entered::kFull);
  EXPECT_EQ(enter("token:2", 20), Entered::kWaits);
  EXPECT_EQ(queue.enter(of("bob", "b"), 1, 0s), Entered::kWaits);
  // A place is free again whether the wait ends or the run starts.
  EXPECT_TRUE(queue.end("token:10", "", 0s));
  EXPECT_TRUE(queue.end("running", "", 0s));
  EXPECT_EQ(queue.step(1, 0s).started.size(), 1U);
  EXPECT_EQ(enter("token:1", 21), Entered::kWaits);
  EXPECT_EQ(enter("token:1", 22), Entered::kWaits);
  EXPECT_EQ(enter("token:1", 23), Entered::kFull);
}

TEST(RunQueue, StartsAtOnceWhileThereAreSlots) {
  RunQueue queue({.concurrent = 2});
  EXPECT_EQ(queue.estimate("ann", 0, 1, 1, 0s), 0s);
  EXPECT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  EXPECT_EQ(queue.enter(of("ann", "b"), 1, 0s), Entered::kStarted);
  EXPECT_EQ(queue.enter(of("ann", "c"), 1, 0s), Entered::kWaits);
  EXPECT_EQ(queue.enter(of("ann", "d", 0s), 1, 0s), Entered::kBlocked);
  EXPECT_EQ(queue.running_count(), 2);
  EXPECT_EQ(queue.waiting_count(), 1);
  EXPECT_EQ(ids(queue.step(1, 1s).started), "");
  EXPECT_TRUE(queue.end("a", "ann", 1s));
  EXPECT_EQ(ids(queue.step(1, 1s).started), "c");
  EXPECT_EQ(queue.running(9).back().since, 1s);
}

TEST(RunQueue, WithoutABoundOnlyAFactorOfZeroHoldsAnybodyBack) {
  RunQueue queue;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(queue.enter(of("ann", std::to_string(i)), 0.3, 0s), Entered::kStarted);
  EXPECT_EQ(queue.enter(of("ann", "x", 0s), 0, 0s), Entered::kBlocked);
  EXPECT_EQ(queue.enter(of("ann", "y", 5s), 0, 0s), Entered::kWaits);
  EXPECT_EQ(queue.estimate("ann", 0, 1, 0, 0s), std::nullopt);
  EXPECT_EQ(queue.waiting(0, 0s, 9).at(0).estimate, std::nullopt);
  EXPECT_EQ(queue.next_step(0, 0s), 5s) << "it gives up then";
}

TEST(RunQueue, TheFactorShrinksTheNumberOfSlotsButNotBelowOne) {
  const auto fit = [](std::size_t concurrent, double factor) {
    RunQueue queue({.concurrent = concurrent});
    int started = 0;
    while (queue.enter(of("ann", std::to_string(started), 0s), factor, 0s) == Entered::kStarted) ++started;
    return started;
  };
  EXPECT_EQ(fit(10, 1), 10);
  EXPECT_EQ(fit(10, 0.8), 8);
  EXPECT_EQ(fit(10, 0.3), 3);
  EXPECT_EQ(fit(100, 0.29), 29);
  EXPECT_EQ(fit(2, 0.3), 1);
  EXPECT_EQ(fit(10, 0), 0);
  EXPECT_EQ(fit(10, 7), 10);
  EXPECT_EQ(fit(10, std::nan("")), 0);
}

TEST(RunQueue, NobodyOvertakesThoseWhoWait) {
  RunQueue queue({.concurrent = 1, .release_every = 1s});
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("bob", "b"), 1, 0s), Entered::kWaits);
  ASSERT_TRUE(queue.end("a", "", 0s));
  EXPECT_EQ(queue.enter(of("cid", "c", 0s), 1, 0s), Entered::kBlocked);
  EXPECT_EQ(queue.enter(of("cid", "d"), 1, 0s), Entered::kWaits);
  EXPECT_EQ(ids(queue.step(1, 1s).started), "b");
}

TEST(RunQueue, AfterABlockStartsAreSpacedOut) {
  RunQueue queue({.release_every = 50ms});
  for (const char* id : {"a", "b", "c"}) ASSERT_EQ(queue.enter(of("ann", id), 0, 0s), Entered::kWaits);
  EXPECT_EQ(queue.next_step(0, 1s), kMaxTime);
  EXPECT_EQ(queue.next_step(1, 1s), 1s);
  EXPECT_EQ(ids(queue.step(1, 1s).started), "a");
  EXPECT_EQ(ids(queue.step(1, 1s).started), "");
  EXPECT_EQ(queue.next_step(1, 1s), 1050ms);
  EXPECT_EQ(ids(queue.step(1, 1050ms - 1ns).started), "");
  EXPECT_EQ(ids(queue.step(1, 1050ms).started), "b");
  EXPECT_EQ(ids(queue.step(1, 5s).started), "c") << "late, but still one at a time";
  EXPECT_EQ(queue.enter(of("ann", "d"), 1, 5s), Entered::kStarted) << "nobody waits any more";
  EXPECT_EQ(queue.next_step(1, 5s), 61s) << "when the first run expires";
}

TEST(RunQueue, GivesUpOnThoseWhoWaitedAsLongAsTheyWereReadyTo) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("ann", "b", 2s), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("ann", "c", 3s), 1, 0s), Entered::kWaits);
  EXPECT_EQ(queue.next_step(1, 0s), 2s);
  const auto moved = queue.step(1, 2s);
  EXPECT_EQ(ids(moved.expired), "b");
  EXPECT_EQ(ids(moved.started), "");
  EXPECT_EQ(line_of(queue), "c");
  EXPECT_FALSE(queue.end("b", "", 2s));
}

TEST(RunQueue, RunThatNobodyRenewsMakesRoom) {
  RunQueue queue({.concurrent = 1, .ttl = 10s, .release_every = 0ns});
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("bob", "b"), 1, 0s), Entered::kWaits);
  EXPECT_FALSE(queue.renew("a", "bob", 5s)) << "not its own";
  EXPECT_FALSE(queue.renew("b", "bob", 5s)) << "it does not run";
  EXPECT_FALSE(queue.renew("x", "", 5s));
  EXPECT_TRUE(queue.renew("a", "ann", 5s));
  EXPECT_EQ(queue.next_step(1, 5s), 15s);
  EXPECT_EQ(ids(queue.step(1, 10s).started), "");
  EXPECT_EQ(ids(queue.step(1, 15s).started), "b");
  EXPECT_FALSE(queue.renew("a", "ann", 15s));
  EXPECT_EQ(queue.enter(of("cid", "c"), 1, 25s), Entered::kStarted) << "b has expired, though nobody stepped";
}

TEST(RunQueue, EndTakesOnlyOnesOwn) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("bob", "b"), 1, 0s), Entered::kWaits);
  EXPECT_EQ(queue.enter(of("bob", "a"), 1, 0s), Entered::kTwice);
  EXPECT_EQ(queue.enter(of("ann", "b"), 1, 0s), Entered::kTwice);
  EXPECT_FALSE(queue.end("a", "bob", 0s));
  EXPECT_FALSE(queue.end("b", "ann", 0s));
  EXPECT_TRUE(queue.end("b", "bob", 0s));
  EXPECT_TRUE(queue.end("a", "", 0s));
  EXPECT_FALSE(queue.end("a", "", 0s));
  EXPECT_EQ(queue.running_count() + queue.waiting_count(), 0);
}

TEST(RunQueue, HasBounds) {
  RunQueue queue({.concurrent = 1, .max_waiting = 3, .max_waiting_per_user = 2});
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  EXPECT_EQ(queue.enter(of("ann", "b"), 1, 0s), Entered::kWaits);
  EXPECT_EQ(queue.enter(of("ann", "c", kMaxTime, 5), 1, 0s), Entered::kWaits);
  EXPECT_EQ(queue.enter(of("ann", "d"), 1, 0s), Entered::kFull) << "over all priorities";
  EXPECT_EQ(queue.enter(of("bob", "e"), 1, 0s), Entered::kWaits);
  EXPECT_EQ(queue.enter(of("cid", "f"), 1, 0s), Entered::kFull);
  ASSERT_TRUE(queue.end("b", "", 0s));
  EXPECT_EQ(queue.enter(of("ann", "g"), 1, 0s), Entered::kWaits);

  RunQueue many({.max_running = 2, .ttl = 10s});
  ASSERT_EQ(many.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(many.enter(of("ann", "b"), 1, 1s), Entered::kStarted);
  ASSERT_TRUE(many.renew("a", "", 2s));
  ASSERT_EQ(many.enter(of("ann", "c"), 1, 3s), Entered::kStarted);
  EXPECT_EQ(many.running_count(), 2);
  EXPECT_FALSE(many.renew("b", "", 3s)) << "it would have expired first";
  EXPECT_TRUE(many.renew("a", "", 3s));
}

TEST(RunQueue, HigherPriorityGoesFirst) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  for (const auto& [id, priority] : {std::pair{"low", -1}, {"mid", 0}, {"high", 7}, {"mid2", 0}}) {
    ASSERT_EQ(queue.enter(of("ann", id, kMaxTime, priority), 1, 0s), Entered::kWaits);
  }
  EXPECT_EQ(line_of(queue), "high mid mid2 low");
  EXPECT_EQ(drained(queue), "high mid mid2 low");
}

TEST(RunQueue, OneWhoAsksAThousandTimesDoesNotStarveOneWhoAsksOnce) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(queue.enter(of("ann", std::to_string(i)), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("bob", "b"), 1, 0s), Entered::kWaits);
  EXPECT_EQ(drained(queue, 3), "0 b 1");
}

TEST(RunQueue, WeightsShareStartsEvenlyOverTime) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    ASSERT_EQ(queue.enter(of("free", "f" + n), 1, 0s), Entered::kWaits);
    ASSERT_EQ(queue.enter(of("premium", "p" + n, kMaxTime, 0, 4), 1, 0s), Entered::kWaits);
  }
  EXPECT_EQ(drained(queue), "p0 f0 p1 p2 p3 p4 f1 p5 p6 p7 f2 f3 f4 f5 f6 f7");
}

TEST(RunQueue, StayingAwaySavesUpNoTurns) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(queue.enter(of("ann", "a" + std::to_string(i)), 1, 0s), Entered::kWaits);
  (void)drained(queue, 50);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(queue.enter(of("bob", "b" + std::to_string(i)), 1, 0s), Entered::kWaits);
  EXPECT_EQ(drained(queue, 8), "a50 b0 a51 b1 a52 b2 a53 b3");
}

TEST(RunQueue, LeavingAndComingBackGainsNoTurn) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  for (int i = 0; i < 9; ++i)
    ASSERT_EQ(queue.enter(of("ann", "a" + std::to_string(i), kMaxTime, 0, 1), 1, 0s), Entered::kWaits);
  for (int i = 0; i < 9; ++i)
    ASSERT_EQ(queue.enter(of("cid", "c" + std::to_string(i), kMaxTime, 0, 1), 1, 0s), Entered::kWaits);
  int of_bob = 0;
  for (int i = 0; i < 12; ++i) {
    // Bob always has one that waits, but never two: each time he is a newcomer, and still one of three.
    (void)queue.enter(of("bob", "b" + std::to_string(i)), 1, 0s);
    of_bob += drained(queue, 1).starts_with("b") ? 1 : 0;
  }
  EXPECT_EQ(of_bob, 4);
}

TEST(RunQueue, PlaceOfOneWhoLeftIsNotInherited) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("bob", "b"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("ann", "c"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(line_of(queue), "a b c");
  ASSERT_TRUE(queue.end("a", "ann", 0s));
  EXPECT_EQ(line_of(queue), "b c");
  EXPECT_EQ(drained(queue), "b c");
}

TEST(RunQueue, AStreamOfNewUsersDoesNotStarveAnOldOne) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("ann", "a0"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("ann", "a1"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("bob", "b"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(drained(queue, 1), "a0");
  int before = 0;
  for (; before < 100; ++before) {
    const std::string n = std::to_string(before);
    ASSERT_EQ(queue.enter(of("new" + n, n), 1, 0s), Entered::kWaits);
    if (drained(queue, 1) == "a1") break;
  }
  EXPECT_LE(before, 3);
}

TEST(RunQueue, EstimatesByThePaceOfStarts) {
  RunQueue queue({.concurrent = 1, .release_every = 1s});
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  for (const char* id : {"b", "c", "d"}) ASSERT_EQ(queue.enter(of("ann", id), 1, 0s), Entered::kWaits);
  auto line = queue.waiting(1, 500ms, 9);
  ASSERT_EQ(line.size(), 3);
  EXPECT_EQ(line[0].position, 1);
  EXPECT_EQ(line[0].waited, 500ms);
  EXPECT_EQ(line[0].estimate, 1s) << "nothing observed yet";
  EXPECT_EQ(line[2].position, 3);
  EXPECT_EQ(line[2].estimate, 3s);
  ASSERT_TRUE(queue.end("a", "", 10s));
  ASSERT_EQ(ids(queue.step(1, 10s).started), "b");
  ASSERT_TRUE(queue.end("b", "", 20s));
  ASSERT_EQ(ids(queue.step(1, 20s).started), "c");
  EXPECT_EQ(queue.waiting(1, 22s, 9).at(0).estimate, 8s) << "one in ten seconds";
  EXPECT_EQ(queue.estimate("bob", 1, 1, 1, 22s), 8s) << "it would go first";
  EXPECT_EQ(queue.estimate("ann", 0, 1, 1, 22s), 18s) << "after its own";
  EXPECT_EQ(queue.estimate("ann", -1, 1, 1, 22s), 18s);
}

TEST(RunQueue, ABlockIsNoPaceOfStarts) {
  RunQueue queue({.concurrent = 1, .release_every = 1s});
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  for (const char* id : {"b", "c", "d"}) ASSERT_EQ(queue.enter(of("ann", id), 1, 0s), Entered::kWaits);
  ASSERT_TRUE(queue.end("a", "", 2s));
  ASSERT_EQ(ids(queue.step(1, 2s).started), "b");
  ASSERT_TRUE(queue.end("b", "", 3s));
  ASSERT_EQ(ids(queue.step(0, 3s).started), "");
  ASSERT_EQ(ids(queue.step(1, 600s).started), "c");
  EXPECT_EQ(queue.waiting(1, 600s, 9).at(0).estimate, 1875ms) << "by how long runs took";
}

TEST(RunQueue, NorIsATimeWhenNobodyWaited) {
  RunQueue queue({.concurrent = 1, .ttl = 1h, .release_every = 1s});
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("ann", "b"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("ann", "c"), 1, 0s), Entered::kWaits);
  ASSERT_TRUE(queue.end("a", "", 1s));
  ASSERT_EQ(ids(queue.step(1, 1s).started), "b");
  ASSERT_TRUE(queue.end("c", "", 2s));
  for (const char* id : {"d", "e"}) ASSERT_EQ(queue.enter(of("ann", id), 1, 100s), Entered::kWaits);
  ASSERT_TRUE(queue.end("b", "", 101s));
  ASSERT_EQ(ids(queue.step(1, 101s).started), "d");
  EXPECT_EQ(queue.waiting(1, 101s, 9).at(0).estimate, 13375ms) << "by how long runs took";
}

TEST(RunQueue, EstimatesByHowLongRunsTakeWhereOneWaitsAtATime) {
  RunQueue queue({.concurrent = 1, .release_every = 50ms});
  ASSERT_EQ(queue.enter(of("ann", "a"), 1, 0s), Entered::kStarted);
  ASSERT_EQ(queue.enter(of("bob", "b"), 1, 2s), Entered::kWaits);
  EXPECT_EQ(queue.waiting(1, 3s, 9).at(0).estimate, 3s) << "nobody knows: about as long again as it has run";
  ASSERT_TRUE(queue.end("a", "", 8s));
  ASSERT_EQ(ids(queue.step(1, 8s).started), "b");
  ASSERT_EQ(queue.enter(of("ann", "c"), 1, 9s), Entered::kWaits);
  EXPECT_EQ(queue.waiting(1, 10s, 9).at(0).estimate, 6s) << "eight seconds each";
  EXPECT_EQ(queue.waiting(1, 18s, 9).at(0).estimate, 10s) << "this one takes longer";
}

TEST(RunQueue, EstimatesANewcomersTurnByItsWeight) {
  RunQueue queue({.concurrent = 1, .release_every = 1s});
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  for (int user = 0; user < 4; ++user) {
    for (int i = 0; i < 5; ++i) {
      const std::string name = "u" + std::to_string(user);
      ASSERT_EQ(queue.enter(of(name, name + std::to_string(i)), 1, 0s), Entered::kWaits);
    }
  }
  EXPECT_EQ(queue.estimate("new", 0, 1, 1, 0s), 5s) << "one of each other user goes before";
  EXPECT_EQ(queue.estimate("new", 0, 4, 1, 0s), 2s);
  EXPECT_EQ(queue.estimate("new", 0, 0.01, 1, 0s), 21s) << "all others do";
}

TEST(RunQueue, ListsOneUsersPlacesInTheWholeLine) {
  RunQueue queue(one_at_a_time());
  ASSERT_EQ(queue.enter(of("zoe", "z"), 1, 0s), Entered::kStarted);
  for (const char* id : {"a", "b"}) ASSERT_EQ(queue.enter(of("ann", id), 1, 0s), Entered::kWaits);
  ASSERT_EQ(queue.enter(of("bob", "c"), 1, 0s), Entered::kWaits);
  ASSERT_EQ(line_of(queue), "a c b");
  const auto of_ann = queue.waiting(1, 0s, 9, "ann");
  ASSERT_EQ(of_ann.size(), 2);
  EXPECT_EQ(of_ann[0].position, 1);
  EXPECT_EQ(of_ann[1].position, 3);
  EXPECT_EQ(queue.waiting(1, 0s, 1).size(), 1);
  EXPECT_EQ(queue.running(0).size(), 0);
}

}  // namespace
}  // namespace headgate::quota
