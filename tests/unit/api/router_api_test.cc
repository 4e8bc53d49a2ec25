// The way to a handler, health, metrics, and what any bytes come to.
#include <algorithm>

#include "rapidcheck/gtest.h"
#include "support/allocation_counter.h"
#include "support/api_server.h"

namespace headgate {
namespace {

using net::Method;
using test::Answer;
using test::ApiServer;
using test::Json;

TEST(HttpApi, UnknownPathIs404WithAGuess) {
  ApiServer server;
  const Answer answer = server.call(Method::kGet, "/api/overvew");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body,
            R"({"error":"not_found","message":"there is nothing at /api/overvew, did you mean \"/api/overview\"?"})");
  EXPECT_EQ(server.call(Method::kGet, "/healthz/").status, 404);
  EXPECT_EQ(server.call(Method::kPost, "/v1/check/").status, 404);
  EXPECT_EQ(server.call(Method::kGet, "").status, 404);
  EXPECT_EQ(server.call(Method::kDelete, "/v1/leases/").status, 404);
  EXPECT_EQ(server.call(Method::kDelete, "/v1/leases/a/b").status, 404);
}

TEST(HttpApi, WrongMethodIs405WithAllow) {
  ApiServer server;
  const Answer answer = server.call(Method::kGet, "/v1/check");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.header("Allow"), "POST, OPTIONS");
  EXPECT_EQ(answer.body, R"({"error":"method_not_allowed","message":"/v1/check takes POST, OPTIONS, got GET"})");
  EXPECT_EQ(server.call(Method::kPatch, "/api/admin/emergency").header("Allow"), "GET, HEAD, PUT, DELETE, OPTIONS");
  EXPECT_EQ(server.call(Method::kOther, "/").status, 405);
}

TEST(HttpApi, LiteralPathsWinOverNames) {
  ApiServer server;
  // Not the override of an agent called "whitelist".
  EXPECT_EQ(server.remove("/api/admin/rate-limits/whitelist").status, 405);
}

TEST(HttpApi, OptionsTellsWhatThereIs) {
  ApiServer server;
  const Answer answer = server.call(Method::kOptions, "/v1/gate");
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("Allow"), "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(answer.headers.find("Access-Control"), std::string::npos);
}

TEST(HttpApi, HeadIsAnsweredAsGet) {
  ApiServer server;
  EXPECT_EQ(server.call(Method::kHead, "/healthz").status, 200);
}

TEST(HttpApi, EverySlowAnswerHasARequestId) {
  ApiServer server;
  EXPECT_EQ(server.call(Method::kGet, "/healthz").header("X-Request-Id").size(), 16U);
  EXPECT_EQ(server.call(Method::kGet, "/nowhere").header("X-Request-Id").size(), 16U);
  EXPECT_EQ(server.call(Method::kGet, "/api/overview", {}, {{"X-Request-Id", "mine"}}).header("X-Request-Id"), "mine");
}

TEST(HttpApi, ManagingTakesAToken) {
  ApiServer server;
  EXPECT_EQ(server.call(Method::kGet, "/api/overview").status, 401);
  EXPECT_EQ(server.get("/api/overview").status, 200);
  const ApiServer::Headers viewer{{"Authorization", "Bearer " + server.token(state::Role::kViewer)}};
  EXPECT_EQ(server.call(Method::kGet, "/api/overview", {}, viewer).status, 200);
  const Answer change = server.call(Method::kPut, "/api/admin/load", R"({"load":0.5})", viewer);
  EXPECT_EQ(change.status, 403);
  EXPECT_EQ(change.json()["error"], "forbidden");
  const ApiServer::Headers agent{{"Authorization", "Bearer " + server.token(state::Role::kAgent, "A")}};
  EXPECT_EQ(server.call(Method::kGet, "/api/overview", {}, agent).status, 403);
}

