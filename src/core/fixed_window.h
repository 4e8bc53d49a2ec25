// Fixed window and quota: a count that starts again with each window. Windows are aligned to the epoch of the wall
// clock; a quota's windows are calendar periods.
//
// If the wall clock is set back a little, the window already begun stays the current one until its own end: nothing is
// granted twice. A window more than one whole window away was begun by a clock that was wrong then or is wrong now: its
// count moves into the window of the present, so that it blocks no longer than that one lasts. A reservation may lie in
// a window that has not begun (`ahead`); no check is admitted before it then, however far away it is.
#pragma once

#include <cassert>

#include "core/calendar.h"
#include "core/outcome.h"

namespace headgate::core {

struct WindowState {
  Nanos end{0};    // of the window counted; 0: never seen
  Units used = 0;  //
  bool ahead = false;
};

struct WindowNumbers {
  Units most = 0;  // limit + burst
  Units burst = 0;
  Nanos window{0};  // 0: the calendar decides
  Calendar calendar;

  // No window is longer.
  [[nodiscard]] Nanos longest() const noexcept { return window == Nanos{0} ? calendar.longest() : window; }
  [[nodiscard]] bool lies_in_the_future(const WindowState& state, Nanos now) const noexcept {
    return !state.ahead && state.end - now > 2 * longest();
  }
  [[nodiscard]] Span span_at(Nanos now) const noexcept {
    if (window == Nanos{0}) return calendar.period_at(now);
    const Nanos start = now - now % window;
    return {start, start + window};
  }
};

// The state as of `now`. A store that may write keeps it even after a denial: otherwise the count of a window from the
// future would block every window up to that one.
[[nodiscard]] inline WindowState present_window(WindowState state, const WindowNumbers& n, Nanos now) noexcept {
  if (now >= state.end) return {n.span_at(now).end, 0, false};
  if (n.lies_in_the_future(state, now)) [[unlikely]]
    state.end = n.span_at(now).end;
  return state;
}

// REQUIRES: 0 <= cost <= most.
[[nodiscard]] inline Step<WindowState> fixed_window(WindowState state, const WindowNumbers& n, Units cost,
                                                    Nanos now) noexcept {
  assert(cost >= 0 && cost <= n.most);
  state = present_window(state, n, now);
  Nanos earliest = now;
  if (state.ahead) {
    const Nanos start = n.span_at(state.end - Nanos{1}).start;
    if (now < start) {
      earliest = start;
    } else {
      state.ahead = false;
    }
  }

  Step<WindowState> step{state, {}};
  if (cost == 0) {
    step.outcome.wait = Nanos{0};
  } else if (state.used + cost <= n.most) {
    step.outcome.wait = earliest - now;
  } else {
    step.outcome.wait = state.end - now;
  }
  if (step.outcome.fits()) step.next.used += cost;
  step.outcome.reset_after = (step.next.used > 0 ? state.end : earliest) - now;
  read_room(step.outcome, step.next.used < n.most ? n.most - step.next.used : 0, n.burst, cost);
  return step;
}

// REQUIRES: the units were charged in the window that ends at charged_end; a later window owes nothing back.
[[nodiscard]] inline WindowState fixed_window_refund(WindowState state, Units units, Nanos charged_end) noexcept {
  if (state.end == charged_end) state.used = state.used > units ? state.used - units : 0;
  return state;
}

}  // namespace headgate::core
