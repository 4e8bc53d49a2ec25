#include "state/schema.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "base/sqlite_header.h"

namespace headgate::state {
namespace {

// Numbered from 1 by their place. What has been released is never changed: add another.
constexpr std::array kMigrations{
    R"sql(
CREATE TABLE token (
  id TEXT PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  role TEXT NOT NULL CHECK (role IN ('agent', 'viewer', 'admin')),
  agent TEXT NOT NULL,
  name TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL
) STRICT;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  who TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  before TEXT NOT NULL,
  after TEXT NOT NULL
) STRICT;
CREATE TABLE policy_version (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  who TEXT NOT NULL,
  source TEXT NOT NULL,
  note TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE TABLE setting (
  section TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (section, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE touched (id INTEGER PRIMARY KEY CHECK (id = 1), times INTEGER NOT NULL) STRICT;
INSERT INTO touched VALUES (1, 0);
)sql",
    // Tokens bind a user, a tenant and a plan as well; role gateway. SQLite cannot change a CHECK in place.
    R"sql(
CREATE TABLE bound_token (
  id TEXT PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  role TEXT NOT NULL CHECK (role IN ('agent', 'gateway', 'viewer', 'admin')),
  agent TEXT NOT NULL,
  user TEXT NOT NULL,
  tenant TEXT NOT NULL,
  plan TEXT NOT NULL,
  name TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL
) STRICT;
INSERT INTO bound_token SELECT id, hash, role, agent, '', '', '', name, created, expires FROM token;
DROP TABLE token;
ALTER TABLE bound_token RENAME TO token;
)sql",
};

Error newer(const std::string& path, std::int64_t version) {
  return {ErrorCode::kCorrupt,
          fmt::format("{}: was written by a newer Headgate (its tables are version {}, this program knows up to {}); "
                      "run that one, or give another database",
                      path, version, schema_version())};
}

Error foreign(const std::string& path) {
  return {ErrorCode::kCorrupt,
          fmt::format("{}: is a database of another program and was left alone; give another path", path)};
}

std::int64_t pragma(SQLite::Database& database, const char* name) {
  return database.execAndGet(fmt::format("PRAGMA {}", name)).getInt64();
}

}  // namespace

int schema_version() noexcept { return static_cast<int>(kMigrations.size()); }

Result<void> check_header(const std::string& path) {
  auto header = base::read_sqlite_header(path);
  if (!header) return header.error();
  if (!*header) return {};
  const auto [application, version] = **header;
  // 0 may still be ours, empty; migrate() looks closer.
  if (application != 0 && application != std::uint32_t{kApplicationId}) return foreign(path);
  if (application != 0 && version > kMigrations.size()) return newer(path, version);
  return {};
}

Result<void> migrate(SQLite::Database& database, const std::string& path) {
  // Again, since what is not yet in the file itself but in its write-ahead log counts too.
  const std::int64_t application = pragma(database, "application_id");
  if (application == 0) {
    if (database.execAndGet("SELECT count(*) FROM sqlite_schema").getInt64() != 0) return foreign(path);
  } else if (application != kApplicationId) {
    return foreign(path);
  }
  const std::int64_t version = pragma(database, "user_version");
  if (version < 0 || version > schema_version()) return newer(path, version);

  for (auto next = static_cast<std::size_t>(version); next < kMigrations.size(); ++next) {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    database.exec(fmt::format("PRAGMA application_id = {}", kApplicationId));
    database.exec(kMigrations[next]);
    database.exec(fmt::format("PRAGMA user_version = {}", next + 1));
    transaction.commit();
  }
  return {};
}

}  // namespace headgate::state
