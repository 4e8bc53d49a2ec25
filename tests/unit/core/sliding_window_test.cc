#include "core/sliding_window.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "driver.h"

namespace headgate {
namespace {

using core::LogNumbers;
using core::Outcome;
using core::Run;
using core::RunLog;
using testing::Move;
using testing::OneCell;
using namespace std::chrono_literals;

Result<Limit> sliding(Units limit, Nanos length, Units burst = 0) {
  return Limit::sliding_window({.limit = limit, .window = length, .burst_allowance = burst});
}

// A ring of fixed capacity that a test can look into.
class Ring {
 public:
  Ring(std::uint32_t capacity, LogNumbers numbers) : runs_(capacity), numbers_(numbers) {
    log_.runs = runs_.data();
    log_.capacity = capacity;
  }
  Outcome peek(Units cost, Nanos now) const {
    RunLog copy = log_;
    return core::sliding_window(copy, numbers_, cost, now);
  }
  Outcome take(Units cost, Nanos now) {
    const Outcome outcome = core::sliding_window(log_, numbers_, cost, now);
    if (outcome.fits() && cost > 0) core::sliding_window_charge(log_, cost, now, false);
    return outcome;
  }
  RunLog& log() { return log_; }

 private:
  std::vector<Run> runs_;
  LogNumbers numbers_;
  RunLog log_;
};

TEST(SlidingWindow, AdmitsTheLimitInAnyWindowAndSaysWhenTheNextFits) {
  OneCell cell(sliding(3, 10s));
  struct Row {
    Nanos now;
    Units cost;
    Units remaining;
    Nanos wait;
    Nanos reset_after;
  };
  const Row rows[] = {
      {100s, 0, 3, 0s, 0s},    //
      {100s, 1, 2, 0s, 10s},   //
      {104s, 1, 1, 0s, 10s},   //
      {104s, 2, 1, 6s, 10s},   // fits when the first has left
      {105s, 1, 0, 0s, 10s},   //
      {106s, 1, 0, 4s, 9s},    //
      {106s, 3, 0, 9s, 9s},    // fits when all have left
      {110s, 1, 0, 0s, 10s},   // the instant 100s has left at 110s
      {114s, 2, 1, 1s, 6s},    //
      {115s, 2, 0, 0s, 10s},   //
      {1000s, 3, 0, 0s, 10s},  //
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(::testing::Message() << row.now.count() << "ns, cost " << row.cost);
    const Outcome outcome = cell.take(row.cost, row.now);
    EXPECT_EQ(outcome.remaining, row.remaining);
    EXPECT_EQ(outcome.wait, row.wait);
    EXPECT_EQ(outcome.reset_after, row.reset_after);
  }
}

TEST(SlidingWindow, BurstAllowanceAdmitsPastTheLimitFlaggedAndRemainingCountsToTheLimit) {
  OneCell cell(sliding(3, 10s, 2));
  const std::array<std::pair<Units, bool>, 5> admitted{{{2, false}, {1, false}, {0, false}, {0, true}, {0, true}}};
  for (const auto& [remaining, burst] : admitted) {
    const Outcome outcome = cell.take(1, 1s);
    EXPECT_TRUE(outcome.fits());
    EXPECT_EQ(outcome.remaining, remaining);
    EXPECT_EQ(outcome.burst, burst);
  }
  const Outcome denied = cell.take(1, 1s);
  EXPECT_EQ(denied.wait, 10s);
  EXPECT_FALSE(denied.burst);
}

TEST(SlidingWindow, OneChargeIsOneRunWhateverItsCostAndOneInstantIsOneRun) {
  Ring ring(8, {100'000, 0, 10s});
  EXPECT_TRUE(ring.take(1000, 1s).fits());
  EXPECT_EQ(ring.log().size, 1u);
  EXPECT_TRUE(ring.take(1, 1s).fits());
  EXPECT_TRUE(ring.take(7, 1s).fits());
  EXPECT_EQ(ring.log().size, 1u);
  EXPECT_TRUE(ring.take(5, 1s + 1ns).fits());
  EXPECT_EQ(ring.log().size, 2u);
  EXPECT_EQ(ring.log().used(), 1013);
  EXPECT_TRUE(ring.take(0, 2s).fits());
  EXPECT_EQ(ring.log().size, 2u) << "a cost of 0 leaves no run";
}

RC_GTEST_PROP(SlidingWindow, InstantsAloneAnswerLikeRunsAsLongAsEveryChargeIsOfOneUnit, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 30);
  const auto moves = *testing::script(testing::Time::kAnyWay);
  const LogNumbers numbers{limit, 0, 10s};
  Ring runs(static_cast<std::uint32_t>(limit), numbers);
  std::vector<Nanos> memory(static_cast<std::size_t>(limit));
  RunLog instants;
  instants.instants = memory.data();
  instants.capacity = static_cast<std::uint32_t>(limit);
  Nanos now = 1'700'000'000s;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(10s / limit, 10s, last);
    if (move.act == 0) {
      core::sliding_window_refund(runs.log(), 1, now - 1s, now);
      core::sliding_window_refund(instants, 1, now - 1s, now);
    }
    const Units cost = move.act < 8 ? 1 : move.units(limit);  // larger ones are only judged
    last = runs.peek(cost, now);
    RunLog view = instants;
    const Outcome other = core::sliding_window(view, numbers, cost, now);
    RC_ASSERT(other.wait == last.wait);
    RC_ASSERT(other.remaining == last.remaining);
    RC_ASSERT(other.reset_after == last.reset_after);
    if (cost != 1 || !last.fits()) continue;
    runs.take(1, now);
    instants = view;
    core::sliding_window_charge(instants, 1, now, false);
    RC_ASSERT(instants.used() == runs.log().used());
  }
}

TEST(SlidingWindow, JudgingWritesNothingToTheRing) {
  Ring ring(4, {3, 0, 10s});
  EXPECT_TRUE(ring.take(2, 1s).fits());
  const RunLog before = ring.log();
  EXPECT_FALSE(ring.peek(2, 5s).fits());
  EXPECT_TRUE(ring.peek(3, 50s).fits());
  EXPECT_EQ(ring.log().size, before.size);
  EXPECT_EQ(ring.log().seen, before.seen);
  EXPECT_EQ(ring.peek(0, 5s).remaining, 1);
}

RC_GTEST_PROP(SlidingWindow, AnswersLikeAListOfEverythingAdmittedAndKeepsItsPromise, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 40);
  const Units burst = *rc::gen::element<Units>(0, 0, 1, 7);
  const Nanos length = *rc::gen::element<Nanos>(1ms, 10s, Nanos{1'000'000'007});
  const auto moves = *testing::script(testing::Time::kAnyWay);
  OneCell cell(sliding(limit, length, burst));
  oracle::SlidingWindow model(limit + burst, length);
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
  RC_ASSERT(model.busiest() <= limit + burst);
}

RC_GTEST_PROP(SlidingWindow, ReservedUnitsCountAtTheirInstantAndThePromiseHolds, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 20);
  const Nanos length = 10s;
  const auto moves = *testing::script();
  OneCell cell(sliding(limit, length));
  oracle::SlidingWindow model(limit, length);
  Nanos now = 1'700'000'000s;
  Nanos latest{0};
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(length / limit, length, last);
    const Units cost = move.units(limit);
    testing::check_wait(cell, cost, now);
    last = cell.peek(cost, now);
    RC_ASSERT(last.fits() == model.fits(cost, now));
    RC_ASSERT(model.fits(cost, now + last.wait));
    if (!last.fits()) RC_ASSERT(!model.fits(cost, now + last.wait - 1ns));
    if (cost > 0 && move.act < 5) {
      const Nanos later = move.act < 2 ? length * move.amount / 300 : 0ns;
      const Nanos at = cell.reserve(cost, now, later);
      RC_ASSERT(at == now + last.wait + later);
      RC_ASSERT(at >= latest);  // no call overtakes a reservation
      latest = at;
      if (at > now) {
        model.reserve(cost, at);
      } else {
        model.charge(cost, at);
      }
    } else if (cell.take(cost, now).fits() && cost > 0) {
      RC_ASSERT(now >= latest);
      model.charge(cost, now);
    }
    RC_ASSERT(cell.peek(0, now).remaining == model.room(now));
    testing::check_reset(cell, now);
  }
  RC_ASSERT(model.busiest() <= limit);
}

TEST(SlidingWindow, NobodyIsAdmittedBeforeAReservation) {
  OneCell cell(sliding(2, 10s));
  EXPECT_TRUE(cell.take(1, 100s).fits());
  EXPECT_EQ(cell.reserve(2, 101s), 110s);
  const Outcome outcome = cell.peek(1, 105s);
  EXPECT_EQ(outcome.wait, 15s) << "behind the reservation, and then until it has left the window";
  EXPECT_TRUE(cell.peek(0, 105s).fits());
  EXPECT_EQ(cell.peek(0, 105s).reset_after, 15s);
  EXPECT_FALSE(cell.take(1, 119s).fits());
  EXPECT_TRUE(cell.take(1, 120s).fits());
}

TEST(SlidingWindow, AReservationThatAnotherLimitPutOffIsNotOvertaken) {
  OneCell cell(sliding(10, 10s));
  EXPECT_EQ(cell.reserve(1, 100s, 50s), 150s);
  EXPECT_EQ(cell.peek(1, 105s).wait, 45s);
  EXPECT_EQ(cell.peek(10, 105s).wait, 55s);
  EXPECT_TRUE(cell.take(1, 150s).fits());
}

TEST(SlidingWindow, ACancelledReservationIsGivenBackAndWhatWasAdmittedBeforeItStillCounts) {
  OneCell cell(sliding(2, 10s));
  EXPECT_TRUE(cell.take(1, 100s).fits());
  const Nanos at = cell.reserve(2, 101s);
  cell.refund(2, at, 102s);
  EXPECT_EQ(cell.peek(0, 102s).remaining, 1);
  EXPECT_TRUE(cell.take(1, 102s).fits());
  EXPECT_EQ(cell.take(1, 102s).wait, 8s);
}

TEST(SlidingWindow, ARefundTakesOutTheRunAndLeavesTheOthers) {
  OneCell cell(sliding(10, 10s));
  EXPECT_TRUE(cell.take(3, 100s).fits());
  EXPECT_TRUE(cell.take(4, 101s).fits());
  EXPECT_TRUE(cell.take(2, 102s).fits());
  cell.refund(4, 101s, 103s);
  EXPECT_EQ(cell.peek(0, 103s).remaining, 5);
  EXPECT_EQ(cell.peek(0, 110s).remaining, 8) << "the three of 100s have left";
  EXPECT_EQ(cell.peek(0, 111s).remaining, 8);
  EXPECT_EQ(cell.peek(0, 112s).remaining, 10);
  cell.refund(1, 100s, 103s);
  EXPECT_EQ(cell.peek(0, 103s).remaining, 6) << "part of a run";
  cell.refund(2, 100s, 110s);
  EXPECT_EQ(cell.peek(0, 110s).remaining, 8) << "what has left the window is owed to nobody";
}

RC_GTEST_PROP(SlidingWindow, AfterRefundsThePromiseHoldsForWhatIsLeft, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 20);
  const Nanos length = 10s;
  const auto moves = *testing::script();
  OneCell cell(sliding(limit, length));
  struct Admission {
    Nanos at;
    Units units;
  };
  std::vector<Admission> admitted;
  Nanos now = 1'700'000'000s;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(length / limit, length, last);
    if (move.act < 3 && !admitted.empty()) {
      // One of those still in the window, or none.
      Admission& one = admitted[static_cast<std::size_t>(move.amount) % admitted.size()];
      if (one.at + length <= now) continue;
      cell.refund(one.units, one.at, now);
      one.units = 0;
    } else {
      const Units cost = move.units(limit);
      testing::check_wait(cell, cost, now);
      last = cell.take(cost, now);
      if (last.fits() && cost > 0) admitted.push_back({now, cost});
    }
    Units used = 0;
    for (const Admission& one : admitted) used += one.at > now - length ? one.units : 0;
    RC_ASSERT(used <= limit);
    RC_ASSERT(cell.peek(0, now).remaining == limit - used);
  }
}

