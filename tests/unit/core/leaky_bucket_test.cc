#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/token_bucket.h"
#include "driver.h"

namespace headgate {
namespace {

using core::Outcome;
using testing::leaky;
using testing::Move;
using testing::OneCell;
using namespace std::chrono_literals;

TEST(LeakyBucket, UnitsLeaveEvenlySpacedAndAFullQueueRefuses) {
  OneCell cell(leaky({2, 1s}, 2));
  struct Row {
    Nanos now;
    Units cost;
    Nanos wait;
    Nanos delay;
    Units remaining;
    Nanos reset_after;
  };
  const Row rows[] = {
      {100s, 0, 0s, 0s, 3, 0s},              //
      {100s, 1, 0s, 0s, 2, 500ms},           // at once
      {100s, 1, 0s, 500ms, 1, 1s},           // waits its turn
      {100s, 1, 0s, 1s, 0, 1500ms},          //
      {100s, 1, 500ms, 0s, 0, 1500ms},       // two wait already
      {100'500ms, 1, 0s, 1s, 0, 1500ms},     // one has left
      {100'700ms, 0, 0s, 0s, 0, 1300ms},     // a question has no turn
      {101'900ms, 2, 0s, 100ms, 0, 1100ms},  // the first of the two leaves when the last before it has
      {103s, 3, 0s, 0s, 0, 1500ms},          //
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(::testing::Message() << row.now.count() << "ns, cost " << row.cost);
    const Outcome outcome = cell.take(row.cost, row.now);
    EXPECT_EQ(outcome.wait, row.wait);
    EXPECT_EQ(outcome.delay, row.delay);
    EXPECT_EQ(outcome.remaining, row.remaining);
    EXPECT_EQ(outcome.reset_after, row.reset_after);
  }
}

TEST(LeakyBucket, WithoutAQueueOneUnitIsAdmittedPerInterval) {
  OneCell cell(leaky({3, 1s}, 0));
  EXPECT_EQ(cell.take(1, 10s).delay, 0s);
  const Outcome denied = cell.take(1, 10s);
  EXPECT_EQ(denied.wait, Nanos{333'333'334}) << "a third of a second, rounded up";
  EXPECT_EQ(denied.delay, 0s);
  EXPECT_TRUE(cell.take(1, 10s + denied.wait).fits());
}

RC_GTEST_PROP(LeakyBucket, AnswersLikeAListOfDepartures, ()) {
  const Rate rate = *rc::gen::element(Rate{10, 1s}, Rate{3, 1s}, Rate{7, 1min}, Rate{1'000'003, 1h}, Rate{1, 3s});
  const Units queue = *rc::gen::inRange<Units>(0, 30);
  const auto moves = *testing::script();
  OneCell cell(leaky(rate, queue));
  oracle::LeakyBucket model(rate, queue);
  const Nanos unit = rate.per / rate.units;
  Nanos now = *testing::start_of_time();
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(unit, unit * (queue + 1), last);
    const Units cost = move.units(queue + 1);
    testing::check_wait(cell, cost, now);
    last = cell.take(cost, now);
    RC_ASSERT(last.fits() == model.fits(cost, now));
    RC_ASSERT(last.delay == (last.fits() && cost > 0 ? model.delay(now) : 0ns));
    RC_ASSERT(last.delay <= unit * queue + 1ns * (queue + 1));
    if (last.fits()) model.charge(cost, now);
    RC_ASSERT(last.remaining == model.room(now));
    RC_ASSERT(last.reset_after == model.delay(now));
    testing::check_reset(cell, now);
  }
  for (std::size_t i = 1; i < model.leaves().size(); ++i) {
    RC_ASSERT(model.leaves()[i] - model.leaves()[i - 1] >= model.interval());
  }
}

TEST(LeakyBucket, ClockGoingBackwardsMakesNobodyLeaveEarlier) {
  OneCell cell(leaky({1, 1s}, 5));
  EXPECT_EQ(cell.take(1, 100s).delay, 0s);
  EXPECT_EQ(cell.take(1, 98s).delay, 3s) << "leaves at 101s";
  EXPECT_FALSE(cell.take(1, 50s).fits());
  EXPECT_EQ(cell.take(1, 101s).delay, 1s);
}

TEST(LeakyBucket, OnlyTheLastTurnCanBeGivenBack) {
  OneCell cell(leaky({1, 1s}, 5));
  EXPECT_TRUE(cell.take(1, 100s).fits());
  EXPECT_EQ(cell.take(2, 100s).delay, 1s);
  cell.refund(1, 100s, 100s);
  EXPECT_EQ(cell.peek(1, 100s).delay, 3s) << "somebody's turn comes after the one given back";
  cell.refund(2, 101s, 100s);
  EXPECT_EQ(cell.peek(1, 100s).delay, 1s);
  cell.refund(1, 100s, 100s);
  EXPECT_TRUE(cell.reads_like_new(100s));
}

TEST(LeakyBucket, WorksAtTheEndOfTimeWithTheLongestQueue) {
  for (const Nanos now : {Nanos{0}, kMaxTime}) {
    OneCell cell(leaky({3, 1s}, 900'000'000));
    EXPECT_TRUE(cell.take(900'000'001, now).fits());
    EXPECT_EQ(cell.peek(1, now).wait, Nanos{333'333'334});
    OneCell slow(leaky({1, core::kLongestSpan}, 0));
    EXPECT_TRUE(slow.take(1, now).fits());
    EXPECT_EQ(slow.peek(1, now).wait, core::kLongestSpan);
  }
}

}  // namespace
}  // namespace headgate
