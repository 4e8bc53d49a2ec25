// A quota check's answer, its charges, its ledger entry and its notices must agree, also when something fails in
// between.
#include <gtest/gtest.h>

#include "support/quota_server.h"

namespace headgate::test {
namespace {

using std::chrono::seconds;

std::string a_folder() {
  const std::string folder = testing::TempDir() + "quota-agree-" + std::to_string(base::random_seed());
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(QuotasAgree, WhatWasChargedByAPlanNamedWithTheCheckIsThereAfterARestart) {
  const std::string folder = a_folder();
  const char* kAsk = R"({"user": "42", "type": "deploy", "plan": "team"})";
  const char* kPlan = R"({"types": {"deploy": {"daily": 3}}})";
  {
    QuotaServer before({}, folder);
    ASSERT_EQ(before.put("/api/quotas/plans/team", kPlan).status, 200);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(before.asked(kAsk)["allowed"]);
    EXPECT_FALSE(before.asked(kAsk)["allowed"]);
    EXPECT_EQ(before.get("/api/quotas/user/42?plan=team").json()["daily"]["deploy"]["used"], 3);
  }
  QuotaServer after({}, folder);
  ASSERT_EQ(after.put("/api/quotas/plans/team", kPlan).status, 200);
  ASSERT_TRUE(after.quotas->restore().has_value());
  EXPECT_FALSE(after.asked(kAsk)["allowed"]);
  EXPECT_EQ(after.get("/api/quotas/user/42?plan=team").json()["daily"]["deploy"]["used"], 3);
  EXPECT_EQ(after.status()["daily"]["other"]["used"], 0) << "it was not that which was charged";
  std::filesystem::remove_all(folder);
}

TEST(QuotasAgree, TypesThatAreRefusedNowAreRememberedAllTheSame) {
  const std::string folder = a_folder();
  {
    QuotaServer before({}, folder);
    EXPECT_EQ(before.command("42", "dance")["counted_as"], "other");
  }
  QuotaServer after({.book = {.refuse_unknown_types = true}}, folder);
  const Result<std::size_t> restored = after.quotas->restore();
  ASSERT_TRUE(restored.has_value());
  EXPECT_EQ(*restored, 1u);
  std::filesystem::remove_all(folder);
}

TEST(QuotasAgree, WhatWasToldBeforeARestartIsNotToldAgain) {
  const std::string folder = a_folder();
  const auto told = [](QuotaServer& server, int commands) {
    EXPECT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"daily": 10}}})").status, 200);
    EXPECT_TRUE(server.quotas->restore().has_value());
    for (int i = 0; i < commands; ++i) EXPECT_TRUE(server.command()["allowed"]);
    server.notices.flush();
    return server.get("/api/alerts").json()["alerts"].size();
  };
  {
    QuotaServer before({}, folder);
    EXPECT_EQ(told(before, 8), 1u);
  }
  QuotaServer after({}, folder);
  EXPECT_EQ(told(after, 2), 0u);
  std::filesystem::remove_all(folder);
}

TEST(QuotasAgree, ACommandIsRecordedUnderThePlanThatItWasCheckedWith) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/plans/team", R"({"types": {"deploy": {"daily": 3}}})").status, 200);
  EXPECT_TRUE(server.asked(R"({"user": "42", "type": "deploy", "plan": "team"})")["allowed"]);
  const char* kRun = R"({"user_id": "42", "command_type": "deploy", "plan": "team", "duration_ms": 5, "exit_code": 0})";
  ASSERT_EQ(server.settled(server.post("/api/quotas/executions", kRun)).status, 200);
  const Json usage = server.settled(server.get("/api/quotas/usage?user_id=42")).json()["usage"];
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0]["command_type"], "deploy");
  EXPECT_EQ(usage[0]["commands"], 1);
  EXPECT_EQ(usage[0]["runs"], 1);
}

TEST(QuotasAgree, WhatCouldNotBeKeptHoldsNoSlot) {
  QuotaServer server;
  server.load(
      "policies: [{id: one, match: {operations: [shell]}, key: [user], "
      "limit: {strategy: concurrency, max: 1, lease_ttl: 600s}}]");
  server.ledger->fails = true;
  EXPECT_EQ(server.ask(R"({"user": "42", "type": "shell"})").status, 503);
  server.ledger->fails = false;
  EXPECT_TRUE(server.command()["allowed"]);
}

TEST(QuotasAgree, WhatCouldNotBeKeptGivesNothingBackThatWasNotCharged) {
  QuotaServer server;
  server.load(
      "policies: [{id: soft, action: warn, match: {operations: [shell]}, key: [user], "
      "limit: {strategy: fixed_window, limit: 2, window: 3600s}}]");
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(server.command()["allowed"]);
  server.ledger->fails = true;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(server.ask(R"({"user": "42", "type": "shell"})").status, 503);
  server.ledger->fails = false;
  Check check;
  check.operation = "shell";
  check.user = "42";
  check.peek = true;
  EXPECT_EQ(server.engine->check(check).remaining, 0);
}

