// /api/admin/rate-limits: the tiers' defaults, what single agents are granted instead, and who is exempt.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/http/keeping.h"
#include "api/http/spread_state.h"
#include "base/utf8.h"
#include "service/tier_json.h"

namespace headgate::api {
namespace {

using service::kTierNames;
constexpr Units kMostTokens = 1'000'000'000;
constexpr std::size_t kMostExempt = 100'000;

// One number of a tier. False: it was answered with 400.
bool take_number(const Call& call, const Json& tier, std::string_view name, std::string_view field,
                 std::optional<Units>& out) {
  const auto found = tier.find(field);
  if (found == tier.end()) return true;
  const bool whole = found->is_number_integer();
  if (whole && *found >= 1 && *found <= kMostTokens) {
    out = found->get<Units>();
    return true;
  }
  call.fail(400, "invalid_request",
            fmt::format("{}.{} must be a whole number between 1 and {}, got {}", name, field, kMostTokens,
                        base::shortened(text_of(*found), 60)));
  return false;
}

// The numbers of the tiers that the body names, over those of `otherwise`. nullopt: it was answered with 400.
std::optional<service::TierOverrides> tiers_of(const Call& call, const service::TierOverrides& otherwise) {
  const auto body = body_of(call, kTierNames);
  if (!body) return std::nullopt;
  if (body->empty()) {
    call.fail(400, "invalid_request", "numbers for light, normal or heavy are needed");
    return std::nullopt;
  }
  service::TierOverrides tiers = otherwise;
  for (std::size_t t = 0; t < kTierNames.size(); ++t) {
    const auto tier = body->find(kTierNames[t]);
    if (tier == body->end()) continue;
    const auto known = [&](const auto& item) { return item.key() == "capacity" || item.key() == "refill_per_minute"; };
    const auto items = tier->items();
    if (!tier->is_object() || tier->empty() || !std::all_of(items.begin(), items.end(), known)) {
      call.fail(400, "invalid_request",
                fmt::format("{} must be an object of capacity and refill_per_minute", kTierNames[t]));
      return std::nullopt;
    }
    std::optional<Units> capacity;
    std::optional<Units> refill;
    if (!take_number(call, *tier, kTierNames[t], "capacity", capacity)) return std::nullopt;
    if (!take_number(call, *tier, kTierNames[t], "refill_per_minute", refill)) return std::nullopt;
    const std::optional<policy::TierLimit>& old = otherwise[t];
    if ((!capacity || !refill) && !old) {
      call.fail(400, "invalid_request", fmt::format("{} must have both capacity and refill_per_minute", kTierNames[t]));
      return std::nullopt;
    }
    policy::TierLimit& limit = tiers[t].emplace();
    limit.capacity = capacity ? *capacity : old->capacity;
    limit.refill_per_minute = refill ? *refill : old->refill_per_minute;
    const auto made = Limit::token_bucket({limit.capacity, {limit.refill_per_minute, std::chrono::minutes{1}}, 0});
    if (!made) {
      call.fail(400, "invalid_request", fmt::format("{}: {}", kTierNames[t], made.error().message));
      return std::nullopt;
    }
  }
  return tiers;
}

const engine::Override* find_override(const std::vector<engine::Override>& all, std::string_view agent) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.agent == agent; });
  return found == all.end() ? nullptr : &*found;
}

Json defaults_json(const policy::Document& document) {
  service::TierOverrides all;
  std::copy(document.tiers.limits.begin(), document.tiers.limits.end(), all.begin());
  return service::tier_json(all);
}

void answer_defaults(Call& call, const Keeping& keeping, const service::Policies::Changed& changed) {
  if (changed.error) return call.fail(*changed.error);
  if (!changed.ok()) return call.fail(400, "invalid_policies", changed.text());
  const service::Policies::View view = call.context.policies.view();
  keeping.answer(Json{{"defaults", defaults_json(view.document)}, {"in_force", view.document.tier_limits_apply()}});
}

// The exempt agents that were set by API.
std::vector<std::string> listed(const service::Service& service) {
  std::vector<std::string> agents;
  for (const state::Setting& setting : service.database->settings("exempt")) agents.push_back(setting.key);
  return agents;
}

Json whitelist_json(const Call& call) {
  return with_spread(call, {{"agents", call.service().engine->controls().exempt()}});
}

}  // namespace

void get_limits(Call& call) {
  const service::Policies::View view = call.context.policies.view();
  Json overrides = Json::object();
  for (const engine::Override& each : call.service().engine->controls().overrides()) {
    overrides[each.agent] = service::tier_json(each.tiers);
  }
  call.send(Json{{"defaults", defaults_json(view.document)},
                 {"in_force", view.document.tier_limits_apply()},
                 {"overrides", std::move(overrides)},
                 {"whitelist", call.service().engine->controls().exempt()}});
}

void put_defaults(Call& call) {
  service::TierOverrides now;
  const policy::Document document = call.context.policies.view().document;
  std::copy(document.tiers.limits.begin(), document.tiers.limits.end(), now.begin());
  const auto tiers = tiers_of(call, now);
  if (!tiers) return;
  service::TierLimits limits;
  for (std::size_t t = 0; t < limits.size(); ++t) limits[t] = *(*tiers)[t];
  const Keeping keeping(call);
  answer_defaults(call, keeping, call.context.policies.set_tiers(limits, call.who(), keeping.kept()));
}

void delete_defaults(Call& call) {
  const Keeping keeping(call);
  answer_defaults(call, keeping, call.context.policies.set_tiers(std::nullopt, call.who(), keeping.kept()));
}

