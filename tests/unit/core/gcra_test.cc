#include "core/gcra.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "driver.h"

namespace headgate {
namespace {

using core::Outcome;
using testing::gcra;
using testing::Move;
using testing::OneCell;
using namespace std::chrono_literals;

// As CL.THROTTLE tells seconds: rounded up when the fraction is at least a millisecond.
std::int64_t seconds(Nanos span) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(span);
  return whole.count() + (span - whole >= 1ms ? 1 : 0);
}

struct Reply {
  int limited;
  Units limit;
  Units remaining;
  std::int64_t retry_after;
  std::int64_t reset_after;
  bool operator==(const Reply&) const = default;
};

Reply throttle(OneCell& cell, Units quantity, Nanos now) {
  const Outcome outcome = cell.take(quantity, now);
  return {outcome.fits() ? 0 : 1, cell.limit().limit, outcome.remaining, outcome.fits() ? -1 : seconds(outcome.wait),
          seconds(outcome.reset_after)};
}

TEST(Gcra, AnswersTheKnownQuestionsOfRedisCell) {
  OneCell user(gcra(15, 30, 60s));
  EXPECT_EQ(throttle(user, 1, 1'700'000'000s), (Reply{0, 16, 15, -1, 2}));
  OneCell e(gcra(0, 1, 2s));
  EXPECT_EQ(throttle(e, 1, 1'700'000'000s), (Reply{0, 1, 0, -1, 2}));
  EXPECT_EQ(throttle(e, 1, 1'700'000'000s), (Reply{1, 1, 0, 2, 2}));
}

TEST(Gcra, SpendsABurstThenAdmitsAtTheRate) {
  OneCell cell(gcra(2, 1, 10s));
  const Nanos now = 1'700'000'000s;
  EXPECT_EQ(throttle(cell, 0, now), (Reply{0, 3, 3, -1, 0})) << "a quantity of 0 looks";
  EXPECT_EQ(throttle(cell, 2, now), (Reply{0, 3, 1, -1, 20}));
  EXPECT_EQ(throttle(cell, 2, now), (Reply{1, 3, 1, 10, 20}));
  EXPECT_EQ(throttle(cell, 1, now), (Reply{0, 3, 0, -1, 30}));
  EXPECT_EQ(throttle(cell, 1, now + 9s), (Reply{1, 3, 0, 1, 21}));
  EXPECT_EQ(throttle(cell, 1, now + 10s), (Reply{0, 3, 0, -1, 30}));
  EXPECT_EQ(throttle(cell, 3, now + 40s), (Reply{0, 3, 0, -1, 30}));
}

RC_GTEST_PROP(Gcra, AnswersLikeRedisCell, ()) {
  const Units max_burst = *rc::gen::inRange<Units>(0, 60);
  const Nanos period = *rc::gen::element<Nanos>(1s, 2s, 7s, 60s, 3600s, 86'400s);
  // Intervals of at least a microsecond: below that redis-cell divides by zero.
  const Units count = *rc::gen::oneOf(rc::gen::inRange<Units>(1, 100), rc::gen::inRange<Units>(1, 1'000'000));
  const auto moves = *testing::script();
  OneCell cell(gcra(max_burst, count, period));
  oracle::RedisCell model(max_burst, count, period);
  RC_ASSERT(cell.limit().numbers.gcra.interval == model.interval());
  Nanos now = 1'700'000'000s;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(model.interval(), model.interval() * (max_burst + 1), last);
    model.expire(now);
    const Units quantity = move.units(max_burst + 1);
    testing::check_wait(cell, quantity, now);
    last = cell.take(quantity, now);
    const auto expected = model.throttle(quantity, now);
    RC_ASSERT(last.fits() == !expected.limited);
    RC_ASSERT(cell.limit().limit == expected.limit);
    RC_ASSERT(last.remaining == expected.remaining);
    RC_ASSERT((last.fits() ? -1ns : last.wait) == expected.retry_after);
    RC_ASSERT(last.reset_after == expected.reset_after);
    RC_ASSERT(!last.burst);
    RC_ASSERT(cell.reads_like_new(now + last.reset_after));
  }
}

TEST(Gcra, AQuantityAboveTheLimitHasNoRetryInRedisCellAndIsAboveTheMostHere) {
  oracle::RedisCell model(2, 1, 10s);
  EXPECT_EQ(model.throttle(4, 1'700'000'000s).retry_after, -1ns);
  EXPECT_EQ(core::compile(*gcra(2, 1, 10s)).most, 3);
}

TEST(Gcra, TheIntervalIsAFloatingPointQuotientCutToNanoseconds) {
  EXPECT_EQ(core::compile(*gcra(0, 7, 60s)).numbers.gcra.interval, Nanos{8'571'428'571});
  EXPECT_EQ(core::compile(*gcra(0, 3, 1s)).numbers.gcra.interval, Nanos{333'333'333});
  EXPECT_EQ(core::compile(*gcra(9, 3, 1s, 5)).numbers.gcra.tolerance, 15 * Nanos{333'333'333});
}

TEST(Gcra, IntervalsBelowAMicrosecondCountNanoseconds) {
  OneCell cell(gcra(9, 3'000'000, 1s));  // 333 ns
  EXPECT_EQ(cell.take(4, 1s).remaining, 6);
  EXPECT_EQ(cell.take(6, 1s).remaining, 0);
  EXPECT_EQ(cell.take(1, 1s).wait, 333ns);
}

TEST(Gcra, BurstAllowanceAdmitsPastTheLimitFlaggedAndRemainingCountsToTheLimit) {
  OneCell cell(gcra(2, 1, 10s, 2));
  const std::array<std::pair<Units, bool>, 5> admitted{{{2, false}, {1, false}, {0, false}, {0, true}, {0, true}}};
  for (const auto& [remaining, burst] : admitted) {
    const Outcome outcome = cell.take(1, 5s);
    EXPECT_TRUE(outcome.fits());
    EXPECT_EQ(outcome.remaining, remaining);
    EXPECT_EQ(outcome.burst, burst);
  }
  EXPECT_EQ(cell.take(1, 5s).wait, 10s);
}

RC_GTEST_PROP(Gcra, BurstAllowanceLeavesRemainingAsRedisCellCountsIt, ()) {
  // An interval that is no whole number of microseconds is where the roundings would tell.
  const Units max_burst = *rc::gen::inRange<Units>(0, 30);
  const Units burst = *rc::gen::inRange<Units>(1, 30);
  const Units count = *rc::gen::inRange<Units>(1, 999'999);
  OneCell plain(gcra(max_burst, count, 1s));
  OneCell with_burst(gcra(max_burst, count, 1s, burst));
  for (Units i = 0; i <= max_burst; ++i) {
    const Outcome a = plain.take(1, 1000s);
    const Outcome b = with_burst.take(1, 1000s);
    RC_ASSERT(a.fits());
    RC_ASSERT(b.fits());
    RC_ASSERT(b.remaining == a.remaining);
    RC_ASSERT(!b.burst);
  }
  for (Units i = 0; i < burst; ++i) {
    const Outcome outcome = with_burst.take(1, 1000s);
    RC_ASSERT(outcome.fits());
    RC_ASSERT(outcome.burst);
    RC_ASSERT(outcome.remaining == 0);
  }
  RC_ASSERT(!with_burst.take(1, 1000s).fits());
}

RC_GTEST_PROP(Gcra, ClockGoingBackwardsGrantsNothingTwice, ()) {
  const Units max_burst = *rc::gen::inRange<Units>(0, 20);
  const Units count = *rc::gen::inRange<Units>(1, 1000);
  const auto moves = *testing::script(testing::Time::kAnyWay);
  OneCell cell(gcra(max_burst, count, 60s));
  const Nanos interval = cell.limit().numbers.gcra.interval;
  const Nanos start = 1'700'000'000s;
  Nanos now = start;
  Nanos furthest = start;
  RC_ASSERT(cell.take(1, start).fits());  // a cell never seen knows no time
  Units admitted = 1;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(interval, interval * (max_burst + 1), last);
    furthest = std::max(furthest, now);
    testing::check_wait(cell, move.units(max_burst + 1), now);
    last = cell.take(move.units(max_burst + 1), now);
    if (last.fits()) admitted += move.units(max_burst + 1);
    RC_ASSERT(admitted <= max_burst + 1 + (furthest - start) / interval);
  }
}

TEST(Gcra, ARefundAtOnceLeavesNoTraceAndNeverMakesMoreThanFull) {
  OneCell cell(gcra(9, 10, 1s));
  EXPECT_EQ(cell.take(3, 50s).remaining, 7);
  EXPECT_EQ(cell.take(5, 50s).remaining, 2);
  cell.refund(5, 50s, 50s);
  EXPECT_EQ(cell.peek(0, 50s).remaining, 7);
  cell.refund(10, 50s, 50s);
  EXPECT_EQ(cell.peek(0, 50s).remaining, 10);
  EXPECT_FALSE(cell.take(10, 50s).burst);
  EXPECT_FALSE(cell.take(1, 50s).fits());
  OneCell unseen(gcra(9, 10, 1s));
  unseen.refund(10, 0s, 0s);
  EXPECT_TRUE(unseen.reads_like_new(0s));
}

TEST(Gcra, ReservationsQueueBehindEachOtherAndACostOfZeroStillFits) {
  OneCell cell(gcra(0, 1, 10s));
  EXPECT_EQ(cell.reserve(1, 100s), 100s);
  EXPECT_EQ(cell.reserve(1, 100s), 110s);
  EXPECT_EQ(cell.reserve(1, 100s), 120s);
  EXPECT_TRUE(cell.peek(0, 100s).fits());
  EXPECT_EQ(cell.peek(0, 100s).remaining, 0);
  EXPECT_EQ(cell.peek(0, 100s).reset_after, 30s);
}

TEST(Gcra, WorksAtTheEndOfTimeWithTheLargestAndSlowestLimits) {
  const Limit limits[] = {*gcra(0, 1, core::kLongestSpan), *gcra((Units{1} << 52) - 1, 1'000'000'000, 1s),
                          *gcra((Units{1} << 52) - 1, Units{1} << 52, core::kLongestSpan)};
  for (const Limit& limit : limits) {
    for (const Nanos now : {Nanos{0}, kMaxTime}) {
      OneCell cell(limit);
      EXPECT_TRUE(cell.take(limit.most(), now).fits());
      EXPECT_EQ(cell.peek(0, now).remaining, 0);
      const Outcome denied = cell.peek(limit.most(), now);
      EXPECT_GT(denied.wait, 0ns);
      EXPECT_TRUE(cell.peek(limit.most(), now + denied.wait).fits());
      const Outcome back = cell.peek(1, 0ns);
      EXPECT_FALSE(back.fits());
      EXPECT_TRUE(cell.peek(1, back.wait).fits());
    }
  }
}

}  // namespace
}  // namespace headgate
