// Against real servers on the loopback interface. Waiting is for conditions, with generous deadlines.
#include "store/redis/client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <future>
#include <thread>

#include "support/redis_calls.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using redis::Client;
using redis::Options;
using redis::State;
using testing::HasSubstr;
using testing::StartsWith;

std::string sha1_of(std::string_view text) {
  unsigned char digest[SHA_DIGEST_LENGTH];
  SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

TEST(RedisClient, CarriesCommandsAndReplies) {
  RedisServer server;
  const auto client = client_for(options_for(server.url()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(client->state(), State::kUp);
  EXPECT_EQ(client->why(), "");
  EXPECT_EQ(ask(*client, {"SET", "a", std::string_view("x\r\n\0y", 5)}).text, "OK");
  EXPECT_EQ(ask(*client, {"GET", "a"}).text, std::string("x\r\n\0y", 5));
  EXPECT_EQ(ask(*client, {"GET", "b"}).text, "(nil)");
  EXPECT_EQ(ask(*client, {"MGET", "a", "b"}).ok, true);
  EXPECT_EQ(ask(*client, {"INCRBY", "n", "41"}).text, "41");
  EXPECT_THAT(server.ask({"CLIENT", "LIST"}), HasSubstr("name=headgate"));
}

TEST(RedisClient, AnswersAnErrorReplyWithTheServersOwnWords) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  ask(*client, {"SET", "a", "1"});
  for (int i = 0; i < 3; ++i) {
    const RedisAnswer answer = ask(*client, {"LPUSH", "a", "1"});
    EXPECT_FALSE(answer.ok);
    EXPECT_FALSE(answer.transient);
    EXPECT_THAT(answer.text, StartsWith("WRONGTYPE "));
  }
  EXPECT_EQ(witness.told("WRONGTYPE"), 1);
  EXPECT_EQ(client->state(), State::kUp);
}

TEST(RedisClient, UsesTheDatabaseOfItsUrl) {
  RedisServer server;
  const auto client = client_for(options_for(server.url() + "/5"));
  ASSERT_TRUE(client->wait_until_up(10s));
  EXPECT_EQ(ask(*client, {"SET", "a", "1"}).text, "OK");
  EXPECT_EQ(server.ask({"GET", "a"}), "(nil)");
  EXPECT_EQ(server.ask({"SELECT", "5"}), "OK");
  EXPECT_EQ(server.ask({"GET", "a"}), "1");
}

TEST(RedisClient, TellsOfADatabaseThatDoesNotExist) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for(server.url() + "/16"), &witness);
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  EXPECT_THAT(client->why(), HasSubstr("ERR DB index is out of range"));
  EXPECT_FALSE(ask(*client, {"PING"}).ok);
}

