#include "server/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "server/config_keys.h"
#include "support/cells.h"

namespace headgate::server {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  ConfigSources file(std::string_view yaml) {
    path = folder.file("headgate.yaml");
    test::write_bytes(path, yaml);
    ConfigSources sources;
    sources.file = path;
    return sources;
  }
  static Config read(const ConfigSources& sources) {
    auto config = read_config(sources);
    EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
    return config ? *config : Config{};
  }
  // What is wrong, without the path of the file.
  std::string wrong(const ConfigSources& sources) {
    auto config = read_config(sources);
    if (config) return "nothing";
    std::string message = config.error().message;
    for (std::size_t at = message.find(path); !path.empty() && at != std::string::npos; at = message.find(path)) {
      message.replace(at, path.size(), "F");
    }
    return message;
  }
  std::string wrong(std::string_view yaml) { return wrong(file(yaml)); }
  static ConfigSources environment(std::map<std::string, std::string> variables) {
    ConfigSources sources;
    sources.environment = std::move(variables);
    return sources;
  }

  test::TempFolder folder;
  std::string path;
};

TEST_F(ConfigTest, NothingGivenIsTheDefaults) {
  const Config config = read({});
  EXPECT_EQ(config.listen_http, "127.0.0.1:7070");
  EXPECT_EQ(config.listen_resp, "127.0.0.1:7379");
  EXPECT_EQ(config.listen_grpc, "127.0.0.1:7071");
  EXPECT_EQ(config.data, "./headgate-data");
  EXPECT_EQ(config.auth, service::Auth::kLocal);
  EXPECT_EQ(config.database_path(), "./headgate-data/headgate.db");
  EXPECT_TRUE(config.notes.empty());
  EXPECT_EQ(read(file("")).listen_http, "127.0.0.1:7070");
  EXPECT_EQ(read(file("# nothing\n")).listen_http, "127.0.0.1:7070");
  EXPECT_EQ(read(file("listen:\n")).listen_http, "127.0.0.1:7070");
}

TEST_F(ConfigTest, ReadsEveryKey) {
  test::write_bytes(folder.file("pem"), "x");
  const std::string pem = folder.file("pem");
  const Config config = read(
      file("listen: {http: \"0.0.0.0:80\", resp: off, grpc: \"[::1]:0\"}\ndata: /var/lib/headgate\npolicies: [" + pem +
           "]\n"
           "threads: 3\nauth: required\nhosts: [gate.example.com, \"a:1\"]\ntls: {cert: " +
           pem + ", key: " + pem + ", client_ca: " + pem +
           "}\nstore: {kind: memory, max_cells: 1e6, at_cap: evict_oldest}\n"
           "database: sqlite:/x/y.db\nsnapshot: {every: 5m}\nload: {sensors: false, report_ttl: 5s}\nlog: {level: "
           "debug, format: json}\n"
           "webhook: {url: \"https://h/x\", secret: s, kinds: [emergency], attempts: 2, timeout: 500ms}\ndrain: 3s\n"
           "limits: {connections: 5, body: 2048, idle: 10s, request: 2s}\n"));
  EXPECT_EQ(config.listen_http, "0.0.0.0:80");
  EXPECT_EQ(config.listen_resp, "off");
  EXPECT_EQ(config.listen_grpc, "[::1]:0");
  EXPECT_EQ(config.data, "/var/lib/headgate");
  EXPECT_THAT(config.policies, ElementsAre(pem));
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.auth, service::Auth::kRequired);
  EXPECT_THAT(config.hosts, ElementsAre("gate.example.com", "a:1"));
  EXPECT_EQ(config.tls.cert, pem);
  EXPECT_EQ(config.tls.key, pem);
  EXPECT_EQ(config.tls.client_ca, pem);
  EXPECT_EQ(config.max_cells, 1'000'000U);
  EXPECT_EQ(config.at_cap, AtCap::kEvictOldest);
  EXPECT_EQ(config.database_path(), "/x/y.db");
  EXPECT_EQ(config.snapshot_every, 5min);
  EXPECT_FALSE(config.sensors);
  EXPECT_EQ(config.report_ttl, 5s);
  EXPECT_EQ(config.log.level, observe::LogLevel::kDebug);
  EXPECT_EQ(config.log.format, observe::LogFormat::kJson);
  EXPECT_EQ(config.webhook.url, "https://h/x");
  EXPECT_EQ(config.webhook.secret, "s");
  EXPECT_THAT(config.webhook.kinds, ElementsAre("emergency"));
  EXPECT_EQ(config.webhook.attempts, 2);
  EXPECT_EQ(config.webhook.timeout, 500ms);
  EXPECT_EQ(config.drain_within, 3s);
  EXPECT_EQ(config.max_connections, 5U);
  EXPECT_EQ(config.max_body, 2048U);
  EXPECT_EQ(config.idle, 10s);
  EXPECT_EQ(config.request_within, 2s);
}

