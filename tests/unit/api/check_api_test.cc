// POST /v1/check, batches, leases.
#include "support/api_server.h"

namespace headgate {
namespace {

using net::Method;
using test::Answer;
using test::ApiServer;
using test::Json;

constexpr const char* kFifty = R"(policies:
  - id: fifty
    match: {operations: [op]}
    limit: 50/60s
)";
constexpr const char* kTwo = R"(policies:
  - id: two
    match: {operations: [op]}
    limit: 2/60s
)";

TEST(CheckApi, AnswersADecisionWithHeaders) {
  ApiServer server;
  server.load(kFifty);
  const Answer answer = server.check(R"({"agent":"A","operation":"op"})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.content_type, "application/json");
  EXPECT_EQ(answer.body,
            R"({"allowed":true,"action":"allow","reason":"All rate limit policies passed","policy_ids":["fifty"],)"
            R"("limit":50,"remaining":49,"reset_time":1700000060000,"retry_after_ms":0,"delay_ms":0,)"
            R"("throttle_factor":1,"warnings":[],"lease":null})");
  EXPECT_EQ(answer.headers,
            "RateLimit-Policy: \"fifty\";q=50;w=60\r\n"
            "RateLimit: \"fifty\";r=49;t=60\r\n"
            "X-RateLimit-Limit: 50\r\n"
            "X-RateLimit-Remaining: 49\r\n"
            "X-RateLimit-Reset: 1700000060\r\n");
}

TEST(CheckApi, DeniesWith200AndRetryAfter) {
  ApiServer server;
  server.load(kTwo);
  (void)server.check(R"({"agent":"A","operation":"op"})");
  server.clock.advance(std::chrono::milliseconds{500});
  (void)server.check(R"({"agent":"A","operation":"op"})");
  const Answer answer = server.check(R"({"agent":"A","operation":"op"})", {{"Accept", "application/problem+json"}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.content_type, "application/json");
  const Json body = answer.json();
  EXPECT_EQ(body["allowed"], false);
  EXPECT_EQ(body["policy_id"], "two");
  EXPECT_EQ(body["retry_after_ms"], 59500);
  EXPECT_EQ(answer.header("Retry-After"), "60");
  EXPECT_EQ(answer.header("RateLimit"), "\"two\";r=0;t=60");
}

TEST(CheckApi, TellsUnitsAndFractionsInHeaders) {
  ApiServer server;
  server.load(R"(policies:
  - {id: words, unit: tokens, limit: {strategy: token_bucket, capacity: 1000, refill_rate: 10}}
  - {id: money, unit: usd, limit: {strategy: quota, limit: 0.5, period: day}}
  - {id: slots, limit: {strategy: concurrency, max: 3, lease_ttl: 30s}}
  - {id: seen, mode: monitor, limit: 5/60s}
)");
  const Answer answer = server.check(R"({"agent":"A","operation":"op","cost":{"requests":1,"tokens":10,"usd":0.1}})");
  EXPECT_EQ(answer.header("RateLimit-Policy"),
            "\"words\";q=1000;w=100;headgate-unit=\"tokens\", "
            "\"money\";q=500000;w=86400;headgate-unit=\"usd\";headgate-scale=1000000, "
            "\"slots\";q=3");
}

TEST(CheckApi, CostThatNeverFitsHasNoRetryAfter) {
  ApiServer server;
  server.load(kTwo);
  const Answer answer = server.check(R"({"agent":"A","operation":"op","cost":3})");
  EXPECT_EQ(answer.json()["error"], "cost_exceeds_limit");
  EXPECT_EQ(answer.json()["retry_after_ms"], -1);
  EXPECT_EQ(answer.header("Retry-After"), "");
}

TEST(CheckApi, RefusesWhatIsNoCheck) {
  ApiServer server;
  const auto message = [&](std::string_view body) {
    const Answer answer = server.check(body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json()["error"], "invalid_check") << body;
    return answer.json()["message"].get<std::string>();
  };
  EXPECT_EQ(message(R"({"operaton":"op"})"), "there is no field \"operaton\" in a check, did you mean \"operation\"?");
  EXPECT_EQ(message(R"({"operation":"op","operation":"op"})"), "operation must be given once, is given twice");
  EXPECT_EQ(message(R"({"operation":1})"), "operation must be text, got 1");
  EXPECT_EQ(message("[]"), "a check must be a JSON object, got a list");
  EXPECT_FALSE(message("").empty());
  EXPECT_FALSE(message(R"({"agent":"A"})").empty());
  EXPECT_FALSE(message("{\"operation\":\"\xff\"}").empty());
  EXPECT_EQ(server.traffic.totals()[0].errors, 7U);
}

TEST(CheckApi, SpeaksProblemJsonOfErrorsWhenAsked) {
  ApiServer server;
  const Answer answer = server.check("{}", {{"Accept", "application/problem+json"}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.content_type, "application/problem+json");
  const Json body = answer.json();
  EXPECT_EQ(body["type"], "about:blank");
  EXPECT_EQ(body["title"], "Bad Request");
  EXPECT_EQ(body["status"], 400);
  EXPECT_EQ(body["error"], "invalid_check");
}

TEST(CheckApi, TakesOnlyJsonIfATypeIsNamed) {
  ApiServer server;
  const std::string body = R"({"operation":"op"})";
  EXPECT_EQ(server.check(body, {{"Content-Type", "application/json; charset=utf-8"}}).status, 200);
  EXPECT_EQ(server.check(body, {{"Content-Type", "Application/JSON"}}).status, 200);
  EXPECT_EQ(server.check(body, {{"Content-Type", "application/x-www-form-urlencoded"}}).status, 200);  // curl -d
  const Answer refused = server.check(body, {{"Content-Type", "text/plain"}});
  EXPECT_EQ(refused.status, 415);
  EXPECT_EQ(refused.body, R"({"error":"unsupported_media_type","message":"Content-Type must be application/json, got )"
                          R"(\"text/plain\""})");
}

TEST(CheckApi, FormOfAnotherSiteIsRefused) {
  ApiServer server;
  const Answer answer = server.check(R"({"operation":"op"})", {{"Content-Type", "application/x-www-form-urlencoded"},
                                                               {"Origin", "https://evil.example"}});
  EXPECT_EQ(answer.status, 403);
  EXPECT_EQ(answer.json()["error"], "bad_origin");
}

TEST(CheckApi, EchoesAnIdOnlyIfItIsSane) {
  ApiServer server;
  const std::string body = R"({"operation":"op"})";
  EXPECT_EQ(server.check(body, {{"X-Request-Id", "a-1"}}).header("X-Request-Id"), "a-1");
  EXPECT_EQ(server.check(body, {{"X-Request-Id", "a b"}}).header("X-Request-Id"), "");
  EXPECT_EQ(server.check(body, {{"X-Request-Id", std::string(129, 'a')}}).header("X-Request-Id"), "");
}

TEST(CheckApi, BoundTokenSpeaksForItsAgentOnly) {
  ApiServer server;
  server.load(kTwo);
  const ApiServer::Headers as_a{{"Authorization", "Bearer " + server.token(state::Role::kAgent, "A")}};
  EXPECT_EQ(server.check(R"({"operation":"op"})", as_a).json()["remaining"], 1);
  EXPECT_EQ(server.check(R"({"operation":"op","agent":"A"})", as_a).json()["remaining"], 0);
  const Answer other = server.check(R"({"operation":"op","agent":"B"})", as_a);
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.json()["error"], "wrong_agent");
}

