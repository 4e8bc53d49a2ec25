// Holds on cost and slots.
#include <gtest/gtest.h>

#include <set>

#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using engine::CheckDecision;
using engine::Settled;
using engine::Why;

class EngineLeases : public EngineFixture {
 protected:
  std::string hold(const Q& q) {
    const CheckDecision decision = ask(q);
    EXPECT_TRUE(decision.allowed) << decision.reason();
    EXPECT_FALSE(decision.lease.empty());
    return decision.lease;
  }
  Result<Settled> settle(const std::string& lease, double tokens, std::string_view owner = {}) {
    const Cost cost{"tokens", tokens};
    return engine_.holds().settle(lease, owner, {&cost, 1});
  }
  double tokens_left(std::string_view agent = "A") { return left(Q("run").agent(agent).cost("tokens", 1))["t"].at(0); }

  // One policy for tokens, one for requests.
  static constexpr const char* kTokens = R"(
policies:
  - {id: t, unit: tokens, limit: 1000/1h}
  - {id: r, limit: 10/1h}
)";
};

TEST_F(EngineLeases, ACheckHoldsOnlyIfItAsksTo) {
  load(kTokens);
  EXPECT_TRUE(ask("A").lease.empty());
  EXPECT_EQ(engine_.holds().open(), 0U);
  EXPECT_TRUE(ask(Q("run").agent("A").hold().peek()).lease.empty());
  const std::string lease = hold(Q("run").agent("A").hold());
  EXPECT_EQ(lease.size(), 32U);
  EXPECT_EQ(engine_.holds().open(), 1U);
}

TEST_F(EngineLeases, SettlingForLessRefundsForMoreChargesForEqualDoesNothing) {
  load(kTokens);
  std::string lease = hold(Q("run").agent("A").cost("tokens", 500).hold());
  EXPECT_EQ(tokens_left(), 500);
  const Result<Settled> less = settle(lease, 120);
  ASSERT_TRUE(less);
  EXPECT_EQ(less->costs, (std::vector<std::pair<std::string, double>>{{"tokens", 120}}));
  EXPECT_EQ(less->overrun, 0);
  EXPECT_FALSE(less->again);
  EXPECT_EQ(tokens_left(), 880);
  lease = hold(Q("run").agent("A").cost("tokens", 100).hold());
  ASSERT_TRUE(settle(lease, 300));
  EXPECT_EQ(tokens_left(), 580);
  lease = hold(Q("run").agent("A").cost("tokens", 80).hold());
  ASSERT_TRUE(settle(lease, 80));
  EXPECT_EQ(tokens_left(), 500);
  EXPECT_EQ(engine_.holds().open(), 0U);
}

TEST_F(EngineLeases, AHoldSpansAllPoliciesAndEachIsSettledInItsUnit) {
  load(kTokens);
  const Q q = std::move(Q("run").agent("A").cost("tokens", 500).cost("requests", 2).hold());
  const std::string lease = hold(q);
  EXPECT_EQ(left(q)["r"].at(0), 8);
  ASSERT_TRUE(settle(lease, 100));
  EXPECT_EQ(left(q)["t"].at(0), 900);
  EXPECT_EQ(left(q)["r"].at(0), 8) << "a unit that is not named stays charged";
}

TEST_F(EngineLeases, SettlingTwiceDoesNothingTwice) {
  load(kTokens);
  const std::string lease = hold(Q("run").agent("A").cost("tokens", 500).hold());
  ASSERT_TRUE(settle(lease, 100));
  const Result<Settled> again = settle(lease, 0);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->again);
  EXPECT_EQ(again->costs, (std::vector<std::pair<std::string, double>>{{"tokens", 100}}));
  EXPECT_EQ(tokens_left(), 900);
  const Result<Settled> released = engine_.holds().release(lease, {});
  ASSERT_TRUE(released);
  EXPECT_TRUE(released->again);
  EXPECT_EQ(tokens_left(), 900);
  EXPECT_FALSE(engine_.holds().renew(lease, {}));
}

TEST_F(EngineLeases, WhatWasUsedIsChargedAheadAndWhatNeverFitsIsAnOverrun) {
  load(kTokens);
  const std::string lease = hold(Q("run").agent("A").cost("tokens", 900).hold());
  const Result<Settled> more = settle(lease, 1300);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->overrun, 0) << "it fits in the hour after this one";
  EXPECT_EQ(tokens_left(), 0);
  clock_.advance(1h);
  EXPECT_EQ(tokens_left(), 700) << "three hundred of it are a debt: there were a hundred left before";
  const std::string other = hold(Q("run").agent("B").cost("tokens", 900).hold());
  const Result<Settled> never = settle(other, 5000);
  ASSERT_TRUE(never);
  EXPECT_EQ(never->overrun, 3100);
  ASSERT_EQ(listener_.count(Event::Kind::kOverrun), 1U);
  EXPECT_EQ(listener_.all(Event::Kind::kOverrun)[0].policy_id, "t");
}

