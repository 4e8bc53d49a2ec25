// /api/quotas/user, /users, /commands, /plans: the quotas of plans, and rules of single users.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "api/http/keeping.h"
#include "api/http/quota_calls.h"
#include "api/http/routes.h"
#include "base/utf8.h"

namespace headgate::api {
namespace {

Json rule_json(const std::optional<quota::UserRule>& rule) { return rule ? Json::parse(to_json(*rule)) : Json(); }

Json answer_of(const Call& call, service::Quotas& quotas) {
  return {{"user", call.id}, {"rule", rule_json(quotas.book().rule(call.id))}};
}

Json plan_answer(const Call& call, service::Quotas& quotas) {
  const std::optional<quota::Plan> plan = quotas.book().plan(call.id);
  return {{"plan", call.id}, {"rules", plan ? Json::parse(to_json(*plan)) : Json()}};
}

}  // namespace

void put_quota_user(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr || !is_name(call, "user", call.id)) return;
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.set_quota_rule(call.id, call.request.body, keeping.change())) {
    return call.fail(*refused);
  }
  keeping.answer(answer_of(call, *quotas));
}

void delete_quota_user(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr || !is_name(call, "user", call.id)) return;
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.clear_quota_rule(call.id, keeping.change())) {
    return call.fail(*refused);
  }
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
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.set_quota_plan(call.id, call.request.body, keeping.change())) {
    return call.fail(*refused);
  }
  keeping.answer(plan_answer(call, *quotas));
}

void delete_quota_plan(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.clear_quota_plan(call.id, keeping.change())) {
    return call.fail(*refused);
  }
  keeping.answer(plan_answer(call, *quotas));
}

}  // namespace headgate::api
