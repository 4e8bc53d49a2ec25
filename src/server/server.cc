#include "server/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "api/grpc/ratelimit_service.h"
#include "api/http/http_api.h"
#include "api/resp/resp_api.h"
#include "api/ws/websocket_api.h"
#include "base/descriptor.h"
#include "base/memory_reserve.h"
#include "base/repeating.h"
#include "cluster/quota_recovery.h"
#include "cluster/shared_store.h"
#include "cluster/spread.h"
#include "net/grpc.h"
#include "net/resp.h"
#include "observe/traffic.h"
#include "server/keeper.h"
#include "server/watch.h"
#include "service/policies.h"
#include "service/settings.h"

namespace headgate::server {

namespace {

using observe::log;
using observe::LogLevel;

// What is left to end unfinished requests with once an allocation has failed.
constexpr std::size_t kMemoryReserve = 16 << 20;
constexpr Nanos kRecoverEvery = std::chrono::seconds{1};
// Every node that reaches Redis again has made up for the outage after so long: it looks once a second at the latest.
constexpr Nanos kOthersMakeUp = std::chrono::seconds{2};

// Held for as long as the server lives, so that no second one writes to the same folder.
Result<base::Descriptor> lock_data(const std::string& data) {
  const std::string path = data + "/lock";
  base::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() < 0) return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: another server is using this folder; stop it, or give this one a folder "
                             "of its own with --data",
                             data)};
  }
  // The same for those who may only look: the command line sends the admin token of this folder to no other process.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  (void)::fcntl(file.get(), F_OFD_SETLK, &whole);
  return file;
}

// Each connection is an open file, and shells start programs with room for about a thousand. Returns how many
// connections there is room for. It is worth a warning where they are few, or where more were asked for than are usual.
// An Error: the server's own files would leave no connection for the emergency throttle.
Result<std::size_t> make_room_for(std::size_t connections) {
  constexpr std::size_t kFew = 500;
  constexpr std::size_t kFewestFiles = 64;
  constexpr std::size_t kOwnFiles = 256;  // the database, the snapshot, policies, sockets that listen
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return connections;
  const rlim_t wanted = connections + kOwnFiles;
  if (files.rlim_cur >= wanted) return connections;
  files.rlim_cur = std::min<rlim_t>(wanted, files.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &files);
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= wanted) return connections;
  if (files.rlim_cur < kFewestFiles) {
    return Error{ErrorCode::kIo,
                 fmt::format("open files: needs at least {}, has {}; raise ulimit -n (LimitNOFILE= of a "
                             "systemd unit)",
                             kFewestFiles, static_cast<std::size_t>(files.rlim_cur))};
  }
  const std::size_t room = files.rlim_cur > 2 * kOwnFiles ? files.rlim_cur - kOwnFiles : files.rlim_cur / 2;
  const bool worth_it = room < kFew || connections > Config{}.max_connections;
  log(worth_it ? LogLevel::kWarn : LogLevel::kDebug,
      "fewer connections fit than max_connections allows, since open files are limited; raise ulimit -n",
      {{"connections", static_cast<std::int64_t>(connections)},
       {"room", static_cast<std::int64_t>(room)},
       {"files_needed", static_cast<std::int64_t>(wanted)},
       {"files_allowed", static_cast<std::int64_t>(files.rlim_cur)}});
  return room;
}

// A folder that is made here is closed to others: it holds hashes of tokens and the audit log. One that was there keeps
// its mode, since it may be another program's too; the files in it are closed in either case.
Result<void> make_data(const std::string& data) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(data, error);
  if (error) return Error{ErrorCode::kIo, fmt::format("data {}: {}", data, error.message())};
  if (made && ::chmod(data.c_str(), 0700) != 0) {
    return Error{ErrorCode::kIo, fmt::format("data {}: {}", data, std::strerror(errno))};
  }
  struct stat about {};
  if (!made && ::stat(data.c_str(), &about) == 0 && (about.st_mode & 077) != 0) {
    log(LogLevel::kWarn, "other users may look into the data folder; its mode should be 0700",
        {{"data", data}, {"mode", fmt::format("{:04o}", about.st_mode & 07777)}});
  }
  return {};
}

