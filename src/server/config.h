// The server's configuration: defaults, then the file, then HEADGATE_* variables, then flags.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/store_config.h"
#include "headgate/limiter.h"
#include "headgate/result.h"
#include "net/http.h"
#include "net/io.h"
#include "observe/log.h"
#include "observe/notices.h"
#include "service/access.h"
#include "service/quotas.h"

namespace headgate::server {

struct Config {
  std::string listen_http = "127.0.0.1:7070";  // "off": none
  std::string listen_resp = "127.0.0.1:7379";
  std::string listen_grpc = "127.0.0.1:7071";
  std::string data = "./headgate-data";
  std::vector<std::string> policies;  // empty: the built-in tier limits
  int threads = 0;                    // 0: one per core
  service::Auth auth = service::Auth::kLocal;
  std::vector<std::string> hosts;
  std::vector<std::string> gate_trust{"agent"};  // headers that /v1/gate believes: see api::GateTrust
  Nanos gate_max_wait{0};                        // how long a check of /v1/gate waits in line at most; 0: never
  net::TlsFiles tls;
  std::string database = "sqlite";  // under data; or "sqlite:/path/file.db"; or where the ledger is in PostgreSQL
  base::Durability durability = base::Durability::kAsync;
  cluster::StoreConfig store;
  bool store_given = false;  // by file, variable or flag; otherwise a policy document may choose it
  std::size_t max_cells = 10'000'000;
  std::size_t max_caller_cells = 0;     // of those, of limits that callers name; 0: half
  std::size_t max_cells_per_agent = 0;  // of those, made by one agent; 0: a tenth, at least 4,096
  AtCap at_cap = AtCap::kRefuseNew;
  Nanos snapshot_every{std::chrono::minutes{1}};  // 0: only on shutdown
  bool sensors = true;                            // whether this machine's own load is read
  Nanos report_ttl{std::chrono::seconds{60}};     // a reported load is forgotten after so long; 0: never
  observe::LogOptions log;
  observe::WebhookOptions webhook;  // no url: none
  Nanos drain_within{std::chrono::seconds{10}};
  std::size_t max_connections = 20'000;
  std::size_t kept_connections = 128;  // of these; see net::Places
  std::size_t connections_per_address = 2'000;
  std::vector<std::string> kept_for{"127.0.0.0/8", "::1"};
  std::size_t max_buffered = 128 << 20;
  Nanos sign_in_within{std::chrono::seconds{10}};  // with auth: required
  Nanos resp_idle{std::chrono::hours{1}};          // 0: never
  std::size_t max_body = 1 << 20;
  Nanos idle{std::chrono::seconds{75}};
  Nanos request_within{std::chrono::seconds{10}};
  std::size_t process_memory = 0;  // bytes; past 80 % of it there is an alert; 0: what cgroup and machine have
  std::vector<std::string> notes;  // accepted, but worth saying; one line each

  service::QuotasOptions quotas;
  Nanos ledger_interval{std::chrono::milliseconds{100}};
  int retention_days = 90;
  int disk_reserve_percent = 5;

  // Where the database is; with PostgreSQL under data, since only the ledger is shared.
  [[nodiscard]] std::string database_path() const;
  // Where the ledger is: a file of its own beside the database.
  [[nodiscard]] std::string ledger_path() const;
  [[nodiscard]] bool ledger_in_postgres() const noexcept { return database.starts_with("postgres"); }
};

// Where values come from besides the defaults; later ones win.
struct ConfigSources {
  std::string file;                                // empty: none
  std::map<std::string, std::string> environment;  // HEADGATE_LISTEN_HTTP and so on; others are not looked at
  std::map<std::string, std::string> flags;        // "listen.http" → text; lists are separated by commas
};
// Everything wrong with it at once, one line each, with file, line and column where there is one. Files and folders
// that it names must exist, but for data and the database.
[[nodiscard]] Result<Config> read_config(const ConfigSources& sources);
// The configuration with the store that its policy documents ask for, unless it names one itself. Documents that cannot
// be read ask for none here: they are reported when they are loaded.
[[nodiscard]] Result<Config> with_store_of_documents(Config config);
// The HEADGATE_* variables of this process.
[[nodiscard]] std::map<std::string, std::string> headgate_environment();
// Whether the address can be reached from other machines, so that auth must be required. Anything that cannot be read
// counts as such. For sockets that the service manager gives, ask with the address they really have.
[[nodiscard]] bool is_open_address(std::string_view address);
// As a document that read_config() takes, every key with what it does; secrets are left out.
[[nodiscard]] std::string print_config(const Config& config);

}  // namespace headgate::server
