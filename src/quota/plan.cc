#include "quota/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "base/utf8.h"
#include "core/calendar.h"

namespace headgate::quota {
namespace {

constexpr std::size_t kLongestPlanName = 50;
constexpr std::size_t kLongestZone = 64;
constexpr std::size_t kShownOfName = 60;

TypeRule type_of(std::array<Units, 3> limits, double cpu, double mem) {
  TypeRule rule;
  for (std::size_t i = 0; i < limits.size(); ++i) rule.limits[i].value = limits[i];
  rule.estimated_cpu = cpu;
  rule.estimated_mem = mem;
  return rule;
}

Plan free_plan() {
  Plan plan;
  plan.types["shell"] = type_of({500, 3'000, 10'000}, 10, 100);
  plan.types["code"] = type_of({300, 1'500, 5'000}, 15, 200);
  plan.types["test"] = type_of({1'000, 5'000, 20'000}, 5, 50);
  plan.types["review"] = type_of({200, 1'000, 3'000}, 20, 300);
  plan.types["refactor"] = type_of({200, 1'000, 3'000}, 20, 300);
  plan.types[std::string(kOther)] = type_of({500, 3'000, 10'000}, 5, 50);
  return plan;
}

std::map<std::string, Plan, std::less<>> make_built_in() {
  constexpr Units kPremiumTimes = 10;
  std::map<std::string, Plan, std::less<>> plans;
  const Plan& free = plans["free"] = free_plan();
  Plan& premium = plans["premium"] = free;
  premium.weight = 4;
  for (auto& [name, type] : premium.types) {
    for (Amount& limit : type.limits) limit.value *= kPremiumTimes;
  }
  Plan& enterprise = plans["enterprise"] = free;
  enterprise.weight = 16;
  for (auto& [name, type] : enterprise.types) type.limits = {};
  return plans;
}

using OrderedJson = nlohmann::ordered_json;

// 1, not 1.0: as people write them.
OrderedJson plain_number(double number) {
  constexpr double kExactly = 9e15;
  if (std::abs(number) < kExactly && number == std::floor(number)) return static_cast<std::int64_t>(number);
  return number;
}

// On one line, whatever came.
std::string shown_of_name(std::string_view name) {
  return OrderedJson(base::shortened(name, kShownOfName)).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

const char* to_string(Mode mode) noexcept {
  switch (mode) {
    case Mode::kEnforce: return "enforce";
    case Mode::kMonitor: return "monitor";
    case Mode::kOff: return "off";
  }
  return "";
}

std::optional<Mode> mode_named(std::string_view name) noexcept {
  for (const Mode mode : {Mode::kEnforce, Mode::kMonitor, Mode::kOff}) {
    if (name == to_string(mode)) return mode;
  }
  return std::nullopt;
}

const std::map<std::string, Plan, std::less<>>& built_in_plans() {
  static const std::map<std::string, Plan, std::less<>> kPlans = make_built_in();
  return kPlans;
}

std::string to_json(const Plan& plan) {
  const auto amount = [](Amount a) { return a.unlimited() ? OrderedJson(nullptr) : OrderedJson(a.value); };
  OrderedJson types = OrderedJson::object();
  for (const auto& [name, type] : plan.types) {
    OrderedJson& json = types[name];
    for (std::size_t i = 0; i < kPeriods.size(); ++i) json[std::string(kPeriodNames[i])] = amount(type.limits[i]);
    json["session"] = amount(type.session);
    json["estimated_cpu"] = plain_number(type.estimated_cpu);
    json["estimated_mem"] = plain_number(type.estimated_mem);
  }
  const OrderedJson json{{"timezone", plan.timezone},
                         {"mode", to_string(plan.mode)},
                         {"weight", plain_number(plan.weight)},
                         {"types", std::move(types)}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string to_json(const UserRule& rule) {
  const auto amount = [](Amount a) { return a.unlimited() ? OrderedJson("unlimited") : OrderedJson(a.value); };
  OrderedJson json = OrderedJson::object();
  if (!rule.plan.empty()) json["plan"] = rule.plan;
  if (!rule.timezone.empty()) json["timezone"] = rule.timezone;
  if (rule.mode) json["mode"] = to_string(*rule.mode);
  if (rule.weight) json["weight"] = plain_number(*rule.weight);
  for (const auto& [name, change] : rule.types) {
    OrderedJson& type = json["types"][name] = OrderedJson::object();
    for (std::size_t i = 0; i < kPeriods.size(); ++i) {
      if (change.limits[i]) type[std::string(kPeriodNames[i])] = amount(*change.limits[i]);
    }
    if (change.session) type["session"] = amount(*change.session);
  }
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Result<void> check_name(std::string_view what, std::string_view name) {
  const bool fits =
      !name.empty() && name.size() <= kLongestPlanName && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
               c == '.' || c == ':';
      });
  if (fits) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} must be 1 to {} letters, digits, \"-\", \"_\", \".\" or \":\", got {}", what,
                           kLongestPlanName, shown_of_name(name))};
}

Result<void> check_timezone(const std::string& name) {
  if (name.size() <= kLongestZone && base::is_plain_text(name)) {
    const Result<core::Calendar> calendar = core::Calendar::make(Period::kDay, name);
    if (calendar) return {};
    return Error{calendar.error().code, calendar.error().message + base::did_you_mean(name, core::timezone_names())};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("timezone must be a name of the IANA time zone database, such as Europe/Berlin, got {}",
                           shown_of_name(name))};
}

Result<void> check_plan(const Plan& plan) {
  const Result<Plan> again = plan_of(to_json(plan), Plan{});
  if (!again) return again.error();
  return {};
}

Result<void> check_rule(const UserRule& rule) {
  const Result<UserRule> again = rule_of(to_json(rule), UserRule{});
  if (!again) return again.error();
  return {};
}

}  // namespace headgate::quota
