#include "server/config_keys.h"

#include <array>
#include <cctype>

#include "server/config_key_kinds.h"
#include "server/config_special_keys.h"

namespace headgate::server {
namespace {

using namespace std::chrono_literals;

#define HEADGATE_MEMBER(name) ([](auto& config) -> auto& { return config.name; })

std::vector<ConfigKey> make_keys() {
  using observe::LogFormat;
  using observe::LogLevel;
  std::vector<ConfigKey> keys;
  const auto add = [&](ConfigKey key) { keys.push_back(std::move(key)); };

  add(address_key("listen.http", "HTTP, WebSocket and the dashboard.", HEADGATE_MEMBER(listen_http)));
  add(address_key("listen.resp", "The Redis protocol.", HEADGATE_MEMBER(listen_resp)));
  add(address_key("listen.grpc", "gRPC: Envoy's rate limit service.", HEADGATE_MEMBER(listen_grpc)));
  add(text_key("data", "The folder for the database, the snapshot of cells and admin.token. Made if it is not there.",
               HEADGATE_MEMBER(data)));
  add(list_key("policies",
               "Policy files and folders, read together and watched for changes. Empty: the built-in limits per tier.",
               HEADGATE_MEMBER(policies)));
  add(whole_key("threads", "How many threads serve. 0: one per core.", {0, 256}, HEADGATE_MEMBER(threads)));
  add(choice_key<service::Auth>(
      "auth", "local: asking needs no token, managing does; for loopback only. required: every call needs a token.",
      {{"local", service::Auth::kLocal}, {"required", service::Auth::kRequired}}, HEADGATE_MEMBER(auth)));
  add(list_key(
      "hosts",
      "Names that browsers may call this server by, besides localhost and IP addresses, and sites whose pages\n"
      "may ask it: gate.example.com, dash.example.com:8443.",
      HEADGATE_MEMBER(hosts)));
  add(gate_trust_key());
  add(duration_key("gate.max_wait",
                   "The longest wait of a check of /v1/gate, where its policy has behavior queue. 0: it is\n"
                   "denied instead. The timeout of the proxy must be longer, or the gate counts as unreachable there.",
                   {1ms, 10min, true}, HEADGATE_MEMBER(gate_max_wait)));

  add(text_key("tls.cert", "The certificate with its chain, in PEM. Empty: no TLS.", HEADGATE_MEMBER(tls.cert)));
  add(text_key("tls.key", "Its key, in PEM.", HEADGATE_MEMBER(tls.key)));
  add(text_key("tls.client_ca",
               "Clients must have a certificate signed by one of these, in PEM; its common name is the agent where a\n"
               "token is required and none is given. Empty: clients need no certificate.",
               HEADGATE_MEMBER(tls.client_ca)));

  add(choice_key<cluster::StoreKind>(
      "store.kind", "Where cells are kept: memory, in this process; redis, shared by all servers that name the same.",
      {{"memory", cluster::StoreKind::kMemory}, {"redis", cluster::StoreKind::kRedis}}, HEADGATE_MEMBER(store.kind)));
  add(store_url_key());
  add(text_key("store.ca", "With rediss://: certificates of the trusted authorities, in PEM. Empty: the system's.",
               HEADGATE_MEMBER(store.ca)));
  add(text_key("store.cert",
               "With rediss://: the certificate for a Redis that requires one, with its chain, in PEM.\n"
               "Empty: none.",
               HEADGATE_MEMBER(store.cert)));
  add(text_key("store.key", "Its key, in PEM, without a passphrase.", HEADGATE_MEMBER(store.key)));
  add(text_key("store.server_name",
               "With rediss://: the name or address that Redis's certificate must be for. Empty: as in store.url.",
               HEADGATE_MEMBER(store.server_name)));
  add(text_key("store.sentinel_user",
               "With redis+sentinel://: who signs in to the sentinels, with sentinel_password.\n"
               "Empty: the default user.",
               HEADGATE_MEMBER(store.sentinel_user)));
  add(secret_key("store.sentinel_password",
                 "With redis+sentinel://: the sentinels' own password. Empty: that of store.url, if they want one.\n"
                 "Better given as a variable.",
                 HEADGATE_MEMBER(store.sentinel_password)));
  add(text_key("store.prefix", "With redis: what all keys begin with; servers with another prefix share nothing.",
               HEADGATE_MEMBER(store.prefix)));
  add(duration_key("store.deadline", "With redis: how long a check waits for it at most.", {1ms, 10s},
                   HEADGATE_MEMBER(store.deadline)));
  add(text_key("store.node", "With redis: the name of this server for the others. Empty: a random one.",
               HEADGATE_MEMBER(store.node)));
  add(whole_key(
      "store.local_percent",
      "With redis: the part of each limit that this server admits while Redis is unreachable, for policies that\n"
      "say on_store_failure: local. 0: an even share among the servers known.",
      {0, 100}, HEADGATE_MEMBER(store.local_percent)));
  add(whole_key("store.leased_percent",
                "With redis: what part of a limit may be leased, over all servers, for policies that say\n"
                "consistency: leased. It is also by how much those may be exceeded.",
                {1, 100}, HEADGATE_MEMBER(store.leased_percent)));
  add(whole_key("store.max_cells", "How many cells there may be.", {1, 1'000'000'000}, HEADGATE_MEMBER(max_cells)));
  add(whole_key("store.max_caller_cells",
                "How many of them may be of limits that callers name (CL.THROTTLE, a descriptor's own limit); 0: half.",
                {0, 1'000'000'000}, HEADGATE_MEMBER(max_caller_cells)));
  add(whole_key(
      "store.max_cells_per_agent",
      "How many of them the checks of one agent may make (of one address, where no agent is named), so that an\n"
      "agent that makes up sessions, users or resources leaves room for others; 0: a tenth, at least 4096.",
      {0, 1'000'000'000}, HEADGATE_MEMBER(max_cells_per_agent)));
  add(choice_key<AtCap>("store.at_cap",
                        "When there are as many: refuse_new denies keys not seen before, evict_oldest forgets others, "
                        "used-up quotas too.",
                        {{"refuse_new", AtCap::kRefuseNew}, {"evict_oldest", AtCap::kEvictOldest}},
                        HEADGATE_MEMBER(at_cap)));
  add(database_key());
  add(choice_key<base::Durability>(
      "durability",
      "async: what operators set survives a crash of the server; with the machine, its last moments may be lost. Of\n"
      "quota charges a crash may take what came within the last ledger.interval.\n"
      "sync: what operators set, and every quota charge and execution, is on disk before it is answered.",
      {{"async", base::Durability::kAsync}, {"sync", base::Durability::kSync}}, HEADGATE_MEMBER(durability)));
  add(duration_key("ledger.interval",
                   "With durability async: how often the ledger is written, which is what a crash may take.",
                   {1ms, 10s}, HEADGATE_MEMBER(ledger_interval)));
  add(whole_key("ledger.retention_days", "How long executions and usage are kept.", {1, 3'650},
                HEADGATE_MEMBER(retention_days)));
  add(whole_key(
      "ledger.records_per_second",
      "How many executions of one user are recorded a second, on average; a minute's worth may come at once.\n"
      "Further ones are refused (429).",
      {1, 1'000'000}, HEADGATE_MEMBER(quotas.records.per_second)));
  add(whole_key("ledger.records_per_day", "The same for a day of UTC.", {1, 1'000'000'000},
                HEADGATE_MEMBER(quotas.records.per_day)));
  add(whole_key(
      "ledger.token_records_per_second",
      "How many executions are recorded a second with one token that binds no user, and so may name any number of\n"
      "users; a minute's worth may come at once. Further ones are refused (429). Does not hold for admins.",
      {1, 1'000'000}, HEADGATE_MEMBER(quotas.token_records.per_second)));
  add(whole_key("ledger.token_records_per_day", "The same for a day of UTC.", {1, 1'000'000'000},
                HEADGATE_MEMBER(quotas.token_records.per_day)));
  add(whole_key(
      "ledger.reserve_percent",
      "The part of the disk that executions leave free, at least 256 MB or half of a small disk: below it none\n"
      "is recorded (503), so that the emergency throttle and revoked tokens can still be kept. 0: none.",
      {0, 90}, HEADGATE_MEMBER(disk_reserve_percent)));
  add(choice_key<quota::Mode>(
      "quotas.mode",
      "enforce; monitor: no quota refuses, but what would have been refused is counted and reported; off: not even "
      "counted.",
      {{"enforce", quota::Mode::kEnforce}, {"monitor", quota::Mode::kMonitor}, {"off", quota::Mode::kOff}},
      HEADGATE_MEMBER(quotas.book.mode)));
  add(text_key("quotas.default_plan", "The plan of users without one: free, premium, enterprise, or one of your own.",
               HEADGATE_MEMBER(quotas.book.default_plan)));
  add(timezone_key());
  add(choice_key<bool>("quotas.unknown_user", "A user without a rule: default has the default plan, refuse is a 404.",
                       {{"default", false}, {"refuse", true}}, HEADGATE_MEMBER(quotas.book.refuse_unknown_users)));
  add(choice_key<bool>("quotas.unknown_type",
                       "A type of command that the plan does not name: default counts as \"other\", refuse is a 404.",
                       {{"default", false}, {"refuse", true}}, HEADGATE_MEMBER(quotas.book.refuse_unknown_types)));
  add(whole_key("quotas.concurrent",
                "How many commands may run at a time, over all users, times the throttle factor; others are queued,\n"
                "if their client waits. 0: no bound, but none starts while the factor is 0.",
                {0, 1'000'000}, HEADGATE_MEMBER(quotas.queue.concurrent)));
  add(whole_key("quotas.max_waiting", "How many commands may be queued.", {0, 1'000'000},
                HEADGATE_MEMBER(quotas.queue.max_waiting)));
  add(whole_key("quotas.max_waiting_per_user", "How many of one user.", {0, 1'000'000},
                HEADGATE_MEMBER(quotas.queue.max_waiting_per_user)));
  add(choice_key<policy::OnStoreFailure>(
      "quotas.on_store_failure",
      "With store redis, while that is unreachable: local (this server's share of each quota), open or closed.",
      {{"local", policy::OnStoreFailure::kLocal},
       {"open", policy::OnStoreFailure::kOpen},
       {"closed", policy::OnStoreFailure::kClosed}},
      HEADGATE_MEMBER(quotas.on_store_failure)));
  add(duration_key("snapshot.every", "How often cells are written to disk, besides on shutdown. 0: only then.",
                   {1s, 24h, true}, HEADGATE_MEMBER(snapshot_every)));
  add(choice_key<bool>("load.sensors",
                       "Whether the load of this machine, or of the cgroup that the server is confined to, is read. It "
                       "slows and holds up\n"
                       "commands (quotas, headgate run). Limits of policies follow it only where a document says "
                       "adaptive: {sensors: true}.",
                       {{"true", true}, {"false", false}}, HEADGATE_MEMBER(sensors)));
  add(duration_key("load.report_ttl",
                   "A load that is reported (PUT /api/admin/load) is forgotten after so long, and an emergency that it "
                   "caused ends.\n"
                   "0: it stays until it is replaced or deleted.",
                   {1s, 24h * 7, true}, HEADGATE_MEMBER(report_ttl)));

  add(choice_key<LogLevel>("log.level", "debug, info, warn, error or off.",
                           {{"debug", LogLevel::kDebug},
                            {"info", LogLevel::kInfo},
                            {"warn", LogLevel::kWarn},
                            {"error", LogLevel::kError},
                            {"off", LogLevel::kOff}},
                           HEADGATE_MEMBER(log.level)));
  add(choice_key<LogFormat>("log.format", "text for people, json for programs.",
                            {{"text", LogFormat::kText}, {"json", LogFormat::kJson}}, HEADGATE_MEMBER(log.format)));

  add(webhook_url_key());
  add(secret_key("webhook.secret",
                 "Signs each post: X-Headgate-Signature is sha256= and the HMAC-SHA256, in hexadecimal,\n"
                 "of X-Headgate-Timestamp, a dot and the body. Better given as a variable.",
                 HEADGATE_MEMBER(webhook.secret)));
  add(list_key("webhook.kinds",
               "Which notices: escalation, sustained_abuse, emergency, ... Empty: all but those that single checks\n"
               "bring about (violation, exceeded, monitored, warning, lease_expired).",
               HEADGATE_MEMBER(webhook.kinds)));
  add(whole_key("webhook.attempts", "How often a post is tried, with 1s, 2s, 4s, ... between.", {1, 20},
                HEADGATE_MEMBER(webhook.attempts)));
  add(duration_key("webhook.timeout", "How long one attempt may take.", {1ms, 5min}, HEADGATE_MEMBER(webhook.timeout)));

  add(duration_key("drain", "How long open requests are given to end when the server stops.", {0s, 10min},
                   HEADGATE_MEMBER(drain_within)));
  add(whole_key("limits.connections",
                "How many connections may be open at a time. Beyond that a new one replaces the oldest\n"
                "connection that has not shown a token, or is closed at once.",
                {1, 1'000'000}, HEADGATE_MEMBER(max_connections)));
  add(whole_key("limits.kept_connections",
                "How many of these are kept for administrators and for the addresses in kept_for; at most a quarter.\n"
                "Half of them are for administrators alone.",
                {0, 10'000}, HEADGATE_MEMBER(kept_connections)));
  add(kept_for_key());
  add(whole_key("limits.connections_per_address",
                "How many connections one address (of IPv6: one /64) may have; those in kept_for are not counted.\n"
                "0: no such limit.",
                {0, 1'000'000}, HEADGATE_MEMBER(connections_per_address)));
  add(whole_key("limits.buffered",
                "How many bytes unfinished requests and unread answers of all connections may take together; peers\n"
                "without a token have half of it. Beyond that the connection that holds such is closed, over HTTP with "
                "503.",
                {1 << 20, std::int64_t{64} << 30}, HEADGATE_MEMBER(max_buffered)));
  add(whole_key("limits.body", "The longest body of an HTTP request, in bytes.", {1'024, 64 << 20},
                HEADGATE_MEMBER(max_body)));
  add(duration_key("limits.idle", "A connection without a request for so long is closed.", {1s, 1h},
                   HEADGATE_MEMBER(idle)));
  add(duration_key("limits.resp_idle", "The same for the Redis protocol. 0: never.", {1s, 24h * 365, true},
                   HEADGATE_MEMBER(resp_idle)));
  add(duration_key(
      "limits.sign_in",
      "With auth: required, a connection must have shown a token, a browser session or a certificate within this\n"
      "time, or it is closed: by AUTH, identify, or a request over HTTP or gRPC. Pings and health checks do not count.",
      {100ms, 5min}, HEADGATE_MEMBER(sign_in_within)));
  add(duration_key("limits.request", "A request must have come whole within this time of its first byte.",
                   {100ms, 5min}, HEADGATE_MEMBER(request_within)));
  add(whole_key(
      "limits.process_memory",
      "Bytes. When the server's own memory is past 80 % of it there is an alert of kind memory, and again only\n"
      "after it was under 75 %. 0: the memory of the tightest cgroup that it is in, or of the machine.",
      {0, std::int64_t{1} << 50}, HEADGATE_MEMBER(process_memory)));
  return keys;
}

#undef HEADGATE_MEMBER

struct SectionDoc {
  std::string_view name;
  std::string_view doc;
};
constexpr std::array<SectionDoc, 11> kSections{{
    {"listen",
     "Addresses to listen on: host:port (port 0 picks one), [::1]:port, unix:/path, or off for not at all.\n"
     "Any that other machines can reach needs auth: required."},
    {"gate", "Proxies that ask for their clients."},
    {"tls", "TLS, on every listener."},
    {"store", "Cells: what has been used of each limit by each key. max_cells and at_cap are for those in memory."},
    {"ledger", "What users have used and what was run."},
    {"quotas", "Commands: how many each user may run by day, week and month. Plans and rules are set by API or CLI."},
    {"snapshot", "Cells on disk, so that a restart forgets nothing."},
    {"load", "How busy things are: what commands are paced by, and limits may follow."},
    {"log", "The log, on standard error."},
    {"webhook", "Notices by HTTP."},
    {"limits", "Bounds on what one client can use."},
}};

}  // namespace

std::string ConfigKey::section() const {
  const std::size_t dot = path.find('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string ConfigKey::name() const {
  const std::size_t dot = path.find('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

std::string ConfigKey::variable() const {
  std::string name = "HEADGATE_";
  for (const char c : path) name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> kKeys = make_keys();
  return kKeys;
}

std::string_view section_doc(std::string_view section) noexcept {
  for (const SectionDoc& each : kSections) {
    if (each.name == section) return each.doc;
  }
  return {};
}

}  // namespace headgate::server