TEST_F(EngineLeases, ReleaseGivesEverythingBack) {
  load(kTokens);
  const Q q = std::move(Q("run").agent("A").cost("tokens", 500).cost("requests", 1).hold());
  const std::string lease = hold(q);
  ASSERT_TRUE(engine_.holds().release(lease, "A"));
  EXPECT_EQ(left(q)["t"].at(0), 1000);
  EXPECT_EQ(left(q)["r"].at(0), 10);
  EXPECT_EQ(engine_.holds().open(), 0U);
}

TEST_F(EngineLeases, AnExpiredHoldComesBackByItselfAndIsTold) {
  load(std::string("leases: {ttl: 30s}") + kTokens);
  const std::string lease = hold(Q("run").agent("A").cost("tokens", 500).hold());
  clock_.advance(30s - 1ns);
  EXPECT_EQ(tokens_left(), 500);
  clock_.advance(1ns);
  EXPECT_EQ(tokens_left(), 1000) << "by the next check, without anybody polling";
  EXPECT_EQ(listener_.count(Event::Kind::kLeaseExpired), 1U);
  EXPECT_FALSE(settle(lease, 100));
  EXPECT_EQ(settle(lease, 100).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(engine_.holds().open(), 0U);
}

TEST_F(EngineLeases, PollExpiresHoldsAndSaysWhenTheNextIsDue) {
  load(std::string("leases: {ttl: 30s}") + kTokens);
  EXPECT_EQ(engine_.poll(), kMaxTime);
  (void)hold(Q("run").agent("A").cost("tokens", 500).hold());
  EXPECT_EQ(engine_.poll(), kStart + 30s);
  clock_.advance(30s);
  EXPECT_EQ(engine_.poll(), kMaxTime);
  EXPECT_EQ(engine_.holds().open(), 0U);
}

TEST_F(EngineLeases, ARenewedHoldLastsAsLongAgain) {
  load(std::string("leases: {ttl: 30s}") + kTokens);
  const std::string lease = hold(Q("run").agent("A").cost("tokens", 500).hold());
  for (int i = 0; i < 5; ++i) {
    clock_.advance(20s);
    const Result<Nanos> until = engine_.holds().renew(lease, "A");
    ASSERT_TRUE(until);
    EXPECT_EQ(*until, clock_.now() + 30s);
  }
  EXPECT_EQ(tokens_left(), 500);
  clock_.advance(30s);
  EXPECT_EQ(tokens_left(), 1000);
}

TEST_F(EngineLeases, OnlyItsOwnerEndsALease) {
  load(kTokens);
  const std::string lease = hold(Q("run").agent("A").cost("tokens", 500).hold());
  EXPECT_EQ(settle(lease, 0, "B").error().code, ErrorCode::kForbidden);
  EXPECT_EQ(engine_.holds().release(lease, "B").error().code, ErrorCode::kForbidden);
  EXPECT_EQ(engine_.holds().renew(lease, "B").error().code, ErrorCode::kForbidden);
  EXPECT_EQ(tokens_left(), 500);
  EXPECT_TRUE(settle(lease, 0, "A"));
  EXPECT_EQ(engine_.holds().release("0123", {}).error().code, ErrorCode::kNotFound);
}

TEST_F(EngineLeases, BadActualCostsAreRefusedAndTheHoldStays) {
  load(kTokens);
  const std::string lease = hold(Q("run").agent("A").cost("tokens", 500).hold());
  EXPECT_EQ(settle(lease, -1).error().message, "cost.tokens must be between 0 and 1000000000000, got -1");
  EXPECT_FALSE(settle(lease, 1e13));
  EXPECT_EQ(engine_.holds().open(), 1U);
  EXPECT_TRUE(settle(lease, 0));
}

TEST_F(EngineLeases, AConcurrencyLimitGivesALeaseWithoutBeingAsked) {
  load("policies: [{id: c, limit: {strategy: concurrency, max: 2}}, {id: r, limit: 10/1h}]");
  const std::string first = ask("A").lease;
  const std::string second = ask("A").lease;
  ASSERT_FALSE(first.empty());
  ASSERT_FALSE(second.empty());
  EXPECT_FALSE(ask("A").allowed);
  ASSERT_TRUE(engine_.holds().release(first, "A"));
  const CheckDecision third = ask("A");
  EXPECT_TRUE(third.allowed);
  EXPECT_EQ(left(Q("run").agent("A"))["r"].at(0), 7) << "only slots come back where nothing was held";
  EXPECT_FALSE(ask("A").allowed);
  EXPECT_TRUE(engine_.holds().settle(second, "A", {})) << "settling frees the slot too";
  EXPECT_TRUE(ask("A").allowed);
}

TEST_F(EngineLeases, ASlotIsHeldForItsOwnTimeHoweverShortHoldsOnCostAre) {
  load("leases: {ttl: 60s}\npolicies: [{id: c, limit: {strategy: concurrency, max: 1, lease_ttl: 10m}}]");
  ASSERT_TRUE(ask("A").allowed);
  clock_.advance(10min - 1ns);
  EXPECT_FALSE(ask("A").allowed) << "its holder was promised ten minutes";
  clock_.advance(1ns);
  EXPECT_TRUE(ask("A").allowed);
}

TEST_F(EngineLeases, ALostHoldersSlotComesBackAndARenewedOneStays) {
  load("policies: [{id: c, limit: {strategy: concurrency, max: 1, lease_ttl: 5s}}]");
  const std::string lease = ask("A").lease;
  clock_.advance(4s);
  EXPECT_FALSE(ask("A").allowed);
  ASSERT_TRUE(engine_.holds().renew(lease, "A"));
  clock_.advance(4s);
  EXPECT_FALSE(ask("A").allowed);
  clock_.advance(1s);
  EXPECT_TRUE(ask("A").allowed);
  EXPECT_FALSE(engine_.holds().renew(lease, "A"));
}

TEST_F(EngineLeases, ADeniedCheckLeavesNoLeaseAndNoSlot) {
  load("policies: [{id: c, limit: {strategy: concurrency, max: 5}}, {id: r, limit: 1/1h}]");
  ASSERT_TRUE(ask("A").allowed);
  const CheckDecision denied = ask("A");
  EXPECT_FALSE(denied.allowed);
  EXPECT_TRUE(denied.lease.empty());
  EXPECT_EQ(engine_.holds().open(), 1U);
  EXPECT_EQ(left(Q("run").agent("A"))["c"].at(0), 4);
}

TEST_F(EngineLeases, AtTheCapNoFurtherHoldIsGivenAndNothingIsCharged) {
  engine::Engine engine({.clock = &clock_, .max_leases = 2});
  ASSERT_TRUE(engine.load(read("policies: [{id: r, limit: 10/1h}]")));
  const Q q = std::move(Q("run").agent("A").hold());
  const std::string lease = engine.check(q.get()).lease;
  ASSERT_TRUE(engine.check(q.get()).allowed);
  const CheckDecision denied = engine.check(q.get());
  EXPECT_FALSE(denied.allowed);
  EXPECT_EQ(denied.error(), "too_many_leases");
  EXPECT_EQ(engine.check(Q("run").agent("A").get()).remaining, 7) << "two held, one not, none of the denied one";
  ASSERT_TRUE(engine.holds().release(lease, {}));
  EXPECT_TRUE(engine.check(q.get()).allowed);
}

TEST_F(EngineLeases, OneAgentHoldsATenthOfAllLeasesAtMost) {
  engine::Engine engine({.clock = &clock_, .max_leases = 10 * engine::Leases::kLeastShare});
  ASSERT_TRUE(engine.load(read("policies: [{id: r, limit: 100000/1h}]")));
  const Q q = std::move(Q("run").agent("A").hold());
  std::string lease;
  for (std::size_t i = 0; i < engine::Leases::kLeastShare; ++i) lease = engine.check(q.get()).lease;
  ASSERT_FALSE(lease.empty());
  EXPECT_EQ(engine.check(q.get()).error(), "too_many_leases");
  EXPECT_TRUE(engine.check(Q("run").agent("B").hold().get()).allowed);
  ASSERT_TRUE(engine.holds().release(lease, {}));
  EXPECT_TRUE(engine.check(q.get()).allowed);
}

// Two checks may both have found room for one more.
TEST(Leases, RefuseWhatIsOneTooMany) {
  engine::Leases leases(1);
  const auto lease = [] {
    auto made = std::make_shared<engine::Lease>();
    made->id = engine::Leases::new_id();
    made->expires = 10s;
    return made;
  };
  EXPECT_FALSE(leases.full("A"));
  EXPECT_TRUE(leases.add(lease()));
  EXPECT_TRUE(leases.full("A"));
  EXPECT_FALSE(leases.add(lease()));
  EXPECT_EQ(leases.open(), 1U);
  EXPECT_EQ(leases.next_expiry(), 10s);
  EXPECT_EQ(leases.expire_one(10s - 1ns), nullptr);
  EXPECT_NE(leases.expire_one(10s), nullptr);
  EXPECT_EQ(leases.expire_one(10s), nullptr);
  EXPECT_TRUE(leases.add(lease()));
}

TEST(Leases, HaveIdsThatDiffer) {
  std::set<std::string> ids;
  std::set<LeaseId> slots;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = engine::Leases::new_id();
    ids.insert(id);
    slots.insert(engine::Leases::slot_of(id));
  }
  EXPECT_EQ(ids.size(), 1000U);
  EXPECT_EQ(slots.size(), 1000U);
  EXPECT_NE(engine::Leases::slot_of("0000000000000000ffffffffffffffff"), 0U) << "which would be no lease at all";
}

