#include "net/websocket.h"

#include <gtest/gtest.h>

#include <malloc.h>

#include "support/websocket_frames.h"

namespace headgate::net {
namespace {

using namespace std::chrono_literals;
using test::close_payload;
using test::frame;
using test::frames_of;
using test::ServerFrame;

constexpr int kContinuation = 0;
constexpr int kBinary = 2;
constexpr int kClose = 8;
constexpr int kPing = 9;
constexpr int kPong = 10;

// What happened to a connection; outlives it.
struct Seen {
  std::vector<std::string> messages;
  int opened = 0;
  int closed = 0;
  bool busy = false;
  std::size_t room = 1'000'000;  // for messages, before the handler is full
};

// Echoes, so that what was understood can be seen in what comes back.
class WebSocketEcho final : public WebSocketHandler {
 public:
  explicit WebSocketEcho(Seen& seen) : seen_(seen) {}
  void opened(WebSocket& /*socket*/) noexcept override { ++seen_.opened; }
  void message(WebSocket& socket, std::string_view text) noexcept override {
    seen_.messages.emplace_back(text);
    socket.send_text(text);
  }
  void closed() noexcept override { ++seen_.closed; }
  [[nodiscard]] bool busy() const noexcept override { return seen_.busy; }
  [[nodiscard]] bool full() const noexcept override { return seen_.messages.size() >= seen_.room; }

 private:
  Seen& seen_;
};

struct WebSocketTest : ::testing::Test {
  Seen seen;
  WebSocketLimits limits;
  std::unique_ptr<Session> session = make();

  std::unique_ptr<Session> make() { return make_websocket_session(std::make_unique<WebSocketEcho>(seen), limits); }
  // Another connection, with the limits as they are now.
  void begin() {
    session = make();
    seen = {};
  }
  std::vector<ServerFrame> answers(std::string_view bytes, Nanos now = 1s) {
    session->receive(bytes, now);
    return drained();
  }
  std::vector<ServerFrame> drained() {
    std::vector<ServerFrame> all = frames_of(session->out);
    session->out.clear();
    session->sent();
    return all;
  }
  // What the connection is closed with when these bytes come.
  int close_code_for(std::string_view bytes) {
    begin();
    const std::vector<ServerFrame> all = answers(bytes);
    return all.empty() || all.back().opcode != kClose ? 0 : all.back().close_code();
  }
};

using WebSocketSession = WebSocketTest;

TEST_F(WebSocketSession, AnswersEveryLengthOfMessage) {
  limits.max_message = limits.max_unsigned = 200'000;
  begin();
  for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 125U, 126U, 127U, 65535U, 65536U, 100'000U}) {
    const std::string text(size, 'x');
    const auto all = answers(frame(text));
    ASSERT_EQ(all.size(), 1U) << size;
    EXPECT_EQ(all[0].opcode, 1);
    EXPECT_EQ(all[0].payload, text);
  }
  EXPECT_EQ(seen.opened, 1);
  EXPECT_EQ(seen.closed, 0);
}

TEST_F(WebSocketSession, TakesNoMoreMessagesThanTheHandlerHasRoomFor) {
  seen.room = 2;
  EXPECT_EQ(answers(frame("a") + frame("b") + frame("c") + frame("d") + frame("e")).size(), 2U);
  EXPECT_TRUE(session->paused);
  seen.room = 4;  // two answers are out
  session->sent();
  EXPECT_EQ(drained().size(), 2U);
  EXPECT_TRUE(session->paused);
  seen.room = 9;
  session->sent();
  EXPECT_EQ(seen.messages, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  EXPECT_FALSE(session->paused);
}

TEST_F(WebSocketSession, PutsFragmentsTogetherAroundControlFrames) {
  // A character of three bytes is cut in two places.
  const auto all = answers(frame("a\xe2", {.fin = false}) + frame("now?", {.opcode = kPing}) +
                           frame("\x82", {.opcode = kContinuation, .fin = false}) + frame("", {.opcode = kPong}) +
                           frame("\xac z", {.opcode = kContinuation}));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].opcode, kPong);
  EXPECT_EQ(all[0].payload, "now?");
  EXPECT_EQ(all[1].payload, "a\xe2\x82\xac z");
}

