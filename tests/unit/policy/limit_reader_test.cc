#include <rapidcheck/gtest.h>

#include "unit/policy/reading.h"

namespace headgate::policy::test {
namespace {

TEST(LimitReader, EveryStrategyIsRead) {
  EXPECT_EQ(limit("{strategy: token_bucket, capacity: 100, refill_rate: 10}"), "token_bucket 100, refilled at 10/s");
  EXPECT_EQ(limit("{strategy: token_bucket, capacity: 100, refill_rate: 10/min, burst_allowance: 5}"),
            "token_bucket 100, refilled at 10/m, burst 5");
  EXPECT_EQ(limit("{strategy: gcra, max_burst: 15, count: 30, period: 60s}"), "gcra 16, refilled at 30/m");
  EXPECT_EQ(limit("{strategy: sliding_window, limit: 50, window: 60s}"), "sliding_window 50/60s");
  EXPECT_EQ(limit("{strategy: sliding_window_counter, limit: 50, window: 1.5h}"), "sliding_window_counter 50/90m");
  EXPECT_EQ(limit("{strategy: fixed_window, limit: 1e3, window: 60}"), "fixed_window 1000/60s");
  EXPECT_EQ(limit("{strategy: leaky_bucket, rate: 0.5/s, queue: 20}"), "leaky_bucket 1/2s, 20 may queue");
  EXPECT_EQ(limit("{strategy: concurrency, max: 4}"), "concurrency 4, held at most 30s");
  EXPECT_EQ(limit("{strategy: concurrency, max: 4, lease_ttl: 500ms}"), "concurrency 4, held at most 500ms");
  EXPECT_EQ(limit("{strategy: quota, limit: 500, period: day, timezone: Europe/Berlin}"),
            "quota 500 per day in Europe/Berlin");
  EXPECT_EQ(limit("{strategy: quota, limit: 500, period: month}"), "quota 500 per month in UTC");
}

TEST(LimitReader, ShortFormsAreSlidingWindows) {
  EXPECT_EQ(limit("50/60s"), "sliding_window 50/60s");
  EXPECT_EQ(limit("10/min"), "sliding_window 10/60s");
  EXPECT_EQ(limit("100/h"), "sliding_window 100/1h");
  EXPECT_EQ(limit("5/day"), "sliding_window 5/1d");
  EXPECT_EQ(limit("5/500ms"), "sliding_window 5/500ms");
  EXPECT_EQ(limit("5 / 2w"), "sliding_window 5/14d");
  EXPECT_EQ(limit("[1/s, 30/min, {strategy: concurrency, max: 2}]"),
            "sliding_window 1/1s; sliding_window 30/60s; concurrency 2, held at most 30s");
  EXPECT_EQ(limit("unlimited"), "");
}

TEST(LimitReader, UnitsInMillionthsAreExact) {
  EXPECT_EQ(limit("2.5/60s", "usd"), "sliding_window 2.5/60s");
  EXPECT_EQ(limit("{strategy: token_bucket, capacity: 0.1, refill_rate: 0.000001, burst_allowance: 0.3}", "usd"),
            "token_bucket 0.1, refilled at 0.000001/s, burst 0.3");
  EXPECT_EQ(limit("{strategy: token_bucket, capacity: 5, refill_rate: 1.5/min}", "usd"),
            "token_bucket 5, refilled at 1.5/m");
  EXPECT_EQ(limit("{strategy: leaky_bucket, rate: 1, queue: 2.25}", "usd"), "leaky_bucket 1/s, 2.25 may queue");
  EXPECT_EQ(limit("{strategy: quota, limit: 10.000001, period: day}", "usd"), "quota 10.000001 per day in UTC");
  EXPECT_EQ(limit("{strategy: concurrency, max: 4}", "usd"), "concurrency 4, held at most 30s");
  EXPECT_EQ(policy(with("unit: usd", "limit: 0.1/h")).limits.at(0).limit(), 100'000);
  EXPECT_EQ(policy(with("unit: input_tokens", "limit: 7/h")).limits.at(0).limit(), 7);
}

TEST(LimitReader, NumbersThatDoNotFitAreRefusedWhereTheyStand) {
  EXPECT_EQ(limit("{strategy: sliding_window, limit: 2.5, window: 60s}"),
            "3:46: policy \"p\": limit must be a whole number, got 2.5");
  EXPECT_EQ(limit("{strategy: sliding_window, limit: 0.0000001, window: 60s}", "usd"),
            "3:46: policy \"p\": limit must have at most 6 decimals, got 0.0000001");
  EXPECT_EQ(limit("{strategy: sliding_window, limit: -5, window: 60s}"),
            "3:46: policy \"p\": limit must be between 1 and 4503599627370496, got -5");
  EXPECT_EQ(limit("{strategy: sliding_window, limit: 5e9, window: 60s}", "usd"),
            "3:46: policy \"p\": limit must be between 0 and 4503599627, got 5e9");
  EXPECT_EQ(limit("{strategy: sliding_window, limit: lots, window: soon}"),
            "3:46: policy \"p\": limit must be a number, got \"lots\"\n"
            "3:60: policy \"p\": window must be a duration such as 500ms, 60s, 5m, 1h or 7d, got \"soon\"");
  EXPECT_EQ(limit("{strategy: sliding_window, limit: .nan, window: 11y}"),
            "3:46: policy \"p\": limit must be a number, got \".nan\"\n"
            "3:60: policy \"p\": window must be between 1ms and 10y, got 4015d");
  EXPECT_EQ(limit("{strategy: sliding_window, limit: 1, window: 11y}"),
            "3:57: policy \"p\": window must be between 1ms and 10y, got 4015d");
  EXPECT_EQ(limit("{strategy: token_bucket, capacity: 5, refill_rate: 0}"),
            "3:63: policy \"p\": refill_rate must be above 0 and finite, got 0/s");
  EXPECT_EQ(limit("{strategy: token_bucket, capacity: 5, refill_rate: fast}"),
            "3:63: policy \"p\": refill_rate must be a rate such as 10, 10/s or 0.5/min, got \"fast\"");
  EXPECT_EQ(limit("{strategy: quota, limit: 5, period: fortnight}"),
            "3:48: policy \"p\": period must be hour, day, week, month or year, got \"fortnight\"");
  EXPECT_EQ(limit("0/s"), "3:12: policy \"p\": limit must be between 1 and 4503599627370496, got 0");
  EXPECT_EQ(limit("1.5/s"), "3:12: policy \"p\": limit must be a whole number, got 1.5");
}

TEST(LimitReader, EveryWrongNumberOfALimitIsTold) {
  EXPECT_EQ(limit("{strategy: leaky_bucket, rate: 0, queue: -1}"),
            "3:43: policy \"p\": rate must be above 0 and finite, got 0/s\n"
            "3:53: policy \"p\": queue must be between 0 and 4503599627370495, got -1");
  EXPECT_EQ(limit("{strategy: token_bucket, capacity: 0, refill_rate: 0, burst_allowance: -1}"),
            "3:47: policy \"p\": capacity must be between 1 and 4503599627370496, got 0\n"
            "3:63: policy \"p\": refill_rate must be above 0 and finite, got 0/s\n"
            "3:83: policy \"p\": burst_allowance must be between 0 and 4503599627370496, got -1");
  EXPECT_EQ(limit("{strategy: quota, limit: 0, period: fortnight, timezone: Mars}"),
            "3:37: policy \"p\": limit must be between 1 and 4503599627370496, got 0\n"
            "3:48: policy \"p\": period must be hour, day, week, month or year, got \"fortnight\"\n"
            "3:69: policy \"p\": timezone must be a name of the IANA time zone database, such as Europe/Berlin, got "
            "\"Mars\"");
  EXPECT_EQ(limit("{strategy: gcra, count: 0, period: 60s}"),
            "3:12: policy \"p\": limit must have max_burst\n"
            "3:36: policy \"p\": count must be between 1 and 4503599627370496, got 0")
      << "of what is missing, only that";
  EXPECT_EQ(limit("0/0s"),
            "3:12: policy \"p\": limit must be between 1 and 4503599627370496, got 0\n"
            "3:12: policy \"p\": window must be between 1ms and 10y, got 0s");
}

TEST(LimitReader, KeysThatNoStrategyTakesAreToldBesideAnUnknownStrategy) {
  EXPECT_EQ(limit("{strategy: windows, limit: 5, widow: 60s}"),
            "3:23: policy \"p\": strategy must be token_bucket, gcra, sliding_window, sliding_window_counter, "
            "fixed_window, leaky_bucket, concurrency or quota, got \"windows\"\n"
            "3:42: policy \"p\": unknown key \"widow\" in any limit; did you mean \"window\"?");
}

TEST(LimitReader, KeysOfOtherStrategiesAreRefused) {
  EXPECT_EQ(
      limit("{strategy: sliding_window, limit: 5, window: 60s, refill_rate: 3}"),
      "3:62: policy \"p\": unknown key \"refill_rate\" in a sliding_window limit; it takes strategy, limit, window "
      "and burst_allowance");
  EXPECT_EQ(
      limit("{strategy: slidng_window, limit: 5}"),
      "3:23: policy \"p\": strategy must be token_bucket, gcra, sliding_window, sliding_window_counter, "
      "fixed_window, leaky_bucket, concurrency or quota, got \"slidng_window\", did you mean \"sliding_window\"?");
  EXPECT_EQ(limit("{limit: 5, window: 60s}"), "3:12: policy \"p\": limit must have strategy");
}

TEST(LimitReader, OtherFormsAreRefused) {
  const std::string must =
      "3:12: policy \"p\": limit must be a mapping with a strategy, a short form such as 50/60s, a list of these, or "
      "unlimited, got ";
  EXPECT_EQ(limit("50"), must + "50");
  EXPECT_EQ(limit("~"), must + "nothing");
  EXPECT_EQ(limit("50/"), must + "\"50/\"");
  EXPECT_EQ(limit("[]"), "3:12: policy \"p\": limit must be a list of 1 to 8, got 0");
  EXPECT_EQ(limit("[1/s,1/s,1/s,1/s,1/s,1/s,1/s,1/s,1/s]"),
            "3:12: policy \"p\": limit must be a list of 1 to 8, got 9");
}

RC_GTEST_PROP(LimitReader, AnyAmountOfMillionthsReadsBackExactly, ()) {
  const auto units = *rc::gen::inRange<Units>(1, Units{1} << 52);
  const std::string fraction = std::to_string(1'000'000 + units % 1'000'000).substr(1);
  const std::string text = std::to_string(units / 1'000'000) + "." + fraction;
  RC_ASSERT(policy(with("unit: usd", "limit: " + text + "/h")).limits.at(0).limit() == units);
}

}  // namespace
}  // namespace headgate::policy::test
