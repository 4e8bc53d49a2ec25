// GET|POST /v1/gate.
#include "support/api_server.h"

namespace headgate {
namespace {

using net::Method;
using test::Answer;
using test::ApiServer;
using test::Json;

// Behind a proxy that sets or clears every header.
test::ApiServerOptions all_trusted() {
  test::ApiServerOptions options;
  for (const auto& [name, member] : api::kGateHeaders) options.http.gate.*member = true;
  return options;
}

Answer gate(ApiServer& server, const ApiServer::Headers& headers) {
  return server.call(Method::kGet, "/v1/gate", {}, headers);
}

TEST(GateApi, LetsThroughWith204AndHeaders) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: two, limit: 2/60s}]");
  const Answer answer = gate(server, {{"X-Headgate-Agent", "A"}, {"X-Headgate-Operation", "op"}});
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.content_type, "");
  EXPECT_EQ(answer.body, "");
  EXPECT_EQ(answer.header("RateLimit"), "\"two\";r=1;t=60");
}

TEST(GateApi, DeniesWith429) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: one, limit: 1/60s}]");
  const ApiServer::Headers headers{{"X-Headgate-Agent", "A"}, {"X-Headgate-Operation", "op"}};
  (void)gate(server, headers);
  const Answer answer = gate(server, headers);
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.body, R"({"error":"rate_limited","message":"Sliding window limit 1/60s exceeded",)"
                         R"("retry_after_ms":60000,"tier":null,"policy_id":"one"})");
  EXPECT_EQ(answer.header("Retry-After"), "60");
}

constexpr const char* kLine = "policies: [{id: line, limit: 1/60s, behavior: queue, max_wait: 120s}]";

TEST(GateApi, CheckThatWouldWaitInLineIsDeniedAtOnce) {
  ApiServer server(all_trusted());
  server.load(kLine);
  const ApiServer::Headers headers{{"X-Headgate-Agent", "A"}, {"X-Headgate-Operation", "op"}};
  EXPECT_EQ(gate(server, headers).status, 204);
  const Answer answer = gate(server, headers);
  EXPECT_FALSE(answer.waits);
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.header("Retry-After"), "60");
}

TEST(GateApi, WaitsInLineForAsLongAsTheConfigurationSays) {
  test::ApiServerOptions options = all_trusted();
  options.http.gate_max_wait = std::chrono::seconds{90};
  ApiServer server(std::move(options));
  server.load(kLine);
  const ApiServer::Headers headers{{"X-Headgate-Agent", "A"}, {"X-Headgate-Operation", "op"}};
  EXPECT_EQ(gate(server, headers).status, 204);
  EXPECT_TRUE(gate(server, headers).waits);
  const auto first = server.later;
  EXPECT_TRUE(gate(server, headers).waits) << "behind another, it may come early";
  const auto second = server.later;
  server.clock.advance(std::chrono::seconds{61});
  server.engine->poll();
  EXPECT_TRUE(first->recorded());
  EXPECT_FALSE(second->recorded());
  server.clock.advance(std::chrono::seconds{30});
  server.engine->poll();
  ASSERT_TRUE(second->recorded());
  EXPECT_EQ(server.last->status, 429) << "its 90 s are over";
}

TEST(GateApi, TellsTheTierOfABuiltInLimit) {
  ApiServer server(all_trusted());
  const ApiServer::Headers headers{
      {"X-Headgate-Agent", "A"}, {"X-Headgate-Operation", "op"}, {"X-Headgate-Cost", "60"}};
  EXPECT_EQ(gate(server, headers).status, 204);
  const Json body = gate(server, headers).json();
  EXPECT_EQ(body["tier"], "normal");
  EXPECT_EQ(body["policy_id"], "tier-normal");
}

TEST(GateApi, SpeaksProblemJsonWhenAsked) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: one, limit: 1/60s}]");
  const ApiServer::Headers headers{{"X-Headgate-Operation", "op"}, {"Accept", "application/problem+json"}};
  (void)gate(server, headers);
  const Answer answer = gate(server, headers);
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.content_type, "application/problem+json");
  const Json body = answer.json();
  EXPECT_EQ(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
  EXPECT_EQ(body["title"], "Too Many Requests");
  EXPECT_EQ(body["violated-policies"], Json::array({"one"}));
}

