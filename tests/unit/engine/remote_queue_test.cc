// Checks that wait for room in a remote store: when they are judged again.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "support/remote_engine.h"

namespace headgate::engine {
namespace {

using std::chrono::seconds;

class RemoteQueue : public test::RemoteEngineFixture {
 protected:
  // A limit that one check can use up, and for which others wait.
  void load_queue(const std::string& limit) {
    load("policies: [{id: line, match: {operations: [op]}, limit: " + limit + ", behavior: queue, max_wait: 500s}]");
  }
  void wait_in_line() {
    CheckDecision decision;
    (void)engine.check_or_wait(clock.now(), check_of(), decision, [this]() -> Engine::Done {
      return [this](const CheckDecision& decided) { admitted += decided.allowed ? 1 : 0; };
    });
    ASSERT_EQ(engine.waiting(), 1U);
  }
  // The store applies a release after the check in line has been judged once more, and denied.
  void expect_admission_when_confirmed(const std::string& lease) {
    remote.changes_late = true;
    ASSERT_TRUE(engine.release(lease, "a"));
    const int asked = remote.asked;
    clock.advance(seconds{1});
    (void)engine.poll();
    ASSERT_GT(remote.asked, asked) << "judged while the release is on its way";
    ASSERT_EQ(admitted, 0);
    const int woken = wakes;
    remote.answer_all();
    EXPECT_GT(wakes, woken) << "the thread that polls must not sleep until the next retry";
    (void)engine.poll();
    EXPECT_EQ(admitted, 1);
  }

  int admitted = 0;
};

constexpr const char* kOneSlot = "{strategy: concurrency, max: 1, lease_ttl: 600s}";

TEST_F(RemoteQueue, ASlotIsTakenWhenTheStoreHasConfirmedItsRelease) {
  load_queue(kOneSlot);
  const CheckDecision holder = engine.check(check_of());
  ASSERT_TRUE(holder.allowed);
  wait_in_line();
  expect_admission_when_confirmed(holder.lease);
}

TEST_F(RemoteQueue, UnitsAreTakenWhenTheStoreHasConfirmedTheirRefund) {
  load_queue("{strategy: sliding_window, limit: 10, window: 400s}");
  Check all = check_of();
  const std::array<Cost, 1> ten{{{"requests", 10}}};
  all.costs = ten;
  all.hold = true;
  const CheckDecision holder = engine.check(all);
  ASSERT_TRUE(holder.allowed);
  wait_in_line();
  expect_admission_when_confirmed(holder.lease);
}

TEST_F(RemoteQueue, ASlotThatAnotherNodeReleasesIsTakenWithinASecond) {
  load_queue(kOneSlot);
  Engine other{{.clock = &clock, .seed = 1, .remote = &remote}};
  ASSERT_TRUE(other.load(
      test::read(std::string("policies: [{id: line, match: {operations: [op]}, limit: ") + kOneSlot + "}]")));
  const CheckDecision holder = other.check(check_of());
  ASSERT_TRUE(holder.allowed);
  wait_in_line();
  ASSERT_TRUE(other.release(holder.lease, "a"));
  EXPECT_LE(engine.poll(), clock.now() + seconds{1});
  EXPECT_EQ(admitted, 0);
  clock.advance(seconds{1});
  (void)engine.poll();
  EXPECT_EQ(admitted, 1);
}

}  // namespace
}  // namespace headgate::engine
