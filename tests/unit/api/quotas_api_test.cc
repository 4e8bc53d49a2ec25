// /api/quotas: asking, recording, how a user stands.
#include <gtest/gtest.h>

#include <map>

#include "base/rfc3339.h"
#include "support/quota_server.h"

namespace headgate::api {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using test::Json;
using test::QuotaServer;

Nanos at(std::string_view time) { return *base::parse_rfc3339(time); }

TEST(QuotasApi, ACheckTakesFromTheDayTheWeekAndTheMonth) {
  QuotaServer server;
  const Json first = server.command();
  EXPECT_TRUE(first["allowed"]);
  EXPECT_EQ(first["remaining_today"], 499);
  EXPECT_EQ(first["remaining_week"], 2999);
  EXPECT_EQ(first["remaining_month"], 9999);
  EXPECT_EQ(first["throttle_factor"], 1);
  EXPECT_EQ(first["estimated_start_ms"], 0);
  EXPECT_EQ(first["retry_after_ms"], 0);
  EXPECT_EQ(server.command()["remaining_today"], 498);
  EXPECT_EQ(server.command("43")["remaining_today"], 499);
  EXPECT_EQ(server.command("42", "code")["remaining_today"], 299);
}

TEST(QuotasApi, AUsedUpQuotaIsRefusedUntilTheDayIsOver) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"daily": 2}}})").status, 200);
  EXPECT_TRUE(server.command()["allowed"]);
  EXPECT_TRUE(server.command()["allowed"]);
  const Json denied = server.command();
  EXPECT_FALSE(denied["allowed"]);
  EXPECT_EQ(denied["error"], "quota_exceeded");
  EXPECT_EQ(denied["remaining_today"], 0);
  EXPECT_EQ(denied["remaining_week"], 2998);
  EXPECT_TRUE(denied["reason"].get<std::string>().starts_with(
      "Daily quota of 2 shell commands used up until 2023-11-15T00:00:00Z"))
      << denied["reason"];
  const auto wait = std::chrono::milliseconds{denied["retry_after_ms"].get<std::int64_t>()};
  server.clock.advance(wait);
  const Json next = server.command();
  EXPECT_TRUE(next["allowed"]);
  EXPECT_EQ(next["remaining_today"], 1);
  EXPECT_EQ(next["remaining_week"], 2997);
}

TEST(QuotasApi, PlansDifferAndEnterpriseHasNoLimits) {
  QuotaServer server;
  EXPECT_EQ(server.asked(R"({"user": "p", "type": "test", "plan": "premium"})")["remaining_today"], 9999);
  const Json unlimited = server.asked(R"({"user": "e", "type": "test", "plan": "enterprise"})");
  EXPECT_TRUE(unlimited["remaining_today"].is_null());
  ASSERT_EQ(server.put("/api/quotas/user/e", R"({"plan": "enterprise"})").status, 200);
  const Json status = server.status("e");
  EXPECT_TRUE(status["daily"]["test"]["limit"].is_null());
  EXPECT_EQ(status["daily"]["test"]["used"], 1);
  EXPECT_EQ(server.ask(R"({"user": "x", "type": "test", "plan": "gold"})").status, 400);
}

TEST(QuotasApi, StatusShowsEveryPeriodByType) {
  QuotaServer server;
  for (int i = 0; i < 3; ++i) (void)server.command();
  const Json status = server.status();
  EXPECT_EQ(status["daily"]["shell"]["limit"], 500);
  EXPECT_EQ(status["daily"]["shell"]["used"], 3);
  EXPECT_EQ(status["daily"]["shell"]["remaining"], 497);
  EXPECT_EQ(status["weekly"]["shell"]["used"], 3);
  EXPECT_EQ(status["monthly"]["shell"]["remaining"], 9997);
  EXPECT_EQ(status["daily"]["code"]["used"], 0);
  EXPECT_GT(status["daily"]["code"]["resets_at"], 1'700'000'000'000);
  EXPECT_EQ(status["plan"], "free");
  EXPECT_EQ(status["throttle_factor"], 1);
  EXPECT_TRUE(status["system_load"].is_null());
}

