#include "state/database.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/published.h"
#include "base/utf8.h"
#include "headgate/check.h"
#include "state/pending.h"
#include "state/schema.h"
#include "state/secret.h"
#include "state/token_table.h"

namespace headgate::state {
namespace {

constexpr int kBusyTimeoutMs = 5'000;  // while it is opened
// Later one attempt is given up so soon, and its callers hear that; the change is tried again.
constexpr int kAttemptMs = 1'000;
constexpr std::chrono::seconds kRetryEvery{1};
// Audit entries past the bound are dropped this many at a time, with each new one.
constexpr int kPrunedAtOnce = 100;

Error error_of(const SQLite::Exception& e, const std::string& path) {
  Error error;
  error.code = ErrorCode::kIo;
  switch (e.getErrorCode()) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      error.code = ErrorCode::kCorrupt;
      error.message = fmt::format(
          "{}: is damaged ({}); restore it from a backup, or move its folder away to start afresh", path, e.what());
      return error;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      error.transient = true;
      error.message = fmt::format("{}: is in use by another program ({})", path, e.what());
      return error;
    case SQLITE_FULL:
      error.transient = true;
      error.message = fmt::format("{}: its disk is full; make room, and try again", path);
      return error;
    case SQLITE_IOERR:
      error.transient = true;
      error.message = fmt::format("{}: {}; see that its disk has room and works, then try again", path, e.what());
      return error;
    default: break;
  }
  error.message = fmt::format("{}: {}", path, e.what());
  return error;
}

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

// What is kept of an audit entry's before or after.
std::string bounded(const std::string& json) {
  return json.size() <= kMaxAuditBytes ? json : fmt::format(R"({{"omitted_bytes": {}}})", json.size());
}

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
  SqliteDatabase(std::string path, const DatabaseBounds& bounds)
      : path_(std::move(path)),
        in_memory_(path_ == ":memory:"),
        bounds_(bounds),
        file_(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, kBusyTimeoutMs),
        table_(std::make_unique<const TokenTable>(std::vector<HashedToken>{})) {}
  ~SqliteDatabase() override;
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Before anything else. May throw SQLite::Exception.
  Result<void> prepare(Durability durability);

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
  Result<void> ping() const override;
  Health health() const override;

 private:
  // A token that is good once it is on disk.
  struct Creation {
    HashedToken token;
    std::string secret;
    std::string by;
    Made made;
  };

  // Runs `work` in one transaction and notes how it went, for ping(). REQUIRES: file_mutex_.
  template <class Work>
  Result<void> write(Work work) const {
    try {
      SQLite::Transaction transaction(file_, SQLite::TransactionBehavior::IMMEDIATE);
      work();
      transaction.commit();
      trouble_.reset();
      return {};
    } catch (const SQLite::Exception& e) {
      trouble_ = error_of(e, path_);
      return *trouble_;
    }
  }
  template <class T, class Work>
  Result<T> read(Work work) const {
    // By a connection of its own, since reading need not wait for a writer; what is in memory has one connection only.
    const std::lock_guard guard(in_memory_ ? file_mutex_ : reader_mutex_);
    try {
      return work(in_memory_ ? file_ : *reader_);
    } catch (const SQLite::Exception& e) {
      return error_of(e, path_);
    }
  }
  void load_tokens();
  void load_settings();
  void load_last_version();
  void add_audit(const AuditEntry& entry);
  void add_version(const PolicyVersion& version);
  void put_settings(std::span<const Setting> settings);
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

  const std::string path_;
  const bool in_memory_;
  const DatabaseBounds bounds_;

  std::mutex writing_mutex_;       // what is pending is written by one thread at a time; the first of all
  mutable std::mutex file_mutex_;  // held while the disk is written; guards these two
  mutable SQLite::Database file_;
  mutable std::optional<Error> trouble_;  // why the last write failed, if it did
  mutable std::mutex reader_mutex_;
  mutable std::optional<SQLite::Database> reader_;

  std::mutex trouble_mutex_;  // held while it is told, so that nobody is told after on_trouble({})
  Trouble on_trouble_;