TEST_F(WebSocketSession, UnderstandsTheSameByteByByte) {
  std::string bytes = frame(std::string(300, 'y')) + frame("one", {.fin = false}) + frame("p", {.opcode = kPing}) +
                      frame("two", {.opcode = kContinuation}) + frame("", {.opcode = kPing}) + frame("") +
                      frame(close_payload(1000, "bye"), {.opcode = kClose});
  session->receive(bytes, 1s);
  const std::string whole = session->out;
  EXPECT_TRUE(session->close);
  begin();
  for (const char& byte : bytes) session->receive({&byte, 1}, 1s);
  EXPECT_EQ(session->out, whole);
  EXPECT_TRUE(session->close);
}

TEST_F(WebSocketSession, KnowsWhenItIsInTheMiddleOfSomething) {
  const std::string bytes = frame("hello", {.fin = false}) + frame("", {.opcode = kContinuation});
  EXPECT_FALSE(session->midway());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    session->receive(std::string_view(bytes).substr(i, 1), 1s);
    EXPECT_EQ(session->midway(), i + 1 < bytes.size()) << i;
  }
}

TEST_F(WebSocketSession, RefusesWhatTheProtocolForbids) {
  EXPECT_EQ(close_code_for(frame("x", {.masked = false})), 1002);
  EXPECT_EQ(close_code_for(frame("x", {.reserved = 0x40})), 1002);
  EXPECT_EQ(close_code_for(frame("x", {.reserved = 0x10})), 1002);
  for (const int opcode : {3, 7, 11, 15}) EXPECT_EQ(close_code_for(frame("x", {.opcode = opcode})), 1002) << opcode;
  EXPECT_EQ(close_code_for(frame("x", {.opcode = kContinuation})), 1002) << "nothing to continue";
  EXPECT_EQ(close_code_for(frame("x", {.fin = false}) + frame("y")), 1002) << "a message in a message";
  EXPECT_EQ(close_code_for(frame("x", {.opcode = kPing, .fin = false})), 1002);
  EXPECT_EQ(close_code_for(frame(std::string(126, 'x'), {.opcode = kPing})), 1002);
  EXPECT_EQ(close_code_for(frame("x", {.length_bytes = 2})), 1002) << "not the shortest form";
  EXPECT_EQ(close_code_for(frame(std::string(200, 'x'), {.length_bytes = 8})), 1002);
  EXPECT_EQ(close_code_for("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                           "mask"),
            1002)
      << "2^64 - 1 bytes";
  EXPECT_TRUE(seen.messages.empty());
}

TEST_F(WebSocketSession, RefusesBinaryMessagesLongOnesAndBadText) {
  EXPECT_EQ(close_code_for(frame("x", {.opcode = kBinary})), 1003);
  limits.max_message = 100;
  EXPECT_EQ(close_code_for(frame(std::string(100, 'x'))), 0);
  EXPECT_EQ(close_code_for(frame(std::string(101, 'x'))), 1009);
  EXPECT_EQ(close_code_for(frame(std::string(60, 'x'), {.fin = false}) +
                           frame(std::string(41, 'x'), {.opcode = kContinuation})),
            1009);
  // By the head alone, before the payload that would be discarded has come.
  EXPECT_EQ(close_code_for(std::string_view("\x81\xff\x00\x00\x00\x01\x00\x00\x00\x00mask", 14)), 1009);
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "12345678\x80"}) {
    EXPECT_EQ(close_code_for(frame(bad)), 1007) << bad;
  }
  EXPECT_EQ(close_code_for(frame(std::string_view("a\0b\x7f", 4))), 0) << "control characters are UTF-8 all the same";
}

TEST_F(WebSocketSession, AnswersAGoodCloseWithItsCode) {
  for (const int code : {1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999}) {
    EXPECT_EQ(close_code_for(frame(close_payload(code, "because"), {.opcode = kClose})), code);
    EXPECT_TRUE(session->close);
    EXPECT_EQ(seen.closed, 1);
  }
  begin();
  const auto all = answers(frame("", {.opcode = kClose}));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].payload, "") << "no code is answered with none";
}

TEST_F(WebSocketSession, AnswersABadCloseWithWhatIsWrong) {
  for (const int code : {0, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65535}) {
    EXPECT_EQ(close_code_for(frame(close_payload(code), {.opcode = kClose})), 1002) << code;
  }
  EXPECT_EQ(close_code_for(frame("x", {.opcode = kClose})), 1002);
  EXPECT_EQ(close_code_for(frame(close_payload(1000, "\xff"), {.opcode = kClose})), 1007);
}

