// Proposes quotas from what users ran: a percentile of it over users and days, weeks and months, plus headroom; and
// what the limits of today and those proposed would have refused.
//
// Arithmetic only. A week is seven days and a month thirty, counted back from the last whole day, so that none is cut
// off; where fewer days are known, what they had is scaled up. What would have been refused is replayed as a server
// counts: by calendar day, ISO week and calendar month.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/quota/quota_days.h"

namespace headgate::cli {

using Limit3 = std::array<std::optional<std::uint64_t>, 3>;  // by day, week and month; nullopt: unlimited

struct QuotaTuneInput {
  std::vector<UsageDay> rows;  // at most one for each user, type and day
  std::string default_plan;
  std::map<std::string, std::string> plans;                     // of users that do not have the default
  std::map<std::string, std::map<std::string, Limit3>> limits;  // by plan and type
  double percentile = 95;                                       // in (0, 100]
  double headroom = 1.2;                                        // at least 1
  Nanos now{0};  // days that are not over by then are left out, if others are known
};

struct QuotaTuned {
  struct Seen {
    std::uint64_t samples = 0;  // users times days (weeks, months) on which they ran any
    double at_percentile = 0;
    double most = 0;
    std::uint64_t proposed = 0;
    bool scaled = false;  // fewer days were known than the period has
  };
  struct Effect {
    std::uint64_t users = 0;  // that would have been refused something
    std::uint64_t days = 0;   // on which, summed over users
    std::uint64_t commands = 0;
  };
  std::string plan;
  std::string type;
  std::uint64_t users = 0;
  std::uint64_t refused = 0;  // in truth, in that time: what these users wanted is not known
  std::array<Seen, 3> seen;
  std::optional<Limit3> limits;  // the plan's; nullopt: it does not name the type
  Effect before;                 // with the plan's limits
  Effect after;                  // with those proposed
};

struct QuotaTuneReport {
  std::vector<QuotaTuned> types;  // by plan and type
  std::uint64_t days = 0;         // looked at
  bool only_today = false;        // no day is over yet
};

[[nodiscard]] QuotaTuneReport tune_quotas(const QuotaTuneInput& input);

// Up to what is easy to say: 7, 15, 140, 1300, 21000.
[[nodiscard]] std::uint64_t round_up_nicely(double value);
// The least of the sorted samples that so many percent of them are at or below.
[[nodiscard]] double percentile_of(const std::vector<double>& sorted, double percentile);
// What these limits would have refused one user, whose days are in order.
[[nodiscard]] QuotaTuned::Effect replay_quota(const std::vector<const UsageDay*>& days, const Limit3& limits);

}  // namespace headgate::cli