TEST(QuotasApi, TypesThatNobodyNamesShareOneAllowance) {
  QuotaServer server;
  EXPECT_EQ(server.command("42", "deploy")["counted_as"], "other");
  EXPECT_EQ(server.command("42", "release")["remaining_today"], 498);
  QuotaServer strict({.book = {.refuse_unknown_users = true, .refuse_unknown_types = true}});
  const test::Answer no_user = strict.ask(R"({"user": "u", "type": "shell"})");
  EXPECT_EQ(no_user.status, 404);
  EXPECT_EQ(no_user.json()["error"], "unknown_user");
  ASSERT_EQ(strict.put("/api/quotas/user/u", R"({"plan": "free"})").status, 200);
  const test::Answer no_type = strict.ask(R"({"user": "u", "type": "shel"})");
  EXPECT_EQ(no_type.status, 404);
  EXPECT_EQ(no_type.json()["error"], "unknown_type");
  EXPECT_NE(no_type.json()["message"].get<std::string>().find("did you mean \"shell\"?"), std::string::npos);
  EXPECT_EQ(strict.get("/api/quotas/user/nobody").status, 404);
}

TEST(QuotasApi, PoliciesAndQuotasAreTakenTogetherOrNotAtAll) {
  QuotaServer server;
  server.load("policies: [{id: slow, match: {operations: [shell]}, key: [user], limit: 1/60s}]");
  EXPECT_TRUE(server.command()["allowed"]);
  const Json denied = server.command();
  EXPECT_FALSE(denied["allowed"]);
  EXPECT_EQ(denied["policy_id"], "slow");
  EXPECT_EQ(denied["remaining_today"], 499);
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 1);
}

TEST(QuotasApi, MonitorModeCountsWhatItWouldRefuseAndRefusesNothing) {
  QuotaServer server({.book = {.mode = quota::Mode::kMonitor}});
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"daily": 2}}})").status, 200);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(server.command()["allowed"]);
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 5);
  const Json report = server.settled(server.get("/api/quotas/report")).json();
  ASSERT_EQ(report["users"].size(), 1u);
  EXPECT_EQ(report["users"][0]["commands"], 5);
  EXPECT_EQ(report["users"][0]["would_refuse"], 3);
  EXPECT_EQ(report["users"][0]["refused"], 0);
  EXPECT_EQ(report["truncated"], false);
}

TEST(QuotasApi, AQuotaOfNothingRefusesEverything) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"weekly": 0}}})").status, 200);
  const Json denied = server.command();
  EXPECT_FALSE(denied["allowed"]);
  EXPECT_EQ(denied["reason"], "Weekly quota of shell commands is 0");
  EXPECT_EQ(denied["retry_after_ms"], -1);
}

TEST(QuotasApi, ASessionMayHaveALimitOfItsOwn) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"session": 2}}})").status, 200);
  EXPECT_EQ(server.asked(R"({"user": "42", "type": "shell", "session": "a"})")["warning"],
            "Only 1 shell command left in this session");
  EXPECT_EQ(server.asked(R"({"user": "42", "type": "shell", "session": "a"})")["warning"],
            "No shell commands left in this session");
  const Json denied = server.asked(R"({"user": "42", "type": "shell", "session": "a"})");
  EXPECT_FALSE(denied["allowed"]);
  EXPECT_TRUE(denied["reason"].get<std::string>().starts_with("Session quota of 2 shell commands used up"));
  EXPECT_TRUE(server.asked(R"({"user": "42", "type": "shell", "session": "b"})")["allowed"]);
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 3);
}

TEST(QuotasApi, APeekChargesNothing) {
  QuotaServer server;
  const Json peek = server.asked(R"({"user": "42", "type": "shell", "peek": true})");
  EXPECT_TRUE(peek["allowed"]);
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 0);
  EXPECT_EQ(server.ledger->added, 0);
}

TEST(QuotasApi, ChecksReadNothingFromTheLedger) {
  QuotaServer server;
  for (int i = 0; i < 10; ++i) (void)server.command();
  (void)server.status();
  EXPECT_EQ(server.ledger->read, 0);
}

