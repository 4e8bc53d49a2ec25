#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <regex>

#include "net/http.h"
#include "support/sessions.h"

namespace headgate::net {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Says what it was asked, so that the answer shows what was understood.
class HttpEcho final : public HttpHandler {
 public:
  void handle(const HttpRequest& request, HttpReply& reply) noexcept override {
    ++count;
    now = request.now;
    ip = request.peer->ip;
    if (request.path == "/later") {
      later.push_back(reply.later());
      return;
    }
    if (request.path == "/silent") return;
    std::string text(to_string(request.method));
    for (const std::string_view part : {request.path, request.query, request.header("x-test"), request.body}) {
      text += '|';
      text += part;
    }
    HttpAnswer answer;
    answer.content_type = "text/plain";
    answer.body = request.path == "/large" ? large : text;
    if (request.path == "/none") {
      answer.status = 204;
      answer.content_type = {};
    }
    reply.send(answer);
  }
  std::vector<std::shared_ptr<LaterReply>> later;
  std::string large;
  std::string ip;
  int count = 0;
  Nanos now{0};
};

Peer peer() {
  Peer peer;
  peer.ip = "10.1.2.3";
  return peer;
}

std::string without_dates(const std::string& text) {
  static const std::regex date("Date: [^\r]*\r\n");
  return std::regex_replace(text, date, "");
}

class HttpSession : public ::testing::Test {
 protected:
  std::string ask(std::string_view text) {
    hand.receive(text);
    return without_dates(hand.take());
  }
  std::string refusal(std::string_view text) {
    echo.count = 0;
    test::Hand fresh(make_http_session(echo, peer(), limits));
    fresh.receive(text);
    EXPECT_TRUE(fresh.closed) << text;
    test::Hand slow(make_http_session(echo, peer(), limits));
    slow.receive_bytewise(text);
    EXPECT_EQ(without_dates(slow.sent), without_dates(fresh.sent)) << text;
    EXPECT_EQ(echo.count, 0) << text;
    return without_dates(fresh.take());
  }

  HttpEcho echo;
  HttpLimits limits;
  test::Hand hand{make_http_session(echo, peer(), limits)};
};

std::string ok(const std::string& body, const std::string& more = "") {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         more + "\r\n" + body;
}

TEST_F(HttpSession, AnswersARequest) {
  EXPECT_EQ(ask("GET /a/b?x=1&y=2 HTTP/1.1\r\nHost: h\r\nX-Test:  v w \r\n\r\n"), ok("GET|/a/b|x=1&y=2|v w|"));
  EXPECT_FALSE(hand.closed);
  EXPECT_EQ(echo.ip, "10.1.2.3");
}

// The handler learns who the peer is from "/known".
class Knowing final : public HttpHandler {
 public:
  void handle(const HttpRequest& request, HttpReply& reply) override {
    if (request.path == "/known") reply.standing = Standing::kKnown;
    reply.send({});
  }
};

TEST(HttpSignIn, AConnectionThatHasNotShownWhoItIsInTimeIsClosed) {
  using namespace std::chrono_literals;
  Knowing handler;
  const HttpLimits limits{.sign_in = 10s};
  struct Case {
    std::string_view path;
    std::string certificate;
    bool closed;
  };
  for (const Case& each : {Case{"", "", true}, {"/open", "", true}, {"/known", "", false}, {"/open", "A", false}}) {
    Peer of = peer();
    of.certificate = each.certificate;
    const auto session = make_http_session(handler, of, limits);
    session->tick(1s);
    for (const Nanos now : {2s, 5s, 10s}) {
      if (!each.path.empty()) session->receive("GET " + std::string(each.path) + " HTTP/1.1\r\nHost: h\r\n\r\n", now);
      session->tick(now);
      ASSERT_FALSE(session->close);
    }
    session->tick(11s);
    EXPECT_EQ(session->close, each.closed) << each.path;
  }
}

TEST(HttpSignIn, WhoIsAlwaysInTheMiddleOfARequestIsClosedAfterIt) {
  using namespace std::chrono_literals;
  Knowing handler;
  const auto session = make_http_session(handler, peer(), {.sign_in = 10s});
  session->receive("GET /open HTTP/1.1\r\nHost: h\r\n\r\nGET /open ", 1s);
  session->tick(12s);
  EXPECT_FALSE(session->close);
  session->receive("HTTP/1.1\r\nHost: h\r\n\r\nGET /open ", 12s);
  EXPECT_TRUE(session->close);
}

TEST(HttpSignIn, WhoShowsItWithTheLastRequestStays) {
  using namespace std::chrono_literals;
  Knowing handler;
  const auto session = make_http_session(handler, peer(), {.sign_in = 10s});
  session->receive("GET /known ", 1s);
  session->receive("HTTP/1.1\r\nHost: h\r\n\r\n", 12s);
  session->tick(13s);
  EXPECT_FALSE(session->close);
}

TEST_F(HttpSession, AnswersCarryADate) {
  hand.receive("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(std::regex_search(hand.sent, std::regex("\r\nDate: [A-Z][a-z]{2}, \\d\\d [A-Z][a-z]{2} \\d{4} "
                                                      "\\d\\d:\\d\\d:\\d\\d GMT\r\n")))
      << hand.sent;
}

