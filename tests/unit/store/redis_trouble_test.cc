// A Redis that is slow, unreachable or failing, and a server that is not Redis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "store/redis/client.h"
#include "support/fake_redis.h"
#include "support/redis_calls.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using redis::Client;
using redis::Options;
using redis::State;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

// Asks until it works.
bool comes_back(Client& client) {
  return eventually([&] { return ask(client, {"PING"}).text == "PONG"; });
}

TEST(RedisTrouble, ACallThatIsNotAnsweredInTimeIsAnErrorAndItsLateReplyIsDropped) {
  RedisServer server;
  Options options = options_for(server.url());
  options.deadline = 50ms;
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s));
  ASSERT_TRUE(comes_back(*client));
  server.stop();
  std::future<RedisAnswer> late = begin(*client, command_of({"ECHO", "late"}));
  const RedisAnswer answer = late.get();
  EXPECT_FALSE(answer.ok);
  EXPECT_TRUE(answer.transient);
  EXPECT_EQ(answer.text, "redis " + server.address() + " did not answer within 50 ms");
  server.cont();
  ASSERT_TRUE(comes_back(*client));
  EXPECT_TRUE(eventually([&] { return ask(*client, {"ECHO", "next"}).text == "next"; }));
}

TEST(RedisTrouble, WhoeverAsksForItHearsAReplyThatComesTooLate) {
  RedisServer server;
  Options options = options_for(server.url());
  options.deadline = 50ms;
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s));
  ASSERT_TRUE(comes_back(*client));
  server.stop();
  redis::Command command = command_of({"ECHO", "late"});
  command.hear_late = true;
  std::promise<std::string> first;
  std::promise<std::string> second;
  std::atomic<int> heard{0};
  client->call(std::move(command), [&](const Result<redis::Reply>& reply) {
    (++heard == 1 ? first : second).set_value(reply ? std::string(reply->text()) : reply.error().message);
  });
  EXPECT_THAT(first.get_future().get(), HasSubstr("did not answer within 50 ms"));
  server.cont();
  EXPECT_EQ(second.get_future().get(), "late");
  EXPECT_EQ(heard, 2);
}

TEST(RedisTrouble, ASilentServerIsNotAskedUntilItAnswersAgain) {
  RedisServer server;
  Witness witness;
  Options options = options_for(server.url());
  options.deadline = 50ms;
  const auto client = client_for(options, &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  ASSERT_TRUE(comes_back(*client));
  const std::size_t downs = witness.downs().size();
  const int ups = witness.ups();
  server.stop();
  ASSERT_TRUE(eventually([&] {
    begin(*client, command_of({"PING"}));
    return client->state() == State::kDown;
  }));
  // Now at once, without waiting for the deadline.
  bool answered = false;
  client->call(command_of({"PING"}), [&](const Result<redis::Reply>& result) { answered = !result; });
  EXPECT_TRUE(answered);
  EXPECT_THAT(witness.downs(), SizeIs(downs + 1));
  server.cont();
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_TRUE(comes_back(*client));
  EXPECT_GE(witness.ups(), ups + 1);
}

TEST(RedisTrouble, FiveLateAnswersInARowOpenTheCircuit) {
  RedisServer server;
  Witness witness;
  Options options = options_for(server.url());
  options.deadline = 1s;
  const auto client = client_for(options, &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  ASSERT_TRUE(eventually([&] { return witness.clocks() > 0; }));
  server.stop();
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(witness.downs(), IsEmpty()) << "however many of one moment, it is one";
    std::vector<std::future<RedisAnswer>> answers;
    for (int i = 0; i < 5; ++i) answers.push_back(begin(*client, command_of({"PING"})));
    for (std::future<RedisAnswer>& answer : answers) EXPECT_FALSE(answer.get().ok);
  }
  ASSERT_TRUE(eventually([&] { return !witness.downs().empty(); }));
  EXPECT_THAT(witness.downs(), ElementsAre(HasSubstr("5 calls in a row were not answered in time")));
  server.cont();
  EXPECT_TRUE(client->wait_until_up(10s)) << client->why();
}

TEST(RedisTrouble, OneCallWithoutAnAnswerForThreeDeadlinesOpensTheCircuit) {
  FakeRedis fake([](const std::vector<std::string>& words) { return FakeRedis::greeted(words); });
  Witness witness;
  Options options = options_for("redis://" + fake.address());
  options.deadline = 50ms;
  const auto client = client_for(options, &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  EXPECT_FALSE(ask(*client, {"GET", "a"}).ok);
  ASSERT_TRUE(eventually([&] { return !witness.downs().empty(); }));
  EXPECT_THAT(witness.downs().at(0), HasSubstr(": no answer for "));
}

TEST(RedisTrouble, AKilledServerIsFoundAgain) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  server.kill();
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  const RedisAnswer answer = ask(*client, {"PING"});
  EXPECT_FALSE(answer.ok);
  EXPECT_TRUE(answer.transient);
  EXPECT_THAT(answer.text, StartsWith("redis " + server.address() + ": "));
  ASSERT_TRUE(eventually([&] { return client->why().ends_with("connection refused"); })) << client->why();
  EXPECT_THAT(witness.downs(), SizeIs(1));
  EXPECT_EQ(witness.ups(), 1);
  server.restart();
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
  EXPECT_EQ(witness.ups(), 2);
}

TEST(RedisTrouble, WhatIsUnderWayWhenTheServerDiesIsAnsweredWithAnError) {
  RedisServer server;
  Options options = options_for(server.url());
  options.deadline = 20s;
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s));
  server.stop();
  std::future<RedisAnswer> answer = begin(*client, command_of({"PING"}));
  server.kill();
  ASSERT_EQ(answer.wait_for(10s), std::future_status::ready);
  EXPECT_FALSE(answer.get().ok);
}