TEST_F(WebSocketSession, AfterAFailureWaitsForThePeersCloseAlone) {
  EXPECT_EQ(close_code_for(frame("x", {.opcode = kBinary})), 1003);
  EXPECT_FALSE(session->close);
  EXPECT_EQ(seen.closed, 1);
  EXPECT_TRUE(answers(frame("more") + frame("", {.opcode = kPing})).empty());
  EXPECT_TRUE(seen.messages.empty());
  EXPECT_TRUE(answers(frame(close_payload(1003), {.opcode = kClose})).empty());
  EXPECT_TRUE(session->close);
}

TEST_F(WebSocketSession, AfterAFailureDoesNotWaitForEver) {
  EXPECT_EQ(close_code_for(frame("x", {.masked = false})), 1002);
  session->tick(3s);
  EXPECT_FALSE(session->close);
  session->tick(6s);
  EXPECT_TRUE(session->close);
  EXPECT_EQ(close_code_for(frame("x", {.masked = false})), 1002);
  session->receive(frame("y", {.masked = false}), 1s);
  EXPECT_TRUE(session->close) << "another unreadable frame";
}

TEST_F(WebSocketSession, KeepsNothingOfAFrameItHasRefused) {
  std::string head = frame("", {.opcode = kPing});
  head[1] = static_cast<char>(0xFF);  // its length follows, in eight bytes
  head.insert(2, std::string("\0\0\0\1\0\0\0\0", 8));
  EXPECT_EQ(close_code_for(head), 1002);
  const std::size_t before = mallinfo2().uordblks;
  const std::string rest(1 << 16, 'x');
  for (int i = 0; i < 100; ++i) session->receive(rest, 1s);
  EXPECT_LT(mallinfo2().uordblks, before + (1 << 18));
}

TEST_F(WebSocketSession, PingsWhoIsSilentAndGivesUpOnWhoStaysSo) {
  session->receive({}, 0s);
  session->tick(29s);
  EXPECT_TRUE(drained().empty());
  session->tick(30s);
  EXPECT_EQ(drained().at(0).opcode, kPing);
  session->receive(frame("", {.opcode = kPong}), 31s);
  session->tick(60s);
  EXPECT_TRUE(drained().empty());
  session->tick(61s);
  EXPECT_EQ(drained().at(0).opcode, kPing);
  session->tick(90s);
  EXPECT_FALSE(session->close);
  session->tick(91s);
  EXPECT_TRUE(session->close);
  EXPECT_EQ(seen.closed, 1);
}

TEST_F(WebSocketSession, ClosesWhoReadsTooSlowlyAndDropsTheRest) {
  limits.max_backlog = 4000;
  begin();
  const std::string text(900, 'x');
  session->receive(frame(text), 1s);
  EXPECT_FALSE(session->paused);
  session->receive(frame(text), 1s);
  EXPECT_TRUE(session->paused) << "more than a quarter waits";
  WebSocket& socket = *as_websocket(*session);
  socket.send_text(text);
  socket.send_text(text);
  EXPECT_FALSE(session->close);
  socket.send_text(text);
  EXPECT_TRUE(session->close);
  const auto all = drained();
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[4].close_code(), 1008);
  EXPECT_EQ(seen.closed, 1);
}

