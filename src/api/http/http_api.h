// The server's HTTP: every endpoint of the contract behind one handler.
//
// Safe for concurrent use. POST /v1/check and /v1/gate allocate nothing for a check that is allowed; everything else is
// for people and schedulers, and takes its time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/gate_trust.h"
#include "net/http.h"
#include "net/io.h"
#include "service/policies.h"
#include "service/service.h"

namespace headgate::api {

// Answers GET /v1/ws: upgrades it, or says why not.
using WebSocketUpgrade = std::function<void(const net::HttpRequest&, net::HttpReply&, const service::Caller&)>;

// How the store that several servers share is doing.
struct SharedStoreFacts {
  bool up = false;
  std::size_t nodes = 0;     // that were heard of lately, this one included
  std::size_t unsent = 0;    // changes made here that the others are yet to hear of
  Units leased_units = 0;    // held here, unused
  std::uint64_t blocks = 0;  // of units, fetched so far
  std::uint64_t asked = 0;   // checks of leased policies that asked the store
  Nanos clock_offset{0};     // the store's clock less ours
};

struct HttpApiOptions {
  // Whether GET /metrics needs no token from a caller on this machine.
  bool metrics_open_on_loopback = true;
  std::vector<std::string> listeners;  // whose connections are counted: "http", "resp", "grpc"
  std::function<net::IoCounts(std::string_view listener)> io_counts;
  // What else must hold for /readyz besides the database; none: nothing.
  std::function<Result<void>()> ready;
  std::function<SharedStoreFacts()> shared_store;  // none: cells are in this process
  Nanos started{0};                                // wall clock; 0: when the handler was made
  std::size_t max_cells = 0;                       // of the engine, for those who look; 0: not told
  WebSocketUpgrade websocket;
  GateTrust gate;
  Nanos gate_max_wait{0};  // how long a check of /v1/gate waits in line at most; 0: it is denied instead
};

class HttpApi : public net::HttpHandler {
 public:
  // About once a second, by one thread: ends the waits of askers who are gone.
  virtual void tick() = 0;
};

// Listens to service.notices (if there are any) for /api/events, /api/alerts, and to keep what the load or a signal
// does to the emergency throttle; so make it before the first event. All of it outlives the handler, and the handler
// must be gone before the engine and the database.
[[nodiscard]] std::unique_ptr<HttpApi> make_http_api(service::Service& service, service::Policies& policies,
                                                     HttpApiOptions options);

}  // namespace headgate::api
