// Plans and rules out of JSON: all problems of a document are told at once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/suggest.h"
#include "base/utf8.h"
#include "quota/plan.h"

namespace headgate::quota {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownOfValue = 60;
constexpr std::size_t kDeepestPlan = 4;  // the document, its types, one of them; and what stands there by mistake

// On one line, whatever came.
std::string shown(const Json& value) {
  return base::shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), kShownOfValue);
}
std::string shown_name(std::string_view name) {
  return Json(base::shortened(name, kShownOfValue)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

class PlanReader {
 public:
  [[nodiscard]] bool failed() const noexcept { return count_ > 0; }
  [[nodiscard]] Error error() && {
    if (count_ > kMostTold) message_ += fmt::format("\nand {} more", count_ - kMostTold);
    return {ErrorCode::kInvalidArgument, std::move(message_)};
  }
  void problem(std::string_view text) {
    if (++count_ > kMostTold) return;
    if (count_ > 1) message_ += '\n';
    message_ += text;
  }
  void wrong(std::string_view path, std::string_view must, const Json& got) {
    problem(fmt::format("{} must be {}, got {}", path, must, shown(got)));
  }

  // An empty object: there was none, and why has been told.
  [[nodiscard]] Json document(std::string_view text, std::string_view what);
  // Tells of the fields that are none of `names`.
  void known(const Json& object, std::string_view where, std::span<const std::string> names);
  // nullopt: null or wrong.
  [[nodiscard]] std::optional<Amount> amount(const std::string& path, const Json& value);
  void number(const std::string& path, const Json& value, double least, double most, double& out);
  void mode(const Json& value, Mode& out);
  void timezone(const Json& value, std::string& out);
  bool name(std::string_view what, std::string_view text) {
    const Result<void> fits = check_name(what, text);
    if (!fits) problem(fits.error().message);
    return fits.has_value();
  }

 private:
  static constexpr std::size_t kMostTold = 20;
  std::size_t count_ = 0;
  std::string message_;
};

Json PlanReader::document(std::string_view text, std::string_view what) {
  if (text.size() > kMostJsonBytes) {
    problem(fmt::format("{} must have at most {} bytes, got {}", what, kMostJsonBytes, text.size()));
    return Json::object();
  }
  std::vector<std::pair<std::string, std::set<std::string>>> open;  // the field last read of each object, and all
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      deep = deep || level >= kDeepestPlan;
      if (!deep) open.resize(level), open.emplace_back();
    } else if (event == Json::parse_event_t::key && !deep) {
      open.resize(level);  // a key stands one deeper than its object
      open.back().first = value.get<std::string>();
      if (open.back().second.insert(open.back().first).second) return true;
      std::string path;
      for (const auto& [field, all] : open) path += (path.empty() ? "" : ".") + field;
      problem(fmt::format("the field {} must be given once, is given twice", shown_name(path)));
    }
    return !deep;
  };
  Json json = Json::parse(text.begin(), text.end(), watch, false);
  if (deep) {
    problem(fmt::format("{} must be at most {} deep", what, kDeepestPlan));
  } else if (json.is_discarded()) {
    problem(text.empty() ? fmt::format("{} must be JSON, is empty", what)
                         : fmt::format("{} must be valid JSON in UTF-8", what));
  } else if (!json.is_object()) {
    wrong(what, "a JSON object", json);
  }
  return failed() ? Json::object() : json;
}

void PlanReader::known(const Json& object, std::string_view where, std::span<const std::string> names) {
  for (const auto& [field, value] : object.items()) {
    if (std::find(names.begin(), names.end(), field) != names.end()) continue;
    problem(fmt::format("there is no field {} {}{}", shown_name(field), where, base::did_you_mean(field, names)));
  }
}

// A number without a fraction, however it is written: 1000, 1e3.
std::optional<Units> whole_number(const Json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{kMostCommands}) return std::nullopt;
  if (value.is_number_integer()) return value.get<Units>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(std::abs(number) <= static_cast<double>(kMostCommands)) || number != std::floor(number)) return std::nullopt;
  return static_cast<Units>(number);
}

