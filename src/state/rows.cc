#include "state/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace headgate::state {
namespace {

// Audit entries past the bound are dropped this many at a time, with each new one.
constexpr int kPrunedAtOnce = 100;

// What is kept of an audit entry's before or after.
std::string bounded(const std::string& json) {
  return json.size() <= kMaxAuditBytes ? json : fmt::format(R"({{"omitted_bytes": {}}})", json.size());
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

}  // namespace

std::vector<HashedToken> read_tokens(SQLite::Database& file) {
  std::vector<HashedToken> tokens;
  SQLite::Statement query(file,
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
  return tokens;
}

void insert_token(SQLite::Database& file, const HashedToken& token) {
  SQLite::Statement insert(file, "INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  const Token& about = token.token;
  insert.bind(1, about.id);
  insert.bind(2, token.hash.data(), static_cast<int>(token.hash.size()));
  insert.bind(3, to_string(about.role));
  insert.bind(4, about.agent);
  insert.bind(5, about.user);
  insert.bind(6, about.tenant);
  insert.bind(7, about.plan);
  insert.bind(8, about.name);
  insert.bind(9, static_cast<std::int64_t>(about.created.count()));
  insert.bind(10, static_cast<std::int64_t>(about.expires.count()));
  insert.exec();
}

void delete_token(SQLite::Database& file, const std::string& id) {
  SQLite::Statement remove(file, "DELETE FROM token WHERE id = ?");
  remove.bind(1, id);
  remove.exec();
}

void delete_tokens_expired_by(SQLite::Database& file, Nanos instant) {
  SQLite::Statement remove(file, "DELETE FROM token WHERE expires != 0 AND expires <= ?");
  remove.bind(1, static_cast<std::int64_t>(instant.count()));
  remove.exec();
}

SettingsBySection read_settings(SQLite::Database& file) {
  SettingsBySection settings;
  SQLite::Statement query(file, "SELECT section, key, value FROM setting");
  while (query.executeStep()) {
    settings[query.getColumn(0).getString()][query.getColumn(1).getString()] = query.getColumn(2).getString();
  }
  return settings;
}

void put_settings(SQLite::Database& file, std::span<const Setting> settings) {
  SQLite::Statement put(file, "INSERT OR REPLACE INTO setting VALUES (?, ?, ?)");
  SQLite::Statement remove(file, "DELETE FROM setting WHERE section = ? AND key = ?");
  for (const Setting& setting : settings) {
    SQLite::Statement& statement = setting.value ? put : remove;
    statement.reset();
    statement.bind(1, setting.section);
    statement.bind(2, setting.key);
    if (setting.value) statement.bind(3, *setting.value);
    statement.exec();
  }
}

void insert_audit(SQLite::Database& file, const AuditEntry& entry, std::size_t most) {
  SQLite::Statement insert(file,
                           "INSERT INTO audit (time, who, action, target, before, after) VALUES (?, ?, ?, ?, ?, ?)");
  insert.bind(1, static_cast<std::int64_t>(entry.time.count()));
  insert.bind(2, entry.who);
  insert.bind(3, entry.action);
  insert.bind(4, entry.target);
  insert.bind(5, bounded(entry.before));
  insert.bind(6, bounded(entry.after));
  insert.exec();
  SQLite::Statement prune(file,
                          "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= ? ORDER BY id LIMIT ?)");
  prune.bind(1, file.getLastInsertRowid() - static_cast<std::int64_t>(most));
  prune.bind(2, kPrunedAtOnce);
  prune.exec();
}

std::vector<AuditEntry> read_audit(SQLite::Database& file, const AuditQuery& query) {
  std::vector<AuditEntry> entries;
  SQLite::Statement select(file,
                           "SELECT id, time, who, action, target, before, after FROM audit "
                           "WHERE (?1 <= 0 OR id < ?1) AND substr(action, 1, length(?2)) = ?2 "
                           "ORDER BY id DESC LIMIT ?3");
  select.bind(1, query.before);
  select.bind(2, query.action);
  select.bind(3, static_cast<std::int64_t>(query.limit));
  while (select.executeStep()) {
    AuditEntry& entry = entries.emplace_back();
    entry.id = select.getColumn(0).getInt64();
    entry.time = Nanos{select.getColumn(1).getInt64()};
    entry.who = select.getColumn(2).getString();
    entry.action = select.getColumn(3).getString();
    entry.target = select.getColumn(4).getString();
    entry.before = select.getColumn(5).getString();
    entry.after = select.getColumn(6).getString();
  }
  return entries;
}

std::int64_t last_version_id(SQLite::Database& file) {
  SQLite::Statement query(file, "SELECT seq FROM sqlite_sequence WHERE name = 'policy_version'");
  return query.executeStep() ? query.getColumn(0).getInt64() : 0;
}

void insert_version(SQLite::Database& file, const PolicyVersion& version, std::size_t most_bytes) {
  SQLite::Statement insert(
      file, "INSERT INTO policy_version (id, time, who, source, note, bytes, text) VALUES (?, ?, ?, ?, ?, ?, ?)");
  insert.bind(1, version.id);
  insert.bind(2, static_cast<std::int64_t>(version.time.count()));
  insert.bind(3, version.who);
  insert.bind(4, version.source);
  insert.bind(5, version.note);
  insert.bind(6, static_cast<std::int64_t>(version.text.size()));
  insert.bind(7, version.text);
  insert.exec();
  SQLite::Statement prune(file,
                          "DELETE FROM policy_version WHERE id IN (SELECT id FROM ("
                          "SELECT id, row_number() OVER newest AS place, sum(bytes) OVER newest AS bytes "
                          "FROM policy_version WINDOW newest AS (ORDER BY id DESC)) "
                          "WHERE place > ? OR (place > 1 AND bytes > ?))");
  prune.bind(1, static_cast<std::int64_t>(kMostVersions));
  prune.bind(2, static_cast<std::int64_t>(most_bytes));
  prune.exec();
}

std::vector<PolicyVersion> read_versions(SQLite::Database& file, std::int64_t before, std::size_t limit) {
  SQLite::Statement select(
      file, "SELECT id, time, who, source, note FROM policy_version WHERE id < ? ORDER BY id DESC LIMIT ?");
  select.bind(1, before);
  select.bind(2, static_cast<std::int64_t>(limit));
  std::vector<PolicyVersion> versions;
  while (select.executeStep()) versions.push_back(version_of(select));
  return versions;
}

std::optional<PolicyVersion> read_version(SQLite::Database& file, std::int64_t id) {
  SQLite::Statement select(file, "SELECT id, time, who, source, note, text FROM policy_version WHERE id = ?");
  select.bind(1, id);
  if (!select.executeStep()) return std::nullopt;
  PolicyVersion found = version_of(select);
  found.text = select.getColumn(5).getString();
  return found;
}

}  // namespace headgate::state
