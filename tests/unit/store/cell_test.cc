// One cell on its own: judging, charging, refunding and carrying over, for every strategy.
#include "store/memory/cell.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "support/cells.h"
#include "support/draws.h"

namespace headgate::test {
namespace {

using core::compile;
using core::CompiledLimit;
using core::Outcome;

rc::Gen<Strategy> any_strategy() { return rc::gen::elementOf(all_strategies()); }
// All but concurrency, which is given back by lease and carried over as it is.
rc::Gen<Strategy> any_counting_strategy() {
  return rc::gen::suchThat(any_strategy(), [](Strategy strategy) { return strategy != Strategy::kConcurrency; });
}
rc::Gen<Size> any_size() {
  return rc::gen::apply(
      [](Units limit, std::int64_t ms, Units burst) {
        return Size{limit, ms * 1ms, burst};
      },
      rc::gen::inRange<Units>(1, 60), rc::gen::inRange<std::int64_t>(10, 20'000), rc::gen::element<Units>(0, 0, 3, 20));
}
bool has_burst(Strategy strategy) { return strategy != Strategy::kLeakyBucket; }

class EveryCell : public testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Cell, EveryCell, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EveryCell, AdmitsItsLimitAndNoMore) {
  const CompiledLimit limit = compile(limit_of(GetParam(), {.limit = 5}));
  BareCell cell(GetParam());
  for (Units i = 0; i < 5; ++i) {
    const Outcome outcome = cell.judge(limit, 1, kStart);
    ASSERT_TRUE(outcome.fits());
    ASSERT_EQ(outcome.remaining, 4 - i);
    ASSERT_TRUE(cell.take(limit, 1, kStart));
  }
  const Outcome outcome = cell.judge(limit, 1, kStart);
  EXPECT_FALSE(outcome.fits());
  EXPECT_EQ(outcome.remaining, 0);
  EXPECT_GT(outcome.wait, Nanos{0});
  EXPECT_GE(outcome.reset_after, outcome.wait);
  EXPECT_TRUE(cell.judge(limit, 1, kStart + outcome.wait).fits());
  EXPECT_FALSE(cell.judge(limit, 1, kStart + outcome.wait - 1ns).fits());
}

TEST_P(EveryCell, TakesTheWholeLimitAtOnce) {
  const CompiledLimit limit = compile(limit_of(GetParam(), {.limit = 5}));
  BareCell cell(GetParam());
  ASSERT_TRUE(cell.take(limit, 5, kStart));
  EXPECT_FALSE(cell.judge(limit, 1, kStart).fits());
  EXPECT_TRUE(cell.judge(limit, 5, kStart + whole_again({})).fits());
}

TEST_P(EveryCell, AdmitsTheBurstAllowanceAndFlagsIt) {
  if (!has_burst(GetParam())) {
    EXPECT_EQ(limit_of(GetParam(), {.limit = 5, .burst = 2}).most(), 5);
    return;
  }
  const CompiledLimit limit = compile(limit_of(GetParam(), {.limit = 5, .burst = 2}));
  BareCell cell(GetParam());
  ASSERT_TRUE(cell.take(limit, 5, kStart));
  EXPECT_TRUE(cell.judge(limit, 1, kStart).burst);
  EXPECT_EQ(cell.judge(limit, 1, kStart).remaining, 0);
  ASSERT_TRUE(cell.take(limit, 2, kStart));
  EXPECT_FALSE(cell.judge(limit, 1, kStart).fits());
}

TEST_P(EveryCell, FreesWhatItOwnsWhenReset) {
  const CompiledLimit limit = compile(limit_of(GetParam(), {.limit = 100}));
  BareCell cell(GetParam());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(cell.take(limit, 1, kStart + i * 1ns));
  store::reset_words(GetParam(), cell.words().data());
  for (const store::Word word : cell.words()) EXPECT_EQ(word, 0);
  EXPECT_EQ(cell.judge(limit, 1, kStart).remaining, 99);
}

// A trace of charges and denials at times that mostly go forward.
struct Trace {
  BareCell cell;
  Nanos now;
};
Trace any_trace(Strategy strategy, const CompiledLimit& limit, const Size& size) {
  Trace trace{BareCell(strategy), kStart};
  const int steps = *rc::gen::inRange(0, 30);
  for (int i = 0; i < steps; ++i) {
    trace.now += up_to(size.window / 4);
    (void)trace.cell.take(limit, *rc::gen::inRange<Units>(1, limit.most + 1), trace.now);
  }
  return trace;
}

RC_GTEST_PROP(Cell, JudgingWritesNothing, ()) {
  const Strategy strategy = *any_strategy();
  const Size size = *any_size();
  const CompiledLimit limit = compile(limit_of(strategy, size));
  const Trace trace = any_trace(strategy, limit, size);
  const BareCell before(trace.cell);
  const auto words = trace.cell.words();
  const Nanos at = kStart + up_to(4 * size.window);
  for (Units cost = 0; cost <= limit.most; ++cost) (void)trace.cell.judge(limit, cost, at);
  RC_ASSERT(words == trace.cell.words());
  // What the words point at has not changed either.
  RC_ASSERT(same(before.judge(limit, 1, trace.now), trace.cell.judge(limit, 1, trace.now)));
}

RC_GTEST_PROP(Cell, EqualsANewOneOnceTheInstantInWordZeroIsPast, ()) {
  const Strategy strategy = *any_strategy();
  const Size size = *any_size();
  const CompiledLimit limit = compile(limit_of(strategy, size));
  Trace trace = any_trace(strategy, limit, size);
  const Nanos at = std::max(trace.now, trace.cell.idle_at()) + Nanos{*rc::gen::element<std::int64_t>(1, 2, 1'000'000)};
  BareCell fresh(strategy);
  for (int i = 0; i < 10; ++i) {
    const Nanos now = at + i * size.window / 5;
    const Units cost = *rc::gen::inRange<Units>(0, limit.most + 1);
    RC_ASSERT(same(trace.cell.judge(limit, cost, now), fresh.judge(limit, cost, now)));
    RC_ASSERT(trace.cell.take(limit, cost, now) == fresh.take(limit, cost, now));
  }
}

RC_GTEST_PROP(Cell, WaitingAsLongAsItSaysIsEnough, ()) {
  const Strategy strategy = *any_strategy();
  const Size size = *any_size();
  const CompiledLimit limit = compile(limit_of(strategy, size));
  const Trace trace = any_trace(strategy, limit, size);
  const Units cost = *rc::gen::inRange<Units>(1, limit.most + 1);
  const Nanos wait = trace.cell.judge(limit, cost, trace.now).wait;
  RC_ASSERT(wait >= Nanos{0});
  RC_ASSERT(trace.cell.judge(limit, cost, trace.now + wait).fits());
}

RC_GTEST_PROP(Cell, ARefundAtOnceUndoesTheCharge, ()) {
  const Strategy strategy = *any_counting_strategy();
  const Size size = *any_size();
  const CompiledLimit limit = compile(limit_of(strategy, size));
  Trace trace = any_trace(strategy, limit, size);
  const BareCell before(trace.cell);
  const Units cost = *rc::gen::inRange<Units>(1, limit.most + 1);
  // A leaky bucket's charge is known by its turn.
  const Nanos turn = trace.now + trace.cell.judge(limit, cost, trace.now).delay;
  if (!trace.cell.take(limit, cost, trace.now)) return;
  trace.cell.refund(limit, cost, strategy == Strategy::kLeakyBucket ? turn : trace.now, trace.now);
  for (int i = 0; i < 8; ++i) {
    const Nanos now = trace.now + i * size.window / 4;
    RC_ASSERT(same(trace.cell.judge(limit, 1, now), before.judge(limit, 1, now)));
  }
}

RC_GTEST_PROP(Cell, ARefundNeverMakesMoreRoomThanThereWouldHaveBeenWithoutTheCharge, ()) {
  const Strategy strategy = *any_counting_strategy();
  const Size size = *any_size();
  const CompiledLimit limit = compile(limit_of(strategy, size));
  Trace with = any_trace(strategy, limit, size);
  BareCell without(with.cell);
  const Units cost = *rc::gen::inRange<Units>(1, limit.most + 1);
  const Nanos charged_at = with.now;
  if (!with.cell.take(limit, cost, charged_at)) return;
  // What others are admitted meanwhile, they would be admitted in any case.
  Nanos now = charged_at;
  for (int i = 0; i < 5; ++i) {
    now += up_to(size.window / 2);
    const Units other = *rc::gen::inRange<Units>(1, limit.most + 1);
    if (with.cell.take(limit, other, now)) RC_ASSERT(without.take(limit, other, now));
  }
  with.cell.refund(limit, cost, charged_at, now);
  for (int i = 0; i < 8; ++i) {
    const Nanos later = now + i * size.window / 4;
    RC_ASSERT(with.cell.judge(limit, 1, later).remaining <= without.judge(limit, 1, later).remaining);
  }
}

TEST(Cell, UnitsThatHaveComeBackAreNotRefunded) {
  for (const Strategy strategy : {Strategy::kTokenBucket, Strategy::kGcra, Strategy::kLeakyBucket}) {
    const CompiledLimit limit = compile(limit_of(strategy, {}));
    BareCell cell(strategy);
    ASSERT_TRUE(cell.take(limit, 10, kStart));
    ASSERT_TRUE(cell.take(limit, 10, kStart + 10s)) << "all has come back by now";
    cell.refund(limit, 10, kStart, kStart + 10s);
    EXPECT_EQ(cell.judge(limit, 0, kStart + 10s).remaining, 0) << to_string(strategy);
  }
}

TEST(Cell, ARefundOfAWindowGoneByChangesNothing) {
  for (const Strategy strategy : {Strategy::kFixedWindow, Strategy::kSlidingWindow}) {
    const CompiledLimit limit = compile(limit_of(strategy, {}));
    BareCell cell(strategy);
    ASSERT_TRUE(cell.take(limit, 5, kStart));
    ASSERT_TRUE(cell.take(limit, 5, kStart + 10s));
    cell.refund(limit, 5, kStart, kStart + 10s);
    EXPECT_EQ(cell.judge(limit, 0, kStart + 10s).remaining, 5) << to_string(strategy);
  }
}

TEST(Cell, ACancelledReservationGivesWayAgain) {
  for (const Strategy strategy : {Strategy::kTokenBucket, Strategy::kGcra, Strategy::kSlidingWindow}) {
    const CompiledLimit limit = compile(limit_of(strategy, {}));
    BareCell cell(strategy);
    ASSERT_TRUE(cell.take(limit, 8, kStart));
    const BareCell before(cell);
    const Nanos at = cell.reserve(limit, 5, kStart);
    ASSERT_GT(at, kStart) << to_string(strategy);
    ASSERT_FALSE(cell.judge(limit, 1, kStart).fits()) << "it must queue behind the reservation";
    cell.refund(limit, 5, at, kStart);
    if (strategy == Strategy::kSlidingWindow) {
      EXPECT_TRUE(same(cell.judge(limit, 2, kStart), before.judge(limit, 2, kStart)));
    }
    EXPECT_TRUE(cell.judge(limit, 2, at).fits()) << to_string(strategy);
  }
}

// No reservation admits more than the limit: the units that take effect at each instant are counted.
RC_GTEST_PROP(Cell, ReservationsKeepTheWindowsPromise, ()) {
  const Strategy strategy = *rc::gen::element(Strategy::kSlidingWindow, Strategy::kFixedWindow);
  const Size size{*rc::gen::inRange<Units>(1, 12), 1s, 0};
  const CompiledLimit limit = compile(limit_of(strategy, size));
  BareCell cell(strategy);
  std::vector<std::pair<Nanos, Units>> acts;
  Nanos now = kStart;
  for (int i = 0; i < 40; ++i) {
    now += up_to(400ms);
    const Units cost = *rc::gen::inRange<Units>(1, size.limit + 1);
    if (*rc::gen::inRange(0, 4) == 0) {
      const Nanos wait = cell.judge(limit, cost, now).wait;
      if (wait <= 3s) acts.emplace_back(cell.reserve(limit, cost, now), cost);
    } else if (cell.take(limit, cost, now)) {
      acts.emplace_back(now, cost);
    }
  }
  for (const auto& [from, unused] : acts) {
    const Nanos start = strategy == Strategy::kFixedWindow ? from - from % 1s : from;
    Units inside = 0;
    for (const auto& [at, cost] : acts) inside += at >= start && at < start + 1s ? cost : 0;
    RC_ASSERT(inside <= size.limit);
  }
}

// --- Carrying over -------------------------------------------------------------------------------------------------

// A cell of which so many units are used at kStart.
BareCell used_cell(Strategy strategy, const CompiledLimit& limit, Units used) {
  BareCell cell(strategy);
  for (Units i = 0; i < used; ++i) {
    // Not all in one run, but all at one instant as buckets see it.
    const Nanos earlier = strategy == Strategy::kSlidingWindow ? Nanos{used - i} : Nanos{0};
    if (!cell.take(limit, 1, kStart - earlier)) throw std::logic_error("more than fits");
  }
  return cell;
}

RC_GTEST_PROP(CarryOver, KeepingTheFractionKeepsItToTheUnit, ()) {
  const Strategy strategy = *any_counting_strategy();
  Size before = *any_size();
  Size after_change = *any_size();
  // Half used means half of the limit, whatever burst allowance is added to it.
  if (strategy == Strategy::kSlidingWindowCounter) after_change.window = before.window;
  const CompiledLimit from = compile(limit_of(strategy, before));
  const CompiledLimit to = compile(limit_of(strategy, after_change));
  const Units used = *rc::gen::inRange<Units>(0, before.limit + 1);
  BareCell cell = used_cell(strategy, from, used);
  cell.carry_over(from, to, OnChange::kKeepFraction, kStart);
  const Units now_used = to.limit - cell.judge(to, 0, kStart).remaining;
  // Nothing is forgotten; but redis-cell counts `remaining` in whole microseconds, and so may read a unit too many.
  const Units slack = strategy == Strategy::kGcra ? before.limit : 0;
  RC_ASSERT(now_used * before.limit + slack >= used * after_change.limit);
  RC_ASSERT(now_used * before.limit <= used * after_change.limit + before.limit);  // one unit at most
}

RC_GTEST_PROP(CarryOver, KeepingTheUnitsKeepsThem, ()) {
  const Strategy strategy = *any_counting_strategy();
  const Size before = *any_size();
  const Size after_change = *any_size();
  const CompiledLimit from = compile(limit_of(strategy, before));
  const CompiledLimit to = compile(limit_of(strategy, after_change));
  const Units used = *rc::gen::inRange<Units>(0, before.limit + 1);
  BareCell cell = used_cell(strategy, from, used);
  cell.carry_over(from, to, OnChange::kKeepUnits, kStart);
  const Units now_used = to.limit - cell.judge(to, 0, kStart).remaining;
  const Units expected = std::min(used, to.limit);
  RC_ASSERT(now_used >= expected);
  RC_ASSERT(now_used <= expected + 1);  // where a unit's interval does not divide into nanoseconds
}

RC_GTEST_PROP(CarryOver, AResetCellIsAsIfNeverSeen, ()) {
  const Strategy strategy = *any_strategy();
  const CompiledLimit from = compile(limit_of(strategy, *any_size()));
  const CompiledLimit to = compile(limit_of(strategy, *any_size()));
  BareCell cell = used_cell(strategy, from, *rc::gen::inRange<Units>(0, from.limit + 1));
  cell.carry_over(from, to, OnChange::kReset, kStart);
  const Units cost = *rc::gen::inRange<Units>(0, to.most + 1);
  RC_ASSERT(same(cell.judge(to, cost, kStart), BareCell(strategy).judge(to, cost, kStart)));
}

RC_GTEST_PROP(CarryOver, ToTheSameLimitChangesNothing, ()) {
  const Strategy strategy = *any_strategy();
  const Size size = *any_size();
  const CompiledLimit limit = compile(limit_of(strategy, size));
  Trace trace = any_trace(strategy, limit, size);
  if (*rc::gen::arbitrary<bool>() && strategy != Strategy::kConcurrency) {
    (void)trace.cell.reserve(limit, *rc::gen::inRange<Units>(1, limit.most + 1), trace.now);
  }
  const BareCell before(trace.cell);
  const OnChange how = *rc::gen::element(OnChange::kKeepFraction, OnChange::kKeepUnits);
  trace.cell.carry_over(limit, limit, how, trace.now);
  for (int i = 0; i < 12; ++i) {
    const Nanos now = trace.now + i * size.window / 4;
    RC_ASSERT(same(trace.cell.judge(limit, 1, now), before.judge(limit, 1, now)));
  }
}

RC_GTEST_PROP(CarryOver, WhatIsUsedBeyondTheLimitIsNotForgotten, ()) {
  const Strategy strategy = *rc::gen::element(Strategy::kSlidingWindowCounter, Strategy::kFixedWindow,
                                              Strategy::kSlidingWindow, Strategy::kQuota);
  const Size before{*rc::gen::inRange<Units>(1, 20), 1s, *rc::gen::inRange<Units>(1, 20)};
  const Size after_change{before.limit, *rc::gen::element<Nanos>(1s, 2s, 500ms), before.burst};
  const CompiledLimit from = compile(limit_of(strategy, before));
  const CompiledLimit to = compile(limit_of(strategy, after_change));
  const Units used = *rc::gen::inRange<Units>(1, from.most + 1);
  BareCell cell = used_cell(strategy, from, used);
  cell.carry_over(from, to, *rc::gen::element(OnChange::kKeepFraction, OnChange::kKeepUnits), kStart);
  RC_ASSERT(cell.judge(to, from.most - used + 1, kStart).fits() == false);
  if (used < from.most) RC_ASSERT(cell.judge(to, from.most - used, kStart).fits());
}

RC_GTEST_PROP(CarryOver, ASlidingWindowNeverUnderstatesWhatIsLeftInIt, ()) {
  // As the oldest runs leave one by one, what is left must never be less than its fraction.
  const Size before{*rc::gen::inRange<Units>(2, 100), 1s, 0};
  const Size after_change{*rc::gen::inRange<Units>(1, 100), 1s, 0};
  const CompiledLimit from = compile(limit_of(Strategy::kSlidingWindow, before));
  const CompiledLimit to = compile(limit_of(Strategy::kSlidingWindow, after_change));
  BareCell cell(Strategy::kSlidingWindow);
  std::vector<Units> runs;
  Units used = 0;
  for (int i = 0; i < 10; ++i) {
    const Units cost = *rc::gen::inRange<Units>(1, before.limit + 1);
    if (used + cost > before.limit) break;
    RC_ASSERT(cell.take(from, cost, kStart + i * 1ms));
    runs.push_back(cost);
    used += cost;
  }
  cell.carry_over(from, to, OnChange::kKeepFraction, kStart + 100ms);
  for (std::size_t gone = 0; gone <= runs.size(); ++gone) {
    const Nanos now = gone == 0 ? kStart + 100ms : kStart + 1s + static_cast<int>(gone - 1) * 1ms;
    const Units left = to.limit - cell.judge(to, 0, now).remaining;
    RC_ASSERT(left * before.limit >= used * after_change.limit);
    RC_ASSERT(left * before.limit < used * after_change.limit + before.limit);
    if (gone < runs.size()) used -= runs[gone];
  }
}

TEST(CarryOver, AnEmptyWindowOfTheOldLengthDoesNotOutlastTheChange) {
  const CompiledLimit year = compile(must(Limit::fixed_window({10, std::chrono::hours{24 * 365}})));
  const CompiledLimit minute = compile(must(Limit::fixed_window({10, 1min})));
  BareCell cell(Strategy::kFixedWindow);
  ASSERT_TRUE(cell.take(year, 3, kStart));
  cell.refund(year, 3, kStart, kStart);
  cell.carry_over(year, minute, OnChange::kKeepFraction, kStart);
  ASSERT_TRUE(cell.take(minute, 10, kStart));
  EXPECT_EQ(cell.judge(minute, 1, kStart).wait, 1min);
}

TEST(CarryOver, AWindowBegunBeforeTheClockWasSetBackStaysTheCurrentOne) {
  const CompiledLimit from = compile(fixed_window(10, 1h));
  const CompiledLimit to = compile(fixed_window(10, 30min));
  BareCell cell(Strategy::kFixedWindow);
  ASSERT_TRUE(cell.take(from, 10, kStart + 5min));
  cell.carry_over(from, to, OnChange::kKeepFraction, kStart - 20min);
  EXPECT_FALSE(cell.judge(to, 1, kStart + 10min).fits());
  EXPECT_TRUE(cell.judge(to, 1, kStart + 30min).fits());
}

TEST(CarryOver, AReservationInALaterWindowStaysThere) {
  const CompiledLimit from = compile(fixed_window(10, 1h));
  const CompiledLimit to = compile(fixed_window(10, 1min));
  BareCell cell(Strategy::kFixedWindow);
  ASSERT_TRUE(cell.take(from, 10, kStart));
  ASSERT_EQ(cell.reserve(from, 4, kStart + 50min), kStart + 1h);
  cell.carry_over(from, to, OnChange::kKeepUnits, kStart + 55min);
  EXPECT_EQ(cell.judge(to, 1, kStart + 55min).wait, 5min) << "nobody goes before it";
  EXPECT_EQ(cell.judge(to, 0, kStart + 1h).remaining, 6);
  EXPECT_EQ(cell.judge(to, 0, kStart + 1h + 1min).remaining, 10);
}

TEST(CarryOver, UnitsReservedAheadInABucketAreNotForgotten) {
  for (const Strategy strategy : {Strategy::kTokenBucket, Strategy::kGcra}) {
    const CompiledLimit from = compile(limit_of(strategy, {}));
    const CompiledLimit to = compile(limit_of(strategy, {.limit = 20, .window = 20s}));
    BareCell cell(strategy);
    ASSERT_TRUE(cell.take(from, 10, kStart));
    ASSERT_EQ(cell.reserve(from, 10, kStart), kStart + 10s);
    cell.carry_over(from, to, OnChange::kKeepFraction, kStart);
    // At its instant the reservation draws the bucket empty, and only then it begins to fill.
    EXPECT_EQ(cell.judge(to, 0, kStart + 10s).remaining, 0) << to_string(strategy);
    EXPECT_EQ(cell.judge(to, 0, kStart + 11s).remaining, 1) << to_string(strategy);
  }
}

TEST(CarryOver, TheFractionOfAnExtremeBurstDoesNotOverflow) {
  constexpr Units kMost = Units{1} << 52;
  const auto small = [](Strategy s) { return compile(limit_of(s, {.limit = 1, .window = 1h, .burst = kMost - 1})); };
  const auto large = [](Strategy s) { return compile(limit_of(s, {.limit = kMost, .window = 1h})); };
  for (const Strategy strategy : {Strategy::kFixedWindow, Strategy::kSlidingWindow, Strategy::kSlidingWindowCounter}) {
    BareCell cell(strategy);
    ASSERT_TRUE(cell.take(small(strategy), kMost, kStart));
    cell.carry_over(small(strategy), large(strategy), OnChange::kKeepFraction, kStart);
    EXPECT_FALSE(cell.judge(large(strategy), 1, kStart).fits());
    EXPECT_EQ(cell.judge(large(strategy), 0, kStart).remaining, 0);
    EXPECT_TRUE(cell.judge(large(strategy), 1, kStart + 2h).fits());
  }
}

TEST(CarryOver, ExtremeBucketsKeepTheirFraction) {
  // One unit per nanosecond less one part in 2^52: the arithmetic passes 64 bits everywhere.
  constexpr Units kUnits = (Units{1} << 52) - 1;
  const CompiledLimit from = compile(must(Limit::token_bucket({kUnits, {kUnits, Nanos{Units{1} << 52}}, 0})));
  const CompiledLimit to = compile(must(Limit::token_bucket({kUnits / 3, {kUnits - 2, Nanos{Units{1} << 52}}, 0})));
  BareCell cell(Strategy::kTokenBucket);
  ASSERT_TRUE(cell.take(from, kUnits / 2, kStart));
  cell.carry_over(from, to, OnChange::kKeepFraction, kStart);
  const Units left = cell.judge(to, 0, kStart).remaining;
  EXPECT_NEAR(static_cast<double>(left), static_cast<double>(kUnits / 6), 1e4);
}

TEST(CarryOver, WhatIsHeldIsHeld) {
  for (const OnChange how : {OnChange::kKeepFraction, OnChange::kKeepUnits}) {
    const CompiledLimit from = compile(concurrency(10, 30s));
    const CompiledLimit to = compile(concurrency(4, 5s));
    BareCell cell(Strategy::kConcurrency);
    ASSERT_TRUE(cell.take(from, 6, kStart));
    cell.carry_over(from, to, how, kStart + 1s);
    EXPECT_FALSE(cell.judge(to, 1, kStart + 1s).fits());
    EXPECT_FALSE(cell.judge(to, 1, kStart + 30s - 1ns).fits()) << "a hold keeps the time to live it was given";
    EXPECT_TRUE(cell.judge(to, 4, kStart + 30s).fits());
  }
}

// --- The sliding window's ring ---------------------------------------------------------------------------------------

TEST(Cell, ASlidingWindowTakesNoMoreMemoryThanItsLimitNeeds) {
  const CompiledLimit limit = compile(sliding_window(100, 60s));
  BareCell cell(Strategy::kSlidingWindow);
  Nanos now = kStart;
  for (int i = 0; i < 10'000; ++i) {
    now += 100ms;
    (void)cell.take(limit, 1, now);
  }
  const core::RunLog log = store::load_log(cell.words().data(), cell.ahead(), 60s);
  EXPECT_EQ(log.size, 100U);
  EXPECT_EQ(log.capacity, 100U);
}

TEST(Cell, TheRunsOfASlidingWindowStayInOrderWhenItsWindowGrowsUnseen) {
  // As when a cell has slept through more changes than are remembered: it is judged by numbers it was not written by.
  const CompiledLimit small = compile(sliding_window(10, 1s));
  const CompiledLimit large = compile(sliding_window(10, 1h));
  BareCell cell(Strategy::kSlidingWindow);
  ASSERT_TRUE(cell.take(small, 4, kStart));
  ASSERT_TRUE(cell.take(large, 4, kStart - 10min));  // and the clock was set back
  const core::RunLog log = store::load_log(cell.words().data(), cell.ahead(), 1h);
  for (std::uint32_t i = 1; i < log.size; ++i) EXPECT_LE(log.run(i - 1).at, log.run(i).at);
  EXPECT_EQ(cell.judge(large, 0, kStart).remaining, 2);
}

}  // namespace
}  // namespace headgate::test
