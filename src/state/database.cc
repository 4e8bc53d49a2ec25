#include "state/database.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/published.h"
#include "base/utf8.h"
#include "headgate/check.h"
#include "state/pending.h"
#include "state/rows.h"
#include "state/secret.h"
#include "state/sqlite_file.h"
#include "state/token_table.h"

namespace headgate::state {
namespace {

constexpr std::chrono::seconds kRetryEvery{1};
Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

std::string token_json(const Token& token) {
  nlohmann::ordered_json json{{"role", to_string(token.role)}};
  if (!token.agent.empty()) json["agent"] = token.agent;
  if (!token.user.empty()) json["user"] = token.user;
  if (!token.tenant.empty()) json["tenant"] = token.tenant;
  if (!token.plan.empty()) json["plan"] = token.plan;
  if (!token.name.empty()) json["name"] = token.name;
  if (token.expires != Nanos{0}) json["expires"] = token.expires.count() / 1'000'000;
  return json.dump();
}

AuditEntry entry_of(Nanos now, const std::string& by, const char* action, const std::string& target) {
  AuditEntry entry;
  entry.time = now;
  entry.who = by;
  entry.action = action;
  entry.target = target;
  return entry;
}

class SqliteDatabase final : public Database {
 public:
  // May throw SQLite::Exception, as may prepare().
  SqliteDatabase(std::string path, const DatabaseBounds& bounds)
      : bounds_(bounds),
        file_(std::move(path)),
        table_(std::make_unique<const TokenTable>(std::vector<HashedToken>{})) {}
  ~SqliteDatabase() override;
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Before anything else.
  Result<void> prepare(base::Durability durability);

  void create_token(const TokenRequest& request, const std::string& by, Nanos now, Made made) override;
  std::optional<Token> identify(std::string_view secret, Nanos now) const override;
  std::vector<Token> tokens() const override;
  bool has_token(std::uint64_t number) const override { return table_.pin()->has(number); }
  bool is_bound(Bound kind, std::string_view name, Nanos now) const override {
    return table_.pin()->is_bound(kind, name, now, expiry_);
  }
  bool revoke_token(const std::string& id, const std::string& by, Nanos now, Kept kept) override;
  void listen(Listener listener) override;
  void on_trouble(Trouble trouble) override;
  void change(std::span<const Setting> settings, const AuditEntry& entry, Kept kept) override;
  void note(std::span<const Setting> settings, Kept kept) override;
  std::vector<Setting> settings(std::string_view section) const override;
  Result<std::vector<AuditEntry>> audit(const AuditQuery& query) const override;
  std::int64_t add_version(const PolicyVersion& version, std::span<const Setting> settings, const AuditEntry& entry,
                           Kept kept) override;
  Result<std::vector<PolicyVersion>> versions(std::size_t limit) const override;
  Result<std::optional<PolicyVersion>> version(std::int64_t id) const override;
  Result<void> ping() const override { return file_.ping(); }
  Health health() const override;

 private:
  // A token that is good once it is on disk.
  struct Creation {
    HashedToken token;
    std::string secret;
    std::string by;
    Made made;
  };

  // Puts them in force. REQUIRES: mutex_.
  void remember(std::span<const Setting> settings);
  // Puts a new table in force. Pins last as long as one look-up, so an old version is always free soon.
  // REQUIRES: mutex_, so that no other is put in force meanwhile.
  void publish(const std::vector<HashedToken>& tokens);
  [[nodiscard]] Result<void> make_room(std::vector<HashedToken>& tokens, Nanos now) const;

  // Has what is pending written by the thread; what is in memory at once.
  void written_soon(std::unique_lock<std::mutex> guard, Kept kept);
  void serve();
  // One attempt at all that is pending, which those who wait for it are told of. False: there was nothing to do.
  bool write_pending();
  [[nodiscard]] Result<void> write_changes(const Pending& changes);
  void create(Creation creation);
  // Notes how the disk does, and tells of a change for the worse or the better.
  void tell_health(const Result<void>& seen);

  const DatabaseBounds bounds_;
  std::mutex writing_mutex_;  // what is pending is written by one thread at a time; locked before all others
  mutable SqliteFile file_;

  std::mutex trouble_mutex_;  // held during the call, so that there is none after on_trouble({})
  Trouble on_trouble_;

