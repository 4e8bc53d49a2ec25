// One request on its way to its handler, and what handlers share.
//
// Internal to src/api.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/http/http_api.h"
#include "base/background.h"
#include "service/alerts.h"
#include "service/emergency_keeper.h"
#include "service/json.h"
#include "service/waiters.h"

namespace headgate::api {

using service::fields_of;
using service::Json;
using service::json_of;
using service::number_json;
using service::text_of;
using service::text_or_null;

class EventFeed;
class SimulationRunner;

// What the handlers of one server share.
struct Context {
  service::Service& service;
  service::Policies& policies;
  HttpApiOptions options;
  std::shared_ptr<EventFeed> feed;
  std::shared_ptr<service::Alerts> alerts;
  std::shared_ptr<service::EmergencyKeeper> keeper;
  std::shared_ptr<service::Waiters> waiters;
  std::shared_ptr<SimulationRunner> simulations;
  // Each has its own threads and bounds, so that none of them waits for another. The emergency throttle, tokens and
  // overrides use none: they take effect on the io thread.
  std::shared_ptr<base::Background> background;  // reads the disk, or a remote store
  std::shared_ptr<base::Background> of_agents;   // the same, for callers of role agent
  std::shared_ptr<base::Background> changes;     // puts policies in force
  std::shared_ptr<base::Background> trials;      // validates, explains and simulates
  std::shared_ptr<base::Background> batches;     // judges large batches
  std::mutex settings_mutex{};  // held by whoever changes what operators have set, from reading it to applying it
};

struct Call {
  Context& context;
  const net::HttpRequest& request;
  net::HttpReply& reply;
  const service::Caller& caller;
  std::string id{};          // what stands for {id} in the path, decoded
  std::string request_id{};  // echoed or made

  [[nodiscard]] service::Service& service() const noexcept { return context.service; }
  // The present, by the wall clock.
  [[nodiscard]] Nanos wall() const { return service().clock->wall(service().clock->now()); }
  // For the audit log.
  [[nodiscard]] const std::string& who() const noexcept { return caller.who; }

  void send(const Json& body, int status = 200, std::string_view headers = {}) const;
  void send(const net::HttpAnswer& answer) const;
  void fail(int status, std::string_view code, std::string_view message, std::string_view headers = {}) const;
  // With the status that its code stands for.
  void fail(const Error& error) const;
};

enum class Need : std::uint8_t {
  kOpen,     // anybody
  kAsk,      // whoever may ask
  kView,     // a viewer
  kChange,   // an admin
  kQuotas,   // an admin, a viewer to look, or an agent for its own user
  kMetrics,  // anybody on this machine, unless that is turned off; else a viewer
};

// What a connection's place and buffers go by.
[[nodiscard]] inline net::Standing standing_of(const service::Caller& caller) noexcept {
  if (!caller.known) return net::Standing::kAnonymous;
  net::Standing standing = caller.role == state::Role::kAdmin ? net::Standing::kAdmin : net::Standing::kKnown;
  standing.caller = caller.token != 0 ? caller.token : std::hash<std::string>{}(caller.who);
  return standing;
}

// Whether the caller has proven to be an agent, and no more than that.
[[nodiscard]] inline bool is_agent(const service::Caller& caller) noexcept {
  return caller.known && caller.role == state::Role::kAgent;
}

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

// The body of an answer that says what went wrong; returns its content type.
struct Failure {
  int status = 0;
  std::string_view code;
  std::string_view message;
};
std::string_view append_failure(const Failure& failure, bool problem_json, std::string& body);
inline constexpr std::string_view kBearerChallenge = "WWW-Authenticate: Bearer realm=\"headgate\"\r\n";  // with 401
// {"error","message"}, or the same as application/problem+json if the request would rather have that.
void send_error(const net::HttpRequest& request, net::HttpReply& reply, int status, std::string_view code,
                std::string_view message, std::string_view headers = {});
void refuse(const net::HttpRequest& request, net::HttpReply& reply, const service::Refusal& refusal,
            std::string_view headers = {});
[[nodiscard]] bool wants_problem_json(const net::HttpRequest& request) noexcept;
[[nodiscard]] std::string_view title_of(int status) noexcept;  // "Bad Request"
// What an error of a lower layer is answered with.
struct StatusAndCode {
  int status = 0;
  std::string_view code;
};
[[nodiscard]] StatusAndCode answer_to(const Error& error) noexcept;

// A body as an object with no other fields than these; nullopt: it has been answered with 400.
[[nodiscard]] std::optional<Json> body_of(const Call& call, std::span<const std::string_view> fields);
// Epoch milliseconds, or a span's, rounded down.
[[nodiscard]] constexpr std::int64_t millis(Nanos time) noexcept { return time.count() / 1'000'000; }
// A whole number from the query, or `otherwise` if there is none; nullopt: it was answered with 400.
struct Range {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
// Whether the query names nothing but these, and can be read; false: answered with 400. What is passed over in silence
// would be taken for a filter that it is not.
[[nodiscard]] bool query_fits(const Call& call, std::span<const std::string_view> names);
[[nodiscard]] std::optional<std::int64_t> query_number(const Call& call, std::string_view name, std::int64_t otherwise,
                                                       Range range);
// Whether text is a name that an agent, policy or token may have; if not, the call has been answered with 400.
[[nodiscard]] bool is_name(const Call& call, std::string_view what, std::string_view text);

// Of what the caller does now, for the audit log.
[[nodiscard]] state::AuditEntry entry_of(const Call& call, std::string action, std::string target);

[[nodiscard]] char lower(char c) noexcept;
[[nodiscard]] bool same_text(std::string_view text, std::string_view lower_case) noexcept;
[[nodiscard]] bool is_json_type(std::string_view content_type) noexcept;
[[nodiscard]] bool is_yaml_type(std::string_view content_type) noexcept;
// The X-Request-Id that came, if it is fit to be repeated.
[[nodiscard]] std::string_view sane_request_id(const net::HttpRequest& request) noexcept;

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