TEST(HttpApi, ManagingTakesJson) {
  ApiServer server;
  const Answer answer =
      server.manage(Method::kPut, "/api/admin/load", R"({"load":0.5})", {{"Content-Type", "text/plain"}});
  EXPECT_EQ(answer.status, 415);
  EXPECT_EQ(answer.json()["message"], "Content-Type must be application/json, got \"text/plain\"");
  EXPECT_EQ(server.manage(Method::kPut, "/api/admin/policies", "a", {{"Content-Type", "text/plain"}}).json()["message"],
            "Content-Type must be application/json or application/yaml, got \"text/plain\"");
}

TEST(HttpApi, NamesInPathsAreDecoded) {
  ApiServer server;
  EXPECT_EQ(server.get("/api/agents/a%2Fb%20c").json()["agent"], "a/b c");
  const Answer broken = server.get("/api/agents/a%2");
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(broken.body, R"({"error":"invalid_request","message":"the percent-encoding of \"a%2\" is broken"})");
}

TEST(HttpApi, HealthAndReadiness) {
  ApiServer server;
  EXPECT_EQ(server.call(Method::kGet, "/healthz").body, R"({"status":"ok"})");
  EXPECT_EQ(server.call(Method::kGet, "/readyz").body, R"({"status":"ready","reasons":[]})");
}

TEST(HttpApi, NotReadySaysWhy) {
  test::ApiServerOptions options;
  options.http.ready = []() -> Result<void> { return Error{ErrorCode::kIo, "the store is away", true}; };
  ApiServer server(std::move(options));
  const Answer answer = server.call(Method::kGet, "/readyz");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, R"({"status":"not_ready","reasons":["the store is away"]})");
}

TEST(HttpApi, MetricsCountChecks) {
  test::ApiServerOptions options;
  options.http.listeners = {"http"};
  options.http.io_counts = [](std::string_view) {
    net::IoCounts counts;
    counts.open = 3;
    counts.accepted = 5;
    return counts;
  };
  ApiServer server(std::move(options));
  server.load("policies: [{id: one, limit: 1/60s}]");
  (void)server.check(R"({"agent":"A","operation":"op"})");
  (void)server.check(R"({"agent":"A","operation":"op"})");
  (void)server.check("{");
  const Answer answer = server.call(Method::kGet, "/metrics");
  EXPECT_EQ(answer.content_type, "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line : {
           "headgate_checks_total{protocol=\"http\",result=\"allowed\"} 1\n",
           "headgate_checks_total{protocol=\"http\",result=\"denied\"} 1\n",
           "headgate_checks_total{protocol=\"http\",result=\"error\"} 1\n",
           "headgate_policy_checks_total{policy=\"one\",result=\"denied\"} 1\n",
           "headgate_connections{listener=\"http\"} 3\n",
           "headgate_connections_accepted_total{listener=\"http\"} 5\n",
           "headgate_reloads_total{result=\"done\"} 2\n",
           "headgate_emergency 0\n",
           "headgate_build_info{version=\"",
           "# TYPE headgate_check_duration_seconds histogram\n",
           "process_resident_memory_bytes ",
           "process_open_fds ",
       }) {
    EXPECT_NE(answer.body.find(line), std::string::npos) << line;
  }
}

TEST(HttpApi, MetricsAreOpenOnThisMachineOnly) {
  ApiServer server;
  EXPECT_EQ(server.call(Method::kGet, "/metrics").status, 200);
  server.peer.ip = "192.0.2.1";
  server.peer.loopback = false;
  EXPECT_EQ(server.call(Method::kGet, "/metrics").status, 401);
  EXPECT_EQ(server.get("/metrics").status, 200);
}

TEST(HttpApi, WebSocketIsGivenAway) {
  test::ApiServerOptions options;
  int upgrades = 0;
  options.http.websocket = [&](const net::HttpRequest&, net::HttpReply& reply, const service::Caller&) {
    ++upgrades;
    net::HttpAnswer answer;
    answer.status = 426;
    reply.send(answer);
  };
  ApiServer server(std::move(options));
  EXPECT_EQ(server.call(Method::kGet, "/v1/ws").status, 426);
  EXPECT_EQ(upgrades, 1);
}

