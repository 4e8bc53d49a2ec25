#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "support/engines.h"

namespace headgate::engine {
namespace {

using std::chrono::seconds;
using store::RemoteStore;

// A store elsewhere, as an engine sees it: cells in memory, answers when the test says so, or none.
class FakeRemote final : public RemoteStore {
 public:
  explicit FakeRemote(Clock& clock) : clock_(clock), cells_({.seed = 1}) {}

  void apply(std::span<const store::Charge> charges, const store::Ask& ask, std::span<core::Outcome> outcomes,
             Done done) override {
    ++asked;
    const auto answer = [=, this] {
      if (away) return done(Error{ErrorCode::kIo, "nobody answers", true});
      store::Ask now = ask;
      now.now = clock_.now();
      now.wall = clock_.wall(now.now);
      done(Answer{cells_.apply(charges, now, outcomes), now.now});
    };
    if (holds_back) {
      waiting.emplace_back(answer);
    } else {
      answer();
    }
  }
  std::optional<store::Applied> try_now(std::span<const store::Charge> charges, const store::Ask&,
                                        std::span<core::Outcome> outcomes) override {
    if (leased_units <= 0) return std::nullopt;
    for (const store::Charge& charge : charges) {
      if (!charge.leased) return std::nullopt;
    }
    --leased_units;
    for (std::size_t i = 0; i < charges.size(); ++i) outcomes[i] = {.limit = 10, .remaining = leased_units};
    return store::Applied{};
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

  bool away = false;
  bool holds_back = false;
  Units leased_units = 0;
  int asked = 0;
  std::deque<std::function<void()>> waiting;

 private:
  Clock& clock_;
  store::MemoryStore cells_;
};

class RemoteEngine : public testing::Test {
 protected:
  void load(std::string_view text) {
    policy::ReadResult read = policy::read_text(text, "test");
    for (const auto& problem : read.problems) ADD_FAILURE() << problem.message;
    ASSERT_TRUE(engine.load(std::move(read.document)));
  }
  static Check check_of(std::string_view agent) {
    Check check;
    check.agent = agent;
    check.operation = "op";
    return check;
  }
  int admitted(int asks) {
    int count = 0;
    for (int i = 0; i < asks; ++i) count += engine.check(check_of("a")).allowed ? 1 : 0;
    return count;
  }

