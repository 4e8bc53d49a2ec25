// GET /healthz, GET /readyz: for process supervisors.
#include "api/http/call.h"

#include <nlohmann/json.hpp>
#include "api/http/routes.h"
#include "service/quotas.h"

namespace headgate::api {

void get_health(Call& call) { call.send(Json{{"status", "ok"}}, 200, "Cache-Control: no-store\r\n"); }

void get_ready(Call& call) {
  Json reasons = Json::array();
  // As the database's own thread last saw it: this is open to all, and must not wait for a disk.
  const state::Database::Health health = call.service().database->health();
  if (!health.problem.empty()) reasons.push_back("database: " + health.problem);
  if (call.service().quotas != nullptr) {
    const std::string problem = call.service().quotas->ledger().facts().problem;
    if (!problem.empty()) reasons.push_back("ledger: " + problem);
  }
  if (call.context.options.ready) {
    if (const Result<void> ready = call.context.options.ready(); !ready) reasons.push_back(ready.error().message);
  }
  const bool ready = reasons.empty();
  call.send(Json{{"status", ready ? "ready" : "not_ready"}, {"reasons", std::move(reasons)}}, ready ? 200 : 503,
            "Cache-Control: no-store\r\n");
}

}  // namespace headgate::api
