// A Limit is a strategy and its numbers, checked when it is made: a Limit that exists is valid.
#pragma once

#include <cstdint>
#include <string>

#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate {

using Units = std::int64_t;

enum class Strategy : std::uint8_t {
  kTokenBucket,
  kGcra,
  kSlidingWindow,
  kSlidingWindowCounter,
  kFixedWindow,
  kLeakyBucket,
  kConcurrency,
  kQuota,
};
inline constexpr int kStrategyCount = 8;

enum class Period : std::uint8_t { kHour, kDay, kWeek, kMonth, kYear };

// As policies spell them: "token_bucket", "day".
[[nodiscard]] const char* to_string(Strategy strategy) noexcept;
[[nodiscard]] const char* to_string(Period period) noexcept;

// So many units in so long a time, kept exact: Rate{1, 3s} is a third of a unit per second, not 0.333.
struct Rate {
  Units units = 0;
  Nanos per{std::chrono::seconds{1}};

  // Reads a rate per second to the nearest billionth; NaN, infinities and what is out of range become {0, 1s},
  // which every Limit refuses by name.
  [[nodiscard]] static Rate per_second(double units) noexcept;
};

// Parameters. Every `burst_allowance` admits that many units past the limit, flagged as burst.
struct TokenBucket {
  Units capacity = 0;
  Rate refill_rate;
  Units burst_allowance = 0;
};
struct Gcra {
  Units max_burst = 0;  // as in redis-cell: the limit is max_burst + 1
  Units count = 0;
  Nanos period{0};
  Units burst_allowance = 0;
};
struct Window {
  Units limit = 0;
  Nanos window{0};
  Units burst_allowance = 0;
};
struct LeakyBucket {
  Rate rate;
  Units queue = 0;  // how many units may wait for their turn; 0: none
};
struct Concurrency {
  Units max = 0;
  Nanos lease_ttl{std::chrono::seconds{30}};
  Units burst_allowance = 0;
};
struct Quota {
  Units limit = 0;
  Period period = Period::kDay;
  std::string timezone = "UTC";  // an IANA name
  Units burst_allowance = 0;
};

// A value type, cheap to copy but for a quota's zone name.
//
// A rate of zero or infinity is refused: a limiter that admits everything, or nothing, needs no cell and no Limit.
class Limit {
 public:
  static Result<Limit> token_bucket(const TokenBucket& parameters);
  static Result<Limit> gcra(const Gcra& parameters);
  static Result<Limit> sliding_window(const Window& parameters);
  static Result<Limit> sliding_window_counter(const Window& parameters);
  static Result<Limit> fixed_window(const Window& parameters);
  static Result<Limit> leaky_bucket(const LeakyBucket& parameters);
  static Result<Limit> concurrency(const Concurrency& parameters);
  static Result<Limit> quota(const Quota& parameters);

  [[nodiscard]] Strategy strategy() const noexcept { return strategy_; }
  [[nodiscard]] Units limit() const noexcept { return limit_; }  // what `remaining` counts to
  [[nodiscard]] Units burst_allowance() const noexcept { return burst_; }
  [[nodiscard]] Units most() const noexcept { return limit_ + burst_; }  // no cost above this ever fits
  [[nodiscard]] Rate rate() const noexcept { return rate_; }             // of refill; windows: limit per window
  [[nodiscard]] Nanos window() const noexcept { return rate_.per; }      // window, or a concurrency limit's lease_ttl
  [[nodiscard]] Period period() const noexcept { return period_; }
  [[nodiscard]] const std::string& timezone() const noexcept { return timezone_; }

  // The same limit with a burst_allowance of 0.
  [[nodiscard]] Limit without_burst() const {
    Limit same = *this;
    same.burst_ = 0;
    return same;
  }

  // For people: "sliding_window 50/60s".
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const Limit& a, const Limit& b) noexcept;

 private:
  Limit(Strategy strategy, Units limit, Units burst, Rate rate)
      : strategy_(strategy), limit_(limit), burst_(burst), rate_(rate) {}
  static Result<Limit> window_of(Strategy strategy, const Window& parameters);

  Strategy strategy_;
  Period period_ = Period::kDay;
  Units limit_;
  Units burst_;
  Rate rate_;
  std::string timezone_;
};

}  // namespace headgate