TEST(QuotasApi, LoadThrottlesAndBlocksCommands) {
  QuotaServer server;
  server.engine->controls().report_load(0.85);
  const Json slowed = server.command();
  EXPECT_TRUE(slowed["allowed"]);
  EXPECT_EQ(slowed["throttle_factor"], 0.6);
  EXPECT_NE(slowed["warning"].get<std::string>().find("60 %"), std::string::npos) << slowed["warning"];
  server.engine->controls().report_load(0.99);
  const Json blocked = server.command();
  EXPECT_FALSE(blocked["allowed"]);
  EXPECT_EQ(blocked["error"], "throttled");
  EXPECT_EQ(blocked["remaining_today"], 499);
  EXPECT_GT(blocked["retry_after_ms"], 0);
}

TEST(QuotasApi, WhoeverIsReadyToWaitStartsWhenTheLoadIsGone) {
  QuotaServer server;
  server.engine->controls().report_load(0.99);
  const test::Answer answer =
      server.post("/api/quotas/check", R"({"user": "42", "type": "shell", "max_wait_ms": 60000, "run": "r1"})");
  ASSERT_TRUE(answer.waits);
  const auto waiting = server.later;
  const auto answered = server.last;
  const Json line = server.get("/api/quotas/queue").json();
  EXPECT_EQ(line["waiting"], 1);
  EXPECT_EQ(line["line"][0]["run"], "r1");
  EXPECT_EQ(line["line"][0]["position"], 1);
  server.clock.advance(seconds{10});
  server.engine->controls().report_load(0.1);
  server.quotas->tick();
  ASSERT_TRUE(waiting->wait());
  const Json started = answered->json();
  EXPECT_TRUE(started["allowed"]);
  EXPECT_EQ(started["waited_ms"], 10'000);
  EXPECT_EQ(started["run"], "r1");
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 1);
}

TEST(QuotasApi, WhoeverWaitedTooLongIsToldSoAndChargedNothing) {
  QuotaServer server;
  server.engine->controls().report_load(0.99);
  ASSERT_TRUE(server.post("/api/quotas/check", R"({"user": "42", "type": "shell", "max_wait_ms": 5000})").waits);
  server.clock.advance(seconds{6});
  ASSERT_TRUE(server.later->wait());
  EXPECT_EQ(server.last->json()["error"], "timed_out");
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 0);
}

TEST(QuotasApi, AWaitingClientThatGoesAwayLeavesTheLine) {
  QuotaServer server;
  server.engine->controls().report_load(0.99);
  ASSERT_TRUE(server.post("/api/quotas/check", R"({"user": "42", "type": "shell", "max_wait_ms": 60000})").waits);
  server.later->gone = true;
  server.quotas->tick();
  EXPECT_EQ(server.get("/api/quotas/queue").json()["waiting"], 0);
}

TEST(QuotasApi, OnlySoManyRunAtATimeAndAnEndLetsTheNextStart) {
  QuotaServer server({.queue = {.concurrent = 1}});
  const Json first = server.command("a");
  EXPECT_TRUE(first["allowed"]);
  EXPECT_EQ(server.command("b")["error"], "throttled");
  ASSERT_TRUE(server.post("/api/quotas/check", R"({"user": "b", "type": "shell", "max_wait_ms": 60000})").waits);
  server.clock.advance(seconds{1});
  const auto waiting = server.later;
  const auto answered = server.last;
  EXPECT_EQ(server.remove("/api/quotas/runs/" + first["run"].get<std::string>()).status, 200);
  ASSERT_TRUE(waiting->wait());
  EXPECT_TRUE(answered->json()["allowed"]);
  const std::string run = answered->json()["run"];
  EXPECT_EQ(server.post("/api/quotas/runs/" + run + "/renew", "").status, 200);
  const std::string execution = R"({"user_id": "b", "command_type": "shell", "run": ")" + run + "\"}";
  EXPECT_EQ(server.settled(server.post("/api/quotas/executions", execution)).status, 200);
  EXPECT_EQ(server.get("/api/quotas/queue").json()["running"], 0);
  EXPECT_EQ(server.remove("/api/quotas/runs/" + run).status, 404);
}

TEST(QuotasApi, NobodyWaitsForAQuotaThatIsUsedUp) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"daily": 1}}})").status, 200);
  EXPECT_TRUE(server.command()["allowed"]);
  server.engine->controls().report_load(0.99);
  const Json denied = server.asked(R"({"user": "42", "type": "shell", "max_wait_ms": 60000})");
  EXPECT_EQ(denied["error"], "quota_exceeded");
  EXPECT_EQ(server.get("/api/quotas/queue").json()["waiting"], 0);
}

