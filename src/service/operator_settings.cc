#include "service/operator_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "service/emergency_keeper.h"
#include "service/quotas.h"

namespace headgate::service {
namespace {

constexpr int kNotFound = 404;
constexpr int kConflict = 409;

Refusal refusal(int status, std::string_view code, std::string message) {
  return {status, code, std::move(message), Nanos{0}};
}

const engine::Override* find_override(const std::vector<engine::Override>& all, std::string_view agent) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.agent == agent; });
  return found == all.end() ? nullptr : &*found;
}

bool contains(const std::vector<std::string>& all, const std::string& name) {
  return std::find(all.begin(), all.end(), name) != all.end();
}

}  // namespace

Json load_json(const engine::Controls::Load& load) {
  return {{"load", load.load ? number_json(*load.load) : Json()},
          {"reported", load.reported ? number_json(*load.reported) : Json()},
          {"sensors", load.sensors},
          {"level", control::to_string(load.level)},
          {"factor", number_json(load.factor)}};
}

state::AuditEntry OperatorSettings::entry_of(const Change& change, std::string action, std::string target) const {
  state::AuditEntry entry;
  entry.time = wall();
  entry.who = change.who;
  entry.action = std::move(action);
  entry.target = std::move(target);
  return entry;
}

void OperatorSettings::keep(std::string section, std::optional<std::string> value, const state::AuditEntry& entry,
                            Change change) {
  const std::array settings{state::Setting{std::move(section), entry.target, std::move(value)}};
  service_.database->change(settings, entry, std::move(change.kept));
}

OperatorSettings::Refused OperatorSettings::set_override(const std::string& agent, const TierOverrides& tiers,
                                                         Change change) {
  const std::lock_guard guard(mutex_);
  const std::vector<engine::Override> all = controls().overrides();
  state::AuditEntry entry = entry_of(change, "override.set", agent);
  if (const engine::Override* old = find_override(all, agent)) entry.before = text_of(tier_json(old->tiers));
  entry.after = text_of(tier_json(tiers));
  keep("override", entry.after, entry, std::move(change));
  engine::Override override;
  override.agent = agent;
  override.tiers = tiers;
  if (const Result<void> set = controls().set_override(override); !set) return refusal_of(set.error());
  return std::nullopt;
}

OperatorSettings::Refused OperatorSettings::clear_override(const std::string& agent, Change change) {
  const std::lock_guard guard(mutex_);
  const std::vector<engine::Override> all = controls().overrides();
  const engine::Override* old = find_override(all, agent);
  if (old == nullptr) return refusal(kNotFound, "not_found", fmt::format("agent \"{}\" has no override", agent));
  state::AuditEntry entry = entry_of(change, "override.clear", agent);
  entry.before = text_of(tier_json(old->tiers));
  keep("override", std::nullopt, entry, std::move(change));
  (void)controls().clear_override(agent);
  return std::nullopt;
}

std::vector<std::string> OperatorSettings::listed() const {
  std::vector<std::string> agents;
  for (const state::Setting& setting : service_.database->settings("exempt")) agents.push_back(setting.key);
  return agents;
}

void OperatorSettings::replace_exempt(const std::vector<std::string>& agents, Change change) {
  assert(agents.size() <= kMostExempt);
  const std::lock_guard guard(mutex_);
  const std::vector<std::string> old = listed();
  std::vector<state::Setting> settings;
  settings.reserve(old.size() + agents.size());
  for (const std::string& agent : old) settings.push_back({"exempt", agent, std::nullopt});
  for (const std::string& agent : agents) settings.push_back({"exempt", agent, "true"});
  state::AuditEntry entry = entry_of(change, "whitelist.replace", "");
  entry.before = text_of(Json(old));
  entry.after = text_of(Json(agents));
  service_.database->change(settings, entry, std::move(change.kept));
  controls().set_exempt(agents);
}