TEST(RedisClient, SpeaksOverAUnixSocket) {
  RedisServer server({"--unixsocket", "redis.sock"});
  const auto client = client_for(options_for("unix://" + (server.directory() / "redis.sock").string()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
}

TEST(RedisClient, LooksUpNamesWithoutWaitingForThem) {
  RedisServer server;
  const auto client = client_for(options_for("redis://localhost:" + std::to_string(server.port())));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
  const auto lost = client_for(options_for("redis://no-such-host.invalid"));
  ASSERT_TRUE(eventually([&] { return lost->state() == State::kDown; }, 30s));
  EXPECT_THAT(lost->why(), HasSubstr("cannot look up no-such-host.invalid"));
}

TEST(RedisClient, SignsInWithAPassword) {
  RedisServer server({"--requirepass", "p@ss word"});
  const auto client = client_for(options_for("redis://:p%40ss%20word@" + server.address()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
}

TEST(RedisClient, TellsOfAWrongPasswordOnceAndNeverSaysIt) {
  RedisServer server({"--requirepass", "right"});
  for (const std::string& auth : {std::string(":hunter2@"), std::string("nobody:hunter2@")}) {
    Witness witness;
    const auto client = client_for(options_for("redis://" + auth + server.address()), &witness);
    ASSERT_TRUE(eventually([&] { return server.ask({"AUTH", "right"}) == "OK" && !witness.problems().empty(); }));
    // Several attempts, one telling.
    ASSERT_TRUE(eventually([&] {
      const std::string info = server.ask({"INFO", "stats"});
      const auto at = info.find("total_connections_received:");
      return at != std::string::npos && std::stoi(info.substr(at + 27)) >= 4;
    }));
    EXPECT_THAT(witness.problems(), testing::ElementsAre(HasSubstr("WRONGPASS")));
    EXPECT_THAT(witness.downs(), testing::ElementsAre(HasSubstr("WRONGPASS")));
    EXPECT_THAT(client->why(), testing::Not(HasSubstr("hunter2")));
    EXPECT_FALSE(ask(*client, {"PING"}).ok);
    server.ask({"CONFIG", "RESETSTAT"});
  }
}

TEST(RedisClient, TellsThatAPasswordIsNeeded) {
  RedisServer server({"--requirepass", "right"});
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(eventually([&] { return witness.told("NOAUTH") == 1; }));
  EXPECT_NE(client->state(), State::kUp);
}

TEST(RedisClient, SignsInAsAnAclUser) {
  RedisServer server({"--user", "gate", "on", ">pw", "~hg:*", "+get", "+set", "+ping", "+time", "--user", "default",
                      "on", "nopass", "~*", "+@all"});
  Witness witness;
  const auto client = client_for(options_for("redis://gate:pw@" + server.address()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"SET", "hg:a", "1"}).text, "OK");
  const RedisAnswer denied = ask(*client, {"SET", "other", "1"});
  EXPECT_THAT(denied.text, StartsWith("NOPERM "));
  EXPECT_FALSE(denied.transient);
  EXPECT_FALSE(ask(*client, {"FLUSHALL"}).ok);
  EXPECT_EQ(witness.told("NOPERM"), 1);
}

TEST(RedisClient, LoadsAScriptWhereItIsNotKnown) {
  RedisServer server;
  const redis::Script script{"return {KEYS[1], 7}", sha1_of("return {KEYS[1], 7}")};
  const auto client = client_for(options_for(server.url()));
  ASSERT_TRUE(client->wait_until_up(10s));
  const auto run = [&] {
    redis::Command command = command_of({"EVALSHA", script.sha1, "1", "k"});
    command.script = &script;
    return begin(*client, std::move(command));
  };
  EXPECT_EQ(run().get().text, "k 7");
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(server.ask({"SCRIPT", "FLUSH"}), "OK");
    std::vector<std::future<RedisAnswer>> answers;
    for (int i = 0; i < 100; ++i) answers.push_back(run());
    for (std::future<RedisAnswer>& answer : answers) EXPECT_EQ(answer.get().text, "k 7");
  }
  EXPECT_EQ(server.ask({"SCRIPT", "EXISTS", script.sha1}), "1");
}

TEST(RedisClient, LoadsAScriptOnceForManyCallsAndNotTwiceForOne) {
  RedisServer server;
  const redis::Script script{"return 1", sha1_of("return 1")};
  const redis::Script liar{"return 1", std::string(40, '0')};
  const auto client = client_for(options_for(server.url()));
  ASSERT_TRUE(client->wait_until_up(10s));
  server.stop();  // so that all of them are under way before the first is answered
  std::vector<std::future<RedisAnswer>> answers;
  for (int i = 0; i < 200; ++i) {
    redis::Command command = command_of({"EVALSHA", script.sha1, "0"});
    command.script = &script;
    answers.push_back(begin(*client, std::move(command)));
  }
  server.cont();
  for (std::future<RedisAnswer>& answer : answers) EXPECT_EQ(answer.get().text, "1");
  const std::string stats = server.ask({"INFO", "commandstats"});
  const auto at = stats.find("cmdstat_script|load:calls=");
  ASSERT_NE(at, std::string::npos) << stats;
  EXPECT_LE(std::stoi(stats.substr(at + 26)), 2);

  redis::Command command = command_of({"EVALSHA", liar.sha1, "0"});
  command.script = &liar;
  EXPECT_THAT(carry(*client, std::move(command)).text, StartsWith("NOSCRIPT "));
}

TEST(RedisClient, ComparesTheClocks) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(eventually([&] { return witness.clocks() > 0; }));
  EXPECT_LT(std::chrono::abs(client->clock_offset_approx()), 2s);
}

TEST(RedisClient, DoesNotSendWhatWasAskedTooLongAgo) {
  RedisServer server;
  const auto client = client_for(options_for(server.url()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  redis::Command command = command_of({"SET", "key", "late"});
  command.asked = redis::steady_now() - client->deadline();
  const RedisAnswer late = carry(*client, std::move(command));
  EXPECT_FALSE(late.ok);
  EXPECT_EQ(late.text, "redis: no time was left to ask it");
  EXPECT_TRUE(late.transient);
  EXPECT_EQ(ask(*client, {"GET", "key"}).text, "(nil)");
}

TEST(RedisClient, RefusesMoreCallsThanItMayHold) {
  RedisServer server;
  Options options = options_for(server.url());
  options.max_outstanding = 10;
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s));
  server.stop();
  std::vector<std::future<RedisAnswer>> answers;
  for (int i = 0; i < 11; ++i) answers.push_back(begin(*client, command_of({"PING"})));
  EXPECT_EQ(answers.back().get().text, "redis: 10 calls wait already");
  server.cont();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(answers[static_cast<std::size_t>(i)].get().text, "PONG");
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
}

TEST(RedisClient, AnswersWhatIsOutstandingWhenItGoes) {
  RedisServer server;
  auto client = client_for(options_for(server.url()));
  ASSERT_TRUE(client->wait_until_up(10s));
  server.stop();
  std::future<RedisAnswer> answer = begin(*client, command_of({"PING"}));
  client.reset();
  EXPECT_FALSE(answer.get().ok);
  server.cont();
}

TEST(RedisClient, RefusesOptionsThatCannotWork) {
  const auto refused = [](auto change) {
    Options options = options_for("rediss://h");
    change(options);
    const auto made = Client::make(options, nullptr);
    return made ? std::string("made") : made.error().message;
  };
  EXPECT_EQ(refused([](Options& options) { options.deadline = 0ms; }), "redis: deadline must be between 1ms and 1m");
  EXPECT_EQ(refused([](Options& options) { options.connections = 0; }), "redis: connections must be between 1 and 64");
  EXPECT_EQ(refused([](Options& options) { options.url.endpoints.clear(); }), "redis: the url names no server");
  EXPECT_THAT(refused([](Options& options) { options.tls.ca_file = "/no/such/file"; }),
              HasSubstr("ca_file /no/such/file: "));
  EXPECT_THAT(refused([](Options& options) { options.tls.cert_file = "/no/such/file"; }),
              HasSubstr("must be given together"));
}

TEST(RedisClientThreads, ShareAPipelineAndGetEachItsOwnAnswer) {
  RedisServer server;
  Options options = options_for(server.url());
  options.deadline = 20s;
  for (const unsigned connections : {1U, 3U}) {
    options.connections = connections;
    const auto client = client_for(options);
    ASSERT_TRUE(client->wait_until_up(10s));
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::pair<std::string, std::future<RedisAnswer>>> calls;
        for (int i = 0; i < 1000; ++i) {
          std::string text = std::to_string(t) + ":" + std::to_string(i);
          std::future<RedisAnswer> answer = begin(*client, command_of({"ECHO", text}));
          calls.emplace_back(std::move(text), std::move(answer));
        }
        for (auto& [text, answer] : calls) right += answer.get().text == text ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, 4000);
  }
}

TEST(RedisClientThreads, ACallWakesTheClient) {
  RedisServer server;
  Options options = options_for(server.url());
  options.deadline = 500ms;  // left to itself, it wakes once a second
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
}

TEST(RedisClientThreads, MayCallFromAnAnswer) {
  RedisServer server;
  const auto client = client_for(options_for(server.url()));
  ASSERT_TRUE(client->wait_until_up(10s));
  std::promise<RedisAnswer> last;
  client->call(command_of({"INCR", "n"}), [&](const Result<redis::Reply>& /*first*/) {
    client->call(command_of({"INCR", "n"}),
                 [&](const Result<redis::Reply>& second) { last.set_value(answer_of(second)); });
  });
  EXPECT_EQ(last.get_future().get().text, "2");
}

}  // namespace
}  // namespace headgate::test