// A database that is missing or empty beside files of an earlier start has been lost: to go on without it would forget
// tokens, overrides and policies without a word.
Result<void> check_not_lost(const Config& config) {
  const std::filesystem::path path = config.database_path();
  if (config.database.starts_with("sqlite:")) return {};  // it may be new at a place of its own
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > 0) return {};
  if (!std::filesystem::exists(config.data + "/admin.token", error)) return {};
  return Error{
      ErrorCode::kCorrupt,
      fmt::format("{}: is {}, but admin.token beside it is of an earlier start: put the database back, or move "
                  "all files out of {} to start anew",
                  path.string(), size == 0 ? "empty" : "missing", config.data)};
}

// Everything in the order in which it is made; it goes in the opposite one.
class Running final : public Server {
 public:
  explicit Running(const Config& config) : config_(config) {}
  ~Running() override {
    stop();
    leave_others();
    if (database_ != nullptr) database_->on_trouble({});
    // Those who listen look at the engine and the database, which go before the notices do.
    if (notices_ != nullptr) notices_->flush();
  }

  Result<void> open(const std::vector<InheritedSocket>& inherited) {
    const Result<std::size_t> room = make_room_for(config_.max_connections);
    if (!room) return room.error();
    room_for_connections_ = *room;
    base::keep_memory_reserve(kMemoryReserve);
    if (Result<void> made = make_data(config_.data); !made) return made;
    Result<base::Descriptor> lock = lock_data(config_.data);
    if (!lock) return std::move(lock).error();
    lock_ = std::move(*lock);
    if (Result<void> there = check_not_lost(config_); !there) return there;
    Result<std::unique_ptr<state::Database>> database =
        state::Database::open(config_.database_path(), {}, config_.durability);
    if (!database) return std::move(database).error();
    database_ = std::move(*database);

    notices_ = std::make_unique<observe::Notices>();
    database_->on_trouble([this](const Error* error) {
      tell(error != nullptr ? "database_down" : "database_up",
           error != nullptr ? "changes are in force, but not kept yet: " + error->message : "changes are kept again");
    });
    engine::EngineOptions options;
    if (config_.store.kind == cluster::StoreKind::kRedis) {
      Result<std::uint64_t> seed = open_shared();
      if (!seed) return std::move(seed).error();
      options.remote = shared_.get();
      options.wake = [this] { keeper_->wake(); };
      options.seed = seed_ = *seed;
    }
    options.max_cells = config_.max_cells;
    options.max_caller_cells = config_.max_caller_cells;
    options.max_cells_per_agent = config_.max_cells_per_agent;
    options.at_cap = config_.at_cap;
    options.sink = notices_.get();
    options.report_ttl = config_.report_ttl;
    engine_ = std::make_unique<engine::Engine>(options);
    clock_ = &engine_->clock();
    const Nanos wall = clock_->wall(clock_->now());
    access_ = std::make_unique<service::Access>(
        *database_, service::AccessOptions{.auth = config_.auth, .hosts = config_.hosts}, *clock_);
    Result<std::string> token = service::ensure_admin_token(*database_, config_.data, wall);
    if (!token) return std::move(token).error();

    KeeperOptions keeping;
    keeping.sensors = config_.sensors;
    keeping.memory_limit = config_.process_memory;
    keeping.memory_high = [this](const control::Sensors::OwnMemory& memory) { tell_memory(memory); };
    keeping.every_second = [this](Nanos now) {
      traffic_.tick(now);
      api_->tick();
      tell_of_shortage(now);
      watch_cells(now);
      watch_disk();
    };
    keeper_ = std::make_unique<Keeper>(*engine_, std::move(keeping));
    service_ = {.engine = engine_.get(),
                .database = database_.get(),
                .access = access_.get(),
                .traffic = &traffic_,
                .notices = notices_.get(),
                .clock = clock_,
                .node = shared_ == nullptr ? std::string() : shared_->node(),
                .wake = [this] { keeper_->wake(); }};

    if (Result<void> opened = open_ledger(); !opened) return opened;
    policies_ = std::make_unique<service::Policies>(service_, config_.policies);
    if (const service::Policies::Changed changed = policies_->start(); !changed.ok()) {
      return Error{ErrorCode::kInvalidArgument, changed.text()};
    }
    if (shared_ == nullptr) restore_cells();
    for (const std::string& problem : service::restore_settings(service_)) {
      log(LogLevel::kError, "a setting could not be restored", {{"problem", problem}});
    }
    if (Result<void> restored = restore_quotas(); !restored) return restored;
    if (shared_ != nullptr) join_others();
    return listen(inherited, wall);
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
    watch_.reset();
    quotas_->stop();  // or the line would hold up the end
    io_->stop(config_.drain_within);
    keeper_.reset();
    snapshots_.reset();  // writes the last one
    leave_others();
    if (const Result<void> kept = ledger_->flush(); !kept) {
      log(LogLevel::kError, "the ledger's last entries were not written", {{"problem", kept.error().message}});
    }
    log(LogLevel::kInfo, "stopped");
  }

