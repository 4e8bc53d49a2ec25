#include "server/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/small_file.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "engine/event.h"
#include "policy/node.h"
#include "policy/reader.h"
#include "server/config_keys.h"
#include "store/redis/url.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has no header for it

namespace headgate::server {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMostProblems = 100;

// Reads all sources into one Config and remembers where each value came from.
class Reader {
 public:
  void read_file(const std::string& file);
  void read_environment(const std::map<std::string, std::string>& environment);
  void read_flags(const std::map<std::string, std::string>& flags);
  void check_whole();
  [[nodiscard]] Result<Config> take() &&;

 private:
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  void problem_with(const std::string& path, const std::string& message) {
    const auto from = origins_.find(path);
    const std::string where = from != origins_.end() ? from->second + ": " : "";
    problem(fmt::format("{}{}: {}", where, path, message));
  }
  void note(std::string text) { config_.notes.push_back(std::move(text)); }
  void set(const ConfigKey& key, const Value& value, std::string origin);
  void set_text(const ConfigKey& key, const std::string& text, std::string origin);

  void read_entry(const policy::Entry& entry, const std::string& section);
  void unknown(const policy::Entry& entry, const std::string& section);
  [[nodiscard]] std::string place(int line, int column) const { return fmt::format("{}:{}:{}", file_, line, column); }

  void check_listeners();
  void check_tls();
  void check_store();
  void check_store_tls();
  void check_sentinels();
  void check_exists(const std::string& path, const std::string& file);
  void check_webhook();

