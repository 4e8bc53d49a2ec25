#include "core/token_bucket.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "driver.h"

namespace headgate {
namespace {

using core::BucketNumbers;
using core::BucketState;
using core::Outcome;
using testing::bucket;
using testing::Move;
using testing::OneCell;
using namespace std::chrono_literals;

// Rates whose unit refills in a whole number of nanoseconds, and rates that do not divide one.
rc::Gen<Rate> any_rate() {
  return rc::gen::oneOf(
      rc::gen::element(Rate{10, 1s}, Rate{1, 3s}, Rate{3, 1s}, Rate{7, 1min}, Rate{1'000'003, 1h}, Rate{1, 1ns}),
      rc::gen::map(rc::gen::pair(rc::gen::inRange<std::int64_t>(1, 1'000'000'000'000),
                                 rc::gen::inRange<std::int64_t>(1, 2'000'000)),
                   [](const std::pair<std::int64_t, std::int64_t>& numbers) {
                     return Rate{std::min(numbers.first, numbers.second), Nanos{numbers.first}};
                   }));
}

TEST(TokenBucket, StartsFullAndRefillsContinuously) {
  OneCell cell(bucket(10, {2, 1s}));
  struct Row {
    Nanos now;
    Units cost;
    bool fits;
    Units remaining;
    Nanos wait;
    Nanos reset_after;
  };
  const Row rows[] = {
      {100s, 0, true, 10, 0s, 0s},            // never seen: full
      {100s, 4, true, 6, 0s, 2s},             //
      {100s, 7, false, 6, 500ms, 2s},         // a denial says what is left as things stand
      {100s, 6, true, 0, 0s, 5s},             // the whole rest
      {100s, 1, false, 0, 500ms, 5s},         //
      {100'499ms, 1, false, 0, 1ms, 4501ms},  //
      {100'500ms, 1, true, 0, 0s, 5s},        // exactly one has come back
      {102s, 10, false, 3, 3500ms, 3500ms},   //
      {200s, 10, true, 0, 0s, 5s},            // never more than full
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(::testing::Message() << row.now.count() << "ns, cost " << row.cost);
    const Outcome outcome = cell.take(row.cost, row.now);
    EXPECT_EQ(outcome.fits(), row.fits);
    EXPECT_EQ(outcome.remaining, row.remaining);
    EXPECT_EQ(outcome.wait, row.wait);
    EXPECT_EQ(outcome.reset_after, row.reset_after);
    EXPECT_FALSE(outcome.burst);
  }
}

TEST(TokenBucket, BurstAllowanceAdmitsPastTheLimitFlaggedAndRemainingCountsToTheLimit) {
  OneCell cell(bucket(3, {1, 1s}, 2));
  const std::array<std::pair<Units, bool>, 5> admitted{{{2, false}, {1, false}, {0, false}, {0, true}, {0, true}}};
  for (const auto& [remaining, burst] : admitted) {
    const Outcome outcome = cell.take(1, 0s);
    EXPECT_TRUE(outcome.fits());
    EXPECT_EQ(outcome.remaining, remaining);
    EXPECT_EQ(outcome.burst, burst);
  }
  const Outcome denied = cell.take(1, 0s);
  EXPECT_EQ(denied.wait, 1s);
  EXPECT_FALSE(denied.burst);
  EXPECT_FALSE(cell.peek(0, 0s).burst) << "nothing was asked for, so nothing was admitted as burst";
  // Half a unit past the limit is past the limit.
  EXPECT_TRUE(cell.take(1, 2500ms).burst);
  EXPECT_FALSE(cell.take(1, 4s).burst);
}

TEST(TokenBucket, CostUpToCapacityPlusBurstFitsAtOnce) {
  OneCell cell(bucket(3, {1, 1s}, 2));
  const Outcome outcome = cell.take(5, 0s);
  EXPECT_TRUE(outcome.fits());
  EXPECT_TRUE(outcome.burst);
  EXPECT_EQ(outcome.remaining, 0);
}

// At `units` per `per` the k-th unit after a full bucket is there at k * per / units, rounded up to the clock's
// nanosecond, for a million units, and not a nanosecond earlier.
void expect_no_drift(Rate rate) {
  const auto limit = bucket(2, rate);
  ASSERT_TRUE(limit);
  const BucketNumbers n = core::compile(*limit).numbers.bucket;
  BucketState state;
  const Nanos start = 1'700'000'000s;
  state = core::token_bucket(state, n, 2, start).next;
  for (std::int64_t k = 1; k <= 1'000'000; ++k) {
    const base::Wide exact = base::Wide{k} * rate.per.count();
    const Nanos at = start + Nanos{static_cast<std::int64_t>((exact + rate.units - 1) / rate.units)};
    ASSERT_FALSE(core::token_bucket(state, n, 1, at - 1ns).outcome.fits()) << k;
    const auto step = core::token_bucket(state, n, 1, at);
    ASSERT_TRUE(step.outcome.fits()) << k;
    state = step.next;
  }
}

TEST(TokenBucket, ThreePerSecondDoesNotDriftOverAMillionUnits) { expect_no_drift({3, 1s}); }
TEST(TokenBucket, SevenPerMinuteDoesNotDriftOverAMillionUnits) { expect_no_drift({7, 1min}); }
TEST(TokenBucket, AMillionAndThreePerHourDoesNotDriftOverAMillionUnits) { expect_no_drift({1'000'003, 1h}); }
TEST(TokenBucket, TenPerSecondDoesNotDriftOverAMillionUnits) { expect_no_drift({10, 1s}); }

TEST(TokenBucket, FractionsOfANanosecondAreCarriedNotRounded) {
  const BucketNumbers n = core::compile(*bucket(1000, {3, 1s})).numbers.bucket;
  BucketState state;
  for (int i = 0; i < 1000; ++i) state = core::token_bucket(state, n, 1, 0s).next;
  EXPECT_EQ(state.full_at, Nanos{333'333'333'333});
  EXPECT_EQ(state.carry, 1) << "a third of a nanosecond";
  EXPECT_EQ(core::token_bucket(state, n, 0, 0s).outcome.reset_after, Nanos{333'333'333'334});
}

RC_GTEST_PROP(TokenBucket, AnswersLikeExactArithmetic, ()) {
  const Rate rate = *any_rate();
  const Units capacity = *rc::gen::inRange<Units>(1, 60);
  const Units burst = *rc::gen::element<Units>(0, 0, 1, 7);
  const auto moves = *testing::script();
  OneCell cell(bucket(capacity, rate, burst));
  oracle::TokenBucket model(capacity + burst, rate);
  const Nanos unit = std::max(rate.per / rate.units, 1ns);
  Nanos now = *testing::start_of_time();
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(unit, unit * (capacity + burst), last);
    const Units cost = move.units(capacity + burst);
    testing::check_wait(cell, cost, now);
    last = cell.take(cost, now);
    RC_ASSERT(last.fits() == model.fits(cost, now));
    if (last.fits()) model.charge(cost, now);
    RC_ASSERT(last.remaining == oracle::remaining(model.room(now), burst));
    RC_ASSERT(last.burst == (last.fits() && cost > 0 && oracle::used_burst(model.room(now), burst)));
    RC_ASSERT(last.reset_after == model.until_full(now));
    testing::check_reset(cell, now);
  }
}

RC_GTEST_PROP(TokenBucket, ClockGoingBackwardsGrantsNothingTwice, ()) {
  const Rate rate = *any_rate();
  const Units capacity = *rc::gen::inRange<Units>(1, 20);
  const auto moves = *testing::script(testing::Time::kAnyWay);
  OneCell cell(bucket(capacity, rate));
  const Nanos unit = std::max(rate.per / rate.units, 1ns);
  const Nanos start = 1'700'000'000s;
  Nanos now = start;
  Nanos furthest = start;
  RC_ASSERT(cell.take(1, start).fits());  // a cell never seen knows no time
  base::Wide admitted = 1;
  Outcome last;
  for (const Move& move : moves) {
    const Units before = cell.peek(0, now).remaining;
    const Nanos by = move.step(unit, unit * capacity, last);
    now += by;
    furthest = std::max(furthest, now);
    if (by < 0ns) RC_ASSERT(cell.peek(0, now).remaining <= before);
    testing::check_wait(cell, move.units(capacity), now);
    last = cell.take(move.units(capacity), now);
    if (last.fits()) admitted += move.units(capacity);
    // What a full bucket and the time that has really passed can give, and no more.
    RC_ASSERT(admitted * rate.per.count() <=
              base::Wide{capacity} * rate.per.count() + base::Wide{(furthest - start).count()} * rate.units);
  }
}

RC_GTEST_PROP(TokenBucket, ARefundAtOnceLeavesNoTrace, ()) {
  const Rate rate = *any_rate();
  const Units capacity = *rc::gen::inRange<Units>(2, 60);
  const Units first = *rc::gen::inRange<Units>(1, capacity);
  const Units second = *rc::gen::inRange<Units>(1, capacity - first + 1);
  const BucketNumbers n = core::compile(*bucket(capacity, rate)).numbers.bucket;
  const BucketState before = core::token_bucket({}, n, first, 1000s).next;
  const BucketState charged = core::token_bucket(before, n, second, 1000s).next;
  const BucketState after = core::token_bucket_refund(charged, n, second);
  RC_ASSERT(after.full_at == before.full_at);
  RC_ASSERT(after.carry == before.carry);
}

TEST(TokenBucket, RefundNeverMakesABucketMoreThanFull) {
  OneCell cell(bucket(5, {3, 1s}));
  EXPECT_TRUE(cell.take(2, 10s).fits());
  cell.refund(5, 10s, 10s);
  EXPECT_EQ(cell.peek(0, 10s).remaining, 5);
  EXPECT_TRUE(cell.take(5, 10s).fits());
  EXPECT_FALSE(cell.take(1, 10s).fits());
  OneCell unseen(bucket(5, {3, 1s}));
  unseen.refund(5, 0s, 0s);
  EXPECT_EQ(unseen.peek(0, 0s).remaining, 5);
}

TEST(TokenBucket, ReservationsQueueBehindEachOtherAndACostOfZeroStillFits) {
  OneCell cell(bucket(2, {1, 1s}));
  EXPECT_EQ(cell.reserve(2, 100s), 100s);
  EXPECT_EQ(cell.reserve(1, 100s), 101s);
  EXPECT_EQ(cell.reserve(2, 100s), 103s);
  EXPECT_EQ(cell.peek(1, 100s).wait, 4s);
  const Outcome nothing = cell.peek(0, 100s);
  EXPECT_TRUE(nothing.fits());
  EXPECT_EQ(nothing.remaining, 0);
  EXPECT_EQ(nothing.reset_after, 5s);
  cell.refund(2, 103s, 100s);
  EXPECT_EQ(cell.peek(1, 100s).wait, 2s);
}

RC_GTEST_PROP(TokenBucket, DivisionByReciprocalIsDivision, ()) {
  // Small and huge numbers, and those around every multiple, where rounding would show.
  constexpr std::int64_t kEnd = (std::int64_t{1} << 59) - 1;
  const int bits = *rc::gen::inRange(1, 60);
  const std::int64_t y =
      *rc::gen::inRange<std::int64_t>(std::int64_t{1} << (bits - 1), std::int64_t{1} << (bits - 1) << 1);
  const core::detail::Divisor divisor(std::min(y, kEnd));
  const std::int64_t quotient = *rc::gen::inRange<std::int64_t>(0, kEnd / y + 1);
  for (const std::int64_t x : {quotient * y - 1, quotient * y, quotient * y + 1, quotient * y + y - 1}) {
    if (x >= 0 && x <= kEnd) RC_ASSERT(core::detail::divide(x, divisor) == x / y);
  }
}

TEST(TokenBucket, DivisionByReciprocalIsDivisionAtTheExtremes) {
  constexpr std::int64_t kEnd = (std::int64_t{1} << 59) - 1;
  std::vector<std::int64_t> numbers{1,        2,   3, 5, 7, 10, 999'999'999, 1'000'000'000, core::kLongestSpan.count(),
                                    kEnd - 1, kEnd};
  for (int bit = 1; bit < 59; ++bit) {
    for (const std::int64_t off : {-1, 0, 1}) numbers.push_back((std::int64_t{1} << bit) + off);
  }
  for (const std::int64_t y : numbers) {
    const core::detail::Divisor divisor(y);
    EXPECT_EQ(core::detail::divide(0, divisor), 0);
    for (const std::int64_t x : numbers) ASSERT_EQ(core::detail::divide(x, divisor), x / y) << x << " / " << y;
    for (const std::int64_t x : numbers) {
      const std::int64_t multiple = x / y * y;
      ASSERT_EQ(core::detail::divide(multiple, divisor), x / y) << multiple << " / " << y;
      if (multiple == 0) continue;
      ASSERT_EQ(core::detail::divide(multiple - 1, divisor), x / y - 1) << multiple - 1 << " / " << y;
    }
  }
}

TEST(TokenBucket, WorksAtTheEndOfTimeWithTheLargestAndSlowestLimits) {
  const Rate rates[] = {{1, core::kLongestSpan},                   // one in ten years
                        {Units{1} << 52, Nanos{(1LL << 52) + 1}},  // a hair under one a nanosecond
                        {Units{1} << 52, core::kLongestSpan},
                        {999'999'937, 999'999'000s},
                        {1, 1ns}};
  for (const Rate rate : rates) {
    const Units capacity = static_cast<Units>(
        std::min<base::Wide>(Units{1} << 52, base::Wide{core::kLongestSpan.count()} * rate.units / rate.per.count()));
    SCOPED_TRACE(::testing::Message() << rate.units << "/" << rate.per.count() << "ns, " << capacity);
    for (const Nanos now : {Nanos{0}, kMaxTime}) {
      OneCell cell(bucket(capacity, rate));
      EXPECT_TRUE(cell.take(capacity, now).fits());
      EXPECT_EQ(cell.peek(0, now).remaining, 0);
      const Outcome denied = cell.peek(capacity, now);
      EXPECT_EQ(denied.wait, denied.reset_after);
      EXPECT_GT(denied.wait, 0ns);
      EXPECT_LE(denied.wait, core::kLongestSpan + 1ns);
      EXPECT_TRUE(cell.peek(capacity, now + denied.wait).fits());
      // The whole of time backwards.
      const Outcome back = cell.peek(1, 0ns);
      EXPECT_FALSE(back.fits());
      EXPECT_EQ(back.remaining, 0);
      EXPECT_TRUE(cell.peek(1, back.wait).fits());
      EXPECT_FALSE(cell.peek(1, back.wait - 1ns).fits());
      cell.refund(capacity, now, now);
      EXPECT_TRUE(cell.take(capacity, now).fits());
    }
  }
}

// token_bucket_whole() and the general form, in 128 bits, where a unit refills in whole nanoseconds.
RC_GTEST_PROP(TokenBucket, TheFastFormAnswersLikeTheGeneralOne, ()) {
  const Units capacity = *rc::gen::inRange<Units>(1, 1'000'000);
  const Units burst = *rc::gen::inRange<Units>(0, 10);
  const Nanos every{*rc::gen::inRange<std::int64_t>(1, 1'000'000'000)};
  const auto limit = core::compile(testing::bucket(capacity, {1, every}, burst).value());
  const core::BucketNumbers& n = limit.numbers.bucket;
  RC_PRE(n.den == 1);
  core::BucketState state;
  Nanos now = *testing::start_of_time();
  core::Outcome last;
  for (const Move& move : *testing::script(testing::Time::kAnyWay)) {
    now = std::max(Nanos{0}, now + move.step(every, Nanos{n.fill}, last));
    const Units cost = move.units(limit.most);
    const auto fast = core::token_bucket_whole(state, n, cost, now);
    const auto general = core::detail::token_bucket_wide(state, n, cost, now);
    last = fast.outcome;
    RC_ASSERT(fast.outcome.wait == general.outcome.wait && fast.outcome.reset_after == general.outcome.reset_after);
    RC_ASSERT(fast.outcome.remaining == general.outcome.remaining && fast.outcome.burst == general.outcome.burst);
    if (!fast.outcome.fits()) continue;
    RC_ASSERT(fast.next.full_at == general.next.full_at && fast.next.carry == general.next.carry);
    state = fast.next;
  }
}

}  // namespace
}  // namespace headgate
