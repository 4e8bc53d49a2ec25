#include "cluster/quota_recovery.h"

#include <gtest/gtest.h>

#include "support/plain_caller.h"
#include "support/quota_server.h"
#include "support/redis_server.h"

namespace headgate::cluster {
namespace {

using test::PlainCaller;
using test::QuotaServer;
using test::RedisServer;

constexpr std::string_view kWhole = "headgate:{control}:quotas";
constexpr std::string_view kTurn = "headgate:{control}:recovering";

class QuotaRecoveryTest : public testing::Test {
 protected:
  // How often the ledger was read.
  int read() const { return quotas.ledger->read; }

  RedisServer redis;
  PlainCaller caller{redis.port()};
  QuotaServer quotas;
  QuotaRecovery recovery{caller, *quotas.quotas, {.node = "a"}};
};

TEST_F(QuotaRecoveryTest, TheLedgerIsAskedOnStartAndThenOnlyWhenRedisHasLostItsData) {
  recovery.step();
  EXPECT_EQ(read(), 1);
  EXPECT_EQ(caller.ask({"GET", kWhole}), "a");
  EXPECT_EQ(caller.ask({"EXISTS", kTurn}), "0");
  recovery.step();
  EXPECT_EQ(read(), 1);
  caller.ask({"FLUSHALL"});
  recovery.step();
  EXPECT_EQ(read(), 2);
  EXPECT_EQ(caller.ask({"GET", kWhole}), "a");
}

TEST_F(QuotaRecoveryTest, NobodyPutsBackWhatSomebodyElseIsPuttingBack) {
  caller.ask({"SET", kTurn, "b"});
  recovery.step();
  EXPECT_EQ(read(), 0);
  EXPECT_EQ(caller.ask({"EXISTS", kWhole}), "0");
  EXPECT_EQ(caller.ask({"GET", kTurn}), "b");
  caller.ask({"DEL", kTurn});
  recovery.step();
  EXPECT_EQ(read(), 1);
}

TEST_F(QuotaRecoveryTest, AStepThatIsEndedLeavesTheRestToOthers) {
  recovery.end();
  recovery.step();
  EXPECT_EQ(read(), 0);
  EXPECT_EQ(caller.ask({"EXISTS", kWhole, kTurn}), "0");
}

}  // namespace
}  // namespace headgate::cluster