TEST(CheckApi, RequiredAuthRefusesStrangers) {
  test::ApiServerOptions options;
  options.auth = service::Auth::kRequired;
  ApiServer server(std::move(options));
  const Answer answer = server.check(R"({"operation":"op"})");
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.json()["error"], "unauthorized");
  EXPECT_EQ(answer.header("WWW-Authenticate").substr(0, 6), "Bearer");
}

TEST(CheckApi, NobodyElseForgesAnAddress) {
  ApiServer server;
  server.load("policies: [{id: by-ip, key: [ip], limit: 2/60s}]");
  server.peer.ip = "10.0.0.1";
  server.peer.loopback = false;
  EXPECT_EQ(server.check(R"({"operation":"op"})").json()["remaining"], 1);
  EXPECT_EQ(server.check(R"({"operation":"op","ip":"10.0.0.1"})").json()["remaining"], 0);
  const Answer forged = server.check(R"({"operation":"op","ip":"10.0.0.2"})");
  EXPECT_EQ(forged.status, 403);
  EXPECT_EQ(forged.json()["error"], "forbidden");
  server.peer.ip = "127.0.0.1";
  server.peer.loopback = true;
  EXPECT_EQ(server.check(R"({"operation":"op","ip":"10.0.0.2"})").json()["remaining"], 1);
}

