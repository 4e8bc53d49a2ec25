#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string_view>
#include <utility>

namespace headgate::base {
namespace {

using namespace std::chrono_literals;

TEST(Text, DurationsReadInTheLargestUnitThatDividesThem) {
  const std::pair<Nanos, const char*> rows[] = {{0s, "0s"},
                                                {1ns, "1ns"},
                                                {999ns, "999ns"},
                                                {1us, "1us"},
                                                {1500us, "1500us"},
                                                {1ms, "1ms"},
                                                {500ms, "500ms"},
                                                {1s, "1s"},
                                                {1500ms, "1500ms"},
                                                {60s, "60s"},  // as people write it
                                                {90s, "90s"},
                                                {2min, "2m"},
                                                {5min, "5m"},
                                                {1h, "1h"},
                                                {90min, "90m"},
                                                {24h, "1d"},
                                                {24h * 7, "7d"},
                                                {24h * 365, "365d"},
                                                {25h, "25h"},
                                                {-1ns, "-1ns"},
                                                {-500ms, "-500ms"},
                                                {-60s, "-1m"},
                                                {Nanos::max(), "9223372036854775807ns"},
                                                {Nanos::min(), "-9223372036854775808ns"}};
  for (const auto& [duration, text] : rows) EXPECT_EQ(format_duration(duration), text);
}

TEST(Text, RatesReadAsUnitsPerTime) {
  const std::pair<Rate, const char*> rows[] = {
      {{10, 1s}, "10/s"}, {{120, 1min}, "120/m"}, {{120, 60s}, "120/m"}, {{1, 3s}, "1/3s"},     {{5, 1h}, "5/h"},
      {{1, 24h}, "1/d"},  {{7, 10s}, "7/10s"},    {{1, 1ms}, "1/1ms"},   {{1, 1ns}, "1/1ns"},   {{0, 1s}, "0/s"},
      {{-3, 1s}, "-3/s"}, {{3, 0s}, "3/0s"},      {{3, -1s}, "3/-1s"},   {{1, 10min}, "1/10m"}, {{1, 90s}, "1/90s"}};
  for (const auto& [rate, text] : rows) EXPECT_EQ(format_rate(rate), text);
}

RC_GTEST_PROP(Text, ADurationReadsBackAsItself, (std::int64_t nanos)) {
  const std::string text = format_duration(Nanos{nanos});
  std::size_t digits = 0;
  const std::int64_t number = std::stoll(text, &digits);
  const std::string_view unit = std::string_view(text).substr(digits);
  const std::pair<std::string_view, std::int64_t> units[] = {{"d", 86'400'000'000'000},
                                                             {"h", 3'600'000'000'000},
                                                             {"m", 60'000'000'000},
                                                             {"s", 1'000'000'000},
                                                             {"ms", 1'000'000},
                                                             {"us", 1'000},
                                                             {"ns", 1}};
  bool known = false;
  for (const auto& [name, scale] : units) {
    if (name != unit) continue;
    known = true;
    RC_ASSERT(number * scale == nanos);
  }
  RC_ASSERT(known);
}

}  // namespace
}  // namespace headgate::base