TEST_F(HttpSession, PassesTheTimeOfTheReadOn) {
  hand.receive("GET / HTTP/1.1\r\nHost: h\r\n\r\n", Nanos{77});
  EXPECT_EQ(echo.now, Nanos{77});
}

TEST_F(HttpSession, AnswersPipelinedRequestsInOrderFromOneRead) {
  const std::string three =
      "POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"
      "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"
      "POST /3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n2;e=1\r\nyz\r\n0\r\n\r\n";
  EXPECT_EQ(ask(three), ok("POST|/1|||ab") + ok("GET|/2|||") + ok("POST|/3|||xyz"));
  EXPECT_FALSE(hand.session().midway());
}

TEST_F(HttpSession, HoldsNothingBetweenRequests) {
  hand.receive("GET /1 HTTP/1.1\r\nHo");
  EXPECT_TRUE(hand.session().midway());
  EXPECT_EQ(ask("st: h\r\n\r\n"), ok("GET|/1|||"));
  EXPECT_FALSE(hand.session().midway());
}

TEST_F(HttpSession, OverlooksEmptyLinesBeforeARequest) {
  EXPECT_EQ(ask("\r\n\r\nGET /1 HTTP/1.1\r\nHost: h\r\n\r\n"), ok("GET|/1|||"));
}