  ManualClock clock{seconds{1'000'000}};
  FakeRemote remote{clock};
  int wakes = 0;
  Engine engine{{.clock = &clock, .seed = 1, .remote = &remote, .wake = [this] { ++wakes; }}};
};

constexpr std::string_view kTen = R"(
policies:
  - id: ten
    match: {operations: [op]}
    key: [agent]
    limit: {strategy: sliding_window, limit: 10, window: 60s}
)";

std::string with(std::string_view line) { return std::string(kTen) + "    " + std::string(line) + "\n"; }

TEST_F(RemoteEngine, AnswersWhenTheStoreDoes) {
  load(kTen);
  remote.holds_back = true;
  CheckDecision decision;
  int answers = 0;
  bool allowed = false;
  const std::uint64_t waiting = engine.check_or_wait(clock.now(), check_of("a"), decision, [&]() -> Engine::Done {
    return [&](const CheckDecision& decided) {
      ++answers;
      allowed = decided.allowed;
      EXPECT_EQ(decided.remaining, 9);
    };
  });
  EXPECT_TRUE(Engine::in_flight(waiting));
  EXPECT_EQ(answers, 0);
  EXPECT_FALSE(engine.cancel(waiting));  // it will be answered either way
  remote.answer_all();
  EXPECT_EQ(answers, 1);
  EXPECT_TRUE(allowed);
}

TEST_F(RemoteEngine, ChargesTheRemoteCellsAndNotItsOwn) {
  load(kTen);
  EXPECT_EQ(admitted(12), 10);
  EXPECT_EQ(engine.totals().cells, 0U);
  EXPECT_EQ(remote.asked, 12);
}

TEST_F(RemoteEngine, AsksNobodyWhileUnitsTakenAheadLast) {
  load(with("consistency: leased"));
  remote.leased_units = 3;
  EXPECT_EQ(admitted(3), 3);
  EXPECT_EQ(remote.asked, 0);
  EXPECT_EQ(admitted(1), 1);
  EXPECT_EQ(remote.asked, 1);
}

TEST_F(RemoteEngine, AStrictPolicyIsNeverAnsweredFromUnitsTakenAhead) {
  load(kTen);
  remote.leased_units = 3;
  EXPECT_EQ(admitted(2), 2);
  EXPECT_EQ(remote.asked, 2);
}

TEST_F(RemoteEngine, AClosedPolicyDeniesWhileTheStoreIsAway) {
  load(with("on_store_failure: closed"));
  remote.away = true;
  const CheckDecision decision = engine.check(check_of("a"));
  EXPECT_FALSE(decision.allowed);
  EXPECT_EQ(decision.error(), "store_unavailable");
  EXPECT_EQ(decision.retry_after, seconds{1});
  ASSERT_NE(decision.denied_by(), nullptr);
  EXPECT_EQ(decision.denied_by()->id, "ten");
  EXPECT_FALSE(engine.rate_limited("a"));  // nobody's fault but the store's
}

TEST_F(RemoteEngine, AnOpenPolicyAdmitsWhileTheStoreIsAway) {
  load(with("on_store_failure: open"));
  remote.away = true;
  EXPECT_EQ(admitted(25), 25);
}

TEST_F(RemoteEngine, ALocalPolicyAdmitsItsShareWhileTheStoreIsAway) {
  load(kTen);
  engine.set_local_share(0.3);
  remote.away = true;
  EXPECT_EQ(admitted(25), 3);
  engine.set_local_share(0.5);
  EXPECT_EQ(admitted(25), 2);
}

class RemoteAllowances : public RemoteEngine {
 protected:
  int admitted(policy::OnStoreFailure while_away, int asks) {
    Allowances allowances;
    allowances.on_store_failure = while_away;
    allowances.all.emplace_back() = {engine.allowance_limit(*Limit::quota({.limit = 10, .period = Period::kDay})),
                                     engine.allowance_cell(std::array<std::string_view, 1>{"a"})};
    int count = 0;
    for (int i = 0; i < asks; ++i) {
      Check check = check_of("a");
      check.allowances = &allowances;
      last = engine.check(check);
      count += last.allowed ? 1 : 0;
    }
    return count;
  }
  CheckDecision last;
};

TEST_F(RemoteAllowances, AreChargedInTheStore) {
  EXPECT_EQ(admitted(policy::OnStoreFailure::kLocal, 12), 10);
  EXPECT_EQ(last.why, Why::kQuota);
  EXPECT_EQ(engine.totals().cells, 0U);
}

TEST_F(RemoteAllowances, DoAsTheyWereToldWhileTheStoreIsAway) {
  engine.set_local_share(0.3);
  remote.away = true;
  EXPECT_EQ(admitted(policy::OnStoreFailure::kClosed, 3), 0);
  EXPECT_EQ(last.error(), "store_unavailable");
  EXPECT_EQ(engine.arrears(), 0U);
  EXPECT_EQ(admitted(policy::OnStoreFailure::kLocal, 5), 3);
  EXPECT_EQ(last.why, Why::kQuota);
  EXPECT_EQ(admitted(policy::OnStoreFailure::kOpen, 5), 5);
  EXPECT_EQ(engine.arrears(), 1U);
  remote.away = false;
  engine.make_up();
  EXPECT_EQ(admitted(policy::OnStoreFailure::kLocal, 5), 2);  // of ten, eight are used
}

TEST_F(RemoteEngine, ALocalShareIsAtLeastOne) {
  load(kTen);
  engine.set_local_share(0.001);
  remote.away = true;
  EXPECT_EQ(admitted(5), 1);
}

TEST_F(RemoteEngine, AClosedPolicyKeepsTheOthersFromBeingCharged) {
  load(std::string(kTen) + R"(
  - id: shut
    match: {operations: [op]}
    key: [agent]
    limit: {strategy: fixed_window, limit: 100, window: 60s}
    on_store_failure: closed
)");
  remote.away = true;
  EXPECT_EQ(admitted(5), 0);
  EXPECT_EQ(engine.arrears(), 0U);
  EXPECT_EQ(engine.totals().cells, 0U);
}

TEST_F(RemoteEngine, WhatWasAdmittedMeanwhileIsChargedAfterwards) {
  load(kTen);
  EXPECT_EQ(admitted(2), 2);
  remote.away = true;
  EXPECT_EQ(admitted(5), 5);
  EXPECT_EQ(engine.arrears(), 1U);
  remote.away = false;
  engine.make_up();
  EXPECT_EQ(engine.arrears(), 0U);
  EXPECT_EQ(admitted(10), 3);
}

TEST_F(RemoteEngine, WhatIsOwedBeyondTheLimitIsChargedAsFarAsItGoes) {
  load(kTen);
  EXPECT_EQ(admitted(7), 7);
  remote.away = true;
  EXPECT_EQ(admitted(9), 9);
  remote.away = false;
  engine.make_up();
  EXPECT_EQ(admitted(1), 0);
}

TEST_F(RemoteEngine, WhatHasLeftTheWindowIsOwedNoMore) {
  load(kTen);
  remote.away = true;
  EXPECT_EQ(admitted(9), 9);
  remote.away = false;
  clock.advance(seconds{61});
  engine.make_up();
  EXPECT_EQ(admitted(20), 10);
}

TEST_F(RemoteEngine, WhatCouldNotBeMadeUpIsKeptForTheNextTime) {
  load(kTen);
  remote.away = true;
  EXPECT_EQ(admitted(4), 4);
  engine.make_up();
  EXPECT_EQ(engine.arrears(), 1U);
  remote.away = false;
  engine.make_up();
  EXPECT_EQ(admitted(20), 6);
}

TEST_F(RemoteEngine, SettlingForLessGivesTheRestBackThere) {
  load(kTen);
  Check check = check_of("a");
  const std::array<Cost, 1> cost{Cost{"requests", 8}};
  check.costs = cost;
  check.hold = true;
  const CheckDecision held = engine.check(check);
  ASSERT_TRUE(held.allowed);
  EXPECT_EQ(admitted(5), 2);
  const std::array<Cost, 1> actual{Cost{"requests", 1}};
  ASSERT_TRUE(engine.settle(held.lease, "a", actual));
  EXPECT_EQ(admitted(10), 7);
}

TEST_F(RemoteEngine, AHoldTakenWhileTheStoreWasAwayIsReleasedHere) {
  load(kTen);
  remote.away = true;
  Check check = check_of("a");
  check.hold = true;
  const CheckDecision held = engine.check(check);
  ASSERT_TRUE(held.allowed);
  ASSERT_TRUE(engine.release(held.lease, "a"));
  EXPECT_EQ(admitted(20), 10);
}

TEST_F(RemoteEngine, ACheckThatMayQueueWaitsForRoomThere) {
  load(with("behavior: queue\n    max_wait: 90s"));
  EXPECT_EQ(admitted(10), 10);
  CheckDecision decision;
  int answers = 0;
  const std::uint64_t waiting = engine.check_or_wait(clock.now(), check_of("a"), decision, [&]() -> Engine::Done {
    return [&](const CheckDecision& decided) {
      ++answers;
      EXPECT_TRUE(decided.allowed);
      EXPECT_EQ(decided.waited, seconds{60});
    };
  });
  EXPECT_TRUE(Engine::in_flight(waiting));
  EXPECT_EQ(engine.waiting(), 1U);
  EXPECT_EQ(wakes, 1);
  clock.advance(seconds{60});
  (void)engine.poll();
  EXPECT_EQ(answers, 1);
}

TEST_F(RemoteEngine, AnAskerWhoIsGoneLeavesTheLineByTheNumberItWasGivenInFlight) {
  load(with("behavior: queue\n    max_wait: 90s"));
  EXPECT_EQ(admitted(10), 10);
  CheckDecision decision;
  Why why = Why::kPassed;
  const std::uint64_t waiting = engine.check_or_wait(clock.now(), check_of("a"), decision, [&]() -> Engine::Done {
    return [&](const CheckDecision& decided) { why = decided.why; };
  });
  EXPECT_TRUE(engine.cancel(waiting));
  EXPECT_EQ(why, Why::kCancelled);
  EXPECT_EQ(engine.waiting(), 0U);
}

TEST_F(RemoteEngine, AThrottledAskerIsToldWhenTheStoreAnswers) {
  const Gcra bucket{.max_burst = 0, .count = 1, .period = seconds{60}};
  std::vector<bool> told;
  const auto ask = [&] {
    return engine.throttle_or_wait(clock.now(), {"k"}, bucket, 1, [&]() -> Engine::Throttled {
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
  remote.away = true;
  EXPECT_FALSE(ask());
  EXPECT_EQ(told, (std::vector<bool>{true, false, true}));  // its own cells stand in
}

TEST_F(RemoteEngine, BucketsThatAskersNameAreThereToo) {
  const Gcra bucket{.max_burst = 1, .count = 1, .period = seconds{60}};
  EXPECT_TRUE(engine.throttle(clock.now(), "k", bucket, 1)->allowed());
  EXPECT_TRUE(engine.throttle(clock.now(), "k", bucket, 1)->allowed());
  EXPECT_FALSE(engine.throttle(clock.now(), "k", bucket, 1)->allowed());
  EXPECT_EQ(remote.asked, 3);
  remote.away = true;
  EXPECT_TRUE(engine.throttle(clock.now(), "k", bucket, 1)->allowed());  // its own cells stand in
}

}  // namespace
}  // namespace headgate::engine
