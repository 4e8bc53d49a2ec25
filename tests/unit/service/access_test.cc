#include "service/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "api/access_request.h"
#include "service/origin.h"
#include "support/cells.h"

namespace headgate::service {
namespace {

using namespace std::chrono_literals;
using state::Role;
using testing::HasSubstr;

using Headers = std::vector<std::pair<std::string, std::string>>;

// A request that owns what it is made of.
class OwnedRequest {
 public:
  explicit OwnedRequest(Headers headers = {}, net::Peer peer = local())
      : owned_(std::move(headers)), peer_(std::move(peer)) {
    for (const auto& [name, value] : owned_) views_.push_back({name, value});
    request_.headers = views_;
    request_.peer = &peer_;
  }
  OwnedRequest(const OwnedRequest&) = delete;
  OwnedRequest& operator=(const OwnedRequest&) = delete;
  static net::Peer local() {
    net::Peer peer;
    peer.ip = "127.0.0.1";
    peer.loopback = true;
    return peer;
  }
  static net::Peer remote(std::string ip = "10.0.0.9") {
    net::Peer peer;
    peer.ip = std::move(ip);
    return peer;
  }
  operator AccessRequest() const { return api::access_request(request_); }  // NOLINT(google-explicit-constructor)

 private:
  std::vector<std::pair<std::string, std::string>> owned_;
  std::vector<net::Header> views_;
  net::Peer peer_;
  net::HttpRequest request_;
};

class AccessTest : public testing::Test {
 protected:
  AccessTest() : database(std::move(*state::Database::open(":memory:"))) {}

  Access make(Auth auth, std::vector<std::string> hosts = {}) {
    AccessOptions options;
    options.auth = auth;
    options.hosts = std::move(hosts);
    return Access(*database, options, clock);
  }
  std::string token(Role role, std::string agent = "", std::string name = "") {
    return database->create_token({.role = role, .agent = std::move(agent), .name = std::move(name)}, "t", clock.now())
        ->secret;
  }
  static std::string outcome(const Admission& admission) {
    if (!admission.refusal) return "admitted";
    return std::to_string(admission.refusal->status) + " " + std::string(admission.refusal->code);
  }

