// /api/admin/rate-limits, emergency, load, audit, tokens: what they change, keep and write down.
#include "support/api_server.h"

namespace headgate {
namespace {

using net::Method;
using test::Answer;
using test::ApiServer;
using test::Json;

Json newest_entry(ApiServer& server) { return server.get("/api/admin/audit?limit=1").json()["entries"][0]; }

TEST(AdminApi, TellsDefaultsAndOverrides) {
  ApiServer server;
  EXPECT_EQ(server.get("/api/admin/rate-limits").body,
            R"({"defaults":{"light":{"capacity":120,"refill_per_minute":120},)"
            R"("normal":{"capacity":60,"refill_per_minute":60},"heavy":{"capacity":10,"refill_per_minute":10}},)"
            R"("in_force":true,"overrides":{},"whitelist":[]})");
}

TEST(AdminApi, DefaultsChangeWhatAgentsMayDo) {
  ApiServer server;
  const Answer answer = server.put("/api/admin/rate-limits/defaults", R"({"normal":{"capacity":3}})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["defaults"]["normal"], (Json{{"capacity", 3}, {"refill_per_minute", 60}}));
  EXPECT_EQ(answer.json()["defaults"]["light"]["capacity"], 120);
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op"})").json()["limit"], 3);
  const Json entry = newest_entry(server);
  EXPECT_EQ(entry["action"], "defaults.set");
  EXPECT_EQ(entry["who"], "test admin");
  EXPECT_EQ(entry["before"]["normal"]["capacity"], 60);
  EXPECT_EQ(entry["after"]["normal"]["capacity"], 3);
  EXPECT_EQ(server.remove("/api/admin/rate-limits/defaults").status, 200);
  EXPECT_EQ(server.check(R"({"agent":"B","operation":"op"})").json()["limit"], 60);
}

TEST(AdminApi, OverrideIsInForceOnTheNextCheckAndSurvivesARestart) {
  ApiServer server;
  const std::string tiers = R"({"normal":{"capacity":5,"refill_per_minute":5}})";
  const Answer set = server.put("/api/admin/rate-limits/A", tiers);
  EXPECT_EQ(set.body, R"({"agent":"A","override":{"normal":{"capacity":5,"refill_per_minute":5}}})");
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op"})").json()["limit"], 5);
  const Json entry = newest_entry(server);
  EXPECT_EQ(entry["action"], "override.set");
  EXPECT_EQ(entry["target"], "A");
  EXPECT_EQ(entry["before"], nullptr);
  EXPECT_EQ(entry["after"]["normal"]["capacity"], 5);
  {
    test::ApiServerOptions again;
    again.database = server.service.database;
    ApiServer restarted(std::move(again));
    EXPECT_EQ(restarted.check(R"({"agent":"A","operation":"op"})").json()["limit"], 5);
  }
  EXPECT_EQ(server.remove("/api/admin/rate-limits/A").status, 200);
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op"})").json()["limit"], 60);
  EXPECT_EQ(server.remove("/api/admin/rate-limits/A").body,
            R"({"error":"not_found","message":"agent \"A\" has no override"})");
  test::ApiServerOptions after;
  after.database = server.service.database;
  ApiServer reverted(std::move(after));
  EXPECT_EQ(reverted.check(R"({"agent":"A","operation":"op"})").json()["limit"], 60);
}

TEST(AdminApi, BadNumbersChangeNothing) {
  ApiServer server;
  const auto message = [&](const std::string& body) {
    const Answer answer = server.put("/api/admin/rate-limits/A", body);
    EXPECT_EQ(answer.status, 400) << body;
    return answer.json()["message"].get<std::string>();
  };
  EXPECT_EQ(message("{}"), "numbers for light, normal or heavy are needed");
  EXPECT_EQ(message(R"({"lihgt":{}})"), "there is no field \"lihgt\" here, did you mean \"light\"?");
  EXPECT_EQ(message(R"({"light":{"capacity":5}})"), "light must have both capacity and refill_per_minute");
  EXPECT_EQ(message(R"({"light":{"capacity":0,"refill_per_minute":5}})"),
            "light.capacity must be a whole number between 1 and 1000000000, got 0");
  EXPECT_EQ(message(R"({"light":{"capacity":1.5,"refill_per_minute":5}})"),
            "light.capacity must be a whole number between 1 and 1000000000, got 1.5");
  EXPECT_EQ(message(R"({"light":{"capacity":1,"refill":5}})"),
            "light must be an object of capacity and refill_per_minute");
  EXPECT_EQ(message(R"({"light":3})"), "light must be an object of capacity and refill_per_minute");
  EXPECT_TRUE(server.engine->controls().overrides().empty());
  EXPECT_TRUE(server.service.database->settings("override").empty());
}

