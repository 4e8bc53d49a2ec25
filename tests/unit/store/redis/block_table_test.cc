#include "store/redis/block_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace headgate::store::redis {
namespace {

using namespace std::chrono_literals;
using Verdict = BlockTable::Verdict;

class BlockTableTest : public testing::Test {
 protected:
  BlockTableTest() : limit_(std::make_shared<const LiveLimit>(core::compile(*Limit::sliding_window({1000, 60s, 0})))) {}

  [[nodiscard]] Charge charge(std::uint64_t key, Units cost = 1) const {
    Charge charge;
    charge.key = {key, key * 31};
    charge.limit = limit_.get();
    charge.cost = cost;
    return charge;
  }
  // Makes the table hold that many units of a cell, from `now` on.
  void stock(std::uint64_t key, Units units, Nanos now = 1s, Nanos charged_at = 5s) {
    core::Outcome outcome = heard_;
    const LeaseTerms terms{.cap = 1'000'000, .ttl = 1s};
    bool errand = false;
    for (int i = 0; i < 16 && !errand; ++i) errand = table_.heard(charge(key), terms, &outcome, now);
    ASSERT_TRUE(errand) << "sixteen calls are reason enough";
    std::ignore = table_.begin(charge(key).key, limit_, terms, now);
    std::ignore = table_.renew(charge(key).key, terms.cap, now + 1s);
    outcome.remaining -= units;
    table_.put(charge(key).key, units, charged_at, outcome, now);
    table_.end(charge(key).key, now);
  }
  Verdict take(std::vector<Charge> charges, Nanos now = 1s) {
    outcomes_.assign(charges.size(), {});
    taken_ = table_.take(charges, now, outcomes_);
    return taken_.verdict;
  }

