#include "api/ws/websocket_api.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/service.h"
#include "support/websocket_frames.h"

namespace headgate::api {
namespace {

using namespace std::chrono_literals;
using Message = nlohmann::json;

constexpr std::string_view kPolicies = R"(
policies:
  - {id: five, match: {operations: [WRITE]}, limit: 5/60s, warn_at: 0.8}
  - {id: line, match: {operations: [QUEUED]}, limit: 1/10s, behavior: queue, max_wait: 60s}
  - {id: spend, match: {operations: [SPEND]}, unit: tokens, key: [agent], limit: 100/60s}
  - {id: told, match: {operations: [RISKY]}, limit: 1/60s, escalation: {to: BOSS, threshold: 1, time_window: 300s}}
)";

net::Peer peer_at(std::string ip, bool loopback = false) {
  net::Peer peer;
  peer.ip = std::move(ip);
  peer.loopback = loopback;
  return peer;
}

// One connection.
struct Connection {
  Connection(const service::Service& service, const std::shared_ptr<AgentRegistry>& registry, const Clock& of,
             const net::Peer& peer = peer_at("192.0.2.1"), const service::Caller& caller = {})
      : clock(of), session(net::make_websocket_session(make_websocket_handler(service, registry, caller, peer))) {
    session->link = link;
  }
  std::vector<Message> received() {
    std::vector<Message> all;
    for (const test::ServerFrame& each : test::frames_of(session->out)) all.push_back(Message::parse(each.payload));
    session->out.clear();
    return all;
  }
  std::vector<Message> ask(const std::string& message) {
    session->receive(test::frame(message), clock.now());
    return received();
  }
  // The only answer.
  Message answer(const std::string& message) {
    const std::vector<Message> all = ask(message);
    EXPECT_EQ(all.size(), 1U) << message;
    return all.empty() ? Message() : all.back();
  }

  const Clock& clock;
  std::shared_ptr<test::TestLink> link = std::make_shared<test::TestLink>();
  std::unique_ptr<net::Session> session;
};

struct WebSocketApi : ::testing::Test {
  test::TestService test{kPolicies};
  std::shared_ptr<AgentRegistry> registry = std::make_shared<AgentRegistry>();
  Connection connect() { return Connection(test.service, registry, test.clock); }
  Connection connect_as(const std::string& agent) {
    Connection connection = connect();
    const Message answer = connection.answer(R"({"type":"identify","agent":")" + agent + R"("})");
    EXPECT_EQ(answer, (Message{{"type", "identified"}, {"agent", agent}}));
    return connection;
  }
};

TEST_F(WebSocketApi, AsksWhoIsThereFirst) {
  Connection a = connect();
  EXPECT_EQ(a.answer(R"({"type":"WRITE","id":1})"),
            (Message{{"type", "error"},
                     {"id", 1},
                     {"error", "not_identified"},
                     {"message", R"(the first message must be {"type": "identify", "agent": ..., "token": ...})"}}));
  EXPECT_EQ(a.answer(R"({"type":"identify","id":"x","agent":"A"})"),
            (Message{{"type", "identified"}, {"id", "x"}, {"agent", "A"}}));
  EXPECT_EQ(a.answer(R"({"type":"identify","agent":"B"})")["error"], "already_identified");
  EXPECT_EQ(a.answer(R"({"type":"WRITE","id":2})")["type"], "decision");
}

TEST_F(WebSocketApi, AnswersWithEveryFieldOfTheDecision) {
  Connection a = connect_as("A");
  const Message answer =
      a.answer(R"({"type":"WRITE","id":7,"session":"s","context":{"type":"UI","kind":"Button"},"cost":2})");
  EXPECT_EQ(answer["type"], "decision");
  EXPECT_EQ(answer["id"], 7);
  EXPECT_EQ(answer["allowed"], true);
  EXPECT_EQ(answer["limit"], 5);
  EXPECT_EQ(answer["remaining"], 3);
  EXPECT_EQ(answer["policy_ids"], Message::array({"five"}));
  for (const char* field :
       {"action", "reason", "reset_time", "retry_after_ms", "delay_ms", "throttle_factor", "warnings", "lease"}) {
    EXPECT_TRUE(answer.contains(field)) << field;
  }
  EXPECT_EQ(a.answer(R"({"type":"check","operation":"WRITE","id":"eight","peek":true})")["remaining"], 2);
}

TEST_F(WebSocketApi, WarnsBeforeTheDecisionAndDeniesInItsPlace) {
  Connection a = connect_as("A");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.answer(R"({"type":"WRITE","id":1})")["type"], "decision");
  const std::vector<Message> warned = a.ask(R"({"type":"WRITE","id":4})");
  ASSERT_EQ(warned.size(), 2U);
  EXPECT_EQ(warned[0]["type"], "rate_limit_warning");
  EXPECT_EQ(warned[0]["policy_id"], "five");
  EXPECT_EQ(warned[0]["remaining"], 1);
  EXPECT_EQ(warned[0]["capacity"], 5);
  EXPECT_TRUE(warned[0].contains("tier"));
  EXPECT_EQ(warned[1]["type"], "decision");
  a.ask(R"({"type":"WRITE","id":5})");
  const Message denied = a.answer(R"({"type":"WRITE","id":6})");
  EXPECT_EQ(denied["type"], "rate_limited");
  EXPECT_EQ(denied["id"], 6);
  EXPECT_EQ(denied["policy_id"], "five");
  EXPECT_GT(denied["retry_after_ms"], 0);
  EXPECT_TRUE(denied.contains("tier"));
  EXPECT_EQ(denied["reason"], "Sliding window limit 5/60s exceeded");
  EXPECT_EQ(denied["allowed"], false);
}

