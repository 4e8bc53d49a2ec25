#include "server/part_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "net/open_files.h"
#include "observe/log.h"

namespace headgate::server {

engine::EngineOptions engine_options(const Config& config) {
  engine::EngineOptions options;
  options.max_cells = config.max_cells;
  options.max_caller_cells = config.max_caller_cells;
  options.max_cells_per_agent = config.max_cells_per_agent;
  options.at_cap = config.at_cap;
  options.report_ttl = config.report_ttl;
  return options;
}

Result<std::unique_ptr<quota::Ledger>> open_ledger(const Config& config, std::function<void(const Error*)> on_trouble) {
  quota::LedgerOptions options;
  options.durability = config.durability;
  options.interval = config.ledger_interval;
  options.retention = std::chrono::hours{24} * config.retention_days;
  options.on_trouble = std::move(on_trouble);
  return config.ledger_in_postgres() ? quota::Ledger::open_postgres(config.database, options)
                                     : quota::Ledger::open_sqlite(config.ledger_path(), options);
}

service::ResourceBounds resource_bounds(const Config& config) {
  return {.max_cells = config.max_cells,
          .max_caller_cells = config.max_caller_cells,
          .data = config.ledger_in_postgres() ? std::string() : config.data,
          .disk_reserve_percent = config.disk_reserve_percent};
}

Result<std::size_t> make_room_for_connections(const Config& config) {
  constexpr std::size_t kFew = 500;
  const std::size_t wanted = config.max_connections;
  const Result<net::OpenFiles> files = net::make_room_for(wanted);
  if (!files) return files.error();
  if (files->connections >= wanted) return wanted;
  // Worth a warning if they are few, or if more than the default were asked for.
  const bool warn = files->connections < kFew || wanted > Config{}.max_connections;
  observe::log(warn ? observe::LogLevel::kWarn : observe::LogLevel::kDebug,
               "fewer connections fit than max_connections allows, since open files are limited; raise ulimit -n",
               {{"connections", static_cast<std::int64_t>(wanted)},
                {"room", static_cast<std::int64_t>(files->connections)},
                {"files_needed", static_cast<std::int64_t>(files->needed)},
                {"files_allowed", static_cast<std::int64_t>(files->allowed)}});
  return files->connections;
}

net::IoOptions io_options(const Config& config, std::size_t connections) {
  net::IoOptions options;
  options.threads =
      config.threads > 0 ? config.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.tls = config.tls;
  options.places.most = connections;
  options.places.kept = config.kept_connections;
  options.places.per_address = config.connections_per_address;
  for (const std::string& text : config.kept_for) {
    if (const Result<net::Network> network = net::parse_network(text)) options.places.kept_for.push_back(*network);
  }
  options.max_buffered = config.max_buffered;
  options.request_within = config.request_within;
  return options;
}

Result<std::vector<net::Listener>> make_listeners(const Config& config, const std::vector<InheritedSocket>& inherited,
                                                  const SessionMakers& makers) {
  std::vector<net::Listener> listeners;
  const auto add = [&](const char* name, const std::string& address, const char* alpn, net::SessionMaker make) {
    const auto given = std::find_if(inherited.begin(), inherited.end(),
                                    [&](const InheritedSocket& socket) { return socket.name == name; });
    if (address == "off" && given == inherited.end()) return;
    net::Listener& listener = listeners.emplace_back();
    listener.name = name;
    listener.address = given == inherited.end() ? address : given->address;
    if (given != inherited.end()) listener.inherited = given->descriptor;
    listener.tls = config.tls.enabled();
    listener.alpn = alpn;
    listener.make = std::move(make);
  };
  // Without auth: required, no connection has to show a token, so there is no time to show it in.
  const Nanos sign_in = config.auth == service::Auth::kRequired ? config.sign_in_within : Nanos{0};
  net::HttpLimits http;
  http.max_body = config.max_body;
  http.idle = config.idle;
  http.sign_in = sign_in;
  add("http", config.listen_http, "http/1.1",
      [make = makers.http, http](const net::Peer& peer) { return make(peer, http); });
  net::RespLimits resp;
  resp.idle = config.resp_idle;
  resp.sign_in = config.sign_in_within;
  add("resp", config.listen_resp, "", [make = makers.resp, resp](const net::Peer& peer) { return make(peer, resp); });
  net::GrpcLimits grpc;
  grpc.sign_in = sign_in;
  add("grpc", config.listen_grpc, "h2", [make = makers.grpc, grpc](const net::Peer& peer) { return make(peer, grpc); });
  for (const InheritedSocket& socket : inherited) {
    if (config.auth == service::Auth::kRequired || !is_open_address(socket.address)) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the socket {} that was given for {} can be reached from other machines: set auth: required",
                    socket.address, socket.name)};
  }
  if (listeners.empty()) {
    return Error{ErrorCode::kInvalidArgument, "listen: at least one of http, resp and grpc must be on"};
  }
  return listeners;
}

}  // namespace headgate::server
