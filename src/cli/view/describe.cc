#include "cli/view/describe.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_pen.h"
#include "cli/view/terminal.h"
#include "engine/check_json.h"
#include "engine/simulate_json.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::pair<const char*, policy::Patterns policy::Match::*> kLists[] = {
    {"agents", &policy::Match::agents},
    {"operations", &policy::Match::operations},
    {"contexts", &policy::Match::contexts},
    {"tiers", &policy::Match::tiers},
    {"users", &policy::Match::users},
    {"tenants", &policy::Match::tenants},
    {"plans", &policy::Match::plans},
    {"channels", &policy::Match::channels},
    {"resources", &policy::Match::resources},
    {"sessions", &policy::Match::sessions},
    {"ips", &policy::Match::ips}};

std::string rule_text(const policy::AttributeRule& rule) {
  using Kind = policy::AttributeRule::Kind;
  switch (rule.kind) {
    case Kind::kAnyOf: return joined(rule.patterns, ", ");
    case Kind::kAtMost: return "one of " + joined(rule.patterns, ", ");
    case Kind::kBoolean: return rule.boolean ? "true" : "false";
    case Kind::kAbsent: return "absent";
    case Kind::kRange: break;
  }
  if (rule.min && rule.max) return fmt::format("{} to {}", number_text(*rule.min), number_text(*rule.max));
  if (rule.min) return "at least " + number_text(*rule.min);
  return rule.max ? "at most " + number_text(*rule.max) : "any number";
}

std::vector<std::string> loads_of(const policy::Match& match) {
  std::vector<std::string> levels;
  for (const control::LoadLevel level : match.system_load) levels.emplace_back(control::to_string(level));
  return levels;
}

std::vector<std::string> key_parts(const policy::Policy& policy) {
  std::vector<std::string> parts;
  for (const policy::KeyPart& part : policy.key) {
    parts.push_back(part.dimension == policy::Dimension::kAttribute ? "attr:" + part.attribute
                                                                    : policy::to_string(part.dimension));
  }
  return parts;
}

}  // namespace

std::string match_text(const policy::Policy& policy) {
  std::vector<std::string> parts;
  const policy::Match& match = policy.match;
  for (const auto& [name, list] : kLists) {
    if (!(match.*list).empty()) parts.push_back(fmt::format("{} {}", name, joined(match.*list, ", ")));
  }
  for (const policy::AttributeRule& rule : match.attributes) {
    parts.push_back(fmt::format("{} {}", rule.names.front(), rule_text(rule)));
  }
  if (!match.system_load.empty()) parts.push_back("load " + joined(loads_of(match), ", "));
  if (match.emergency) parts.emplace_back(*match.emergency ? "in an emergency" : "no emergency");
  if (match.unidentified) parts.emplace_back("without an agent");
  return parts.empty() ? "everything" : joined(parts, "; ");
}

std::string key_text(const policy::Policy& policy) {
  return policy.key.empty() ? "(all)" : joined(key_parts(policy), ", ");
}

std::string limit_text(const policy::Policy& policy) {
  std::vector<std::string> limits;
  for (const Limit& limit : policy.limits) limits.push_back(policy::describe(policy, limit));
  for (const policy::Variant& variant : policy.variants) {
    for (const Limit& limit : variant.limits) limits.push_back(variant.name + ": " + policy::describe(policy, limit));
  }
  if (limits.empty()) return "unlimited";
  return joined(limits, " and ") + (policy.unit == "requests" ? "" : " " + policy.unit);
}

std::string least_cost_text(double least_cost) { return "at least " + number_text(least_cost) + " a check"; }

ordered_json policy_json(const policy::Policy& policy) {
  ordered_json json;
  json["id"] = policy.id;
  if (!policy.name.empty()) json["name"] = policy.name;
  json["mode"] = policy::to_string(policy.mode);
  json["priority"] = policy.priority;
  ordered_json match = ordered_json::object();
  for (const auto& [name, list] : kLists) {
    if (!(policy.match.*list).empty()) match[name] = policy.match.*list;
  }
  for (const policy::AttributeRule& rule : policy.match.attributes) {
    match["attributes"][rule.names.front()] = rule_text(rule);
  }
  if (!policy.match.system_load.empty()) match["system_load"] = loads_of(policy.match);
  if (policy.match.emergency) match["emergency"] = *policy.match.emergency;
  if (policy.match.unidentified) match["unidentified"] = true;
  json["match"] = std::move(match);
  json["missing"] = policy::to_string(policy.missing);
  json["key"] = key_parts(policy);
  json["unit"] = policy.unit;
  if (policy.least_cost > 0) json["least_cost"] = number_json(policy::least_cost(policy));
  if (!policy.holds) json["holds"] = false;
  json["limits"] = ordered_json::array();
  for (const Limit& limit : policy.limits) json["limits"].push_back(policy::describe(policy, limit));
  for (const policy::Variant& variant : policy.variants) {
    ordered_json limits = ordered_json::array();
    for (const Limit& limit : variant.limits) limits.push_back(policy::describe(policy, limit));
    json["variants"].push_back({{"name", variant.name}, {"weight", variant.weight}, {"limits", limits}});
  }
  json["action"] = policy::to_string(policy.action);
  json["behavior"] = policy::to_string(policy.behavior);
  json["max_wait_ms"] = number_json(millis(policy.max_wait));
  json["warn_at"] = number_json(policy.warn_at);
  json["rollout"] = number_json(policy.rollout);
  if (!policy.message.empty()) json["message"] = policy.message;
  if (policy.escalation) {
    json["escalation"] = {{"to", policy.escalation->to},
                          {"threshold", policy.escalation->threshold},
                          {"time_window_ms", number_json(millis(policy.escalation->time_window))}};
  }
  if (policy.place.line > 0) {
    json["place"] = fmt::format("{}:{}:{}", policy.place.file, policy.place.line, policy.place.column);
  }
  return json;
}

ordered_json number_json(double number) { return engine::number_json(number); }

std::string number_text(double number) {
  std::string text;
  base::append_json_number(engine::to_millionths(number), text);
  return text;
}

std::string count_text(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string span_text(Nanos span) {
  using namespace std::chrono_literals;
  const auto in = [&](Nanos unit) { return span / unit; };
  const auto rest = [&](Nanos unit, Nanos part) { return span % unit / part; };
  if (span < 1s) return fmt::format("{}ms", number_text(std::round(millis(span) * 100) / 100));
  if (span < 1min) return fmt::format("{}s", number_text(std::round(millis(span) / 10) / 100));
  if (span < 1h) return fmt::format("{}m{:02}s", in(1min), rest(1min, 1s));
  if (span < 24h) return fmt::format("{}h{:02}m", in(1h), rest(1h, 1min));
  return fmt::format("{}d{:02}h", in(24h), rest(24h, 1h));
}

double millis(Nanos span) noexcept { return static_cast<double>(span.count()) / 1e6; }

}  // namespace headgate::cli