std::optional<Amount> PlanReader::amount(const std::string& path, const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (value == "unlimited") return Amount{};
  const std::optional<Units> units = whole_number(value);
  if (units && *units >= 0 && *units <= kMostCommands) return Amount{*units};
  wrong(path, fmt::format("a whole number from 0 to {}, \"unlimited\" or null", kMostCommands), value);
  return std::nullopt;
}

void PlanReader::number(const std::string& path, const Json& value, double least, double most, double& out) {
  const double got = value.is_number() ? value.get<double>() : std::nan("");
  if (got >= least && got <= most) {
    out = got;
  } else {
    wrong(path, fmt::format("a number from {} to {}", least, most), value);
  }
}

void PlanReader::mode(const Json& value, Mode& out) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (const std::optional<Mode> mode = mode_named(text)) {
    out = *mode;
    return;
  }
  const std::vector<std::string> names{"enforce", "monitor", "off"};
  problem(fmt::format("mode must be \"enforce\", \"monitor\" or \"off\", got {}{}", shown(value),
                      base::did_you_mean(text, names)));
}

void PlanReader::timezone(const Json& value, std::string& out) {
  if (value.is_null()) return out.clear();
  if (!value.is_string()) {
    return wrong("timezone", "the name of a time zone, such as \"Europe/Berlin\", or null", value);
  }
  auto name = value.get<std::string>();
  if (name.empty()) return out.clear();
  const Result<void> exists = check_timezone(name);
  if (!exists) return problem(exists.error().message);
  out = std::move(name);
}

constexpr std::string_view kMustBeTypes = "an object of types, such as {\"shell\": {\"daily\": 500}}";
constexpr std::string_view kMustBeType = "an object such as {\"daily\": 500}, or null";

std::string field_path(std::string_view type, std::string_view field) {
  return fmt::format("types.{}.{}", type, field);
}

void read_plan_type(PlanReader& reader, std::string_view name, const Json& json, TypeRule& out) {
  static const std::vector<std::string> kFields{"daily",   "weekly",        "monthly",
                                                "session", "estimated_cpu", "estimated_mem"};
  reader.known(json, fmt::format("in types.{}", name), kFields);
  // Null stands for no limit, so what is wrong is no limit, too; but then nothing of it is kept.
  const auto read = [&](std::string_view field, Amount& amount) {
    const auto at = json.find(field);
    if (at != json.end()) amount = reader.amount(field_path(name, field), *at).value_or(Amount{});
  };
  for (std::size_t i = 0; i < kPeriods.size(); ++i) read(kPeriodNames[i], out.limits[i]);
  read("session", out.session);
  const auto estimate = [&](std::string_view field, double& number) {
    const auto at = json.find(field);
    if (at != json.end()) reader.number(field_path(name, field), *at, 0, kMostEstimate, number);
  };
  estimate("estimated_cpu", out.estimated_cpu);
  estimate("estimated_mem", out.estimated_mem);
}

void read_plan_types(PlanReader& reader, const Json& types, Plan& plan) {
  if (!types.is_object()) return reader.wrong("types", kMustBeTypes, types);
  const auto read = [&](const std::string& name, const Json& json) {
    if (!reader.name("the name of a type", name)) return;
    if (json.is_null() && name != kOther) {
      plan.types.erase(name);
    } else if (!json.is_object()) {
      reader.wrong("types." + name, name == kOther ? "an object such as {\"daily\": 500}" : kMustBeType, json);
    } else {
      const auto other = plan.types.find(kOther);
      const TypeRule first = other != plan.types.end() ? other->second : TypeRule{};
      read_plan_type(reader, name, json, plan.types.try_emplace(name, first).first->second);
    }
  };
  // First the one that new types begin as.
  const auto other = types.find(kOther);
  if (other != types.end()) read(other.key(), *other);
  for (const auto& [name, json] : types.items()) {
    if (name != kOther) read(name, json);
  }
}

