#include "net/grpc.h"

#include <gtest/gtest.h>

#include "net/grpc_text.h"
#include "support/h2_client.h"

namespace headgate::net {
namespace {

using namespace std::chrono_literals;
using test::H2Client;

// Answers with what it was asked, or with the status that the path names.
class Mirror final : public GrpcHandler {
 public:
  void call(const GrpcCall& call, GrpcAnswer& answer) noexcept override {
    ++calls;
    ip = call.peer->ip;
    for (const Header& header : call.metadata) metadata[std::string(header.name)] = header.value;
    if (call.path == "/test.Mirror/Fail") {
      answer.status = GrpcStatus::kPermissionDenied;
      answer.text = "100 % not für you\n";
      return;
    }
    if (call.path == "/test.Mirror/Stay") {
      answer.stays = true;
      answer.last = "good-bye";
    }
    answer.message = call.message;
    for (int i = 1; i < repeat; ++i) answer.message += call.message;
  }
  int calls = 0;
  int repeat = 1;
  std::string ip;
  std::map<std::string, std::string> metadata;
};

std::string framed(std::string_view message) {
  const auto prefix = grpc_prefix(static_cast<std::uint32_t>(message.size()));
  return std::string(prefix.begin(), prefix.end()).append(message);
}

struct GrpcSession : ::testing::Test {
  Mirror mirror;
  GrpcLimits limits;
  std::unique_ptr<H2Client> client;
  std::unique_ptr<Session> session;
  Nanos now{1s};

  GrpcSession() { begin(); }
  void begin() {
    client = std::make_unique<H2Client>();
    Peer peer;
    peer.ip = "192.0.2.1";
    session = make_grpc_session(mirror, peer, limits);
  }
  // Until neither has anything to say.
  void exchange() {
    for (int i = 0; i < 1000; ++i) {
      const std::string bytes = client->out();
      if (!bytes.empty()) session->receive(bytes, now);
      const bool said = !session->out.empty();
      client->in(std::exchange(session->out, {}));
      if (said) session->sent();
      if (bytes.empty() && !said) return;
    }
  }
  H2Client::Reply& ask(std::string body, H2Client::Headers extra = {}, const std::string& path = "/test.Mirror/Say") {
    H2Client::Headers headers = H2Client::grpc_headers(path);
    for (auto& each : extra) {
      const auto same =
          std::find_if(headers.begin(), headers.end(), [&](const auto& h) { return h.first == each.first; });
      if (same == headers.end()) {
        headers.push_back(each);
      } else {
        same->second = each.second;
      }
    }
    const std::int32_t id = client->request(headers, std::move(body));
    exchange();
    return client->replies[id];
  }
};

TEST_F(GrpcSession, AnswersAUnaryCallWithMessageAndTrailers) {
  const auto& reply = ask(framed("hello"), {{"x-trace", "7"}});
  EXPECT_EQ(reply.headers.at(":status"), "200");
  EXPECT_EQ(reply.headers.at("content-type"), "application/grpc");
  EXPECT_EQ(reply.headers.at("grpc-status"), "0");
  EXPECT_EQ(reply.header_blocks, 2);
  EXPECT_EQ(reply.data, framed("hello"));
  EXPECT_TRUE(reply.ended);
  EXPECT_TRUE(reply.closed);
  EXPECT_EQ(mirror.ip, "192.0.2.1");
  EXPECT_EQ(mirror.metadata.at("x-trace"), "7");
  EXPECT_EQ(mirror.metadata.count(":path"), 0U);
}

TEST_F(GrpcSession, AnswersAnEmptyMessageToo) { EXPECT_EQ(ask(framed("")).data, framed("")); }

TEST_F(GrpcSession, UnderstandsTheSameByteByByte) {
  const std::int32_t id = client->request(H2Client::grpc_headers("/test.Mirror/Say"), framed("slowly"));
  for (const char& byte : client->out()) session->receive({&byte, 1}, now);
  client->in(std::exchange(session->out, {}));
  exchange();
  EXPECT_EQ(client->replies[id].data, framed("slowly"));
}

TEST_F(GrpcSession, PutsAMessageOfManyFramesTogether) {
  const std::string large(300'000, 'm');
  EXPECT_EQ(ask(framed(large)).data, framed(large));
}

TEST_F(GrpcSession, ServesManyCallsAtOnceAndManyInTurn) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 500; ++i) {
    ids.push_back(client->request(H2Client::grpc_headers("/test.Mirror/Say"), framed(std::to_string(i))));
  }
  exchange();
  for (int i = 0; i < 500; ++i)
    EXPECT_EQ(client->replies[ids[static_cast<std::size_t>(i)]].data, framed(std::to_string(i)));
  for (int i = 0; i < 500; ++i) EXPECT_EQ(ask(framed("again")).data, framed("again"));
}

TEST_F(GrpcSession, SaysWhatWentWrongInOneBlockOfHeaders) {
  const auto& reply = ask(framed("x"), {}, "/test.Mirror/Fail");
  EXPECT_EQ(reply.headers.at("grpc-status"), "7");
  EXPECT_EQ(reply.headers.at("grpc-message"), "100 %25 not f%C3%BCr you%0A");
  EXPECT_EQ(reply.header_blocks, 1);
  EXPECT_TRUE(reply.ended);
  EXPECT_EQ(reply.data, "");
}

TEST_F(GrpcSession, RefusesWhatIsNotGrpc) {
  EXPECT_EQ(ask(framed("x"), {{"content-type", "application/json"}}).headers.at(":status"), "415");
  EXPECT_EQ(ask(framed("x"), {{"content-type", "application/grpc-web"}}).headers.at(":status"), "415");
  EXPECT_EQ(ask(framed("x"), {{":method", "PUT"}}).headers.at(":status"), "405");
  EXPECT_EQ(mirror.calls, 0);
  EXPECT_EQ(ask(framed("x"), {{"content-type", "application/grpc+proto"}}).headers.at("grpc-status"), "0");
  EXPECT_EQ(ask(framed("x"), {{"content-type", "application/grpc;charset=utf-8"}}).headers.at("grpc-status"), "0");
}

TEST_F(GrpcSession, RefusesMessagesThatAreNotOneWholeMessage) {
  const auto status = [&](std::string body) { return ask(std::move(body)).headers.at("grpc-status"); };
  EXPECT_EQ(status(""), "13");
  EXPECT_EQ(status("\1\1"), "13");
  EXPECT_EQ(status(framed("hello").substr(0, 8)), "13") << "cut off";
  EXPECT_EQ(status(framed("one") + framed("two")), "12");
  std::string compressed = framed("x");
  compressed[0] = 1;
  EXPECT_EQ(status(compressed), "12");
  EXPECT_EQ(mirror.calls, 0);
}

TEST_F(GrpcSession, BoundsMessagesOneByOneAndTogether) {
  limits.max_message = 1000;
  limits.max_pending = 2500;
  begin();
  EXPECT_EQ(ask(framed(std::string(1000, 'x'))).headers.at("grpc-status"), "0");
  const auto& large = ask(framed(std::string(1001, 'x')));
  EXPECT_EQ(large.headers.at("grpc-status"), "8");
  EXPECT_TRUE(large.closed);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(client->request(H2Client::grpc_headers("/test.Mirror/Say"), std::string(1000, '\0'), true));
  }
  exchange();
  EXPECT_TRUE(client->replies[ids[0]].headers.empty());
  EXPECT_TRUE(client->replies[ids[1]].headers.empty());
  EXPECT_EQ(client->replies[ids[2]].headers.at("grpc-status"), "8");
  nghttp2_submit_rst_stream(client->h2(), 0, ids[0], NGHTTP2_CANCEL);
  EXPECT_EQ(ask(framed(std::string(900, 'x'))).headers.at("grpc-status"), "0") << "there is room again";
}