TEST(SlidingWindow, AClockThatWentBackRefundsAsMuchAsWasCharged) {
  OneCell cell(sliding(10, 10s));
  EXPECT_TRUE(cell.take(2, 100s).fits());
  EXPECT_TRUE(cell.take(3, 95s).fits()) << "admitted as of 100s";
  cell.refund(3, 95s, 96s);
  EXPECT_EQ(cell.peek(0, 96s).remaining, 8);
  EXPECT_EQ(cell.peek(0, 109s).remaining, 8);
  EXPECT_EQ(cell.peek(0, 110s).remaining, 10);
}

TEST(SlidingWindow, ClockGoingBackwardsFreesNothingAndAnAdmissionCountsFromTheLatestInstant) {
  OneCell cell(sliding(2, 10s));
  EXPECT_TRUE(cell.take(1, 100s).fits());
  EXPECT_TRUE(cell.take(1, 50s).fits());
  const Outcome denied = cell.take(1, 50s);
  EXPECT_EQ(denied.wait, 60s);
  EXPECT_EQ(denied.reset_after, 60s);
  EXPECT_FALSE(cell.take(1, 109s).fits());
  EXPECT_TRUE(cell.take(2, 110s).fits());
}

TEST(SlidingWindow, ARunReservedWhileTheClockIsBackStaysInOrder) {
  // Another limit of the same call may ask for an instant that this cell has already passed.
  Ring ring(8, {10, 0, 10s});
  EXPECT_TRUE(ring.take(1, 100s).fits());
  core::sliding_window_charge(ring.log(), 1, 95s, true);
  EXPECT_EQ(ring.log().newest().at, 100s);
  EXPECT_EQ(ring.peek(0, 109s).remaining, 8);
  EXPECT_EQ(ring.peek(0, 110s).remaining, 10);
}