  ManualClock clock{1'000'000s};
  std::unique_ptr<state::Database> database;
};

Headers bearer(const std::string& secret) {
  return {{"Host", "localhost:7070"}, {"Authorization", "Bearer " + secret}};
}

TEST(Origin, HostIsTakenApart) {
  EXPECT_EQ(parse_host("Example.COM:80"), (HostPort{"example.com", "80"}));
  EXPECT_EQ(parse_host("example.com."), (HostPort{"example.com", ""}));
  EXPECT_EQ(parse_host("[::1]:7070"), (HostPort{"::1", "7070"}));
  EXPECT_EQ(parse_host("[::1]"), (HostPort{"::1", ""}));
  for (const char* bad : {"", "a b", "a:", "a:b", "a:123456", "[::1", "[::1]x", "[]", "user@a", "a/b", "a\""}) {
    EXPECT_EQ(parse_host(bad), std::nullopt) << bad;
  }
}

TEST(Origin, TrustsNamesThatNoStrangersDnsCanPointHere) {
  const std::vector<std::string> hosts{"gate.example.com", "other.example.com:8443"};
  for (const char* good : {"localhost", "LOCALHOST:7070", "127.0.0.1:7070", "[::1]:7070", "10.0.0.5:7070",
                           "gate.example.com", "gate.example.com:9", "other.example.com:8443"}) {
    EXPECT_TRUE(is_trusted_host(good, hosts)) << good;
  }
  for (const char* bad :
       {"evil.com", "evil.com:7070", "localhost.evil.com", "127.0.0.1.evil.com", "", "other.example.com",
        "other.example.com:1", "x.gate.example.com", "127.1", "0x7f000001", "localhost, evil.com"}) {
    EXPECT_FALSE(is_trusted_host(bad, hosts)) << bad;
  }
}

TEST(Origin, TrustsTheSameSiteAndThoseListed) {
  const std::vector<std::string> hosts{"dash.example.com", "localhost:3000"};
  const auto trusted = [&](const char* origin, const char* host) { return is_trusted_origin(origin, host, hosts); };
  EXPECT_TRUE(trusted("http://localhost:7070", "localhost:7070"));
  EXPECT_TRUE(trusted("http://LOCALHOST:7070", "localhost:7070"));
  EXPECT_TRUE(trusted("http://127.0.0.1", "127.0.0.1"));
  EXPECT_TRUE(trusted("http://127.0.0.1", "127.0.0.1:80"));
  EXPECT_TRUE(trusted("https://gate.example.com", "gate.example.com")) << "a proxy has ended TLS";
  EXPECT_TRUE(trusted("https://[::1]:7070", "[::1]:7070"));
  EXPECT_TRUE(trusted("https://dash.example.com", "localhost:7070"));
  EXPECT_TRUE(trusted("http://localhost:3000", "localhost:7070"));
  EXPECT_FALSE(trusted("http://localhost:3001", "localhost:7070"));
  EXPECT_FALSE(trusted("http://127.0.0.1:7070", "localhost:7070"));
  EXPECT_FALSE(trusted("http://evil.com", "localhost:7070"));
  EXPECT_FALSE(trusted("http://localhost:7070.evil.com", "localhost:7070"));
  EXPECT_FALSE(trusted("null", "localhost:7070"));
  EXPECT_FALSE(trusted("", "localhost:7070"));
  EXPECT_FALSE(trusted("file://localhost:7070", "localhost:7070"));
  EXPECT_FALSE(trusted("http://localhost:7070", ""));
}

TEST_F(AccessTest, LocalAsksWithoutATokenButManagesOnlyWithOne) {
  const Access access = make(Auth::kLocal);
  const OwnedRequest request(Headers{{"Host", "localhost:7070"}});
  const Admission asked = access.asks(request);
  EXPECT_EQ(outcome(asked), "admitted");
  EXPECT_FALSE(asked.caller.known);
  EXPECT_TRUE(asked.caller.agent.empty());
  EXPECT_EQ(outcome(access.manages(request, false)), "401 unauthorized");
  EXPECT_EQ(outcome(access.manages(request, true)), "401 unauthorized");
  EXPECT_EQ(outcome(access.without_token()), "admitted");
  EXPECT_FALSE(access.required());
}

TEST_F(AccessTest, RequiredTakesATokenForEverything) {
  const Access access = make(Auth::kRequired);
  EXPECT_EQ(outcome(access.asks(OwnedRequest(Headers{{"Host", "localhost"}}))), "401 unauthorized");
  EXPECT_EQ(outcome(access.without_token()), "401 unauthorized");
  EXPECT_TRUE(access.required());
  const Admission asked = access.asks(OwnedRequest(bearer(token(Role::kAgent, "A", "ci"))));
  EXPECT_EQ(outcome(asked), "admitted");
  EXPECT_TRUE(asked.caller.known);
  EXPECT_EQ(asked.caller.agent, "A");
  EXPECT_EQ(asked.caller.who, "ci");
  EXPECT_EQ(outcome(access.asks(OwnedRequest(bearer(token(Role::kAdmin))))), "admitted");
  EXPECT_EQ(outcome(access.asks(OwnedRequest(bearer(token(Role::kViewer))))), "403 forbidden");
  EXPECT_EQ(outcome(make(Auth::kLocal).asks(OwnedRequest(bearer(token(Role::kViewer))))), "admitted")
      << "no less than without a token";
}

TEST_F(AccessTest, RolesManageAsFarAsTheyMay) {
  const Access access = make(Auth::kLocal);
  const auto manages = [&](Role role, bool change) {
    return outcome(access.manages(OwnedRequest(bearer(token(role))), change));
  };
  EXPECT_EQ(manages(Role::kAdmin, false), "admitted");
  EXPECT_EQ(manages(Role::kAdmin, true), "admitted");
  EXPECT_EQ(manages(Role::kViewer, false), "admitted");
  EXPECT_EQ(manages(Role::kViewer, true), "403 forbidden");
  EXPECT_EQ(manages(Role::kAgent, false), "403 forbidden");
  EXPECT_EQ(manages(Role::kAgent, true), "403 forbidden");
  const Admission refused = access.manages(OwnedRequest(bearer(token(Role::kViewer, "", "eve"))), true);
  EXPECT_EQ(refused.refusal->message, "this takes role admin, and eve is viewer");
}

TEST_F(AccessTest, ATokenThatIsGivenMustBeGoodAndGivenOnce) {
  const std::string good = token(Role::kAdmin);
  const Access access = make(Auth::kLocal);
  const auto asks = [&](const Headers& headers) { return outcome(access.asks(OwnedRequest(headers))); };
  EXPECT_EQ(asks({{"authorization", "bearer " + good}}), "admitted");
  EXPECT_EQ(asks({{"Authorization", good}}), "401 unauthorized");
  EXPECT_EQ(asks({{"Authorization", "Basic " + good}}), "401 unauthorized");
  EXPECT_EQ(asks({{"Authorization", "Bearer"}}), "401 unauthorized");
  EXPECT_EQ(asks({{"Authorization", "Bearer " + good + ", " + good}}), "401 unauthorized");
  EXPECT_EQ(asks({{"Authorization", "Bearer " + good}, {"Authorization", "Bearer " + good}}), "401 unauthorized");
  EXPECT_EQ(asks({{"Authorization", ""}}), "401 unauthorized");
  const std::string id = database->tokens()[0].id;
  ASSERT_TRUE(database->revoke_token(id, "t", clock.now()).has_value());
  EXPECT_EQ(asks({{"Authorization", "Bearer " + good}}), "401 unauthorized");
}

TEST_F(AccessTest, RefusesHostsThatDnsMayHavePointedHereUnlessATokenIsGood) {
  const Access access = make(Auth::kLocal, {"gate.example.com"});
  EXPECT_EQ(outcome(access.asks(OwnedRequest(Headers{{"Host", "evil.com:7070"}}))), "403 bad_host");
  EXPECT_EQ(outcome(access.manages(OwnedRequest(Headers{{"Host", "evil.com"}}), false)), "403 bad_host");
  EXPECT_EQ(outcome(access.asks(OwnedRequest(Headers{{"Host", "gate.example.com"}}))), "admitted");
  EXPECT_EQ(outcome(access.asks(OwnedRequest(Headers{{"Host", "localhost"}, {"Host", "localhost"}}))), "403 bad_host");
  EXPECT_EQ(outcome(access.asks(OwnedRequest())), "admitted") << "HTTP/1.0";
  EXPECT_EQ(outcome(access.asks(OwnedRequest(
                Headers{{"Host", "any.example.com"}, {"Authorization", "Bearer " + token(Role::kAgent)}}))),
            "admitted");
  EXPECT_THAT(access.asks(OwnedRequest(Headers{{"Host", "evil.com"}})).refusal->message, HasSubstr("got \"evil.com\""));
}

TEST_F(AccessTest, RefusesPagesFromElsewhereWhateverTheyBring) {
  const Access access = make(Auth::kLocal);
  Headers headers = bearer(token(Role::kAdmin));
  headers.emplace_back("Origin", "http://evil.com");
  EXPECT_EQ(outcome(access.asks(OwnedRequest(headers))), "403 bad_origin");
  EXPECT_EQ(outcome(access.manages(OwnedRequest(headers), true)), "403 bad_origin");
  headers.back().second = "http://localhost:7070";
  EXPECT_EQ(outcome(access.manages(OwnedRequest(headers), true)), "admitted");
  headers.emplace_back("Origin", "http://localhost:7070");
  EXPECT_EQ(outcome(access.manages(OwnedRequest(headers), true)), "403 bad_origin") << "twice";
}

TEST_F(AccessTest, BadTokensAreLimitedByAddressButNeverLockAGoodOneOut) {
  const Access access = make(Auth::kRequired);
  const std::string good = token(Role::kAgent, "A");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(outcome(access.by_token("bad", "10.0.0.1")), "401 unauthorized");
  const Admission limited = access.by_token("bad", "10.0.0.1");
  EXPECT_EQ(outcome(limited), "429 too_many_attempts");
  EXPECT_EQ(limited.refusal->retry_after, 60s);
  EXPECT_EQ(outcome(access.by_token(good, "10.0.0.1")), "admitted");
  EXPECT_EQ(outcome(access.by_token("bad", "10.0.0.2")), "401 unauthorized");
  clock.advance(61s);
  EXPECT_EQ(outcome(access.by_token("bad", "10.0.0.1")), "401 unauthorized");
}

TEST_F(AccessTest, OneNetworkOfIpv6IsOneAddress) {
  const Access access = make(Auth::kRequired);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(outcome(access.by_token("bad", "2001:db8::" + std::to_string(i))), "401 unauthorized");
  }
  EXPECT_EQ(outcome(access.by_token("bad", "2001:db8::ffff")), "429 too_many_attempts");
  EXPECT_EQ(outcome(access.by_token("bad", "2001:db8:0:1::1")), "401 unauthorized");
}

TEST_F(AccessTest, ACertificateNamesTheAgentWhereATokenIsRequired) {
  const Access access = make(Auth::kRequired);
  net::Peer peer = OwnedRequest::remote();
  peer.tls = true;
  peer.certificate = "agent-7";
  const Admission asked = access.asks(OwnedRequest(Headers{{"Host", "10.0.0.1"}}, peer));
  EXPECT_EQ(outcome(asked), "admitted");
  EXPECT_EQ(asked.caller.role, Role::kAgent);
  EXPECT_EQ(asked.caller.agent, "agent-7");
  EXPECT_EQ(outcome(access.without_token(api::view_of(peer))), "admitted");
  EXPECT_EQ(access.without_token(api::view_of(peer)).caller.agent, "agent-7");
  EXPECT_EQ(outcome(access.manages(OwnedRequest(Headers{{"Host", "10.0.0.1"}}, peer), false)), "403 forbidden");
  Headers headers = bearer(token(Role::kAgent, "B"));
  EXPECT_EQ(access.asks(OwnedRequest(headers, peer)).caller.agent, "B") << "a token says more";
}

TEST_F(AccessTest, SpeaksForItsAgentOnly) {
  const Access access = make(Auth::kRequired);
  Caller bound;
  bound.known = true;
  bound.agent = "A";
  bound.who = "ci";
  const auto refused = [&](const Caller& caller, std::string_view agent) {
    return access.subjects().may_name(caller, state::Bound::kAgent, agent);
  };
  EXPECT_FALSE(refused(bound, "A"));
  const auto other = refused(bound, "B");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->status, 403);
  EXPECT_EQ(other->code, "wrong_agent");
  EXPECT_EQ(other->message, "ci speaks for agent \"A\" only, got \"B\"");
  EXPECT_FALSE(refused(Caller{}, "anybody"));
  Check check;
  EXPECT_FALSE(access.believe(bound, std::nullopt, check));
  EXPECT_EQ(check.agent, "A") << "filled in";
}

