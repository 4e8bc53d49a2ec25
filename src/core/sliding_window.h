// Sliding window, exact: never more than the limit in any interval of the window's length.
//
// The cell keeps the admitted instants in a ring: 8 bytes each while every charge is of one unit, else 16 for runs that
// carry the running total of units, where the units of one charge are one run, and so are charges at one instant.
// Finding what has left the window, or what must leave before a cost fits, is a search from the old end that doubles
// its step: O(1) for steady traffic, O(log n) at worst.
#pragma once

#include <algorithm>
#include <cassert>

#include "core/outcome.h"

namespace headgate::core {

struct Run {
  Nanos at{0};
  Units total = 0;  // units admitted up to and including this run, since the cell was made
};

// At this many runs a cell stops growing: the newest run then takes further units, moved to the later instant. That
// errs towards denying and never admits more than the limit. Up to this limit every window is exact.
inline constexpr std::uint32_t kMaxRuns = 1U << 20;

// The most units that one cell keeps account of. Only reservations far ahead of a huge limit get there; one more is
// judged to fit decades later, which is longer than any caller may wait.
inline constexpr Units kMaxLogged = Units{1} << 61;

// The ring's memory belongs to the store; this is a view of it and the counts beside it.
struct RunLog {
  // One of these: as long as every charge was of one unit, instants alone tell everything, in half the memory.
  Run* runs = nullptr;
  Nanos* instants = nullptr;
  std::uint32_t head = 0;  // index of the oldest run
  std::uint32_t size = 0;
  std::uint32_t capacity = 0;
  bool ahead = false;  // the newest run is a reservation that lies in the future
  Units gone = 0;      // total of the newest run that has left the window
  Nanos seen{0};       // no instant before this is believed; never less than the newest run's

