// Sliding window counter: two counters and the usual weighted estimate. What was admitted in the window before counts
// in proportion to how much of it the sliding window still covers. O(1) memory; an estimate, not a promise per
// interval.
#pragma once

#include <cassert>

#include "base/wide.h"
#include "core/outcome.h"

namespace headgate::core {

struct CounterState {
  Nanos start{0};  // of the current window, a multiple of its length
  Units previous = 0;
  Units current = 0;
  bool ahead = false;  // a reservation lies in a window that has not begun
};

struct CounterNumbers {
  Units most = 0;  // limit + burst
  Units burst = 0;
  Nanos window{0};
};

namespace detail {

// Until previous * (window - elapsed) / window + current <= most, with elapsed counted from the window's start; past
// its end the current count becomes the previous one.
// REQUIRES: budget = most - cost >= 0. More than `most` may be counted: a limit may have become smaller.
inline std::int64_t counter_fits_after(Units previous, Units current, Units budget, std::int64_t window) noexcept {
  assert(budget >= 0);
  using base::Wide;
  const auto elapsed_for = [window](Units old, Units room) -> std::int64_t {
    if (old <= room) return 0;
    assert(old > 0);                                                                // room is not negative
    return static_cast<std::int64_t>((Wide{old - room} * window + old - 1) / old);  // rounded up
  };
  if (current <= budget) return elapsed_for(previous, budget - current);
  return window + elapsed_for(current, budget);
}

}  // namespace detail

// REQUIRES: 0 <= cost <= most.
[[nodiscard]] inline Step<CounterState> sliding_window_counter(CounterState state, const CounterNumbers& n, Units cost,
                                                               Nanos now) noexcept {
  assert(cost >= 0 && cost <= n.most);
  using base::Wide;
  const std::int64_t window = n.window.count();
  const Nanos asked = now;
  if (now >= state.start + n.window) {
    const Nanos start = now - now % n.window;
    state = {start, start == state.start + n.window ? state.current : 0, 0, false};
  } else if (now < state.start) {
    now = state.start;  // the clock went back, or a reservation lies further on
  } else {
    state.ahead = false;
  }
  const std::int64_t elapsed = (now - state.start).count();

  Step<CounterState> step{state, {}};
  const std::int64_t fits_after = detail::counter_fits_after(state.previous, state.current, n.most - cost, window);
  if (cost == 0) {
    step.outcome.wait = Nanos{0};
  } else if (fits_after > elapsed) {
    step.outcome.wait = Nanos{fits_after - elapsed} + (now - asked);
  } else if (state.ahead) {
    step.outcome.wait = now - asked;
  }
  if (step.outcome.fits()) step.next.current += cost;

  const Wide used = Wide{state.previous} * (window - elapsed) + Wide{step.next.current} * window;
  const Wide all = Wide{n.most} * window;
  read_room(step.outcome, used < all ? static_cast<Units>((all - used) / window) : 0, n.burst, cost);
  if (step.next.current > 0) {
    step.outcome.reset_after = state.start + 2 * n.window - asked;
  } else if (state.previous > 0) {
    step.outcome.reset_after = state.start + n.window - asked;
  } else if (state.ahead) {
    step.outcome.reset_after = now - asked;
  }
  return step;
}

// Gives back units that were charged in the window starting at charged_start, as long as they count at all.
[[nodiscard]] inline CounterState sliding_window_counter_refund(CounterState state, const CounterNumbers& n,
                                                                Units units, Nanos charged_start) noexcept {
  const auto less = [units](Units from) { return from > units ? from - units : 0; };
  if (state.start == charged_start) {
    state.current = less(state.current);
  } else if (state.start == charged_start + n.window) {
    state.previous = less(state.previous);
  }
  return state;
}

}  // namespace headgate::core