TEST(AdminApi, WhitelistIsReplacedAddedToAndRemovedFrom) {
  ApiServer server;
  EXPECT_EQ(server.put("/api/admin/rate-limits/whitelist", R"({"agents":["x","y"]})").body, R"({"agents":["x","y"]})");
  EXPECT_EQ(server.post("/api/admin/rate-limits/whitelist", R"({"agent":"z"})").json()["agents"].size(), 3U);
  EXPECT_EQ(server.check(R"({"agent":"z","operation":"op"})").json()["reason"], "The agent is exempt");
  EXPECT_EQ(server.remove("/api/admin/rate-limits/whitelist/x").body, R"({"agents":["y","z"]})");
  EXPECT_EQ(newest_entry(server)["action"], "whitelist.remove");
  EXPECT_EQ(server.remove("/api/admin/rate-limits/whitelist/x").status, 404);
  EXPECT_EQ(server.remove("/api/admin/rate-limits/whitelist/dashboard").status, 404) << "no name is exempt by itself";
  EXPECT_EQ(server.put("/api/admin/rate-limits/whitelist", R"({"agents":["x",1]})").body,
            R"({"error":"invalid_request","message":"each of agents must be text"})");
  test::ApiServerOptions again;
  again.database = server.service.database;
  ApiServer restarted(std::move(again));
  EXPECT_EQ(restarted.get("/api/admin/rate-limits/whitelist").body, R"({"agents":["y","z"]})");
}

TEST(AdminApi, EmergencyGoesOnAndOffAndSurvivesARestart) {
  ApiServer server;
  EXPECT_EQ(server.get("/api/admin/emergency").body,
            R"({"active":false,"reason":null,"enabled_at":null,"enabled_by":null,"automatic":false})");
  EXPECT_EQ(server.put("/api/admin/emergency", R"({"reason":"database melts"})").body,
            R"({"active":true,"reason":"database melts","enabled_at":1700000000000,"enabled_by":"test admin",)"
            R"("automatic":false})");
  server.notices.flush();
  const Json entries = server.get("/api/admin/audit?action=emergency.").json()["entries"];
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0]["action"], "emergency.on");
  EXPECT_EQ(entries[0]["after"]["reason"], "database melts");
  {
    test::ApiServerOptions again;
    again.database = server.service.database;
    ApiServer restarted(std::move(again));
    EXPECT_EQ(restarted.get("/api/admin/emergency").json()["reason"], "database melts");
  }
  EXPECT_EQ(server.remove("/api/admin/emergency").json()["active"], false);
  EXPECT_EQ(server.put("/api/admin/emergency", R"({"reason":""})").status, 400);
  EXPECT_EQ(server.put("/api/admin/emergency", R"({"reason":1})").body,
            R"({"error":"invalid_request","message":"reason must be text"})");
}

TEST(AdminApi, EmergencyByASignalIsKeptAndWrittenDown) {
  ApiServer server;
  control::EmergencyOrder order;
  order.reason = "SIGUSR1";
  order.by = "signal";
  ASSERT_TRUE(server.engine->controls().emergency_on(order).has_value());
  server.notices.flush();
  const Json entry = server.get("/api/admin/audit?action=emergency.").json()["entries"][0];
  EXPECT_EQ(entry["who"], "signal");
  EXPECT_EQ(entry["action"], "emergency.on");
  test::ApiServerOptions again;
  again.database = server.service.database;
  ApiServer restarted(std::move(again));
  EXPECT_EQ(restarted.get("/api/admin/emergency").json()["enabled_by"], "signal");
  server.engine->controls().emergency_off("signal");
  server.notices.flush();
  EXPECT_EQ(server.get("/api/admin/audit?action=emergency.").json()["entries"][0]["action"], "emergency.off");
}

TEST(AdminApi, EveryChangeOfTheFactorIsWrittenDown) {
  ApiServer server;
  const auto changes = [&] {
    server.notices.flush();
    return server.get("/api/admin/audit?action=adaptive.").json()["entries"];
  };
  control::LoadReading busy;
  busy.reported = 0.85;
  server.engine->controls().observe_load(busy);
  const Json first = changes();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0]["who"], "adaptive");
  EXPECT_EQ(first[0]["action"], "adaptive.change");
  EXPECT_EQ(first[0]["before"].dump(), R"({"factor":1})");
  EXPECT_EQ(first[0]["after"].dump(), R"({"factor":0.5,"why":"load 0.85 is over 0.8: limits are multiplied by 0.5"})");
  EXPECT_EQ(first[0]["time"], 1'700'000'000'000);
  server.engine->controls().observe_load(busy);
  EXPECT_EQ(changes().size(), 1U) << "it is as it was";
  ASSERT_TRUE(server.engine->controls().emergency_on({"it melts", "alice"}).has_value());
  const Json last = changes();
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0]["before"].dump(), R"({"factor":0.5})");
  EXPECT_EQ(last[0]["after"].dump(), R"({"factor":0.1,"why":"the emergency throttle changed"})");
}

