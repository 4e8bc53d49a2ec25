#include "headgate/limit.h"

#include <cassert>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "base/wide.h"
#include "core/compiled_limit.h"
#include "core/limit_problems.h"

namespace headgate {
namespace {

using core::kLongestSpan;

using core::kMostUnits;
constexpr Nanos kShortestSpan = std::chrono::milliseconds{1};
// What Rate::per_second needs to keep billionths. A bucket's time to refill is bounded on its own.
constexpr Nanos kLongestRate = std::chrono::seconds{1'000'000'000};

Error out_of_range(const char* field, const std::string& range, const std::string& got) {
  return {ErrorCode::kInvalidArgument, std::string(field) + " must be " + range + ", got " + got};
}

// Collects complaints; every check names its field, the range and what came.
class Checks {
 public:
  void units(const char* field, Units value, Units least, Units most = kMostUnits) {
    if (value >= least && value <= most) return;
    complain(out_of_range(field, "between " + std::to_string(least) + " and " + std::to_string(most),
                          std::to_string(value)));
  }
  void span(const char* field, Nanos value) {
    if (value >= kShortestSpan && value <= kLongestSpan) return;
    complain(out_of_range(field, "between 1ms and 10y", base::format_duration(value)));
  }
  void burst(Units value, const char* field, Units limit, Units least = 1, Units most = kMostUnits) {
    units("burst_allowance", value, 0);
    if (!failed()) units((std::string(field) + " plus burst_allowance").c_str(), limit + value, least, most);
  }
  void rate(const char* field, Rate rate) {
    if (rate.units <= 0 || rate.per <= Nanos{0}) {
      complain(out_of_range(field, "above 0 and finite", base::format_rate(rate)));
    } else if (rate.units > kMostUnits || rate.per > kLongestRate) {
      complain(out_of_range(field, "at most " + std::to_string(kMostUnits) + " units per at most 1000000000s",
                            base::format_rate(rate)));
    } else if (rate.units > rate.per.count()) {
      complain(out_of_range(field, "at most one unit per nanosecond", base::format_rate(rate)));
    }
  }
  // REQUIRES: the numbers have passed their own checks.
  void refills(const char* field, Rate rate, Units capacity, Units burst) {
    assert(!failed());
    if (core::bucket_numbers(rate, capacity, burst)) return;
    complain(out_of_range(field, "small enough to refill within 10y",
                          std::to_string(capacity + burst) + " units at " + base::format_rate(rate)));
  }
  void complain(Error error) { errors_.push_back(std::move(error)); }
  [[nodiscard]] bool failed() const { return !errors_.empty(); }
  [[nodiscard]] std::vector<Error> errors() && { return std::move(errors_); }

 private:
  std::vector<Error> errors_;
};

}  // namespace

const char* to_string(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::kTokenBucket: return "token_bucket";
    case Strategy::kGcra: return "gcra";
    case Strategy::kSlidingWindow: return "sliding_window";
    case Strategy::kSlidingWindowCounter: return "sliding_window_counter";
    case Strategy::kFixedWindow: return "fixed_window";
    case Strategy::kLeakyBucket: return "leaky_bucket";
    case Strategy::kConcurrency: return "concurrency";
    case Strategy::kQuota: return "quota";
  }
  return "unknown";
}

const char* to_string(Period period) noexcept {
  switch (period) {
    case Period::kHour: return "hour";
    case Period::kDay: return "day";
    case Period::kWeek: return "week";
    case Period::kMonth: return "month";
    case Period::kYear: return "year";
  }
  return "unknown";
}

const char* to_string(Reason reason) noexcept {
  switch (reason) {
    case Reason::kOk: return "ok";
    case Reason::kLimited: return "limited";
    case Reason::kCostExceedsLimit: return "cost_exceeds_limit";
    case Reason::kInvalidCost: return "invalid_cost";
    case Reason::kTooManyKeys: return "too_many_keys";
    case Reason::kQueueFull: return "queue_full";
    case Reason::kTimedOut: return "timed_out";
    case Reason::kCancelled: return "cancelled";
  }
  return "unknown";
}

Rate Rate::per_second(double units) noexcept {
  constexpr std::int64_t kBillion = 1'000'000'000;
  if (!(units > 0) || units > 1e9) return {0, std::chrono::seconds{1}};
  // Whole rates stay whole; others are read as billionths of a unit per second, and reduced where that is exact.
  if (units == std::floor(units)) return {static_cast<Units>(units), std::chrono::seconds{1}};
  const auto billionths = static_cast<std::int64_t>(std::llround(units * 1e9));
  const std::int64_t common = std::gcd(billionths, kBillion);
  Rate rate{billionths / common, std::chrono::seconds{kBillion / common}};
  // Past four million units a second a double has no billionths to keep; halving both keeps all that it has.
  while (rate.units > kMostUnits) rate = {(rate.units + 1) / 2, rate.per / 2};
  return rate;
}

namespace core {

std::vector<Error> problems_of(const TokenBucket& p) {
  Checks checks;
  checks.units("capacity", p.capacity, 1);
  checks.rate("refill_rate", p.refill_rate);
  checks.burst(p.burst_allowance, "capacity", p.capacity);
  if (!checks.failed()) checks.refills("capacity", p.refill_rate, p.capacity, p.burst_allowance);
  return std::move(checks).errors();
}

std::vector<Error> problems_of(const Gcra& p) {
  Checks checks;
  checks.units("max_burst", p.max_burst, 0, kMostUnits - 1);
  checks.units("count", p.count, 1);
  checks.span("period", p.period);
  checks.burst(p.burst_allowance, "max_burst", p.max_burst, 0, kMostUnits - 1);
  if (!checks.failed() && p.count > p.period.count()) {
    checks.complain(out_of_range("count", "at most one per nanosecond of the period", std::to_string(p.count)));
  }
  if (!checks.failed()) checks.refills("max_burst", {p.count, p.period}, p.max_burst + 1, p.burst_allowance);
  return std::move(checks).errors();
}

std::vector<Error> problems_of(const Window& p) {
  Checks checks;
  checks.units("limit", p.limit, 1);
  checks.span("window", p.window);
  checks.burst(p.burst_allowance, "limit", p.limit);
  return std::move(checks).errors();
}

std::vector<Error> problems_of(const LeakyBucket& p) {
  Checks checks;
  checks.rate("rate", p.rate);
  checks.units("queue", p.queue, 0, kMostUnits - 1);
  if (!checks.failed()) checks.refills("queue", p.rate, p.queue + 1, 0);
  return std::move(checks).errors();
}

std::vector<Error> problems_of(const Concurrency& p) {
  Checks checks;
  checks.units("max", p.max, 1, kMaxHolds);
  checks.span("lease_ttl", p.lease_ttl);
  checks.units("burst_allowance", p.burst_allowance, 0, kMaxHolds);
  if (!checks.failed()) checks.units("max plus burst_allowance", p.max + p.burst_allowance, 1, kMaxHolds);
  return std::move(checks).errors();
}

std::vector<Error> problems_of(const Quota& p) {
  Checks checks;
  checks.units("limit", p.limit, 1);
  checks.burst(p.burst_allowance, "limit", p.limit);
  if (p.period > Period::kYear) {
    checks.complain(
        out_of_range("period", "hour, day, week, month or year", std::to_string(static_cast<int>(p.period))));
  } else if (auto calendar = Calendar::make(p.period, p.timezone); !calendar) {
    checks.complain(std::move(calendar).error());
  }
  return std::move(checks).errors();
}

}  // namespace core

Result<Limit> Limit::token_bucket(const TokenBucket& p) {
  if (const auto problems = core::problems_of(p); !problems.empty()) return problems.front();
  return Limit{Strategy::kTokenBucket, p.capacity, p.burst_allowance, p.refill_rate};
}

Result<Limit> Limit::gcra(const Gcra& p) {
  if (const auto problems = core::problems_of(p); !problems.empty()) return problems.front();
  return Limit{Strategy::kGcra, p.max_burst + 1, p.burst_allowance, {p.count, p.period}};
}

Result<Limit> Limit::window_of(Strategy strategy, const Window& p) {
  if (const auto problems = core::problems_of(p); !problems.empty()) return problems.front();
  return Limit{strategy, p.limit, p.burst_allowance, {p.limit, p.window}};
}

Result<Limit> Limit::sliding_window(const Window& p) { return window_of(Strategy::kSlidingWindow, p); }
Result<Limit> Limit::sliding_window_counter(const Window& p) { return window_of(Strategy::kSlidingWindowCounter, p); }
Result<Limit> Limit::fixed_window(const Window& p) { return window_of(Strategy::kFixedWindow, p); }

Result<Limit> Limit::leaky_bucket(const LeakyBucket& p) {
  if (const auto problems = core::problems_of(p); !problems.empty()) return problems.front();
  return Limit{Strategy::kLeakyBucket, p.queue + 1, 0, p.rate};
}

Result<Limit> Limit::concurrency(const Concurrency& p) {
  if (const auto problems = core::problems_of(p); !problems.empty()) return problems.front();
  return Limit{Strategy::kConcurrency, p.max, p.burst_allowance, {p.max, p.lease_ttl}};
}

Result<Limit> Limit::quota(const Quota& p) {
  if (const auto problems = core::problems_of(p); !problems.empty()) return problems.front();
  Limit limit{Strategy::kQuota, p.limit, p.burst_allowance, {p.limit, Nanos{0}}};
  limit.period_ = p.period;
  limit.timezone_ = p.timezone;
  return limit;
}

std::string Limit::describe() const {
  std::string text = to_string(strategy_);
  switch (strategy_) {
    case Strategy::kTokenBucket:
    case Strategy::kGcra: text += " " + std::to_string(limit_) + ", refilled at " + base::format_rate(rate_); break;
    case Strategy::kLeakyBucket:
      text += " " + base::format_rate(rate_) + ", " + std::to_string(limit_ - 1) + " may queue";
      break;
    case Strategy::kConcurrency:
      text += " " + std::to_string(limit_) + ", held at most " + base::format_duration(rate_.per);
      break;
    case Strategy::kQuota:
      text += " " + std::to_string(limit_) + " per " + to_string(period_) + " in " + timezone_;
      break;
    default: text += " " + std::to_string(limit_) + "/" + base::format_duration(rate_.per);
  }
  if (burst_ > 0) text += ", burst " + std::to_string(burst_);
  return text;
}

bool operator==(const Limit& a, const Limit& b) noexcept {
  return a.strategy_ == b.strategy_ && a.limit_ == b.limit_ && a.burst_ == b.burst_ && a.rate_.units == b.rate_.units &&
         a.rate_.per == b.rate_.per && a.period_ == b.period_ && a.timezone_ == b.timezone_;
}

namespace core {

Result<BucketNumbers> bucket_numbers(Rate rate, Units capacity, Units burst) {
  const std::int64_t common = std::gcd(rate.per.count(), rate.units);
  const std::int64_t unit = rate.per.count() / common;  // one unit refills in unit/den nanoseconds
  BucketNumbers n;
  n.den = rate.units / common;
  n.whole = unit / n.den;
  n.part = unit % n.den;
  n.burst = burst;
  n.by_whole = detail::Divisor(n.whole);
  const base::Wide fill = base::Wide{unit} * (capacity + burst);
  if (fill / n.den > kLongestSpan.count()) {
    return out_of_range("capacity", "small enough to refill within 10y",
                        std::to_string(capacity + burst) + " units at " + base::format_rate(rate));
  }
  n.fill = static_cast<std::int64_t>(fill / n.den);
  n.fill_part = static_cast<std::int64_t>(fill % n.den);
  return n;
}

Nanos refill_time(const CompiledLimit& limit, Units units) noexcept {
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: {
      const BucketNumbers& n = limit.numbers.bucket;
      const base::Wide parts = (base::Wide{n.whole} * n.den + n.part) * units;
      return Nanos{static_cast<std::int64_t>((parts + n.den - 1) / n.den)};
    }
    case Strategy::kGcra: return limit.numbers.gcra.interval * units;
    default: return Nanos{0};
  }
}

CompiledLimit compile(const Limit& limit) {
  CompiledLimit compiled;
  compiled.strategy = limit.strategy();
  compiled.limit = limit.limit();
  compiled.most = limit.most();
  const Units burst = limit.burst_allowance();
  const Nanos window = limit.window();
  switch (limit.strategy()) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: compiled.numbers.bucket = *bucket_numbers(limit.rate(), limit.limit(), burst); break;
    case Strategy::kGcra: {
      // redis-cell divides in floating point and cuts the rest off.
      const Nanos interval{
          static_cast<std::int64_t>(static_cast<double>(window.count()) / static_cast<double>(limit.rate().units))};
      compiled.numbers.gcra = {interval, interval * limit.most(), burst};
      break;
    }
    case Strategy::kSlidingWindow: compiled.numbers.log = {limit.most(), burst, window}; break;
    case Strategy::kSlidingWindowCounter: compiled.numbers.counter = {limit.most(), burst, window}; break;
    case Strategy::kFixedWindow: compiled.numbers.window = {limit.most(), burst, window, {}}; break;
    case Strategy::kConcurrency: compiled.numbers.concurrency = {limit.most(), burst, window}; break;
    case Strategy::kQuota:
      compiled.numbers.window = {limit.most(), burst, Nanos{0}, *Calendar::make(limit.period(), limit.timezone())};
      break;
  }
  return compiled;
}

}  // namespace core
}  // namespace headgate