TEST_F(AccessTest, CellsOfATokenThatBindsNoAgentAreTheTokens) {
  const Access access = make(Auth::kRequired);
  const auto owner_of = [&](Role role, const std::string& bound) {
    const Admission admission = access.by_token(token(role, bound), "10.0.0.1");
    Check check;
    check.agent = bound.empty() ? std::string_view("made-up") : std::string_view(bound);
    EXPECT_FALSE(access.believe(admission.caller, std::nullopt, check));
    return admission.caller.owner;
  };
  const std::string first = owner_of(Role::kAgent, "");
  EXPECT_EQ(first, "token:" + database->tokens().front().id);
  EXPECT_NE(owner_of(Role::kAgent, ""), first) << "another token";
  EXPECT_EQ(owner_of(Role::kAgent, "A"), "");
  EXPECT_EQ(owner_of(Role::kGateway, ""), "");
  EXPECT_EQ(owner_of(Role::kAdmin, ""), "");
}

TEST_F(AccessTest, APeekOwnsNoSession) {
  const Access access = make(Auth::kRequired);
  const Caller mine = access.by_token(token(Role::kAgent, "A"), "10.0.0.1").caller;
  const Caller other = access.by_token(token(Role::kAgent, "B"), "10.0.0.1").caller;
  const auto refused = [&](const Caller& caller, std::string_view session, std::string_view parent, bool peek) {
    Check check;
    check.session = session;
    check.parent_session = parent;
    check.peek = peek;
    return access.believe(caller, std::nullopt, check).has_value();
  };
  EXPECT_FALSE(refused(other, "s", "", true));
  EXPECT_FALSE(refused(other, "", "t", true));
  EXPECT_FALSE(refused(mine, "s", "t", false)) << "the first that uses them owns them";
  EXPECT_FALSE(refused(mine, "", "s", false));
  EXPECT_TRUE(refused(other, "", "s", false));
  EXPECT_TRUE(refused(other, "", "t", true)) << "a peek is refused as well";
}

