#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/redis/client.h"
#include "support/fake_redis.h"
#include "support/redis_calls.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using redis::Client;
using redis::Options;
using redis::State;
using testing::HasSubstr;

std::unique_ptr<RedisServer> sentinel_of(const RedisServer& master, const std::vector<std::string>& more = {}) {
  std::vector<std::string> lines = {
      "sentinel monitor mymaster 127.0.0.1 " + std::to_string(master.port()) + " 1",
      "sentinel down-after-milliseconds mymaster 300",
      "sentinel failover-timeout mymaster 2000",
  };
  lines.insert(lines.end(), more.begin(), more.end());
  return std::make_unique<RedisServer>(lines, RedisServer::Kind::kSentinel);
}

TEST(RedisSentinel, FollowsAFailOver) {
  RedisServer master;
  RedisServer replica({"--replicaof", "127.0.0.1 " + std::to_string(master.port())});
  ASSERT_TRUE(eventually([&] {
    return master.ask({"INFO", "replication"}).find("state=online") != std::string::npos;
  }));
  const auto sentinel = sentinel_of(master);
  ASSERT_TRUE(eventually([&] {
    return sentinel->ask({"SENTINEL", "replicas", "mymaster"}).find(std::to_string(replica.port())) !=
           std::string::npos;
  }));
  // The first of them is not there.
  Witness witness;
  const auto client = client_for(options_for("redis+sentinel://127.0.0.1:" + std::to_string(free_port()) + "," +
                                             sentinel->address() + "/mymaster/1"),
                                 &witness);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"SET", "a", "before"}).text, "OK");
  EXPECT_EQ(replica.ask({"SELECT", "1"}), "OK");
  ASSERT_TRUE(eventually([&] { return replica.ask({"GET", "a"}) == "before"; }));
  master.kill();
  ASSERT_TRUE(eventually([&] { return ask(*client, {"SET", "b", "after"}).ok; }, 20s)) << client->why();
  EXPECT_EQ(ask(*client, {"GET", "a"}).text, "before");
  EXPECT_EQ(replica.ask({"SELECT", "1"}), "OK");  // once more: promoted, it has closed its connections
  EXPECT_EQ(replica.ask({"GET", "b"}), "after");
  EXPECT_GE(witness.ups(), 2);
  EXPECT_GE(witness.downs().size(), 1U);
}

TEST(RedisSentinel, SignsInToSentinelsThatWantAPasswordAndToThoseThatDoNot) {
  RedisServer master({"--requirepass", "pw"});
  const auto open = sentinel_of(master, {"sentinel auth-pass mymaster pw"});
  const auto locked = sentinel_of(master, {"sentinel auth-pass mymaster pw", "requirepass pw"});
  const auto other = sentinel_of(master, {"sentinel auth-pass mymaster pw", "requirepass sentinels"});
  for (RedisServer* const sentinel : {open.get(), locked.get(), other.get()}) {
    Options options = options_for("redis+sentinel://:pw@" + sentinel->address() + "/mymaster");
    if (sentinel == other.get()) options.sentinel_password = "sentinels";
    const auto client = client_for(options);
    ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
    EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
  }
}

TEST(RedisSentinel, SignsInToSentinelsAsAUserOfTheirOwn) {
  RedisServer master({"--requirepass", "pw"});
  const auto sentinel = sentinel_of(
      master, {"sentinel auth-pass mymaster pw", "user default off", "user watcher on >watching ~* &* +@all"});
  Options options = options_for("redis+sentinel://:pw@" + sentinel->address() + "/mymaster");
  options.sentinel_user = "watcher";
  options.sentinel_password = "watching";
  const auto client = client_for(options);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
  options.sentinel_user.clear();
  const auto nobody = client_for(options);
  ASSERT_TRUE(eventually([&] { return nobody->state() == State::kDown; }));
  EXPECT_THAT(nobody->why(), HasSubstr("WRONGPASS"));
}

TEST(RedisSentinel, SaysThatTheyKnowNoSuchMaster) {
  RedisServer master;
  const auto sentinel = sentinel_of(master);
  Witness witness;
  const auto client = client_for(options_for("redis+sentinel://" + sentinel->address() + "/other"), &witness);
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  EXPECT_EQ(client->why(), "sentinel " + sentinel->address() + ": knows no master \"other\"");
  EXPECT_EQ(witness.told("SENTINEL"), 1);
}

TEST(RedisSentinel, GoesUpWhenASentinelDoes) {
  RedisServer master;
  const auto sentinel = sentinel_of(master);
  sentinel->kill();
  const auto client = client_for(options_for("redis+sentinel://" + sentinel->address() + "/mymaster"));
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  EXPECT_THAT(client->why(), HasSubstr("connection refused"));
  sentinel->restart();
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
}

TEST(RedisSentinel, WhoeverIsNamedButIsAReplicaIsNotWrittenTo) {
  RedisServer master;
  RedisServer replica({"--replicaof", "127.0.0.1 " + std::to_string(master.port())});
  std::atomic<int> named{replica.port()};
  FakeRedis stale([&](const std::vector<std::string>& words) {
    const std::string greeted = FakeRedis::greeted(words);
    if (!greeted.empty()) return greeted;
    const std::string port = std::to_string(named);
    return "*2\r\n$9\r\n127.0.0.1\r\n$" + std::to_string(port.size()) + "\r\n" + port + "\r\n";
  });
  Witness witness;
  const auto client = client_for(options_for("redis+sentinel://" + stale.address() + "/mymaster"), &witness);
  ASSERT_TRUE(eventually([&] { return witness.told("READONLY") == 1; }));
  EXPECT_EQ(client->state(), State::kDown);
  named = master.port();
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"SET", "a", "1"}).text, "OK");
}

TEST(RedisSentinel, AMasterThatIsStillThereButNoLongerNamedIsLeft) {
  RedisServer first;
  RedisServer second;
  std::atomic<int> named{first.port()};
  FakeRedis sentinel([&](const std::vector<std::string>& words) {
    const std::string greeted = FakeRedis::greeted(words);
    if (!greeted.empty()) return greeted;
    const std::string port = std::to_string(named);
    return "*2\r\n$9\r\n127.0.0.1\r\n$" + std::to_string(port.size()) + "\r\n" + port + "\r\n";
  });
  const auto client = client_for(options_for("redis+sentinel://" + sentinel.address() + "/mymaster"));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  named = second.port();
  EXPECT_TRUE(eventually([&] {
    ask(*client, {"SET", "a", "1"});
    return second.ask({"GET", "a"}) == "1";
  }));
}

}  // namespace
}  // namespace headgate::test