void read_change(PlanReader& reader, std::string_view name, const Json& json, TypeChange& out) {
  static const std::vector<std::string> kFields{"daily", "weekly", "monthly", "session"};
  reader.known(json, fmt::format("in types.{} of a rule", name), kFields);
  const auto read = [&](std::string_view field, std::optional<Amount>& amount) {
    const auto at = json.find(field);
    if (at != json.end()) amount = reader.amount(field_path(name, field), *at);
  };
  for (std::size_t i = 0; i < kPeriods.size(); ++i) read(kPeriodNames[i], out.limits[i]);
  read("session", out.session);
}

void read_changes(PlanReader& reader, const Json& types, UserRule& rule) {
  if (types.is_null()) return rule.types.clear();
  if (!types.is_object()) return reader.wrong("types", fmt::format("{} or null", kMustBeTypes), types);
  for (const auto& [name, json] : types.items()) {
    if (!reader.name("the name of a type", name)) continue;
    if (json.is_null()) {
      rule.types.erase(name);
    } else if (!json.is_object()) {
      reader.wrong("types." + name, kMustBeType, json);
    } else {
      TypeChange& change = rule.types[name];
      read_change(reader, name, json, change);
      if (change.empty()) rule.types.erase(name);
    }
  }
}

void check_count(PlanReader& reader, std::size_t types) {
  if (types > kMostTypes) reader.problem(fmt::format("types must be at most {}, are {}", kMostTypes, types));
}

}  // namespace

Result<Plan> plan_of(std::string_view json, const Plan& base) {
  static const std::vector<std::string> kFields{"timezone", "mode", "weight", "types"};
  PlanReader reader;
  const Json document = reader.document(json, "the plan");
  if (reader.failed()) return std::move(reader).error();
  Plan plan = base;
  reader.known(document, "here", kFields);
  if (const auto at = document.find("timezone"); at != document.end()) reader.timezone(*at, plan.timezone);
  if (const auto at = document.find("mode"); at != document.end()) reader.mode(*at, plan.mode);
  if (const auto at = document.find("weight"); at != document.end()) {
    reader.number("weight", *at, kLeastWeight, kMostWeight, plan.weight);
  }
  if (const auto at = document.find("types"); at != document.end()) read_plan_types(reader, *at, plan);
  check_count(reader, plan.types.size());
  if (!plan.types.contains(kOther)) {
    reader.problem("types.other must be given: types that the plan does not name count as it");
  }
  if (reader.failed()) return std::move(reader).error();
  return plan;
}

Result<UserRule> rule_of(std::string_view json, const UserRule& base) {
  static const std::vector<std::string> kFields{"plan", "timezone", "mode", "weight", "types"};
  PlanReader reader;
  const Json document = reader.document(json, "the rule");
  if (reader.failed()) return std::move(reader).error();
  UserRule rule = base;
  reader.known(document, "here", kFields);
  if (const auto at = document.find("plan"); at != document.end()) {
    rule.plan.clear();
    if (at->is_string() && reader.name("plan", at->get<std::string>())) rule.plan = at->get<std::string>();
    if (!at->is_string() && !at->is_null()) reader.wrong("plan", "the name of a plan or null", *at);
  }
  if (const auto at = document.find("timezone"); at != document.end()) reader.timezone(*at, rule.timezone);
  if (const auto at = document.find("mode"); at != document.end()) {
    rule.mode.reset();
    if (!at->is_null()) reader.mode(*at, rule.mode.emplace());
  }
  if (const auto at = document.find("weight"); at != document.end()) {
    rule.weight.reset();
    if (!at->is_null()) reader.number("weight", *at, kLeastWeight, kMostWeight, rule.weight.emplace());
  }
  if (const auto at = document.find("types"); at != document.end()) read_changes(reader, *at, rule);
  check_count(reader, rule.types.size());
  if (reader.failed()) return std::move(reader).error();
  return rule;
}

}  // namespace headgate::quota