 private:
  void tell(std::string kind, std::string text) {
    observe::Notice notice;
    notice.kind = std::move(kind);
    notice.time = SystemClock::shared().wall(SystemClock::shared().now());
    notice.text = std::move(text);
    notices_->tell(std::move(notice));
  }

  // The seed of all hashes, as every server of this store has it; kept, so that Redis may be away at a later start.
  [[nodiscard]] Result<std::uint64_t> open_shared() {
    Result<std::unique_ptr<cluster::SharedStore>> shared =
        cluster::SharedStore::open(config_.store, *notices_, SystemClock::shared());
    if (!shared) return std::move(shared).error();
    shared_ = *std::move(shared);
    std::uint64_t kept = 0;
    for (const state::Setting& setting : database_->settings("store")) {
      if (setting.key == "seed" && setting.value) kept = std::strtoull(setting.value->c_str(), nullptr, 10);
    }
    constexpr Nanos kPatience = std::chrono::seconds{5};
    constexpr Nanos kLessPatience = std::chrono::seconds{1};
    Result<std::uint64_t> seed = shared_->seed(kept, kept == 0 ? kPatience : kLessPatience);
    if (!seed && kept != 0) {
      log(LogLevel::kWarn, "Redis is away; serving without it until it is back", {{"problem", seed.error().message}});
      return kept;
    }
    if (!seed || *seed == kept) return seed;
    const state::Setting setting{"store", "seed", std::to_string(*seed)};
    state::AuditEntry entry;
    entry.time = SystemClock::shared().wall(SystemClock::shared().now());
    entry.who = "server";
    entry.action = "store.join";
    entry.target = config_.store.prefix;
    if (Result<void> saved = database_->change({&setting, 1}, entry); !saved) return std::move(saved).error();
    return seed;
  }

  void tell_memory(const control::Sensors::OwnMemory& memory) {
    constexpr double kMebibyte = 1 << 20;
    const double share = static_cast<double>(memory.used) / static_cast<double>(memory.limit);
    observe::Notice notice;
    notice.kind = "memory";
    notice.time = clock_->wall(clock_->now());
    notice.text = fmt::format(
        "the server uses {:.0f} of {:.0f} MiB of memory, {:.0f} %; store.max_cells and "
        "limits.connections bound what it needs",
        static_cast<double>(memory.used) / kMebibyte, static_cast<double>(memory.limit) / kMebibyte, 100 * share);
    notice.value = share;
    notices_->tell(std::move(notice));
  }

  Result<void> open_ledger() {
    quota::LedgerOptions options;
    const bool sync = config_.durability == state::Durability::kSync;
    options.durability = sync ? quota::Durability::kSync : quota::Durability::kAsync;
    options.interval = config_.ledger_interval;
    options.retention = std::chrono::hours{24} * config_.retention_days;
    options.on_trouble = [this](const Error* error) {
      tell(error != nullptr ? "ledger_down" : "ledger_up",
           error != nullptr ? error->message : "the ledger is written again");
    };
    Result<std::unique_ptr<quota::Ledger>> ledger = config_.ledger_in_postgres()
                                                        ? quota::Ledger::open_postgres(config_.database, options)
                                                        : quota::Ledger::open_sqlite(config_.ledger_path(), options);
    if (!ledger) return std::move(ledger).error();
    ledger_ = *std::move(ledger);
    service::QuotasOptions quotas = config_.quotas;
    quotas.kept_for = std::chrono::hours{24} * config_.retention_days;
    quotas_ = std::make_unique<service::Quotas>(service_, *ledger_, std::move(quotas));
    service_.quotas = quotas_.get();
    return {};
  }