TEST_F(GrpcSession, BoundsHeaders) {
  limits.max_header_bytes = 2000;
  begin();
  EXPECT_EQ(ask(framed("x"), {{"x-large", std::string(3000, 'h')}}).headers.at("grpc-status"), "8");
  EXPECT_EQ(client->settings.at(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE), 2000U);
  EXPECT_EQ(ask(framed("x")).headers.at("grpc-status"), "0");
}

TEST_F(GrpcSession, HeadersOfTwiceTheBoundEndTheConnection) {
  limits.max_header_bytes = 2000;
  begin();
  EXPECT_FALSE(session->close);
  (void)ask(framed("x"), {{"x-large", std::string(5000, 'h')}});
  EXPECT_TRUE(session->close) << "a few bytes may stand for many kilobytes of headers";
}

TEST_F(GrpcSession, KeepsDeadlines) {
  EXPECT_EQ(ask(framed("x"), {{"grpc-timeout", "1S"}}).headers.at("grpc-status"), "0");
  EXPECT_EQ(ask(framed("x"), {{"grpc-timeout", "0n"}}).headers.at("grpc-status"), "4");
  EXPECT_EQ(ask(framed("x"), {{"grpc-timeout", "soon"}}).headers.at("grpc-status"), "13");
  H2Client::Headers headers = H2Client::grpc_headers("/test.Mirror/Say");
  const std::int32_t slow = client->request(headers, "", true);
  headers.emplace_back("grpc-timeout", "2S");
  const std::int32_t hasty = client->request(headers, "", true);
  exchange();
  now += 1900ms;
  session->tick(now);
  exchange();
  EXPECT_TRUE(client->replies[hasty].headers.empty());
  now += 100ms;
  session->tick(now);
  exchange();
  EXPECT_EQ(client->replies[hasty].headers.at("grpc-status"), "4");
  EXPECT_TRUE(client->replies[slow].headers.empty());
  now += 8s;
  session->tick(now);
  exchange();
  EXPECT_EQ(client->replies[slow].headers.at("grpc-status"), "4") << "no call takes longer than ten seconds to ask";
  EXPECT_EQ(mirror.calls, 1);
}