TEST_F(ConfigTest, VariablesWinOverTheFileAndFlagsOverBoth) {
  ConfigSources sources = file("threads: 1\ndata: a\ndrain: 1s\n");
  sources.environment = {{"HEADGATE_THREADS", "2"}, {"HEADGATE_DATA", "b"}, {"PATH", "/bin"}};
  sources.flags = {{"threads", "3"}};
  const Config config = read(sources);
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.data, "b");
  EXPECT_EQ(config.drain_within, 1s);
}

TEST_F(ConfigTest, ListsInVariablesAreSeparatedByCommas) {
  test::write_bytes(folder.file("a"), "");
  test::write_bytes(folder.file("b"), "");
  const Config config =
      read(environment({{"HEADGATE_POLICIES", folder.file("a") + "," + folder.file("b")}, {"HEADGATE_HOSTS", ""}}));
  EXPECT_THAT(config.policies, ElementsAre(folder.file("a"), folder.file("b")));
  EXPECT_TRUE(config.hosts.empty());
  EXPECT_EQ(wrong(environment({{"HEADGATE_HOSTS", "a,,b"}})),
            "HEADGATE_HOSTS: hosts: must be a list of texts, none of them empty");
}

TEST_F(ConfigTest, EveryKeyHasAVariableOfItsOwn) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) EXPECT_TRUE(names.insert(key.variable()).second) << key.variable();
  for (const char* name :
       {"HEADGATE_LISTEN_HTTP", "HEADGATE_DATA", "HEADGATE_POLICIES", "HEADGATE_THREADS", "HEADGATE_AUTH",
        "HEADGATE_TLS_CERT", "HEADGATE_STORE_MAX_CELLS", "HEADGATE_WEBHOOK_SECRET"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
}

TEST_F(ConfigTest, OtherVariablesAreWorthANoteButThoseOfClientsAreNot) {
  const Config config =
      read(environment({{"HEADGATE_URL", "x"}, {"HEADGATE_TOKEN", "y"}, {"HEADGATE_LISTN_HTTP", "z"}}));
  EXPECT_THAT(config.notes, ElementsAre("HEADGATE_LISTN_HTTP is not a variable that headgate reads, did you mean "
                                        "\"HEADGATE_LISTEN_HTTP\"?"));
}

TEST_F(ConfigTest, UnknownKeysAreRefusedWithTheirPlaceAndWhatWasMeant) {
  EXPECT_EQ(wrong("listn: {http: x}\n"), "F:1:1: unknown key \"listn\", did you mean \"listen\"?");
  EXPECT_EQ(wrong("data: x\nlisten:\n  htp: 1\n"), "F:3:3: unknown key \"listen.htp\", did you mean \"http\"?");
  EXPECT_EQ(wrong("listen.http: \"127.0.0.1:1\"\n"), "F:1:1: unknown key \"listen.http\"");
  EXPECT_EQ(wrong("data: a\ndata: b\n"), "F:2:1: key \"data\" is given twice, first on line 1");
  EXPECT_EQ(wrong("durability: sinc\n"),
            "F:1:13: durability: must be async or sync, got \"sinc\", did you mean \"sync\"?");
}

TEST_F(ConfigTest, TheLedgerMayBeInPostgresWhoseUrlIsNotShown) {
  const Config config = read(file("database: postgres://user:secret@host/db\n"));
  EXPECT_TRUE(config.ledger_in_postgres());
  EXPECT_EQ(config.database_path(), "./headgate-data/headgate.db");
  EXPECT_EQ(print_config(config).find("secret@"), std::string::npos);
  const std::string problem = wrong("database: postgre://user:secret@host/db\n");
  EXPECT_EQ(problem, "F:1:11: database: must be sqlite, sqlite:/path/file.db or postgres://user:password@host/db");
}

TEST_F(ConfigTest, TheLedgerIsAFileBesideTheDatabase) {
  EXPECT_EQ(read(file("data: d\n")).ledger_path(), "d/headgate.ledger.db");
  EXPECT_EQ(read(file("database: sqlite:/x/y.db\n")).ledger_path(), "/x/y.ledger.db");
}

TEST_F(ConfigTest, AQuotasTimeZoneMustExist) {
  EXPECT_EQ(read(file("quotas: {timezone: Europe/Berlin}\n")).quotas.book.timezone, "Europe/Berlin");
  EXPECT_NE(wrong("quotas: {timezone: Europe/Berlim}\n").find("did you mean \"Europe/Berlin\"?"), std::string::npos);
}

TEST_F(ConfigTest, ASharedStoreNeedsAUrlAndAUrlASharedStore) {
  EXPECT_EQ(wrong("store: {kind: redis}\n"), "F:1:15: store.kind: redis needs store.url: redis://host:6379");
  EXPECT_EQ(wrong("store: {url: \"redis://h\"}\n"), "F:1:14: store.url: goes with store.kind: redis, which is not set");
  const Config config = read(file("store: {kind: redis, url: \"redis://:pw@h:1/2\", deadline: 5ms, node: n-1}\n"));
  EXPECT_EQ(config.store.kind, cluster::StoreKind::kRedis);
  EXPECT_EQ(config.store.deadline, 5ms);
  EXPECT_EQ(config.store.node, "n-1");
  EXPECT_EQ(print_config(config).find("pw"), std::string::npos);
}

TEST_F(ConfigTest, TheSharedStoresNamesAreChecked) {
  const std::string url = "store: {kind: redis, url: \"redis://h\", ";
  EXPECT_THAT(wrong(url + "node: \"a b\"}\n"), HasSubstr("store.node: must be at most 64 letters"));
  EXPECT_THAT(wrong(url + "prefix: \"{x}\"}\n"), HasSubstr("store.prefix: must be 1 to 64 letters"));
  EXPECT_THAT(wrong("store: {kind: redis, url: \"rediss://h\", ca: /nowhere/ca}\n"),
              HasSubstr("store.ca: there is no file /nowhere/ca"));
  const std::string bad = wrong("store: {kind: redis, url: \"redis://u:s3cret@:x\"}\n");
  EXPECT_THAT(bad, HasSubstr("store.url: "));
  EXPECT_EQ(bad.find("s3cret"), std::string::npos);
}

TEST_F(ConfigTest, ACertificateForRedisGoesWithItsKeyAndWithTls) {
  const std::string pem = folder.file("pem");
  test::write_bytes(pem, "x");
  const std::string tls = "store: {kind: redis, url: \"rediss+cluster://h\", ";
  const Config config =
      read(file(tls + "ca: " + pem + ", cert: " + pem + ", key: " + pem + ", server_name: redis.internal}\n"));
  EXPECT_EQ(config.store.ca, pem);
  EXPECT_EQ(config.store.cert, pem);
  EXPECT_EQ(config.store.key, pem);
  EXPECT_EQ(config.store.server_name, "redis.internal");
  EXPECT_EQ(wrong(tls + "cert: " + pem + "}\n"), "F:1:55: store.cert: goes with store.key, which is missing");
  EXPECT_EQ(wrong(tls + "key: " + pem + "}\n"), "F:1:54: store.key: goes with store.cert, which is missing");
  EXPECT_EQ(wrong(tls + "cert: " + pem + ", key: /nowhere/key}\n"),
            fmt::format("F:1:{}: store.key: there is no file /nowhere/key", 55 + pem.size() + 7));
  EXPECT_EQ(wrong(tls + "cert: /nowhere/cert, key: " + pem + "}\n"),
            "F:1:55: store.cert: there is no file /nowhere/cert");
  for (const std::string key : {"ca", "cert", "key", "server_name"}) {
    for (const std::string url : {"redis://h", "redis+sentinel://h/main", "unix:///run/redis.sock"}) {
      EXPECT_THAT(wrong("store: {kind: redis, url: \"" + url + "\", " + key + ": " + pem + "}\n"),
                  HasSubstr("store." + key + ": goes with a store.url over TLS, rediss://, and this one is not"));
    }
  }
}

TEST_F(ConfigTest, APasswordOfSentinelsGoesWithSentinelsAndIsNotShown) {
  const std::string sentinels = "store: {kind: redis, url: \"redis+sentinel://:data@h/main\", ";
  const Config config = read(file(sentinels + "sentinel_user: watcher, sentinel_password: s3cret}\n"));
  EXPECT_EQ(config.store.sentinel_user, "watcher");
  EXPECT_EQ(config.store.sentinel_password, "s3cret");
  EXPECT_EQ(print_config(config).find("s3cret"), std::string::npos);
  EXPECT_THAT(print_config(config), HasSubstr("  # sentinel_password is set, and not shown "));
  EXPECT_EQ(read(environment({{"HEADGATE_STORE_KIND", "redis"},
                              {"HEADGATE_STORE_URL", "rediss+sentinel://h/main"},
                              {"HEADGATE_STORE_SENTINEL_PASSWORD", "s3cret"}}))
                .store.sentinel_password,
            "s3cret");
  EXPECT_EQ(wrong(sentinels + "sentinel_user: watcher}\n"),
            "F:1:75: store.sentinel_user: goes with store.sentinel_password, which is missing");
  EXPECT_EQ(wrong(sentinels + "sentinel_password: [s3cret]}\n"),
            "F:1:79: store.sentinel_password: must be text, got something else");
  for (const std::string url : {"redis://h", "rediss+cluster://h"}) {
    const std::string all =
        wrong("store: {kind: redis, url: \"" + url + "\", sentinel_user: u, sentinel_password: s3cret}\n");
    for (const std::string key : {"user", "password"}) {
      EXPECT_THAT(all, HasSubstr("store.sentinel_" + key +
                                 ": goes with a store.url of sentinels, redis+sentinel://, and this one is not"));
    }
    EXPECT_EQ(all.find("s3cret"), std::string::npos);
  }
}

TEST_F(ConfigTest, SaysWhatMustHoldAndWhatCame) {
  EXPECT_EQ(wrong("threads: many\n"), "F:1:10: threads: must be a whole number from 0 to 256, got \"many\"");
  EXPECT_EQ(wrong("threads: 257\n"), "F:1:10: threads: must be a whole number from 0 to 256, got 257");
  EXPECT_EQ(wrong("threads: 1.5\n"), "F:1:10: threads: must be a whole number from 0 to 256, got 1.5");
  EXPECT_EQ(wrong("threads: [1]\n"), "F:1:10: threads: must be a whole number from 0 to 256, got a list");
  EXPECT_EQ(wrong("threads:\n"), "F:1:1: threads must be a single value, got nothing");
  EXPECT_EQ(wrong("auth: requird\n"),
            "F:1:7: auth: must be local or required, got \"requird\", did you mean \"required\"?");
  EXPECT_EQ(wrong("drain: 1h\n"), "F:1:8: drain: must be a duration from 0s to 10m, got \"1h\"");
  EXPECT_EQ(wrong("snapshot: {every: 10ms}\n"),
            "F:1:19: snapshot.every: must be 0 or a duration from 1s to 1d, got \"10ms\"");
  EXPECT_EQ(wrong("listen: {http: 7070}\n"),
            "F:1:16: listen.http: an address must be host:port, [::1]:port or unix:/path, got \"7070\" (the port is "
            "missing)");
  EXPECT_EQ(wrong("listen: x\n"), "F:1:9: listen must be a mapping of keys, got \"x\"");
  EXPECT_EQ(wrong("policies: [[a]]\n"), "F:1:11: policies must be a list of texts, got a list of something else");
  EXPECT_EQ(wrong("- a\n"), "F:1:1: must be a mapping of keys, got a list");
  EXPECT_EQ(wrong("webhook: {url: \"ftp://user:secret@h\"}\n"),
            "F:1:16: webhook.url: must begin with http:// or https://");
  EXPECT_EQ(wrong("webhook: {url: \"http://h\", kinds: [escalaton]}\n"),
            "F:1:35: webhook.kinds: there are no notices of kind \"escalaton\", did you mean \"escalation\"?");
  EXPECT_EQ(wrong("webhook: {secret: [s3cret]}\n"), "F:1:19: webhook.secret: must be text, got something else");
  EXPECT_THAT(wrong("data: [\n"), HasSubstr("cannot be read as YAML or JSON"));
  EXPECT_EQ(wrong(environment({{"HEADGATE_THREADS", "x"}})),
            "HEADGATE_THREADS: threads: must be a whole number from 0 to 256, got \"x\"");
  ConfigSources sources;
  sources.flags = {{"listen.http", "x"}};
  EXPECT_THAT(wrong(sources), HasSubstr("command line: listen.http: an address must be"));
  sources.flags = {{"listen.htp", "x"}};
  EXPECT_EQ(wrong(sources), "command line: unknown key \"listen.htp\", did you mean \"listen.http\"?");
  sources = {};
  sources.file = "/nowhere/headgate.yaml";
  EXPECT_EQ(wrong(sources), "/nowhere/headgate.yaml: there is no such file");
}

TEST_F(ConfigTest, TellsEverythingAtOnce) {
  const std::string all = wrong("threads: x\nauth: y\nnope: 1\n");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2) << all;
  EXPECT_THAT(all, HasSubstr("F:1:10: threads"));
  EXPECT_THAT(all, HasSubstr("F:2:7: auth"));
  EXPECT_THAT(all, HasSubstr("F:3:1: unknown key \"nope\""));
}