TEST(QuotasApi, WhatTheLedgerCannotKeepIsNeitherChargedNorAnswered) {
  QuotaServer server;
  EXPECT_TRUE(server.command()["allowed"]);
  server.ledger->fails = true;
  const test::Answer answer = server.ask(R"({"user": "42", "type": "shell"})");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.json()["error"], "ledger_unavailable");
  EXPECT_NE(answer.json()["message"].get<std::string>().find("the disk is full"), std::string::npos);
  EXPECT_EQ(server.get("/readyz").status, 503);
  EXPECT_EQ(
      server.settled(server.post("/api/quotas/executions", R"({"user_id": "42", "command_type": "shell"})")).status,
      503);
  server.ledger->fails = false;
  EXPECT_EQ(server.command()["remaining_today"], 498);
}

TEST(QuotasApi, ARestartPutsBackWhatWasUsed) {
  const std::string folder = testing::TempDir() + "quota-restart-" + std::to_string(base::random_seed());
  {
    QuotaServer before({}, folder);
    for (int i = 0; i < 4; ++i) (void)before.command();
    (void)before.command("43", "deploy");
  }
  {
    QuotaServer after({}, folder);
    const Result<std::size_t> restored = after.quotas->restore();
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(*restored, 2u);
    EXPECT_EQ(after.status()["daily"]["shell"]["used"], 4);
    EXPECT_EQ(after.status()["weekly"]["shell"]["used"], 4);
    EXPECT_EQ(after.status()["monthly"]["shell"]["used"], 4);
    EXPECT_EQ(after.status("43")["daily"]["other"]["used"], 1);
    EXPECT_EQ(after.command()["remaining_today"], 495);
  }
  {
    QuotaServer later({}, folder);
    later.clock.advance(hours{48});
    ASSERT_TRUE(later.quotas->restore());
    EXPECT_EQ(later.status()["daily"]["shell"]["used"], 0);
    EXPECT_EQ(later.status()["monthly"]["shell"]["used"], 5);
  }
  std::filesystem::remove_all(folder);
}

// By hours from UTC, which is where it was charged.
TEST(QuotasApi, ARestartInAnotherTimeZonePutsBackNoLessThanWasUsed) {
  for (const char* zone : {"Pacific/Kiritimati", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Pacific/Niue"}) {
    const std::string folder = testing::TempDir() + "quota-zone-" + std::to_string(base::random_seed());
    {
      QuotaServer before({}, folder);
      before.clock.set(at("2026-03-10T10:30:00Z"));
      for (int i = 0; i < 4; ++i) (void)before.command();
    }
    service::QuotasOptions options;
    options.book.timezone = zone;
    QuotaServer after(options, folder);
    after.clock.set(at("2026-03-10T10:31:00Z"));
    ASSERT_TRUE(after.quotas->restore());
    for (const char* period : {"daily", "weekly", "monthly"}) {
      EXPECT_EQ(after.status()[period]["shell"]["used"], 4) << zone << " " << period;
    }
    std::filesystem::remove_all(folder);
  }
}

TEST(QuotasApi, ARestartAfterADayOf23HoursPutsBackNothingOfTheDayBefore) {
  const std::string folder = testing::TempDir() + "quota-short-day-" + std::to_string(base::random_seed());
  service::QuotasOptions options;
  options.book.timezone = "Europe/Berlin";
  {
    QuotaServer before(options, folder);
    before.clock.set(at("2026-03-29T12:00:00Z"));  // summer time began that night
    for (int i = 0; i < 4; ++i) (void)before.command();
  }
  QuotaServer after(options, folder);
  after.clock.set(at("2026-03-29T22:30:00Z"));  // half past midnight
  ASSERT_TRUE(after.quotas->restore());
  EXPECT_EQ(after.status()["daily"]["shell"]["used"], 0);
  EXPECT_EQ(after.status()["monthly"]["shell"]["used"], 4);
  std::filesystem::remove_all(folder);
}

TEST(QuotasApi, WhatIsOnlyMonitoredSaysWhenItIsPastItsLimit) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"mode": "monitor", "types": {"shell": {"daily": 1}}})").status, 200);
  EXPECT_EQ(server.command()["reason"], "Within all quotas and policies");
  const Json looked = server.asked(R"({"user": "42", "type": "shell", "peek": true})");
  const Json past = server.command();
  EXPECT_TRUE(past["allowed"]);
  for (const Json& answer : {looked, past}) {
    EXPECT_EQ(answer["reason"], "Past the daily quota of shell commands, which is only monitored");
  }
}

