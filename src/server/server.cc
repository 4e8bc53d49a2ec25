#include "server/server.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "api/grpc/ratelimit_service.h"
#include "api/http/http_api.h"
#include "api/resp/resp_api.h"
#include "api/ws/websocket_api.h"
#include "base/memory_reserve.h"
#include "cluster/membership.h"
#include "net/grpc.h"
#include "net/resp.h"
#include "observe/traffic.h"
#include "server/keeper.h"
#include "server/part_options.h"
#include "server/reload_trigger.h"
#include "service/cell_snapshots.h"
#include "service/policies.h"
#include "service/resource_alerts.h"
#include "service/settings.h"
#include "state/data_folder.h"

namespace headgate::server {
namespace {

using observe::log;
using observe::LogLevel;

// What is left to end unfinished requests with once an allocation has failed.
constexpr std::size_t kMemoryReserve = 16 << 20;

// The parts in the order in which they are made; they are destroyed in the opposite order.
class Running final : public Server {
 public:
  explicit Running(const Config& config) : config_(config) {}
  ~Running() override {
    stop();
    if (cluster_ != nullptr) cluster_->leave();
    if (database_ != nullptr) database_->on_trouble({});
    // Sinks look at the engine and the database, which are destroyed before the notices.
    if (notices_ != nullptr) notices_->flush();
  }

  Result<void> open(const std::vector<InheritedSocket>& inherited) {
    if (Result<void> opened = open_files(); !opened) return opened;
    if (Result<void> made = make_engine(); !made) return made;
    if (Result<void> made = make_services(); !made) return made;
    if (Result<void> restored = restore(); !restored) return restored;
    Result<std::vector<net::Listener>> listeners = make_listeners(
        config_, inherited,
        {.http = [this](const net::Peer& peer,
                        const net::HttpLimits& limits) { return net::make_http_session(*api_, peer, limits); },
         .resp =
             [this](const net::Peer& peer, const net::RespLimits& limits) {
               return net::make_resp_session(api::make_resp_commands(service_, peer), limits);
             },
         .grpc = [this](const net::Peer& peer,
                        const net::GrpcLimits& limits) { return net::make_grpc_session(*ratelimit_, peer, limits); }});
    if (!listeners) return std::move(listeners).error();
    if (Result<void> made = make_api(*listeners); !made) return made;
    if (Result<void> opened = open_sockets(*std::move(listeners)); !opened) return opened;
    start();
    return {};
  }

  [[nodiscard]] std::string address(std::string_view listener) const override { return io_->address(listener); }

  [[nodiscard]] std::string sign_in_link() override {
    return fmt::format("{}://{}/?code={}", config_.tls.enabled() ? "https" : "http", address("http"),
                       access_->new_code());
  }

  void reload(std::string_view why) override {
    const service::Policies::Changed changed = policies_->reload(std::string(why));
    if (changed.ok()) {
      log(LogLevel::kInfo, "policies reloaded", {{"why", why}, {"version", changed.version}});
    } else {
      log(LogLevel::kError, "policies not reloaded; the old ones serve on",
          {{"why", why}, {"problem", changed.text()}});
    }
    if (!config_.tls.enabled()) return;
    if (const Result<void> read = io_->reload_tls(); !read) {
      log(LogLevel::kError, "certificate not reloaded; the old one serves on", {{"problem", read.error().message}});
    }
  }

  void toggle_emergency(std::string_view by) override {
    if (engine_->controls().emergency().active) {
      engine_->controls().emergency_off(std::string(by));
      return;
    }
    const control::EmergencyOrder order{.reason = "SIGUSR1", .by = std::string(by)};
    if (const Result<void> on = engine_->controls().emergency_on(order); !on) {
      log(LogLevel::kError, "emergency throttle not turned on", {{"problem", on.error().message}});
    }
  }

  void stop() override {
    if (stopped_ || io_ == nullptr) return;
    stopped_ = true;
    log(LogLevel::kInfo, "draining", {{"within_ms", config_.drain_within.count() / 1'000'000}});
    reloading_.reset();
    quotas_->stop();  // waiting commands would delay the end otherwise
    io_->stop(config_.drain_within);
    keeper_.reset();
    snapshots_.reset();  // writes the last one
    if (cluster_ != nullptr) cluster_->leave();
    if (const Result<void> kept = ledger_->flush(); !kept) {
      log(LogLevel::kError, "the ledger's last entries were not written", {{"problem", kept.error().message}});
    }
    log(LogLevel::kInfo, "stopped");
  }

 private:
  // ---- make the parts ----

