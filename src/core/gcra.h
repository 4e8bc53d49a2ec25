// GCRA exactly as redis-cell computes CL.THROTTLE, its roundings included: the interval is cut to whole nanoseconds,
// and `remaining` is counted in whole microseconds. Where redis-cell would divide by zero, an interval of less than a
// microsecond, `remaining` is counted in nanoseconds.
#pragma once

#include <cassert>

#include "core/outcome.h"

namespace headgate::core {

struct GcraState {
  Nanos full_at{0};  // the theoretical arrival time; 0: never seen
};

struct GcraNumbers {
  Nanos interval{0};   // between two evenly spaced units
  Nanos tolerance{0};  // interval * (max_burst + 1 + burst_allowance)
  Units burst = 0;
};

// REQUIRES: 0 <= cost <= tolerance / interval.
[[nodiscard]] inline Step<GcraState> gcra(GcraState state, const GcraNumbers& n, Units cost, Nanos now) noexcept {
  assert(cost >= 0 && cost <= n.tolerance / n.interval);
  const Nanos used = state.full_at > now ? state.full_at - now : Nanos{0};
  const Nanos after = used + n.interval * cost;
  const bool fits = after <= n.tolerance || cost == 0;
  const Nanos level = fits ? after : used;

  Step<GcraState> step;
  step.next = {now + level};
  step.outcome.wait = fits ? Nanos{0} : after - n.tolerance;
  step.outcome.reset_after = level;
  // Counted to the limit itself: rounding the burst allowance too would move the limit.
  const Nanos to_limit = n.tolerance - n.interval * n.burst;
  const std::int64_t room = level < to_limit ? (to_limit - level).count() : 0;
  const std::int64_t micros = n.interval.count() / 1000;
  step.outcome.remaining = micros > 0 ? room / 1000 / micros : room / n.interval.count();
  step.outcome.burst = fits && cost > 0 && level > to_limit;
  return step;
}

[[nodiscard]] inline GcraState gcra_refund(GcraState state, const GcraNumbers& n, Units units) noexcept {
  const Nanos back = n.interval * units;
  return {state.full_at > back ? state.full_at - back : Nanos{0}};
}

}  // namespace headgate::core
