// /api/admin/rate-limits: the tiers' defaults, overrides of single agents, and the exempt list.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "api/http/keeping.h"
#include "api/http/routes.h"
#include "base/utf8.h"
#include "service/tier_json.h"

namespace headgate::api {
namespace {

using service::kTierNames;
constexpr Units kMostTokens = 1'000'000'000;
constexpr std::size_t kMostExempt = service::OperatorSettings::kMostExempt;

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
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.set_override(call.id, *tiers, keeping.change())) {
    return call.fail(*refused);
  }
  keeping.answer(with_spread(call, {{"agent", call.id}, {"override", service::tier_json(*tiers)}}));
}

void delete_override(Call& call) {
  if (!is_name(call, "agent", call.id)) return;
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.clear_override(call.id, keeping.change())) return call.fail(*refused);
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
  const Keeping keeping(call);
  call.context.settings.replace_exempt(names, keeping.change());
  keeping.answer(whitelist_json(call));
}

void post_whitelist(Call& call) {
  const auto body = body_of(call, std::array<std::string_view, 1>{"agent"});
  if (!body) return;
  const auto agent = body->find("agent");
  if (agent == body->end() || !agent->is_string()) return call.fail(400, "invalid_request", "agent must be text");
  const std::string name = agent->get<std::string>();
  if (!is_name(call, "agent", name)) return;
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.add_exempt(name, keeping.change())) return call.fail(*refused);
  keeping.answer(whitelist_json(call));
}

void delete_whitelist(Call& call) {
  if (!is_name(call, "agent", call.id)) return;
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.remove_exempt(call.id, keeping.change())) return call.fail(*refused);
  keeping.answer(whitelist_json(call));
}

}  // namespace headgate::api
