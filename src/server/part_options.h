// The options of each part of the server, made from the configuration.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "net/grpc.h"
#include "net/io.h"
#include "net/resp.h"
#include "server/config.h"
#include "server/systemd.h"
#include "service/resource_alerts.h"

namespace headgate::server {

// Without a sink and a remote store.
[[nodiscard]] engine::EngineOptions engine_options(const Config& config);
// `on_trouble` as in LedgerOptions.
[[nodiscard]] Result<std::unique_ptr<quota::Ledger>> open_ledger(const Config& config,
                                                                 std::function<void(const Error*)> on_trouble);
[[nodiscard]] service::ResourceBounds resource_bounds(const Config& config);
// Raises the limit of open files for max_connections. Returns how many fit, and logs if that is fewer.
[[nodiscard]] Result<std::size_t> make_room_for_connections(const Config& config);
// `connections`: as many as open files leave room for.
[[nodiscard]] net::IoOptions io_options(const Config& config, std::size_t connections);

// How the sessions of each protocol are made.
struct SessionMakers {
  template <class Limits>
  using Maker = std::function<std::unique_ptr<net::Session>(const net::Peer&, const Limits&)>;
  Maker<net::HttpLimits> http;
  Maker<net::RespLimits> resp;
  Maker<net::GrpcLimits> grpc;
};
// The listeners that are on, or have a socket from the service manager. An Error: there are none, or a socket can be
// reached from other machines and auth is not required.
[[nodiscard]] Result<std::vector<net::Listener>> make_listeners(const Config& config,
                                                                const std::vector<InheritedSocket>& inherited,
                                                                const SessionMakers& makers);

}  // namespace headgate::server
