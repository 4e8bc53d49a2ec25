#include "cli/quota/quota_tune.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::int64_t, 3> kDays{1, 7, 30};
constexpr Nanos kLongestDay = 25h;  // when clocks are set back

using Days = std::vector<const UsageDay*>;        // of one user and type, in order
using Users = std::map<std::string, Days>;        // of one type
using Key = std::pair<std::string, std::string>;  // plan, type

Day monday_of(Day day) { return day - (std::chrono::weekday(day) - std::chrono::Monday); }

Day first_of_month(Day day) {
  const std::chrono::year_month_day date{day};
  return Day{date.year() / date.month() / std::chrono::day{1}};
}

// What each user ran in each stretch of so many days, counted back from `last`; stretches without any are no samples.
// Those that reach to before `first` would be cut off: they count only where there is no other, and then scaled.
QuotaTuned::Seen seen(const Users& users, Day first, Day last, std::int64_t length, const QuotaTuneInput& input) {
  const std::int64_t known = (last - first).count() + 1;
  const bool scaled = known < length;
  const std::int64_t stretches = std::max<std::int64_t>(known / length, 1);
  const double scale = scaled ? static_cast<double>(length) / static_cast<double>(known) : 1;
  std::vector<double> samples;
  for (const auto& [user, days] : users) {
    std::map<std::int64_t, double> sums;
    for (const UsageDay* day : days) {
      const std::int64_t stretch = (last - day->day).count() / length;
      if (stretch < stretches) sums[stretch] += static_cast<double>(day->commands) * scale;
    }
    for (const auto& [stretch, sum] : sums) {
      if (sum > 0) samples.push_back(sum);
    }
  }
  std::sort(samples.begin(), samples.end());
  QuotaTuned::Seen out;
  out.samples = samples.size();
  out.scaled = scaled;
  if (samples.empty()) return out;
  out.at_percentile = percentile_of(samples, input.percentile);
  out.most = samples.back();
  out.proposed = round_up_nicely(out.at_percentile * input.headroom);
  return out;
}

QuotaTuned::Effect replay_all(const Users& users, const Limit3& limits) {
  QuotaTuned::Effect sum;
  for (const auto& [user, days] : users) {
    const QuotaTuned::Effect one = replay_quota(days, limits);
    sum.users += one.users;
    sum.days += one.days;
    sum.commands += one.commands;
  }
  return sum;
}

}  // namespace

std::uint64_t round_up_nicely(double value) {
  constexpr double kMost = 1e12;  // of a limit
  if (!(value > 0)) return 0;
  // What a product such as 100 * 1.2 is off by is no reason for a step more.
  const auto whole = static_cast<std::uint64_t>(std::ceil(std::min(value, kMost) - 1e-6));
  if (whole <= 10) return whole;
  std::uint64_t step = 5;
  for (std::uint64_t bound = 100; whole > bound; bound *= 10) step = bound / 10;
  return (whole + step - 1) / step * step;
}

double percentile_of(const std::vector<double>& sorted, double percentile) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(percentile / 100 * static_cast<double>(sorted.size()) - 1e-9);
  const auto index = static_cast<std::size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1;
  return sorted[index];
}

QuotaTuned::Effect replay_quota(const std::vector<const UsageDay*>& days, const Limit3& limits) {
  constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  const auto left = [&](std::size_t period, std::uint64_t used) {
    const std::uint64_t limit = limits[period].value_or(kUnlimited);
    return limit - std::min(limit, used);
  };
  QuotaTuned::Effect effect;
  Day week{};
  Day month{};
  std::uint64_t in_week = 0;
  std::uint64_t in_month = 0;
  for (const UsageDay* day : days) {
    if (monday_of(day->day) != week) in_week = 0;
    if (first_of_month(day->day) != month) in_month = 0;
    week = monday_of(day->day);
    month = first_of_month(day->day);
    const std::uint64_t admitted = std::min({day->commands, left(0, 0), left(1, in_week), left(2, in_month)});
    in_week += admitted;
    in_month += admitted;
    if (admitted == day->commands) continue;
    effect.users = 1;
    ++effect.days;
    effect.commands += day->commands - admitted;
  }
  return effect;
}

QuotaTuneReport tune_quotas(const QuotaTuneInput& input) {
  QuotaTuneReport report;
  const auto is_over = [&](const UsageDay& row) { return row.start + kLongestDay <= input.now; };
  report.only_today = std::none_of(input.rows.begin(), input.rows.end(), is_over) && !input.rows.empty();
  std::map<Key, Users> found;
  Day first = Day::max();
  Day last = Day::min();
  for (const UsageDay& row : input.rows) {
    if (!report.only_today && !is_over(row)) continue;
    const auto plan = input.plans.find(row.user);
    found[{plan == input.plans.end() ? input.default_plan : plan->second, row.type}][row.user].push_back(&row);
    first = std::min(first, row.day);
    last = std::max(last, row.day);
  }
  if (found.empty()) return report;
  report.days = static_cast<std::uint64_t>((last - first).count()) + 1;
  for (auto& [key, users] : found) {
    QuotaTuned tuned;
    tuned.plan = key.first;
    tuned.type = key.second;
    for (auto& [user, days] : users) {
      std::sort(days.begin(), days.end(), [](const UsageDay* a, const UsageDay* b) { return a->day < b->day; });
      bool ran = false;
      for (const UsageDay* day : days) {
        ran = ran || day->commands > 0;
        tuned.refused += day->refused;
      }
      tuned.users += ran ? 1 : 0;
    }
    if (tuned.users == 0) continue;
    Limit3 proposed;
    for (std::size_t i = 0; i < kDays.size(); ++i) {
      tuned.seen[i] = seen(users, first, last, kDays[i], input);
      // A week that allows less than a day would make the day's limit a lie.
      if (i > 0) tuned.seen[i].proposed = std::max(tuned.seen[i].proposed, tuned.seen[i - 1].proposed);
      proposed[i] = tuned.seen[i].proposed;
    }
    if (const auto plan = input.limits.find(tuned.plan); plan != input.limits.end()) {
      const auto type = plan->second.find(tuned.type);
      if (type != plan->second.end()) tuned.limits = type->second;
    }
    if (tuned.limits) tuned.before = replay_all(users, *tuned.limits);
    tuned.after = replay_all(users, proposed);
    report.types.push_back(std::move(tuned));
  }
  return report;
}

}  // namespace headgate::cli
