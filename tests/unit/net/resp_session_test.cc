#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "net/resp.h"
#include "support/sessions.h"

namespace headgate::net {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

struct Log {
  int count = 0;
  std::vector<std::shared_ptr<RespLater>> later;
  std::string large;
  std::string ended;  // what the session is told at the next tick
};

// Gives back what it was told.
class RespEcho final : public RespCommands {
 public:
  explicit RespEcho(Log& log) : log_(log) {}
  void command(std::span<const std::string_view> args, RespWriter& reply, RespContext& context) noexcept override {
    ++log_.count;
    if (args[0] == "LATER") {
      log_.later.push_back(context.later());
    } else if (args[0] == "QUIT") {
      reply.simple("OK");
      context.quit();
    } else if (args[0] == "LARGE") {
      reply.bulk(log_.large);
    } else if (args[0] == "HELLO") {
      reply.set_version(3);
      reply.map(1);
      reply.bulk("proto");
      reply.integer(3);
    } else if (args[0] == "TYPES") {
      reply.array(5);
      reply.null();
      reply.boolean(true);
      reply.boolean(false);
      reply.map(0);
      reply.error("ERR a\r\nb");
    } else {
      reply.array(args.size());
      for (const std::string_view arg : args) reply.bulk(arg);
    }
  }
  [[nodiscard]] std::string_view tick(Nanos /*now*/) noexcept override { return log_.ended; }

 private:
  Log& log_;
};

class RespSession : public ::testing::Test {
 protected:
  std::string ask(std::string_view text) {
    hand.receive(text);
    return hand.take();
  }
  std::string all_of(std::string_view text) {
    test::Hand fresh(make_resp_session(std::make_unique<RespEcho>(log)));
    fresh.receive(text);
    test::Hand slow(make_resp_session(std::make_unique<RespEcho>(log)));
    slow.receive_bytewise(text);
    EXPECT_EQ(fresh.sent, slow.sent) << text;
    EXPECT_EQ(fresh.closed, slow.closed) << text;
    closed = fresh.closed;
    return fresh.take();
  }

  Log log;
  test::Hand hand{make_resp_session(std::make_unique<RespEcho>(log))};
  bool closed = false;
};

TEST_F(RespSession, AnswersPipelinedCommandsInOrder) {
  EXPECT_EQ(ask("*2\r\n$1\r\na\r\n$0\r\n\r\n*1\r\n$12\r\n123456789012\r\nPING x\r\n"),
            "*2\r\n$1\r\na\r\n$0\r\n\r\n*1\r\n$12\r\n123456789012\r\n*2\r\n$4\r\nPING\r\n$1\r\nx\r\n");
  EXPECT_FALSE(hand.session().midway());
}

TEST_F(RespSession, ArgumentsMayHoldAnything) {
  EXPECT_EQ(ask("*1\r\n$5\r\n\r\n\0*$\r\n"s), "*1\r\n$5\r\n\r\n\0*$\r\n"s);
}

TEST_F(RespSession, NothingToDoIsNotAnswered) {
  EXPECT_EQ(ask("*0\r\n*-1\r\n\r\n\n   \r\n"), "");
  EXPECT_EQ(log.count, 0);
  EXPECT_FALSE(hand.closed);
}

TEST_F(RespSession, RefusesWhatRedisRefuses) {
  const std::pair<std::string, std::string> cases[] = {
      {"*x\r\n", "invalid multibulk length"},
      {"*\r\n", "invalid multibulk length"},
      {"*1 \r\n", "invalid multibulk length"},
      {"*+1\r\n", "invalid multibulk length"},
      {"*01\r\n", "invalid multibulk length"},
      {"*1025\r\n", "invalid multibulk length"},
      {"*2147483648\r\n", "invalid multibulk length"},
      {"*9223372036854775807\r\n", "invalid multibulk length"},
      {"*9223372036854775808\r\n", "invalid multibulk length"},
      {"*99999999999999999999\r\n", "invalid multibulk length"},
      {"*1\n$1\r\na\r\n", "invalid multibulk length"},
      {"*1\rx", "invalid multibulk length"},
      {"*1\r\n:1\r\n", "expected '$', got ':'"},
      {"*1\r\n$-1\r\n", "invalid bulk length"},
      {"*1\r\n$x\r\n", "invalid bulk length"},
      {"*1\r\n$\r\n", "invalid bulk length"},
      {"*1\r\n$65537\r\n", "invalid bulk length"},
      {"*1\r\n$9223372036854775808\r\n", "invalid bulk length"},
      {"*1\r\n$1\r\nab\r\n", "expected CR LF after a bulk string"},
      {"*5\r\n$65000\r\n" + std::string(65000, 'a') + "\r\n$65000\r\n" + std::string(65000, 'a') + "\r\n$65000\r\n" +
           std::string(65000, 'a') + "\r\n$65000\r\n" + std::string(65000, 'a') + "\r\n$65000\r\n",
       "too big command"},
      {"*" + std::string(70000, '1'), "too big mbulk count string"},
      {"*1\r\n$" + std::string(70000, '1'), "too big bulk count string"},
      {std::string(70000, 'a'), "too big inline request"},
      {"SET \"a\r\n", "unbalanced quotes in request"},
      {"SET 'a\r\n", "unbalanced quotes in request"},
      {"SET \"a\"b\r\n", "unbalanced quotes in request"},
  };
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(all_of(text), ::testing::StartsWith("-ERR Protocol error: " + problem)) << text.substr(0, 100);
    EXPECT_TRUE(closed);
  }
  EXPECT_EQ(log.count, 0);
}