  std::shared_ptr<const LiveLimit> limit_;
  BlockTable table_{1000, 250ms};
  core::Outcome heard_{.reset_after = 30s, .limit = 1000, .remaining = 700};
  std::vector<core::Outcome> outcomes_;
  BlockTable::Taken taken_;
};

TEST_F(BlockTableTest, ACellNeverHeardOfIsAskedFor) { EXPECT_EQ(take({charge(1)}), Verdict::kAsk); }

TEST_F(BlockTableTest, UnitsComeOutOfTheBlockUntilItIsUsedUp) {
  stock(1, 10);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(take({charge(1, 2)}), Verdict::kTaken);
  EXPECT_EQ(take({charge(1)}), Verdict::kAsk);
}

TEST_F(BlockTableTest, AnAnswerCountsDownFromWhatWasHeard) {
  stock(1, 10);
  EXPECT_EQ(take({charge(1, 4)}, 1500ms), Verdict::kTaken);
  EXPECT_EQ(outcomes_[0].limit, 1000);
  EXPECT_EQ(outcomes_[0].remaining, 696);
  EXPECT_EQ(outcomes_[0].reset_after, 29500ms);
  EXPECT_EQ(outcomes_[0].wait, 0s);
}

TEST_F(BlockTableTest, NothingIsTakenOfALapsedLease) {
  stock(1, 10);
  EXPECT_EQ(take({charge(1)}, 2s - 1ns), Verdict::kTaken);
  EXPECT_EQ(take({charge(1)}, 2s), Verdict::kAsk);
}

TEST_F(BlockTableTest, APlanTakesAllOrNothing) {
  stock(1, 10);
  stock(2, 1);
  EXPECT_EQ(take({charge(1), charge(2, 2)}), Verdict::kAsk);
  EXPECT_EQ(table_.totals(1s).units, 11);
  EXPECT_EQ(take({charge(1), charge(2)}), Verdict::kTaken);
  EXPECT_EQ(table_.totals(1s).units, 9);
}

TEST_F(BlockTableTest, OneCallerIsToldThatABlockRunsLow) {
  stock(1, 10);
  stock(2, 100);
  EXPECT_EQ(take({charge(2), charge(1, 8)}), Verdict::kTaken);
  EXPECT_EQ(taken_.low, 0U);
  EXPECT_EQ(take({charge(2), charge(1)}), Verdict::kTaken);
  EXPECT_EQ(taken_.low, 2U);
  EXPECT_EQ(take({charge(2), charge(1)}), Verdict::kTaken);
  EXPECT_EQ(taken_.low, 0U) << "somebody is on the way";
}

TEST_F(BlockTableTest, ABlockThatRunsLowSoonIsMoreUrgentThanOneThatLasted) {
  stock(1, 10);
  stock(2, 10);
  EXPECT_EQ(take({charge(1, 9)}, 1s + 249ms), Verdict::kTaken);
  EXPECT_EQ(taken_.low, 1U);
  EXPECT_TRUE(taken_.hurry);
  EXPECT_EQ(take({charge(2, 9)}, 1s + 250ms), Verdict::kTaken);
  EXPECT_EQ(taken_.low, 1U);
  EXPECT_FALSE(taken_.hurry);
}

TEST_F(BlockTableTest, ADenialIsBelievedForAWhile) {
  core::Outcome denied{.wait = 300ms, .reset_after = 40s, .limit = 1000, .remaining = 1};
  EXPECT_FALSE(table_.heard(charge(1, 2), {.cap = 100, .ttl = 1s}, &denied, 1s));
  EXPECT_EQ(take({charge(1, 2)}, 1100ms), Verdict::kDenied);
  EXPECT_EQ(outcomes_[0].wait, 200ms);
  EXPECT_EQ(take({charge(1, 1)}, 1100ms), Verdict::kAsk) << "one may fit";
  EXPECT_EQ(take({charge(1, 2)}, 1300ms), Verdict::kAsk);
}

TEST_F(BlockTableTest, ADenialOfOneCellTakesNothingOfAnother) {
  core::Outcome denied{.wait = 300ms, .limit = 1000};
  EXPECT_FALSE(table_.heard(charge(1), {.cap = 100, .ttl = 1s}, &denied, 1s));
  stock(2, 10);
  EXPECT_EQ(take({charge(1), charge(2)}), Verdict::kDenied);
  EXPECT_EQ(table_.totals(1s).units, 10);
  Charge soft = charge(1);
  soft.soft = true;
  EXPECT_EQ(take({soft, charge(2)}), Verdict::kTaken);
  EXPECT_EQ(table_.totals(1s).units, 9);
}

TEST_F(BlockTableTest, WhatLiesAboutGoesBackAsItWasCharged) {
  stock(1, 10, 1s, 5s);
  Units back = 0;
  for (Nanos now = 1s; now < 5s && back < 10; now += 100ms) {
    std::vector<BlockTable::Errand> errands;
    table_.due(now, 1, 100, errands);
    for (const BlockTable::Errand& errand : errands) {
      EXPECT_EQ(errand.back[0].charged_at, 5s);
      back += errand.back[0].units;
      EXPECT_EQ(errand.left, 10 - back);
      std::ignore = table_.renew(errand.cell, errand.left, now + 1s);
      table_.end(errand.cell, now);
    }
  }
  EXPECT_EQ(back, 10);
}

TEST_F(BlockTableTest, UnitsOfTwoBlocksGoBackEachAsItWasCharged) {
  stock(1, 10, 1s, 5s);
  stock(1, 20, 1s, 6s);
  EXPECT_EQ(take({charge(1, 4)}), Verdict::kTaken);
  std::vector<BlockTable::Errand> errands;
  table_.empty(errands);
  ASSERT_EQ(errands.size(), 1U);
  EXPECT_EQ(errands[0].left, 0);
  EXPECT_EQ(errands[0].back[0].units, 20);
  EXPECT_EQ(errands[0].back[0].charged_at, 6s);
  EXPECT_EQ(errands[0].back[1].units, 6);
  EXPECT_EQ(errands[0].back[1].charged_at, 5s);
}

TEST_F(BlockTableTest, ARecordThatSaysLessTakesTheRestBack) {
  stock(1, 10);
  const auto back = table_.renew(charge(1).key, 4, 3s);
  EXPECT_EQ(back[0].units, 6);
  EXPECT_EQ(table_.totals(1s).units, 4);
}

TEST_F(BlockTableTest, AnIdleCellIsDropped) {
  core::Outcome outcome = heard_;
  std::ignore = table_.heard(charge(1), {.cap = 100, .ttl = 1s}, &outcome, 1s);
  EXPECT_EQ(table_.totals(1s).cells, 1U);
  std::vector<BlockTable::Errand> errands;
  for (Nanos now = 1s; now < 4s; now += 100ms) table_.due(now, 1, 100, errands);
  EXPECT_EQ(table_.totals(4s).cells, 0U);
  EXPECT_TRUE(errands.empty());
}

TEST_F(BlockTableTest, AtTheCapNewCellsAreNotTakenIn) {
  BlockTable small(1, 250ms);
  std::ignore = small.heard(charge(1), {.cap = 100, .ttl = 1s}, &heard_, 1s);
  std::ignore = small.heard(charge(2), {.cap = 100, .ttl = 1s}, &heard_, 1s);
  EXPECT_EQ(small.totals(1s).cells, 1U);
}

TEST_F(BlockTableTest, ConcurrentPlansNeverTakeMoreThanThereIs) {
  constexpr Units kEach = 20'000;
  for (const std::uint64_t key : {1, 2, 3}) stock(key, kEach);
  std::atomic<Units> taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::array<core::Outcome, 2> outcomes;
      const std::array one{charge(1), charge(static_cast<std::uint64_t>(2 + t % 2))};
      const std::array other{one[1], one[0]};
      for (int i = 0; i < 20'000; ++i) {
        if (table_.take(i % 2 == 0 ? one : other, 1s, outcomes).verdict == Verdict::kTaken) ++taken;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, kEach);
  EXPECT_EQ(table_.totals(1s).units, kEach);
}

}  // namespace
}  // namespace headgate::store::redis