TEST_F(AccessTest, ATokenIsGoodUntilItIsRevokedOrExpires) {
  const Access access = make(Auth::kRequired);
  Admission kept = access.by_token(token(Role::kAgent, "A"), "10.0.0.1");
  ASSERT_FALSE(kept.refusal);
  EXPECT_TRUE(access.still_good(kept.caller, clock.now()));
  const std::string other = token(Role::kAgent, "B");
  Admission gone = access.by_token(other, "10.0.0.1");
  EXPECT_TRUE(access.still_good(kept.caller, clock.now())) << "another token was made";
  for (const state::Token& each : database->tokens()) {
    if (each.agent != "B") continue;
    ASSERT_TRUE(database->revoke_token(each.id, "t", clock.wall(clock.now())));
  }
  EXPECT_FALSE(access.still_good(gone.caller, clock.now()));
  EXPECT_TRUE(access.still_good(kept.caller, clock.now()));
  kept.caller.expires = clock.wall(clock.now()) + 1s;
  EXPECT_TRUE(access.still_good(kept.caller, clock.now()));
  EXPECT_FALSE(access.still_good(kept.caller, clock.now() + 1s));
}

TEST_F(AccessTest, MetricsAreOpenToLoopbackAlone) {
  const Access access = make(Auth::kLocal);
  EXPECT_EQ(outcome(access.reads_metrics(OwnedRequest(Headers{{"Host", "localhost:7070"}}))), "admitted");
  EXPECT_EQ(outcome(access.reads_metrics(OwnedRequest(Headers{{"Host", "evil.com"}}))), "403 bad_host");
  EXPECT_EQ(outcome(access.reads_metrics(OwnedRequest(Headers{{"Host", "10.0.0.1"}}, OwnedRequest::remote()))),
            "401 unauthorized");
  EXPECT_EQ(outcome(access.reads_metrics(OwnedRequest(bearer(token(Role::kViewer)), OwnedRequest::remote()))),
            "admitted");
  Access closed(*database, {.auth = Auth::kLocal, .hosts = {}, .metrics_open = false}, clock);
  EXPECT_EQ(outcome(closed.reads_metrics(OwnedRequest(Headers{{"Host", "localhost"}}))), "401 unauthorized");
}