TEST(QuotasAgree, WhatCouldNotBeKeptIsNeitherCountedNorTold) {
  QuotaServer server;
  server.ledger->fails = true;
  EXPECT_EQ(server.ask(R"({"user": "42", "type": "shell"})").status, 503);
  const char* kRun = R"({"user_id": "42", "command_type": "shell", "duration_ms": 5, "exit_code": 1})";
  EXPECT_EQ(server.settled(server.post("/api/quotas/executions", kRun)).status, 503);
  EXPECT_EQ(server.quotas->counts().allowed, 0u);
  EXPECT_EQ(server.quotas->counts().recorded, 0u);
  server.ledger->fails = false;
  (void)server.command();
  EXPECT_EQ(server.settled(server.post("/api/quotas/executions", kRun)).status, 200);
  EXPECT_EQ(server.quotas->counts().allowed, 1u);
  EXPECT_EQ(server.quotas->counts().recorded, 1u);
}

TEST(QuotasAgree, QuotasThatAreOffLeavePoliciesAndTheLoadInForce) {
  QuotaServer server;
  server.load("policies: [{id: slow, match: {operations: [shell]}, key: [user], limit: 1/60s}]");
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"mode": "off"})").status, 200);
  const Json allowed = server.command();
  EXPECT_TRUE(allowed["allowed"]);
  EXPECT_EQ(allowed["reason"], "Quotas are off");
  EXPECT_EQ(allowed["remaining_today"], nullptr);
  EXPECT_GT(allowed["resets_at"]["daily"], 0);
  EXPECT_EQ(server.ledger->added, 0);
  const Json denied = server.command();
  EXPECT_FALSE(denied["allowed"]);
  EXPECT_EQ(denied["policy_id"], "slow");
  server.engine->controls().report_load(0.99);
  EXPECT_EQ(server.command("42", "code")["error"], "throttled");
}

TEST(QuotasAgree, APeekIsAnsweredAsTheCheckWouldBe) {
  QuotaServer server({.queue = {.concurrent = 1}});
  EXPECT_TRUE(server.asked(R"({"user": "a", "type": "shell", "run": "r1"})")["allowed"]);
  server.clock.advance(seconds{4});
  for (const char* peek : {"true", "false"}) {
    const Json answer = server.asked(std::string(R"({"user": "b", "type": "shell", "peek": )") + peek + "}");
    EXPECT_FALSE(answer["allowed"]) << peek;
    EXPECT_EQ(answer["error"], "throttled") << peek;
    EXPECT_EQ(answer["estimated_start_ms"], 4'000) << "the other has run for as long, and nobody knows more";
  }
}

TEST(QuotasAgree, AStartThatIsPutOffIsToldSo) {
  QuotaServer server;
  server.load(
      "policies: [{id: even, match: {operations: [shell]}, key: [user], "
      "limit: {strategy: leaky_bucket, rate: 0.5, queue: 5}}]");
  (void)server.command();
  const Json second = server.command();
  EXPECT_EQ(second["delay_ms"], 2'000);
  EXPECT_EQ(second["estimated_start_ms"], 2'000);
}

TEST(QuotasAgree, WhoeverWaitedInVainIsNotToldToAskAgainAtOnce) {
  QuotaServer server;
  server.engine->controls().report_load(0.99);
  ASSERT_TRUE(server.post("/api/quotas/check", R"({"user": "42", "type": "shell", "max_wait_ms": 5000})").waits);
  server.clock.advance(seconds{6});
  ASSERT_TRUE(server.later->wait());
  EXPECT_GT(server.last->json()["retry_after_ms"], 0);
  EXPECT_EQ(server.last->json()["estimated_start_ms"], nullptr);
}

TEST(QuotasAgree, WhatARunHoldsIsHeldForAsLongAsItRuns) {
  QuotaServer server;
  server.load(
      "policies: [{id: one, match: {operations: [shell]}, key: [user], "
      "limit: {strategy: concurrency, max: 1, lease_ttl: 20s}}]");
  const char* kSecond = R"({"user": "42", "type": "shell", "run": "r2"})";
  const Json first = server.asked(R"({"user": "42", "type": "shell", "run": "r1"})");
  EXPECT_TRUE(first["allowed"]);
  EXPECT_EQ(first["run_ttl_ms"], 20'000);
  server.clock.advance(seconds{15});
  EXPECT_EQ(server.post("/api/quotas/runs/r1/renew", "").status, 200);
  server.clock.advance(seconds{15});
  EXPECT_FALSE(server.asked(kSecond)["allowed"]) << "it was renewed";
  const char* kRun = R"({"user_id": "42", "command_type": "shell", "duration_ms": 5, "exit_code": 0, "run": "r1"})";
  ASSERT_EQ(server.settled(server.post("/api/quotas/executions", kRun)).status, 200);
  EXPECT_TRUE(server.asked(kSecond)["allowed"]) << "it is over";
}

TEST(QuotasAgree, WhatARunHoldsIsFreeOnceNobodyHasRenewedIt) {
  QuotaServer server({.queue = {.ttl = seconds{60}}});
  server.load(
      "policies: [{id: one, match: {operations: [shell]}, key: [user], "
      "limit: {strategy: concurrency, max: 1, lease_ttl: 600s}}]");
  EXPECT_EQ(server.asked(R"({"user": "42", "type": "shell", "run": "r1"})")["run_ttl_ms"], 60'000);
  server.clock.advance(seconds{61});
  server.quotas->tick();
  EXPECT_TRUE(server.command()["allowed"]);
}

TEST(QuotasAgree, AClientThatGoesAwayWhileAPolicyHoldsItIsNotCharged) {
  QuotaServer server;
  server.load(
      "policies: [{id: slow, behavior: queue, max_wait: 20s, match: {operations: [shell]}, key: [user], limit: 1/8s}]");
  EXPECT_TRUE(server.command()["allowed"]);
  ASSERT_TRUE(server.post("/api/quotas/check", R"({"user": "42", "type": "shell"})").waits);
  server.later->gone = true;
  server.quotas->tick();
  server.clock.advance(seconds{10});
  (void)server.engine->poll();
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 1);
}

TEST(QuotasAgree, WhatOnlyCountsDoesNotSayThatNothingIsLeft) {
  QuotaServer server({.book = {.mode = quota::Mode::kMonitor}});
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"daily": 1}}})").status, 200);
  (void)server.command();
  const Json past = server.command();
  EXPECT_EQ(past["reason"], "Past the daily quota of shell commands, which is only monitored");
  EXPECT_EQ(past["warning"], "");
}