TEST(GateApi, TakesTheOperationFromWhatTheProxyWasAsked) {
  ApiServer server(all_trusted());
  const auto same = [&](const ApiServer::Headers& headers, const std::string& operation) {
    server.load("policies: [{id: x, match: {operations: [\"" + operation + "\"]}, limit: 1000/60s}]");
    return !gate(server, headers).header("RateLimit").empty();
  };
  EXPECT_TRUE(same({{"X-Original-URI", "/a/b?c=1"}, {"X-Original-Method", "POST"}}, "POST /a/b"));
  EXPECT_TRUE(same({{"X-Forwarded-Uri", "/a"}, {"X-Forwarded-Method", "PUT"}}, "PUT /a"));
  EXPECT_TRUE(same({{"X-Original-URI", "/a"}}, "GET /a"));
  EXPECT_TRUE(same({{"X-Original-URI", "http://host/a#f"}}, "GET /a"));
  EXPECT_TRUE(same({{"X-Original-URI", "/" + std::string(600, 'a')}}, "GET /" + std::string(507, 'a')));
}

TEST(GateApi, NeedsAnOperation) {
  ApiServer server(all_trusted());
  EXPECT_EQ(
      gate(server, {}).body,
      R"({"error":"invalid_check","message":"the operation is needed: give X-Original-URI or X-Forwarded-Uri, or )"
      R"(X-Headgate-Operation"})");
}

TEST(GateApi, TakesTheOperationFromTheCallerWhereNoHeaderNamesAnAddress) {
  ApiServer server;
  server.load("policies: [{id: one, match: {operations: [op]}, key: [], limit: 1/60s}]");
  EXPECT_EQ(gate(server, {{"X-Headgate-Operation", "op"}}).status, 204);
  EXPECT_EQ(gate(server, {{"X-Headgate-Operation", "op"}}).status, 429);
  const ApiServer::Headers both{{"X-Headgate-Operation", "other"}, {"X-Original-URI", "/op"}};
  EXPECT_EQ(gate(server, both).status, 204) << "GET /op";
}

TEST(GateApi, RefusesABelievedHeaderThatIsGivenTwice) {
  ApiServer server(all_trusted());
  for (const char* name : {"X-Headgate-Agent", "X-Headgate-Operation", "X-Headgate-Session", "X-Headgate-User",
                           "X-Headgate-Context", "X-Headgate-Cost", "X-Real-Ip"}) {
    const Answer answer = gate(server, {{"X-Headgate-Operation", "op"}, {name, "1"}, {name, "1"}});
    EXPECT_EQ(answer.status, 400) << name;
    EXPECT_NE(answer.body.find(std::string(name) + " must be given once"), std::string::npos) << answer.body;
  }
  for (const char* name : {"X-Original-Uri", "X-Forwarded-Uri", "X-Original-Url"}) {
    for (const auto& [first, second] : {std::pair("/a", "/b"), {"", "/a"}, {"/a", ""}}) {
      EXPECT_EQ(gate(server, {{name, first}, {name, second}}).status, 400) << name;
    }
  }
  for (const char* name : {"X-Original-Method", "X-Forwarded-Method"}) {
    EXPECT_EQ(gate(server, {{"X-Original-URI", "/a"}, {name, "GET"}, {name, "PUT"}}).status, 400) << name;
  }
}

TEST(GateApi, AnAddressThatIsGivenTwiceHidesNoOperationOfTheCaller) {
  ApiServer server;
  const Answer answer = gate(server, {{"X-Original-URI", ""}, {"X-Original-URI", "/a"}, {"X-Headgate-Operation", "b"}});
  EXPECT_EQ(answer.body, R"({"error":"invalid_check","message":"X-Original-Uri must be given once, came 2 times: )"
                         R"(let the proxy clear what its client sends"})");
}

TEST(GateApi, OverlooksAHeaderThatIsGivenTwiceAndNotBelieved) {
  ApiServer server;
  const ApiServer::Headers headers{
      {"X-Original-URI", "/a"}, {"X-Headgate-User", "a"}, {"X-Headgate-User", "b"}, {"X-Forwarded-For", "1.1.1.1"}};
  EXPECT_EQ(gate(server, headers).status, 204);
}

TEST(GateApi, TakesTheLastLineOfForwardedAddresses) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: by-ip, key: [ip], limit: 1/60s}]");
  const auto status = [&](const char* of_client, const char* of_proxy) {
    return gate(server, {{"X-Headgate-Operation", "op"}, {"X-Forwarded-For", of_client}, {"X-Forwarded-For", of_proxy}})
        .status;
  };
  EXPECT_EQ(status("1.1.1.1", "10.0.0.1"), 204);
  EXPECT_EQ(status("2.2.2.2", "10.0.0.1"), 429) << "the proxy has added a line of its own";
  EXPECT_EQ(status("1.1.1.1", "10.0.0.2"), 204);
}