class SignInTest : public AccessTest {
 protected:
  // The cookie a browser would send back.
  static std::string cookie_of(const std::string& set_cookie) {
    const std::size_t begin = std::string("Set-Cookie: ").size();
    return set_cookie.substr(begin, set_cookie.find(';') - begin);
  }
  Access access = make(Auth::kLocal);
  OwnedRequest browser{Headers{{"Host", "localhost:7070"}}};
};

TEST_F(SignInTest, ACodeIsGoodOnceAndBecomesASession) {
  const std::string code = access.new_code();
  const auto cookie = access.sign_in(code, browser);
  ASSERT_TRUE(cookie.has_value());
  EXPECT_THAT(*cookie, HasSubstr("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict\r\n"));
  EXPECT_FALSE(access.sign_in(code, browser)) << "once";
  const std::string sent = "theme=dark; " + cookie_of(*cookie) + "; x=y";
  EXPECT_EQ(outcome(access.manages(OwnedRequest(Headers{{"Host", "localhost:7070"}, {"Cookie", sent}}), false)),
            "admitted");
  EXPECT_EQ(
      outcome(access.manages(
          OwnedRequest(Headers{{"Host", "localhost:7070"}, {"Cookie", sent}, {"Origin", "http://localhost:7070"}}),
          true)),
      "admitted");
}

TEST_F(SignInTest, ASessionChangesNothingWithoutItsOwnOriginAndHost) {
  const std::string cookie = cookie_of(*access.sign_in(access.new_code(), browser));
  EXPECT_EQ(outcome(access.manages(OwnedRequest(Headers{{"Host", "localhost:7070"}, {"Cookie", cookie}}), true)),
            "403 bad_origin");
  EXPECT_EQ(
      outcome(access.manages(
          OwnedRequest(Headers{{"Host", "localhost:7070"}, {"Cookie", cookie}, {"Origin", "http://localhost:3000"}}),
          true)),
      "403 bad_origin");
  EXPECT_EQ(outcome(access.manages(OwnedRequest(Headers{{"Host", "evil.com"}, {"Cookie", cookie}}), false)),
            "403 bad_host");
}

TEST_F(SignInTest, CodesAndSessionsExpire) {
  const std::string code = access.new_code();
  const std::string cookie = cookie_of(*access.sign_in(access.new_code(), browser));
  clock.advance(10min);
  EXPECT_FALSE(access.sign_in(code, browser));
  const OwnedRequest signed_in(Headers{{"Host", "localhost"}, {"Cookie", cookie}});
  clock.advance(12h - 10min - 1ns);
  EXPECT_EQ(outcome(access.manages(signed_in, false)), "admitted");
  clock.advance(1ns);
  EXPECT_EQ(outcome(access.manages(signed_in, false)), "401 unauthorized");
}