TEST_F(GrpcSession, ClosesOnAnythingButHttp2) {
  session->receive("GET / HTTP/1.1\r\nHost: x\r\n\r\n", now);
  EXPECT_TRUE(session->close);
  EXPECT_EQ(session->out, "");
}

TEST_F(GrpcSession, IsMidwayOnlyUntilItIsGreeted) {
  const std::string bytes = client->out();
  EXPECT_FALSE(session->midway());
  session->receive(std::string_view(bytes).substr(0, 10), now);
  EXPECT_TRUE(session->midway());
  session->receive(std::string_view(bytes).substr(10), now);
  EXPECT_FALSE(session->midway());
}

TEST_F(GrpcSession, DrainsWithoutLosingCalls) {
  const std::int32_t open =
      client->request(H2Client::grpc_headers("/test.Mirror/Say"), framed("half").substr(0, 6), true);
  exchange();
  session->drain();
  // Sent before the client has heard of it.
  const std::int32_t crossing = client->request(H2Client::grpc_headers("/test.Mirror/Say"), framed("crossing"));
  exchange();
  EXPECT_EQ(client->replies[crossing].data, framed("crossing"));
  ASSERT_EQ(client->goaways.size(), 2U);
  EXPECT_EQ(client->goaways[0].first, (1U << 31) - 1);
  EXPECT_EQ(client->goaways[1].first, crossing);
  EXPECT_EQ(client->goaways[1].second, static_cast<std::uint32_t>(NGHTTP2_NO_ERROR));
  EXPECT_FALSE(session->close) << "one call is still open";
  nghttp2_submit_rst_stream(client->h2(), 0, open, NGHTTP2_CANCEL);
  exchange();
  EXPECT_TRUE(session->close);
}

TEST_F(GrpcSession, ACallMayStayOpenUntilTheServerEnds) {
  auto& reply = ask(framed("hello"), {}, "/test.Mirror/Stay");
  EXPECT_EQ(reply.data, framed("hello"));
  EXPECT_FALSE(reply.ended);
  EXPECT_EQ(ask(framed("others go on")).data, framed("others go on"));
  now += 1h;
  session->tick(now);
  exchange();
  EXPECT_FALSE(reply.ended) << "nobody waits for it";
  session->drain();
  exchange();
  EXPECT_EQ(reply.data, framed("hello") + framed("good-bye"));
  EXPECT_TRUE(reply.ended);
  EXPECT_EQ(reply.headers.at("grpc-status"), "0");
  EXPECT_TRUE(session->close);
}

TEST_F(GrpcSession, ACallThatStaysEndsAtItsDeadline) {
  auto& reply = ask(framed("hello"), {{"grpc-timeout", "2S"}}, "/test.Mirror/Stay");
  session->tick(now + 1s);
  exchange();
  EXPECT_FALSE(reply.ended);
  session->tick(now + 2s);
  exchange();
  EXPECT_TRUE(reply.ended);
  EXPECT_EQ(reply.data, framed("hello"));
  EXPECT_EQ(reply.headers.at("grpc-status"), "4");
}

TEST_F(GrpcSession, ACallThatStaysMayBeGivenUp) {
  const std::int32_t id = client->request(H2Client::grpc_headers("/test.Mirror/Stay"), framed("hello"));
  exchange();
  nghttp2_submit_rst_stream(client->h2(), 0, id, NGHTTP2_CANCEL);
  exchange();
  EXPECT_TRUE(client->replies[id].closed);
  EXPECT_EQ(ask(framed("another")).data, framed("another")) << "in the place of the one that is gone";
  session->drain();
  exchange();
  EXPECT_TRUE(session->close);
}

TEST_F(GrpcSession, WhoWouldStayWhileTheServerEndsHearsTheLastWord) {
  session->drain();
  // Sent before the client has heard of it.
  const auto& reply = ask(framed("hello"), {}, "/test.Mirror/Stay");
  EXPECT_EQ(reply.data, framed("good-bye"));
  EXPECT_TRUE(reply.ended);
}