TEST(QuotasApi, AClockSetBackAcrossMidnightGrantsNothingTwice) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"daily": 2}}})").status, 200);
  server.clock.set(at("2026-03-10T00:00:05Z"));
  EXPECT_TRUE(server.command()["allowed"]);
  server.clock.step_wall(-seconds{10});  // 23:59:55 of the day before
  EXPECT_EQ(server.command()["remaining_today"], 0);
  EXPECT_FALSE(server.command()["allowed"]);
  server.clock.advance(seconds{20});
  EXPECT_FALSE(server.command()["allowed"]);
  const Json usage = server.settled(server.get("/api/quotas/usage?user_id=42")).json()["usage"];
  ASSERT_GE(usage.size(), 1u);
  EXPECT_EQ(usage.back()["day"], "2026-03-10");
  EXPECT_EQ(usage.back()["commands"], 2);
}

TEST(QuotasApi, DaysOf23And25HoursAreWholeDaysInTheUsersTimeZone) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"timezone": "Europe/Berlin"})").status, 200);
  server.clock.set(at("2026-03-29T00:00:00+01:00"));
  EXPECT_EQ(server.command()["resets_at"]["daily"], at("2026-03-30T00:00:00+02:00").count() / 1'000'000);
  server.clock.set(at("2026-10-25T00:00:00+02:00"));
  EXPECT_EQ(server.command()["resets_at"]["daily"], at("2026-10-26T00:00:00+01:00").count() / 1'000'000);
  server.clock.advance(hours{24} + minutes{59});
  EXPECT_EQ(server.command()["remaining_today"], 498);
  server.clock.advance(minutes{2});
  EXPECT_EQ(server.command()["remaining_today"], 499);
  const Json usage = server.settled(server.get("/api/quotas/usage?user_id=42")).json()["usage"];
  ASSERT_EQ(usage.size(), 3u);
  EXPECT_EQ(usage[0]["day"], "2026-03-29");
  EXPECT_EQ(usage[1]["day"], "2026-10-25");
  EXPECT_EQ(usage[1]["commands"], 2);
  const test::Answer wrong = server.put("/api/quotas/user/42", R"({"timezone": "Europe/Berlim"})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_NE(wrong.json()["message"].get<std::string>().find("Europe/Berlin"), std::string::npos);
}

TEST(QuotasApi, AlertsTellOfQuotasNearlyUsedUpAndOfCommandsThatFailOrRunLong) {
  QuotaServer server;
  ASSERT_EQ(server.put("/api/quotas/user/42", R"({"types": {"shell": {"daily": 5}}})").status, 200);
  for (int i = 0; i < 5; ++i) (void)server.command();
  (void)server.settled(
      server.post("/api/quotas/executions", R"({"user_id": "42", "command_type": "shell", "exit_code": 2})"));
  (void)server.settled(
      server.post("/api/quotas/executions", R"({"user_id": "42", "command_type": "shell", "duration_ms": 600000})"));
  server.notices.flush();
  std::map<std::string, int> kinds;
  const Json alerts = server.get("/api/alerts").json()["alerts"];
  for (const Json& alert : alerts) {
    ++kinds[alert["kind"]];
    EXPECT_EQ(alert["agent"], "42");
    EXPECT_FALSE(alert["text"].get<std::string>().empty());
  }
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"command_failed", 1}, {"command_long", 1}, {"quota_high", 1}}));
}