  Config config_;
  std::string file_;
  std::map<std::string, std::string> origins_;  // by path
  std::vector<std::string> problems_;
};

const ConfigKey* find_key(std::string_view path) {
  for (const ConfigKey& key : config_keys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

bool is_section(std::string_view name) {
  return std::any_of(config_keys().begin(), config_keys().end(),
                     [&](const ConfigKey& key) { return key.section() == name; });
}

// The names that may stand in a section, or at the top.
std::vector<std::string> names_in(std::string_view section) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    std::string name = key.section() == section ? key.name() : section.empty() ? key.section() : "";
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

Value value_of(const policy::Node& node, bool& understood) {
  Value value;
  value.shown = policy::shown(node);
  understood = true;
  if (node.is_scalar()) {
    value.items.push_back(node.text);
  } else if (node.is_sequence()) {
    value.list = true;
    for (const policy::Node* item : node.items) {
      understood = understood && item->is_scalar();
      value.items.push_back(item->text);
    }
  } else {
    understood = false;
  }
  return value;
}

void Reader::set(const ConfigKey& key, const Value& value, std::string origin) {
  origins_[key.path] = std::move(origin);
  Value shown = value;
  if (key.is_secret) shown.shown = "something else";
  if (const std::string wrong = key.set(config_, shown); !wrong.empty()) problem_with(key.path, wrong);
}

void Reader::set_text(const ConfigKey& key, const std::string& text, std::string origin) {
  Value value;
  value.shown = '"' + base::shortened(text, 64) + '"';
  if (!key.is_list) {
    value.items.push_back(text);
  } else {
    value.list = true;
    for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      value.items.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  set(key, value, std::move(origin));
}

void Reader::read_file(const std::string& file) {
  file_ = file;
  auto text = base::read_start(file, kMaxFileBytes + 1);
  if (!text) return problem(text.error().message);
  if (!*text) return problem(fmt::format("{}: there is no such file", file));
  if ((*text)->size() > kMaxFileBytes) {
    return problem(fmt::format("{}: must be at most {} bytes long", file, kMaxFileBytes));
  }
  const policy::Tree tree = policy::parse(**text, policy::Expand::kEnvironment);
  for (const policy::Flaw& flaw : tree.flaws) {
    problem(fmt::format("{}: {}", place(flaw.line, flaw.column), flaw.message));
  }
  if (!tree.flaws.empty() || tree.roots.empty()) return;
  const policy::Node& root = *tree.roots.front();
  if (tree.roots.size() > 1) {
    problem(fmt::format("{}: must be one document, got {}", place(root.line, root.column), tree.roots.size()));
  }
  if (root.is_null()) return;
  if (!root.is_mapping()) {
    return problem(
        fmt::format("{}: must be a mapping of keys, got {}", place(root.line, root.column), policy::shown(root)));
  }
  for (const policy::Entry& entry : root.entries) read_entry(entry, "");
}

void Reader::read_entry(const policy::Entry& entry, const std::string& section) {
  const std::string path = section.empty() ? entry.key : section + "." + entry.key;
  const policy::Node& node = *entry.value;
  if (section.empty() && is_section(entry.key)) {
    if (node.is_null()) return;
    if (!node.is_mapping()) {
      return problem(fmt::format("{}: {} must be a mapping of keys, got {}", place(node.line, node.column), entry.key,
                                 policy::shown(node)));
    }
    for (const policy::Entry& inner : node.entries) read_entry(inner, entry.key);
    return;
  }
  const ConfigKey* key = find_key(path);
  if (key == nullptr || key->section() != section) return unknown(entry, section);
  bool understood = false;
  const Value value = value_of(node, understood);
  if (!understood) {
    // The parser has nothing at the place where nothing is.
    const std::string where = node.is_null() ? place(entry.line, entry.column) : place(node.line, node.column);
    return problem(fmt::format("{}: {} must be {}, got {}", where, path,
                               key->is_list ? "a list of texts" : "a single value",
                               node.is_sequence() ? "a list of something else" : policy::shown(node)));
  }
  set(*key, value, place(node.line, node.column));
}

void Reader::unknown(const policy::Entry& entry, const std::string& section) {
  const std::string path = section.empty() ? entry.key : section + "." + entry.key;
  problem(fmt::format("{}: unknown key \"{}\"{}", place(entry.line, entry.column), base::shortened(path, 64),
                      base::did_you_mean(entry.key, names_in(section))));
}

void Reader::read_environment(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) names.push_back(key.variable());
  for (const auto& [name, text] : environment) {
    // These two are for the commands that ask a server.
    if (!name.starts_with("HEADGATE_") || name == "HEADGATE_URL" || name == "HEADGATE_TOKEN") continue;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      note(fmt::format("{} is not a variable that headgate reads{}", base::shortened(name, 64),
                       base::did_you_mean(name, names)));
      continue;
    }
    set_text(config_keys()[static_cast<std::size_t>(found - names.begin())], text, name);
  }
}

void Reader::read_flags(const std::map<std::string, std::string>& flags) {
  std::vector<std::string> paths;
  for (const ConfigKey& key : config_keys()) paths.emplace_back(key.path);
  for (const auto& [path, text] : flags) {
    if (const ConfigKey* key = find_key(path)) {
      set_text(*key, text, "command line");
    } else {
      problem(fmt::format("command line: unknown key \"{}\"{}", base::shortened(path, 64),
                          base::did_you_mean(path, paths)));
    }
  }
}

void Reader::check_listeners() {
  const std::array<std::pair<const char*, const std::string*>, 3> listeners{{{"listen.http", &config_.listen_http},
                                                                             {"listen.resp", &config_.listen_resp},
                                                                             {"listen.grpc", &config_.listen_grpc}}};
  bool any = false;
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    const auto& [path, address] = listeners[i];
    if (*address == "off") continue;
    any = true;
    if (is_open_address(*address) && config_.auth != service::Auth::kRequired) {
      problem_with(path,
                   fmt::format("other machines can reach {}, so every call must need a token: set auth: required, "
                               "or listen on 127.0.0.1",
                               *address));
    }
    const auto parsed = net::parse_address(*address);
    const bool picks_a_port = parsed && parsed->path.empty() && parsed->port == 0;
    for (std::size_t j = 0; j < i; ++j) {
      if (*listeners[j].second == *address && !picks_a_port) {
        problem_with(path,
                     fmt::format("must be another address than {}, got {} for both", listeners[j].first, *address));
      }
    }
  }
  if (!any) problem("listen: at least one of http, resp and grpc must not be off");
}

void Reader::check_exists(const std::string& path, const std::string& file) {
  if (file.empty()) return;
  std::error_code failed;
  if (!std::filesystem::exists(file, failed)) {
    problem_with(path, fmt::format("there is no file {}", base::shortened(file, 200)));
  } else if (::access(file.c_str(), R_OK) != 0) {
    problem_with(path, fmt::format("{} may not be read by this user", base::shortened(file, 200)));
  }
}

void Reader::check_tls() {
  const net::TlsFiles& tls = config_.tls;
  if (tls.cert.empty() && !tls.key.empty()) problem_with("tls.key", "goes with tls.cert, which is missing");
  if (!tls.cert.empty() && tls.key.empty()) problem_with("tls.cert", "goes with tls.key, which is missing");
  if (tls.cert.empty() && !tls.client_ca.empty()) problem_with("tls.client_ca", "goes with tls.cert, which is missing");
  check_exists("tls.cert", tls.cert);
  check_exists("tls.key", tls.key);
  check_exists("tls.client_ca", tls.client_ca);
}

void Reader::check_webhook() {
  const observe::WebhookOptions& webhook = config_.webhook;
  if (webhook.url.empty()) {
    for (const char* path : {"webhook.secret", "webhook.kinds", "webhook.attempts", "webhook.timeout"}) {
      // The sample names them all; only what differs is worth a word.
      const ConfigKey* key = find_key(path);
      if (key->get(config_) != key->get(Config{})) note(fmt::format("{} does nothing without webhook.url", path));
    }
  }
  const std::vector<std::string> known = observe::notice_kinds();
  for (const std::string& kind : webhook.kinds) {
    if (std::find(known.begin(), known.end(), kind) == known.end()) {
      problem_with("webhook.kinds", fmt::format("there are no notices of kind \"{}\"{}", base::shortened(kind, 64),
                                                base::did_you_mean(kind, known)));
    }
  }
}

// Without a URL cells are in memory, and what is said of Redis does no harm.
void Reader::check_store_tls() {
  const cluster::StoreConfig& store = config_.store;
  const std::array<std::pair<const char*, const std::string*>, 4> keys{{{"store.ca", &store.ca},
                                                                        {"store.cert", &store.cert},
                                                                        {"store.key", &store.key},
                                                                        {"store.server_name", &store.server_name}}};
  const auto url = store::redis::parse_url(store.url);
  for (const auto& [path, text] : keys) {
    if (text->empty() || !url || url->tls) continue;
    problem_with(path, "goes with a store.url over TLS, rediss://, and this one is not");
  }
  if (store.cert.empty() && !store.key.empty()) problem_with("store.key", "goes with store.cert, which is missing");
  if (!store.cert.empty() && store.key.empty()) problem_with("store.cert", "goes with store.key, which is missing");
  check_exists("store.ca", store.ca);
  check_exists("store.cert", store.cert);
  check_exists("store.key", store.key);
}

void Reader::check_sentinels() {
  const cluster::StoreConfig& store = config_.store;
  const std::array<std::pair<const char*, const std::string*>, 2> keys{
      {{"store.sentinel_user", &store.sentinel_user}, {"store.sentinel_password", &store.sentinel_password}}};
  const auto url = store::redis::parse_url(store.url);
  if (!url) return;
  for (const auto& [path, text] : keys) {
    if (text->empty() || url->kind == store::redis::Url::Kind::kSentinel) continue;
    problem_with(path, "goes with a store.url of sentinels, redis+sentinel://, and this one is not");
  }
  if (!store.sentinel_user.empty() && store.sentinel_password.empty()) {
    problem_with("store.sentinel_user", "goes with store.sentinel_password, which is missing");
  }
}

void Reader::check_store() {
  const cluster::StoreConfig& store = config_.store;
  if (store.kind == cluster::StoreKind::kRedis && store.url.empty()) {
    problem_with("store.kind", "redis needs store.url: redis://host:6379");
  }
  if (store.kind != cluster::StoreKind::kRedis && !store.url.empty()) {
    problem_with("store.url", "goes with store.kind: redis, which is not set");
  }
  check_store_tls();
  check_sentinels();
  const auto is_name = [](std::string_view text, std::string_view also) {
    return text.size() <= 64 && std::all_of(text.begin(), text.end(), [&](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    also.find(c) != std::string_view::npos;
           });
  };
  if (!is_name(store.node, "._-")) {
    problem_with("store.node", "must be at most 64 letters, digits, dots, dashes or underscores");
  }
  if (store.prefix.empty() || !is_name(store.prefix, "._-:/")) {
    problem_with("store.prefix", "must be 1 to 64 letters, digits, or any of . _ - : /");
  }
}

void Reader::check_whole() {
  check_listeners();
  check_tls();
  check_store();
  for (const std::string& path : config_.policies) check_exists("policies", path);
  if (config_.data.empty()) problem_with("data", "must name a folder");
  check_webhook();
}

Result<Config> Reader::take() && {
  config_.store_given = origins_.contains("store.kind") || origins_.contains("store.url");
  if (problems_.empty()) return std::move(config_);
  std::string all;
  for (std::size_t i = 0; i < std::min(problems_.size(), kMostProblems); ++i) {
    all += (i > 0 ? "\n" : "") + problems_[i];
  }
  if (problems_.size() > kMostProblems) all += fmt::format("\nand {} more", problems_.size() - kMostProblems);
  return Error{ErrorCode::kInvalidArgument, all};
}

}  // namespace