TEST_F(GrpcSession, DrainsAnIdleConnectionThatDoesNotAnswerPings) {
  exchange();
  session->drain();
  EXPECT_FALSE(session->close);
  session->tick(now + 1s);
  EXPECT_TRUE(session->close);
}

TEST_F(GrpcSession, EndsAConnectionThatMakesStreamsOnlyToResetThem) {
  limits.max_resets_per_second = 50;
  begin();
  const auto flood = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const std::int32_t id = client->request(H2Client::grpc_headers("/test.Mirror/Say"), "", true);
      const std::string opened = client->out();
      nghttp2_submit_rst_stream(client->h2(), 0, id, NGHTTP2_CANCEL);
      session->receive(opened + client->out(), now);
    }
    client->in(std::exchange(session->out, {}));
  };
  flood(50);
  EXPECT_FALSE(session->close);
  now += 1s;
  flood(50);
  EXPECT_FALSE(session->close);
  flood(1);
  EXPECT_TRUE(session->close);
  ASSERT_FALSE(client->goaways.empty());
  EXPECT_EQ(client->goaways.back().second, static_cast<std::uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
}

TEST_F(GrpcSession, EndsAConnectionThatFloodsPings) {
  exchange();
  std::string pings;
  for (int i = 0; i < 5000; ++i)
    pings.append(
        "\0\0\x08\x06\0\0\0\0\0"
        "12345678",
        17);
  session->receive(pings, now);
  EXPECT_TRUE(session->close);
  EXPECT_LT(session->out.size(), 100'000U);
}

TEST_F(GrpcSession, SaysHowManyStreamsItServes) {
  limits.max_concurrent_streams = 3;
  begin();
  exchange();
  EXPECT_EQ(client->settings.at(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS), 3U);
}

TEST_F(GrpcSession, PausesForAPeerThatDoesNotReadAndGoesOn) {
  limits.max_backlog = 100'000;
  begin();
  mirror.repeat = 50;
  exchange();
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 60; ++i) {
    ids.push_back(client->request(H2Client::grpc_headers("/test.Mirror/Say"), framed(std::string(200, 'r'))));
  }
  // A connection's window is 64 kB, so that is what one that does not read can make us keep in `out`.
  session->receive(client->out(), now);
  EXPECT_TRUE(session->paused);
  EXPECT_LT(session->out.size(), 100'000U + 20'000U);
  client->in(std::exchange(session->out, {}));
  session->sent();
  EXPECT_FALSE(session->paused);
  exchange();
  for (const std::int32_t id : ids) EXPECT_EQ(client->replies[id].data.size(), 10'005U);
}

TEST_F(GrpcSession, PingsWhoIsSilentAndGivesUpOnWhoStaysSo) {
  exchange();
  now += 60s;
  session->tick(now);
  exchange();
  EXPECT_EQ(client->pings, 1);
  EXPECT_FALSE(session->close);
  now += 60s;
  session->tick(now);
  session->tick(now + 19s);
  EXPECT_FALSE(session->close);
  session->tick(now + 20s);
  EXPECT_TRUE(session->close);
}

TEST_F(GrpcSession, APeerThatNoCallHasMadeKnownInTimeIsToldToGo) {
  limits.sign_in = 10s;
  for (const bool calls : {false, true}) {
    begin();
    exchange();
    if (calls) ask(framed("hello"));
    session->tick(now + 9s);
    EXPECT_FALSE(session->close);
    nghttp2_submit_ping(client->h2(), NGHTTP2_FLAG_NONE, nullptr);
    exchange();
    session->tick(now + 10s);
    EXPECT_EQ(session->close, !calls) << "pings do not count";
    client->in(std::exchange(session->out, {}));
    EXPECT_EQ(client->goaways.size(), calls ? 0U : 1U);
    if (!calls) {
      EXPECT_EQ(client->goaways[0].second, static_cast<std::uint32_t>(NGHTTP2_NO_ERROR));
    }
  }
}

TEST(GrpcText, ReadsTimeouts) {
  EXPECT_EQ(parse_grpc_timeout("1H"), 1h);
  EXPECT_EQ(parse_grpc_timeout("2M"), 2min);
  EXPECT_EQ(parse_grpc_timeout("3S"), 3s);
  EXPECT_EQ(parse_grpc_timeout("4m"), 4ms);
  EXPECT_EQ(parse_grpc_timeout("5u"), 5us);
  EXPECT_EQ(parse_grpc_timeout("99999999n"), 99999999ns);
  EXPECT_GT(*parse_grpc_timeout("99999999H"), 24h) << "does not overflow";
  for (const char* bad : {"", "S", "5", "-1S", "1s", "123456789n", "1 S", "1.5S"}) {
    EXPECT_EQ(parse_grpc_timeout(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace headgate::net
