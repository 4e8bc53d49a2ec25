// Every endpoint there is. The OpenAPI document is made from this table, too.
#include <array>

#include "api/http/call.h"
#include "api/http/routes.h"

namespace headgate::api {

std::span<const Route> routes() noexcept {
  using net::Method;
  static constexpr auto kGet = Method::kGet;
  static constexpr auto kPost = Method::kPost;
  static constexpr auto kDelete = Method::kDelete;
  static constexpr auto kPut = Method::kPut;
  static constexpr std::array kRoutes = {
      // Asking.
      Route{kPost, "/v1/check", Need::kAsk, handle_check, "May this be done now?", "Check", "Decision"},
      Route{kPost, "/v1/check/batch", Need::kAsk, handle_batch, "Several checks, each judged in order, on its own",
            "Batch", "Decisions"},
      Route{kPost, "/v1/leases/{id}/settle", Need::kAsk, settle_lease,
            "The actual cost of a hold: the difference is refunded or charged", "Settlement", "Settled"},
      Route{kPost, "/v1/leases/{id}/renew", Need::kAsk, renew_lease, "Keeps a hold", "", "Renewed"},
      Route{kDelete, "/v1/leases/{id}", Need::kAsk, release_lease, "Releases a hold", "", "Settled"},
      Route{kGet, "/v1/gate", Need::kAsk, handle_gate, "For auth_request and forward-auth: 204, or 429", "", "Nothing"},
      Route{kPost, "/v1/gate", Need::kAsk, handle_gate, "For auth_request and forward-auth: 204, or 429", "",
            "Nothing"},
      Route{kGet, "/v1/ws", Need::kOpen, handle_websocket, "Checks over a WebSocket", "", "Upgrade"},
      // Looking.
      Route{kGet, "/healthz", Need::kOpen, get_health, "Whether the server lives", "", "Health"},
      Route{kGet, "/readyz", Need::kOpen, get_ready, "Whether it can serve", "", "Readiness"},
      Route{kGet, "/metrics", Need::kMetrics, get_metrics, "Prometheus text", "", "Text"},
      Route{kGet, "/openapi.json", Need::kOpen, get_openapi, "This document", "", "OpenApi"},
      Route{kGet, "/", Need::kOpen, get_page, "The status page; ?code= signs in", "", "Page"},
      // Managing: limits.
      Route{kGet, "/api/admin/rate-limits", Need::kView, get_limits, "Defaults by tier, and all overrides", "",
            "RateLimits"},
      Route{kPut, "/api/admin/rate-limits/defaults", Need::kChange, put_defaults,
            "Sets the defaults of the tiers that are named", "Tiers", "Defaults"},
      Route{kDelete, "/api/admin/rate-limits/defaults", Need::kChange, delete_defaults,
            "Back to the defaults of the policies", "", "Defaults"},
      Route{kGet, "/api/admin/rate-limits/whitelist", Need::kView, get_whitelist, "Agents that are exempt", "",
            "Whitelist"},
      Route{kPut, "/api/admin/rate-limits/whitelist", Need::kChange, put_whitelist, "Replaces the list", "Agents",
            "Whitelist"},
      Route{kPost, "/api/admin/rate-limits/whitelist", Need::kChange, post_whitelist, "Exempts an agent", "AgentName",
            "Whitelist"},
      Route{kDelete, "/api/admin/rate-limits/whitelist/{agent}", Need::kChange, delete_whitelist,
            "Exempts it no longer", "", "Whitelist"},
      Route{kPut, "/api/admin/rate-limits/{agent}", Need::kChange, put_override, "Limits of its own for an agent",
            "Tiers", "Override"},
      Route{kDelete, "/api/admin/rate-limits/{agent}", Need::kChange, delete_override, "Back to the defaults", "",
            "Override"},
      // Managing: policies.
      Route{kGet, "/api/admin/policies", Need::kView, get_policies, "The policies in force", "", "Policies"},
      Route{kPut, "/api/admin/policies", Need::kChange, put_policies, "Replaces them all", "Document", "Changed", true},
      Route{kDelete, "/api/admin/policies", Need::kChange, delete_policies, "Back to the files", "", "Changed"},
      Route{kPost, "/api/admin/policies/validate", Need::kView, post_validate, "What is wrong with a document",
            "Document", "Validation", true},
      Route{kPost, "/api/admin/policies/simulate", Need::kView, post_simulate, "Replays a trace in virtual time",
            "Simulation", "SimulationReport"},
      Route{kPost, "/api/admin/policies/explain", Need::kView, post_explain,
            "What each policy makes of a check; charges nothing", "Check", "Explanation"},
      Route{kGet, "/api/admin/policies/versions", Need::kView, get_versions, "Every version, newest first", "",
            "Versions"},
      Route{kGet, "/api/admin/policies/versions/{id}", Need::kView, get_version, "One version with its text", "",
            "Version"},
      Route{kPost, "/api/admin/policies/rollback", Need::kChange, post_rollback, "Back to an earlier version",
            "Rollback", "RolledBack"},
      Route{kPut, "/api/admin/policies/{id}", Need::kChange, put_policy, "Puts one policy over the others", "Policy",
            "ChangedPolicy", true},
      Route{kDelete, "/api/admin/policies/{id}", Need::kChange, delete_policy, "Deletes one policy", "",
            "ChangedPolicy"},
      // Managing: the rest.
      Route{kGet, "/api/admin/emergency", Need::kView, get_emergency, "The emergency throttle", "", "Emergency"},
      Route{kPut, "/api/admin/emergency", Need::kChange, put_emergency, "Turns it on", "Reason", "Emergency"},
      Route{kDelete, "/api/admin/emergency", Need::kChange, delete_emergency, "Turns it off", "", "Emergency"},
      Route{kGet, "/api/admin/load", Need::kView, get_load, "The load and what it does to limits", "", "Load"},
      Route{kPut, "/api/admin/load", Need::kChange, put_load, "Reports load from outside", "LoadReport", "Load"},
      Route{kDelete, "/api/admin/cells", Need::kChange, delete_cells,
            "Forgets what limits that callers named have counted; ?space=throttle", "", "Cleared"},
      Route{kDelete, "/api/admin/load", Need::kChange, delete_load, "Forgets what was reported", "", "Load"},
      Route{kGet, "/api/admin/audit", Need::kView, get_audit, "Who changed what", "", "Audit"},
      Route{kGet, "/api/admin/tokens", Need::kView, get_tokens, "All tokens, without their secrets", "", "Tokens"},
      Route{kPost, "/api/admin/tokens", Need::kChange, post_token, "Makes one; its secret is shown once",
            "TokenRequest", "NewToken"},
      Route{kDelete, "/api/admin/tokens", Need::kChange, delete_token, "Revokes the token ?id=", "", "Revoked"},
      Route{kDelete, "/api/admin/tokens/{id}", Need::kChange, delete_token, "Revokes a token", "", "Revoked"},
      // Quotas.
      Route{kPost, "/api/quotas/check", Need::kQuotas, post_quota_check, "May this user run such a command now?",
            "QuotaCheck", "QuotaDecision"},
      Route{kPost, "/api/quotas/executions", Need::kQuotas, post_execution, "Records a command that was run",
            "Execution", "Recorded"},
      Route{kGet, "/api/quotas/executions", Need::kQuotas, get_executions,
            "What was run, newest first; "
            "?user_id=&command_type=&session_id=&failed=&since=&until=&limit=&cursor=&format=",
            "", "Executions"},
      Route{kGet, "/api/quotas/user/{user}", Need::kQuotas, get_quota_user, "What a user has used and has left", "",
            "QuotaStatus"},
      Route{kPut, "/api/quotas/user/{user}", Need::kChange, put_quota_user, "Rules of its own for a user", "QuotaRule",
            "UserRule"},
      Route{kDelete, "/api/quotas/user/{user}", Need::kChange, delete_quota_user, "Back to its plan", "", "UserRule"},
      Route{kGet, "/api/quotas/users", Need::kView, get_quota_users, "Users with a rule, by name; ?limit=&after=", "",
            "UserRules"},
      Route{kGet, "/api/quotas/commands", Need::kQuotas, get_quota_commands, "All plans, by type of command", "",
            "Plans"},
      Route{kPut, "/api/quotas/plans/{plan}", Need::kChange, put_quota_plan, "Changes or makes a plan", "QuotaPlan",
            "PlanRules"},
      Route{kDelete, "/api/quotas/plans/{plan}", Need::kChange, delete_quota_plan,
            "Back to the built-in plan, or deletes it", "", "PlanRules"},
      Route{kGet, "/api/quotas/usage", Need::kQuotas, get_usage,
            "What was used by day; ?user_id=&command_type=&since=&until=&limit=", "", "UsageList"},
      Route{kGet, "/api/quotas/report", Need::kView, get_quota_report,
            "Who was refused, or would have been; ?since=&until=&limit=", "", "QuotaReport"},
      Route{kGet, "/api/quotas/queue", Need::kQuotas, get_quota_queue, "Commands that run, and those that wait", "",
            "QuotaQueue"},
      Route{kPost, "/api/quotas/runs/{id}/renew", Need::kQuotas, post_renew_run, "It still runs", "", "RunRenewed"},
      Route{kDelete, "/api/quotas/runs/{id}", Need::kQuotas, delete_run, "It has ended, or waits no more", "",
            "RunEnded"},
      // Looking, for those who may.
      Route{kGet, "/api/agents", Need::kView, get_agents, "Agents seen lately; ?eligible=true: not rate limited", "",
            "AgentList"},
      Route{kGet, "/api/agents/{id}", Need::kView, get_agent, "One agent, and its usage by channel and tier", "",
            "Agent"},
      Route{kGet, "/api/overview", Need::kView, get_overview, "What a dashboard shows", "", "Overview"},
      Route{kGet, "/api/history", Need::kView, get_history, "Checks over time; ?since=&step=, in milliseconds", "",
            "History"},
      Route{kGet, "/api/events", Need::kView, get_events, "Notices as they happen, as server-sent events", "",
            "Events"},
      Route{kGet, "/api/alerts", Need::kView, get_alerts, "The latest notices worth a look", "", "Alerts"},
      Route{kPost, "/api/alerts/{id}/ack", Need::kChange, acknowledge, "Marks it as seen", "", "Alert"},
      Route{kDelete, "/api/session", Need::kView, end_session, "Signs the browser out", "", "SignedOut"},
  };
  return kRoutes;
}

}  // namespace headgate::api