TEST(SlidingWindow, AtCapacityTheNewestRunTakesFurtherUnitsAndNeverAdmitsMoreThanTheLimit) {
  Ring ring(4, {10, 0, 10s});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(ring.take(1, 100s + i * 1s).fits()) << i;
  EXPECT_EQ(ring.log().size, 4u);
  EXPECT_EQ(ring.log().used(), 10);
  EXPECT_EQ(ring.log().newest().at, 109s);
  // The first three instants are exact, the seven after them count from the last.
  EXPECT_EQ(ring.peek(0, 110s).remaining, 1);
  EXPECT_EQ(ring.peek(0, 112s).remaining, 3);
  EXPECT_EQ(ring.peek(0, 118s).remaining, 3);
  EXPECT_EQ(ring.peek(0, 119s).remaining, 10);
}

RC_GTEST_PROP(SlidingWindow, ARingTooSmallErrsTowardsDenying, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 30);
  const auto moves = *testing::script();
  Ring ring(static_cast<std::uint32_t>(*rc::gen::inRange(1, 6)), {limit, 0, 10s});
  oracle::SlidingWindow model(limit, 10s);
  Nanos now = 1'700'000'000s;
  Outcome last;
  for (const Move& move : moves) {
    now += move.step(10s / limit, 10s, last);
    const Units cost = move.units(limit);
    last = ring.take(cost, now);
    RC_ASSERT(!last.fits() || model.fits(cost, now));
    if (last.fits()) model.charge(cost, now);
    RC_ASSERT(last.remaining <= model.room(now));
    if (!last.fits()) RC_ASSERT(ring.peek(cost, now + last.wait).fits());
  }
  RC_ASSERT(model.busiest() <= limit);
}

