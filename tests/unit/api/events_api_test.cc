// Agents, overview, history, events, alerts, the page, and the OpenAPI document.
#include <algorithm>
#include <regex>

#include "api/http/call.h"
#include "api/http/event_feed.h"
#include "api/http/routes.h"
#include "base/ascii.h"
#include "support/api_server.h"

namespace headgate {
namespace {

using net::Method;
using test::Answer;
using test::ApiServer;
using test::Json;

TEST(AgentsApi, TellsUsageByChannelAndTier) {
  ApiServer server;
  (void)server.check(R"({"agent":"A","operation":"op"})");
  (void)server.check(R"({"agent":"A","operation":"op","cost":100})");
  const Json agent = server.get("/api/agents/A").json();
  EXPECT_EQ(agent["allowed"], 1);
  EXPECT_EQ(agent["denied"], 1);
  EXPECT_EQ(agent["usage"]["http"]["normal"]["limit"], 60);
  EXPECT_EQ(agent["usage"]["http"]["normal"]["used"], 1);
  EXPECT_EQ(agent["usage"]["ws"]["normal"]["used"], 0);
  EXPECT_EQ(agent["usage"]["http"]["heavy"]["remaining"], 10);
  EXPECT_EQ(agent["override"], nullptr);
  (void)server.put("/api/admin/rate-limits/A", R"({"normal":{"capacity":5,"refill_per_minute":5}})");
  EXPECT_EQ(server.get("/api/agents/A").json()["override"]["normal"]["capacity"], 5);
}

TEST(AgentsApi, EligibleLeavesOutTheRateLimited) {
  ApiServer server;
  server.load("policies: [{id: one, limit: 1/60s}]");
  for (const char* agent : {"A", "A", "B"}) {
    (void)server.check(Json{{"agent", agent}, {"operation", "op"}}.dump());
  }
  EXPECT_EQ(server.get("/api/agents").json()["agents"].size(), 2U);
  const Json eligible = server.get("/api/agents?eligible=true").json()["agents"];
  ASSERT_EQ(eligible.size(), 1U);
  EXPECT_EQ(eligible[0]["agent"], "B");
  EXPECT_EQ(server.get("/api/agents?eligible=maybe").body,
            R"({"error":"invalid_request","message":"eligible must be true or false"})");
  EXPECT_EQ(server.get("/api/agents/A").json()["rate_limited"], true);
  EXPECT_EQ(server.get("/api/agents/A").json()["violations"], 1);
}

TEST(AgentsApi, OverviewCountsChecks) {
  ApiServer server;
  server.load("policies: [{id: one, limit: 1/60s}]");
  (void)server.check(R"({"agent":"A","operation":"op"})");
  (void)server.check(R"({"agent":"A","operation":"op"})");
  server.clock.advance(std::chrono::seconds{1});
  server.traffic.tick(server.clock.now());
  const Json body = server.get("/api/overview").json();
  EXPECT_EQ(body["checks"].dump(), R"({"allowed":1,"denied":1,"errors":0})");
  EXPECT_EQ(body["uptime_ms"], 1000);
  EXPECT_EQ(body["rates"]["checks_per_second"], 0.2);
  EXPECT_EQ(body["top_agents"][0].dump(), R"({"agent":"A","allowed":1,"denied":1,"rate_limited":true})");
  EXPECT_EQ(body["top_policies"][0].dump(), R"({"policy_id":"one","admitted":1,"denied":1})");
  EXPECT_EQ(body["offenders"][0].dump(), R"({"agent":"A","violations":1})");
  EXPECT_EQ(body["policies"].dump(), R"({"count":1,"version":2})");
}

TEST(AgentsApi, HistoryIsInSteps) {
  ApiServer server;
  for (int i = 0; i < 3; ++i) {
    (void)server.check(R"({"agent":"A","operation":"op"})");
    server.clock.advance(std::chrono::seconds{1});
    server.traffic.tick(server.clock.now());
  }
  const Json body = server.get("/api/history?since=1700000000000&step=1000").json();
  EXPECT_EQ(body["step_ms"], 1000);
  std::uint64_t allowed = 0;
  for (const Json& point : body["points"]) allowed += point["allowed"].get<std::uint64_t>();
  EXPECT_EQ(allowed, 3U);
  EXPECT_EQ(server.get("/api/history?step=1").status, 400);
  EXPECT_EQ(server.get("/api/history?since=0&step=1000").json()["error"], "invalid_request");
}

// Runs what is posted when told to.
class TestLink final : public net::Link {
 public:
  void post(std::function<void(net::Session&)> work) override {
    const std::lock_guard guard(mutex_);
    work_.push_back(std::move(work));
  }
  void run(net::Session& session) {
    const std::lock_guard guard(mutex_);
    for (const auto& each : work_) each(session);
    work_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void(net::Session&)>> work_;
};

observe::Notice notice(std::uint64_t id, const std::string& kind) {
  observe::Notice made;
  made.id = id;
  made.kind = kind;
  made.text = "t";
  return made;
}

TEST(EventFeed, SendsWhatHappensAndWhatWasMissed) {
  const auto feed = std::make_shared<api::EventFeed>();
  feed->on_notice(notice(1, "violation"));
  feed->on_notice(notice(2, "violation"));
  const std::unique_ptr<net::Session> session = feed->listen(1, [](Nanos) { return true; });
  const auto link = std::make_shared<TestLink>();
  session->link = link;
  session->receive({}, Nanos{0});
  EXPECT_EQ(session->out.substr(0, 29), "id: 2\nevent: violation\ndata: ");
  session->out.clear();
  feed->on_notice(notice(3, "emergency"));
  link->run(*session);
  EXPECT_EQ(session->out.substr(0, 29), "id: 3\nevent: emergency\ndata: ");
  EXPECT_TRUE(session->out.ends_with("\n\n"));
  session->out.clear();
  session->tick(std::chrono::seconds{16});
  EXPECT_EQ(session->out, ": still here\n\n");
}

TEST(EventFeed, SlowReaderIsClosed) {
  const auto feed = std::make_shared<api::EventFeed>();
  const std::unique_ptr<net::Session> session = feed->listen(0, [](Nanos) { return true; });
  const auto link = std::make_shared<TestLink>();
  session->link = link;
  session->receive({}, Nanos{0});
  observe::Notice large = notice(1, "violation");
  large.text = std::string(600'000, 'x');
  feed->on_notice(large);
  link->run(*session);
  EXPECT_FALSE(session->close);
  feed->on_notice(large);
  link->run(*session);
  EXPECT_TRUE(session->close);
  EXPECT_LE(session->out.size(), api::EventFeed::kMostBacklog);
}

TEST(EventFeed, ListenersAreBoundedAndLeave) {
  const auto feed = std::make_shared<api::EventFeed>();
  std::vector<std::unique_ptr<net::Session>> sessions;
  for (std::size_t i = 0; i < api::EventFeed::kMostListeners; ++i)
    sessions.push_back(feed->listen(0, [](Nanos) { return true; }));
  EXPECT_EQ(feed->listen(0, [](Nanos) { return true; }), nullptr);
  sessions.pop_back();
  EXPECT_NE(feed->listen(0, [](Nanos) { return true; }), nullptr);
}

TEST(EventsApi, TakesTheConnectionOver) {
  ApiServer server;
  const Answer answer = server.get("/api/events");
  ASSERT_NE(answer.session, nullptr);
  EXPECT_EQ(answer.headers.substr(0, 17), "HTTP/1.1 200 OK\r\n");
  EXPECT_NE(answer.headers.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_TRUE(answer.headers.ends_with("\r\n\r\n"));
  const auto link = std::make_shared<TestLink>();
  answer.session->link = link;
  answer.session->receive({}, Nanos{0});
  (void)server.put("/api/admin/emergency", R"({"reason":"r"})");
  server.notices.flush();
  link->run(*answer.session);
  EXPECT_NE(answer.session->out.find("event: emergency\n"), std::string::npos);
  EXPECT_EQ(server.manage(Method::kHead, "/api/events").content_type, "text/event-stream");
}

TEST(AlertsApi, AreAcknowledgedOnceAndAudited) {
  ApiServer server;
  (void)server.put("/api/admin/emergency", R"({"reason":"r"})");
  server.notices.flush();
  const Json alerts = server.get("/api/alerts").json()["alerts"];
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_EQ(alerts[0]["kind"], "emergency");
  EXPECT_EQ(alerts[0]["acknowledged_by"], nullptr);
  const std::string target = "/api/alerts/" + alerts[0]["id"].dump() + "/ack";
  EXPECT_EQ(server.post(target, "").json()["acknowledged_by"], "test admin");
  EXPECT_EQ(server.get("/api/alerts").json()["alerts"][0]["acknowledged_at"], 1'700'000'000'000);
  EXPECT_EQ(server.post(target, "").status, 200);
  EXPECT_EQ(server.get("/api/admin/audit?action=alert.").json()["entries"].size(), 1U);
  EXPECT_EQ(server.post("/api/alerts/99999/ack", "").status, 404);
  EXPECT_EQ(server.post("/api/alerts/x/ack", "").status, 404);
}

TEST(StatusPage, IsWholeInItselfAndLocked) {
  ApiServer server;
  const Answer page = server.call(Method::kGet, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("data-state=\"out\""), std::string::npos);
  EXPECT_EQ(page.body.find("@NONCE@"), std::string::npos);
  EXPECT_EQ(page.body.find("http://"), std::string::npos);
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
  const std::string policy = page.header("Content-Security-Policy");
  EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos);
  const std::size_t at = policy.find("'nonce-") + 7;
  const std::string nonce = policy.substr(at, 32);
  EXPECT_NE(page.body.find("<script nonce=\"" + nonce + "\">"), std::string::npos);
  EXPECT_NE(server.call(Method::kGet, "/").header("Content-Security-Policy"), policy);
  EXPECT_EQ(page.header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page.header("Referrer-Policy"), "no-referrer");
  EXPECT_EQ(page.header("Cache-Control"), "no-store");
}

TEST(StatusPage, CodeSignsInOnce) {
  ApiServer server;
  const std::string code = server.access->new_code();
  const Answer answer = server.call(Method::kGet, "/?code=" + code);
  EXPECT_EQ(answer.status, 303);
  EXPECT_EQ(answer.header("Location"), "/");
  std::string cookie = answer.header("Set-Cookie");
  EXPECT_NE(cookie.find("HttpOnly"), std::string::npos);
  cookie = cookie.substr(0, cookie.find(';'));
  const ApiServer::Headers signed_in{{"Cookie", cookie}, {"Sec-Fetch-Site", "same-origin"}};
  EXPECT_NE(server.call(Method::kGet, "/", {}, signed_in).body.find("data-state=\"in\""), std::string::npos);
  EXPECT_EQ(server.call(Method::kGet, "/api/overview", {}, signed_in).status, 200);
  const Answer again = server.call(Method::kGet, "/?code=" + code);
  EXPECT_EQ(again.status, 401);
  EXPECT_NE(again.body.find("data-state=\"refused\""), std::string::npos);
}

// Whether a value is of a schema's kind: its required fields are there, no unknown ones, and types agree.
void expect_schema(const Json& schemas, const Json& schema, const Json& value, const std::string& where) {
  if (schema.contains("$ref")) {
    const std::string name = schema["$ref"].get<std::string>().substr(std::string("#/components/schemas/").size());
    ASSERT_TRUE(schemas.contains(name)) << name;
    return expect_schema(schemas, schemas[name], value, where);
  }
  if (schema.contains("oneOf")) return;
  if (schema.contains("const")) {
    EXPECT_EQ(schema["const"], value) << where;
  }
  if (schema.contains("enum")) {
    EXPECT_NE(std::find(schema["enum"].begin(), schema["enum"].end(), value), schema["enum"].end()) << where;
  }
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    bool fits = false;
    for (const std::string type : types) {
      fits = fits || (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
             (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
             (type == "null" && value.is_null()) || (type == "number" && value.is_number()) ||
             (type == "integer" && value.is_number_integer());
    }
    EXPECT_TRUE(fits) << where << ": " << schema["type"] << " does not describe " << value;
  }
  if (value.is_object()) {
    for (const std::string field : schema.value("required", Json::array())) {
      EXPECT_TRUE(value.contains(field)) << where << " has no " << field;
    }
    if (!schema.contains("properties")) return;
    for (const auto& [field, each] : value.items()) {
      const bool known = schema["properties"].contains(field);
      EXPECT_TRUE(known || schema.contains("additionalProperties")) << where << "." << field << " is not described";
      if (known) expect_schema(schemas, schema["properties"][field], each, where + "." + field);
    }
  }
  if (value.is_array() && schema.contains("items")) {
    for (const Json& each : value) expect_schema(schemas, schema["items"], each, where + "[]");
  }
}

TEST(OpenApi, HasEveryRouteAndNothingElse) {
  ApiServer server;
  const Json document = server.call(Method::kGet, "/openapi.json").json();
  EXPECT_EQ(document["openapi"], "3.1.0");
  std::size_t operations = 0;
  for (const auto& [path, methods] : document["paths"].items()) operations += methods.size();
  EXPECT_EQ(operations, api::routes().size());
  std::vector<std::string> ids;
  for (const api::Route& route : api::routes()) {
    const std::string method = base::to_lower(to_string(route.method));
    const Json& operation = document["paths"][std::string(route.path)][method];
    ASSERT_TRUE(operation.is_object()) << method << " " << route.path;
    ids.push_back(operation["operationId"]);
    // It can be reached, too: whatever it says, it is not 404 or 405 for want of a route.
    const std::string target = std::regex_replace(std::string(route.path), std::regex("\\{[a-z]+\\}"), "x");
    const Answer answer = server.manage(route.method, target, "");
    EXPECT_NE(answer.status, 405) << method << " " << route.path;
    EXPECT_EQ(answer.body.find("there is nothing at"), std::string::npos) << method << " " << route.path;
    const bool secured = !operation["security"].empty();
    EXPECT_EQ(secured, route.need != api::Need::kOpen) << method << " " << route.path;
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST(OpenApi, NamesOnlySchemasThatAreThere) {
  ApiServer server;
  const std::string text = server.call(Method::kGet, "/openapi.json").body;
  const Json schemas = Json::parse(text)["components"]["schemas"];
  const std::regex reference("#/components/schemas/([A-Za-z]+)");
  std::set<std::string> used;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), reference); at != std::sregex_iterator(); ++at) {
    used.insert((*at)[1]);
  }
  for (const std::string& name : used) EXPECT_TRUE(schemas.contains(name)) << name;
  for (const auto& [name, schema] : schemas.items()) EXPECT_TRUE(used.contains(name)) << name << " is not used";
}

TEST(OpenApi, DescribesWhatHandlersAnswer) {
  ApiServer server;
  server.load("policies: [{id: one, limit: 5/60s, warn_at: 0.1}, {id: words, unit: tokens, limit: 100/60s}]");
  const Json document = server.call(Method::kGet, "/openapi.json").json();
  const Json& schemas = document["components"]["schemas"];
  const auto expect = [&](const Answer& answer, const std::string& name) {
    EXPECT_LT(answer.status, 300) << name << ": " << answer.body;
    expect_schema(schemas, schemas[name], answer.json(), name);
  };
  const std::string hold = R"({"agent":"A","operation":"op","cost":{"tokens":5},"hold":true})";
  const std::string lease = server.check(hold).json()["lease"];
  expect(server.check(R"({"agent":"A","operation":"op"})"), "Decision");
  expect(server.check(R"({"agent":"A","operation":"op","cost":100})"), "Decision");
  expect(server.check(R"({"agent":"A","operation":"op"})"), "Decision");
  expect_schema(schemas, schemas["Error"], server.check("{}").json(), "Error");
  expect(server.call(Method::kPost, "/v1/check/batch", R"({"checks":[{"operation":"op"}]})"), "Decisions");
  expect(server.call(Method::kPost, "/v1/leases/" + lease + "/renew"), "Renewed");
  expect(server.call(Method::kPost, "/v1/leases/" + lease + "/settle", R"({"cost":{"tokens":1}})"), "Settled");
  const auto ask_gate = [&] { return server.call(Method::kGet, "/v1/gate", {}, {{"X-Headgate-Operation", "op"}}); };
  Answer gate = ask_gate();
  for (int i = 0; i < 1000 && gate.status == 204; ++i) gate = ask_gate();
  EXPECT_EQ(gate.status, 429);
  expect_schema(schemas, schemas["GateDenial"], gate.json(), "GateDenial");
  expect(server.call(Method::kGet, "/healthz"), "Health");
  expect(server.call(Method::kGet, "/readyz"), "Readiness");
  const std::string tiers = R"({"light":{"capacity":5,"refill_per_minute":5}})";
  expect(server.put("/api/admin/rate-limits/A", tiers), "Override");
  expect(server.get("/api/admin/rate-limits"), "RateLimits");
  expect(server.get("/api/agents/A"), "Agent");
  expect(server.get("/api/agents"), "AgentList");
  expect(server.remove("/api/admin/rate-limits/A"), "Override");
  expect(server.put("/api/admin/rate-limits/defaults", tiers), "Defaults");
  expect(server.put("/api/admin/rate-limits/whitelist", R"({"agents":["x"]})"), "Whitelist");
  expect(server.get("/api/admin/policies"), "Policies");
  expect(server.put("/api/admin/policies/p", R"({"id":"p","limit":"1/60s"})"), "ChangedPolicy");
  expect(server.post("/api/admin/policies/validate", R"({"policies":[{"id":"c"}]})"), "Validation");
  expect(server.post("/api/admin/policies/explain", R"({"agent":"A","operation":"op"})"), "Explanation");
  expect(server.get("/api/admin/policies/versions"), "Versions");
  expect(server.get("/api/admin/policies/versions/1"), "Version");
  expect(server.post("/api/admin/policies/rollback", R"({"version":1})"), "RolledBack");
  expect(server.remove("/api/admin/policies"), "Changed");
  expect(server.put("/api/admin/emergency", R"({"reason":"r"})"), "Emergency");
  server.notices.flush();
  expect(server.get("/api/alerts"), "Alerts");
  const std::string alert = server.get("/api/alerts").json()["alerts"][0]["id"].dump();
  expect(server.post("/api/alerts/" + alert + "/ack", ""), "Alert");
  expect(server.remove("/api/admin/emergency"), "Emergency");
  expect(server.put("/api/admin/load", R"({"load":0.5})"), "Load");
  expect(server.get("/api/admin/audit"), "Audit");
  const Answer token = server.post("/api/admin/tokens", R"({"role":"viewer"})");
  expect(token, "NewToken");
  expect(server.get("/api/admin/tokens"), "Tokens");
  expect(server.remove("/api/admin/tokens/" + token.json()["id"].get<std::string>()), "Revoked");
  expect(server.get("/api/overview"), "Overview");
  expect(server.get("/api/history"), "History");
  expect(server.remove("/api/session"), "SignedOut");
  const Answer simulated = server.post("/api/admin/policies/simulate", R"({"trace":"{\"t\":0,\"operation\":\"op\"}"})");
  if (simulated.waits) {
    ASSERT_TRUE(server.later->wait());
  }
  expect_schema(schemas, schemas["SimulationReport"], server.last->json(), "SimulationReport");
}

}  // namespace
}  // namespace headgate
