// What users ran, day by day: as a server's ledger tells it, and as a small graph.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/view/terminal.h"
#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::cli {

// A date, without a time zone: of the user whose day it was.
using Day = std::chrono::sys_days;
[[nodiscard]] std::optional<Day> parse_day(std::string_view text);  // 2026-11-16
[[nodiscard]] std::string day_text(Day day);
[[nodiscard]] Day day_of(Nanos wall);  // in UTC

// One user, one type of command, one day.
struct UsageDay {
  std::string user;
  std::string type;
  Day day;
  Nanos start{0};                  // when that day began where the user is, by the wall clock
  std::uint64_t commands = 0;      // admitted and counted
  std::uint64_t refused = 0;       // for want of quota
  std::uint64_t would_refuse = 0;  // admitted past the limit, in monitor mode
  std::uint64_t throttled = 0;
  std::uint64_t runs = 0;  // recorded
  std::uint64_t failures = 0;
};
// Rows without a date are left out.
[[nodiscard]] std::vector<UsageDay> read_usage(const nlohmann::ordered_json& json);

// Commands a day, all users and types together, from `from` to `to`, days without any included: a bar for each of a few
// days, a column for each of many.
[[nodiscard]] std::string usage_graph(const std::vector<UsageDay>& rows, Day from, Day to, const Terminal& terminal);

// From when on to ask for the days from that one on: where it begins first on Earth. Rows of the day before may come,
// too.
[[nodiscard]] Nanos earliest_start(Day day);

// 7d (before now), 2026-11-01 or 2026-11-01T08:00:00Z, as an instant before now; the error says what it must be.
[[nodiscard]] Result<Nanos> parse_since(std::string_view text, Nanos now);

}  // namespace headgate::cli