  Result<void> open_files() {
    const Result<std::size_t> room = make_room_for_connections(config_);
    if (!room) return room.error();
    room_for_connections_ = *room;
    base::keep_memory_reserve(kMemoryReserve);
    Result<state::DataFolder> folder = state::DataFolder::open(config_.data);
    if (!folder) return std::move(folder).error();
    folder_.emplace(*std::move(folder));
    if (!folder_->open_mode().empty()) {
      log(LogLevel::kWarn, "other users may look into the data folder; its mode should be 0700",
          {{"data", config_.data}, {"mode", folder_->open_mode()}});
    }
    if (!config_.database.starts_with("sqlite:")) {  // a file of its own may be new
      if (Result<void> there = folder_->check_database(config_.database_path()); !there) return there;
    }
    Result<std::unique_ptr<state::Database>> database =
        state::Database::open(config_.database_path(), {}, config_.durability);
    if (!database) return std::move(database).error();
    database_ = *std::move(database);
    notices_ = std::make_unique<observe::Notices>();
    database_->on_trouble([this](const Error* error) {
      tell(error != nullptr ? "database_down" : "database_up",
           error != nullptr ? "changes are in force, but not kept yet: " + error->message : "changes are kept again");
    });
    return {};
  }

  Result<void> make_engine() {
    engine::EngineOptions options = engine_options(config_);
    options.sink = notices_.get();
    if (config_.store.kind == cluster::StoreKind::kRedis) {
      Result<std::unique_ptr<cluster::Membership>> cluster =
          cluster::Membership::open(config_.store, *database_, *notices_);
      if (!cluster) return std::move(cluster).error();
      cluster_ = *std::move(cluster);
      options.remote = &cluster_->store();
      options.wake = [this] { keeper_->wake(); };
      options.seed = cluster_->seed();
    }
    engine_ = std::make_unique<engine::Engine>(options);
    return {};
  }

  Result<void> make_services() {
    Clock& clock = engine_->clock();
    started_ = clock.wall(clock.now());
    access_ = std::make_unique<service::Access>(
        *database_, service::AccessOptions{.auth = config_.auth, .hosts = config_.hosts}, clock);
    const Result<std::string> token = service::ensure_admin_token(*database_, config_.data, started_);
    if (!token) return token.error();
    service_ = {.engine = engine_.get(),
                .database = database_.get(),
                .access = access_.get(),
                .traffic = &traffic_,
                .notices = notices_.get(),
                .clock = &clock,
                .node = cluster_ == nullptr ? std::string() : cluster_->store().node(),
                .wake = [this] { keeper_->wake(); }};
    resources_.emplace(service_, resource_bounds(config_));
    KeeperOptions keeping;
    keeping.sensors = config_.sensors;
    keeping.memory_limit = config_.process_memory;
    keeping.memory_high = [this](const control::Sensors::OwnMemory& memory) { resources_->memory_high(memory); };
    keeping.every_second = [this](Nanos wall) {
      traffic_.tick(wall);
      api_->tick();
      std::uint64_t shed = 0;
      for (const char* name : {"http", "resp", "grpc"}) shed += io_->counts(name).shed;
      resources_->tick(wall, shed);
    };
    keeper_ = std::make_unique<Keeper>(*engine_, std::move(keeping));
    if (Result<void> made = make_quotas(); !made) return made;
    policies_ = std::make_unique<service::Policies>(service_, config_.policies);
    // Shared cells are not this server's to keep.
    if (cluster_ == nullptr) {
      snapshots_ = std::make_unique<service::CellSnapshots>(*engine_, folder_->file("cells.snapshot"));
    }
    return {};
  }

  Result<void> make_quotas() {
    Result<std::unique_ptr<quota::Ledger>> ledger = open_ledger(config_, [this](const Error* error) {
      tell(error != nullptr ? "ledger_down" : "ledger_up",
           error != nullptr ? error->message : "the ledger is written again");
    });
    if (!ledger) return std::move(ledger).error();
    ledger_ = *std::move(ledger);
    service::QuotasOptions quotas = config_.quotas;
    quotas.kept_for = std::chrono::hours{24} * config_.retention_days;
    quotas_ = std::make_unique<service::Quotas>(service_, *ledger_, std::move(quotas));
    service_.quotas = quotas_.get();
    return {};
  }

  // Policies, cells, settings and quotas as the last run left them, or as the other nodes have them.
  Result<void> restore() {
    if (const service::Policies::Changed changed = policies_->start(); !changed.ok()) {
      return Error{ErrorCode::kInvalidArgument, changed.text()};
    }
    if (snapshots_ != nullptr) snapshots_->restore();
    for (const std::string& problem : service::restore_settings(service_)) {
      log(LogLevel::kError, "a setting could not be restored", {{"problem", problem}});
    }
    const std::string& plan = config_.quotas.book.default_plan;
    if (!quotas_->book().plan(plan)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("quotas.default_plan: there is no plan \"{}\"; make it first, while another is the "
                               "default, with headgate quota or PUT /api/quotas/plans/{}",
                               plan, plan)};
    }
    if (cluster_ != nullptr) {
      cluster_->join(service_, *policies_, *quotas_);
      return {};
    }
    const Result<std::size_t> restored = quotas_->restore();
    if (!restored) return restored.error();
    if (*restored > 0)
      log(LogLevel::kInfo, "quotas restored", {{"users_and_types", static_cast<std::int64_t>(*restored)}});
    return {};
  }

