// The parts of the client that are pure functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/redis/breaker.h"
#include "store/redis/node.h"
#include "store/redis/problems.h"
#include "store/redis/reader.h"

namespace headgate::store::redis {
namespace {

using namespace std::chrono_literals;

TEST(RedisBreaker, OpensAfterFiveFailuresInARow) {
  Breaker breaker;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(breaker.failed(0ms));
  breaker.answered();
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(breaker.failed(1s + i * 250ms));
  EXPECT_FALSE(breaker.is_open());
  EXPECT_TRUE(breaker.failed(2s));
  EXPECT_TRUE(breaker.is_open());
  EXPECT_FALSE(breaker.failed(2s)) << "it opens once";
}

TEST(RedisBreaker, ManyFailuresOfOneMomentDoNotOpenIt) {
  Breaker breaker;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(breaker.failed(0ms));
  EXPECT_FALSE(breaker.failed(Breaker::kOver - 1ms));
  EXPECT_TRUE(breaker.failed(Breaker::kOver));
}

TEST(RedisBreaker, ProbesSeldomerTheLongerItLasts) {
  Breaker breaker;
  EXPECT_TRUE(breaker.open(0ms));
  EXPECT_EQ(breaker.probe_at(), 100ms);
  breaker.probing(100ms);
  EXPECT_EQ(breaker.probe_at(), 300ms);
  for (int i = 0; i < 10; ++i) breaker.probing(10s);
  EXPECT_EQ(breaker.probe_at(), 11s);
  EXPECT_TRUE(breaker.close(11s));
  EXPECT_FALSE(breaker.close(11s));
  EXPECT_FALSE(breaker.is_open());
}

TEST(RedisBreaker, StaysSlowAfterARelapseAndStartsAnewAfterALongPeace) {
  Breaker breaker;
  breaker.open(0ms);
  breaker.probing(100ms);
  breaker.close(200ms);
  breaker.open(1s);
  EXPECT_EQ(breaker.probe_at(), 1s + 400ms);
  breaker.close(2s);
  breaker.open(20s);
  EXPECT_EQ(breaker.probe_at(), 20s + 100ms);
}

TEST(RedisPause, DoublesUpToASecondAndIsSpread) {
  Pause pause;
  EXPECT_EQ(pause.next(0), 5ms);
  EXPECT_EQ(pause.next(1), 20ms);
  EXPECT_EQ(pause.next(0.5), 30ms);
  for (int i = 0; i < 10; ++i) static_cast<void>(pause.next(0));
  EXPECT_EQ(pause.next(1), 1s);
  EXPECT_EQ(pause.next(0), 500ms);
  pause.reset();
  EXPECT_EQ(pause.next(1), 10ms);
}

TEST(RedisProblems, AreToldWhenTheyBeginAndAgainAfterTenQuietSeconds) {
  Problems problems;
  std::string_view kind = "OOM";
  EXPECT_TRUE(problems.begins(kind, 0s));
  for (int i = 1; i < 100; ++i) EXPECT_FALSE(problems.begins(kind, std::chrono::seconds{i * 9}));
  std::string_view other = "BUSY";
  EXPECT_TRUE(problems.begins(other, 891s));
  EXPECT_TRUE(problems.begins(kind, 901s));
}

TEST(RedisProblems, OfManyKindsAreCountedAsOne) {
  Problems problems;
  for (int i = 0; i < 64; ++i) {
    const std::string name = "KIND" + std::to_string(i);
    std::string_view kind = name;
    EXPECT_TRUE(problems.begins(kind, 0s));
  }
  std::string_view kind = "ONE MORE";
  EXPECT_TRUE(problems.begins(kind, 0s));
  EXPECT_EQ(kind, "OTHER");
  kind = "AND ANOTHER";
  EXPECT_FALSE(problems.begins(kind, 0s));
}

TEST(RedisRedirect, NamesASlotAndAServer) {
  const auto moved = parse_redirect("MOVED 3999 10.0.0.1:6381", "h");
  ASSERT_TRUE(moved.has_value());
  EXPECT_FALSE(moved->ask);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->to, (Endpoint{"10.0.0.1", 6381, {}}));
  EXPECT_TRUE(parse_redirect("ASK 0 a.example:1", "h")->ask);
  EXPECT_EQ(parse_redirect("MOVED 1 ::1:7000", "h")->to.host, "::1");
  EXPECT_EQ(parse_redirect("MOVED 1 :7000", "h")->to.host, "h");
  EXPECT_EQ(parse_redirect("MOVED 1 ?:7000", "h")->to.host, "h");
}

TEST(RedisRedirect, IsNothingElse) {
  for (const char* text : {"ERR", "", "MOVED", "MOVED ", "MOVED x", "MOVED 16384 h:1", "MOVED -1 h:1", "MOVED 1",
                           "MOVED 1 h", "MOVED 1 h:", "MOVED 1 h:0", "MOVED 1 h:65536", "MOVED 1 h:1x", "MOVED 1h:1"}) {
    EXPECT_FALSE(parse_redirect(text, "h").has_value()) << text;
  }
}

std::string fed(ReplyReader& reader, std::string_view bytes) {
  reader.feed(bytes.data(), bytes.size());
  std::string types;
  while (const ReplyPtr reply = reader.next()) types += std::to_string(reply->type);
  return types;
}

TEST(RedisReader, TakesRepliesInPieces) {
  ReplyReader reader(1024);
  std::string types;
  for (const char c : std::string("+OK\r\n:1\r\n$3\r\nabc\r\n*2\r\n$-1\r\n-ERR\r\n")) types += fed(reader, {&c, 1});
  EXPECT_EQ(types, "5312");
  EXPECT_FALSE(reader.broken());
}

TEST(RedisReader, RefusesMoreThanItMayHold) {
  const auto broken = [](const std::string& bytes) {
    ReplyReader reader(1024);
    fed(reader, bytes);
    return reader.broken();
  };
  EXPECT_FALSE(broken("$1024\r\n" + std::string(1024, 'x') + "\r\n"));
  EXPECT_TRUE(broken("$1025\r\n")) << "before any of it has come";
  EXPECT_TRUE(broken("$99999999999999999999\r\n"));
  EXPECT_TRUE(broken("+" + std::string(2000, 'x')));
  EXPECT_TRUE(broken("*2\r\n$1000\r\n" + std::string(1000, 'x') + "\r\n$1000\r\n" + std::string(1000, 'x') + "\r\n"));
  EXPECT_TRUE(broken("*1000001\r\n"));
  std::string nested;
  for (int i = 0; i < 3; ++i) nested += "*400000\r\n";
  EXPECT_TRUE(broken(nested));
  EXPECT_TRUE(broken("?\r\n"));
}

TEST(RedisReader, CountsEachReplyByItself) {
  ReplyReader reader(1024);
  const std::string reply = "$1000\r\n" + std::string(1000, 'x') + "\r\n";
  for (int i = 0; i < 100; ++i) EXPECT_EQ(fed(reader, reply), "1");
  fed(reader, "?");
  EXPECT_TRUE(reader.broken());
  reader.reset();
  EXPECT_EQ(fed(reader, "+OK\r\n"), "5");
}

}  // namespace
}  // namespace headgate::store::redis
