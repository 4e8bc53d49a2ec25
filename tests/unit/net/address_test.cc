#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/io.h"

namespace headgate::net {
namespace {

using testing::HasSubstr;

Address parsed(std::string_view text) {
  auto address = parse_address(text);
  EXPECT_TRUE(address.has_value()) << text << ": " << (address ? "" : address.error().message);
  return address ? *address : Address{};
}

std::string refused(std::string_view text) {
  auto address = parse_address(text);
  return address ? "taken: " + address->host : address.error().message;
}

TEST(Address, IsAHostAndAPort) {
  EXPECT_EQ(parsed("127.0.0.1:7070").host, "127.0.0.1");
  EXPECT_EQ(parsed("127.0.0.1:7070").port, 7070);
  EXPECT_EQ(parsed("localhost:0").port, 0);
  EXPECT_EQ(parsed("gate-1.example.com:65535").port, 65535);
  EXPECT_EQ(parsed("[::1]:80").host, "::1");
  EXPECT_EQ(parsed("unix:/run/headgate.sock").path, "/run/headgate.sock");
}

TEST(Address, RefusesWhatIsNone) {
  EXPECT_EQ(refused("7070"),
            "an address must be host:port, [::1]:port or unix:/path, got \"7070\" (the port is missing)");
  EXPECT_THAT(refused(":7070"), HasSubstr("the host is missing"));
  EXPECT_THAT(refused(""), HasSubstr("the port is missing"));
  EXPECT_THAT(refused("::1:80"), HasSubstr("an IPv6 address goes in brackets"));
  EXPECT_THAT(refused("[::1:80"), HasSubstr("the ] is missing"));
  EXPECT_THAT(refused("[127.0.0.1]:80"), HasSubstr("must be an IPv6 address"));
  EXPECT_THAT(refused("[]:80"), HasSubstr("must be an IPv6 address"));
  EXPECT_THAT(refused("[:80"), HasSubstr("the ] is missing"));
  EXPECT_THAT(refused("a b:80"), HasSubstr("no host name"));
  EXPECT_THAT(refused("a:"), HasSubstr("the port must be"));
  EXPECT_THAT(refused("a:65536"), HasSubstr("the port must be"));
  EXPECT_THAT(refused("a:-1"), HasSubstr("the port must be"));
  EXPECT_THAT(refused("a:80x"), HasSubstr("the port must be"));
  EXPECT_THAT(refused("a:99999999999999999999"), HasSubstr("the port must be"));
  EXPECT_THAT(refused("unix:"), HasSubstr("the path is missing"));
  EXPECT_THAT(refused("unix:/" + std::string(200, 'x')), HasSubstr("at most 107 bytes"));
}

TEST(Address, KnowsWhatOnlyThisMachineCanReach) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/x"}) {
    EXPECT_TRUE(is_loopback(parsed(text))) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1", "localhost.example.com:1",
                           "[::ffff:10.0.0.1]:1", "example.com:1"}) {
    EXPECT_FALSE(is_loopback(parsed(text))) << text;
  }
}

}  // namespace
}  // namespace headgate::net
