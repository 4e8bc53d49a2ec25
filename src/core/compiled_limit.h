// A Limit turned into the numbers that its strategy computes with. Everything that could overflow is refused here, so
// that the strategies need no checks.
#pragma once

#include "core/concurrency.h"
#include "core/fixed_window.h"
#include "core/gcra.h"
#include "core/sliding_window.h"
#include "core/sliding_window_counter.h"
#include "core/token_bucket.h"
#include "headgate/limit.h"

namespace headgate::core {

// Trivially copyable. Which member of the union is meant follows from the strategy.
struct CompiledLimit {
  Strategy strategy = Strategy::kTokenBucket;
  Units limit = 0;
  Units most = 0;  // limit + burst: no cost above this ever fits
  union Numbers {
    BucketNumbers bucket;  // token_bucket, leaky_bucket
    GcraNumbers gcra;
    WindowNumbers window;  // fixed_window, quota
    CounterNumbers counter;
    LogNumbers log;
    ConcurrencyNumbers concurrency;
    Numbers() noexcept : bucket{} {}
  } numbers;

  // Windows aligned to the epoch and calendar periods follow the wall clock, all else the steady timeline.
  [[nodiscard]] bool follows_wall() const noexcept {
    return strategy == Strategy::kFixedWindow || strategy == Strategy::kQuota;
  }
};

// A Limit that exists compiles.
[[nodiscard]] CompiledLimit compile(const Limit& limit);

// One unit refills in whole + part/den nanoseconds. Fails when the bucket takes longer to fill than kLongestSpan.
[[nodiscard]] Result<BucketNumbers> bucket_numbers(Rate rate, Units capacity, Units burst);

// How long it takes a bucket of any kind to refill so many units, rounded up; zero for all else. REQUIRES: units <=
// most.
[[nodiscard]] Nanos refill_time(const CompiledLimit& limit, Units units) noexcept;

// No limit may be larger: 4.5e15, so that sums of two are exact everywhere, in doubles and scripts too.
inline constexpr Units kMostUnits = Units{1} << 52;
// No window, period of refill or time to live may be longer: about ten years.
inline constexpr Nanos kLongestSpan = std::chrono::hours{24 * 3653};

}  // namespace headgate::core