TEST(CheckApi, QueuedCheckIsAnsweredWhenThereIsRoom) {
  ApiServer server;
  server.load("policies: [{id: one, limit: 1/10s, behavior: queue, max_wait: 20s}]");
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op"})").status, 200);
  const Answer waiting = server.check(R"({"agent":"A","operation":"op"})", {{"X-Request-Id", "w1"}});
  EXPECT_TRUE(waiting.waits);
  EXPECT_EQ(server.wakes, 1);
  server.clock.advance(std::chrono::seconds{10});
  (void)server.engine->poll();
  EXPECT_EQ(server.last->status, 200);
  EXPECT_EQ(server.last->json()["allowed"], true);
  EXPECT_EQ(server.last->json()["waited_ms"], 10'000);
  EXPECT_EQ(server.last->header("X-Request-Id"), "w1");
  server.http->tick();
}

TEST(CheckApi, QueuedCheckOfWhoIsGoneIsNotServed) {
  ApiServer server;
  server.load("policies: [{id: one, limit: 1/10s, behavior: queue, max_wait: 20s}]");
  (void)server.check(R"({"agent":"A","operation":"op"})");
  (void)server.check(R"({"agent":"A","operation":"op"})");
  ASSERT_NE(server.later, nullptr);
  server.http->tick();
  EXPECT_EQ(server.engine->queue().size(), 1U);
  server.later->gone = true;
  server.http->tick();
  EXPECT_EQ(server.engine->queue().size(), 0U);
  EXPECT_EQ(server.last->json()["error"], "cancelled");
}

TEST(CheckApi, BatchJudgesInOrderAndPutsErrorsInTheirPlace) {
  ApiServer server;
  server.load(kTwo);
  const Answer answer = server.call(Method::kPost, "/v1/check/batch",
                                    R"({"checks":[{"agent":"A","operation":"op"},{"operaton":"op"},)"
                                    R"({"agent":"A","operation":"op"},{"agent":"A","operation":"op"}]})");
  EXPECT_EQ(answer.status, 200);
  const Json decisions = answer.json()["decisions"];
  ASSERT_EQ(decisions.size(), 4U);
  EXPECT_EQ(decisions[0]["remaining"], 1);
  EXPECT_EQ(decisions[1]["error"], "invalid_check");
  EXPECT_EQ(decisions[2]["remaining"], 0);
  EXPECT_EQ(decisions[3]["allowed"], false);
}

std::string batch_of(int checks) {
  std::string body = R"({"checks":[{"agent":"A","operation":"op"})";
  for (int i = 1; i < checks; ++i) body += R"(,{"agent":"A","operation":"op"})";
  return body + "]}";
}

TEST(CheckApi, LargeBatchIsJudgedApartFromTheIoThreadAndInItsOrder) {
  ApiServer server;
  server.load(kFifty);
  for (const int checks : {65, 1000}) {
    server.clock.advance(std::chrono::hours{1});
    const Answer answer = server.call(Method::kPost, "/v1/check/batch", batch_of(checks), {{"X-Request-Id", "r7"}});
    EXPECT_NE(server.later, nullptr) << "answered on the io thread";
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.header("X-Request-Id"), "r7");
    const Json decisions = answer.json()["decisions"];
    ASSERT_EQ(decisions.size(), static_cast<std::size_t>(checks));
    for (int i = 0; i < checks; ++i) EXPECT_EQ(decisions[i]["allowed"], i < 50) << i;
  }
}

