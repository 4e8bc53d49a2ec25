#include "store/redis/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headgate::store::redis {
namespace {

using testing::HasSubstr;
using testing::Not;

Url read(std::string_view text) {
  Result<Url> url = parse_url(text);
  EXPECT_TRUE(url.has_value()) << text << ": " << (url ? "" : url.error().message);
  return url ? *url : Url{};
}

std::string refused(std::string_view text) {
  const Result<Url> url = parse_url(text);
  return url ? "taken" : url.error().message;
}

TEST(RedisUrl, NamesAHostAPortAndADatabase) {
  const Url url = read("redis://redis-1.example.com:7000/3");
  EXPECT_EQ(url.kind, Url::Kind::kStandalone);
  EXPECT_FALSE(url.tls);
  EXPECT_EQ(text_of(url.endpoints.at(0)), "redis-1.example.com:7000");
  EXPECT_EQ(url.database, 3U);
  EXPECT_EQ(read("redis://localhost").endpoints.at(0).port, 6379);
  EXPECT_EQ(read("redis://localhost/").database, 0U);
  EXPECT_TRUE(read("rediss://localhost").tls);
}

TEST(RedisUrl, TakesIpv6InBrackets) {
  EXPECT_EQ(read("redis://[::1]:7000").endpoints.at(0).host, "::1");
  EXPECT_EQ(text_of(read("redis://[fe80::1]").endpoints.at(0)), "[fe80::1]:6379");
}

TEST(RedisUrl, DecodesUserAndPassword) {
  const Url url = read("redis://head%3Agate:p%40ss%2Fw%25rd:x@h");
  EXPECT_EQ(url.user, "head:gate");
  EXPECT_EQ(url.password, "p@ss/w%rd:x");
  EXPECT_EQ(read("redis://:secret@h").user, "");
  EXPECT_EQ(read("redis://:secret@h").password, "secret");
  EXPECT_EQ(read("redis://u:a@b@h").password, "a@b");
}

TEST(RedisUrl, NamesSentinelsAndTheirMaster) {
  const Url url = read("rediss+sentinel://u:p@a:1,[::1],c/mymaster/2");
  EXPECT_EQ(url.kind, Url::Kind::kSentinel);
  EXPECT_TRUE(url.tls);
  ASSERT_EQ(url.endpoints.size(), 3U);
  EXPECT_EQ(text_of(url.endpoints[0]), "a:1");
  EXPECT_EQ(text_of(url.endpoints[1]), "[::1]:26379");
  EXPECT_EQ(text_of(url.endpoints[2]), "c:26379");
  EXPECT_EQ(url.master, "mymaster");
  EXPECT_EQ(url.database, 2U);
}

TEST(RedisUrl, NamesServersOfACluster) {
  const Url url = read("redis+cluster://:p@a:1,b");
  EXPECT_EQ(url.kind, Url::Kind::kCluster);
  ASSERT_EQ(url.endpoints.size(), 2U);
  EXPECT_EQ(text_of(url.endpoints[1]), "b:6379");
  EXPECT_EQ(refused("redis+cluster://a/1"),
            "redis url: a cluster has no database numbers; after the hosts there must be nothing, got \"1\"");
}

TEST(RedisUrl, NamesAUnixSocket) {
  EXPECT_EQ(read("unix:///run/redis.sock").endpoints.at(0).path, "/run/redis.sock");
  EXPECT_EQ(read("unix://:p@/run/redis.sock").password, "p");
  EXPECT_THAT(refused("unix://run/redis.sock"), HasSubstr("an absolute path"));
  EXPECT_THAT(refused("unix:///" + std::string(200, 'x')), HasSubstr("at most 107 bytes"));
}

TEST(RedisUrl, SaysWhatMustHoldAndWhatCame) {
  EXPECT_EQ(refused("redis://h:99999"), "redis url: the port must be a number from 1 to 65535, got \"99999\"");
  EXPECT_EQ(refused("redis://h:"), "redis url: the port must be a number from 1 to 65535");
  EXPECT_EQ(refused("redis://h/x"), "redis url: the database must be a number from 0 to 65535, got \"x\"");
  EXPECT_THAT(refused("http://h"), HasSubstr("it must begin with redis://"));
  EXPECT_THAT(refused("redis://"), HasSubstr("the host is missing"));
  EXPECT_THAT(refused("redis://a,b"), HasSubstr("several hosts need redis+sentinel://"));
  EXPECT_THAT(refused("redis+sentinel://a"), HasSubstr("the master's name"));
  EXPECT_THAT(refused("redis+cluster://a,"), HasSubstr("the host is missing"));
  EXPECT_THAT(refused("redis://::1"), HasSubstr("must stand in brackets"));
  EXPECT_THAT(refused("redis://[::1"), HasSubstr("must end with ]"));
  EXPECT_THAT(refused("redis://[::1]x"), HasSubstr(":port or nothing"));
  EXPECT_THAT(refused("redis://[h]"), HasSubstr("must be an IPv6 address"));
  EXPECT_THAT(refused("redis://user@h"), HasSubstr("user:password"));
  EXPECT_THAT(refused("redis://:@h"), HasSubstr("the password before the @ is empty"));
  EXPECT_THAT(refused(std::string("redis://h\0", 10)), HasSubstr("control characters"));
  EXPECT_THAT(refused("redis://" + std::string(5000, 'h')), HasSubstr("at most 4096 bytes"));
  std::string many = "redis+cluster://h";
  for (int i = 0; i < 64; ++i) many += ",h";
  EXPECT_THAT(refused(many), HasSubstr("at most 64 hosts"));
}

TEST(RedisUrl, NeverShowsAPassword) {
  for (const std::string_view text :
       {"redis://u:hunter2@h:x", "redis://u:hunter2@", "redis://u:hunter2", "redis://u:hunter2/@h", "redis://hunter2@h",
        "redis://u:hunter2%@h", "redis://u:hunter2@h/x", "http://u:hunter2@h", "unix://u:hunter2@h",
        "redis+sentinel://:hunter2@h", "redis+cluster://:hunter2@h/1", "redis://u:hunter2@[::1"}) {
    EXPECT_THAT(refused(text), Not(HasSubstr("hunter2"))) << text;
    EXPECT_NE(refused(text), "taken") << text;
  }
}

}  // namespace
}  // namespace headgate::store::redis