  Result<void> restore_quotas() {
    const std::string& plan = config_.quotas.book.default_plan;
    if (!quotas_->book().plan(plan)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("quotas.default_plan: there is no plan \"{}\"; make it first, while another is the "
                               "default, with headgate quota or PUT /api/quotas/plans/{}",
                               plan, plan)};
    }
    if (shared_ != nullptr) return {};  // once the others are known: see join_others()
    const Result<std::size_t> restored = quotas_->restore();
    if (!restored) return restored.error();
    if (*restored > 0)
      log(LogLevel::kInfo, "quotas restored", {{"users_and_types", static_cast<std::int64_t>(*restored)}});
    return {};
  }

  void join_others() {
    spread_ = std::make_unique<cluster::Spread>(
        shared_->caller(), service_, *policies_,
        cluster::SpreadOptions{.prefix = config_.store.prefix, .node = shared_->node(), .seed = seed_});
    service_.load_reported = [this](std::optional<double> load) { spread_->load_reported(load); };
    spread_->start();
    recovery_ = std::make_unique<cluster::QuotaRecovery>(
        shared_->caller(), *quotas_,
        cluster::QuotaRecovery::Options{.prefix = config_.store.prefix, .node = shared_->node()});
    if (shared_->is_up()) recovery_->step();
    recovering_ = std::make_unique<base::Repeating>(kRecoverEvery, [this] {
      // What nodes have admitted while Redis was away is in the ledger, too: it must be made up for before what is
      // missing is counted, or it would be charged twice.
      if (shared_->up_for() >= kOthersMakeUp && engine_->cells().arrears().size() == 0) recovery_->step();
    });
    shared_->start([this] {
      if (shared_->is_up() && engine_->cells().arrears().size() > 0) engine_->cells().make_up();
      shared_->stood_in(engine_->cells().stand_ins());
      const double share = config_.store.local_percent > 0 ? config_.store.local_percent / 100.0
                                                           : 1.0 / static_cast<double>(spread_->nodes());
      if (share != local_share_) engine_->controls().set_local_share(local_share_ = share);
    });
  }

  [[nodiscard]] api::SharedStoreFacts shared_facts() const {
    const store::redis::LeasedStore::Totals leases = shared_->leases();
    return {.up = shared_->is_up(),
            .nodes = spread_->nodes(),
            .unsent = spread_->unsent(),
            .leased_units = leases.units,
            .blocks = leases.blocks,
            .asked = leases.strict,
            .clock_offset = shared_->clock_offset()};
  }

  void leave_others() {
    if (shared_ == nullptr) return;
    if (recovery_ != nullptr) recovery_->end();
    recovering_.reset();
    shared_->end_ticks();  // which look at who else is there
    spread_.reset();
    shared_->stop();
  }

  // Tells once that cells run out, and again only after there was room for a while. Callers' own limits have a share.
  void watch_cells(Nanos wall) {
    const std::size_t callers = config_.max_caller_cells == 0 ? config_.max_cells / 2 : config_.max_caller_cells;
    const auto watch = [&](bool& told, std::size_t cells, std::size_t most, const char* what) {
      const double used = static_cast<double>(cells) / static_cast<double>(std::max<std::size_t>(most, 1));
      constexpr double kTellFrom = 0.8;
      constexpr double kOverBelow = 0.7;
      if (used < kOverBelow) told = false;
      if (used < kTellFrom || std::exchange(told, true)) return;
      const std::string text =
          fmt::format("{} of {} {} are in use; at the last one, store.at_cap says what happens", cells, most, what);
      notices_->tell({.kind = "cells_full", .time = wall, .text = text, .value = used});
    };
    watch(cells_told_, engine_->cells().count(), config_.max_cells, "cells (store.max_cells)");
    watch(caller_cells_told_, engine_->own_limits().cells(), callers,
          "cells of limits that callers name (store.max_caller_cells)");
  }

  // Whether executions may still be written: not below the reserve, and again once there is a quarter more than that.
  void watch_disk() {
    if (quotas_ == nullptr || config_.ledger_in_postgres() || config_.disk_reserve_percent == 0) return;
    struct statvfs disk {};
    if (::statvfs(config_.data.c_str(), &disk) != 0 || disk.f_blocks == 0) return;
    const double all = static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize);
    const double left = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    constexpr double kMebibyte = 1 << 20;
    constexpr double kLeast = 256 * kMebibyte;
    const double reserve = std::min(std::max(all * config_.disk_reserve_percent / 100, kLeast), all / 2);
    const bool was_low = quotas_->disk_low();
    const bool low = left < (was_low ? 1.25 * reserve : reserve);
    if (low == was_low) return;
    quotas_->set_disk_low(low);
    tell(low ? "disk_low" : "disk_enough",
         fmt::format("{:.0f} of {:.0f} MiB are free under {}; executions are {}", left / kMebibyte, all / kMebibyte,
                     config_.data,
                     low ? "not recorded below " + fmt::format("{:.0f} MiB", reserve / kMebibyte)
                         : std::string("recorded again")));
  }

  [[nodiscard]] std::string snapshot_path() const { return config_.data + "/cells.snapshot"; }

  void restore_cells() {
    if (!std::filesystem::exists(snapshot_path())) return;
    const Result<std::size_t> restored = engine_->restore(snapshot_path());
    if (restored) {
      log(LogLevel::kInfo, "cells restored", {{"cells", static_cast<std::int64_t>(*restored)}});
      return;
    }
    // Starting empty forgets what was used; not starting would forget the agents. The file is kept for a look at it.
    const std::string kept = snapshot_path() + ".refused";
    std::error_code ignored;
    std::filesystem::rename(snapshot_path(), kept, ignored);
    log(LogLevel::kError, "snapshot refused; starting without cells",
        {{"problem", restored.error().message}, {"kept_as", kept}});
  }

  void save_cells() {
    if (const Result<void> saved = engine_->save(snapshot_path()); !saved) {
      log(LogLevel::kError, "snapshot not written", {{"problem", saved.error().message}});
    }
  }

  Result<void> listen(const std::vector<InheritedSocket>& inherited, Nanos wall) {
    std::vector<net::Listener> listeners;
    const auto add = [&](const char* name, const std::string& address, const char* alpn, net::SessionMaker make) {
      const auto given = std::find_if(inherited.begin(), inherited.end(),
                                      [&](const InheritedSocket& socket) { return socket.name == name; });
      if (address == "off" && given == inherited.end()) return;
      net::Listener& listener = listeners.emplace_back();
      listener.name = name;
      listener.address = address;
      if (given != inherited.end()) {
        listener.inherited = given->descriptor;
        listener.address = given->address;
      }
      listener.tls = config_.tls.enabled();
      listener.alpn = alpn;
      listener.make = std::move(make);
    };
    net::HttpLimits http_limits;
    http_limits.max_body = config_.max_body;
    http_limits.idle = config_.idle;
    // Without auth: required, no connection has to show a token, so there is no time to show it in.
    const Nanos sign_in = config_.auth == service::Auth::kRequired ? config_.sign_in_within : Nanos{0};
    http_limits.sign_in = sign_in;
    add("http", config_.listen_http, "http/1.1",
        [this, http_limits](const net::Peer& peer) { return net::make_http_session(*api_, peer, http_limits); });
    net::RespLimits resp_limits;
    resp_limits.idle = config_.resp_idle;
    resp_limits.sign_in = config_.sign_in_within;
    add("resp", config_.listen_resp, "", [this, resp_limits](const net::Peer& peer) {
      return net::make_resp_session(api::make_resp_commands(service_, peer), resp_limits);
    });
    net::GrpcLimits grpc_limits;
    grpc_limits.sign_in = sign_in;
    add("grpc", config_.listen_grpc, "h2",
        [this, grpc_limits](const net::Peer& peer) { return net::make_grpc_session(*ratelimit_, peer, grpc_limits); });
    for (const InheritedSocket& socket : inherited) {
      if (config_.auth == service::Auth::kRequired || !is_open_address(socket.address)) continue;
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("the socket {} that was given for {} can be reached from other machines: set auth: required",
                      socket.address, socket.name)};
    }
    if (listeners.empty()) {
      return Error{ErrorCode::kInvalidArgument, "listen: at least one of http, resp and grpc must be on"};
    }

    api::HttpApiOptions options;
    for (const net::Listener& listener : listeners) options.listeners.push_back(listener.name);
    options.io_counts = [this](std::string_view name) { return io_->counts(name); };
    options.started = wall;
    if (shared_ != nullptr) {
      options.ready = [this] { return shared_->ready(); };
      options.shared_store = [this] { return shared_facts(); };
    }
    options.max_cells = config_.max_cells;
    options.gate = api::gate_trust_of(config_.gate_trust);
    options.gate_max_wait = config_.gate_max_wait;
    agents_ = std::make_shared<api::AgentRegistry>();
    options.websocket = api::make_websocket_upgrade(service_, agents_, config_.sign_in_within);
    notices_->add(observe::make_log_sink());
    notices_->add(agents_);
    if (!config_.webhook.url.empty()) {
      Result<std::shared_ptr<observe::WebhookSink>> webhook = observe::make_webhook_sink(config_.webhook);
      if (!webhook) return std::move(webhook).error();
      notices_->add(std::move(*webhook));
    }
    api_ = api::make_http_api(service_, *policies_, std::move(options));
    ratelimit_ = api::make_ratelimit_service(service_);
    if (shared_ != nullptr) shared_->announce();

    net::IoOptions io;
    io.threads =
        config_.threads > 0 ? config_.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    io.tls = config_.tls;
    io.places.most = room_for_connections_;
    io.places.kept = config_.kept_connections;
    io.places.per_address = config_.connections_per_address;
    for (const std::string& text : config_.kept_for) {
      if (const Result<net::Network> network = net::parse_network(text)) io.places.kept_for.push_back(*network);
    }
    io.max_buffered = config_.max_buffered;
    io.request_within = config_.request_within;
    Result<std::unique_ptr<net::Io>> opened = net::Io::open(std::move(listeners), io);
    if (!opened) return std::move(opened).error();
    io_ = std::move(*opened);
    const std::string where = io_->address("http") + "\n";
    if (::ftruncate(lock_.get(), 0) != 0 || ::pwrite(lock_.get(), where.data(), where.size(), 0) < 0) {
      log(LogLevel::kWarn, "the command line does not find the admin token: the lock cannot be written",
          {{"data", config_.data}});
    }
    keeper_->start();
    // Shared cells are not this server's to keep.
    if (shared_ == nullptr) {
      snapshots_ = std::make_unique<base::Repeating>(config_.snapshot_every, [this] { save_cells(); });
    }
    io_->start();
    watch_files();
    return {};
  }

  // Connections that were closed for want of memory, told of at most once in ten seconds.
  void tell_of_shortage(Nanos now) {
    constexpr Nanos kTellEvery = std::chrono::seconds{10};
    if (now - shortage_told_ < kTellEvery) return;
    std::uint64_t shed = 0;
    for (const char* name : {"http", "resp", "grpc"}) shed += io_->counts(name).shed;
    const std::uint64_t shortages = base::memory_shortages();
    if (shed == shed_ && shortages == shortages_) return;
    log(LogLevel::kWarn, "memory was short; connections that held unfinished requests were closed",
        {{"closed", static_cast<std::int64_t>(shed - shed_)},
         {"allocations_failed", static_cast<std::int64_t>(shortages - shortages_)}});
    shed_ = shed;
    shortages_ = shortages;
    shortage_told_ = now;
  }

  void watch_files() {
    ReloadTrigger::Options options;
    options.paths = config_.policies;
    Result<std::unique_ptr<ReloadThread>> watch =
        ReloadThread::start(options, [this](ReloadCause cause) { reload(to_string(cause)); });
    if (watch) {
      watch_ = std::move(*watch);
    } else {
      log(LogLevel::kWarn, "policy files are not watched", {{"problem", watch.error().message}});
    }
  }

  const Config config_;
  std::size_t room_for_connections_ = 0;  // max_connections, or fewer where open files are limited
  base::Descriptor lock_;
  std::unique_ptr<state::Database> database_;
  observe::Traffic traffic_;
  std::unique_ptr<observe::Notices> notices_;
  std::unique_ptr<cluster::SharedStore> shared_;  // nullptr: cells are in this process
  std::unique_ptr<engine::Engine> engine_;
  Clock* clock_ = nullptr;
  std::unique_ptr<service::Access> access_;
  service::Service service_;
  std::unique_ptr<service::Quotas> quotas_;
  std::unique_ptr<quota::Ledger> ledger_;  // goes before the quotas, which are to hear what came of its last entries
  std::unique_ptr<service::Policies> policies_;
  std::shared_ptr<api::AgentRegistry> agents_;
  std::unique_ptr<api::HttpApi> api_;
  std::unique_ptr<net::GrpcHandler> ratelimit_;
  std::unique_ptr<net::Io> io_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<base::Repeating> snapshots_;
  std::unique_ptr<ReloadThread> watch_;
  std::unique_ptr<cluster::Spread> spread_;
  std::unique_ptr<cluster::QuotaRecovery> recovery_;
  std::unique_ptr<base::Repeating> recovering_;
  bool cells_told_ = false;  // that they run out; touched by the keeper's thread only
  bool caller_cells_told_ = false;
  std::uint64_t seed_ = 0;  // with a shared store: of all hashes
  double local_share_ = 1;  // of the shared store's thread
  std::uint64_t shed_ = 0;  // the last three: of the keeper's thread
  std::uint64_t shortages_ = 0;
  Nanos shortage_told_{0};
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
