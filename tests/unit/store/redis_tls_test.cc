// TLS to a real server, with certificates that openssl makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "store/redis/client.h"
#include "support/redis_calls.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using redis::Options;
using redis::State;
using testing::HasSubstr;

// An authority, a certificate that it signed for 127.0.0.1 and redis.test, and another authority.
class RedisTls : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "headgate-tls-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path;
    for (const std::string name : {"ca", "stranger"}) {
      run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" + name +
          " -keyout " + name + ".key -out " + name + ".crt");
    }
    run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=redis -keyout redis.key -out "
        "redis.csr");
    run("printf subjectAltName=IP:127.0.0.1,DNS:redis.test > ext");
    run("openssl x509 -req -in redis.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out redis.crt");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void run(const std::string& command) {
    const std::string line = "cd '" + directory_.string() + "' && " + command + " 2>>log";
    ASSERT_EQ(std::system(line.c_str()), 0) << command;
  }
  [[nodiscard]] std::string file(const std::string& name) const { return (directory_ / name).string(); }

  // Beside its plain port.
  [[nodiscard]] std::unique_ptr<RedisServer> server(const std::string& auth_clients) {
    port_ = free_port();
    return std::make_unique<RedisServer>(std::vector<std::string>{
        "--tls-port", std::to_string(port_), "--tls-cert-file", file("redis.crt"), "--tls-key-file", file("redis.key"),
        "--tls-ca-cert-file", file("ca.crt"), "--tls-auth-clients", auth_clients});
  }
  [[nodiscard]] Options options(const std::string& host = "127.0.0.1") const {
    Options options = options_for("rediss://" + host + ":" + std::to_string(port_));
    options.tls.ca_file = file("ca.crt");
    return options;
  }

  std::filesystem::path directory_;
  int port_ = 0;
};

TEST_F(RedisTls, CarriesCommands) {
  const auto redis_server = server("no");
  Options wanted = options();
  wanted.deadline = 20s;
  const auto client = client_for(wanted);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  const std::string large(1'000'000, 'x');  // many records
  EXPECT_EQ(ask(*client, {"SET", "a", large}).text, "OK");
  EXPECT_EQ(ask(*client, {"GET", "a"}).text, large);
  std::vector<std::future<RedisAnswer>> answers;
  for (int i = 0; i < 1000; ++i) answers.push_back(begin(*client, command_of({"ECHO", std::to_string(i)})));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(answers[static_cast<std::size_t>(i)].get().text, std::to_string(i));
}

TEST_F(RedisTls, BelievesOnlyItsAuthorities) {
  const auto redis_server = server("no");
  Options wanted = options();
  wanted.tls.ca_file = file("stranger.crt");
  Witness witness;
  const auto client = client_for(wanted, &witness);
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  EXPECT_THAT(client->why(), HasSubstr("certificate verify failed"));
  EXPECT_EQ(witness.told("TLS"), 1);
  wanted.tls.ca_file.clear();  // the system's, which do not know ours either
  const auto other = client_for(wanted);
  ASSERT_TRUE(eventually([&] { return other->state() == State::kDown; }));
  EXPECT_THAT(other->why(), HasSubstr("certificate verify failed"));
}

TEST_F(RedisTls, BelievesOnlyACertificateForTheHostItAsked) {
  const auto redis_server = server("no");
  const auto client = client_for(options("localhost"));
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  EXPECT_THAT(client->why(), HasSubstr("hostname mismatch"));
  Options elsewhere = options();
  elsewhere.tls.server_name = "10.0.0.1";
  const auto third = client_for(elsewhere);
  ASSERT_TRUE(eventually([&] { return third->state() == State::kDown; }));
  EXPECT_THAT(third->why(), HasSubstr("IP address mismatch"));
  Options named = options("localhost");
  named.tls.server_name = "redis.test";
  const auto other = client_for(named);
  EXPECT_TRUE(other->wait_until_up(10s)) << other->why();
}

TEST_F(RedisTls, ShowsItsCertificateToAServerThatWantsOne) {
  const auto redis_server = server("yes");
  Options wanted = options();
  Witness witness;
  const auto without = client_for(wanted, &witness);
  ASSERT_TRUE(eventually([&] { return without->state() == State::kDown; }));
  EXPECT_THAT(without->why(), HasSubstr("certificate required"));
  EXPECT_EQ(witness.told("TLS"), 1);
  wanted.tls.cert_file = file("redis.crt");
  wanted.tls.key_file = file("redis.key");
  const auto client = client_for(wanted);
  ASSERT_TRUE(client->wait_until_up(10s)) << client->why();
  EXPECT_EQ(ask(*client, {"PING"}).text, "PONG");
}

TEST_F(RedisTls, APlainServerIsNoTlsServer) {
  RedisServer plain;
  Options wanted = options_for("rediss://" + plain.address());
  wanted.tls.ca_file = file("ca.crt");
  wanted.connect_timeout = 100ms;
  Witness witness;
  const auto client = client_for(wanted, &witness);
  ASSERT_TRUE(eventually([&] { return client->state() == State::kDown; }));
  EXPECT_THAT(client->why(), HasSubstr("does it speak TLS?"));
  EXPECT_EQ(witness.told("TLS"), 1);
}

}  // namespace
}  // namespace headgate::test