TEST(RedisTrouble, AServerThatWasNeverThereIsToldOnce) {
  Witness witness;
  const auto client = client_for(options_for("redis://127.0.0.1:" + std::to_string(free_port())), &witness);
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  EXPECT_FALSE(ask(*client, {"PING"}).ok);
  EXPECT_THAT(witness.downs(), ElementsAre(HasSubstr("connection refused")));
  EXPECT_EQ(witness.ups(), 0);
}

TEST(RedisTrouble, GarbageIsNamedOnceAndTheConnectionLeft) {
  for (const std::string& garbage :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string("$99999999999999\r\n"),
        std::string("*1000000000\r\n"), std::string("*999999\r\n*999999\r\n"),
        std::string("+OK\r\n+OK\r\n+OK\r\n+OK\r\n"), std::string(64, '\0')}) {
    Witness witness;
    FakeRedis fake([&](const std::vector<std::string>& words) {
      const std::string greeted = FakeRedis::greeted(words);
      return greeted.empty() ? garbage : greeted;
    });
    const auto client = client_for(options_for("redis://" + fake.address()), &witness);
    ASSERT_TRUE(eventually([&] {
      begin(*client, command_of({"PING"}));
      return fake.accepted() >= 3;
    })) << garbage;
    ASSERT_TRUE(eventually([&] { return witness.told("PROTOCOL") == 1; })) << garbage;
    EXPECT_THAT(witness.problems(), SizeIs(1)) << garbage;
    EXPECT_THAT(witness.problems().at(0), HasSubstr("is this Redis?")) << garbage;
  }
}

TEST(RedisTrouble, GarbageInsteadOfAGreetingNeverComesUp) {
  Witness witness;
  FakeRedis fake([](const std::vector<std::string>&) { return "SSH-2.0-OpenSSH_9.2\r\n"; });
  const auto client = client_for(options_for("redis://" + fake.address()), &witness);
  ASSERT_TRUE(eventually([&] { return fake.accepted() >= 3; }));
  EXPECT_EQ(client->state(), State::kDown);
  EXPECT_EQ(witness.told("PROTOCOL"), 1);
  EXPECT_EQ(witness.ups(), 0);
}