OperatorSettings::Refused OperatorSettings::add_exempt(const std::string& agent, Change change) {
  const std::lock_guard guard(mutex_);
  if (listed().size() >= kMostExempt) {
    return refusal(400, "invalid_request", fmt::format("at most {} agents may be exempt", kMostExempt));
  }
  state::AuditEntry entry = entry_of(change, "whitelist.add", agent);
  entry.after = text_of(Json{{"agent", agent}});
  keep("exempt", "true", entry, std::move(change));
  controls().add_exempt(agent);
  return std::nullopt;
}

OperatorSettings::Refused OperatorSettings::remove_exempt(const std::string& agent, Change change) {
  const std::lock_guard guard(mutex_);
  if (!contains(listed(), agent)) {
    if (!contains(controls().exempt(), agent)) {
      return refusal(kNotFound, "not_found", fmt::format("agent \"{}\" is not exempt", agent));
    }
    return refusal(kConflict, "conflict",
                   fmt::format("agent \"{}\" is exempt by the policies; it is not on this list", agent));
  }
  state::AuditEntry entry = entry_of(change, "whitelist.remove", agent);
  entry.before = text_of(Json{{"agent", agent}});
  keep("exempt", std::nullopt, entry, std::move(change));
  (void)controls().remove_exempt(agent);
  return std::nullopt;
}

// Written before the change is in force, so that EmergencyKeeper finds it kept.
void OperatorSettings::keep_emergency(const control::Emergency& before, const control::Emergency& next, Change change) {
  state::AuditEntry entry = entry_of(change, next.active ? "emergency.on" : "emergency.off", "");
  entry.before = emergency_setting(before, service_.node);
  entry.after = emergency_setting(next, service_.node);
  const std::array settings{state::Setting{"emergency", "state", entry.after}};
  service_.database->change(settings, entry, std::move(change.kept));
}

OperatorSettings::Refused OperatorSettings::turn_emergency_on(const control::EmergencyOrder& order, Change change) {
  const std::lock_guard guard(mutex_);
  const control::Emergency before = controls().emergency();
  const Result<control::Emergency> next = control::turn_on(before, order, wall());
  if (!next) return refusal_of(next.error());
  keep_emergency(before, *next, std::move(change));
  if (const Result<void> on = controls().emergency_on(order); !on) return refusal_of(on.error());
  return std::nullopt;
}

bool OperatorSettings::turn_emergency_off(Change change) {
  const std::lock_guard guard(mutex_);
  const control::Emergency before = controls().emergency();
  const control::AdaptiveSettings& adaptive = service_.engine->rules()->rules.document().adaptive;
  const control::Emergency next = control::turn_off(before, adaptive, controls().load_state().followed);
  if (next == before) return false;
  const std::string who = change.who;
  keep_emergency(before, next, std::move(change));
  controls().emergency_off(who);
  return true;
}

engine::Controls::Load OperatorSettings::report_load(std::optional<double> load, const std::string& who) {
  const std::lock_guard guard(mutex_);
  const engine::Controls::Load before = controls().load_state();
  if (load) {
    controls().report_load(*load);
  } else {
    controls().clear_load_report();
  }
  if (service_.load_reported) service_.load_reported(load);
  const engine::Controls::Load now = controls().load_state();
  if (now.level != before.level || now.factor != before.factor ||
      now.reported.has_value() != before.reported.has_value()) {
    state::AuditEntry entry = entry_of({who, {}}, now.reported ? "load.report" : "load.clear", "");
    entry.before = text_of(load_json(before));
    entry.after = text_of(load_json(now));
    service_.database->change({}, entry, {});
  }
  if (service_.wake) service_.wake();
  return now;
}

