// How units are leased: what a node may hold, how much it asks for next, when it gives some back, and what all of that
// can cost at most. Pure functions: no clock, no lock.
//
// A node that expects to use units of a cell takes a block of them at once: the block is charged in Redis when it is
// taken, like any other cost, and used by the node afterwards without asking. So a unit may be used later than it was
// charged, but never without having been charged, and never by two. Each node's block stands in a record beside the
// cell (lease_script.h), and the records of one cell never add up to more than `cap`.
//
// Hence the bound. Take any interval. What is used in it was either charged in it, of which there is at most what the
// limit allows, or was already held when it began, of which there is at most `cap`. So no interval sees more than its
// limit and `cap` units, whatever the number of nodes, however messages are delayed or lost, whichever node dies: what
// a dead node held stays charged, since it is not known how much of it was used.
//
// Giving back does not widen it: a unit that was held when the interval began is either used in it or charged anew.
//
// The other way: what is charged and not used is denied to others meanwhile. Live nodes hold at most `cap`. A node that
// dies, or an answer that is lost, strands at most one block more, until the cell forgets the charge by itself.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/compiled_limit.h"

namespace headgate::store::redis {

// What a policy says.
struct LeaseSettings {
  double share = 0.1;                  // the most of a limit that may be out in leases, over all nodes; 0 to 1
  Nanos ttl{std::chrono::seconds{1}};  // how long a block lasts of which nothing more is heard, at most
};

// What that is for one limit.
struct LeaseTerms {
  Units cap = 0;  // units that may be out, over all nodes; 0: this limit is not leased
  Nanos ttl{0};

  [[nodiscard]] bool leased() const noexcept { return cap > 0; }
  // One grant is at most half of what is free, so that no node can take all of it.
  [[nodiscard]] Units largest_block() const noexcept { return (cap + 1) / 2; }
};

// Shorter than this, most of a lease would be spent on the way; such a limit is better asked strictly.
inline constexpr Nanos kShortestLease = std::chrono::milliseconds{10};

// In how long a time a limit's numbers are whole again: its window, or what an empty bucket takes to fill.
[[nodiscard]] inline Nanos span_of(const core::CompiledLimit& limit) noexcept {
  const auto& n = limit.numbers;
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: return Nanos{n.bucket.fill};
    case Strategy::kGcra: return n.gcra.tolerance;
    case Strategy::kSlidingWindow: return n.log.window;
    case Strategy::kSlidingWindowCounter: return n.counter.window;
    case Strategy::kFixedWindow: return n.window.window;
    // The shortest calendar period is an hour, or half of one where clocks change.
    case Strategy::kQuota: return std::chrono::minutes{30};
    case Strategy::kConcurrency: return n.concurrency.ttl;
  }
  return Nanos{0};
}

// A concurrency limit is about what is held now, and a leaky bucket gives each unit a turn of its own: neither can be
// held in stock, so both are always asked strictly.
[[nodiscard]] inline LeaseTerms lease_terms(const core::CompiledLimit& limit, const LeaseSettings& settings) noexcept {
  if (limit.strategy == Strategy::kConcurrency || limit.strategy == Strategy::kLeakyBucket) return {};
  const Nanos ttl = std::min(settings.ttl, span_of(limit) / 4);
  if (ttl < kShortestLease) return {};
  const double share = std::clamp(settings.share, 0.0, 1.0);
  return {static_cast<Units>(std::floor(static_cast<double>(limit.limit) * share)), ttl};
}

// The stated bounds, in units, for any interval of a window's length (windows), any aligned window (fixed_window,
// sliding_window_counter, quota) or any interval at all (buckets).
struct LeaseBounds {
  Units over = 0;   // admitted beyond what the limit allows
  Units under = 0;  // charged and not used at any instant
};

// `losses`: how many nodes die with a block, or answers about a block get lost, within one span of the limit.
[[nodiscard]] inline LeaseBounds lease_bounds(const core::CompiledLimit& limit, const LeaseSettings& settings,
                                              std::int64_t losses) noexcept {
  const LeaseTerms terms = lease_terms(limit, settings);
  return {terms.cap, terms.cap + losses * terms.largest_block()};
}

// What is asked of a cell on this node. Looked at over half a ttl at a time.
struct Demand {
  Units asked = 0;  // since `since`, admitted or not
  Nanos since{0};
  double rate = 0;  // units per second, before that
};

// Up at once, down by halves: too small a block costs round trips, too large a one goes back unused.
[[nodiscard]] inline Demand measured(const Demand& demand, const LeaseTerms& terms, Nanos now) noexcept {
  const Nanos elapsed = now - demand.since;
  if (elapsed < terms.ttl / 2) return demand;
  const double lately = static_cast<double>(demand.asked) / std::chrono::duration<double>(elapsed).count();
  return {0, now, std::max(lately, (demand.rate + lately) / 2)};
}

// A block costs four messages at worst (to get it, charge it, give it back and refund it), so it must spare as many.
inline constexpr Units kSmallestBlock = 4;

// The units that a node with this demand should hold: what it uses in half a ttl, so that they are used well before
// they lapse. What was asked in the half that has not passed yet is the least of it: so a cell that is suddenly in
// demand has its block doubled each time it is used up.
[[nodiscard]] inline Units target(const Demand& demand, const LeaseTerms& terms) noexcept {
  const double before = demand.rate * std::chrono::duration<double>(terms.ttl).count() / 2;
  const double used = std::min(std::max(before, static_cast<double>(demand.asked)), static_cast<double>(terms.cap));
  return used < static_cast<double>(kSmallestBlock) ? 0 : static_cast<Units>(used);
}
// Whether a cell that costs so much a time, and is not leased, should be: when it has been asked for often enough for
// half a ttl, or so often that there is no need to wait for that. A few calls that happen to come together are no
// reason.
[[nodiscard]] inline bool worth_leasing(const Demand& demand, const LeaseTerms& terms, Units cost) noexcept {
  const Units block = kSmallestBlock * std::max<Units>(cost, 1);
  return target({0, demand.since, demand.rate}, terms) >= block || (demand.asked >= 4 * block && terms.cap >= block);
}

// With fewer than these the next block is asked for, while there is still something to use.
[[nodiscard]] constexpr Units low_mark(Units held) noexcept { return held / 4; }

// What a node does about a cell of which it holds `units`.
struct LeaseStep {
  Units keep = 0;       // of those it has
  Units give_back = 0;  // the others
  Units want = 0;       // on top of what it keeps ...
  Units least = 0;      // ... but not fewer than these: they would not be worth the messages
};
// `lapsed`: the lease has run out, and another node may have been given the room.
[[nodiscard]] inline LeaseStep lease_step(Units units, Units target, bool lapsed) noexcept {
  const Units keep = lapsed ? 0 : std::min(units, target);
  const Units want = target - keep;
  return {keep, units - keep, want, std::min(want, std::max(kSmallestBlock, target / 8))};
}

// After a denial a node asks again when told to, but not at once, since a thousand others were told the same, and not
// much later, since others give units back.
[[nodiscard]] inline Nanos pause_after_denial(Nanos wait, const LeaseTerms& terms) noexcept {
  return std::clamp(wait, terms.ttl / 16, terms.ttl);
}
// Where there was no room for a block, it will take others a while to give some back.
[[nodiscard]] inline Nanos pause_after_refusal(const LeaseTerms& terms) noexcept { return terms.ttl / 4; }
// Where there was little of it, or no answer.
[[nodiscard]] inline Nanos pause_after_trouble(const LeaseTerms& terms) noexcept { return terms.ttl / 16; }

}  // namespace headgate::store::redis