// A reply that takes no memory of its own.
class CountingReply final : public net::HttpReply {
 public:
  void send(const net::HttpAnswer& answer) override { bytes += answer.body.size() + answer.headers.size(); }
  std::shared_ptr<net::LaterReply> later() override { return nullptr; }
  void take_over(std::string_view, std::unique_ptr<net::Session>) override {}
  std::size_t bytes = 0;
};

TEST(HttpApi, AllowedCheckAllocatesNothing) {
  ApiServer server;
  server.load("policies: [{id: many, limit: {strategy: token_bucket, capacity: 1000000, refill_rate: 10}}]");
  const std::string body = R"({"agent":"agent-1","operation":"CREATE_COMPONENT","session":"s1"})";
  const std::string padded = body + std::string(net::Session::kSlack, ' ');
  const std::array<net::Header, 3> headers{net::Header{"Host", "127.0.0.1:7070"},
                                           net::Header{"Content-Type", "application/json"},
                                           net::Header{"X-Request-Id", "r1"}};
  net::HttpRequest request;
  request.method = Method::kPost;
  request.target = request.path = "/v1/check";
  request.headers = headers;
  request.body = std::string_view(padded).substr(0, body.size());
  request.peer = &server.peer;
  request.now = server.clock.now();
  CountingReply reply;
  for (int i = 0; i < 100; ++i) server.http->handle(request, reply);
  EXPECT_EQ(test::allocations_in([&] {
              for (int i = 0; i < 100; ++i) server.http->handle(request, reply);
            }),
            0U);
  EXPECT_GT(reply.bytes, 0U);
}

RC_GTEST_PROP(HttpApi, AnyBodyGetsJson, (const std::string& bytes)) {
  static ApiServer server;
  for (const auto& [method, target] : std::initializer_list<std::pair<Method, const char*>>{
           {Method::kPost, "/v1/check"},
           {Method::kPost, "/v1/check/batch"},
           {Method::kPost, "/v1/leases/x/settle"},
           {Method::kPut, "/api/admin/rate-limits/defaults"},
           {Method::kPut, "/api/admin/rate-limits/A"},
           {Method::kPut, "/api/admin/rate-limits/whitelist"},
           {Method::kPut, "/api/admin/emergency"},
           {Method::kPut, "/api/admin/load"},
           {Method::kPost, "/api/admin/tokens"},
           {Method::kPost, "/api/admin/policies/validate"},
           {Method::kPut, "/api/admin/policies/x"},
           {Method::kPost, "/api/admin/policies/explain"},
           {Method::kPost, "/api/admin/policies/rollback"},
       }) {
    const Answer answer = server.manage(method, target, bytes);
    RC_ASSERT(answer.status >= 200 && answer.status < 500);
    RC_ASSERT(!Json::parse(answer.body, nullptr, false).is_discarded());
  }
}

RC_GTEST_PROP(HttpApi, AnyPathAndHeaderGetsJson, (const std::string& path, const std::string& value)) {
  static ApiServer server;
  const std::string target = "/" + path;
  const Answer answer =
      server.call(Method::kPost, target, "{}", {{"X-Request-Id", value}, {"Content-Type", value}, {"Accept", value}});
  if (!answer.body.empty()) RC_ASSERT(!Json::parse(answer.body, nullptr, false).is_discarded());
  const Answer gate = server.call(
      Method::kGet, "/v1/gate", {},
      {{"X-Headgate-Agent", value}, {"X-Original-URI", path}, {"X-Headgate-Cost", value}, {"X-Forwarded-For", value}});
  if (!gate.body.empty()) RC_ASSERT(!Json::parse(gate.body, nullptr, false).is_discarded());
}

}  // namespace
}  // namespace headgate