TEST(SlidingWindow, ARingIsFullOnlyWhileItMayGrow) {
  Ring small(2, {10, 0, 10s});
  EXPECT_FALSE(core::sliding_window_is_full(small.log()));
  EXPECT_TRUE(small.take(1, 1s).fits());
  EXPECT_TRUE(small.take(1, 2s).fits());
  EXPECT_TRUE(core::sliding_window_is_full(small.log()));
  Ring largest(core::kMaxRuns, {Units{1} << 40, 0, 10s});
  largest.log().size = core::kMaxRuns;
  EXPECT_FALSE(core::sliding_window_is_full(largest.log()));
}

TEST(SlidingWindow, ACellGrowsNoFurtherThanTheMostRuns) {
  OneCell cell(sliding(Units{1} << 40, 1h));
  for (std::int64_t i = 0; i < core::kMaxRuns + 100; ++i) ASSERT_TRUE(cell.take(1, Nanos{i}).fits()) << i;
  const RunLog log = store::load_log(cell.words(), false, 1h);
  EXPECT_EQ(log.size, core::kMaxRuns);
  EXPECT_EQ(log.capacity, core::kMaxRuns);
  EXPECT_EQ(log.used(), core::kMaxRuns + 100);
  EXPECT_EQ(log.newest().at, Nanos{core::kMaxRuns + 99});
}