TEST(RedisTrouble, SilenceInsteadOfAGreetingEndsWithTheConnectTimeout) {
  FakeRedis fake([](const std::vector<std::string>&) { return ""; });
  Options options = options_for("redis://" + fake.address());
  options.connect_timeout = 50ms;
  const auto client = client_for(options);
  ASSERT_TRUE(eventually([&] { return fake.accepted() >= 2; }));
  EXPECT_THAT(client->why(), HasSubstr("no answer to the greeting within 50 ms"));
}

TEST(RedisTrouble, HalfAReplyIsNoReplyAndTheConnectionIsLeft) {
  FakeRedis fake([](const std::vector<std::string>& words) {
    const std::string greeted = FakeRedis::greeted(words);
    return greeted.empty() ? std::string("$5\r\nhal") : greeted;
  });
  Options options = options_for("redis://" + fake.address());
  options.deadline = 20ms;
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s));
  EXPECT_FALSE(ask(*client, {"GET", "a"}).ok);
  EXPECT_TRUE(eventually([&] { return fake.accepted() >= 2; }));
}

TEST(RedisTrouble, AServerThatOwesAnAnswerForLongIsConnectedToAnew) {
  FakeRedis fake([](const std::vector<std::string>& words) { return FakeRedis::greeted(words); });
  Options options = options_for("redis://" + fake.address());
  options.deadline = 20ms;
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s));
  EXPECT_FALSE(ask(*client, {"GET", "a"}).ok);
  EXPECT_TRUE(eventually([&] { return fake.accepted() >= 2; }));
}

TEST(RedisTrouble, AServerWithoutMemoryIsNamedOnceAndStaysUp) {
  RedisServer server({"--maxmemory", "1", "--maxmemory-policy", "noeviction"});
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  for (int i = 0; i < 20; ++i) {
    const RedisAnswer answer = ask(*client, {"SET", "a", "1"});
    EXPECT_THAT(answer.text, StartsWith("OOM "));
    EXPECT_TRUE(answer.transient);
  }
  EXPECT_EQ(witness.told("OOM"), 1);
  EXPECT_EQ(client->state(), State::kUp);
  server.ask({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_EQ(ask(*client, {"SET", "a", "1"}).text, "OK");
}

// Calls a script that writes, as every check does.
RedisAnswer write_by_script(Client& client) {
  static const redis::Script script = redis::make_script("return redis.call('SET', KEYS[1], '1')");
  redis::Command command = command_of({"EVALSHA", script.sha1, "1", "headgate:c:{a}"});
  command.script = &script;
  return begin(client, std::move(command)).get();
}

TEST(RedisTrouble, AServerThatRefusesEveryCheckCountsAsDownUntilItTakesOne) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  struct Illness {
    std::string word;
    std::vector<std::string> begin, end;
  };
  for (const auto& [word, begin, end] :
       {Illness{"NOREPLICAS",
                {"CONFIG", "SET", "min-replicas-to-write", "1"},
                {"CONFIG", "SET", "min-replicas-to-write", "0"}},
        Illness{"NOPERM", {"ACL", "SETUSER", "default", "resetkeys", "~other:*"}, {"ACL", "SETUSER", "default", "~*"}},
        Illness{"NOPERM", {"ACL", "SETUSER", "default", "-@scripting"}, {"ACL", "SETUSER", "default", "+@all"}},
        Illness{"ERR", {"ACL", "SETUSER", "default", "-set"}, {"ACL", "SETUSER", "default", "+@all"}}}) {
    ASSERT_TRUE(eventually([&] { return write_by_script(*client).ok; })) << word;
    const std::size_t downs = witness.downs().size();
    server.ask(begin);
    ASSERT_TRUE(eventually([&] {
      const RedisAnswer answer = write_by_script(*client);
      EXPECT_FALSE(answer.ok);
      return client->state() == State::kDown;
    })) << word;
    EXPECT_THAT(client->why(), HasSubstr(word + " ")) << word;
    EXPECT_FALSE(client->wait_until_up(300ms)) << word;  // though it answers a PING
    server.ask(end);
    ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
    EXPECT_EQ(witness.downs().size(), downs + 1) << word;
  }
  EXPECT_TRUE(eventually([&] { return server.ask({"EXISTS", "headgate:c:{a}:w"}) == "0"; }));
}

TEST(RedisTrouble, AServerWithoutMemoryIsNotTakenForDown) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  server.ask({"CONFIG", "SET", "maxmemory", "1"});
  for (int i = 0; i < 20; ++i) EXPECT_THAT(write_by_script(*client).text, StartsWith("OOM "));
  EXPECT_EQ(client->state(), State::kUp);
  EXPECT_EQ(witness.told("OOM"), 1);
}