std::string Config::database_path() const {
  constexpr std::string_view kPrefix = "sqlite:";
  return database.starts_with(kPrefix) ? database.substr(kPrefix.size()) : data + "/headgate.db";
}

std::string Config::ledger_path() const {
  std::string path = database_path();
  constexpr std::string_view kSuffix = ".db";
  if (path.ends_with(kSuffix)) path.resize(path.size() - kSuffix.size());
  return path + ".ledger.db";
}

Result<Config> read_config(const ConfigSources& sources) {
  Reader reader;
  if (!sources.file.empty()) reader.read_file(sources.file);
  reader.read_environment(sources.environment);
  reader.read_flags(sources.flags);
  reader.check_whole();
  return std::move(reader).take();
}

Result<Config> with_store_of_documents(Config config) {
  if (config.store_given || config.policies.empty()) return config;
  const policy::ReadResult read = policy::read_paths(config.policies);
  if (!read.ok() || !read.document.store || !read.document.store->redis) return config;
  const policy::StoreWish& wish = *read.document.store;
  if (const auto url = store::redis::parse_url(wish.redis_url); !url) {
    const policy::Place& at = wish.place;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}:{}: redis_url: {}", at.file, at.line, at.column, url.error().message)};
  }
  config.store.kind = cluster::StoreKind::kRedis;
  config.store.url = wish.redis_url;
  return config;
}

std::map<std::string, std::string> headgate_environment() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || !text.starts_with("HEADGATE_")) continue;
    found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

bool is_open_address(std::string_view address) {
  const auto parsed = net::parse_address(address);
  return !parsed || !net::is_loopback(*parsed);
}

}  // namespace headgate::server
