// Windows that a wrong clock has begun: they must not block for as long as the clock was ahead.
#include <gtest/gtest.h>

#include "driver.h"
#include "store/memory/memory_store.h"

namespace headgate {
namespace {

using core::Outcome;
using testing::OneCell;
using namespace std::chrono_literals;

constexpr Nanos kTruth = 1'700'000'000s;
constexpr Nanos kYear = 24h * 365;

struct FutureRow {
  Limit limit;
  Nanos window;  // at most
};

std::vector<FutureRow> future_rows() {
  return {{Limit::fixed_window({.limit = 3, .window = 1min}).value(), 1min},
          {Limit::quota({.limit = 3, .period = Period::kHour}).value(), 1h},
          {Limit::quota({.limit = 3, .period = Period::kDay, .timezone = "Pacific/Apia"}).value(), 49h}};
}

store::Applied charge_once(store::MemoryStore& store, const store::LiveLimit& live, Units cost, Nanos now) {
  store::Charge charge;
  charge.key = base::hash128("agent", 1);
  charge.limit = &live;
  charge.cost = cost;
  Outcome outcome;
  const store::Ask ask{now, now, store::Effect::kCharge};
  return store.apply({&charge, 1}, ask, {&outcome, 1});
}

TEST(FutureWindow, AClockThatWasAheadBlocksNoLongerThanThePresentWindow) {
  for (const FutureRow& row : future_rows()) {
    SCOPED_TRACE(to_string(row.limit.strategy()));
    store::MemoryStore store({});
    const store::LiveLimit live(core::compile(row.limit));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(charge_once(store, live, 1, kTruth + kYear).wait, 0ns);
    const Nanos wait = charge_once(store, live, 1, kTruth).wait;
    EXPECT_GT(wait, 0ns) << "what was counted counts in the present window";
    EXPECT_LE(wait, row.window);
    EXPECT_EQ(charge_once(store, live, 1, kTruth + wait).wait, 0ns) << "though the check before it was denied";
    EXPECT_EQ(charge_once(store, live, 2, kTruth + wait).wait, 0ns);
    EXPECT_GT(charge_once(store, live, 1, kTruth + wait).wait, 0ns) << "the limit holds in that window too";
  }
}

TEST(FutureWindow, CountsOnFromWhatWasUsedWhileThereIsRoom) {
  for (const FutureRow& row : future_rows()) {
    SCOPED_TRACE(to_string(row.limit.strategy()));
    store::MemoryStore store({});
    const store::LiveLimit live(core::compile(row.limit));
    EXPECT_EQ(charge_once(store, live, 1, kTruth + kYear).wait, 0ns);
    EXPECT_EQ(charge_once(store, live, 1, kTruth).wait, 0ns);
    EXPECT_EQ(charge_once(store, live, 1, kTruth).wait, 0ns);
    const Nanos wait = charge_once(store, live, 1, kTruth).wait;
    EXPECT_GT(wait, 0ns);
    EXPECT_LE(wait, row.window) << "the second charge moved the count into the present window";
  }
}

TEST(FutureWindow, AClockSetBackByLessThanAWindowGrantsNothingTwice) {
  OneCell cell(Limit::fixed_window({.limit = 3, .window = 1min}).value());
  EXPECT_TRUE(cell.take(3, 60s).fits());
  const Outcome denied = cell.take(1, 59s);
  EXPECT_EQ(denied.wait, 61s) << "until the window already begun ends";
}

TEST(FutureWindow, LookingMovesNothing) {
  OneCell cell(Limit::fixed_window({.limit = 3, .window = 1min}).value());
  EXPECT_TRUE(cell.take(3, kTruth + kYear).fits());
  EXPECT_LE(cell.peek(1, kTruth).wait, 1min);
  EXPECT_FALSE(cell.peek(1, kTruth + kYear).fits()) << "had the clock been right then, the window would still be full";
}

}  // namespace
}  // namespace headgate
