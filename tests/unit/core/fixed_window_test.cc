#include "core/fixed_window.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "driver.h"

namespace headgate {
namespace {

using core::Outcome;
using testing::Move;
using testing::OneCell;
using namespace std::chrono_literals;

Result<Limit> fixed(Units limit, Nanos length, Units burst = 0) {
  return Limit::fixed_window({.limit = limit, .window = length, .burst_allowance = burst});
}

TEST(FixedWindow, CountsStartAgainWithEachWindowOfTheEpoch) {
  OneCell cell(fixed(3, 1min));
  struct Row {
    Nanos now;
    Units cost;
    Units remaining;
    Nanos wait;
    Nanos reset_after;
  };
  const Row rows[] = {
      {0s, 0, 3, 0s, 0s},           //
      {59s, 2, 1, 0s, 1s},          //
      {59s, 2, 1, 1s, 1s},          // the next window has room
      {1min - 1ns, 1, 0, 0s, 1ns},  //
      {1min, 3, 0, 0s, 1min},       // so twice the limit fits around the border
      {90s, 1, 0, 30s, 30s},        //
      {10min + 1s, 1, 2, 0s, 59s},  //
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(::testing::Message() << row.now.count() << "ns, cost " << row.cost);
    const Outcome outcome = cell.take(row.cost, row.now);
    EXPECT_EQ(outcome.remaining, row.remaining);
    EXPECT_EQ(outcome.wait, row.wait);
    EXPECT_EQ(outcome.reset_after, row.reset_after);
  }
}

TEST(FixedWindow, BurstAllowanceAdmitsPastTheLimitFlaggedAndRemainingCountsToTheLimit) {
  OneCell cell(fixed(3, 1min, 2));
  const std::array<std::pair<Units, bool>, 5> admitted{{{2, false}, {1, false}, {0, false}, {0, true}, {0, true}}};
  for (const auto& [remaining, burst] : admitted) {
    const Outcome outcome = cell.take(1, 15s);
    EXPECT_TRUE(outcome.fits());
    EXPECT_EQ(outcome.remaining, remaining);
    EXPECT_EQ(outcome.burst, burst);
  }
  const Outcome denied = cell.take(1, 15s);
  EXPECT_EQ(denied.wait, 45s);
  EXPECT_FALSE(denied.burst);
}

RC_GTEST_PROP(FixedWindow, AnswersLikeACountPerWindow, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 40);
  const Units burst = *rc::gen::element<Units>(0, 0, 1, 7);
  const Nanos length = *rc::gen::element<Nanos>(1ms, 10s, Nanos{1'000'000'007});
  const auto moves = *testing::script(testing::Time::kAnyWay);
  OneCell cell(fixed(limit, length, burst));
  oracle::FixedWindow model(limit + burst, length);
  Nanos now = 1'700'000'000s;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(length / (limit + burst), length, last);
    const Units cost = move.units(limit + burst);
    cell.see(now);
    model.see(now);
    testing::check_wait(cell, cost, now);
    last = cell.take(cost, now);
    RC_ASSERT(last.fits() == model.fits(cost, now));
    if (last.fits()) model.charge(cost, now);
    RC_ASSERT(last.remaining == oracle::remaining(model.room(now), burst));
    RC_ASSERT(last.burst == (last.fits() && cost > 0 && oracle::used_burst(model.room(now), burst)));
    RC_ASSERT(last.reset_after == (model.used(now) > 0 ? model.end(now) - now : 0ns));
    testing::check_reset(cell, now);
  }
}

RC_GTEST_PROP(FixedWindow, ReservationsCountInTheirWindowAndNobodyIsAdmittedBeforeIt, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 20);
  const Nanos length = 10s;
  const auto moves = *testing::script();
  OneCell cell(fixed(limit, length));
  oracle::FixedWindow model(limit, length);
  std::map<std::int64_t, Units> used;
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
      used[at / length] += cost;
      if (at > now) {
        model.reserve(cost, at);
      } else {
        model.charge(cost, at);
      }
    }
    RC_ASSERT(cell.peek(0, now).remaining == model.room(now));
    testing::check_reset(cell, now);
  }
  for (const auto& [index, units] : used) RC_ASSERT(units <= limit);
}

TEST(FixedWindow, ClockSetBackKeepsTheWindowAlreadyBegun) {
  OneCell cell(fixed(2, 1min));
  EXPECT_TRUE(cell.take(1, 10min).fits());
  EXPECT_TRUE(cell.take(1, 9min).fits()) << "counted in the window of the tenth minute";
  const Outcome denied = cell.take(1, 9min);
  EXPECT_EQ(denied.wait, 2min);
  EXPECT_EQ(denied.reset_after, 2min);
  EXPECT_FALSE(cell.take(1, 11min - 1ns).fits());
  EXPECT_TRUE(cell.take(1, 11min).fits());
}

TEST(FixedWindow, ARefundCountsInItsOwnWindowOnly) {
  OneCell cell(fixed(5, 1min));
  EXPECT_TRUE(cell.take(4, 10s).fits());
  cell.refund(3, 10s, 20s);
  EXPECT_EQ(cell.peek(0, 20s).remaining, 4);
  cell.refund(100, 10s, 20s);
  EXPECT_EQ(cell.peek(0, 20s).remaining, 5);
  EXPECT_TRUE(cell.take(4, 70s).fits());
  cell.refund(4, 10s, 70s);
  EXPECT_EQ(cell.peek(0, 70s).remaining, 1) << "a later window owes nothing back";
}

TEST(FixedWindow, ACancelledReservationLeavesItsWindowWholeAndStillAdmitsNobodyBeforeIt) {
  OneCell cell(fixed(2, 1min));
  EXPECT_TRUE(cell.take(2, 10s).fits());
  const Nanos at = cell.reserve(2, 20s);
  EXPECT_EQ(at, 60s);
  EXPECT_EQ(cell.peek(1, 20s).wait, 100s);
  cell.refund(2, at, 30s);
  // The cell counts one window, and the one before the reservation has been given up.
  EXPECT_EQ(cell.peek(2, 30s).wait, 30s);
  EXPECT_EQ(cell.peek(2, 30s).reset_after, 30s);
  EXPECT_TRUE(cell.peek(0, 30s).fits());
  EXPECT_TRUE(cell.take(2, 60s).fits());
}

TEST(FixedWindow, WorksAtTheEndOfTimeWithTheLongestWindow) {
  for (const Nanos now : {Nanos{0}, kMaxTime}) {
    OneCell cell(fixed((Units{1} << 52) - 5, core::kLongestSpan, 5));
    const Units most = cell.limit().most;
    EXPECT_TRUE(cell.take(most - 1, now).fits());
    EXPECT_TRUE(cell.take(1, now).burst);
    const Outcome denied = cell.peek(most, now);
    EXPECT_GT(denied.wait, 0s);
    EXPECT_LE(denied.wait, core::kLongestSpan);
    EXPECT_TRUE(cell.peek(most, now + denied.wait).fits());
    EXPECT_LE(cell.peek(1, 0s).wait, core::kLongestSpan);
  }
}

}  // namespace
}  // namespace headgate
