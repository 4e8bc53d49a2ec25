#include "service/settings.h"

#include <fmt/format.h>

#include "service/emergency_keeper.h"
#include "service/quotas.h"
#include "service/tier_json.h"

namespace headgate::service {
namespace {

Result<void> apply_quota_setting(Quotas& quotas, const state::Setting& setting) {
  const auto named = [&](const Error& error) {
    return Error{ErrorCode::kCorrupt, fmt::format("{} \"{}\": {}", setting.section, setting.key, error.message)};
  };
  if (setting.section == "quota_plan") {
    if (!setting.value) return quotas.book().clear_plan(setting.key);
    Result<quota::Plan> plan = quota::plan_of(*setting.value, quota::Plan{});
    if (!plan) return named(plan.error());
    return quotas.book().set_plan(setting.key, *std::move(plan));
  }
  if (!setting.value) return quotas.book().set_rule(setting.key, {});
  Result<quota::UserRule> rule = quota::rule_of(*setting.value, {});
  if (!rule) return named(rule.error());
  return quotas.book().set_rule(setting.key, *std::move(rule));
}

}  // namespace

Result<void> apply_setting(Service& service, const state::Setting& setting) {
  engine::Engine& engine = *service.engine;
  if (setting.section == "override") {
    if (!setting.value) {
      (void)engine.controls().clear_override(setting.key);
      return {};
    }
    const auto tiers = tiers_of_json(*setting.value);
    if (!tiers) return Error{ErrorCode::kCorrupt, fmt::format("override of \"{}\" cannot be read", setting.key)};
    engine::Override override;
    override.agent = setting.key;
    override.tiers = *tiers;
    const Result<void> set = engine.controls().set_override(override);
    if (set) return {};
    return Error{set.error().code, fmt::format("override of \"{}\": {}", setting.key, set.error().message)};
  }
  if (setting.section == "quota_plan" || setting.section == "quota_rule") {
    return service.quotas == nullptr ? Result<void>{} : apply_quota_setting(*service.quotas, setting);
  }
  if (setting.section == "exempt") {
    if (setting.value) {
      engine.controls().add_exempt(setting.key);
    } else {
      (void)engine.controls().remove_exempt(setting.key);
    }
  }
  if (setting.section == "emergency") {
    const auto state = setting.value ? emergency_of_setting(*setting.value, service.node) : control::Emergency{};
    if (!state) return Error{ErrorCode::kCorrupt, "the emergency throttle's state cannot be read"};
    engine.controls().restore_emergency(*state);
  }
  return {};
}

std::vector<std::string> restore_settings(Service& service) {
  std::vector<std::string> problems;
  for (const char* section : {"override", "exempt", "emergency", "quota_plan", "quota_rule"}) {
    for (const state::Setting& setting : service.database->settings(section)) {
      if (const Result<void> set = apply_setting(service, setting); !set) problems.push_back(set.error().message);
    }
  }
  return problems;
}

}  // namespace headgate::service