TEST(CheckApi, BatchesOfOneTurnShareTheTimeOfTheIoThread) {
  ApiServer server;
  server.clock.advance(std::chrono::hours{5});  // no other test has a turn at this time
  const auto apart = [&] {
    EXPECT_EQ(server.call(Method::kPost, "/v1/check/batch", batch_of(40)).status, 200);
    return server.later != nullptr;
  };
  EXPECT_FALSE(apart());
  EXPECT_TRUE(apart());
  server.clock.advance(std::chrono::milliseconds{1});
  EXPECT_FALSE(apart());
}

TEST(CheckApi, LargeBatchThatIsNoneIsRefused) {
  ApiServer server;
  EXPECT_EQ(server.call(Method::kPost, "/v1/check/batch", batch_of(1001)).body,
            R"({"error":"invalid_request","message":"checks must be 1 to 1000 checks, got 1001"})");
  EXPECT_EQ(server.call(Method::kPost, "/v1/check/batch", std::string(100'000, '[')).status, 400);
}

TEST(CheckApi, BatchIsBounded) {
  ApiServer server;
  const auto send = [&](const std::string& body) { return server.call(Method::kPost, "/v1/check/batch", body); };
  EXPECT_EQ(send(R"({"checks":[]})").body,
            R"({"error":"invalid_request","message":"checks must be 1 to 1000 checks, got 0"})");
  EXPECT_EQ(send(R"({"checks":{}})").status, 400);
  EXPECT_EQ(send(R"({"check":[]})").body,
            R"({"error":"invalid_request","message":"there is no field \"check\" here, did you mean \"checks\"?"})");
  EXPECT_EQ(send(R"({"checks":[1],"checks":[2]})").body,
            R"({"error":"invalid_request","message":"checks must be given once, is given twice"})");
  std::string many = R"({"checks":[{})";
  for (int i = 0; i < 1000; ++i) many += ",{}";
  EXPECT_EQ(send(many + "]}").status, 400);
}

TEST(CheckApi, LeasesAreSettledRenewedAndReleased) {
  ApiServer server;
  server.load("policies: [{id: words, unit: tokens, limit: 100/60s}]");
  const auto hold = [&] {
    return server.check(R"({"agent":"A","operation":"op","cost":{"tokens":50},"hold":true})")
        .json()["lease"]
        .get<std::string>();
  };
  const std::string lease = hold();
  const Answer renewed = server.call(Method::kPost, "/v1/leases/" + lease + "/renew");
  EXPECT_EQ(renewed.status, 200) << renewed.body;
  EXPECT_EQ(renewed.json()["expires_at"], 1'700'000'060'000);
  const Answer settled = server.call(Method::kPost, "/v1/leases/" + lease + "/settle", R"({"cost":{"tokens":20}})");
  EXPECT_EQ(settled.body, R"({"costs":{"tokens":20},"overrun":0,"again":false})");
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op","cost":{"tokens":1},"peek":true})").json()["remaining"], 79);
  const Answer again = server.call(Method::kPost, "/v1/leases/" + lease + "/settle", R"({"cost":{"tokens":20}})");
  EXPECT_EQ(again.json()["again"], true);
  const Answer released = server.call(Method::kDelete, "/v1/leases/" + hold());
  EXPECT_EQ(released.status, 200);
  EXPECT_EQ(server.check(R"({"agent":"A","operation":"op","cost":{"tokens":1},"peek":true})").json()["remaining"], 79);
  EXPECT_EQ(server.call(Method::kDelete, "/v1/leases/nothing").status, 404);
  EXPECT_EQ(server.call(Method::kPost, "/v1/leases/" + lease + "/settle", "{}").body,
            R"({"error":"invalid_request","message":"cost is needed: a number, or an object by unit"})");
}

TEST(CheckApi, LeaseOfAnotherAgentIsNotForABoundToken) {
  ApiServer server;
  server.load("policies: [{id: words, unit: tokens, limit: 100/60s}]");
  const std::string lease =
      server.check(R"({"agent":"A","operation":"op","cost":{"tokens":50},"hold":true})").json()["lease"];
  const ApiServer::Headers as_b{{"Authorization", "Bearer " + server.token(state::Role::kAgent, "B")}};
  const Answer answer = server.call(Method::kDelete, "/v1/leases/" + lease, {}, as_b);
  EXPECT_EQ(answer.status, 403);
  EXPECT_EQ(answer.json()["error"], "wrong_agent");
}

}  // namespace
}  // namespace headgate