TEST(GateApi, APathSpeltDifferentlyIsTheSameOperation) {
  ApiServer server;
  server.load("policies: [{id: one, match: {operations: [\"GET /tools/search\"]}, key: [], limit: 1/60s}]");
  EXPECT_EQ(gate(server, {{"X-Original-URI", "/tools/search"}}).status, 204);
  for (const char* path : {"/tools/%73earch", "//tools/search", "/tools/./search", "/x/../tools/search",
                           "/../tools/search", "/%74ools//search?x=1", "http://host/tools/a/../search#y"}) {
    EXPECT_EQ(gate(server, {{"X-Original-URI", path}}).status, 429) << path;
  }
  for (const char* other : {"/tools/search/", "/tools%2Fsearch", "/tools/search%2", "/tools/search/..", "/", "/%"}) {
    EXPECT_EQ(gate(server, {{"X-Original-URI", other}}).status, 204) << other;
  }
}

TEST(GateApi, BelievesForwardedAddressesOnlyFromThisMachine) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: by-ip, key: [ip], limit: 1/60s}]");
  const auto status = [&](const std::string& forwarded) {
    return gate(server, {{"X-Headgate-Operation", "op"}, {"X-Forwarded-For", forwarded}}).status;
  };
  EXPECT_EQ(status("1.1.1.1, 10.0.0.1"), 204);
  EXPECT_EQ(status("2.2.2.2, 10.0.0.1"), 429);  // only the last hop was written by the proxy itself
  EXPECT_EQ(status("10.0.0.2"), 204);
  server.peer.ip = "192.0.2.1";
  server.peer.loopback = false;
  EXPECT_EQ(status("10.0.0.3"), 204);
  EXPECT_EQ(status("10.0.0.4"), 429);
}

TEST(GateApi, AnAgentsTokenSpeaksForThatAgentOnly) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: three, match: {agents: [A]}, limit: 3/60s}]");
  const std::string bearer = "Bearer " + server.token(state::Role::kAgent, "A");
  const auto asked_by = [&](ApiServer::Headers headers) {
    headers.emplace_back("Authorization", bearer);
    headers.emplace_back("X-Headgate-Operation", "op");
    return gate(server, headers);
  };
  EXPECT_EQ(asked_by({}).header("RateLimit"), "\"three\";r=2;t=60") << "it need not say so";
  EXPECT_EQ(asked_by({{"X-Headgate-Agent", "A"}}).header("RateLimit"), "\"three\";r=1;t=60");
  const Answer answer = asked_by({{"X-Headgate-Agent", "B"}});
  EXPECT_EQ(answer.status, 403);
  EXPECT_EQ(answer.json()["error"], "wrong_agent");
}

TEST(GateApi, ReadsCosts) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: words, unit: tokens, limit: 100/60s}]");
  const auto with_cost = [&](const std::string& cost) {
    return gate(server, {{"X-Headgate-Operation", "op"}, {"X-Headgate-Cost", cost}});
  };
  EXPECT_EQ(with_cost("tokens=30, requests=1").header("X-RateLimit-Remaining"), "70");
  for (const char* bad : {"x", "1,2", "tokens=", "=1", "nan", "1e999", "-1"}) {
    EXPECT_EQ(with_cost(bad).status, 400) << bad;
  }
  EXPECT_EQ(with_cost("x").body,
            R"({"error":"invalid_check","message":"X-Headgate-Cost must be a number, or up to 8 of UNIT=NUMBER with )"
            R"(commas between them, each unit once and one of them requests, got \"x\""})");
}

TEST(GateApi, PrefersTheAddressThatTheProxyHasSet) {
  ApiServer server;
  server.load("policies: [{id: by-ip, key: [ip], limit: 1/60s}]");
  const auto status = [&](const std::string& real, const std::string& forwarded) {
    return gate(server, {{"X-Original-URI", "/"}, {"X-Real-IP", real}, {"X-Forwarded-For", forwarded}}).status;
  };
  EXPECT_EQ(status("10.0.0.1", "10.0.0.9"), 204);
  EXPECT_EQ(status("10.0.0.1", "10.0.0.8"), 429);
  EXPECT_EQ(status("", "10.0.0.7"), 204) << "the proxy's own, since X-Forwarded-For is not trusted";
  EXPECT_EQ(status("", "10.0.0.6"), 429);
}

TEST(GateApi, PostAndHeadAskTheSame) {
  ApiServer server(all_trusted());
  server.load("policies: [{id: two, limit: 2/60s}]");
  const ApiServer::Headers headers{{"X-Headgate-Operation", "op"}};
  EXPECT_EQ(server.call(Method::kPost, "/v1/gate", {}, headers).status, 204);
  EXPECT_EQ(server.call(Method::kHead, "/v1/gate", {}, headers).status, 204);
  EXPECT_EQ(server.call(Method::kGet, "/v1/gate", {}, headers).status, 429);
}

}  // namespace
}  // namespace headgate