TEST_F(WebSocketSession, TakesNoMoreThanItMayAnswerAndGoesOnWhenThatIsSent) {
  limits.max_backlog = 4000;
  begin();
  std::string all;
  for (int i = 0; i < 100; ++i) all += frame(std::string(300, 'x'));
  session->receive(all, 1s);
  EXPECT_TRUE(session->paused);
  std::size_t answers = 0;
  while (session->paused) {
    EXPECT_LT(session->out.size(), 2000U);
    answers += drained().size();
  }
  EXPECT_EQ(answers + drained().size(), 100U);
  EXPECT_FALSE(session->close);
  EXPECT_LT(session->buffered(), 2'048U);
}

TEST_F(WebSocketSession, ClosesWhoDoesNotSayWhoItIsInTime) {
  limits.sign_in = 10s;
  begin();
  session->receive({}, 1s);
  session->tick(10s);
  EXPECT_TRUE(drained().empty());
  session->tick(11s);
  EXPECT_EQ(drained().at(0).close_code(), 1008);
}

TEST_F(WebSocketSession, ReadsOnWhenThePeerDoes) {
  limits.max_backlog = 4000;
  begin();
  session->receive(frame(std::string(1500, 'x')), 1s);
  EXPECT_TRUE(session->paused);
  drained();
  EXPECT_FALSE(session->paused);
}

TEST_F(WebSocketSession, GoesAwayOnceNothingIsOutstanding) {
  seen.busy = true;
  session->receive(frame("a question"), 1s);
  drained();
  session->drain();
  EXPECT_TRUE(drained().empty());
  EXPECT_TRUE(session->busy());
  seen.busy = false;
  as_websocket(*session)->send_text("its answer");
  const auto all = drained();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].payload, "its answer");
  EXPECT_EQ(all[1].close_code(), 1001);
  EXPECT_FALSE(session->close);
  session->receive(frame(close_payload(1001), {.opcode = kClose}), 2s);
  EXPECT_TRUE(session->close);
}

TEST_F(WebSocketSession, SendsNothingAfterItsCloseFrame) {
  session->receive({}, 1s);
  as_websocket(*session)->close(1000, std::string(200, 'r'));
  as_websocket(*session)->send_text("too late");
  as_websocket(*session)->close(1001, "again");
  const auto all = drained();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].payload.size(), 125U) << "the reason is cut";
}

TEST_F(WebSocketSession, TellsItsHandlerOnceWhenThePeerIsGone) {
  session->receive(frame("x"), 1s);
  session->finish();
  EXPECT_TRUE(session->close);
  session.reset();
  EXPECT_EQ(seen.closed, 1);
}

TEST_F(WebSocketSession, CostsLittleWhileIdle) {
  session->receive({}, 1s);
  const std::size_t before = mallinfo2().uordblks;
  std::vector<std::unique_ptr<Session>> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(make());
    many.back()->receive(frame(std::string(60'000, 'x')), 1s);
    std::string().swap(many.back()->out);
    seen.messages.clear();
  }
  EXPECT_LT((mallinfo2().uordblks - before) / 100, 1000U);
}

TEST(WebSocketUpgrade, TellsWhoAsksForItProperly) {
  const auto asked = [](std::vector<Header> headers, Method method = Method::kGet) {
    HttpRequest request;
    request.method = method;
    request.headers = headers;
    return websocket_upgrade(request);
  };
  const Header upgrade{"Upgrade", "WebSocket"};
  const Header connection{"Connection", "keep-alive, Upgrade"};
  const Header key{"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="};
  const Header version{"Sec-WebSocket-Version", "13"};
  EXPECT_EQ(asked({upgrade, connection, key, version}), Upgrade::kYes);
  EXPECT_EQ(asked({connection, key, version}), Upgrade::kNo);
  EXPECT_EQ(asked({upgrade, key, version}), Upgrade::kBad);
  EXPECT_EQ(asked({upgrade, {"Connection", "keep-alive"}, key, version}), Upgrade::kBad);
  EXPECT_EQ(asked({upgrade, connection, key, version}, Method::kPost), Upgrade::kBad);
  EXPECT_EQ(asked({upgrade, connection, version}), Upgrade::kBad);
  EXPECT_EQ(asked({upgrade, connection, key, key, version}), Upgrade::kBad);
  EXPECT_EQ(asked({upgrade, connection, key, {"Sec-WebSocket-Version", "8"}}), Upgrade::kBadVersion);
  EXPECT_EQ(asked({upgrade, connection, key}), Upgrade::kBadVersion);
  for (const char* bad : {"", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ",
                          "dGhlIHNhbXBsZSBub25jZR==", "dGhl!HNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZXRv"}) {
    EXPECT_EQ(asked({upgrade, connection, {"Sec-WebSocket-Key", bad}, version}), Upgrade::kBad) << bad;
  }
}

TEST(WebSocketUpgrade, AcceptsWithTheDigestOfTheStandardsExample) {
  const std::vector<Header> headers{{"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}};
  HttpRequest request;
  request.headers = headers;
  const std::string head = websocket_accept_head(request);
  EXPECT_TRUE(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"));
  EXPECT_NE(head.find("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

}  // namespace
}  // namespace headgate::net
