#include "net/places.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace headgate::net {
namespace {

sockaddr_storage address_from(const char* text) {
  sockaddr_storage storage{};
  auto* four = reinterpret_cast<sockaddr_in*>(&storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, text, &four->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else if (::inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
    storage.ss_family = AF_INET6;
  } else {
    storage.ss_family = AF_UNIX;
  }
  return storage;
}

PlaceRules rules_for(std::size_t most, std::size_t kept, std::size_t per_address) {
  PlaceRules rules;
  rules.most = most;
  rules.kept = kept;
  rules.per_address = per_address;
  for (const char* network : {"127.0.0.0/8", "::1", "10.1.0.0/16", "fd00::/8"}) {
    rules.kept_for.push_back(*parse_network(network));
  }
  return rules;
}

TEST(Places, CountAnAddressAndAWhole64) {
  Places places(rules_for(100, 0, 2));
  const auto enters = [&](const char* from) { return places.enter(places.claim_of(address_from(from))); };
  EXPECT_TRUE(enters("192.0.2.1"));
  EXPECT_TRUE(enters("::ffff:192.0.2.1"));  // the same
  EXPECT_FALSE(enters("192.0.2.1"));
  EXPECT_TRUE(enters("192.0.2.2"));
  EXPECT_TRUE(enters("2001:db8::1"));
  EXPECT_TRUE(enters("2001:db8::ffff:2"));
  EXPECT_FALSE(enters("2001:db8::3"));
  EXPECT_TRUE(enters("2001:db8:0:1::3"));
  EXPECT_EQ(places.open(), 6U);
  places.leave(places.claim_of(address_from("2001:db8::9")));
  EXPECT_TRUE(enters("2001:db8::3"));
}

TEST(Places, KnowWhomTheyAreKeptFor) {
  const Places places(rules_for(100, 10, 2));
  const auto kept = [&](const char* from) { return places.claim_of(address_from(from)).kept; };
  EXPECT_TRUE(kept("127.0.0.1"));
  EXPECT_TRUE(kept("::ffff:127.9.9.9"));
  EXPECT_TRUE(kept("::1"));
  EXPECT_TRUE(kept("10.1.255.255"));
  EXPECT_TRUE(kept("fd12::1"));
  EXPECT_TRUE(kept("a unix socket"));
  EXPECT_FALSE(kept("10.2.0.0"));
  EXPECT_FALSE(kept("::2"));
  EXPECT_FALSE(kept("128.0.0.1"));
}

TEST(Places, AreKeptInTwoHalves) {
  Places places(rules_for(40, 10, 0));
  const Places::Claim local = places.claim_of(address_from("127.0.0.1"));
  const Places::Claim remote = places.claim_of(address_from("192.0.2.1"));
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(places.enter(remote));
  EXPECT_FALSE(places.crowded());
  ASSERT_TRUE(places.enter(remote));
  EXPECT_TRUE(places.crowded());
  EXPECT_TRUE(places.has_kept_place(remote));
  EXPECT_FALSE(places.may_stay(remote, Standing::kKnown));
  EXPECT_TRUE(places.may_stay(remote, Standing::kAdmin));
  EXPECT_TRUE(places.may_stay(local, Standing::kAnonymous));
  for (int i = 31; i < 36; ++i) ASSERT_TRUE(places.enter(local));
  EXPECT_FALSE(places.has_kept_place(remote));
  EXPECT_TRUE(places.has_kept_place(local));
  EXPECT_FALSE(places.may_stay(local, Standing::kKnown));
  EXPECT_TRUE(places.may_stay(local, Standing::kAdmin));
  for (int i = 36; i < 41; ++i) ASSERT_TRUE(places.enter(local));
  EXPECT_FALSE(places.has_kept_place(local));
}

TEST(Places, KeepAtMostAQuarter) {
  Places places(rules_for(4, 1000, 0));
  const Places::Claim remote = places.claim_of(address_from("192.0.2.1"));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(places.enter(remote));
  EXPECT_FALSE(places.crowded());
  ASSERT_TRUE(places.enter(remote));
  EXPECT_TRUE(places.crowded());
}

TEST(Places, NetworksThatAreNoneAreToldApart) {
  EXPECT_EQ(parse_network("10.0.0.0/33").error().message,
            "must be an address or a network, such as 10.0.0.5, 10.0.0.0/8 or fd00::/8, got \"10.0.0.0/33\"");
  for (const char* bad : {"", "x", "10.0.0", "10.0.0.0/", "10.0.0.0/x", "::/129", "::/-1", "localhost"}) {
    EXPECT_FALSE(parse_network(bad)) << bad;
  }
}

}  // namespace
}  // namespace headgate::net