TEST_F(HttpSession, UnderstandsAProxysTarget) {
  EXPECT_EQ(ask("GET http://h:1/a?q HTTP/1.1\r\nHost: h\r\n\r\n"), ok("GET|/a|q||"));
  EXPECT_EQ(ask("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n"), ok("GET|/|||"));
  EXPECT_EQ(ask("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), ok("OPTIONS|*|||"));
}

TEST_F(HttpSession, LeavesTheBodyOfHeadOut) {
  EXPECT_EQ(ask("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n");
}

TEST_F(HttpSession, NoContentHasNoLength) {
  EXPECT_EQ(ask("GET /none HTTP/1.1\r\nHost: h\r\n\r\n"), "HTTP/1.1 204 No Content\r\n\r\n");
}

TEST_F(HttpSession, ClosesWhenAsked) {
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"),
            ok("GET|/|||", "Connection: close\r\n"));
  EXPECT_TRUE(hand.closed);
}

TEST_F(HttpSession, OldClientsMustAskToKeepTheConnection) {
  EXPECT_EQ(ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), ok("GET|/|||", "Connection: keep-alive\r\n"));
  EXPECT_FALSE(hand.closed);
  EXPECT_EQ(ask("GET / HTTP/1.0\r\n\r\n"), ok("GET|/|||", "Connection: close\r\n"));
  EXPECT_TRUE(hand.closed);
}

TEST_F(HttpSession, SaysContinueOnceBeforeABodyThatWaits) {
  EXPECT_EQ(ask("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"),
            "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(ask("a"), "");
  EXPECT_EQ(ask("b"), ok("PUT|/|||ab"));
}

TEST_F(HttpSession, SaysNoContinueForABodyThatIsThereOrTooLarge) {
  EXPECT_EQ(ask("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab"), ok("PUT|/|||ab"));
  EXPECT_THAT(
      refusal("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n").substr(0, 12),
      "HTTP/1.1 413");
}

struct Bad {
  const char* text;
  int status;
};

TEST_F(HttpSession, RefusesWhatCouldBeReadInTwoWays) {
  const Bad cases[] = {
      {"GET / HTTP/1.1\r\n\r\n", 400},                        // no Host
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},  // two
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n", 400},  // blank before the colon
      {"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},                                // folded first line
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", 400},                   // folded
      {"GET / HTTP/1.1\r\nHost: h\r\nX:\r\n b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n \r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: h\n\n", 400},  // bare line feeds
      {"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n: h\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET / x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET /\r\nHost: h\r\n\r\n", 400},
      {" GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
      {"GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET / HTTPS/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n", 417},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\na", 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\na", 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", 400},
  };
  for (const Bad& bad : cases) {
    const std::string answer = refusal(bad.text);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + std::to_string(bad.status))) << bad.text;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(answer, HasSubstr("{\"error\":\""));
  }
}

TEST_F(HttpSession, RefusesANulInAHeader) {
  using namespace std::string_literals;
  EXPECT_THAT(refusal("GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"s), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpSession, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("GET / HTTP/1.1\r\n\r\n"),
              HasSubstr(R"({"error":"bad_request","message":"exactly one Host header is needed"})"));
}

TEST_F(HttpSession, RefusesAsProblemJsonOnceTheHeadAsksForIt) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nAccept: application/problem+json\r\n";
  const std::string answer = refusal(head + "Content-Length: 1048577\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/problem+json\r\n"));
  EXPECT_THAT(answer, HasSubstr(R"({"type":"about:blank","title":"Content Too Large","status":413,)"));
  EXPECT_THAT(refusal(head + "Transfer-Encoding: chunked\r\n\r\n100001\r\na"), HasSubstr(R"("status":413,)"));
  EXPECT_THAT(refusal(head + "Accept : x\r\n\r\n"), HasSubstr("Content-Type: application/json\r\n"))
      << "a head that is refused says nothing reliable";
}