TEST_F(WebSocketApi, SpeaksForItsAgentOnly) {
  Connection a = connect_as("A");
  EXPECT_EQ(a.answer(R"({"type":"WRITE","id":1,"agent":"B"})")["error"], "wrong_agent");
  EXPECT_EQ(a.answer(R"({"type":"WRITE","id":1,"agent":"A"})")["remaining"], 4);
  Connection b = connect_as("B");
  EXPECT_EQ(b.answer(R"({"type":"WRITE"})")["remaining"], 4) << "has a limit of its own";
  EXPECT_EQ(b.answer(R"({"type":"WRITE","ip":"198.51.100.7"})")["error"], "forbidden");
}

TEST_F(WebSocketApi, NamesWhatIsWrongWithAMessage) {
  Connection a = connect_as("A");
  const auto message_of = [&](const std::string& text) {
    const Message answer = a.answer(text);
    EXPECT_EQ(answer["type"], "error");
    return answer["message"].get<std::string>();
  };
  EXPECT_EQ(message_of("nonsense").substr(0, 29), "a message must be valid JSON:");
  EXPECT_EQ(message_of("[1]"), "a message must be a JSON object, got a list");
  EXPECT_EQ(message_of("{}"), R"(type is required: "identify", or what the agent wants to do)");
  EXPECT_EQ(message_of(R"({"type":"WRITE","sesion":"s"})"),
            R"(there is no field "sesion" in a message, did you mean "session"?)");
  EXPECT_EQ(message_of(R"({"type":"WRITE","operation":"READ"})"),
            R"(there is no field "operation" in a message of type "WRITE")");
  EXPECT_EQ(message_of(R"({"type":"WRITE","token":"t"})"), R"(there is no field "token" in a message of type "WRITE")");
  EXPECT_EQ(message_of(R"({"type":"WRITE","id":1.5})"),
            "id must be a whole number within 2^53 of 0, or text of at most 128 bytes, got 1.5");
  EXPECT_EQ(message_of(R"({"type":"WRITE","type":"READ"})"), "type must be given once, is given twice");
  EXPECT_EQ(message_of(R"({"type":"check"})"), "operation is required: what does the agent want to do?");
  EXPECT_EQ(message_of(R"({"type":"settle","id":3})"), "lease is required: whose hold is it?");
  EXPECT_EQ(a.answer(R"({"id":9,"type":"WRITE","cost":"much"})")["id"], 9) << "as far as it was read";
}