TEST(RedisTrouble, AServerThatBecomesAReplicaIsLeftUntilItIsTheMasterAgain) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for(server.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  server.ask({"REPLICAOF", "127.0.0.1", std::to_string(free_port())});
  const RedisAnswer answer = ask(*client, {"SET", "a", "1"});
  EXPECT_THAT(answer.text, StartsWith("READONLY "));
  EXPECT_TRUE(answer.transient);
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  ASSERT_TRUE(eventually([&] { return client->why().find("it is a replica") != std::string::npos; }));
  EXPECT_EQ(witness.told("READONLY"), 1);
  server.ask({"REPLICAOF", "NO", "ONE"});
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"SET", "a", "1"}).text, "OK");
}

TEST(RedisTrouble, ABusyServerIsLeftAloneUntilItIsDone) {
  RedisServer server({"--busy-reply-threshold", "1"});
  Witness witness;
  Options options = options_for(server.url());
  const auto client = client_for(options, &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  std::future<RedisAnswer> endless = begin(*client, command_of({"EVAL", "while true do end", "0"}));
  // Through another connection, since this one's commands wait for their turn.
  const auto other = client_for(options, &witness);
  ASSERT_TRUE(eventually([&] { return ask(*other, {"PING"}).text.starts_with("BUSY "); }));
  ASSERT_TRUE(eventually([&] {
    ask(*other, {"PING"});
    return other->state() == State::kDown;
  }));
  EXPECT_THAT(other->why(), HasSubstr("BUSY "));
  EXPECT_EQ(witness.told("BUSY"), 1);
  EXPECT_EQ(server.ask({"SCRIPT", "KILL"}), "OK");
  ASSERT_TRUE(other->wait_until_up(10s)) << other->why();
  EXPECT_EQ(ask(*other, {"PING"}).text, "PONG");
  EXPECT_FALSE(endless.get().ok);
}

TEST(RedisTrouble, ALoadingServerIsLeftAloneUntilItHasLoaded) {
  std::atomic<bool> loading{true};
  FakeRedis fake([&](const std::vector<std::string>& words) {
    const std::string greeted = FakeRedis::greeted(words);
    if (!greeted.empty()) return greeted;
    if (loading) return std::string("-LOADING Redis is loading the dataset in memory\r\n");
    return std::string(words[0] == "TIME" ? "*2\r\n$1\r\n1\r\n$1\r\n1\r\n" : "+PONG\r\n");
  });
  Witness witness;
  const auto client = client_for(options_for("redis://" + fake.address()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  EXPECT_THAT(ask(*client, {"PING"}).text, StartsWith("LOADING "));
  ASSERT_TRUE(eventually([&] {
    ask(*client, {"PING"});
    return client->state() == State::kDown;
  }));
  EXPECT_EQ(witness.told("LOADING"), 1);
  loading = false;
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
}

TEST(RedisTrouble, AClusterWithoutAClusterUrlIsSaidSo) {
  FakeRedis fake([](const std::vector<std::string>& words) {
    const std::string greeted = FakeRedis::greeted(words);
    return greeted.empty() ? std::string("-MOVED 3999 127.0.0.1:6381\r\n") : greeted;
  });
  Witness witness;
  const auto client = client_for(options_for("redis://" + fake.address()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s));
  const RedisAnswer answer = ask(*client, {"GET", "a"});
  EXPECT_THAT(answer.text, StartsWith("MOVED 3999 127.0.0.1:6381 (this server is part of a cluster"));
  EXPECT_EQ(witness.told("MOVED"), 1);
}

}  // namespace
}  // namespace headgate::test
