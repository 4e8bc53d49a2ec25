// What a strategy answers. The strategies are pure functions from (state, numbers, cost, now) to (next state,
// outcome): they know no clock, no lock and no allocator. A store makes them atomic.
#pragma once

#include <cassert>

#include "headgate/decision.h"

namespace headgate::core {

struct Outcome {
  Nanos wait{0};         // until the cost fits; zero: it fits now
  Nanos delay{0};        // admitted, but its turn comes this much later (leaky_bucket)
  Nanos reset_after{0};  // until the cell equals a new one
  Units limit = 0;       // what remaining counts to; filled in by the store
  Units remaining = 0;   // to the limit: after the charge if it fits, as things stand if not
  bool burst = false;    // fits only thanks to the burst allowance

  [[nodiscard]] constexpr bool fits() const noexcept { return wait == Nanos{0}; }
};

// `next` is the state after the charge; a caller keeps it only if the outcome fits. A cost of 0 always fits.
template <class State>
struct Step {
  State next;
  Outcome outcome;
};

// How a limit and its burst allowance read: remaining counts to the limit, admission to limit + burst.
// REQUIRES: room >= 0, counted to limit + burst.
constexpr void read_room(Outcome& outcome, Units room, Units burst_allowance, Units cost) noexcept {
  assert(room >= 0);
  outcome.remaining = room > burst_allowance ? room - burst_allowance : 0;
  outcome.burst = cost > 0 && room < burst_allowance && outcome.fits();
}

}  // namespace headgate::core