TEST_F(WebSocketApi, AMessageWithABadIdIsNotToldByThatOfAnEarlierOne) {
  Connection a = connect_as("A");
  EXPECT_EQ(a.answer(R"({"type":"WRITE","id":7})")["id"], 7);
  for (const char* bad : {"1.5", "null", "[8]", "{}", "true", "18014398509481984"}) {
    const Message answer = a.answer(std::string(R"({"type":"WRITE","id":)") + bad + "}");
    EXPECT_EQ(answer["error"], "invalid_message") << bad;
    EXPECT_FALSE(answer.contains("id")) << bad;
  }
}

TEST_F(WebSocketApi, AnswersChecksThatWaitWhenThereIsRoom) {
  Connection a = connect_as("A");
  EXPECT_EQ(a.ask(R"({"type":"QUEUED","id":1})").back()["type"], "decision");
  EXPECT_TRUE(a.ask(R"({"type":"QUEUED","id":2})").empty());
  EXPECT_TRUE(a.session->busy());
  EXPECT_EQ(test.wakes, 1);
  EXPECT_EQ(a.answer(R"({"type":"WRITE","id":3})")["id"], 3) << "others go ahead";
  test.clock.advance(10s);
  test.engine->poll();
  EXPECT_EQ(a.link->run(*a.session), 1U);
  const std::vector<Message> late = a.received();
  ASSERT_EQ(late.size(), 2U);
  EXPECT_EQ(late[0]["type"], "rate_limit_warning") << "with one of one used";
  EXPECT_EQ(late[1]["type"], "decision");
  EXPECT_EQ(late[1]["id"], 2);
  EXPECT_EQ(late[1]["waited_ms"], 10'000);
  EXPECT_FALSE(a.session->busy());
}

TEST_F(WebSocketApi, CancelsTheWaitsOfAConnectionThatIsGone) {
  Connection a = connect_as("A");
  a.ask(R"({"type":"QUEUED","id":1})");
  a.ask(R"({"type":"QUEUED","id":2})");
  EXPECT_EQ(test.engine->queue().size(), 1U);
  a.session->finish();
  EXPECT_EQ(test.engine->queue().size(), 0U);
  EXPECT_EQ(registry->size(), 0U);
  a.link->run(*a.session);
}

TEST_F(WebSocketApi, LetsAHundredChecksOfAConnectionWaitAndNoMore) {
  Connection a = connect_as("A");
  a.ask(R"({"type":"QUEUED","id":0})");
  for (int i = 1; i <= 100; ++i) EXPECT_TRUE(a.ask(R"({"type":"QUEUED","id":1})").empty()) << i;
  EXPECT_EQ(test.engine->queue().size(), 100U);
  EXPECT_EQ(a.answer(R"({"type":"QUEUED","id":101})")["type"], "rate_limited");
  EXPECT_EQ(test.engine->queue().size(), 100U);
}

TEST_F(WebSocketApi, SettlesReleasesAndRenewsLeases) {
  Connection a = connect_as("A");
  const Message held = a.answer(R"({"type":"SPEND","id":1,"cost":{"tokens":50},"hold":true})");
  ASSERT_TRUE(held["lease"].is_string());
  const std::string lease = held["lease"];
  const Message renewed = a.answer(R"({"type":"renew","id":2,"lease":")" + lease + R"("})");
  EXPECT_EQ(renewed["type"], "renewed");
  EXPECT_GT(renewed["expires_at"], 0);
  Connection b = connect_as("B");
  EXPECT_EQ(b.answer(R"({"type":"release","id":3,"lease":")" + lease + R"("})")["type"], "error") << "it is A's";
  const Message settled = a.answer(R"({"type":"settle","id":4,"lease":")" + lease + R"(","cost":{"tokens":20}})");
  EXPECT_EQ(settled["type"], "settled");
  EXPECT_EQ(settled["id"], 4);
  EXPECT_EQ(settled["lease"], lease);
  EXPECT_EQ(settled["costs"]["tokens"], 20);
  EXPECT_EQ(a.answer(R"({"type":"SPEND","cost":{"tokens":1},"peek":true})")["remaining"], 79);
  EXPECT_EQ(a.answer(R"({"type":"release","id":5,"lease":"nobody's"})")["error"], "not_found");
}

TEST_F(WebSocketApi, TellsTheAgentThatAnEscalationIsAddressedTo) {
  test.notices.add(registry);
  Connection boss = connect_as("BOSS");
  Connection other = connect_as("OTHER");
  Connection a = connect_as("A");
  a.ask(R"({"type":"RISKY"})");
  a.ask(R"({"type":"RISKY"})");
  test.notices.flush();
  EXPECT_EQ(boss.link->run(*boss.session), 1U);
  const std::vector<Message> told = boss.received();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0]["type"], "escalation");
  EXPECT_EQ(told[0]["policy_id"], "told");
  EXPECT_EQ(told[0]["agent"], "A");
  EXPECT_EQ(told[0]["operation"], "RISKY");
  EXPECT_FALSE(told[0]["message"].get<std::string>().empty());
  EXPECT_GT(told[0]["time"], 0);
  EXPECT_EQ(other.link->run(*other.session), 0U);
  EXPECT_EQ(a.link->run(*a.session), 1U) << "it is about A";
}

TEST_F(WebSocketApi, LimitsWhoHasNotSaidWhoItIsByAddress) {
  test::TestService tiers;
  Connection a(tiers.service, registry, tiers.clock);
  int answered = 0;
  for (int i = 0; i < 100; ++i)
    answered += a.answer(R"({"type":"identify","agent":""})")["error"] == "invalid_message" ? 1 : 0;
  EXPECT_EQ(answered, 60) << "what an address may do in a minute";
  EXPECT_EQ(a.answer(R"({"type":"identify","agent":"A"})")["type"], "rate_limited");
  Connection b(tiers.service, registry, tiers.clock, peer_at("192.0.2.2"));
  EXPECT_EQ(b.answer(R"({"type":"identify","agent":"A"})")["type"], "identified");
}

TEST_F(WebSocketApi, NeedsAGoodTokenWhereOneIsRequired) {
  test::TestService guarded(kPolicies, service::Auth::kRequired);
  const auto connect_there = [&](const service::Caller& caller = {}) {
    return Connection(guarded.service, registry, guarded.clock, peer_at("192.0.2.1"), caller);
  };
  Connection a = connect_there();
  EXPECT_EQ(a.answer(R"({"type":"identify","agent":"A"})")["error"], "unauthorized");
  EXPECT_EQ(a.answer(R"({"type":"identify","agent":"A","token":"hg_bad"})")["error"], "unauthorized");
  EXPECT_EQ(a.answer(R"({"type":"WRITE"})")["error"], "not_identified");
  const std::string bound = guarded.token(state::Role::kAgent, "A");
  EXPECT_EQ(a.answer(R"({"type":"identify","agent":"B","token":")" + bound + R"("})")["error"], "wrong_agent");
  EXPECT_EQ(a.answer(R"({"type":"identify","token":")" + bound + R"("})")["agent"], "A") << "the token says who it is";
  Connection viewer = connect_there();
  const std::string looks = guarded.token(state::Role::kViewer);
  EXPECT_EQ(viewer.answer(R"({"type":"identify","agent":"A","token":")" + looks + R"("})")["error"], "forbidden");
  service::Caller known;
  known.known = true;
  known.agent = "C";
  Connection c = connect_there(known);
  EXPECT_EQ(c.answer(R"({"type":"identify","agent":"C"})")["type"], "identified") << "by the token of its request";
}

}  // namespace
}  // namespace headgate::api
