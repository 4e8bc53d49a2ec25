#include "headgate/limit.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "core/compiled_limit.h"
#include "driver.h"

namespace headgate {
namespace {

using testing::bucket;
using testing::gcra;
using testing::leaky;
using testing::OneCell;
using namespace std::chrono_literals;

constexpr Units kMin = std::numeric_limits<Units>::min();
constexpr Units kMax = std::numeric_limits<Units>::max();
constexpr Units kMost = Units{1} << 52;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string complaint(const Result<Limit>& limit) {
  if (limit) return "accepted: " + limit->describe();
  EXPECT_EQ(limit.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(limit.error().transient);
  return limit.error().message;
}

Result<Limit> concurrency(Units max, Nanos ttl, Units burst = 0) {
  return Limit::concurrency({.max = max, .lease_ttl = ttl, .burst_allowance = burst});
}

TEST(Limit, TokenBucketRefusesNonsenseByNameRangeAndWhatCame) {
  const std::string units = " must be between 1 and 4503599627370496, got ";
  EXPECT_EQ(complaint(bucket(0, {1, 1s})), "capacity" + units + "0");
  EXPECT_EQ(complaint(bucket(-1, {1, 1s})), "capacity" + units + "-1");
  EXPECT_EQ(complaint(bucket(kMin, {1, 1s})), "capacity" + units + "-9223372036854775808");
  EXPECT_EQ(complaint(bucket(kMost + 1, {1, 1ns})), "capacity" + units + "4503599627370497");
  EXPECT_EQ(complaint(bucket(kMax, {1, 1s})), "capacity" + units + "9223372036854775807");
  EXPECT_EQ(complaint(bucket(1, {0, 1s})), "refill_rate must be above 0 and finite, got 0/s");
  EXPECT_EQ(complaint(bucket(1, {-5, 1s})), "refill_rate must be above 0 and finite, got -5/s");
  EXPECT_EQ(complaint(bucket(1, {5, 0s})), "refill_rate must be above 0 and finite, got 5/0s");
  EXPECT_EQ(complaint(bucket(1, {5, -1s})), "refill_rate must be above 0 and finite, got 5/-1s");
  EXPECT_EQ(complaint(bucket(1, {kMin, Nanos::min()})),
            "refill_rate must be above 0 and finite, got -9223372036854775808/-9223372036854775808ns");
  EXPECT_EQ(complaint(bucket(1, {kMost + 1, 1h})),
            "refill_rate must be at most 4503599627370496 units per at most 1000000000s, got 4503599627370497/h");
  EXPECT_EQ(complaint(bucket(1, {1, 1'000'000'001s})),
            "refill_rate must be at most 4503599627370496 units per at most 1000000000s, got 1/1000000001s");
  EXPECT_EQ(complaint(bucket(1, {1'000'000'001, 1s})),
            "refill_rate must be at most one unit per nanosecond, got 1000000001/s");
  EXPECT_EQ(complaint(bucket(1, {1, 1s}, -1)), "burst_allowance must be between 0 and 4503599627370496, got -1");
  EXPECT_EQ(complaint(bucket(1, {1, 1s}, kMax)),
            "burst_allowance must be between 0 and 4503599627370496, got 9223372036854775807");
  EXPECT_EQ(complaint(bucket(kMost, {1, 1ns}, kMost)),
            "capacity plus burst_allowance must be between 1 and 4503599627370496, got 9007199254740992");
  EXPECT_EQ(complaint(bucket(3654, {1, 24h})),
            "capacity must be small enough to refill within 10y, got 3654 units at 1/d");
  EXPECT_EQ(complaint(bucket(3650, {1, 24h}, 4)),
            "capacity must be small enough to refill within 10y, got 3654 units at 1/d");
  EXPECT_EQ(complaint(bucket(3653, {1, 24h})), "accepted: token_bucket 3653, refilled at 1/d");
}

TEST(Limit, RatesThatAreNoNumbersAreRefused) {
  for (const double rate : {0.0, -0.0, -1.0, kNan, -kNan, kInfinity, -kInfinity, 1e9 + 1, 1e300, 1e-10, 1e-300}) {
    EXPECT_EQ(complaint(bucket(1, Rate::per_second(rate))), "refill_rate must be above 0 and finite, got 0/s") << rate;
    EXPECT_EQ(complaint(leaky(Rate::per_second(rate), 1)), "rate must be above 0 and finite, got 0/s") << rate;
  }
}

TEST(Limit, RatesPerSecondAreReadToTheNearestBillionth) {
  struct Row {
    double rate;
    Units units;
    Nanos per;
  };
  const Row rows[] = {{10, 10, 1s},
                      {0.5, 1, 2s},
                      {0.1, 1, 10s},
                      {2.5, 5, 2s},
                      {1e9, 1'000'000'000, 1s},
                      {1e-9, 1, 1'000'000'000s},
                      {1.0 / 3, 333'333'333, 1'000'000'000s},
                      {2.123456789, 2'123'456'789, 1'000'000'000s},
                      {4503599.7, 45'035'997, 10s}};
  for (const Row& row : rows) {
    const Rate rate = Rate::per_second(row.rate);
    EXPECT_EQ(rate.units, row.units) << row.rate;
    EXPECT_EQ(rate.per, row.per) << row.rate;
  }
}

RC_GTEST_PROP(Limit, EveryRatePerSecondInRangeMakesALimitOfThatRate, ()) {
  const double mantissa = static_cast<double>(*rc::gen::inRange<std::int64_t>(1'000'000'000'000, 9'999'999'999'999));
  const int exponent = *rc::gen::inRange(-8, 9);
  const double asked = mantissa / 1e12 * std::pow(10, exponent);
  const Rate rate = Rate::per_second(asked);
  const double got = static_cast<double>(rate.units) / static_cast<double>(rate.per.count()) * 1e9;
  RC_ASSERT(std::abs(got - asked) <= std::max(0.51e-9, asked * 1e-15));
  RC_ASSERT(complaint(bucket(1, rate)).starts_with("accepted"));
}

TEST(Limit, GcraRefusesNonsenseByNameRangeAndWhatCame) {
  EXPECT_EQ(complaint(gcra(-1, 1, 1s)), "max_burst must be between 0 and 4503599627370495, got -1");
  EXPECT_EQ(complaint(gcra(kMost, 1, 1s)), "max_burst must be between 0 and 4503599627370495, got 4503599627370496");
  EXPECT_EQ(complaint(gcra(kMax, 1, 1s)), "max_burst must be between 0 and 4503599627370495, got 9223372036854775807");
  EXPECT_EQ(complaint(gcra(0, 0, 1s)), "count must be between 1 and 4503599627370496, got 0");
  EXPECT_EQ(complaint(gcra(0, -3, 1s)), "count must be between 1 and 4503599627370496, got -3");
  EXPECT_EQ(complaint(gcra(0, 1, 0s)), "period must be between 1ms and 10y, got 0s");
  EXPECT_EQ(complaint(gcra(0, 1, -1s)), "period must be between 1ms and 10y, got -1s");
  EXPECT_EQ(complaint(gcra(0, 1, 999'999ns)), "period must be between 1ms and 10y, got 999999ns");
  EXPECT_EQ(complaint(gcra(0, 1, core::kLongestSpan + 1ns)),
            "period must be between 1ms and 10y, got 315619200000000001ns");
  EXPECT_EQ(complaint(gcra(0, 1'000'001, 1ms)), "count must be at most one per nanosecond of the period, got 1000001");
  EXPECT_EQ(complaint(gcra(0, 1, 1s, -1)), "burst_allowance must be between 0 and 4503599627370496, got -1");
  EXPECT_EQ(complaint(gcra(kMost - 1, 1'000'000, 1ms, 1)),
            "max_burst plus burst_allowance must be between 0 and 4503599627370495, got 4503599627370496");
  EXPECT_EQ(complaint(gcra(3653, 1, 24h)),
            "max_burst must be small enough to refill within 10y, got 3654 units at 1/d");
}

TEST(Limit, WindowsRefuseNonsenseByNameRangeAndWhatCame) {
  for (const auto make : {&Limit::sliding_window, &Limit::sliding_window_counter, &Limit::fixed_window}) {
    const auto window = [make](Units limit, Nanos length, Units burst = 0) {
      return complaint(make({.limit = limit, .window = length, .burst_allowance = burst}));
    };
    EXPECT_EQ(window(0, 1s), "limit must be between 1 and 4503599627370496, got 0");
    EXPECT_EQ(window(-7, 1s), "limit must be between 1 and 4503599627370496, got -7");
    EXPECT_EQ(window(kMax, 1s), "limit must be between 1 and 4503599627370496, got 9223372036854775807");
    EXPECT_EQ(window(1, 0s), "window must be between 1ms and 10y, got 0s");
    EXPECT_EQ(window(1, -60s), "window must be between 1ms and 10y, got -1m");
    EXPECT_EQ(window(1, 500us), "window must be between 1ms and 10y, got 500us");
    EXPECT_EQ(window(1, 24h * 4000), "window must be between 1ms and 10y, got 4000d");
    EXPECT_EQ(window(1, Nanos::max()), "window must be between 1ms and 10y, got 9223372036854775807ns");
    EXPECT_EQ(window(1, Nanos::min()), "window must be between 1ms and 10y, got -9223372036854775808ns");
    EXPECT_EQ(window(1, 1s, -1), "burst_allowance must be between 0 and 4503599627370496, got -1");
    EXPECT_EQ(window(kMost, 1s, 1),
              "limit plus burst_allowance must be between 1 and 4503599627370496, got 4503599627370497");
  }
}

TEST(Limit, LeakyBucketRefusesNonsenseByNameRangeAndWhatCame) {
  EXPECT_EQ(complaint(leaky({0, 1s}, 1)), "rate must be above 0 and finite, got 0/s");
  EXPECT_EQ(complaint(leaky({1, 1s}, -1)), "queue must be between 0 and 4503599627370495, got -1");
  EXPECT_EQ(complaint(leaky({1, 1s}, kMax)), "queue must be between 0 and 4503599627370495, got 9223372036854775807");
  EXPECT_EQ(complaint(leaky({1, 24h}, 3653)), "queue must be small enough to refill within 10y, got 3654 units at 1/d");
}

TEST(Limit, ConcurrencyRefusesNonsenseByNameRangeAndWhatCame) {
  EXPECT_EQ(complaint(concurrency(0, 30s)), "max must be between 1 and 65536, got 0");
  EXPECT_EQ(complaint(concurrency(-1, 30s)), "max must be between 1 and 65536, got -1");
  EXPECT_EQ(complaint(concurrency(65'537, 30s)), "max must be between 1 and 65536, got 65537");
  EXPECT_EQ(complaint(concurrency(1, 0s)), "lease_ttl must be between 1ms and 10y, got 0s");
  EXPECT_EQ(complaint(concurrency(1, 30s, -1)), "burst_allowance must be between 0 and 65536, got -1");
  EXPECT_EQ(complaint(concurrency(1, 30s, kMax)),
            "burst_allowance must be between 0 and 65536, got 9223372036854775807");
  EXPECT_EQ(complaint(concurrency(65'536, 30s, 1)), "max plus burst_allowance must be between 1 and 65536, got 65537");
}

TEST(Limit, QuotaRefusesNonsenseByNameRangeAndWhatCame) {
  EXPECT_EQ(complaint(Limit::quota({.limit = 0})), "limit must be between 1 and 4503599627370496, got 0");
  EXPECT_EQ(complaint(Limit::quota({.limit = 1, .burst_allowance = -2})),
            "burst_allowance must be between 0 and 4503599627370496, got -2");
  EXPECT_EQ(complaint(Limit::quota({.limit = 1, .period = static_cast<Period>(9)})),
            "period must be hour, day, week, month or year, got 9");
  EXPECT_EQ(complaint(Limit::quota({.limit = 1, .timezone = "Mars/Olympus"})),
            "timezone must be a name of the IANA time zone database, such as Europe/Berlin, got \"Mars/Olympus\"");
}

TEST(Limit, TheFirstComplaintIsTheOneThatIsMade) {
  EXPECT_EQ(complaint(bucket(0, {0, 1s}, -1)), "capacity must be between 1 and 4503599627370496, got 0");
}

TEST(Limit, DescribesItselfForPeople) {
  const auto window = [](Units limit, Nanos length, Units burst = 0) { return Window{limit, length, burst}; };
  EXPECT_EQ(bucket(10, {2, 1s})->describe(), "token_bucket 10, refilled at 2/s");
  EXPECT_EQ(bucket(10, {1, 3s}, 5)->describe(), "token_bucket 10, refilled at 1/3s, burst 5");
  EXPECT_EQ(gcra(15, 30, 60s)->describe(), "gcra 16, refilled at 30/m");
  EXPECT_EQ(Limit::sliding_window(window(50, 60s))->describe(), "sliding_window 50/60s");
  EXPECT_EQ(Limit::sliding_window_counter(window(50, 90s, 2))->describe(), "sliding_window_counter 50/90s, burst 2");
  EXPECT_EQ(Limit::fixed_window(window(1000, 1h))->describe(), "fixed_window 1000/1h");
  EXPECT_EQ(leaky({5, 1s}, 20)->describe(), "leaky_bucket 5/s, 20 may queue");
  EXPECT_EQ(concurrency(4, 30s)->describe(), "concurrency 4, held at most 30s");
  EXPECT_EQ(Limit::quota({.limit = 100, .period = Period::kMonth, .timezone = "Asia/Kolkata"})->describe(),
            "quota 100 per month in Asia/Kolkata");
}

TEST(Limit, ReadsBackWhatItWasMadeOf) {
  const Limit limit = *gcra(15, 30, 60s, 4);
  EXPECT_EQ(limit.strategy(), Strategy::kGcra);
  EXPECT_EQ(limit.limit(), 16);
  EXPECT_EQ(limit.burst_allowance(), 4);
  EXPECT_EQ(limit.most(), 20);
  EXPECT_EQ(limit.rate().units, 30);
  EXPECT_EQ(limit.window(), 60s);
  const Limit quota = *Limit::quota({.limit = 7, .period = Period::kWeek, .timezone = "Europe/Berlin"});
  EXPECT_EQ(quota.period(), Period::kWeek);
  EXPECT_EQ(quota.timezone(), "Europe/Berlin");
  EXPECT_EQ(leaky({5, 1s}, 20)->limit(), 21);
}

TEST(Limit, EqualsOnlyWhatIsTheSameInEveryPart) {
  const Quota day{.limit = 10, .period = Period::kDay, .timezone = "UTC"};
  const std::vector<Limit> all{*bucket(10, {1, 1s}),
                               *bucket(11, {1, 1s}),
                               *bucket(10, {2, 1s}),
                               *bucket(10, {1, 2s}),
                               *bucket(10, {1, 1s}, 1),
                               *gcra(9, 1, 1s),
                               *leaky({1, 1s}, 9),
                               *Limit::fixed_window({10, 1s}),
                               *Limit::sliding_window({10, 1s}),
                               *Limit::sliding_window_counter({10, 1s}),
                               *concurrency(10, 1s),
                               *Limit::quota(day),
                               *Limit::quota({.limit = 10, .period = Period::kWeek, .timezone = "UTC"}),
                               *Limit::quota({.limit = 10, .period = Period::kDay, .timezone = "Etc/UTC"})};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) EXPECT_EQ(all[i] == all[j], i == j) << i << ", " << j;
    const Limit copy = all[i];
    EXPECT_EQ(copy, all[i]);
  }
}

TEST(Limit, NamesAreThoseOfPolicies) {
  const std::array<const char*, kStrategyCount> strategies{
      "token_bucket", "gcra",         "sliding_window", "sliding_window_counter",
      "fixed_window", "leaky_bucket", "concurrency",    "quota"};
  for (int i = 0; i < kStrategyCount; ++i) {
    EXPECT_STREQ(to_string(static_cast<Strategy>(i)), strategies[static_cast<std::size_t>(i)]);
  }
  const std::array<const char*, 5> periods{"hour", "day", "week", "month", "year"};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_STREQ(to_string(static_cast<Period>(i)), periods[i]);
  const std::array<const char*, 8> reasons{
      "ok", "limited", "cost_exceeds_limit", "invalid_cost", "too_many_keys", "queue_full", "timed_out", "cancelled"};
  for (std::size_t i = 0; i < reasons.size(); ++i) EXPECT_STREQ(to_string(static_cast<Reason>(i)), reasons[i]);
  EXPECT_STREQ(to_string(static_cast<Strategy>(99)), "unknown");
  EXPECT_STREQ(to_string(static_cast<Period>(99)), "unknown");
  EXPECT_STREQ(to_string(static_cast<Reason>(99)), "unknown");
}

TEST(Limit, OnlyWindowsOfTheEpochAndOfTheCalendarFollowTheWallClock) {
  EXPECT_TRUE(core::compile(*Limit::fixed_window({10, 1s})).follows_wall());
  EXPECT_TRUE(core::compile(*Limit::quota({.limit = 1})).follows_wall());
  EXPECT_FALSE(core::compile(*Limit::sliding_window({10, 1s})).follows_wall());
  EXPECT_FALSE(core::compile(*Limit::sliding_window_counter({10, 1s})).follows_wall());
  EXPECT_FALSE(core::compile(*bucket(10, {1, 1s})).follows_wall());
  EXPECT_FALSE(core::compile(*gcra(9, 1, 1s)).follows_wall());
  EXPECT_FALSE(core::compile(*leaky({1, 1s}, 9)).follows_wall());
  EXPECT_FALSE(core::compile(*concurrency(1, 1s)).follows_wall());
}

// Every limit at the edge of what is accepted works, at both ends of time. Under UndefinedBehaviorSanitizer this also
// shows that nothing overflows.
TEST(Limit, LimitsAtEveryBoundWork) {
  const std::vector<Result<Limit>> made{
      bucket(1, {1, 1ns}),
      bucket(kMost, {1, 1ns}),
      bucket(kMost - 1, {kMost, Nanos{kMost}}, 1),
      bucket(kMost, {kMost, Nanos{kMost + 1}}),
      bucket(1, {1, core::kLongestSpan}),
      bucket(kMost, {kMost, core::kLongestSpan}),
      bucket(1, {kMost, core::kLongestSpan}, kMost - 1),
      bucket(1, Rate::per_second(1.0 / 3)),
      gcra(0, 1, core::kLongestSpan),
      gcra(0, 1, 1ms),
      gcra(kMost - 1, kMost, core::kLongestSpan),
      gcra(0, kMost, core::kLongestSpan, kMost - 1),
      gcra(0, 1'000'000, 1ms),
      leaky({kMost, core::kLongestSpan}, kMost - 1),
      leaky({1, 1ns}, 0),
      Limit::sliding_window({kMost, 1ms}),
      Limit::sliding_window({1, core::kLongestSpan, kMost - 1}),
      Limit::sliding_window_counter({kMost, 1ms}),
      Limit::sliding_window_counter({1, core::kLongestSpan, kMost - 1}),
      Limit::sliding_window_counter({kMost, core::kLongestSpan}),
      Limit::fixed_window({kMost, 1ms}),
      Limit::fixed_window({1, core::kLongestSpan, kMost - 1}),
      concurrency(65'536, core::kLongestSpan),
      concurrency(1, 1ms, 65'535),
      Limit::quota({.limit = kMost, .period = Period::kHour}),
      Limit::quota(
          {.limit = 1, .period = Period::kYear, .timezone = "Pacific/Auckland", .burst_allowance = kMost - 1})};
  for (const auto& limit : made) {
    ASSERT_TRUE(limit) << limit.error().message;
    SCOPED_TRACE(limit->describe());
    for (const Nanos now : {Nanos{0}, Nanos{1'700'000'000s}, kMaxTime}) {
      OneCell cell(limit);
      EXPECT_EQ(cell.peek(0, now).remaining, limit->limit());
      EXPECT_TRUE(cell.take(1, now, 1).fits());
      EXPECT_EQ(cell.peek(limit->most(), now).fits(), false);
      if (limit->most() > 1) {
        EXPECT_TRUE(cell.take(limit->most() - 1, now, 2).fits());
      }
      EXPECT_EQ(cell.peek(0, now).remaining, 0);
      for (const Units cost : {Units{1}, limit->most()}) {
        const core::Outcome denied = cell.peek(cost, now);
        EXPECT_GT(denied.wait, 0ns);
        EXPECT_TRUE(cell.peek(cost, now + denied.wait).fits());
        EXPECT_FALSE(cell.peek(cost, 0ns).fits());
      }
    }
  }
}

}  // namespace
}  // namespace headgate
