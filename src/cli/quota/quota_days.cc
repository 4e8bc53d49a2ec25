#include "cli/quota/quota_days.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/rfc3339.h"
#include "cli/json_fields.h"
#include "cli/view/chart.h"
#include "cli/view/describe.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr std::int64_t kFewDays = 14;
constexpr std::int64_t kMostDays = 4000;  // what is drawn

std::string bars(const std::map<Day, UsageDay>& days, Day from, Day to, const Terminal& terminal) {
  constexpr std::size_t kName = 15;  // "  Mon 2026-11-16"
  constexpr std::size_t kMostBar = 40;
  std::uint64_t most = 0;
  std::size_t widest = 0;
  const auto text_of = [](const UsageDay& day) {
    std::string text = count_text(day.commands);
    if (day.refused > 0) text += fmt::format(", {} refused", count_text(day.refused));
    if (day.would_refuse > 0) text += fmt::format(", {} past the limit", count_text(day.would_refuse));
    return text;
  };
  for (const auto& [day, use] : days) {
    most = std::max(most, use.commands);
    widest = std::max(widest, text_of(use).size());
  }
  const std::size_t room = static_cast<std::size_t>(terminal.width) -
                           std::min<std::size_t>(static_cast<std::size_t>(terminal.width), kName + 3 + widest);
  const std::size_t columns = std::clamp<std::size_t>(room, 4, kMostBar);
  constexpr std::array<const char*, 7> kWeekdays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  std::string out;
  for (Day day = from; day <= to; day += std::chrono::days{1}) {
    const auto at = days.find(day);
    const UsageDay use = at == days.end() ? UsageDay{} : at->second;
    std::size_t full = 0;
    if (use.commands > 0) {
      const double share = static_cast<double>(use.commands) / static_cast<double>(most);
      full = std::max<std::size_t>(static_cast<std::size_t>(std::lround(share * static_cast<double>(columns))), 1);
    }
    std::string bar;
    for (std::size_t i = 0; i < full; ++i) bar += terminal.unicode ? "█" : "#";
    const char* weekday = kWeekdays[std::chrono::weekday(day).c_encoding()];
    out += fmt::format("  {} {}  ", weekday, day_text(day).substr(5));
    if (full > 0) out += terminal.paint(bar, use.refused + use.would_refuse > 0 ? Ink::kYellow : Ink::kGreen) + " ";
    out += terminal.paint(text_of(use), use.commands > 0 ? Ink::kPlain : Ink::kDim) + "\n";
  }
  return out;
}

}  // namespace

std::optional<Day> parse_day(std::string_view text) {
  constexpr std::size_t kLength = 10;
  if (text.size() != kLength || text[4] != '-' || text[7] != '-') return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = -1;
    const char* end = text.data() + at + digits;
    const auto [stopped, error] = std::from_chars(text.data() + at, end, value);
    return error == std::errc{} && stopped == end ? value : -1;
  };
  const int year = number(0, 4);
  const int month = number(5, 2);
  const int day = number(8, 2);
  if (year < 0 || month < 0 || day < 0) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year{year}, std::chrono::month{static_cast<unsigned>(month)},
                                         std::chrono::day{static_cast<unsigned>(day)}};
  if (!date.ok()) return std::nullopt;
  return Day{date};
}

std::string day_text(Day day) {
  const std::chrono::year_month_day date{day};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

Day day_of(Nanos wall) { return Day{std::chrono::floor<std::chrono::days>(wall)}; }

Nanos earliest_start(Day day) {
  constexpr Nanos kFarthestEast = 14h;
  return std::max(Nanos{day.time_since_epoch()} - kFarthestEast, Nanos{0});
}

std::vector<UsageDay> read_usage(const ordered_json& json) {
  std::vector<UsageDay> rows;
  for (const ordered_json& each : JsonFields(json).list("usage")) {
    const JsonFields about(each);
    const std::optional<Day> day = parse_day(about.text("day"));
    if (!day) continue;
    UsageDay row;
    row.user = about.text_or_number("user_id");
    row.type = about.text("command_type");
    row.day = *day;
    row.start = std::chrono::milliseconds{static_cast<std::int64_t>(about.count("day_start"))};
    row.commands = about.count("commands");
    row.refused = about.count("refused");
    row.would_refuse = about.count("would_refuse");
    row.throttled = about.count("throttled");
    row.runs = about.count("runs");
    row.failures = about.count("failures");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string usage_graph(const std::vector<UsageDay>& rows, Day from, Day to, const Terminal& terminal) {
  std::map<Day, UsageDay> days;
  for (const UsageDay& row : rows) {
    UsageDay& sum = days[row.day];
    sum.commands += row.commands;
    sum.refused += row.refused;
    sum.would_refuse += row.would_refuse;
    from = std::min(from, row.day);
    to = std::max(to, row.day);
  }
  from = std::max(from, to - std::chrono::days{kMostDays});
  if ((to - from).count() < kFewDays) return bars(days, from, to, terminal);
  ChartRow commands{"commands", Ink::kGreen, {}};
  ChartRow refused{"refused", Ink::kRed, {}};
  bool any_refused = false;
  for (Day day = from; day <= to; day += std::chrono::days{1}) {
    const auto at = days.find(day);
    const UsageDay use = at == days.end() ? UsageDay{} : at->second;
    commands.values.push_back(static_cast<double>(use.commands));
    refused.values.push_back(static_cast<double>(use.refused + use.would_refuse));
    any_refused = any_refused || refused.values.back() > 0;
  }
  std::vector<ChartRow> shown{std::move(commands)};
  if (any_refused) shown.push_back(std::move(refused));
  return chart(shown, {day_text(from), day_text(to)}, terminal);
}

Result<Nanos> parse_since(std::string_view text, Nanos now) {
  constexpr Nanos kMost = 24h * 3660;
  std::optional<Nanos> at;
  if (parse_day(text)) {
    at = base::parse_rfc3339(std::string(text) + "T00:00:00Z");
  } else if (const auto span = policy::parse_duration(text); span && *span > Nanos{0} && *span <= kMost) {
    at = now - *span;
  } else {
    at = base::parse_rfc3339(text);
  }
  if (at && *at >= Nanos{0} && *at < now) return *at;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--since must be a span such as 7d, up to ten years, or a past day such as 2026-11-01, got "
                           "\"{}\"",
                           text)};
}

}  // namespace headgate::cli
