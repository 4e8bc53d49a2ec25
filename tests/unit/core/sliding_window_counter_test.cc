#include "core/sliding_window_counter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "driver.h"

namespace headgate {
namespace {

using core::Outcome;
using testing::Move;
using testing::OneCell;
using namespace std::chrono_literals;

Result<Limit> counter(Units limit, Nanos length, Units burst = 0) {
  return Limit::sliding_window_counter({.limit = limit, .window = length, .burst_allowance = burst});
}

TEST(SlidingWindowCounter, TheWindowBeforeCountsInProportion) {
  OneCell cell(counter(10, 10s));
  struct Row {
    Nanos now;
    Units cost;
    Units remaining;
    Nanos wait;
    Nanos reset_after;
  };
  const Row rows[] = {
      {100s, 8, 2, 0s, 20s},      //
      {109s, 3, 2, 2250ms, 11s},  // 8 * 7/8 + 3 <= 10
      {110s, 3, 2, 1250ms, 10s},  //
      {115s, 0, 6, 0s, 5s},       // half of 8 still counts
      {115s, 6, 0, 0s, 15s},      //
      {115s, 1, 0, 1250ms, 15s},  // 8 * 3.75/10 + 6 + 1 <= 10
      {120s, 4, 0, 0s, 20s},      //
      {145s, 10, 0, 0s, 15s},     // two windows later nothing counts
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(::testing::Message() << row.now.count() << "ns, cost " << row.cost);
    const Outcome outcome = cell.take(row.cost, row.now);
    EXPECT_EQ(outcome.remaining, row.remaining);
    EXPECT_EQ(outcome.wait, row.wait);
    EXPECT_EQ(outcome.reset_after, row.reset_after);
  }
}

TEST(SlidingWindowCounter, BurstAllowanceAdmitsPastTheLimitFlaggedAndRemainingCountsToTheLimit) {
  OneCell cell(counter(3, 10s, 2));
  const std::array<std::pair<Units, bool>, 5> admitted{{{2, false}, {1, false}, {0, false}, {0, true}, {0, true}}};
  for (const auto& [remaining, burst] : admitted) {
    const Outcome outcome = cell.take(1, 5s);
    EXPECT_TRUE(outcome.fits());
    EXPECT_EQ(outcome.remaining, remaining);
    EXPECT_EQ(outcome.burst, burst);
  }
  // All of a cost of 1 fits when a fifth of the window before has passed.
  EXPECT_EQ(cell.take(1, 5s).wait, 7s);
  // An estimate that passes the limit by a fraction is past it.
  EXPECT_TRUE(cell.take(1, 15s).burst) << "2.5 and 1";
  EXPECT_TRUE(cell.take(1, 16s).fits()) << "2 and 2";
}

RC_GTEST_PROP(SlidingWindowCounter, AnswersLikeTheWeightedEstimate, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 40);
  const Units burst = *rc::gen::element<Units>(0, 0, 1, 7);
  const Nanos length = *rc::gen::element<Nanos>(1ms, 10s, Nanos{1'000'000'007});
  const auto moves = *testing::script(testing::Time::kAnyWay);
  OneCell cell(counter(limit, length, burst));
  oracle::SlidingWindowCounter model(limit + burst, length);
  Nanos now = 1'700'000'000s;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(length / (limit + burst), length, last);
    const Units cost = move.units(limit + burst);
    testing::check_wait(cell, cost, now);
    last = cell.take(cost, now);
    RC_ASSERT(last.fits() == model.fits(cost, now));
    if (last.fits()) model.charge(cost, now);
    RC_ASSERT(last.remaining == oracle::remaining(model.room(now), burst));
    RC_ASSERT(last.burst == (last.fits() && cost > 0 && oracle::used_burst(model.room(now), burst)));
    testing::check_reset(cell, now);
  }
}

RC_GTEST_PROP(SlidingWindowCounter, ReservationsCountInTheirWindowAndNobodyIsAdmittedBeforeIt, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 20);
  const Nanos length = 10s;
  const auto moves = *testing::script();
  OneCell cell(counter(limit, length));
  oracle::SlidingWindowCounter model(limit, length);
  Nanos now = 1'700'000'000s;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(length / limit, length, last);
    const Units cost = move.units(limit);
    testing::check_wait(cell, cost, now);
    last = cell.peek(cost, now);
    RC_ASSERT(last.fits() == model.fits(cost, now));
    RC_ASSERT(model.fits(cost, now + last.wait));
    if (!last.fits()) RC_ASSERT(!model.fits(cost, now + last.wait - 1ns));
    if (cost > 0 && (move.act < 5 || last.fits())) {
      const Nanos later = move.act < 2 ? length * move.amount / 300 : 0ns;
      const Nanos at = cell.reserve(cost, now, later);
      RC_ASSERT(at == now + last.wait + later);
      if (at > now) {
        model.reserve(cost, at);
      } else {
        model.charge(cost, at);
      }
    }
    RC_ASSERT(cell.peek(0, now).remaining == model.room(now));
    testing::check_reset(cell, now);
  }
}