  mutable std::mutex mutex_;  // never held while the disk is waited for; guards all below, and publishing to table_
  std::condition_variable wake_;
  Listener listener_;
  std::map<std::string, std::map<std::string, std::string>, std::less<>> settings_;  // by section, then key
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

Result<void> SqliteDatabase::prepare(Durability durability) {
  file_.exec("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF");
  file_.exec(durability == Durability::kSync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
  if (auto migrated = migrate(file_, path_); !migrated) return migrated;
  file_.exec("PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = 8388608");
  const std::string state = file_.execAndGet("PRAGMA quick_check(1)").getString();
  if (state != "ok") {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: is damaged ({}); restore it from a backup, or move its folder away "
                             "to start afresh",
                             path_, state)};
  }
  load_tokens();
  load_settings();
  load_last_version();
  file_.setBusyTimeout(kAttemptMs);
  if (in_memory_) return {};
  reader_.emplace(path_, SQLite::OPEN_READONLY, kBusyTimeoutMs);
  thread_ = std::thread([this] { serve(); });
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

void SqliteDatabase::load_last_version() {
  SQLite::Statement query(file_, "SELECT seq FROM sqlite_sequence WHERE name = 'policy_version'");
  if (query.executeStep()) last_version_ = query.getColumn(0).getInt64();
}

void SqliteDatabase::load_tokens() {
  std::vector<HashedToken> tokens;
  SQLite::Statement query(file_,
                          "SELECT id, hash, role, agent, user, tenant, plan, name, created, expires FROM token "
                          "ORDER BY created, id");
  while (query.executeStep()) {
    HashedToken next;
    next.token.id = query.getColumn(0).getString();
    const SQLite::Column hash = query.getColumn(1);
    std::memcpy(next.hash.data(), hash.getBlob(), std::min<std::size_t>(next.hash.size(), hash.getBytes()));
    next.token.role = role_of(query.getColumn(2).getString()).value_or(Role::kAgent);
    next.token.agent = query.getColumn(3).getString();
    next.token.user = query.getColumn(4).getString();
    next.token.tenant = query.getColumn(5).getString();
    next.token.plan = query.getColumn(6).getString();
    next.token.name = query.getColumn(7).getString();
    next.token.created = Nanos{query.getColumn(8).getInt64()};
    next.token.expires = Nanos{query.getColumn(9).getInt64()};
    tokens.push_back(std::move(next));
  }
  publish(tokens);
}

void SqliteDatabase::load_settings() {
  SQLite::Statement query(file_, "SELECT section, key, value FROM setting");
  while (query.executeStep()) {
    settings_[query.getColumn(0).getString()][query.getColumn(1).getString()] = query.getColumn(2).getString();
  }
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
  Result<void> written;
  {
    const std::lock_guard guard(file_mutex_);
    written = write([&] {
      if (dropped) {
        SQLite::Statement drop(file_, "DELETE FROM token WHERE expires != 0 AND expires <= ?");
        drop.bind(1, static_cast<std::int64_t>(expiry_.horizon(now).count()));
        drop.exec();
      }
      SQLite::Statement insert(file_, "INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
      insert.bind(1, token.id);
      insert.bind(2, creation.token.hash.data(), static_cast<int>(creation.token.hash.size()));
      insert.bind(3, to_string(token.role));
      insert.bind(4, token.agent);
      insert.bind(5, token.user);
      insert.bind(6, token.tenant);
      insert.bind(7, token.plan);
      insert.bind(8, token.name);
      insert.bind(9, static_cast<std::int64_t>(token.created.count()));
      insert.bind(10, static_cast<std::int64_t>(token.expires.count()));
      insert.exec();
      AuditEntry entry = entry_of(now, creation.by, "token.create", token.id);
      entry.after = token_json(token);
      add_audit(entry);
    });
  }
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

void SqliteDatabase::add_audit(const AuditEntry& entry) {
  SQLite::Statement insert(file_,
                           "INSERT INTO audit (time, who, action, target, before, after) VALUES (?, ?, ?, ?, ?, ?)");
  insert.bind(1, static_cast<std::int64_t>(entry.time.count()));
  insert.bind(2, entry.who);
  insert.bind(3, entry.action);
  insert.bind(4, entry.target);
  insert.bind(5, bounded(entry.before));
  insert.bind(6, bounded(entry.after));
  insert.exec();
  SQLite::Statement prune(file_,
                          "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= ? ORDER BY id LIMIT ?)");
  prune.bind(1, file_.getLastInsertRowid() - static_cast<std::int64_t>(bounds_.audit_entries));
  prune.bind(2, kPrunedAtOnce);
  prune.exec();
}

void SqliteDatabase::put_settings(std::span<const Setting> settings) {
  SQLite::Statement put(file_, "INSERT OR REPLACE INTO setting VALUES (?, ?, ?)");
  SQLite::Statement remove(file_, "DELETE FROM setting WHERE section = ? AND key = ?");
  for (const Setting& setting : settings) {
    SQLite::Statement& statement = setting.value ? put : remove;
    statement.reset();
    statement.bind(1, setting.section);
    statement.bind(2, setting.key);
    if (setting.value) statement.bind(3, *setting.value);
    statement.exec();
  }
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
  if (in_memory_) {
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
  const std::lock_guard guard(file_mutex_);
  return write([&] {
    SQLite::Statement remove(file_, "DELETE FROM token WHERE id = ?");
    for (const std::string& id : changes.revoked) {
      remove.reset();
      remove.bind(1, id);
      remove.exec();
    }
    for (const PolicyVersion& version : changes.versions) add_version(version);
    put_settings(settings);
    if (changes.dropped > 0) {
      AuditEntry entry =
          entry_of(changes.entries.empty() ? Nanos{0} : changes.entries.front().time, "server", "audit.dropped", "");
      entry.after = nlohmann::ordered_json{{"entries", changes.dropped}}.dump();
      add_audit(entry);
    }
    for (const AuditEntry& entry : changes.entries) add_audit(entry);
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
  return read<std::vector<AuditEntry>>([&](SQLite::Database& file) {
    std::vector<AuditEntry> entries;
    SQLite::Statement select(file,
                             "SELECT id, time, who, action, target, before, after FROM audit "
                             "WHERE (?1 <= 0 OR id < ?1) AND substr(action, 1, length(?2)) = ?2 "
                             "ORDER BY id DESC LIMIT ?3");
    select.bind(1, query.before);
    select.bind(2, query.action);
    select.bind(3, static_cast<std::int64_t>(std::min(query.limit, bounds_.audit_entries)));
    while (select.executeStep()) {
      AuditEntry entry;
      entry.id = select.getColumn(0).getInt64();
      entry.time = Nanos{select.getColumn(1).getInt64()};
      entry.who = select.getColumn(2).getString();
      entry.action = select.getColumn(3).getString();
      entry.target = select.getColumn(4).getString();
      entry.before = select.getColumn(5).getString();
      entry.after = select.getColumn(6).getString();
      entries.push_back(std::move(entry));
    }
    return entries;
  });
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

void SqliteDatabase::add_version(const PolicyVersion& version) {
  SQLite::Statement insert(
      file_, "INSERT INTO policy_version (id, time, who, source, note, bytes, text) VALUES (?, ?, ?, ?, ?, ?, ?)");
  insert.bind(1, version.id);
  insert.bind(2, static_cast<std::int64_t>(version.time.count()));
  insert.bind(3, version.who);
  insert.bind(4, version.source);
  insert.bind(5, version.note);
  insert.bind(6, static_cast<std::int64_t>(version.text.size()));
  insert.bind(7, version.text);
  insert.exec();
  SQLite::Statement prune(file_,
                          "DELETE FROM policy_version WHERE id IN (SELECT id FROM ("
                          "SELECT id, row_number() OVER newest AS place, sum(bytes) OVER newest AS bytes "
                          "FROM policy_version WINDOW newest AS (ORDER BY id DESC)) "
                          "WHERE place > ? OR (place > 1 AND bytes > ?))");
  prune.bind(1, static_cast<std::int64_t>(kMostVersions));
  prune.bind(2, static_cast<std::int64_t>(bounds_.version_bytes));
  prune.exec();
}

PolicyVersion version_of(SQLite::Statement& row) {
  PolicyVersion version;
  version.id = row.getColumn(0).getInt64();
  version.time = Nanos{row.getColumn(1).getInt64()};
  version.who = row.getColumn(2).getString();
  version.source = row.getColumn(3).getString();
  version.note = row.getColumn(4).getString();
  return version;
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
  return read<std::vector<PolicyVersion>>([&](SQLite::Database& file) {
    SQLite::Statement select(
        file, "SELECT id, time, who, source, note FROM policy_version WHERE id < ? ORDER BY id DESC LIMIT ?");
    select.bind(1, before);
    select.bind(2, static_cast<std::int64_t>(most - found.size()));
    while (select.executeStep()) found.push_back(version_of(select));
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
  return read<Found>([&](SQLite::Database& file) -> Found {
    SQLite::Statement select(file, "SELECT id, time, who, source, note, text FROM policy_version WHERE id = ?");
    select.bind(1, id);
    if (!select.executeStep()) return std::nullopt;
    PolicyVersion found = version_of(select);
    found.text = select.getColumn(5).getString();
    return found;
  });
}

Result<void> SqliteDatabase::ping() const {
  const std::lock_guard guard(file_mutex_);
  int moved = 0;
  if (sqlite3_file_control(file_.getHandle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0) {
    return Error{ErrorCode::kIo, fmt::format("{}: has been moved or removed while in use", path_)};
  }
  if (trouble_) {
    return write([&] { file_.exec("UPDATE touched SET times = times + 1"); });
  }
  try {
    const SQLite::Transaction begun(file_, SQLite::TransactionBehavior::IMMEDIATE);  // and rolled back
  } catch (const SQLite::Exception& e) {
    return error_of(e, path_);
  }
  return {};
}

// SQLite would make it as the umask has it; its companions then take after it.
Result<void> make_private(const std::string& path) {
  const int made = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (made < 0) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be opened: {}", path, std::strerror(errno))};
  }
  ::close(made);
  return {};
}

}  // namespace

const char* to_string(Role role) noexcept {
  switch (role) {
    case Role::kAgent: return "agent";
    case Role::kGateway: return "gateway";
    case Role::kViewer: return "viewer";
    case Role::kAdmin: return "admin";
  }
  return "unknown";
}

std::optional<Role> role_of(std::string_view text) noexcept {
  for (const Role role : {Role::kAgent, Role::kGateway, Role::kViewer, Role::kAdmin}) {
    if (text == to_string(role)) return role;
  }
  return std::nullopt;
}

// The callback owns what it tells, since it may still be at it when the caller has gone on.
Result<NewToken> Database::create_token(const TokenRequest& request, const std::string& by, Nanos now) {
  const auto told = std::make_shared<std::promise<Result<NewToken>>>();
  create_token(request, by, now, [told](const Result<NewToken>& made) { told->set_value(made); });
  return told->get_future().get();
}

Result<bool> Database::revoke_token(const std::string& id, const std::string& by, Nanos now) {
  const auto told = std::make_shared<std::promise<Result<void>>>();
  if (!revoke_token(id, by, now, [told](const Result<void>& kept) { told->set_value(kept); })) return false;
  if (const Result<void> kept = told->get_future().get(); !kept) return kept.error();
  return true;
}

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
                                                 Durability durability) {
  if (path != ":memory:") {
    if (auto checked = check_header(path); !checked) return checked.error();
    if (auto made = make_private(path); !made) return made.error();
  }
  try {
    auto database = std::make_unique<SqliteDatabase>(path, bounds);
    if (auto prepared = database->prepare(durability); !prepared) return prepared.error();
    return Result<std::unique_ptr<Database>>(std::move(database));
  } catch (const SQLite::Exception& e) {
    return error_of(e, path);
  }
}

}  // namespace headgate::state