RC_GTEST_PROP(SlidingWindow, SearchFindsTheFirstRunInARingThatWraps, ()) {
  const auto size = static_cast<std::uint32_t>(*rc::gen::inRange(0, 300));
  const auto capacity = size + static_cast<std::uint32_t>(*rc::gen::inRange(1, 50));
  Ring ring(capacity, {1000, 0, 10s});
  ring.log().head = static_cast<std::uint32_t>(*rc::gen::inRange<int>(0, static_cast<int>(capacity)));
  ring.log().size = size;
  for (std::uint32_t i = 0; i < size; ++i) ring.log().set_run(i, {Nanos{i}, i + 1});
  for (std::uint32_t wanted = 0; wanted <= size; ++wanted) {
    int looked = 0;
    const std::uint32_t found = core::detail::first_run(ring.log(), [&](const Run& run) {
      ++looked;
      return run.at >= Nanos{wanted};
    });
    RC_ASSERT(found == wanted);
    RC_ASSERT(looked <= 2 * std::bit_width(wanted + 1U) + 2);  // logarithmic in how far it had to go
  }
}

TEST(SlidingWindow, ABigLogIsSearchedInLogarithmicSteps) {
  constexpr std::uint32_t kRuns = 1U << 19;
  Ring ring(kRuns, {kRuns, 0, Nanos{kRuns}});
  for (std::uint32_t i = 0; i < kRuns; ++i) ASSERT_TRUE(ring.take(1, Nanos{i}).fits());
  EXPECT_EQ(ring.peek(1, Nanos{kRuns - 1}).wait, 1ns);
  EXPECT_EQ(ring.peek(kRuns, Nanos{kRuns - 1}).wait, Nanos{kRuns});
  for (const std::int64_t gone : {1, 2, 1000, 262'144, 524'287}) {
    EXPECT_EQ(ring.peek(0, Nanos{kRuns - 1 + gone}).remaining, gone);
    EXPECT_EQ(ring.peek(gone + 1, Nanos{kRuns - 1 + gone}).wait, 1ns);
  }
  int looked = 0;
  const std::uint32_t found = core::detail::first_run(ring.log(), [&](const core::Run& run) {
    ++looked;
    return run.at >= Nanos{400'000};
  });
  EXPECT_EQ(found, 400'000u);
  EXPECT_LE(looked, 40);
}

TEST(SlidingWindow, RunningTotalsStartAgainBeforeTheyOverflow) {
  // 2^52 units a millisecond pass 2^63 after 2048 windows. One run is always in the window, so the log is never empty.
  const Units half = Units{1} << 51;
  OneCell cell(sliding(2 * half, 1ms));
  for (int i = 0; i < 20'000; ++i) {
    const Nanos now = 1s + i * 500us;
    ASSERT_TRUE(cell.take(half, now).fits()) << i;
    ASSERT_EQ(cell.peek(0, now).remaining, i == 0 ? half : 0) << i;
    ASSERT_EQ(cell.peek(1, now).wait, i == 0 ? 0us : 500us) << i;
  }
}

TEST(SlidingWindow, ReservationsOfMoreThanCanBeCountedAreDecadesAway) {
  const Units most = Units{1} << 52;
  OneCell cell(sliding(most, 1ms));
  int reserved = 0;
  while (reserved < 1000 && cell.peek(most, 1s).wait < core::kLongestSpan) {
    EXPECT_EQ(cell.reserve(most, 1s), 1s + reserved * 1ms);
    ++reserved;
  }
  EXPECT_EQ(reserved, 512);
  EXPECT_GT(cell.peek(most, 1s).wait, core::kLongestSpan);
  EXPECT_TRUE(cell.peek(most, 2s).fits()) << "and are forgotten when their time has passed";
}

TEST(SlidingWindow, WorksAtTheEndOfTimeWithTheLongestWindow) {
  for (const Nanos now : {Nanos{0}, kMaxTime}) {
    OneCell cell(sliding((Units{1} << 52) - 5, core::kLongestSpan, 5));
    const Units most = cell.limit().most;
    EXPECT_TRUE(cell.take(most - 1, now).fits());
    EXPECT_TRUE(cell.take(1, now).burst);
    EXPECT_EQ(cell.peek(most, now).wait, core::kLongestSpan);
    EXPECT_EQ(cell.peek(1, 0s).wait, now + core::kLongestSpan);
    EXPECT_TRUE(cell.peek(most, now + core::kLongestSpan).fits());
  }
}

// The same ring through sliding_window_unit() and through the general functions. A clock that goes back, pauses that
// empty the window, and windows that are full; the ring has as many places as a limit needs, or a few less.
RC_GTEST_PROP(SlidingWindow, TheFastFormAnswersLikeTheGeneralOne, ()) {
  const Units most = *rc::gen::inRange<Units>(1, 60);
  const LogNumbers numbers{most, std::min<Units>(most - 1, *rc::gen::inRange<Units>(0, 3)), 1s};
  const auto capacity = static_cast<std::uint32_t>(*rc::gen::inRange<Units>(1, most + 1));
  std::vector<Nanos> fast_ring(capacity);
  std::vector<Nanos> general_ring(capacity);
  RunLog fast;
  fast.instants = fast_ring.data();
  fast.capacity = capacity;
  RunLog general = fast;
  general.instants = general_ring.data();
  Nanos now{1'700'000'000'123'456'789};
  for (const Move& move : *testing::script(testing::Time::kAnyWay)) {
    now += move.step(Nanos{1s} / most, 1s, {});
    const RunLog before = fast;
    Outcome outcome;
    const bool done = core::sliding_window_unit(fast, numbers, now, outcome);
    RunLog judged = general;
    const Outcome expected = core::sliding_window(judged, numbers, 1, now);
    const bool fits = expected.fits() && judged.size < capacity;
    if (fits) {
      core::sliding_window_charge(judged, 1, now, false);
      general = judged;
    }
    if (!done) {
      RC_ASSERT(fast.head == before.head && fast.size == before.size && fast.seen == before.seen);
      RC_ASSERT(fast.gone == before.gone);
      fast = general;
      fast.instants = fast_ring.data();
      fast_ring = general_ring;
      continue;
    }
    RC_ASSERT(outcome.wait == expected.wait && outcome.reset_after == expected.reset_after);
    RC_ASSERT(outcome.remaining == expected.remaining && outcome.burst == expected.burst);
    RC_ASSERT(fast.size == general.size && fast.gone == general.gone && fast.seen == general.seen);
    for (std::uint32_t i = 0; i < fast.size; ++i) RC_ASSERT(fast.run(i).at == general.run(i).at);
  }
}

}  // namespace
}  // namespace headgate
