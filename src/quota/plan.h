// Plans and rules: how many commands of each type a user may run by day, week and month.
//
// Values only; a Book looks things up in them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/limit.h"
#include "headgate/result.h"

namespace headgate::quota {

inline constexpr std::array<Period, 3> kPeriods{Period::kDay, Period::kWeek, Period::kMonth};
inline constexpr std::array<std::string_view, 3> kPeriodNames{"daily", "weekly", "monthly"};
// Types that no plan names share this one, so that making up a name gives no fresh allowance.
inline constexpr std::string_view kOther = "other";

enum class Mode : std::uint8_t {
  kEnforce,
  kMonitor,  // counted and reported, never refused
  kOff,      // not even counted
};
[[nodiscard]] const char* to_string(Mode mode) noexcept;
[[nodiscard]] std::optional<Mode> mode_named(std::string_view name) noexcept;

// So many, or without limit. 0: none at all.
struct Amount {
  static constexpr Units kUnlimited = -1;
  Units value = kUnlimited;
  [[nodiscard]] constexpr bool unlimited() const noexcept { return value == kUnlimited; }
  auto operator<=>(const Amount&) const = default;  // NOLINT(modernize-use-nullptr): it misreads this
};
inline constexpr Units kMostCommands = 1'000'000'000'000;  // of an Amount
inline constexpr double kMostEstimate = 1e6;               // of estimated_cpu and estimated_mem
inline constexpr double kLeastWeight = 0.01;
inline constexpr double kMostWeight = 1'000;
inline constexpr std::size_t kMostTypes = 100;  // of a plan or a rule

// What one type of command is allowed, and what one such command is taken to use if the check does not say.
struct TypeRule {
  std::array<Amount, 3> limits{};  // by kPeriods
  Amount session{};                // in one session, by day
  double estimated_cpu = 5;        // percent of one core
  double estimated_mem = 50;       // MB
  bool operator==(const TypeRule&) const = default;
};

struct Plan {
  std::map<std::string, TypeRule, std::less<>> types;  // always with kOther
  std::string timezone;                                // empty: the server's (quotas.timezone)
  Mode mode = Mode::kEnforce;
  double weight = 1;  // its users' share of starts when commands queue
  bool operator==(const Plan&) const = default;
};

// What differs for one user; whatever is absent is as in the plan.
struct TypeChange {
  std::array<std::optional<Amount>, 3> limits{};
  std::optional<Amount> session{};
  bool operator==(const TypeChange&) const = default;
  [[nodiscard]] bool empty() const noexcept { return *this == TypeChange{}; }
};
struct UserRule {
  std::string plan;  // empty: the default
  std::string timezone;
  std::optional<Mode> mode;
  std::optional<double> weight;
  std::map<std::string, TypeChange, std::less<>> types;
  bool operator==(const UserRule&) const = default;
  [[nodiscard]] bool empty() const noexcept { return *this == UserRule{}; }
};

// free, premium (ten times that) and enterprise (no limits; commands are still slowed under load).
[[nodiscard]] const std::map<std::string, Plan, std::less<>>& built_in_plans();

// As JSON:
//   plan  {"timezone": "UTC", "mode": "enforce", "weight": 1,
//          "types": {"shell": {"daily": 500, "weekly": 3000, "monthly": 10000, "session": null,
//                              "estimated_cpu": 10, "estimated_mem": 100}, ..., "other": {...}}}
//   rule  {"plan": "premium", "timezone": ..., "mode": ..., "weight": ..., "types": {"shell": {"daily": 50}}}
// In a plan null and "unlimited" both mean no limit, and null instead of a type takes it out. In a change to a rule
// "unlimited" means no limit, and null takes a field, a type or all "types" back to what the plan says. A time zone of
// "" is none, as null is. An Error has a line for each problem that names the field, what must hold and what came:
// "types.shell.daily must be a whole number from 0 to 1000000000000, "unlimited" or null, got -1".
[[nodiscard]] std::string to_json(const Plan& plan);
[[nodiscard]] std::string to_json(const UserRule& rule);
inline constexpr std::size_t kMostJsonBytes = std::size_t{256} * 1024;  // of a plan or a rule
// The fields that are named go over those of `base`; types that are named replace the numbers they name. A type that
// `base` does not have begins as its kOther, which it has counted as so far.
[[nodiscard]] Result<Plan> plan_of(std::string_view json, const Plan& base);
[[nodiscard]] Result<UserRule> rule_of(std::string_view json, const UserRule& base);
// Whether all of it is within bounds, and kOther there: what plan_of() or rule_of() made always is.
[[nodiscard]] Result<void> check_plan(const Plan& plan);
[[nodiscard]] Result<void> check_rule(const UserRule& rule);
// Names of plans and types: 1 to 50 letters, digits, - _ . :
[[nodiscard]] Result<void> check_name(std::string_view what, std::string_view name);
// "timezone must be a name of the IANA time zone database, ..., got "Europe/Berlim", did you mean "Europe/Berlin"?"
[[nodiscard]] Result<void> check_timezone(const std::string& name);

}  // namespace headgate::quota
