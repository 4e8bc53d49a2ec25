// Token bucket: starts full, refills continuously. The state is the instant at which the bucket will be full again,
// so refilling costs nothing and a bucket that has filled up equals one never seen.
//
// One unit refills in whole + part/den nanoseconds. The fraction of a nanosecond is carried in the state, never
// rounded: 3 units per second yield exactly 3,000,000 units in a million seconds.
#pragma once

#include <bit>
#include <cassert>

#include "base/wide.h"
#include "core/outcome.h"

namespace headgate::core {

struct BucketState {
  Nanos full_at{0};        // 0: never seen, so full
  std::int64_t carry = 0;  // full_at lies carry/den of a nanosecond later
};

namespace detail {

// x / y without a division instruction, which costs more than the rest of a check: the high half of x times a
// reciprocal that is rounded up by less than y in 2^(60 + shift), exact for 0 <= x < 2^59.
struct Divisor {
  std::uint64_t reciprocal = 0;
  std::uint32_t shift = 0;

  Divisor() = default;
  // REQUIRES: y >= 1.
  explicit Divisor(std::int64_t y) noexcept
      : shift(static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(y - 1)))) {
    assert(y >= 1);
    const auto divisor = static_cast<base::WideUnsigned>(y);
    reciprocal = static_cast<std::uint64_t>(((base::WideUnsigned{1} << (60 + shift)) + divisor - 1) / divisor);
  }
};
[[nodiscard]] inline std::int64_t divide(std::int64_t x, const Divisor& by) noexcept {
  const auto scaled = static_cast<std::uint64_t>(x) << 4;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>((base::WideUnsigned{scaled} * by.reciprocal) >> 64) >>
                                   by.shift);
}

}  // namespace detail

struct BucketNumbers {
  std::int64_t whole = 0;      // nanoseconds to refill one unit ...
  std::int64_t part = 0;       // ... and part/den of another
  std::int64_t den = 1;        //
  std::int64_t fill = 0;       // nanoseconds to refill the whole bucket, burst allowance included ...
  std::int64_t fill_part = 0;  // ... and fill_part/den of another
  Units burst = 0;
  detail::Divisor by_whole;  // divides by `whole`
};

namespace detail {

using base::Wide;

// The general case, where a unit does not refill in a whole number of nanoseconds.
inline Step<BucketState> token_bucket_wide(BucketState state, const BucketNumbers& n, Units cost, Nanos now) noexcept {
  const Wide unit = Wide{n.whole} * n.den + n.part;
  const Wide fill = Wide{n.fill} * n.den + n.fill_part;
  Wide used = Wide{state.full_at.count() - now.count()} * n.den + state.carry;
  if (used < 0) used = 0;
  const Wide after = used + unit * cost;

  Step<BucketState> step{state, {}};
  const auto whole_nanos_up = [&](Wide x) { return Nanos{static_cast<std::int64_t>((x + n.den - 1) / n.den)}; };
  if (after <= fill || cost == 0) {
    step.next = {now + Nanos{static_cast<std::int64_t>(after / n.den)}, static_cast<std::int64_t>(after % n.den)};
    used = after;
  } else {
    step.outcome.wait = whole_nanos_up(after - fill);
  }
  step.outcome.reset_after = whole_nanos_up(used);
  const Units room = used < fill ? static_cast<Units>((fill - used) / unit) : 0;
  read_room(step.outcome, room, n.burst, cost);
  return step;
}

}  // namespace detail

// REQUIRES: as token_bucket(), and n.den == 1: a unit refills in a whole number of nanoseconds.
[[nodiscard]] inline Step<BucketState> token_bucket_whole(BucketState state, const BucketNumbers& n, Units cost,
                                                          Nanos now) noexcept {
  assert(n.den == 1);
  assert(cost >= 0 && base::Wide{n.whole} * cost <= n.fill);
  const std::int64_t used = state.full_at > now ? (state.full_at - now).count() : 0;
  const std::int64_t after = used + cost * n.whole;
  const bool fits = after <= n.fill || cost == 0;
  const std::int64_t level = fits ? after : used;

  Step<BucketState> step;
  step.next = {now + Nanos{level}, 0};
  step.outcome.wait = Nanos{fits ? 0 : after - n.fill};
  step.outcome.reset_after = Nanos{level};
  const Units room = level < n.fill ? detail::divide(n.fill - level, n.by_whole) : 0;
  read_room(step.outcome, room, n.burst, cost);
  return step;
}

// REQUIRES: 0 <= cost <= capacity + burst; larger costs are refused before, since no wait could help.
[[nodiscard]] inline Step<BucketState> token_bucket(BucketState state, const BucketNumbers& n, Units cost,
                                                    Nanos now) noexcept {
  assert(cost >= 0 && (base::Wide{n.whole} * n.den + n.part) * cost <= base::Wide{n.fill} * n.den + n.fill_part);
  return n.den == 1 ? token_bucket_whole(state, n, cost, now) : detail::token_bucket_wide(state, n, cost, now);
}

// Gives units back. A bucket cannot become more than full.
[[nodiscard]] inline BucketState token_bucket_refund(BucketState state, const BucketNumbers& n, Units units) noexcept {
  const detail::Wide unit = detail::Wide{n.whole} * n.den + n.part;
  detail::Wide at = detail::Wide{state.full_at.count()} * n.den + state.carry - unit * units;
  if (at < 0) at = 0;
  return {Nanos{static_cast<std::int64_t>(at / n.den)}, static_cast<std::int64_t>(at % n.den)};
}

// Leaky bucket: the same arithmetic read from the other end. Each unit leaves one interval after the one before it, so
// what is admitted waits its turn, and `queue` units may wait.
// REQUIRES: 0 <= cost <= queue + 1, which token_bucket() asserts.
[[nodiscard]] inline Step<BucketState> leaky_bucket(BucketState state, const BucketNumbers& n, Units cost,
                                                    Nanos now) noexcept {
  Step<BucketState> step = token_bucket(state, n, cost, now);
  if (step.outcome.fits() && cost > 0 && state.full_at >= now) {
    step.outcome.delay = state.full_at - now + Nanos{state.carry > 0 ? 1 : 0};
  }
  return step;
}

}  // namespace headgate::core
