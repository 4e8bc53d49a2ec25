// /api/quotas/user, /users, /commands, /plans: what plans allow, and what single users are granted instead.
#include <fmt/format.h>

#include "api/http/keeping.h"
#include "api/http/quota_calls.h"
#include "base/utf8.h"

namespace headgate::api {
namespace {

constexpr std::string_view kRules = "quota_rule";
constexpr std::string_view kPlans = "quota_plan";

// What is in force goes to disk.
void keep(const Call& call, std::string_view section, std::optional<std::string> value, state::AuditEntry entry,
          state::Database::Kept kept) {
  entry.after = value.value_or(std::string());
  const std::array settings{state::Setting{std::string(section), call.id, std::move(value)}};
  call.service().database->change(settings, entry, std::move(kept));
}

Json rule_json(const std::optional<quota::UserRule>& rule) { return rule ? Json::parse(to_json(*rule)) : Json(); }

Json answer_of(const Call& call, service::Quotas& quotas) {
  return {{"user", call.id}, {"rule", rule_json(quotas.book().rule(call.id))}};
}

}  // namespace

void put_quota_user(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr || !is_name(call, "user", call.id)) return;
  const std::lock_guard guard(call.context.settings_mutex);
  const std::optional<quota::UserRule> before = quotas->book().rule(call.id);
  Result<quota::UserRule> rule = quota::rule_of(call.request.body, before.value_or(quota::UserRule{}));
  if (!rule) return call.fail(rule.error());
  if (!rule->plan.empty() && !quotas->book().plan(rule->plan)) {
    return call.fail(404, "unknown_plan", fmt::format("there is no plan \"{}\"", rule->plan));
  }
  state::AuditEntry entry = entry_of(call, "quota_rule.set", call.id);
  if (before) entry.before = to_json(*before);
  std::optional<std::string> value;
  if (!rule->empty()) value = to_json(*rule);
  if (const Result<void> set = quotas->book().set_rule(call.id, *std::move(rule)); !set) return call.fail(set.error());
  const Keeping keeping(call);
  keep(call, kRules, std::move(value), std::move(entry), keeping.kept());
  keeping.answer(answer_of(call, *quotas));
}

void delete_quota_user(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr || !is_name(call, "user", call.id)) return;
  const std::lock_guard guard(call.context.settings_mutex);
  const std::optional<quota::UserRule> before = quotas->book().rule(call.id);
  if (!before) return call.fail(404, "not_found", fmt::format("user \"{}\" has no rule of its own", call.id));
  state::AuditEntry entry = entry_of(call, "quota_rule.clear", call.id);
  entry.before = to_json(*before);
  (void)quotas->book().set_rule(call.id, {});
  const Keeping keeping(call);
  keep(call, kRules, std::nullopt, std::move(entry), keeping.kept());
  keeping.answer(answer_of(call, *quotas));
}

void get_quota_users(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  const auto limit = query_number(call, "limit", 100, {1, 1000});
  if (!limit) return;
  const auto rules =
      quotas->book().rules(net::query_value(call.request.query, "after"), static_cast<std::size_t>(*limit));
  Json users = Json::array();
  for (const auto& [user, rule] : rules) users.push_back({{"user", user}, {"rule", Json::parse(to_json(rule))}});
  const bool more = rules.size() == static_cast<std::size_t>(*limit);
  call.send(Json{{"users", std::move(users)}, {"next", more ? Json(rules.back().first) : Json()}});
}

void get_quota_commands(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  Json plans = Json::object();
  for (const auto& [name, plan] : quotas->book().plans()) plans[name] = Json::parse(to_json(plan));
  const quota::BookOptions& options = quotas->book().options();
  call.send(Json{{"default_plan", options.default_plan},
                 {"timezone", options.timezone},
                 {"mode", to_string(options.mode)},
                 {"plans", std::move(plans)}});
}

void put_quota_plan(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  if (const Result<void> named = quota::check_name("plan", call.id); !named) return call.fail(named.error());
  const std::lock_guard guard(call.context.settings_mutex);
  const std::optional<quota::Plan> before = quotas->book().plan(call.id);
  // A new plan begins as the default one.
  const std::optional<quota::Plan> base = before ? before : quotas->book().plan(quotas->book().options().default_plan);
  Result<quota::Plan> plan = quota::plan_of(call.request.body, base.value_or(quota::Plan{}));
  if (!plan) return call.fail(plan.error());
  state::AuditEntry entry = entry_of(call, "quota_plan.set", call.id);
  if (before) entry.before = to_json(*before);
  const std::string text = to_json(*plan);
  if (const Result<void> set = quotas->book().set_plan(call.id, *std::move(plan)); !set) return call.fail(set.error());
  const Keeping keeping(call);
  keep(call, kPlans, text, std::move(entry), keeping.kept());
  keeping.answer(Json{{"plan", call.id}, {"rules", Json::parse(text)}});
}

void delete_quota_plan(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  const std::lock_guard guard(call.context.settings_mutex);
  const std::optional<quota::Plan> before = quotas->book().plan(call.id);
  if (!before) {
    return call.fail(404, "unknown_plan", fmt::format("there is no plan \"{}\"", base::shortened(call.id, 100)));
  }
  if (const Result<void> cleared = quotas->book().clear_plan(call.id); !cleared) {
    return call.fail(409, "conflict", cleared.error().message);
  }
  state::AuditEntry entry = entry_of(call, "quota_plan.clear", call.id);
  entry.before = to_json(*before);
  const Keeping keeping(call);
  keep(call, kPlans, std::nullopt, std::move(entry), keeping.kept());
  const std::optional<quota::Plan> now = quotas->book().plan(call.id);
  keeping.answer(Json{{"plan", call.id}, {"rules", now ? Json::parse(to_json(*now)) : Json()}});
}

}  // namespace headgate::api