TEST(SlidingWindowCounter, ClockGoingBackwardsGrantsNothingTwice) {
  OneCell cell(counter(4, 10s));
  EXPECT_TRUE(cell.take(2, 100s).fits());
  EXPECT_TRUE(cell.take(2, 50s).fits()) << "counted in the window of 100s";
  const Outcome denied = cell.take(1, 50s);
  EXPECT_EQ(denied.wait, 62'500ms) << "a quarter of the window after it";
  EXPECT_EQ(denied.reset_after, 70s);
  EXPECT_FALSE(cell.take(1, 112s).fits());
  EXPECT_TRUE(cell.take(1, 112'500ms).fits());
}

TEST(SlidingWindowCounter, ARefundCountsAsLongAsItsWindowDoes) {
  OneCell cell(counter(10, 10s));
  EXPECT_TRUE(cell.take(8, 100s).fits());
  cell.refund(2, 100s, 101s);
  EXPECT_EQ(cell.peek(0, 101s).remaining, 4);
  EXPECT_TRUE(cell.take(1, 115s).fits());
  EXPECT_EQ(cell.peek(0, 115s).remaining, 6) << "half of 6, and 1";
  cell.refund(4, 100s, 115s);
  EXPECT_EQ(cell.peek(0, 115s).remaining, 8) << "half of 2, and 1";
  EXPECT_TRUE(cell.take(1, 125s).fits());
  cell.refund(2, 100s, 125s);
  EXPECT_EQ(cell.peek(0, 125s).remaining, 8) << "what no longer counts is owed to nobody";
  cell.refund(100, 125s, 125s);
  EXPECT_EQ(cell.peek(0, 125s).remaining, 9);
}

TEST(SlidingWindowCounter, ACancelledReservationLeavesItsWindowWholeAndStillAdmitsNobodyBeforeIt) {
  OneCell cell(counter(2, 10s));
  EXPECT_TRUE(cell.take(2, 100s).fits());
  const Nanos at = cell.reserve(2, 101s);
  EXPECT_EQ(at, 120s);
  cell.refund(2, at, 102s);
  EXPECT_EQ(cell.peek(2, 102s).wait, 18s);
  EXPECT_TRUE(cell.peek(0, 102s).fits());
  EXPECT_EQ(cell.peek(0, 102s).reset_after, 18s);
  EXPECT_TRUE(cell.take(2, 120s).fits());
}

TEST(SlidingWindowCounter, WorksAtTheEndOfTimeWithTheLongestWindow) {
  for (const Nanos now : {Nanos{0}, kMaxTime}) {
    OneCell cell(counter((Units{1} << 52) - 5, core::kLongestSpan, 5));
    const Units most = cell.limit().most;
    EXPECT_TRUE(cell.take(most - 1, now).fits());
    EXPECT_TRUE(cell.take(1, now).burst);
    EXPECT_EQ(cell.peek(0, now).remaining, 0);
    const Outcome denied = cell.peek(most, now);
    EXPECT_LE(denied.wait, 2 * core::kLongestSpan);
    EXPECT_TRUE(cell.peek(most, now + denied.wait).fits());
    EXPECT_FALSE(cell.peek(most, now + denied.wait - 1ns).fits());
    EXPECT_FALSE(cell.peek(1, 0s).fits());
  }
}

}  // namespace
}  // namespace headgate
