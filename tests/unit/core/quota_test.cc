#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/fixed_window.h"
#include "driver.h"

namespace headgate {
namespace {

using core::Outcome;
using testing::Move;
using testing::OneCell;
using namespace std::chrono_literals;

Result<Limit> quota(Units limit, Period period, const char* zone = "UTC", Units burst = 0) {
  return Limit::quota({.limit = limit, .period = period, .timezone = zone, .burst_allowance = burst});
}

constexpr Nanos kNoon = 1'711'886'400s;  // 2024-03-31 12:00 UTC, a day of 23 hours in Berlin

TEST(Quota, CountsStartAgainAtLocalMidnight) {
  OneCell cell(quota(3, Period::kDay, "Europe/Berlin"));
  EXPECT_EQ(cell.peek(0, kNoon).reset_after, 0s);
  const Outcome first = cell.take(2, kNoon);
  EXPECT_EQ(first.remaining, 1);
  EXPECT_EQ(first.reset_after, 10h);
  EXPECT_EQ(cell.take(2, kNoon).wait, 10h);
  EXPECT_FALSE(cell.take(2, kNoon + 10h - 1ns).fits());
  EXPECT_EQ(cell.take(3, kNoon + 10h).reset_after, 24h);
}

TEST(Quota, ADayOfTwentyThreeHoursIsOneDay) {
  OneCell cell(quota(1, Period::kDay, "Europe/Berlin"));
  const Nanos start = kNoon - 13h;
  EXPECT_EQ(cell.take(1, start).reset_after, 23h);
  EXPECT_EQ(cell.take(1, start + 1h).wait, 22h);
  EXPECT_TRUE(cell.take(1, start + 23h).fits());
}

TEST(Quota, ADayOfTwentyFiveHoursIsOneDay) {
  OneCell cell(quota(1, Period::kDay, "America/New_York"));
  const Nanos start = 1'730'606'400s;  // 2024-11-03 04:00 UTC
  EXPECT_EQ(cell.take(1, start).reset_after, 25h);
  EXPECT_FALSE(cell.take(1, start + 24h).fits());
  EXPECT_TRUE(cell.take(1, start + 25h).fits());
}

TEST(Quota, EveryPeriodResetsAtItsEnd) {
  const std::pair<Period, Nanos> rows[] = {{Period::kHour, 1h},
                                           {Period::kDay, 12h},
                                           {Period::kWeek, 12h},  // that day was a Sunday
                                           {Period::kMonth, 12h},
                                           {Period::kYear, 24h * 275 + 12h}};
  for (const auto& [period, left] : rows) {
    OneCell cell(quota(5, period));
    EXPECT_EQ(cell.take(5, kNoon).reset_after, left) << to_string(period);
    EXPECT_EQ(cell.take(1, kNoon).wait, left) << to_string(period);
    EXPECT_TRUE(cell.reads_like_new(kNoon + left)) << to_string(period);
    EXPECT_FALSE(cell.reads_like_new(kNoon + left - 1ns)) << to_string(period);
  }
}

TEST(Quota, WallClockSetBackAcrossMidnightGrantsNothingTwice) {
  OneCell cell(quota(2, Period::kDay));
  const Nanos midnight = kNoon + 12h;
  EXPECT_TRUE(cell.take(2, midnight - 1s).fits());
  EXPECT_TRUE(cell.take(2, midnight + 1s).fits());
  const Outcome denied = cell.take(1, midnight - 1s);
  EXPECT_EQ(denied.wait, 24h + 1s) << "until the day already begun has ended";
  EXPECT_FALSE(cell.take(1, midnight + 2s).fits());
  EXPECT_TRUE(cell.take(2, midnight + 24h).fits());
}

TEST(Quota, BurstAllowanceIsFlaggedAndRemainingCountsToTheLimit) {
  OneCell cell(quota(2, Period::kDay, "UTC", 1));
  EXPECT_EQ(cell.take(1, kNoon).remaining, 1);
  EXPECT_FALSE(cell.take(1, kNoon).burst);
  const Outcome burst = cell.take(1, kNoon);
  EXPECT_TRUE(burst.burst);
  EXPECT_EQ(burst.remaining, 0);
  EXPECT_EQ(cell.take(1, kNoon).wait, 12h);
}

TEST(Quota, AReservationAcrossACutHourIsNotOvertaken) {
  // The hour before Lord Howe Island's clocks go forward by half an hour ends at 15:30 UTC, the next lasts half an
  // hour.
  OneCell cell(quota(1, Period::kHour, "Australia/Lord_Howe"));
  const Nanos change = 1'728'142'200s;  // 2024-10-05 15:30 UTC
  EXPECT_TRUE(cell.take(1, change - 20min).fits());
  EXPECT_EQ(cell.reserve(1, change - 15min), change);
  EXPECT_EQ(cell.peek(1, change - 10min).wait, 40min);
  EXPECT_FALSE(cell.take(1, change).fits());
  EXPECT_TRUE(cell.take(1, change + 30min).fits());
}

// A day's number and the count in it; the zone has no daylight saving, so that plain arithmetic is right.
RC_GTEST_PROP(Quota, AnswersLikeACountPerDay, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 30);
  const Units burst = *rc::gen::element<Units>(0, 3);
  const auto moves = *testing::script(testing::Time::kAnyWay);
  OneCell cell(quota(limit, Period::kDay, "Asia/Kolkata", burst));
  oracle::FixedWindow model(limit + burst, 24h);
  constexpr Nanos kAheadOfUtc = 5h + 30min;
  Nanos now = kNoon;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(1h, 24h, last);
    const Nanos local = now + kAheadOfUtc;
    const Units cost = move.units(limit + burst);
    testing::check_wait(cell, cost, now);
    last = cell.take(cost, now);
    RC_ASSERT(last.fits() == model.fits(cost, local));
    if (last.fits()) model.charge(cost, local);
    RC_ASSERT(last.remaining == oracle::remaining(model.room(local), burst));
    RC_ASSERT(last.reset_after == (model.used(local) > 0 ? model.end(local) - local : 0ns));
    testing::check_reset(cell, now);
  }
}

TEST(Quota, ARefundCountsInItsOwnPeriodOnly) {
  OneCell cell(quota(5, Period::kDay, "Europe/Berlin"));
  EXPECT_TRUE(cell.take(4, kNoon).fits());
  cell.refund(1, kNoon, kNoon + 1h);
  EXPECT_EQ(cell.peek(0, kNoon + 1h).remaining, 2);
  EXPECT_TRUE(cell.take(4, kNoon + 11h).fits());
  cell.refund(3, kNoon, kNoon + 11h);
  EXPECT_EQ(cell.peek(0, kNoon + 11h).remaining, 1);
}

}  // namespace
}  // namespace headgate