  [[nodiscard]] std::uint32_t index(std::uint32_t i) const noexcept {
    const std::uint32_t at = head + i;
    return at < capacity ? at : at - capacity;
  }
  [[nodiscard]] Run run(std::uint32_t i) const noexcept {
    if (instants != nullptr) return {instants[index(i)], gone + i + 1};
    assert(runs != nullptr);
    return runs[index(i)];
  }
  // REQUIRES: of instants alone, that the run is of one unit: its total follows from its place, from `gone` or from 0.
  void set_run(std::uint32_t i, Run run) const noexcept {
    assert(instants == nullptr || run.total == gone + i + 1 || run.total == Units{i} + 1);
    if (instants != nullptr) {
      instants[index(i)] = run.at;
    } else {
      assert(runs != nullptr);
      runs[index(i)] = run;
    }
  }
  [[nodiscard]] Run newest() const noexcept { return run(size - 1); }
  [[nodiscard]] Units used() const noexcept {
    if (size == 0) return 0;
    return instants != nullptr ? size : newest().total - gone;
  }
};

struct LogNumbers {
  Units most = 0;  // limit + burst
  Units burst = 0;
  Nanos window{0};
};

namespace detail {

// The first run for which `holds` is true, or log.size. REQUIRES: once true, true for all later runs.
template <class Predicate>
std::uint32_t first_run(const RunLog& log, Predicate holds) noexcept {
  std::uint32_t low = 0;
  std::uint32_t step = 1;
  while (low + step <= log.size && !holds(log.run(low + step - 1))) {
    low += step;
    step *= 2;
  }
  std::uint32_t high = low + step < log.size ? low + step : log.size;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (holds(log.run(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

inline void drop_oldest(RunLog& log, std::uint32_t count) noexcept {
  if (count == 0) return;
  log.gone = log.run(count - 1).total;
  log.head += count;
  if (log.head >= log.capacity) log.head -= log.capacity;
  log.size -= count;
}

}  // namespace detail

// Forgets what has left the window and judges the cost; charges nothing. The ring itself is not written: a caller that
// drops the view afterwards has changed nothing. REQUIRES: 0 <= cost <= most.
[[nodiscard]] inline Outcome sliding_window(RunLog& log, const LogNumbers& n, Units cost, Nanos now) noexcept {
  assert(cost >= 0 && cost <= n.most);
  const Nanos asked = now;
  if (log.ahead && log.newest().at <= now) log.ahead = false;
  if (!log.ahead) {
    now = log.seen = std::max(now, log.seen);
  }
  // An instant t leaves the window at t + window: intervals are half open.
  if (log.size > 0 && log.run(0).at + n.window <= now) {
    const bool all = log.newest().at + n.window <= now;
    const auto inside = [&](const Run& run) { return run.at + n.window > now; };
    detail::drop_oldest(log, all ? log.size : detail::first_run(log, inside));
  }

  Outcome outcome;
  const Units used = log.used();
  if (used + cost > n.most && cost > 0) {
    const Units enough = log.gone + (used + cost - n.most);
    const std::uint32_t last = detail::first_run(log, [&](const Run& run) { return run.total >= enough; });
    outcome.wait = log.run(last).at + n.window - asked;
  }
  // What comes after a reservation waits until that is due.
  if (log.ahead && cost > 0) outcome.wait = std::max(outcome.wait, log.newest().at - asked);
  if (used + cost > kMaxLogged) outcome.wait = std::max(outcome.wait, kMaxTime / 4);
  const Units after = outcome.fits() ? used + cost : used;
  read_room(outcome, after < n.most ? n.most - after : 0, n.burst, cost);
  if (after > 0) {
    const Nanos last = outcome.fits() && cost > 0 ? now : log.newest().at;
    outcome.reset_after = last + n.window - asked;
  }
  return outcome;
}

// Whether a charge needs a new run and the ring has no room for it.
[[nodiscard]] inline bool sliding_window_is_full(const RunLog& log) noexcept {
  return log.size == log.capacity && log.capacity < kMaxRuns;
}

// Where the ring has no room, the newest run takes the units. REQUIRES: the cost was judged to fit at `at`, cost > 0,
// and there is a ring. A log of instants alone takes one unit at a time, and only while it has room.
inline void sliding_window_charge(RunLog& log, Units cost, Nanos at, bool ahead) noexcept {
  assert(cost > 0);
  assert(log.capacity > 0);
  assert(log.instants == nullptr || (cost == 1 && log.size < log.capacity));
  at = std::max(at, log.seen);  // the runs stay in order though the clock may have gone back
  if (log.size == 0) {
    log.gone = 0;
  } else if (log.newest().total > kMaxLogged) {
    // The running totals start again before they overflow.
    for (std::uint32_t i = 0; i < log.size; ++i) {
      const Run run = log.run(i);
      log.set_run(i, {run.at, run.total - log.gone});
    }
    log.gone = 0;
  }
  const Units total = (log.size == 0 ? log.gone : log.newest().total) + cost;
  const bool shared = log.instants == nullptr && log.size > 0 && log.newest().at == at;
  if (!shared && log.size < log.capacity) ++log.size;
  log.set_run(log.size - 1, {at, total});
  log.ahead = ahead;
  if (!ahead) log.seen = at;
}

// The fast form of sliding_window() followed by sliding_window_charge(), for one unit charged now: the ring has room, a
// unit stays in the window, and fewer than 32 leave it. False: nothing was changed, and the general functions must be
// called. A denial leaves the log as it was. Does not read the newest instant on an admission: it lies on another cache
// line than the oldest. REQUIRES: a log of instants, and nothing reserved ahead.
[[nodiscard]] inline bool sliding_window_unit(RunLog& log, const LogNumbers& n, Nanos now, Outcome& outcome) noexcept {
  assert(log.instants != nullptr && !log.ahead);
  constexpr std::uint32_t kFewLeaving = 4;
  constexpr std::uint32_t kMostLeaving = 32;
  // Copies, so that the numbers stay in registers.
  const Nanos* const ring = log.instants;
  const std::uint32_t capacity = log.capacity;
  const std::uint32_t head = log.head;
  const std::uint32_t size = log.size;
  if (size == 0 || log.gone > kMaxLogged / 2) [[unlikely]]
    return false;
  const Nanos at = std::max(now, log.seen);
  const Nanos since = at - n.window;  // an instant no later has left
  const auto place = [capacity](std::uint32_t i) { return i - (i >= capacity ? capacity : 0); };
  const auto leaves = [&](std::uint32_t i) { return ring[place(head + i)] <= since ? 1U : 0U; };

  // How many leave is random: the first four are counted without a branch on each.
  std::uint32_t leaving = 0;
  if (size >= kFewLeaving) [[likely]] {
    leaving = leaves(0) + leaves(1) + leaves(2) + leaves(3);
  } else {
    for (std::uint32_t i = 0; i < size; ++i) leaving += leaves(i);
  }
  if (leaving == kFewLeaving) [[unlikely]] {
    while (leaving < size && leaving < kMostLeaving && leaves(leaving) != 0) ++leaving;
    if (leaving == kMostLeaving) return false;
  }
  if (leaving == size) [[unlikely]]
    return false;
  const std::uint32_t oldest = place(head + leaving);
  const std::uint32_t stay = size - leaving;
  outcome.delay = Nanos{0};
  if (stay >= n.most) {
    if (stay > n.most) return false;
    outcome.wait = ring[oldest] + n.window - now;
    outcome.reset_after = ring[place(head + size - 1)] + n.window - now;
    outcome.remaining = 0;
    outcome.burst = false;
    return true;
  }
  if (stay == capacity) return false;
  log.instants[place(head + size)] = at;
  log.head = oldest;
  log.size = stay + 1;
  log.gone += leaving;
  log.seen = at;
  outcome.wait = Nanos{0};
  outcome.reset_after = at + n.window - now;
  read_room(outcome, n.most - stay - 1, n.burst, 1);
  return true;
}

// Gives back up to `units` of what was charged at `at` or, where the clock had run ahead, just after it.
// REQUIRES: the charge is still in the window at `now`.
inline void sliding_window_refund(RunLog& log, Units units, Nanos at, Nanos now) noexcept {
  const std::uint32_t first = detail::first_run(log, [&](const Run& run) { return run.at >= at; });
  Units before = first == 0 ? log.gone : log.run(first - 1).total;
  Units back = 0;
  std::uint32_t kept = first;
  for (std::uint32_t i = first; i < log.size; ++i) {
    Run run = log.run(i);
    const Units charged = run.total - before;
    before = run.total;
    const Units taken = std::min(units - back, charged);
    back += taken;
    if (taken == charged) continue;  // nothing is left of this run
    run.total -= back;
    log.set_run(kept++, run);
  }
  log.size = kept;
  log.ahead = log.size > 0 && log.newest().at > std::max(now, log.seen);
  if (!log.ahead) log.seen = std::max(now, log.seen);
}

}  // namespace headgate::core