TEST_F(RespSession, AnswersWhatCameBeforeAProtocolError) {
  EXPECT_EQ(ask("*1\r\n$1\r\na\r\n*1\r\n!\r\n"), "*1\r\n$1\r\na\r\n-ERR Protocol error: expected '$', got '!'\r\n");
  EXPECT_TRUE(hand.closed);
}

TEST_F(RespSession, SplitsInlineCommandsAsRedisDoes) {
  EXPECT_EQ(all_of("a  \tb\r\n"), "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
  EXPECT_EQ(all_of(R"("a b" 'c "d' e"f g")"
                   "\n"),
            "*3\r\n$3\r\na b\r\n$4\r\nc \"d\r\n$4\r\nef g\r\n");
  EXPECT_EQ(all_of(R"("\x41\n\"\\z" 'it\'s\n' "")"
                   "\n"),
            "*3\r\n$5\r\nA\n\"\\z\r\n$6\r\nit's\\n\r\n$0\r\n\r\n");
}

TEST_F(RespSession, BrowsersAreShownTheDoor) {
  EXPECT_EQ(all_of("POST / HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  EXPECT_TRUE(closed);
  EXPECT_EQ(log.count, 0);
}

TEST_F(RespSession, SpeaksVersion3OnceAsked) {
  EXPECT_EQ(ask("TYPES\r\n"), "*5\r\n$-1\r\n:1\r\n:0\r\n*0\r\n-ERR a  b\r\n");
  EXPECT_EQ(ask("HELLO\r\n"), "%1\r\n$5\r\nproto\r\n:3\r\n");
  EXPECT_EQ(ask("TYPES\r\n"), "*5\r\n_\r\n#t\r\n#f\r\n%0\r\n-ERR a  b\r\n");
}

TEST(RespWriterText, WritesEveryInteger) {
  const std::pair<std::int64_t, std::string> cases[] = {{0, ":0\r\n"},
                                                        {9, ":9\r\n"},
                                                        {10, ":10\r\n"},
                                                        {-1, ":-1\r\n"},
                                                        {INT64_MAX, ":9223372036854775807\r\n"},
                                                        {INT64_MIN, ":-9223372036854775808\r\n"}};
  for (const auto& [value, text] : cases) {
    std::string out;
    RespWriter(out, 2).integer(value);
    EXPECT_EQ(out, text);
  }
}

TEST_F(RespSession, QuitClosesAfterTheReply) {
  EXPECT_EQ(ask("QUIT\r\nPING\r\n"), "+OK\r\n");
  EXPECT_TRUE(hand.closed);
}

void answer(const std::shared_ptr<RespLater>& later, int value) {
  later->send([value](RespWriter& reply) { reply.integer(value); });
}

TEST_F(RespSession, ALaterReplyHoldsBackTheAnswersThatFollow) {
  EXPECT_EQ(ask("LATER\r\nb\r\n"), "");
  EXPECT_FALSE(hand.session().paused);
  EXPECT_TRUE(hand.session().busy());
  EXPECT_EQ(ask("c\r\n"), "");
  EXPECT_EQ(log.count, 3);
  answer(log.later[0], 5);
  hand.run_posted();
  EXPECT_EQ(hand.take(), ":5\r\n*1\r\n$1\r\nb\r\n*1\r\n$1\r\nc\r\n");
  EXPECT_FALSE(hand.session().busy());
}

TEST_F(RespSession, SeveralLaterRepliesKeepTheOrderOfTheirCommands) {
  EXPECT_EQ(ask("LATER\r\nLATER\r\nb\r\nLATER\r\n"), "");
  answer(log.later[1], 2);
  answer(log.later[2], 3);
  hand.run_posted();
  EXPECT_EQ(hand.take(), "");
  answer(log.later[0], 1);
  hand.run_posted();
  EXPECT_EQ(hand.take(), ":1\r\n:2\r\n*1\r\n$1\r\nb\r\n:3\r\n");
  EXPECT_FALSE(hand.session().busy());
}

TEST_F(RespSession, OnlySoManyCommandsAreAskedAtATime) {
  std::string many;
  for (int i = 0; i < 130; ++i) many += "LATER\r\n";
  ask(many + "QUIT\r\n");
  EXPECT_EQ(log.count, 128);
  EXPECT_TRUE(hand.session().paused);
  for (int i = 0; i < 130; ++i) {
    answer(log.later[static_cast<std::size_t>(i)], 7);
    hand.run_posted();
  }
  std::string expected;
  for (int i = 0; i < 130; ++i) expected += ":7\r\n";
  EXPECT_EQ(hand.take(), expected + "+OK\r\n");
  EXPECT_TRUE(hand.closed);
}

TEST_F(RespSession, QuittingWaitsForWhatWasAskedBefore) {
  EXPECT_EQ(ask("LATER\r\nQUIT\r\nb\r\n"), "");
  EXPECT_FALSE(hand.closed);
  answer(log.later[0], 5);
  hand.run_posted();
  EXPECT_EQ(hand.take(), ":5\r\n+OK\r\n");
  EXPECT_TRUE(hand.closed);
  EXPECT_EQ(log.count, 2);
}

TEST_F(RespSession, AProtocolErrorWaitsForWhatWasAskedBefore) {
  EXPECT_EQ(ask("LATER\r\n*x\r\n"), "");
  answer(log.later[0], 5);
  hand.run_posted();
  EXPECT_THAT(hand.take(), ::testing::StartsWith(":5\r\n-ERR Protocol error"));
  EXPECT_TRUE(hand.closed);
}

TEST_F(RespSession, WhoeverHangsUpMidwayIsStillToldWhatWasAsked) {
  EXPECT_EQ(ask("LATER\r\n*1\r\n$3\r\na"), "");
  hand.finish();
  EXPECT_FALSE(hand.closed);
  answer(log.later[0], 5);
  hand.run_posted();
  EXPECT_EQ(hand.take(), ":5\r\n");
  EXPECT_TRUE(hand.closed);
}

TEST_F(RespSession, ALaterReplyThatIsDroppedIsAnError) {
  ask("LATER\r\n");
  log.later.clear();
  hand.run_posted();
  EXPECT_EQ(hand.take(), "-ERR the command was given up\r\n");
}

TEST_F(RespSession, ALaterReplyKnowsThatItsAskerIsGone) {
  ask("LATER\r\n");
  EXPECT_FALSE(log.later[0]->abandoned());
  hand.finish();
  EXPECT_TRUE(log.later[0]->abandoned());
  log.later[0]->send([](RespWriter& reply) { reply.integer(5); });
  hand.run_posted();
  EXPECT_EQ(hand.take(), ":5\r\n");
  EXPECT_TRUE(hand.closed);
}

TEST_F(RespSession, ALaterReplyThatRefusesEndsTheConnectionInItsTurn) {
  EXPECT_EQ(ask("LATER\r\nb\r\nLATER\r\nc\r\nLATER\r\n*1\r\n"), "");
  log.later[1]->refuse("NOAUTH gone");
  hand.run_posted();
  EXPECT_EQ(hand.take(), "") << "the first has not been answered";
  EXPECT_FALSE(hand.closed);
  answer(log.later[0], 1);
  hand.run_posted();
  EXPECT_EQ(hand.take(), ":1\r\n*1\r\n$1\r\nb\r\n-NOAUTH gone\r\n");
  EXPECT_TRUE(hand.closed);
  EXPECT_TRUE(log.later[2]->abandoned());
}

TEST_F(RespSession, AnIdleConnectionWhoseTokenEndsIsToldAndClosed) {
  std::unique_ptr<Session> session = make_resp_session(std::make_unique<RespEcho>(log));
  session->receive("*1\r\n", Nanos{1});
  session->tick(Nanos{2});
  EXPECT_FALSE(session->close);
  log.ended = "NOAUTH gone";
  session->tick(Nanos{3});
  EXPECT_EQ(session->out, "-NOAUTH gone\r\n");
  EXPECT_TRUE(session->close);
}

TEST_F(RespSession, AnOutstandingAnswerComesBeforeTheEndOfItsToken) {
  hand.receive("LATER\r\n");
  log.ended = "NOAUTH gone";
  hand.session().tick(Nanos{2});
  EXPECT_FALSE(hand.session().close);
  answer(log.later[0], 5);
  hand.run_posted();
  EXPECT_EQ(hand.take(), ":5\r\n");
  hand.session().tick(Nanos{3});
  EXPECT_EQ(hand.session().out, "-NOAUTH gone\r\n");
  EXPECT_TRUE(hand.session().close);
}

TEST_F(RespSession, StopsAnsweringWhileTooMuchWaits) {
  log.large.assign(700'000, 'x');
  std::string many;
  for (int i = 0; i < 5; ++i) many += "LARGE\r\n";
  std::unique_ptr<Session> session = make_resp_session(std::make_unique<RespEcho>(log));
  session->receive(many, Nanos{1});
  EXPECT_EQ(log.count, 2);
  EXPECT_TRUE(session->paused);
  session->out.clear();
  session->receive({}, Nanos{2});
  EXPECT_EQ(log.count, 4);
}

TEST_F(RespSession, DrainingClosesIdleOnesAndAnswersTheOthers) {
  hand.session().drain();
  EXPECT_TRUE(hand.session().close);
  test::Hand half(make_resp_session(std::make_unique<RespEcho>(log)));
  half.receive("*1\r\n$1");
  half.session().drain();
  EXPECT_FALSE(half.session().close);
  half.receive("\r\na\r\n");
  EXPECT_EQ(half.take(), "*1\r\n$1\r\na\r\n");
  EXPECT_TRUE(half.closed);
}

RC_GTEST_PROP(RespSessionProperty, PiecesMakeNoDifference, ()) {
  const std::vector<std::string> parts{
      "*1\r\n", "*2\r\n", "*0\r\n",     "*-1\r\n", "$1\r\n",
      "$3\r\n", "$0\r\n", "a\r\n",      "abc\r\n", "\r\n",
      "\n",     "\r",     "PING x\r\n", "\"q",     "' ",
      "*",      "$",      "12",         "-",       "*3\r\n$1\r\na\r\n$2\r\nbc\r\n$10\r\n0123456789\r\n"};
  std::string text;
  for (const std::size_t index :
       *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, parts.size()))) {
    text += parts[index];
  }
  Log log;
  test::Hand whole(make_resp_session(std::make_unique<RespEcho>(log)));
  whole.receive(text);
  test::Hand bytewise(make_resp_session(std::make_unique<RespEcho>(log)));
  bytewise.receive_bytewise(text);
  RC_ASSERT(whole.sent == bytewise.sent);
  RC_ASSERT(whole.closed == bytewise.closed);
}

}  // namespace
}  // namespace headgate::net