TEST(QuotasAgree, NumbersThatNoSignedOneHoldsAreRefused) {
  QuotaServer server;
  const Answer priority = server.ask(R"({"user": "42", "type": "shell", "priority": 18446744073709551615})");
  EXPECT_EQ(priority.status, 400);
  EXPECT_EQ(priority.json()["message"], "priority must be a whole number from -1000 to 1000, got 18446744073709551615");
  EXPECT_EQ(server
                .post("/api/quotas/executions",
                      R"({"user_id": "42", "command_type": "shell", "exit_code": 18446744073709551615})")
                .status,
            400);
}

TEST(QuotasAgree, HistoryTakesNoFilterThatItDoesNotKnowOrCannotRead) {
  QuotaServer server;
  const Answer misspelt = server.get("/api/quotas/executions?user=42");
  EXPECT_EQ(misspelt.status, 400);
  EXPECT_EQ(misspelt.json()["message"], "there is no parameter \"user\" here, did you mean \"user_id\"?");
  const Answer broken = server.get("/api/quotas/executions?user_id=%zz");
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(broken.json()["message"], "the percent-encoding of \"user_id=%zz\" is broken");
  EXPECT_EQ(server.get("/api/quotas/usage?type=shell").status, 400);
  EXPECT_EQ(server.get("/api/quotas/user/42?plan=none").status, 400);
}

TEST(QuotasAgree, CsvHasTheNumbersThatJsonHas) {
  QuotaServer server;
  const char* kRun =
      R"({"user_id": "42", "command_type": "shell", "cpu_usage_percent": 123.456789, "memory_usage_mb": 1048576.25})";
  ASSERT_EQ(server.settled(server.post("/api/quotas/executions", kRun)).status, 200);
  const Answer csv = server.settled(server.get("/api/quotas/executions?format=csv"));
  EXPECT_NE(csv.body.find(",123.456789,1048576.25,"), std::string::npos) << csv.body;
}

TEST(QuotasAgree, ExecutionsAreTakenForAsLongBackAsTheyAreKept) {
  QuotaServer server({.kept_for = std::chrono::hours{24 * 365}});
  const auto body = [&](int days) {
    const Nanos at = server.clock.wall(server.clock.now()) - std::chrono::hours{24 * days};
    return R"({"user_id": "42", "command_type": "shell", "executed_at": )" + std::to_string(at.count() / 1'000'000) +
           "}";
  };
  EXPECT_EQ(server.settled(server.post("/api/quotas/executions", body(300))).status, 200);
  EXPECT_EQ(server.post("/api/quotas/executions", body(366)).status, 400);
}

}  // namespace
}  // namespace headgate::test