TEST(AdminApi, TheFactorThatAChangeAfterTheDwellTimeBringsIsWrittenDown) {
  ApiServer server;
  server.engine->controls().report_load(0.85);
  server.clock.advance(std::chrono::seconds{5});
  server.engine->controls().report_load(0.5);
  server.clock.advance(std::chrono::seconds{5});
  server.engine->poll();
  server.notices.flush();
  const Json entry = newest_entry(server);
  EXPECT_EQ(entry["action"], "adaptive.change");
  EXPECT_EQ(entry["before"]["factor"], 0.5);
  EXPECT_EQ(entry["after"]["factor"], 1);
}

TEST(AdminApi, LoadIsReportedAndForgotten) {
  ApiServer server;  // no load changes the limits here: that would be written down, too, a little later
  const Answer answer = server.put("/api/admin/load", R"({"load":0.5})");
  EXPECT_EQ(answer.json()["load"], 0.5);
  EXPECT_EQ(newest_entry(server)["action"], "load.report");
  const Json before = newest_entry(server);
  EXPECT_EQ(server.put("/api/admin/load", R"({"load":0.5})").status, 200);
  EXPECT_EQ(newest_entry(server), before);  // changed nothing
  EXPECT_EQ(server.remove("/api/admin/load").json()["load"], nullptr);
  EXPECT_EQ(server.put("/api/admin/load", R"({"load":2})").body,
            R"({"error":"invalid_request","message":"load must be a number between 0 and 1, got 2"})");
  EXPECT_EQ(server.put("/api/admin/load", "{}").status, 400);
}

TEST(AdminApi, AuditIsPaged) {
  ApiServer server;
  for (const char* agent : {"a", "b", "c"}) {
    (void)server.post("/api/admin/rate-limits/whitelist", Json{{"agent", agent}}.dump());
  }
  const Json first = server.get("/api/admin/audit?limit=2&action=whitelist.").json();
  ASSERT_EQ(first["entries"].size(), 2U);
  EXPECT_EQ(first["entries"][0]["target"], "c");
  const Json rest = server.get("/api/admin/audit?limit=2&action=whitelist.&before=" + first["next"].dump()).json();
  ASSERT_EQ(rest["entries"].size(), 1U);
  EXPECT_EQ(rest["entries"][0]["target"], "a");
  EXPECT_EQ(rest["next"], nullptr);
  EXPECT_EQ(server.get("/api/admin/audit?limit=0").body,
            R"({"error":"invalid_request","message":"limit must be a whole number between 1 and 1000, got \"0\""})");
}

TEST(AdminApi, TokensAreMadeListedAndRevoked) {
  ApiServer server;
  const Answer made = server.post("/api/admin/tokens", R"({"role":"agent","agent":"A","name":"n","ttl_ms":1000})");
  EXPECT_EQ(made.status, 201);
  const Json token = made.json();
  EXPECT_EQ(token["role"], "agent");
  EXPECT_EQ(token["agent"], "A");
  EXPECT_EQ(token["expires_at"], 1'700'000'001'000);
  const std::string secret = token["secret"];
  EXPECT_EQ(server.check(R"({"operation":"op"})", {{"Authorization", "Bearer " + secret}}).status, 200);
  const Answer listed = server.get("/api/admin/tokens");
  EXPECT_EQ(listed.body.find(secret), std::string::npos);
  EXPECT_EQ(listed.json()["tokens"].size(), 2U);
  const std::string id = token["id"];
  EXPECT_EQ(server.remove("/api/admin/tokens?id=" + id).json()["revoked"], true);
  EXPECT_EQ(server.check(R"({"operation":"op"})", {{"Authorization", "Bearer " + secret}}).status, 401);
  EXPECT_EQ(server.remove("/api/admin/tokens/" + id).status, 404);
  EXPECT_EQ(server.remove("/api/admin/tokens").status, 400);
  EXPECT_EQ(server.post("/api/admin/tokens", R"({"role":"root"})").body,
            R"({"error":"invalid_request","message":"role must be admin, viewer, gateway or agent, got \"root\""})");
  EXPECT_EQ(server.post("/api/admin/tokens", R"({"role":"admin","agent":"A"})").status, 400);
  EXPECT_EQ(server.post("/api/admin/tokens", R"({"role":"admin","ttl_ms":0})").status, 400);
}

}  // namespace
}  // namespace headgate
