#include "core/calendar.h"

#include <date/tz.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "driver.h"

namespace headgate {
namespace {

using core::Calendar;
using core::Span;
using namespace std::chrono_literals;

constexpr const char* kZones[] = {"UTC",
                                  "Europe/Berlin",
                                  "America/New_York",
                                  "Asia/Kolkata",
                                  "Australia/Lord_Howe",
                                  "America/Sao_Paulo",
                                  "America/St_Johns",
                                  "Pacific/Apia",
                                  "America/Havana",
                                  "Africa/Monrovia",
                                  "America/Caracas"};
constexpr Period kPeriods[] = {Period::kHour, Period::kDay, Period::kWeek, Period::kMonth, Period::kYear};

// "2024-03-31 01:30:00" of UTC.
Nanos utc(const char* text) {
  date::sys_seconds at;
  std::istringstream in(text);
  in >> date::parse("%F %T", at);
  EXPECT_FALSE(in.fail()) << text;
  return at.time_since_epoch();
}
std::string utc(Nanos at) {
  return date::format("%F %T", date::floor<std::chrono::seconds>(date::sys_time<Nanos>{at}));
}

Calendar calendar(Period period, const char* zone) { return *Calendar::make(period, zone); }

TEST(Calendar, PeriodsBeginAndEndWhereTheLocalCalendarSays) {
  struct Row {
    Period period;
    const char* zone;
    const char* at;
    const char* start;
    const char* end;
  };
  const Row rows[] = {
      {Period::kHour, "UTC", "2024-02-29 23:59:59", "2024-02-29 23:00:00", "2024-03-01 00:00:00"},
      {Period::kDay, "UTC", "2024-02-28 12:00:00", "2024-02-28 00:00:00", "2024-02-29 00:00:00"},
      {Period::kDay, "UTC", "2024-02-29 00:00:00", "2024-02-29 00:00:00", "2024-03-01 00:00:00"},
      {Period::kDay, "UTC", "2023-02-28 12:00:00", "2023-02-28 00:00:00", "2023-03-01 00:00:00"},
      {Period::kMonth, "UTC", "2024-02-10 00:00:00", "2024-02-01 00:00:00", "2024-03-01 00:00:00"},
      {Period::kMonth, "UTC", "2024-12-31 23:59:59", "2024-12-01 00:00:00", "2025-01-01 00:00:00"},
      {Period::kYear, "UTC", "2024-12-31 23:59:59", "2024-01-01 00:00:00", "2025-01-01 00:00:00"},
      {Period::kYear, "UTC", "2100-02-28 00:00:00", "2100-01-01 00:00:00", "2101-01-01 00:00:00"},
      // ISO weeks begin on Monday: 2023-01-01 was a Sunday, 2024-01-01 a Monday.
      {Period::kWeek, "UTC", "2023-01-01 23:59:59", "2022-12-26 00:00:00", "2023-01-02 00:00:00"},
      {Period::kWeek, "UTC", "2024-01-01 00:00:00", "2024-01-01 00:00:00", "2024-01-08 00:00:00"},
      {Period::kWeek, "UTC", "1970-01-01 00:00:00", "1969-12-29 00:00:00", "1970-01-05 00:00:00"},
      {Period::kWeek, "Europe/Berlin", "2024-03-31 12:00:00", "2024-03-24 23:00:00", "2024-03-31 22:00:00"},
      // Days of 23 and 25 hours.
      {Period::kDay, "Europe/Berlin", "2024-03-31 12:00:00", "2024-03-30 23:00:00", "2024-03-31 22:00:00"},
      {Period::kDay, "Europe/Berlin", "2024-10-27 12:00:00", "2024-10-26 22:00:00", "2024-10-27 23:00:00"},
      {Period::kDay, "America/New_York", "2024-03-10 12:00:00", "2024-03-10 05:00:00", "2024-03-11 04:00:00"},
      {Period::kDay, "America/New_York", "2024-11-03 12:00:00", "2024-11-03 04:00:00", "2024-11-04 05:00:00"},
      {Period::kMonth, "America/New_York", "2024-03-10 12:00:00", "2024-03-01 05:00:00", "2024-04-01 04:00:00"},
      {Period::kYear, "America/New_York", "2025-01-01 04:59:59", "2024-01-01 05:00:00", "2025-01-01 05:00:00"},
      // Both of the hours between two and three in the autumn are hours.
      {Period::kHour, "Europe/Berlin", "2024-10-27 00:30:00", "2024-10-27 00:00:00", "2024-10-27 01:00:00"},
      {Period::kHour, "Europe/Berlin", "2024-10-27 01:30:00", "2024-10-27 01:00:00", "2024-10-27 02:00:00"},
      // Half an hour off, all year.
      {Period::kDay, "Asia/Kolkata", "2024-06-01 12:00:00", "2024-05-31 18:30:00", "2024-06-01 18:30:00"},
      {Period::kHour, "Asia/Kolkata", "2024-06-01 12:00:00", "2024-06-01 11:30:00", "2024-06-01 12:30:00"},
      // Half an hour of daylight saving: days of 23.5 and 24.5 hours, and an hour cut short at each change.
      {Period::kDay, "Australia/Lord_Howe", "2024-10-05 20:00:00", "2024-10-05 13:30:00", "2024-10-06 13:00:00"},
      {Period::kDay, "Australia/Lord_Howe", "2024-04-06 20:00:00", "2024-04-06 13:00:00", "2024-04-07 13:30:00"},
      {Period::kHour, "Australia/Lord_Howe", "2024-10-05 15:00:00", "2024-10-05 14:30:00", "2024-10-05 15:30:00"},
      {Period::kHour, "Australia/Lord_Howe", "2024-10-05 15:30:00", "2024-10-05 15:30:00", "2024-10-05 16:00:00"},
      {Period::kHour, "Australia/Lord_Howe", "2024-10-05 16:00:00", "2024-10-05 16:00:00", "2024-10-05 17:00:00"},
      {Period::kHour, "Australia/Lord_Howe", "2024-04-06 14:59:59", "2024-04-06 14:00:00", "2024-04-06 15:00:00"},
      {Period::kHour, "Australia/Lord_Howe", "2024-04-06 15:00:00", "2024-04-06 15:00:00", "2024-04-06 15:30:00"},
      {Period::kHour, "Australia/Lord_Howe", "2024-04-06 15:30:00", "2024-04-06 15:30:00", "2024-04-06 16:30:00"},
      {Period::kHour, "America/Caracas", "2016-05-01 06:59:59", "2016-05-01 06:30:00", "2016-05-01 07:00:00"},
      {Period::kHour, "America/Caracas", "2016-05-01 07:00:00", "2016-05-01 07:00:00", "2016-05-01 08:00:00"},
      // 2018-11-04 had no midnight in Sao Paulo: the clocks went from 24:00 to 01:00.
      {Period::kDay, "America/Sao_Paulo", "2018-11-04 02:59:59", "2018-11-03 03:00:00", "2018-11-04 03:00:00"},
      {Period::kDay, "America/Sao_Paulo", "2018-11-04 03:00:00", "2018-11-04 03:00:00", "2018-11-05 02:00:00"},
      // And 2018-02-17 had its last hour twice.
      {Period::kDay, "America/Sao_Paulo", "2018-02-18 02:30:00", "2018-02-17 02:00:00", "2018-02-18 03:00:00"},
      // 2009-11-01 began twice in St. John's: at 00:01 the clocks went back to 23:01.
      {Period::kDay, "America/St_Johns", "2009-11-01 02:29:59", "2009-10-31 02:30:00", "2009-11-01 02:30:00"},
      {Period::kDay, "America/St_Johns", "2009-11-01 02:31:00", "2009-11-01 02:30:00", "2009-11-02 03:30:00"},
      {Period::kMonth, "America/St_Johns", "2009-11-01 03:00:00", "2009-11-01 02:30:00", "2009-12-01 03:30:00"},
      // 2011-12-30 never was in Samoa.
      {Period::kDay, "Pacific/Apia", "2011-12-30 09:59:59", "2011-12-29 10:00:00", "2011-12-30 10:00:00"},
      {Period::kDay, "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-30 10:00:00", "2011-12-31 10:00:00"},
      {Period::kWeek, "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-26 10:00:00", "2012-01-01 10:00:00"},
  };
  for (const Row& row : rows) {
    const Span span = calendar(row.period, row.zone).period_at(utc(row.at));
    EXPECT_EQ(utc(span.start), row.start) << to_string(row.period) << " of " << row.at << " in " << row.zone;
    EXPECT_EQ(utc(span.end), row.end) << to_string(row.period) << " of " << row.at << " in " << row.zone;
  }
}

TEST(Calendar, PeriodsTileTheLineFrom1971To2100) {
  for (const char* zone : kZones) {
    for (const Period period : {Period::kDay, Period::kWeek, Period::kMonth, Period::kYear}) {
      const Calendar days = calendar(period, zone);
      Span span = days.period_at(utc("1971-01-01 00:00:00"));
      const Nanos end = utc("2101-01-01 00:00:00");
      int periods = 0;
      while (span.end < end) {
        ASSERT_LT(span.start, span.end) << zone << " " << to_string(period);
        ASSERT_EQ(days.period_at(span.end - 1ns).start, span.start) << zone << " " << utc(span.end);
        const Span next = days.period_at(span.end);
        ASSERT_EQ(next.start, span.end) << zone << " " << to_string(period);
        span = next;
        ++periods;
      }
      const int expected[] = {0, 47'481, 6'782, 1'559, 129};
      EXPECT_GE(periods, expected[static_cast<int>(period)]) << zone << " " << to_string(period);
    }
  }
}

TEST(Calendar, HoursTileTheLineAndAreNeverLonger) {
  for (const char* zone : kZones) {
    const Calendar hours = calendar(Period::kHour, zone);
    Span span = hours.period_at(utc("2005-01-01 00:00:00"));
    int shorter = 0;
    const Nanos end = utc("2025-01-01 00:00:00");
    while (span.end < end) {
      ASSERT_LE(span.end - span.start, 1h) << zone << " " << utc(span.start);
      shorter += span.end - span.start < 1h ? 1 : 0;
      const Span next = hours.period_at(span.end);
      ASSERT_EQ(next.start, span.end) << zone << " " << utc(span.end);
      ASSERT_EQ(hours.period_at(span.end - 1ns).start, span.start) << zone << " " << utc(span.end);
      span = next;
    }
    // Only where the clocks change by half an hour: on Lord Howe Island twice in each of twenty years, in Caracas in
    // 2007 and in 2016, then at half past two.
    const std::string_view name = zone;
    EXPECT_EQ(shorter, name == "Australia/Lord_Howe" ? 40 : name == "America/Caracas" ? 2 : 0) << zone;
  }
}

RC_GTEST_PROP(Calendar, APeriodContainsItsInstantAndAllOfItIsThatPeriod, ()) {
  const char* zone = *rc::gen::elementOf(std::vector<const char*>(std::begin(kZones), std::end(kZones)));
  const Period period = *rc::gen::elementOf(std::vector<Period>(std::begin(kPeriods), std::end(kPeriods)));
  const Nanos at{*rc::gen::inRange<std::int64_t>(0, kMaxTime.count())};
  const Calendar any = calendar(period, zone);
  const Span span = any.period_at(at);
  RC_ASSERT(span.start <= at);
  RC_ASSERT(at < span.end);
  const Nanos inside = span.start + Nanos{*rc::gen::inRange<std::int64_t>(0, (span.end - span.start).count())};
  RC_ASSERT(any.period_at(inside).start == span.start);
  RC_ASSERT(any.period_at(inside).end == span.end);
  RC_ASSERT(any.period_at(span.end).start == span.end);
}

RC_GTEST_PROP(Calendar, ADayBeginsAtMidnightOrWhenTheClocksHaveJumpedOverIt, ()) {
  const char* zone = *rc::gen::elementOf(std::vector<const char*>(std::begin(kZones), std::end(kZones)));
  const Nanos at{*rc::gen::inRange<std::int64_t>(0, kMaxTime.count())};
  const Nanos start = calendar(Period::kDay, zone).period_at(at).start;
  const date::sys_seconds instant{date::floor<std::chrono::seconds>(start)};
  RC_ASSERT(instant.time_since_epoch() == start);
  const date::time_zone& tz = *date::locate_zone(zone);
  const auto local = tz.to_local(instant);
  const bool midnight = local == date::floor<date::days>(local);
  RC_ASSERT(midnight || tz.get_info(instant).begin == instant);
}

TEST(Calendar, UnknownZonesAreRefusedByName) {
  for (const char* zone :
       {"", "Europe/Atlantis", "europe/berlin", "../../etc/passwd", "UTC+1", "right/Europe/Berlin"}) {
    const auto made = Calendar::make(Period::kDay, zone);
    ASSERT_FALSE(made) << zone;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(made.error().message,
              "timezone must be a name of the IANA time zone database, such as Europe/Berlin, got \"" +
                  std::string(zone) + "\"");
  }
}

TEST(Calendar, WorksAtBothEndsOfTime) {
  for (const char* zone : kZones) {
    for (const Period period : kPeriods) {
      for (const Nanos at : {Nanos{0}, kMaxTime}) {
        const Span span = calendar(period, zone).period_at(at);
        EXPECT_LE(span.start, at) << zone;
        EXPECT_GT(span.end, at) << zone;
      }
    }
  }
}

}  // namespace
}  // namespace headgate
