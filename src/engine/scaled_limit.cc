#include "engine/scaled_limit.h"

#include <algorithm>
#include <cmath>

namespace headgate::engine {
namespace {

Units times(Units units, double factor, Units least) noexcept {
  // A thousandth of a unit is forgiven, so that 0.1 of 30 is 3 whatever a double makes of it.
  return std::max(least, static_cast<Units>(std::floor(static_cast<double>(units) * factor + 1e-3)));
}

// A slower rate is one over a longer time, which stays exact.
Rate times(Rate rate, double factor) noexcept {
  return {rate.units, Nanos{std::max<std::int64_t>(1, std::llround(static_cast<double>(rate.per.count()) / factor))}};
}

Result<Limit> try_scale(const Limit& base, double factor) {
  const Units limit = times(base.limit(), factor, 1);
  const Units burst = times(base.burst_allowance(), factor, 0);
  switch (base.strategy()) {
    case Strategy::kTokenBucket: return Limit::token_bucket({limit, times(base.rate(), factor), burst});
    case Strategy::kGcra: {
      const Rate rate = times(base.rate(), factor);
      return Limit::gcra({limit - 1, rate.units, rate.per, burst});
    }
    case Strategy::kSlidingWindow: return Limit::sliding_window({limit, base.window(), burst});
    case Strategy::kSlidingWindowCounter: return Limit::sliding_window_counter({limit, base.window(), burst});
    case Strategy::kFixedWindow: return Limit::fixed_window({limit, base.window(), burst});
    case Strategy::kLeakyBucket: return Limit::leaky_bucket({times(base.rate(), factor), limit - 1});
    case Strategy::kConcurrency: return Limit::concurrency({limit, base.window(), burst});
    case Strategy::kQuota: return Limit::quota({limit, base.period(), base.timezone(), burst});
  }
  return base;
}

}  // namespace

Limit scaled(const Limit& base, double factor) {
  return base.strategy() == Strategy::kQuota ? base : share_of(base, factor);
}

Limit share_of(const Limit& base, double factor) {
  if (factor == 1 || !(factor > 0)) return base;
  Result<Limit> limit = try_scale(base, factor);
  // Only the most extreme limits have no room for a quarter more, or for a tenth of their rate.
  return limit ? *std::move(limit) : base;
}

}  // namespace headgate::engine
