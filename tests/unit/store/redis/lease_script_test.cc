#include "store/redis/lease_script.h"

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <random>
#include <set>

#include "support/lease_records.h"
#include "support/lease_redis.h"
#include "support/plain_caller.h"
#include "support/redis_server.h"

namespace headgate::store::redis {
namespace {

using namespace std::chrono_literals;

class LeaseScript : public testing::Test {
 protected:
  std::optional<Held> say(const std::string& node, Units left, Units want, Units least = 1) {
    Hold hold{{7, 9}, ++number_, left, want, least, 100, ttl_};
    return say(node, hold);
  }
  std::optional<Held> say(const std::string& node, const Hold& hold) {
    std::optional<Held> held;
    caller_.call(hold_command("t:", node, hold), [&](const Result<Reply>& reply) {
      ASSERT_TRUE(reply.has_value()) << reply.error().message;
      held = read_held(*reply);
    });
    return held;
  }
  std::string ask(const std::vector<std::string_view>& words) { return caller_.ask(words); }

  static constexpr std::string_view kKey = "t:c:{AAAAAAAAAAkAAAAAAAAABw}:l";
  test::RedisServer server_;
  test::PlainCaller caller_{server_.port()};
  std::uint64_t number_ = 0;
  Nanos ttl_ = 1h;
};

TEST_F(LeaseScript, GrantsHalfOfWhatIsFreeAtMost) {
  EXPECT_EQ(say("a", 0, 1000)->units, 50);
  EXPECT_EQ(say("b", 0, 1000)->units, 25);
  EXPECT_EQ(say("c", 0, 3)->units, 3);
  EXPECT_EQ(say("d", 0, 1000)->units, 11);
  EXPECT_EQ(say("d", 11, 0)->out, 50 + 25 + 3 + 11);
}

TEST_F(LeaseScript, WhatWasUsedMakesRoomForMore) {
  EXPECT_EQ(say("a", 0, 1000)->units, 50);
  EXPECT_EQ(say("a", 0, 1000)->units, 50);
  EXPECT_EQ(say("a", 20, 1000)->units, 60);
  EXPECT_EQ(say("a", 60, 0)->out, 60);
}

TEST_F(LeaseScript, GrantsNothingRatherThanTooLittle) {
  EXPECT_EQ(say("a", 0, 90)->units, 50);
  EXPECT_EQ(say("b", 0, 90, 30)->units, 0);
  EXPECT_EQ(say("b", 0, 90, 25)->units, 25);
}

TEST_F(LeaseScript, AMessageThatWasStuckCannotUndoALaterOne) {
  const Hold stuck{{7, 9}, ++number_, 0, 0, 0, 100, ttl_};
  EXPECT_EQ(say("a", 0, 40)->units, 40);
  EXPECT_FALSE(say("a", stuck).has_value());
  EXPECT_EQ(say("b", 0, 1000)->units, 30) << "a's forty still count";
}

TEST_F(LeaseScript, ARecordThatHoldsNothingIsGone) {
  EXPECT_EQ(say("a", 0, 40)->units, 40);
  EXPECT_EQ(ask({"EXISTS", kKey}), "1");
  EXPECT_EQ(say("a", 0, 0)->out, 0);
  EXPECT_EQ(ask({"EXISTS", kKey}), "0");
}

TEST_F(LeaseScript, ARecordVanishesByItselfAfterTwoTtls) {
  EXPECT_EQ(say("a", 0, 40)->units, 40);
  const long long left = std::stoll(ask({"PTTL", kKey}));
  EXPECT_GT(left, 3'600'000);
  EXPECT_LE(left, 2 * 3'600'000);
}

TEST_F(LeaseScript, TheRoomOfANodeThatDiedIsFreeWhenItsLeaseHasLapsed) {
  ttl_ = 1ms;
  EXPECT_EQ(say("dead", 0, 1000)->units, 50);
  ttl_ = 1h;  // so that the key itself stays
  std::optional<Held> held;
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  do {
    held = say("b", 0, 40);
    ASSERT_TRUE(held.has_value());
  } while (held->out > 40 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(held->out, 40);
}

TEST_F(LeaseScript, AnAnswerOfAnotherShapeIsNone) {
  redisReply text{};
  text.type = REDIS_REPLY_STATUS;
  EXPECT_FALSE(read_held(Reply(&text)).has_value());
  test::answer_with({-1, 5}, [](const Result<Reply>& reply) { EXPECT_FALSE(read_held(*reply).has_value()); });
}

TEST_F(LeaseScript, ASecondValueUnderTheKeyIsAnErrorAndNoLease) {
  ask({"SET", kKey, "mine"});
  caller_.call(hold_command("t:", "a", {{7, 9}, 1, 0, 10, 1, 100, 1s}), [](const Result<Reply>& reply) {
    ASSERT_FALSE(reply.has_value());
    EXPECT_NE(reply.error().message.find("WRONGTYPE"), std::string::npos) << reply.error().message;
  });
}

// The simulation goes by the record in C++: it must do what the script does. Leases that do not lapse meanwhile.
TEST_F(LeaseScript, DoesWhatTheSimulationsRecordDoes) {
  std::mt19937 random(20260730);
  test::LeaseRecord record;
  for (int i = 0; i < 3000; ++i) {
    const auto up_to = [&random](std::uint32_t most) { return static_cast<Units>(random() % (most + 1)); };
    Hold hold{{1, 2}, ++number_, up_to(30), up_to(60), up_to(10), 100 + up_to(1) * 50, ttl_};
    if (random() % 8 == 0) hold.number = number_ / 2;  // stuck for a while
    const std::string node = "n" + std::to_string(random() % 6);
    const auto expected = record.hold(node, hold, 1'000'000 + i);
    const auto held = say(node, hold);
    ASSERT_EQ(held.has_value(), expected.has_value()) << "step " << i;
    if (!held.has_value()) continue;
    ASSERT_EQ(held->units, expected->units) << "step " << i;
    ASSERT_EQ(held->out, expected->out) << "step " << i;
  }
}

}  // namespace
}  // namespace headgate::store::redis