TEST_F(HttpSession, BoundsTheHead) {
  limits.max_head = 100;
  EXPECT_THAT(refusal("GET /" + std::string(100, 'a') + " HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 414"));
  EXPECT_THAT(refusal("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(100, 'a') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431"));
  limits.max_headers = 2;
  EXPECT_THAT(refusal("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\nC: d\r\n\r\n"), StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpSession, TakesAHeadOfExactlyTheLimit) {
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  limits.max_head = head.size();
  test::Hand exact(make_http_session(echo, peer(), limits));
  exact.receive(head + head);
  EXPECT_EQ(echo.count, 2);
}

TEST_F(HttpSession, BoundsChunkExtensionsAndTrailers) {
  limits.max_head = 200;
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(refusal(head + "1;" + std::string(300, 'e') + "\r\nx\r\n0\r\n\r\n"), StartsWith("HTTP/1.1 431"));
  std::string many = head;
  for (int i = 0; i < 30; ++i) many += "1;extension\r\nx\r\n";
  EXPECT_THAT(refusal(many), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(refusal(head + "0\r\nX: " + std::string(300, 't') + "\r\n\r\n"), StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpSession, TakesALargeBodyInPieces) {
  const std::string body(300'000, 'x');
  const std::string text = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + body;
  for (std::size_t at = 0; at < text.size(); at += 1000) hand.receive(std::string_view(text).substr(at, 1000));
  EXPECT_EQ(without_dates(hand.take()), ok("POST|/p|||" + body));
}

TEST_F(HttpSession, AHandlerThatSaysNothingIsAnError) {
  EXPECT_THAT(ask("GET /silent HTTP/1.1\r\nHost: h\r\n\r\n"), StartsWith("HTTP/1.1 500"));
}

TEST_F(HttpSession, ALaterReplyHoldsBackWhatFollows) {
  EXPECT_EQ(ask("GET /later HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"), "");
  EXPECT_TRUE(hand.session().paused);
  EXPECT_TRUE(hand.session().busy());
  EXPECT_FALSE(hand.session().midway());
  EXPECT_EQ(ask("GET /3 HTTP/1.1\r\nHost: h\r\n\r\n"), "");
  HttpAnswer answer;
  answer.content_type = "text/plain";
  answer.body = "now";
  echo.later[0]->send(answer);
  echo.later[0]->send(answer);  // only the first counts
  hand.run_posted();
  EXPECT_EQ(without_dates(hand.take()), ok("now") + ok("GET|/2|||") + ok("GET|/3|||"));
  EXPECT_FALSE(hand.session().paused);
  EXPECT_FALSE(hand.session().busy());
}

TEST_F(HttpSession, ALaterReplyThatIsDroppedIsUnavailable) {
  ask("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
  echo.later.clear();
  hand.run_posted();
  EXPECT_THAT(hand.sent, StartsWith("HTTP/1.1 503"));
  EXPECT_FALSE(hand.closed);
}

TEST_F(HttpSession, ALaterReplyKnowsThatItsAskerIsGone) {
  ask("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_FALSE(echo.later[0]->abandoned());
  hand.finish();
  EXPECT_TRUE(echo.later[0]->abandoned());
  EXPECT_FALSE(hand.closed);  // it may still be reading
  HttpAnswer answer;
  echo.later[0]->send(answer);
  hand.run_posted();
  EXPECT_THAT(hand.sent, StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(hand.closed);
}

TEST_F(HttpSession, ALaterReplyOutlivesItsSession) {
  auto link = std::make_shared<test::HandLink>();
  std::unique_ptr<Session> session = make_http_session(echo, peer());
  session->link = link;
  session->receive("GET /later HTTP/1.1\r\nHost: h\r\n\r\n", Nanos{1});
  session.reset();
  EXPECT_TRUE(echo.later[0]->abandoned());
  echo.later[0]->send({});
}

TEST_F(HttpSession, StopsAnsweringWhileTooMuchWaits) {
  echo.large.assign(700'000, 'x');
  std::string many;
  for (int i = 0; i < 5; ++i) many += "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
  std::unique_ptr<Session> session = make_http_session(echo, peer());
  many.append(Session::kSlack, '\0');
  session->receive(std::string_view(many).substr(0, many.size() - Session::kSlack), Nanos{1});
  EXPECT_EQ(echo.count, 2);
  EXPECT_TRUE(session->paused);
  EXPECT_FALSE(session->midway());
  session->out.clear();
  session->receive({}, Nanos{2});
  EXPECT_EQ(echo.count, 4);
  session->out.clear();
  session->receive({}, Nanos{3});
  EXPECT_EQ(echo.count, 5);
  EXPECT_FALSE(session->paused);
}

TEST_F(HttpSession, DrainingClosesIdleOnesAndAnswersTheOthers) {
  hand.session().drain();
  EXPECT_TRUE(hand.session().close);
  test::Hand half(make_http_session(echo, peer()));
  half.receive("GET / HTTP/1.1\r\n");
  half.session().drain();
  EXPECT_FALSE(half.session().close);
  half.receive("Host: h\r\n\r\n");
  EXPECT_EQ(without_dates(half.take()), ok("GET|/|||", "Connection: close\r\n"));
  EXPECT_TRUE(half.closed);
}

TEST_F(HttpSession, TellsASlowSender) {
  hand.receive("GET / HTTP/1.1\r\n");
  hand.session().timed_out();
  EXPECT_THAT(hand.session().out, StartsWith("HTTP/1.1 408"));
  EXPECT_TRUE(hand.session().close);
}

class Taken final : public Session {
 public:
  void receive(std::string_view bytes, Nanos /*now*/) override { out += "<" + std::string(bytes) + ">"; }
  void drain() override { close = true; }
  [[nodiscard]] bool midway() const noexcept override { return false; }
};

class Taker final : public HttpHandler {
  void handle(const HttpRequest& /*request*/, HttpReply& reply) noexcept override {
    reply.take_over("HTTP/1.1 101 Switching Protocols\r\n\r\n", std::make_unique<Taken>());
  }
};

TEST(HttpTakeOver, GivesTheRestToTheSuccessor) {
  Taker taker;
  test::Hand hand(make_http_session(taker, peer()));
  hand.receive("GET / HTTP/1.1\r\nHost: h\r\n\r\nrest");
  EXPECT_EQ(hand.take(), "HTTP/1.1 101 Switching Protocols\r\n\r\n<rest>");
  hand.receive("more");
  EXPECT_EQ(hand.take(), "<more>");
}

TEST(HttpText, DecodesPercentsStrictly) {
  std::string out;
  EXPECT_TRUE(percent_decoded("a%41%2f+", false, out));
  EXPECT_EQ(out, "aA/+");
  EXPECT_TRUE(percent_decoded("a+b", true, out));
  EXPECT_EQ(out, "a b");
  for (const char* bad : {"%", "%4", "%4g", "%00", "a%%"}) EXPECT_FALSE(percent_decoded(bad, false, out)) << bad;
}

TEST(HttpText, FindsTheFirstQueryParameter) {
  bool found = false;
  EXPECT_EQ(query_value("a=1&b=x%20y+z&a=2&c", "b", &found), "x y z");
  EXPECT_TRUE(found);
  EXPECT_EQ(query_value("a=1&a=2", "a"), "1");
  EXPECT_EQ(query_value("a=1&c", "c", &found), "");
  EXPECT_TRUE(found);
  EXPECT_EQ(query_value("a=1", "b", &found), "");
  EXPECT_FALSE(found);
  EXPECT_EQ(query_value("&&=x&a%62=1", "ab", &found), "1");
}

TEST(HttpText, FindsHeadersInAnyCase) {
  const Header headers[] = {{"X-One", "1"}, {"x-ONE", "2"}};
  HttpRequest request;
  request.headers = headers;
  EXPECT_EQ(request.header("x-one"), "1");
  EXPECT_EQ(request.count("x-one"), 2);
  EXPECT_EQ(request.header("x-two"), "");
}

// Requests out of parts that are often right, cut anywhere.
RC_GTEST_PROP(HttpSessionProperty, PiecesMakeNoDifference, ()) {
  const std::vector<std::string> parts{
      "GET /a HTTP/1.1\r\n",
      "POST /b?c HTTP/1.1\r\n",
      "HEAD / HTTP/1.0\r\n",
      "Host: h\r\n",
      "Content-Length: 3\r\n",
      "Content-Length: 0\r\n",
      "Transfer-Encoding: chunked\r\n",
      "X-Test: v\r\n",
      "\r\n",
      "abc",
      "3\r\nxyz\r\n",
      "0\r\n\r\n",
      "0\r\nT: v\r\n\r\n",
      "Connection: close\r\n",
      "\n",
      " ",
      "GET / HTTP/3.0\r\n",
      "\r",
      "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
      "POST /q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"};
  std::string text;
  for (const std::size_t index :
       *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, parts.size()))) {
    text += parts[index];
  }
  HttpEcho echo;
  test::Hand whole(make_http_session(echo, peer()));
  whole.receive(text);
  test::Hand bytewise(make_http_session(echo, peer()));
  bytewise.receive_bytewise(text);
  test::Hand cut(make_http_session(echo, peer()));
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t size = std::min<std::size_t>(*rc::gen::inRange<std::size_t>(1, 40), rest.size());
    cut.receive(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  RC_ASSERT(without_dates(whole.sent) == without_dates(bytewise.sent));
  RC_ASSERT(without_dates(whole.sent) == without_dates(cut.sent));
  RC_ASSERT(whole.closed == bytewise.closed);
  RC_ASSERT(whole.closed == cut.closed);
}

}  // namespace
}  // namespace headgate::net
