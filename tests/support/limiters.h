// What limiter tests share: limits and limiters without the ceremony of checking results that cannot fail, and one
// limit of ten for every strategy.
#pragma once

#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "headgate/limiter.h"

namespace headgate {

// Readable failures instead of bytes.
inline void PrintTo(Verdict verdict, std::ostream* out) {
  static constexpr const char* kNames[] = {"allowed", "not yet", "never"};
  *out << kNames[static_cast<int>(verdict)];
}
inline void showValue(Strategy strategy, std::ostream& out) { out << to_string(strategy); }  // for rapidcheck
inline void PrintTo(Reason reason, std::ostream* out) { *out << to_string(reason); }
inline void PrintTo(const Decision& d, std::ostream* out) {
  PrintTo(d.verdict, out);
  *out << ", " << to_string(d.reason) << ", limit " << d.limit << ", remaining " << d.remaining << ", retry_after "
       << d.retry_after.count() << "ns, delay " << d.delay.count() << "ns, reset_after " << d.reset_after.count()
       << "ns, lease " << d.lease << (d.burst ? ", burst" : "");
}

}  // namespace headgate

namespace headgate::test {

using namespace std::chrono_literals;

// A full hour, so that windows, hours and buckets all begin at it.
inline constexpr Nanos kStart = std::chrono::seconds{1'699'999'200};

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

inline std::unique_ptr<MemoryLimiter> make(const Options& options) { return must(MemoryLimiter::make(options)); }
inline std::unique_ptr<MemoryLimiter> make(const Limit& limit, Clock& clock) {
  return make(Options().limit(limit).clock(clock).seed(1));
}

inline Limit token_bucket(Units capacity, Units per_second, Units burst = 0) {
  return must(Limit::token_bucket({capacity, {per_second, 1s}, burst}));
}
inline Limit sliding_window(Units limit, Nanos window) { return must(Limit::sliding_window({limit, window})); }
inline Limit fixed_window(Units limit, Nanos window) { return must(Limit::fixed_window({limit, window})); }
inline Limit leaky_bucket(Units per_second, Units queue) {
  return must(Limit::leaky_bucket({{per_second, 1s}, queue}));
}
inline Limit concurrency(Units max, Nanos ttl = 30s) { return must(Limit::concurrency({max, ttl})); }

// Ten units at a time, whole again after at most an hour, one per strategy.
inline Limit ten_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kTokenBucket: return token_bucket(10, 10);
    case Strategy::kGcra: return must(Limit::gcra({9, 10, 1s}));
    case Strategy::kSlidingWindow: return sliding_window(10, 1s);
    case Strategy::kSlidingWindowCounter: return must(Limit::sliding_window_counter({10, 1s}));
    case Strategy::kFixedWindow: return fixed_window(10, 1s);
    case Strategy::kLeakyBucket: return leaky_bucket(10, 9);
    case Strategy::kConcurrency: return concurrency(10, 1s);
    case Strategy::kQuota: return must(Limit::quota({10, Period::kHour, "UTC"}));
  }
  throw std::logic_error("no such strategy");
}

inline std::vector<Strategy> all_strategies() {
  std::vector<Strategy> all;
  for (int i = 0; i < kStrategyCount; ++i) all.push_back(static_cast<Strategy>(i));
  return all;
}

// Two decisions that say the same; leases are drawn at random, so only whether there is one is compared.
inline bool same(const Decision& a, const Decision& b) {
  return a.verdict == b.verdict && a.reason == b.reason && a.burst == b.burst && a.limit == b.limit &&
         a.remaining == b.remaining && a.retry_after == b.retry_after && a.delay == b.delay &&
         a.reset_after == b.reset_after && (a.lease == 0) == (b.lease == 0);
}

// For tests over all strategies: TEST_P gets the strategy, and test names end in its name.
struct StrategyName {
  template <class Info>
  std::string operator()(const Info& info) const {
    return to_string(info.param);
  }
};

}  // namespace headgate::test