void put_override(Call& call) {
  if (!is_name(call, "agent", call.id)) return;
  const auto tiers = tiers_of(call, {});
  if (!tiers) return;
  service::Service& service = call.service();
  const std::lock_guard guard(call.context.settings_mutex);
  const std::vector<engine::Override> all = service.engine->controls().overrides();
  state::AuditEntry entry = entry_of(call, "override.set", call.id);
  if (const engine::Override* old = find_override(all, call.id)) entry.before = text_of(service::tier_json(old->tiers));
  entry.after = text_of(service::tier_json(*tiers));
  const std::array settings{state::Setting{"override", call.id, entry.after}};
  const Keeping keeping(call);
  service.database->change(settings, entry, keeping.kept());
  engine::Override override;
  override.agent = call.id;
  override.tiers = *tiers;
  if (const Result<void> set = service.engine->controls().set_override(override); !set) return call.fail(set.error());
  keeping.answer(with_spread(call, {{"agent", call.id}, {"override", service::tier_json(*tiers)}}));
}

void delete_override(Call& call) {
  if (!is_name(call, "agent", call.id)) return;
  service::Service& service = call.service();
  const std::lock_guard guard(call.context.settings_mutex);
  const std::vector<engine::Override> all = service.engine->controls().overrides();
  const engine::Override* old = find_override(all, call.id);
  if (old == nullptr) return call.fail(404, "not_found", fmt::format("agent \"{}\" has no override", call.id));
  state::AuditEntry entry = entry_of(call, "override.clear", call.id);
  entry.before = text_of(service::tier_json(old->tiers));
  const std::array settings{state::Setting{"override", call.id, std::nullopt}};
  const Keeping keeping(call);
  service.database->change(settings, entry, keeping.kept());
  (void)service.engine->controls().clear_override(call.id);
  keeping.answer(with_spread(call, {{"agent", call.id}, {"override", nullptr}}));
}

void get_whitelist(Call& call) { call.send(Json{{"agents", call.service().engine->controls().exempt()}}); }

void put_whitelist(Call& call) {
  const auto body = body_of(call, std::array<std::string_view, 1>{"agents"});
  if (!body) return;
  const auto agents = body->find("agents");
  if (agents == body->end() || !agents->is_array() || agents->size() > kMostExempt) {
    return call.fail(400, "invalid_request", fmt::format("agents must be a list of at most {} names", kMostExempt));
  }
  std::vector<std::string> names;
  for (const Json& agent : *agents) {
    if (!agent.is_string()) return call.fail(400, "invalid_request", "each of agents must be text");
    names.push_back(agent.get<std::string>());
    if (!is_name(call, "each of agents", names.back())) return;
  }
  service::Service& service = call.service();
  const std::lock_guard guard(call.context.settings_mutex);
  const std::vector<std::string> old = listed(service);
  std::vector<state::Setting> settings;
  settings.reserve(old.size() + names.size());
  for (const std::string& agent : old) settings.push_back({"exempt", agent, std::nullopt});
  for (const std::string& agent : names) settings.push_back({"exempt", agent, "true"});
  state::AuditEntry entry = entry_of(call, "whitelist.replace", "");
  entry.before = text_of(Json(old));
  entry.after = text_of(Json(names));
  const Keeping keeping(call);
  service.database->change(settings, entry, keeping.kept());
  service.engine->controls().set_exempt(names);
  keeping.answer(whitelist_json(call));
}

void post_whitelist(Call& call) {
  const auto body = body_of(call, std::array<std::string_view, 1>{"agent"});
  if (!body) return;
  const auto agent = body->find("agent");
  if (agent == body->end() || !agent->is_string()) return call.fail(400, "invalid_request", "agent must be text");
  const std::string name = agent->get<std::string>();
  if (!is_name(call, "agent", name)) return;
  service::Service& service = call.service();
  const std::lock_guard guard(call.context.settings_mutex);
  if (listed(service).size() >= kMostExempt) {
    return call.fail(400, "invalid_request", fmt::format("at most {} agents may be exempt", kMostExempt));
  }
  state::AuditEntry entry = entry_of(call, "whitelist.add", name);
  entry.after = text_of(Json{{"agent", name}});
  const std::array settings{state::Setting{"exempt", name, "true"}};
  const Keeping keeping(call);
  service.database->change(settings, entry, keeping.kept());
  service.engine->controls().add_exempt(name);
  keeping.answer(whitelist_json(call));
}

void delete_whitelist(Call& call) {
  if (!is_name(call, "agent", call.id)) return;
  service::Service& service = call.service();
  const std::lock_guard guard(call.context.settings_mutex);
  const std::vector<std::string> old = listed(service);
  if (std::find(old.begin(), old.end(), call.id) == old.end()) {
    const std::vector<std::string> all = service.engine->controls().exempt();
    if (std::find(all.begin(), all.end(), call.id) == all.end()) {
      return call.fail(404, "not_found", fmt::format("agent \"{}\" is not exempt", call.id));
    }
    return call.fail(409, "conflict",
                     fmt::format("agent \"{}\" is exempt by the policies; it is not on this list", call.id));
  }
  state::AuditEntry entry = entry_of(call, "whitelist.remove", call.id);
  entry.before = text_of(Json{{"agent", call.id}});
  const std::array settings{state::Setting{"exempt", call.id, std::nullopt}};
  const Keeping keeping(call);
  service.database->change(settings, entry, keeping.kept());
  (void)service.engine->controls().remove_exempt(call.id);
  keeping.answer(whitelist_json(call));
}

}  // namespace headgate::api
