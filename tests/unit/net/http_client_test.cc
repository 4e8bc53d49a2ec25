// The HTTP client against a real server over real sockets. TLS is tested end to end, by tests/cli/client_test.py.
#include "net/http_client.h"

#include <gtest/gtest.h>

#include <sys/eventfd.h>

#include "base/descriptor.h"
#include "support/tiny_http.h"

namespace headgate::net {
namespace {

using namespace std::chrono_literals;
using Outcome = HttpClient::Outcome;

constexpr HttpClient::Bounds kPatient{20s, 20s, 1000};

HttpClient client_of(const std::string& url) { return *HttpClient::open({*parse_http_url(url), "", ""}); }

TEST(HttpUrl, IsTakenApart) {
  const HttpUrl whole = *parse_http_url("https://me:p%40ss@[::1]:8443/a/b?c=d#e");
  EXPECT_TRUE(whole.tls);
  EXPECT_EQ(whole.user, "me:p%40ss");
  EXPECT_EQ(whole.authority, "[::1]:8443");
  EXPECT_EQ(whole.host, "::1");
  EXPECT_EQ(whole.port, "8443");
  EXPECT_EQ(whole.target, "/a/b?c=d");
  const HttpUrl bare = *parse_http_url("http://example.com?x");
  EXPECT_FALSE(bare.tls);
  EXPECT_EQ(bare.port, "80");
  EXPECT_EQ(bare.target, "/?x");
}

TEST(HttpUrl, SaysWhatIsWrong) {
  const auto message = [](std::string_view text) { return parse_http_url(text).error().message; };
  EXPECT_EQ(message("ftp://x"), "must begin with http:// or https://");
  EXPECT_EQ(message("http://"), "must name a host");
  EXPECT_EQ(message("http://[]:1"), "must name a host");
  EXPECT_EQ(message("http://a b"), "must not hold blanks or control characters");
  for (const char* url : {"http://x:0", "http://x:65536", "http://x:", "http://x:1a", "http://x:-1"}) {
    EXPECT_EQ(message(url), "must have a port between 1 and 65535") << url;
  }
}

TEST(HttpUrl, OnlyAddressesOfThisMachineAreLoopback) {
  for (const char* url : {"http://localhost", "http://127.0.0.1:1", "http://127.9.9.9/x", "http://[::1]:7070"}) {
    EXPECT_TRUE(is_loopback(*parse_http_url(url))) << url;
  }
  for (const char* url :
       {"http://127.example.com", "http://[::2]", "http://localhost.example.com", "http://10.0.0.1"}) {
    EXPECT_FALSE(is_loopback(*parse_http_url(url))) << url;
  }
}

TEST(HttpClientThread, SendsTheUrlItsUserAndTheBodyOverOneConnection) {
  test::TinyHttp server({200, 404});
  std::string url = server.url();
  HttpClient client = client_of(url.insert(url.find("127."), "me:p%40ss@"));
  HttpClient::Answer answer = client.call({"POST", "/more?x=1", {"X-Test: yes"}, "hello"}, kPatient);
  EXPECT_EQ(answer.outcome, Outcome::kAnswered) << answer.why;
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "ok");
  EXPECT_EQ(client.header("content-length"), "2");
  answer = client.call({"GET", "", {}, {}}, kPatient);
  EXPECT_EQ(answer.status, 404);
  const auto requests = server.wait_for(2);
  EXPECT_TRUE(requests[0].head.starts_with("POST /hook/more?x=1 HTTP/1.1\r\n")) << requests[0].head;
  EXPECT_EQ(requests[0].header("Authorization"), "Basic bWU6cEBzcw==");
  EXPECT_EQ(requests[0].header("X-Test"), "yes");
  EXPECT_EQ(requests[0].body, "hello");
  EXPECT_TRUE(requests[1].head.starts_with("GET /hook HTTP/1.1\r\n")) << requests[1].head;
  EXPECT_EQ(requests[1].header("Content-Length"), "");
}

TEST(HttpClientThread, SaysWhyThereIsNoAnswer) {
  test::TinyHttp silent({0});
  HttpClient client = client_of(silent.url());
  HttpClient::Answer answer = client.call({"GET", "", {}, {}}, {20s, 1ms, 1000});
  EXPECT_EQ(answer.outcome, Outcome::kFailed);
  EXPECT_EQ(answer.why, "no answer in time");
  const base::Descriptor stop(::eventfd(1, EFD_CLOEXEC));
  answer = client.call({"GET", "", {}, {}}, kPatient, {{stop.get()}, [] { return false; }});
  EXPECT_EQ(answer.outcome, Outcome::kGivenUp);
  answer = client_of("http://127.0.0.1:1").call({"GET", "/", {}, {}}, kPatient);
  EXPECT_EQ(answer.outcome, Outcome::kRefused);
  EXPECT_EQ(answer.why, "connection refused");
  answer = client_of("http://localhost:1").call({"GET", "/", {}, {}}, kPatient);
  EXPECT_EQ(answer.outcome, Outcome::kRefused);
  answer = client_of("http://no-such-host.invalid").call({"GET", "/", {}, {}}, kPatient);
  EXPECT_EQ(answer.outcome, Outcome::kFailed);
  EXPECT_TRUE(answer.why.starts_with("no-such-host.invalid: ")) << answer.why;
}

TEST(HttpClientThread, AnAnswerOverItsBoundHasAStatus) {
  test::TinyHttp server({503});
  const HttpClient::Answer answer = client_of(server.url()).call({"GET", "", {}, {}}, {20s, 20s, 1});
  EXPECT_EQ(answer.outcome, Outcome::kTooLong);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "");
}

TEST(HttpClientThread, ConnectsToTheGivenAddressInPlaceOfTheHost) {
  test::TinyHttp server({200});
  HttpUrl url = *parse_http_url(server.url());
  url.host = "no-such-host.invalid";
  EXPECT_EQ(HttpClient::open({url, "", "127.0.0.1"})->call({"GET", "", {}, {}}, kPatient).status, 200);
}

}  // namespace
}  // namespace headgate::net
