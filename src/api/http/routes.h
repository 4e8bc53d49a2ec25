// The table of endpoints, and their handlers.
//
// Internal to src/api.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "api/http/call.h"

namespace headgate::api {

enum class Need : std::uint8_t {
  kOpen,     // any request
  kAsk,      // a caller that may check
  kView,     // a viewer
  kChange,   // an admin
  kQuotas,   // an admin, a viewer to look, or an agent for its own user
  kMetrics,  // any request from this machine, unless that is turned off; else a viewer
};

// One endpoint. Schemas are names in the OpenAPI document; empty: no body.
struct Route {
  net::Method method;
  std::string_view path;  // "/v1/leases/{id}/settle": at most one part in braces
  Need need;
  void (*handle)(Call&);
  std::string_view summary;
  std::string_view takes;
  std::string_view gives;
  bool yaml = false;  // its body may be YAML, too
};
// All of them. Paths without braces win.
[[nodiscard]] std::span<const Route> routes() noexcept;

// Handlers, by file.
void check_one(Context& context, const net::HttpRequest& request, net::HttpReply& reply);   // check_api.cc
void check_gate(Context& context, const net::HttpRequest& request, net::HttpReply& reply);  // gate_api.cc
void handle_check(Call& call);
void handle_batch(Call& call);
void handle_gate(Call& call);
void handle_websocket(Call& call);
void settle_lease(Call& call);
void renew_lease(Call& call);
void release_lease(Call& call);

void get_health(Call& call);  // health_api.cc
void get_ready(Call& call);
void get_metrics(Call& call);  // metrics_api.cc
void get_openapi(Call& call);  // openapi.cc
void get_page(Call& call);     // page.cc

void get_limits(Call& call);  // limits_api.cc
void put_defaults(Call& call);
void delete_defaults(Call& call);
void put_override(Call& call);
void delete_override(Call& call);
void get_whitelist(Call& call);
void put_whitelist(Call& call);
void post_whitelist(Call& call);
void delete_whitelist(Call& call);

void get_emergency(Call& call);  // admin_api.cc
void put_emergency(Call& call);
void delete_emergency(Call& call);
void get_load(Call& call);
void put_load(Call& call);
void delete_load(Call& call);
void delete_cells(Call& call);
void get_audit(Call& call);
void get_tokens(Call& call);
void post_token(Call& call);
void delete_token(Call& call);

void get_policies(Call& call);  // policies_api.cc
void put_policies(Call& call);
void delete_policies(Call& call);
void put_policy(Call& call);
void delete_policy(Call& call);
void post_validate(Call& call);
void post_simulate(Call& call);
void post_explain(Call& call);
void get_versions(Call& call);
void get_version(Call& call);
void post_rollback(Call& call);

void post_quota_check(Call& call);  // quotas_api.cc
void post_execution(Call& call);
void get_quota_user(Call& call);
void get_quota_queue(Call& call);
void post_renew_run(Call& call);
void delete_run(Call& call);
void put_quota_user(Call& call);  // quota_rules_api.cc
void delete_quota_user(Call& call);
void get_quota_users(Call& call);
void get_quota_commands(Call& call);
void put_quota_plan(Call& call);
void delete_quota_plan(Call& call);
void get_executions(Call& call);  // quota_history_api.cc
void get_usage(Call& call);
void get_quota_report(Call& call);

void get_agents(Call& call);  // agents_api.cc
void get_agent(Call& call);
void get_overview(Call& call);
void get_history(Call& call);
void get_events(Call& call);  // events_api.cc
void get_alerts(Call& call);
void acknowledge(Call& call);
void end_session(Call& call);

}  // namespace headgate::api
