// Calendar periods in an IANA time zone: local midnight to local midnight, ISO weeks from Monday, daylight-saving days
// of 23 and 25 hours included. Each instant lies in one period, and the next begins where it ends.
//
// An hour begins where the local clock shows a full hour, and also where the clocks change by a part of an hour: Lord
// Howe Island has one of half an hour twice a year. Clocks are known to change until 2037, as far as the system's time
// zone files spell it out; after that each zone keeps the time it has then.
#pragma once

#include <string>
#include <vector>

#include "headgate/limit.h"

namespace date {
class time_zone;
}

namespace headgate::core {

struct Span {
  Nanos start{0};
  Nanos end{0};  // exclusive
};

// A value; refers to the process-wide time zone database, which lives for ever.
class Calendar {
 public:
  Calendar() = default;
  [[nodiscard]] static Result<Calendar> make(Period period, const std::string& timezone);

  // The period that contains `wall`. Allocates nothing; about a microsecond.
  [[nodiscard]] Span period_at(Nanos wall) const noexcept;
  // No period is longer.
  [[nodiscard]] Nanos longest() const noexcept;
  // The local date: "2026-11-16".
  [[nodiscard]] std::string date_at(Nanos wall) const;
  // Tells calendars apart by period and the zone's name, alike on all machines.
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }

 private:
  Period period_ = Period::kDay;
  std::uint32_t id_ = 0;
  const date::time_zone* zone_ = nullptr;
};

// All names that make() accepts, for suggestions after a typing error.
[[nodiscard]] std::vector<std::string> timezone_names();

}  // namespace headgate::core
