#include "state/schema.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>

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

std::uint32_t big_endian(const char* bytes) noexcept {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<unsigned char>(bytes[i]);
  return word;
}

std::int64_t pragma(SQLite::Database& database, const char* name) {
  return database.execAndGet(fmt::format("PRAGMA {}", name)).getInt64();
}

}  // namespace

int schema_version() noexcept { return static_cast<int>(kMigrations.size()); }

Result<void> check_header(const std::string& path) {
  // As https://www.sqlite.org/fileformat.html has it.
  constexpr std::string_view kMagic{"SQLite format 3\0", 16};
  constexpr std::size_t kHeaderBytes = 100;
  constexpr std::size_t kUserVersionAt = 60;
  constexpr std::size_t kApplicationIdAt = 68;

  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT) return {};
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be read: {}", path, std::strerror(errno))};
  }
  std::array<char, kHeaderBytes> header{};
  file.read(header.data(), header.size());
  const auto got = static_cast<std::size_t>(file.gcount());
  if (got == 0) return {};
  if (got < header.size() || std::string_view(header.data(), kMagic.size()) != kMagic) {
    return Error{ErrorCode::kCorrupt, fmt::format("{}: is not an SQLite database; move it away or give another path "
                                                  "(it was left alone)",
                                                  path)};
  }
  const std::uint32_t application = big_endian(header.data() + kApplicationIdAt);
  // 0 may still be ours, empty; migrate() looks closer.
  if (application != 0 && application != std::uint32_t{kApplicationId}) return foreign(path);
  const std::uint32_t version = big_endian(header.data() + kUserVersionAt);
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