Result<std::size_t> OperatorSettings::clear_caller_cells(const std::string& who) {
  const std::size_t cells = service_.engine->own_limits().clear();
  state::AuditEntry entry = entry_of({who, {}}, "cells.clear", "throttle");
  entry.after = text_of(Json{{"space", "throttle"}, {"cells", cells}});
  if (const Result<void> kept = service_.database->change({}, entry); !kept) return kept.error();
  return cells;
}

OperatorSettings::Refused OperatorSettings::set_quota_rule(const std::string& user, std::string_view text,
                                                           Change change) {
  assert(service_.quotas != nullptr);
  const std::lock_guard guard(mutex_);
  quota::Book& book = service_.quotas->book();
  const std::optional<quota::UserRule> before = book.rule(user);
  Result<quota::UserRule> rule = quota::rule_of(text, before.value_or(quota::UserRule{}));
  if (!rule) return refusal_of(rule.error());
  if (!rule->plan.empty() && !book.plan(rule->plan)) {
    return refusal(kNotFound, "unknown_plan", fmt::format("there is no plan \"{}\"", rule->plan));
  }
  state::AuditEntry entry = entry_of(change, "quota_rule.set", user);
  if (before) entry.before = to_json(*before);
  std::optional<std::string> value;
  if (!rule->empty()) value = to_json(*rule);
  entry.after = value.value_or(std::string());
  if (const Result<void> set = book.set_rule(user, *std::move(rule)); !set) return refusal_of(set.error());
  keep("quota_rule", std::move(value), entry, std::move(change));
  return std::nullopt;
}

OperatorSettings::Refused OperatorSettings::clear_quota_rule(const std::string& user, Change change) {
  assert(service_.quotas != nullptr);
  const std::lock_guard guard(mutex_);
  quota::Book& book = service_.quotas->book();
  const std::optional<quota::UserRule> before = book.rule(user);
  if (!before) return refusal(kNotFound, "not_found", fmt::format("user \"{}\" has no rule of its own", user));
  state::AuditEntry entry = entry_of(change, "quota_rule.clear", user);
  entry.before = to_json(*before);
  (void)book.set_rule(user, {});
  keep("quota_rule", std::nullopt, entry, std::move(change));
  return std::nullopt;
}

OperatorSettings::Refused OperatorSettings::set_quota_plan(const std::string& plan, std::string_view text,
                                                           Change change) {
  assert(service_.quotas != nullptr);
  const std::lock_guard guard(mutex_);
  quota::Book& book = service_.quotas->book();
  const std::optional<quota::Plan> before = book.plan(plan);
  // A new plan begins as the default one.
  const std::optional<quota::Plan> base = before ? before : book.plan(book.options().default_plan);
  Result<quota::Plan> made = quota::plan_of(text, base.value_or(quota::Plan{}));
  if (!made) return refusal_of(made.error());
  state::AuditEntry entry = entry_of(change, "quota_plan.set", plan);
  if (before) entry.before = to_json(*before);
  entry.after = to_json(*made);
  if (const Result<void> set = book.set_plan(plan, *std::move(made)); !set) return refusal_of(set.error());
  keep("quota_plan", entry.after, entry, std::move(change));
  return std::nullopt;
}

OperatorSettings::Refused OperatorSettings::clear_quota_plan(const std::string& plan, Change change) {
  assert(service_.quotas != nullptr);
  const std::lock_guard guard(mutex_);
  quota::Book& book = service_.quotas->book();
  const std::optional<quota::Plan> before = book.plan(plan);
  if (!before) {
    return refusal(kNotFound, "unknown_plan", fmt::format("there is no plan \"{}\"", base::shortened(plan, 100)));
  }
  if (const Result<void> cleared = book.clear_plan(plan); !cleared) {
    return refusal(kConflict, "conflict", cleared.error().message);
  }
  state::AuditEntry entry = entry_of(change, "quota_plan.clear", plan);
  entry.before = to_json(*before);
  keep("quota_plan", std::nullopt, entry, std::move(change));
  return std::nullopt;
}

}  // namespace headgate::service