  // ---- connect them to the outside ----

  Result<void> make_api(const std::vector<net::Listener>& listeners) {
    notices_->add(observe::make_log_sink());
    agents_ = std::make_shared<api::AgentRegistry>();
    notices_->add(agents_);
    if (!config_.webhook.url.empty()) {
      Result<std::shared_ptr<observe::WebhookSink>> webhook = observe::make_webhook_sink(config_.webhook);
      if (!webhook) return std::move(webhook).error();
      notices_->add(*std::move(webhook));
    }
    api::HttpApiOptions options;
    for (const net::Listener& listener : listeners) options.listeners.push_back(listener.name);
    options.io_counts = [this](std::string_view name) { return io_->counts(name); };
    options.started = started_;
    if (cluster_ != nullptr) {
      options.ready = [this] { return cluster_->store().ready(); };
      options.shared_store = [this] { return shared_facts(); };
    }
    options.max_cells = config_.max_cells;
    options.gate = api::gate_trust_of(config_.gate_trust);
    options.gate_max_wait = config_.gate_max_wait;
    options.websocket = api::make_websocket_upgrade(service_, agents_, config_.sign_in_within);
    api_ = api::make_http_api(service_, *policies_, std::move(options));
    ratelimit_ = api::make_ratelimit_service(service_);
    if (cluster_ != nullptr) cluster_->store().announce();
    return {};
  }

  [[nodiscard]] api::SharedStoreFacts shared_facts() const {
    const store::redis::LeasedStore::Totals leases = cluster_->store().leases();
    return {.up = cluster_->store().is_up(),
            .nodes = cluster_->nodes(),
            .unsent = cluster_->unsent(),
            .leased_units = leases.units,
            .blocks = leases.blocks,
            .asked = leases.strict,
            .clock_offset = cluster_->store().clock_offset()};
  }

  Result<void> open_sockets(std::vector<net::Listener> listeners) {
    Result<std::unique_ptr<net::Io>> opened =
        net::Io::open(std::move(listeners), io_options(config_, room_for_connections_));
    if (!opened) return std::move(opened).error();
    io_ = *std::move(opened);
    if (!folder_->announce(io_->address("http"))) {
      log(LogLevel::kWarn, "the command line does not find the admin token: the lock cannot be written",
          {{"data", config_.data}});
    }
    return {};
  }

  // ---- start ----

  void start() {
    keeper_->start();
    if (snapshots_ != nullptr) snapshots_->start(config_.snapshot_every);
    io_->start();
    ReloadTrigger::Options options;
    options.paths = config_.policies;
    Result<std::unique_ptr<ReloadThread>> reloading =
        ReloadThread::start(options, [this](ReloadCause cause) { reload(to_string(cause)); });
    if (reloading) {
      reloading_ = *std::move(reloading);
    } else {
      log(LogLevel::kWarn, "policy files are not watched", {{"problem", reloading.error().message}});
    }
  }

  void tell(std::string kind, std::string text) {
    const Clock& clock = SystemClock::shared();
    notices_->tell({.kind = std::move(kind), .time = clock.wall(clock.now()), .text = std::move(text)});
  }

  const Config config_;
  std::size_t room_for_connections_ = 0;  // max_connections, or fewer where open files are limited
  std::optional<state::DataFolder> folder_;
  std::unique_ptr<state::Database> database_;
  observe::Traffic traffic_;
  std::unique_ptr<observe::Notices> notices_;
  std::unique_ptr<cluster::Membership> cluster_;  // nullptr: cells are in this process
  std::unique_ptr<engine::Engine> engine_;
  Nanos started_{0};  // wall clock
  std::unique_ptr<service::Access> access_;
  service::Service service_;
  std::unique_ptr<service::Quotas> quotas_;
  std::unique_ptr<quota::Ledger> ledger_;  // destroyed before the quotas, which hear what came of its last entries
  std::unique_ptr<service::Policies> policies_;
  std::shared_ptr<api::AgentRegistry> agents_;
  std::unique_ptr<api::HttpApi> api_;
  std::unique_ptr<net::GrpcHandler> ratelimit_;
  std::unique_ptr<net::Io> io_;
  std::optional<service::ResourceAlerts> resources_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<service::CellSnapshots> snapshots_;  // nullptr: cells are in Redis
  std::unique_ptr<ReloadThread> reloading_;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const Config& config, const std::vector<InheritedSocket>& inherited) {
  Result<Config> whole = with_store_of_documents(config);
  if (!whole) return std::move(whole).error();
  auto server = std::make_unique<Running>(*whole);
  if (Result<void> opened = server->open(inherited); !opened) return std::move(opened).error();
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace headgate::server