TEST(QuotasApi, AnAgentReadsAThousandRowsAtATime) {
  QuotaServer server;
  for (int i = 0; i < 1'001; ++i) {
    (void)server.settled(server.post("/api/quotas/executions", R"({"user_id": "42", "command_type": "shell"})"));
  }
  const test::ApiServer::Headers own{{"Authorization", "Bearer " + server.token(state::Role::kAgent, "42")}};
  const auto page = [&](const std::string& more) {
    return server.settled(server.call(net::Method::kGet, "/api/quotas/executions?limit=10000" + more, {}, own)).json();
  };
  const Json first = page("");
  EXPECT_EQ(first["executions"].size(), 1'000U);
  EXPECT_EQ(page("&cursor=" + first["next_cursor"].get<std::string>())["executions"].size(), 1U);
  EXPECT_EQ(server.settled(server.get("/api/quotas/executions?limit=10000")).json()["executions"].size(), 1'001U);
}

TEST(QuotasApi, AnAgentsTokenIsGoodForItsOwnUserOnly) {
  QuotaServer server;
  const test::ApiServer::Headers own{{"Authorization", "Bearer " + server.token(state::Role::kAgent, "42")}};
  const auto post = [&](const char* path, const char* body) {
    return server.settled(server.call(net::Method::kPost, path, body, own));
  };
  const auto get = [&](const char* path) { return server.settled(server.call(net::Method::kGet, path, {}, own)); };
  EXPECT_EQ(post("/api/quotas/check", R"({"user": "42", "type": "shell"})").status, 200);
  EXPECT_EQ(post("/api/quotas/check", R"({"type": "shell"})").json()["user"], "42");
  const test::Answer other = post("/api/quotas/check", R"({"user": "43", "type": "shell"})");
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.json()["error"], "wrong_agent");
  EXPECT_EQ(post("/api/quotas/check", R"({"type": "shell", "plan": "enterprise"})").status, 403);
  EXPECT_EQ(post("/api/quotas/executions", R"({"user_id": "43", "command_type": "shell"})").status, 403);
  EXPECT_EQ(post("/api/quotas/executions", R"({"command_type": "shell"})").status, 200);
  EXPECT_EQ(get("/api/quotas/user/42").status, 200);
  EXPECT_EQ(get("/api/quotas/user/43").status, 403);
  EXPECT_EQ(get("/api/quotas/executions?user_id=43").status, 403);
  const Json mine = get("/api/quotas/executions").json();
  ASSERT_EQ(mine["executions"].size(), 1u);
  EXPECT_EQ(mine["executions"][0]["user_id"], "42");
  EXPECT_EQ(get("/api/quotas/report").status, 403);
  EXPECT_EQ(server.call(net::Method::kPut, "/api/quotas/user/42", "{}", own).status, 403);
  EXPECT_EQ(server.call(net::Method::kPost, "/api/quotas/check", R"({"user": "42", "type": "shell"})").status, 401);
  const test::ApiServer::Headers viewer{{"Authorization", "Bearer " + server.token(state::Role::kViewer)}};
  EXPECT_EQ(server.call(net::Method::kPost, "/api/quotas/check", R"({"user": "42", "type": "shell"})", viewer).status,
            403);
  EXPECT_EQ(server.call(net::Method::kGet, "/api/quotas/user/42", {}, viewer).status, 200);
}

TEST(QuotasApi, BadQuestionsAreToldWhatIsWrong) {
  QuotaServer server;
  const auto wrong = [&](const char* body) {
    const test::Answer answer = server.ask(body);
    EXPECT_EQ(answer.status, 400) << body;
    return answer.json()["message"].get<std::string>();
  };
  EXPECT_EQ(wrong(R"({"user": "42"})"), "type is needed");
  EXPECT_EQ(wrong(R"({"type": "shell"})"), "user is needed");
  EXPECT_EQ(wrong(R"({"user": 42, "type": "shell"})"), "user must be text, got 42");
  EXPECT_EQ(wrong(R"({"user": "42", "type": "shell", "max_wait_ms": -1})"),
            "max_wait_ms must be a whole number from 0 to 86400000, got -1");
  EXPECT_NE(wrong(R"({"user": "42", "typ": "shell"})").find("did you mean \"type\"?"), std::string::npos);
  EXPECT_EQ(wrong(R"({"user": "a\u0000b", "type": "shell"})"),
            "user must be at most 512 bytes of UTF-8 without control characters");
  EXPECT_EQ(server.status()["daily"]["shell"]["used"], 0);
}

}  // namespace
}  // namespace headgate::api