TEST_F(ConfigTest, ListeningOpenlyNeedsAuth) {
  for (const char* address : {"0.0.0.0:7070", "[::]:7070", "10.1.2.3:7070", "example.com:7070"}) {
    EXPECT_EQ(wrong(environment({{"HEADGATE_LISTEN_HTTP", address}})),
              std::string("HEADGATE_LISTEN_HTTP: listen.http: other machines can reach ") + address +
                  ", so every call must need a token: set auth: required, or listen on 127.0.0.1");
    EXPECT_EQ(wrong(environment({{"HEADGATE_LISTEN_HTTP", address}, {"HEADGATE_AUTH", "required"}})), "nothing");
  }
  EXPECT_THAT(wrong("listen: {resp: \"0.0.0.0:1\", grpc: \"0.0.0.0:2\"}\n"), HasSubstr("listen.grpc: other machines"));
  for (const char* address : {"127.0.0.1:0", "localhost:1", "[::1]:1", "unix:/tmp/x.sock"}) {
    EXPECT_EQ(wrong(environment({{"HEADGATE_LISTEN_HTTP", address}})), "nothing") << address;
  }
}

TEST_F(ConfigTest, ListenersMustDifferAndOneMustBeOn) {
  EXPECT_EQ(wrong("listen: {http: \"127.0.0.1:1\", resp: \"127.0.0.1:1\"}\n"),
            "F:1:37: listen.resp: must be another address than listen.http, got 127.0.0.1:1 for both");
  EXPECT_EQ(wrong("listen: {http: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}\n"), "nothing");
  EXPECT_EQ(wrong("listen: {http: off, resp: off, grpc: off}\n"),
            "listen: at least one of http, resp and grpc must not be off");
}