TEST_F(EngineLeases, AHoldSurvivesAReloadThatDropsItsPolicy) {
  load(kTokens);
  const std::string lease = hold(Q("run").agent("A").cost("tokens", 500).hold());
  load("policies: [{id: other, limit: 1/1h}]");
  EXPECT_TRUE(settle(lease, 100));
  const std::string again = ask("A").lease;
  EXPECT_TRUE(again.empty());
}

TEST_F(EngineLeases, AParentsCellsAreHeldToo) {
  load("policies: [{id: p, key: [session], unit: tokens, limit: 1000/1h}]");
  const std::string lease = hold(Q("run").agent("A").session("child").parent("root").cost("tokens", 400).hold());
  EXPECT_EQ(left(Q("run").session("root").cost("tokens", 1))["p"].at(0), 600);
  ASSERT_TRUE(settle(lease, 100));
  EXPECT_EQ(left(Q("run").session("root").cost("tokens", 1))["p"].at(0), 900);
  EXPECT_EQ(left(Q("run").session("child").cost("tokens", 1))["p"].at(0), 900);
}

TEST_F(EngineLeases, FractionsAreSettledExactly) {
  load("policies: [{id: u, unit: usd, limit: {strategy: fixed_window, limit: 1, window: 1h}}]");
  const std::string lease = hold(Q("run").agent("A").cost("usd", 0.5).hold());
  const Cost actual{"usd", 0.1};
  ASSERT_TRUE(engine_.holds().settle(lease, "A", {&actual, 1}));
  EXPECT_DOUBLE_EQ(left(Q("run").agent("A").cost("usd", 1))["u"].at(0), 0.9);
}

