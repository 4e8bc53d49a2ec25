// Every endpoint there is. The OpenAPI document is made from this table, too.
#include <array>

#include "api/call.h"

namespace headgate::api {

std::span<const Route> routes() noexcept {
  using net::Method;
  static constexpr auto kGet = Method::kGet;
  static constexpr auto kPost = Method::kPost;
  static constexpr auto kDelete = Method::kDelete;
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
  };
  return kRoutes;
}

}  // namespace headgate::api