TEST_F(ConfigTest, FilesThatAreNamedMustBeThereAndTlsNeedsBoth) {
  test::write_bytes(folder.file("pem"), "x");
  const std::string pem = folder.file("pem");
  EXPECT_EQ(wrong("tls: {cert: " + pem + "}\n"), "F:1:13: tls.cert: goes with tls.key, which is missing");
  EXPECT_EQ(wrong("tls: {key: " + pem + "}\n"), "F:1:12: tls.key: goes with tls.cert, which is missing");
  EXPECT_EQ(wrong("tls: {client_ca: " + pem + "}\n"), "F:1:18: tls.client_ca: goes with tls.cert, which is missing");
  EXPECT_EQ(wrong("tls: {cert: /nowhere/c, key: " + pem + "}\n"), "F:1:13: tls.cert: there is no file /nowhere/c");
  EXPECT_EQ(wrong("policies: [/nowhere/p]\n"), "F:1:11: policies: there is no file /nowhere/p");
}

TEST_F(ConfigTest, SettingsThatDoNothingAreWorthANote) {
  EXPECT_THAT(read(file("webhook: {secret: s}\n")).notes,
              ElementsAre("webhook.secret does nothing without webhook.url"));
}

// Every key with a value that is not its default.
Config unusual(const test::TempFolder& folder) {
  test::write_bytes(folder.file("a \"quoted\" file"), "x");
  const std::string file = folder.file("a \"quoted\" file");
  Config config;
  config.listen_http = "0.0.0.0:1";
  config.listen_resp = "off";
  config.listen_grpc = "unix:/tmp/g.sock";
  config.data = "/d\\x";
  config.policies = {file, file};
  config.threads = 7;
  config.auth = service::Auth::kRequired;
  config.hosts = {"a.example.com"};
  config.tls = {file, file, file};
  config.database = "sqlite:/x.db";
  config.durability = base::Durability::kSync;
  config.store.ca = config.store.cert = config.store.key = file;
  config.store.server_name = "redis.internal";
  config.store.sentinel_user = "u";
  config.store.prefix = "p:";
  config.store.node = "n";
  config.store.deadline = 1s;
  config.store.local_percent = 30;
  config.store.leased_percent = 5;
  config.max_cells = 12;
  config.at_cap = AtCap::kEvictOldest;
  config.snapshot_every = 0s;
  config.sensors = false;
  config.report_ttl = 5s;
  config.process_memory = 1 << 30;
  config.log.level = observe::LogLevel::kOff;
  config.log.format = observe::LogFormat::kJson;
  config.webhook.url = "http://h/";
  config.webhook.kinds = {"reload", "violation"};
  config.webhook.attempts = 1;
  config.webhook.timeout = 1500ms;
  config.drain_within = 0s;
  config.max_connections = 1;
  config.kept_connections = 7;
  config.connections_per_address = 8;
  config.kept_for = {"10.0.0.0/8"};
  config.gate_trust = {"agent", "user"};
  config.gate_max_wait = 150ms;
  config.max_caller_cells = 9;
  config.max_cells_per_agent = 11;
  config.max_buffered = 2 << 20;
  config.sign_in_within = std::chrono::seconds{3};
  config.resp_idle = std::chrono::seconds{4};
  config.max_body = 4096;
  config.idle = 90s;
  config.request_within = 1s;
  config.ledger_interval = 250ms;
  config.retention_days = 30;
  config.disk_reserve_percent = 7;
  config.quotas.records = {.per_second = 3, .per_day = 4};
  config.quotas.token_records = {.per_second = 5, .per_day = 6};
  config.quotas.book.mode = quota::Mode::kMonitor;
  config.quotas.book.default_plan = "premium";
  config.quotas.book.timezone = "Europe/Berlin";
  config.quotas.book.refuse_unknown_users = true;
  config.quotas.book.refuse_unknown_types = true;
  config.quotas.queue.concurrent = 4;
  config.quotas.queue.max_waiting = 50;
  config.quotas.queue.max_waiting_per_user = 5;
  config.quotas.on_store_failure = policy::OnStoreFailure::kClosed;
  return config;
}