TEST_F(EngineLeases, EveryStrategyGivesBackWhatWasHeld) {
  for (const char* limit :
       {"{strategy: token_bucket, capacity: 100, refill_rate: 0.001}",
        "{strategy: gcra, max_burst: 99, count: 1, period: 1h}", "{strategy: sliding_window, limit: 100, window: 1h}",
        "{strategy: sliding_window_counter, limit: 100, window: 1h}",
        "{strategy: fixed_window, limit: 100, window: 1h}", "{strategy: quota, limit: 100, period: day}"}) {
    load(std::string("policies: [{id: t, unit: tokens, limit: ") + limit + "}]");
    const std::string lease = hold(Q("run").agent("A").cost("tokens", 60).hold());
    EXPECT_EQ(tokens_left(), 40) << limit;
    ASSERT_TRUE(settle(lease, 20));
    EXPECT_EQ(tokens_left(), 80) << limit;
    const std::string other = hold(Q("run").agent("A").cost("tokens", 80).hold());
    ASSERT_TRUE(engine_.holds().release(other, "A"));
    EXPECT_EQ(tokens_left(), 80) << limit;
  }
}

TEST_F(EngineLeases, SettlementsCloseASharedLimitForOneMoreWindowAtTheMost) {
  for (const char* limit :
       {"{strategy: quota, limit: 1000, period: month}", "{strategy: fixed_window, limit: 1000, window: 1h}",
        "{strategy: token_bucket, capacity: 1000, refill_rate: 1}",
        "{strategy: sliding_window, limit: 1000, window: 1h}",
        "{strategy: sliding_window_counter, limit: 1000, window: 1h}"}) {
    SCOPED_TRACE(limit);
    load(std::string("policies: [{id: t, unit: tokens, key: [], limit: ") + limit + "}]");
    std::vector<std::string> leases;
    for (int i = 0; i < 119; ++i) leases.push_back(hold(Q("run").agent("A").cost("tokens", 1).hold()));
    for (const std::string& lease : leases) ASSERT_TRUE(settle(lease, 1000));
    const CheckDecision other = ask(Q("run").agent("B").cost("tokens", 1));
    EXPECT_FALSE(other.allowed);
    const bool month = std::string_view(limit).find("month") != std::string_view::npos;
    EXPECT_LE(other.retry_after, month ? Nanos{62 * 24h} : Nanos{2h});
  }
}

}  // namespace
}  // namespace headgate::test