TEST_F(SignInTest, SigningOutEndsTheSession) {
  const std::string cookie = cookie_of(*access.sign_in(access.new_code(), browser));
  const OwnedRequest signed_in(Headers{{"Host", "localhost"}, {"Cookie", cookie}});
  access.sign_out(signed_in);
  EXPECT_EQ(outcome(access.manages(signed_in, false)), "401 unauthorized");
}

TEST_F(SignInTest, OnlyTheNewestHundredCodesCount) {
  const std::string first = access.new_code();
  const std::string second = access.new_code();
  for (int i = 0; i < 99; ++i) (void)access.new_code();
  EXPECT_FALSE(access.sign_in(first, browser));
  EXPECT_TRUE(access.sign_in(second, browser));
}

TEST_F(SignInTest, GuessingIsCountedAndTlsMakesTheCookieSecure) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(access.sign_in("guess", browser));
  EXPECT_EQ(outcome(access.by_token("bad", "127.0.0.1")), "429 too_many_attempts");
  EXPECT_FALSE(access.sign_in(access.new_code(), OwnedRequest(Headers{{"Host", "evil.com"}})));
  net::Peer peer = OwnedRequest::local();
  peer.tls = true;
  const auto cookie = access.sign_in(access.new_code(), OwnedRequest(Headers{{"Host", "localhost"}}, peer));
  ASSERT_TRUE(cookie);
  EXPECT_THAT(*cookie, HasSubstr("; Secure\r\n"));
}

TEST_F(SignInTest, ConcurrentSignInsWithOneCodeLetOneIn) {
  const std::string code = access.new_code();
  std::atomic<int> in{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { in += access.sign_in(code, browser).has_value() ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(in, 1);
}

class AdminTokenTest : public testing::Test {
 protected:
  std::string secret() {
    std::string text = test::read_bytes(folder.file("admin.token"));
    EXPECT_TRUE(text.ends_with('\n'));
    text.pop_back();
    return text;
  }
  std::string ensure() {
    auto path = ensure_admin_token(*database, folder.path().string(), kNow);
    EXPECT_TRUE(path.has_value()) << (path ? "" : path.error().message);
    return path ? *path : "";
  }
  static constexpr Nanos kNow = 1'000'000s;
  test::TempFolder folder;
  std::unique_ptr<state::Database> database{std::move(*state::Database::open(":memory:"))};
};

TEST_F(AdminTokenTest, IsMadeOnceAndForItsOwnerAlone) {
  EXPECT_EQ(ensure(), folder.file("admin.token"));
  struct stat about {};
  ASSERT_EQ(::stat(folder.file("admin.token").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  const std::string first = secret();
  ASSERT_TRUE(database->identify(first, kNow));
  EXPECT_EQ(database->identify(first, kNow)->role, state::Role::kAdmin);
  ASSERT_EQ(::chmod(folder.file("admin.token").c_str(), 0644), 0);
  ensure();
  EXPECT_EQ(secret(), first);
  EXPECT_EQ(database->tokens().size(), 1U);
  ASSERT_EQ(::stat(folder.file("admin.token").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
}

TEST_F(AdminTokenTest, ALostFileIsReplacedAndItsTokenRevoked) {
  ensure();
  const std::string first = secret();
  std::filesystem::remove(folder.file("admin.token"));
  ensure();
  EXPECT_NE(secret(), first);
  EXPECT_TRUE(database->identify(secret(), kNow));
  EXPECT_FALSE(database->identify(first, kNow));
  EXPECT_EQ(database->tokens().size(), 1U);
  test::write_bytes(folder.file("admin.token"), "hg_something else\n");
  ensure();
  EXPECT_TRUE(database->identify(secret(), kNow));
}

TEST_F(AdminTokenTest, AFileThatCannotBeWrittenLeavesNoToken) {
  auto path = ensure_admin_token(*database, "/nowhere/at/all", kNow);
  ASSERT_FALSE(path.has_value());
  EXPECT_THAT(path.error().message, HasSubstr("/nowhere/at/all/admin.token"));
  EXPECT_TRUE(database->tokens().empty());
}

}  // namespace
}  // namespace headgate::service