TEST_F(ConfigTest, ReadsBackWhatItPrints) {
  const Config config = unusual(folder);
  const std::string printed = print_config(config);
  const Config again = read(file(printed));
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(key.get(again), key.get(config)) << key.path;
    if (key.path == "store.kind" || (key.is_secret && key.is_secret(config))) continue;
    EXPECT_NE(key.get(config), key.get(Config{})) << key.path << " should be unusual";
  }
  EXPECT_EQ(print_config(again), printed);
}

TEST_F(ConfigTest, PrintsNoSecrets) {
  Config config;
  config.webhook.url = "http://h/";
  config.webhook.secret = "s3cret";
  const std::string printed = print_config(config);
  EXPECT_EQ(printed.find("s3cret"), std::string::npos);
  EXPECT_THAT(printed, HasSubstr("  # secret is set, and not shown "));
}

TEST_F(ConfigTest, TheSampleIsWhatTheDefaultsPrint) {
  const std::string sample = HEADGATE_SOURCE_DIR "/packaging/headgate.yaml";
  EXPECT_EQ(test::read_bytes(sample), print_config({}))
      << "packaging/headgate.yaml is out of date: write `headgate serve --print-config` of the defaults there";
  ConfigSources sources;
  sources.file = sample;
  const Config config = read(sources);
  for (const ConfigKey& key : config_keys()) EXPECT_EQ(key.get(config), key.get(Config{})) << key.path;
  EXPECT_TRUE(config.notes.empty());
}

TEST_F(ConfigTest, EveryKeyAndSectionIsDocumented) {
  for (const ConfigKey& key : config_keys()) {
    EXPECT_FALSE(key.doc.empty()) << key.path;
    EXPECT_TRUE(key.section().empty() || !section_doc(key.section()).empty()) << key.section();
  }
  const std::string printed = print_config({});
  for (std::size_t begin = 0; begin < printed.size();) {
    const std::size_t end = printed.find('\n', begin);
    EXPECT_LE(end - begin, 120U) << printed.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST_F(ConfigTest, TheEnvironmentIsThatOfTheProcess) {
  ::setenv("HEADGATE_DRAIN", "2s", 1);
  const auto environment = headgate_environment();
  ::unsetenv("HEADGATE_DRAIN");
  ASSERT_EQ(environment.count("HEADGATE_DRAIN"), 1U);
  EXPECT_EQ(environment.at("HEADGATE_DRAIN"), "2s");
  for (const auto& [name, value] : environment) EXPECT_TRUE(name.starts_with("HEADGATE_")) << name;
}

}  // namespace
}  // namespace headgate::server
