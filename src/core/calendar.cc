#include "core/calendar.h"

#include <date/tz.h>

#include "base/hash.h"

namespace headgate::core {
namespace {

using date::days;
using date::local_days;

// The first day of the period that contains `day`, and of the one after it.
struct Days {
  local_days first;
  local_days next;
};

Days days_of(Period period, local_days day) {
  const date::year_month_day ymd{day};
  switch (period) {
    case Period::kWeek: {
      const local_days monday = day - (date::weekday{day} - date::Monday);
      return {monday, monday + days{7}};
    }
    case Period::kMonth: {
      const date::year_month month = ymd.year() / ymd.month();
      return {local_days{month / 1}, local_days{(month + date::months{1}) / 1}};
    }
    case Period::kYear: return {local_days{ymd.year() / 1 / 1}, local_days{(ymd.year() + date::years{1}) / 1 / 1}};
    case Period::kHour:  // not made of days; see period_at
    case Period::kDay: break;
  }
  return {day, day + days{1}};
}

// Whether the minute hand jumps at an instant: the offsets before and after differ by a part of an hour.
bool splits_hour(date::sys_seconds at, const date::time_zone& zone) {
  const auto before = zone.get_info(at - std::chrono::seconds{1}).offset;
  return (zone.get_info(at).offset - before) % std::chrono::hours{1} != std::chrono::seconds{0};
}

// Where midnight does not exist the day begins when the clocks have gone forward; where it comes twice, at the first.
Nanos begins(local_days day, const date::time_zone& zone) {
  return zone.to_sys(day, date::choose::earliest).time_since_epoch();
}

}  // namespace

Result<Calendar> Calendar::make(Period period, const std::string& timezone) {
  Calendar calendar;
  calendar.period_ = period;
  calendar.id_ = static_cast<std::uint32_t>(base::hash128(timezone, static_cast<std::uint64_t>(period)).low);
  try {
    calendar.zone_ = date::locate_zone(timezone);
    // The database reads a zone's file when it is first asked; here it may still fail, and allocate.
    (void)calendar.zone_->get_info(date::sys_seconds{});
  } catch (const std::exception&) {
    return Error{
        ErrorCode::kInvalidArgument,
        "timezone must be a name of the IANA time zone database, such as Europe/Berlin, got \"" + timezone + "\""};
  }
  return calendar;
}

Span Calendar::period_at(Nanos wall) const noexcept {
  const date::sys_time<Nanos> instant{wall};
  const date::sys_info info = zone_->get_info(instant);
  const date::local_time<Nanos> local{wall + info.offset};
  if (period_ == Period::kHour) {
    const auto into = local - date::floor<std::chrono::hours>(local);
    Span hour{wall - into, wall - into + std::chrono::hours{1}};
    // Compared in seconds: a zone's first and last spell reach further than nanoseconds do.
    const date::sys_seconds start{date::floor<std::chrono::seconds>(hour.start)};
    const date::sys_seconds end{date::floor<std::chrono::seconds>(hour.end)};
    if (info.begin > start && splits_hour(info.begin, *zone_)) hour.start = info.begin.time_since_epoch();
    if (info.end < end && splits_hour(info.end, *zone_)) hour.end = info.end.time_since_epoch();
    return hour;
  }
  const Days period = days_of(period_, date::floor<days>(local));
  Span span{begins(period.first, *zone_), begins(period.next, *zone_)};
  // A midnight that comes twice, or clocks set back across midnight, can leave the instant just outside.
  if (wall >= span.end) {
    const Days following = days_of(period_, period.next);
    span = {span.end, begins(following.next, *zone_)};
  } else if (wall < span.start) {
    const Days before = days_of(period_, period.first - days{1});
    span = {begins(before.first, *zone_), span.start};
  }
  return span;
}

Nanos Calendar::longest() const noexcept {
  // Zones have changed their offset by up to a day at once, as Samoa did when it moved across the date line.
  constexpr Nanos kChange = days{1};
  switch (period_) {
    case Period::kHour: return std::chrono::hours{1};
    case Period::kDay: return days{1} + kChange;
    case Period::kWeek: return days{7} + kChange;
    case Period::kMonth: return days{31} + kChange;
    case Period::kYear: break;
  }
  return days{366} + kChange;
}

std::string Calendar::date_at(Nanos wall) const {
  const Nanos local = wall + zone_->get_info(date::sys_time<Nanos>{wall}).offset;
  return date::format("%F", date::floor<days>(date::local_time<Nanos>{local}));
}

std::vector<std::string> timezone_names() {
  std::vector<std::string> names;
  for (const date::time_zone& zone : date::get_tzdb().zones) names.push_back(zone.name());
  return names;
}

}  // namespace headgate::core
