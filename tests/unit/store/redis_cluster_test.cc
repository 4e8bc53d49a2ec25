#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>

#include "store/redis/client.h"
#include "support/fake_redis.h"
#include "support/redis_calls.h"
#include "support/redis_cluster.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using redis::Client;
using redis::Options;
using redis::State;
using testing::HasSubstr;
using testing::StartsWith;

// A key of which the slot lies in the share of that server.
std::string key_of(const RedisCluster& cluster, std::size_t server) {
  for (int i = 0;; ++i) {
    std::string key = "k" + std::to_string(i);
    const std::uint16_t slot = redis::slot_of(key);
    if (slot >= cluster.first_slot(server) && slot < cluster.first_slot(server + 1)) return key;
  }
}

TEST(RedisCluster, EachKeyGoesToItsServer) {
  RedisCluster cluster(3);
  Witness witness;
  const auto client = client_for(options_for(cluster.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string key = key_of(cluster, i);
    EXPECT_EQ(ask_key(*client, {"SET", key, "1"}).text, "OK");
    EXPECT_EQ(cluster.server(i).ask({"GET", key}), "1");
  }
  for (int i = 0; i < 200; ++i) {
    const std::string key = "all" + std::to_string(i);
    ASSERT_EQ(ask_key(*client, {"SET", key, key}).text, "OK");
    ASSERT_EQ(ask_key(*client, {"GET", key}).text, key);
  }
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
  EXPECT_THAT(witness.problems(), testing::IsEmpty());
}

TEST(RedisCluster, FollowsASlotThatMoved) {
  RedisCluster cluster(3);
  const auto client = client_for(options_for(cluster.url()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  const std::string key = key_of(cluster, 0);
  const std::string slot = std::to_string(redis::slot_of(key));
  for (std::size_t i : {1U, 0U, 2U})
    EXPECT_EQ(cluster.server(i).ask({"CLUSTER", "SETSLOT", slot, "NODE", cluster.id(1)}), "OK");
  EXPECT_EQ(ask_key(*client, {"SET", key, "moved"}).text, "OK");
  EXPECT_EQ(cluster.server(1).ask({"GET", key}), "moved");
  EXPECT_EQ(ask_key(*client, {"GET", key}).text, "moved");
}

TEST(RedisCluster, AsksTheNextServerForAKeyThatIsMoving) {
  RedisCluster cluster(3);
  const auto client = client_for(options_for(cluster.url()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  const std::string key = key_of(cluster, 0);
  const std::string slot = std::to_string(redis::slot_of(key));
  ASSERT_EQ(cluster.server(1).ask({"CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(0)}), "OK");
  ASSERT_EQ(cluster.server(0).ask({"CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(1)}), "OK");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask_key(*client, {"SET", key, "new"}).text, "OK");
  EXPECT_EQ(cluster.server(1).ask({"CLUSTER", "COUNTKEYSINSLOT", slot}), "1");
  EXPECT_EQ(cluster.server(0).ask({"CLUSTER", "COUNTKEYSINSLOT", slot}), "0");
}

TEST(RedisCluster, LoadsAScriptOnEveryServerThatNeedsIt) {
  RedisCluster cluster(3);
  const auto client = client_for(options_for(cluster.url()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  const redis::Script script{"return KEYS[1]", cluster.server(0).ask({"SCRIPT", "LOAD", "return KEYS[1]"})};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string key = key_of(cluster, i);
    redis::Command command = command_of({"EVALSHA", script.sha1, "1", key}, redis::slot_of(key));
    command.script = &script;
    EXPECT_EQ(carry(*client, std::move(command)).text, key);
  }
}

TEST(RedisCluster, ALostServerCostsOnlyItsOwnSlots) {
  RedisCluster cluster(3, {"--cluster-require-full-coverage", "no"});
  Witness witness;
  const auto client = client_for(options_for(cluster.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  cluster.server(2).kill();
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDegraded; }));
  EXPECT_THAT(ask_key(*client, {"SET", key_of(cluster, 2), "1"}).text, HasSubstr(cluster.server(2).address()));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(ask_key(*client, {"SET", key_of(cluster, i), "1"}).text, "OK");
  EXPECT_EQ(witness.downs().size(), 1U);
  cluster.server(2).restart();
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  ASSERT_TRUE(eventually([&] { return ask_key(*client, {"SET", key_of(cluster, 2), "1"}).ok; }));
}

TEST(RedisCluster, BeginsWithAnyServerThatAnswers) {
  RedisCluster cluster(3);
  const auto client = client_for(
      options_for("redis+cluster://127.0.0.1:" + std::to_string(free_port()) + "," + cluster.server(1).address()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask_key(*client, {"SET", key_of(cluster, 2), "1"}).text, "OK");
}

TEST(RedisCluster, AClusterThatIsDownIsNamed) {
  RedisCluster cluster(3);
  Witness witness;
  const auto client = client_for(options_for(cluster.url()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  cluster.server(2).kill();
  RedisAnswer answer;
  ASSERT_TRUE(eventually([&] {
    answer = ask_key(*client, {"SET", key_of(cluster, 0), "1"});
    return answer.text.starts_with("CLUSTERDOWN ");
  }));
  EXPECT_TRUE(answer.transient);
  EXPECT_EQ(witness.told("CLUSTERDOWN"), 1);
}

TEST(RedisCluster, AServerThatIsNoClusterIsSaidSo) {
  RedisServer server;
  Witness witness;
  const auto client = client_for(options_for("redis+cluster://" + server.address()), &witness);
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  ASSERT_TRUE(eventually([&] { return client->why().find("cluster support disabled") != std::string::npos; }));
  EXPECT_FALSE(ask(*client, {"PING"}).ok);
}

// Has all slots, and says of each that the other one has it.
class Liar {
 public:
  explicit Liar(int other)
      : fake_([this, other](const std::vector<std::string>& words) { return answer(words, other); }) {}
  [[nodiscard]] FakeRedis& fake() noexcept { return fake_; }
  std::atomic<int> asked{0};

 private:
  std::string answer(const std::vector<std::string>& words, int other) {
    const std::string greeted = FakeRedis::greeted(words);
    if (!greeted.empty()) return greeted;
    if (words[0] == "TIME") return "*2\r\n$1\r\n1\r\n$1\r\n1\r\n";
    if (words[0] == "CLUSTER") {
      return "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$0\r\n\r\n:" + std::to_string(fake_.port()) + "\r\n$2\r\nid\r\n";
    }
    ++asked;
    return "-MOVED 100 127.0.0.1:" + std::to_string(other != 0 ? other : fake_.port()) + "\r\n";
  }
  FakeRedis fake_;
};

TEST(RedisCluster, AMovedLoopEndsAndIsNamedOnce) {
  Liar liar(0);
  Witness witness;
  const auto client = client_for(options_for("redis+cluster://" + liar.fake().address()), &witness);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  for (int i = 1; i <= 3; ++i) {
    const RedisAnswer answer = carry(*client, command_of({"GET", "a"}, 100));
    EXPECT_THAT(answer.text, StartsWith("MOVED loop: sent on 5 times, at last by redis 127.0.0.1:"));
    EXPECT_EQ(liar.asked, 6 * i);
  }
  EXPECT_EQ(witness.told("MOVED loop"), 1);
}

TEST(RedisCluster, AServerThatIsSentToAndNotThereIsAnError) {
  Liar liar(free_port());
  const auto client = client_for(options_for("redis+cluster://" + liar.fake().address()));
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  const RedisAnswer answer = carry(*client, command_of({"GET", "a"}, 100));
  EXPECT_THAT(answer.text, HasSubstr("connection refused"));
  // The map, looked at again, has only the one server.
  EXPECT_TRUE(client->wait_until_up(10s)) << client->why();
}

}  // namespace
}  // namespace headgate::test
