#include "base/rfc3339.h"

#include <gtest/gtest.h>

namespace headgate::base {
namespace {

using namespace std::chrono_literals;

TEST(Rfc3339, ReadsInstantsInAnyOffset) {
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00Z"), Nanos{0});
  EXPECT_EQ(parse_rfc3339("2026-03-28T15:00:00Z"), Nanos{1'774'710'000s});
  EXPECT_EQ(parse_rfc3339("2026-03-28T16:00:00+01:00"), Nanos{1'774'710'000s});
  EXPECT_EQ(parse_rfc3339("2026-03-28t09:30:00-05:30"), Nanos{1'774'710'000s});
  EXPECT_EQ(parse_rfc3339("2026-03-28 15:00:00z"), Nanos{1'774'710'000s});
  EXPECT_EQ(parse_rfc3339("2024-02-29T00:00:00Z"), Nanos{1'709'164'800s});
}

TEST(Rfc3339, KeepsFractionsToTheNanosecond) {
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:01.5Z"), Nanos{1500ms});
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00.000000001Z"), Nanos{1});
  EXPECT_EQ(parse_rfc3339("1970-01-01T00:00:00.0000000019Z"), Nanos{1});
}

TEST(Rfc3339, RefusesEverythingElse) {
  for (const char* text :
       {"", "2026", "2026-03-28", "2026-03-28T15:00:00", "2026-13-28T15:00:00Z", "2025-02-29T00:00:00Z",
        "2026-03-28T24:00:00Z", "2026-03-28T15:60:00Z", "2026-03-28T15:00:61Z", "2026-03-28T15:00:00.Z",
        "2026-03-28T15:00:00Zx", "2026-03-28T15:00:00+1", "2026-03-28T15:00:00+24:00", "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00", "9999-12-31T23:59:59Z", "2026-3-28T15:00:00Z", "-026-03-28T15:00:00Z",
        "2026-03-28T15:00:00.00000000000000000000000000000000000000000000000000Z"}) {
    EXPECT_EQ(parse_rfc3339(text), std::nullopt) << text;
  }
}

TEST(Rfc3339, AnInstantMayAlsoBeEpochMilliseconds) {
  EXPECT_EQ(parse_instant("1672531200000"), parse_rfc3339("2023-01-01T00:00:00Z"));
  EXPECT_EQ(parse_instant("2023-01-01T00:00:00Z"), parse_rfc3339("2023-01-01T00:00:00Z"));
  EXPECT_EQ(parse_instant("0"), Nanos{0});
  for (const char* bad : {"", "noon", "-1", "1.5", "1672531200000Z", "9223372036854775807", "99999999999999999999"}) {
    EXPECT_EQ(parse_instant(bad), std::nullopt) << bad;
  }
}

TEST(Rfc3339, WritesWhatItReads) {
  for (const char* text : {"1970-01-01T00:00:00Z", "2026-03-28T15:00:00Z", "2024-02-29T23:59:59.007Z"}) {
    EXPECT_EQ(format_rfc3339(parse_rfc3339(text).value()), text);
  }
}

}  // namespace
}  // namespace headgate::base