  mutable std::mutex mutex_;  // never held while the disk is waited for; guards all below, and publishing to table_
  std::condition_variable wake_;
  Listener listener_;
  SettingsBySection settings_;
  Pending pending_;
  std::vector<Kept> waiting_;  // for the next attempt
  std::vector<Creation> creations_;
  std::int64_t last_version_ = 0;
  std::string problem_;  // empty: none
  bool news_ = false;
  bool ending_ = false;
  base::Published<TokenTable> table_;
  std::thread thread_;  // none: in memory
};

Result<void> SqliteDatabase::prepare(base::Durability durability) {
  if (Result<void> prepared = file_.prepare(durability); !prepared) return prepared;
  file_.start();
  const Result<std::int64_t> last = file_.read<std::int64_t>([this](SQLite::Database& file) {
    publish(read_tokens(file));
    settings_ = read_settings(file);
    return last_version_id(file);
  });
  if (!last) return last.error();
  last_version_ = *last;
  if (!file_.in_memory()) thread_ = std::thread([this] { serve(); });
  return {};
}

SqliteDatabase::~SqliteDatabase() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SqliteDatabase::publish(const std::vector<HashedToken>& tokens) {
  const TokenTable table(tokens);
  std::uint64_t word = (token_version() + 1) << kBoundKinds;
  for (const Bound kind : {Bound::kAgent, Bound::kUser, Bound::kTenant}) {
    if (table.binds_any(kind)) word |= std::uint64_t{1} << static_cast<int>(kind);
  }
  while (!table_.publish(std::make_unique<const TokenTable>(table))) std::this_thread::yield();
  token_word_.store(word, std::memory_order_release);  // after the table: who sees the number finds what it stands for
}

Result<void> SqliteDatabase::make_room(std::vector<HashedToken>& tokens, Nanos now) const {
  if (tokens.size() < bounds_.tokens) return {};
  std::erase_if(tokens, [&](const HashedToken& held) { return has_expired(held.token.expires, now); });
  if (tokens.size() < bounds_.tokens) return {};
  return invalid(fmt::format("there may be at most {} tokens; revoke some first", bounds_.tokens));
}

// What is wrong with it; nullopt: nothing.
std::optional<Error> problem_of(const Database::TokenRequest& request, Nanos now) {
  if (request.name.size() > kMaxTokenNameBytes || !base::is_plain_text(request.name)) {
    return invalid(fmt::format("name must be at most {} bytes of text without control characters, got {} bytes",
                               kMaxTokenNameBytes, request.name.size()));
  }
  const std::pair<const char*, const std::string*> bound[] = {
      {"agent", &request.agent}, {"user", &request.user}, {"tenant", &request.tenant}, {"plan", &request.plan}};
  for (const auto& [kind, value] : bound) {
    if (value->size() > kMaxNameBytes || !base::is_plain_text(*value)) {
      return invalid(fmt::format("{} must be at most {} bytes of text without control characters, got {} bytes", kind,
                                 kMaxNameBytes, value->size()));
    }
    if (!value->empty() && request.role != Role::kAgent && request.role != Role::kGateway) {
      return invalid(
          fmt::format("{} goes with roles agent and gateway only, got role {}", kind, to_string(request.role)));
    }
  }
  if (request.ttl < Nanos{0} || request.ttl > kMaxTime - now) {
    return invalid("a token must expire in the future, or never (0)");
  }
  return std::nullopt;
}

void SqliteDatabase::create_token(const TokenRequest& request, const std::string& by, Nanos now, Made made) {
  if (std::optional<Error> problem = problem_of(request, now)) return made(*std::move(problem));
  Creation creation;
  creation.secret = new_token_secret();
  creation.by = by;
  creation.made = std::move(made);
  creation.token.hash = sha256(creation.secret);
  Token& token = creation.token.token;
  token.id = "tok_" + random_hex(8);
  token.role = request.role;
  token.agent = request.agent;
  token.user = request.user;
  token.tenant = request.tenant;
  token.plan = request.plan;
  token.name = request.name;
  token.created = now;
  token.expires = request.ttl == Nanos{0} ? Nanos{0} : now + request.ttl;
  std::unique_lock guard(mutex_);
  creations_.push_back(std::move(creation));
  written_soon(std::move(guard), {});
}

void SqliteDatabase::create(Creation creation) {
  const Token& token = creation.token.token;
  const Nanos now = token.created;
  bool dropped = false;
  {
    const std::lock_guard guard(mutex_);
    std::vector<HashedToken> tokens = table_.pin()->all();
    const std::size_t before = tokens.size();
    if (auto room = make_room(tokens, now); !room) return creation.made(room.error());
    dropped = tokens.size() != before;
  }
  const Result<void> written = file_.write([&](SQLite::Database& file) {
    if (dropped) delete_tokens_expired_by(file, expiry_.horizon(now));
    insert_token(file, creation.token);
    AuditEntry entry = entry_of(now, creation.by, "token.create", token.id);
    entry.after = token_json(token);
    insert_audit(file, entry, bounds_.audit_entries);
  });
  if (!written) return creation.made(written.error());
  {
    const std::lock_guard guard(mutex_);
    std::vector<HashedToken> tokens = table_.pin()->all();
    if (dropped) (void)make_room(tokens, now);
    tokens.push_back(creation.token);
    publish(tokens);
  }
  creation.made(NewToken{token, creation.secret});
}

std::optional<Token> SqliteDatabase::identify(std::string_view secret, Nanos now) const {
  if (!looks_like_token(secret)) return std::nullopt;
  const Sha256 hash = sha256(secret);
  const auto table = table_.pin();
  const Token* found = table->find(hash);
  if (found == nullptr || has_expired(found->expires, now)) return std::nullopt;
  return *found;
}

std::vector<Token> SqliteDatabase::tokens() const {
  const auto table = table_.pin();
  std::vector<Token> all;
  all.reserve(table->all().size());
  for (const HashedToken& held : table->all()) all.push_back(held.token);
  return all;
}

bool SqliteDatabase::revoke_token(const std::string& id, const std::string& by, Nanos now, Kept kept) {
  std::unique_lock guard(mutex_);
  std::vector<HashedToken> tokens = table_.pin()->all();
  const auto found = std::find_if(tokens.begin(), tokens.end(), [&](const auto& held) { return held.token.id == id; });
  if (found == tokens.end()) return false;
  AuditEntry entry = entry_of(now, by, "token.revoke", id);
  entry.before = token_json(found->token);
  tokens.erase(found);
  publish(tokens);
  pending_.revoked.insert(id);
  pending_.add(std::move(entry));
  written_soon(std::move(guard), std::move(kept));
  return true;
}

void SqliteDatabase::remember(std::span<const Setting> settings) {
  for (const Setting& setting : settings) {
    auto& section = settings_[setting.section];
    if (setting.value) {
      section[setting.key] = *setting.value;
    } else {
      section.erase(setting.key);
    }
  }
  if (listener_ && !settings.empty()) listener_(settings);
}

void SqliteDatabase::listen(Listener listener) {
  const std::lock_guard guard(mutex_);
  listener_ = std::move(listener);
}

void SqliteDatabase::on_trouble(Trouble trouble) {
  const std::lock_guard guard(trouble_mutex_);
  on_trouble_ = std::move(trouble);
}

void SqliteDatabase::change(std::span<const Setting> settings, const AuditEntry& entry, Kept kept) {
  std::unique_lock guard(mutex_);
  remember(settings);
  pending_.add(settings);
  pending_.add(entry);
  written_soon(std::move(guard), std::move(kept));
}

void SqliteDatabase::note(std::span<const Setting> settings, Kept kept) {
  std::unique_lock guard(mutex_);
  remember(settings);
  pending_.add(settings);
  written_soon(std::move(guard), std::move(kept));
}

void SqliteDatabase::written_soon(std::unique_lock<std::mutex> guard, Kept kept) {
  if (kept) waiting_.push_back(std::move(kept));
  news_ = true;
  guard.unlock();
  if (file_.in_memory()) {
    (void)write_pending();
  } else {
    wake_.notify_one();
  }
}

void SqliteDatabase::serve() {
  std::unique_lock guard(mutex_);
  while (!ending_) {
    wake_.wait_for(guard, kRetryEvery, [this] { return ending_ || news_; });
    guard.unlock();
    if (!write_pending()) tell_health(ping());
    guard.lock();
  }
  guard.unlock();
  (void)write_pending();
}

bool SqliteDatabase::write_pending() {
  Pending changes;
  std::vector<Kept> waiting;
  std::vector<Creation> creations;
  std::unique_lock writing(writing_mutex_);
  {
    const std::lock_guard guard(mutex_);
    news_ = false;
    changes = pending_;
    waiting.swap(waiting_);
    creations.swap(creations_);
  }
  if (changes.empty() && waiting.empty() && creations.empty()) return false;
  if (!changes.empty() || !waiting.empty()) {
    const Result<void> written = write_changes(changes);
    if (written) {
      const std::lock_guard guard(mutex_);
      pending_.remove(changes);
    }
    writing.unlock();
    tell_health(written);
    for (const Kept& kept : waiting) kept(written);
  }
  if (writing.owns_lock()) writing.unlock();
  for (Creation& creation : creations) create(std::move(creation));
  return true;
}

Result<void> SqliteDatabase::write_changes(const Pending& changes) {
  std::vector<Setting> settings;
  settings.reserve(changes.settings.size());
  for (const auto& [key, value] : changes.settings) settings.push_back({key.first, key.second, value});
  return file_.write([&](SQLite::Database& file) {
    for (const std::string& id : changes.revoked) delete_token(file, id);
    for (const PolicyVersion& version : changes.versions) insert_version(file, version, bounds_.version_bytes);
    put_settings(file, settings);
    if (changes.dropped > 0) {
      AuditEntry entry =
          entry_of(changes.entries.empty() ? Nanos{0} : changes.entries.front().time, "server", "audit.dropped", "");
      entry.after = nlohmann::ordered_json{{"entries", changes.dropped}}.dump();
      insert_audit(file, entry, bounds_.audit_entries);
    }
    for (const AuditEntry& entry : changes.entries) insert_audit(file, entry, bounds_.audit_entries);
  });
}

void SqliteDatabase::tell_health(const Result<void>& seen) {
  {
    const std::lock_guard guard(mutex_);
    const bool same = seen.has_value() == problem_.empty();
    problem_ = seen ? std::string() : seen.error().message;
    if (same) return;
  }
  const std::lock_guard guard(trouble_mutex_);
  if (on_trouble_) on_trouble_(seen ? nullptr : &seen.error());
}

Database::Health SqliteDatabase::health() const {
  const std::lock_guard guard(mutex_);
  return {problem_, pending_.size()};
}

std::vector<Setting> SqliteDatabase::settings(std::string_view section) const {
  const std::lock_guard guard(mutex_);
  std::vector<Setting> found;
  if (const auto all = settings_.find(section); all != settings_.end()) {
    for (const auto& [key, value] : all->second) found.push_back({all->first, key, value});
  }
  return found;
}

Result<std::vector<AuditEntry>> SqliteDatabase::audit(const AuditQuery& query) const {
  AuditQuery at_most = query;
  at_most.limit = std::min(query.limit, bounds_.audit_entries);
  return file_.read<std::vector<AuditEntry>>([&](SQLite::Database& file) { return read_audit(file, at_most); });
}

std::int64_t SqliteDatabase::add_version(const PolicyVersion& version, std::span<const Setting> settings,
                                         const AuditEntry& entry, Kept kept) {
  std::unique_lock guard(mutex_);
  const std::int64_t id = ++last_version_;
  PolicyVersion numbered = version;
  numbered.id = id;
  pending_.add(std::move(numbered));
  remember(settings);
  pending_.add(settings);
  pending_.add(entry);
  written_soon(std::move(guard), std::move(kept));
  return id;
}

Result<std::vector<PolicyVersion>> SqliteDatabase::versions(std::size_t limit) const {
  const std::size_t most = std::min(limit, kMostVersions);
  std::vector<PolicyVersion> found;
  {
    const std::lock_guard guard(mutex_);
    for (auto next = pending_.versions.rbegin(); next != pending_.versions.rend() && found.size() < most; ++next) {
      found.push_back(*next);
      found.back().text.clear();
    }
  }
  const std::int64_t before = found.empty() ? std::numeric_limits<std::int64_t>::max() : found.back().id;
  return file_.read<std::vector<PolicyVersion>>([&](SQLite::Database& file) {
    std::vector<PolicyVersion> kept = read_versions(file, before, most - found.size());
    std::move(kept.begin(), kept.end(), std::back_inserter(found));
    return std::move(found);
  });
}

Result<std::optional<PolicyVersion>> SqliteDatabase::version(std::int64_t id) const {
  using Found = std::optional<PolicyVersion>;
  {
    const std::lock_guard guard(mutex_);
    for (const PolicyVersion& version : pending_.versions) {
      if (version.id == id) return Found(version);
    }
  }
  return file_.read<Found>([&](SQLite::Database& file) { return read_version(file, id); });
}

}  // namespace

Result<void> Database::change(std::span<const Setting> settings, const AuditEntry& entry) {
  const auto told = std::make_shared<std::promise<Result<void>>>();
  change(settings, entry, [told](const Result<void>& kept) { told->set_value(kept); });
  return told->get_future().get();
}

Result<void> Database::note(std::span<const Setting> settings) {
  const auto told = std::make_shared<std::promise<Result<void>>>();
  note(settings, [told](const Result<void>& kept) { told->set_value(kept); });
  return told->get_future().get();
}

Result<std::int64_t> Database::add_version(const PolicyVersion& version, std::span<const Setting> settings,
                                           const AuditEntry& entry) {
  const auto told = std::make_shared<std::promise<Result<void>>>();
  const std::int64_t id =
      add_version(version, settings, entry, [told](const Result<void>& kept) { told->set_value(kept); });
  if (const Result<void> kept = told->get_future().get(); !kept) return kept.error();
  return id;
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, const DatabaseBounds& bounds,
                                                 base::Durability durability) {
  if (path != ":memory:") {
    if (Result<void> made = SqliteFile::make(path); !made) return std::move(made).error();
  }
  try {
    auto database = std::make_unique<SqliteDatabase>(path, bounds);
    if (Result<void> prepared = database->prepare(durability); !prepared) return std::move(prepared).error();
    return Result<std::unique_ptr<Database>>(std::move(database));
  } catch (const SQLite::Exception& e) {
    return error_of(e, path);
  }
}

}  // namespace headgate::state
