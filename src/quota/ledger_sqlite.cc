// The ledger in one SQLite file.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/descriptor.h"
#include "base/sqlite_header.h"
#include "quota/ledger_entry.h"
#include "quota/ledger_schema.h"
#include "quota/ledger_writer.h"

namespace headgate::quota {
namespace {

// Long enough for any commit of another program; the writer tries again anyway.
constexpr int kBusyTimeoutMs = 1'000;
// Up to this size a file is looked through when it is opened, which takes less than a second.
constexpr std::uintmax_t kCheckedBytes = std::uintmax_t{64} << 20;

constexpr const char* kInsertExecution =
    "INSERT INTO executions (user_id, session_id, command_type, command_hash, duration_ms, cpu_usage_percent, "
    "memory_usage_mb, exit_code, error_message, executed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

std::string add_usage_sql() {
  std::string sql =
      "INSERT INTO usage VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) "
      "ON CONFLICT DO UPDATE SET memory_mb = memory_mb + excluded.memory_mb";
  for (const char* figure : kUsageSums) {
    sql += fmt::format(", {0} = min({0} + excluded.{0}, {1})", figure, kMostUsage);
  }
  return sql;
}

constexpr const char* kDropExecutions =
    "DELETE FROM executions WHERE id IN (SELECT id FROM executions WHERE executed_at < $1 ORDER BY executed_at "
    "LIMIT $2)";
constexpr const char* kDropUsage =
    "DELETE FROM usage WHERE (user_id, command_type, day_start, session_id) IN (SELECT user_id, command_type, "
    "day_start, session_id FROM usage WHERE day_start < $1 ORDER BY day_start LIMIT $2)";

Error damaged(const std::string& path, std::string_view why) {
  return {ErrorCode::kCorrupt, fmt::format("{}: is damaged ({}); stop the server and restore the file from a backup, "
                                           "or move it away to start afresh",
                                           path, why)};
}

Error error_of(const SQLite::Exception& e, const std::string& path, int system_error) {
  Error error;
  error.code = ErrorCode::kIo;
  error.transient = true;
  switch (e.getErrorCode()) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return damaged(path, e.what());
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      error.message =
          fmt::format("{}: is locked by another program ({}); end that program or its transaction", path, e.what());
      return error;
    case SQLITE_FULL:
      error.message = fmt::format("{}: its disk is full; make room, and writing goes on by itself", path);
      return error;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      error.message = fmt::format(
          "{}: may not be written ({}); see to who owns the file and its folder, and that "
          "neither is read-only",
          path, e.what());
      return error;
    case SQLITE_IOERR:
      error.message =
          fmt::format("{}: cannot be read or written ({}{}{}); see that its disk has room and is sound", path, e.what(),
                      system_error == 0 ? "" : ": ", system_error == 0 ? "" : std::strerror(system_error));
      return error;
    default: break;
  }
  error.transient = false;
  error.message = fmt::format("{}: {}", path, e.what());
  return error;
}

// REQUIRES: 64 hexadecimal digits in lower case.
std::array<unsigned char, 32> bytes_of(const std::string& hex) noexcept {
  assert(hex.size() == 64 && hex.find_first_not_of("0123456789abcdef") == std::string::npos);
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::array<unsigned char, 32> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(value(hex[2 * i]) << 4 | value(hex[2 * i + 1]));
  }
  return bytes;
}

std::string hex_of(const SQLite::Column& column) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto* bytes = static_cast<const unsigned char*>(column.getBlob());
  const auto size = static_cast<std::size_t>(column.getBytes());
  std::string hex;
  for (std::size_t i = 0; i < size; ++i) hex.append({kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]});
  return hex;
}

// One that has failed counts as running until it is reset, and then nothing can be committed.
class ResetLater {
 public:
  explicit ResetLater(SQLite::Statement& statement) noexcept : statement_(statement) {}
  ~ResetLater() { statement_.tryReset(); }
  ResetLater(const ResetLater&) = delete;
  ResetLater& operator=(const ResetLater&) = delete;

 private:
  SQLite::Statement& statement_;
};

void bind_or_null(SQLite::Statement& statement, int place, const std::string& text) {
  if (text.empty()) {
    statement.bind(place);
  } else {
    statement.bindNoCopy(place, text);
  }
}

void bind_all(SQLite::Statement& statement, const Sql& sql) {
  int place = 0;
  for (const auto& value : sql.values) {
    ++place;
    if (const auto* number = std::get_if<std::int64_t>(&value)) {
      statement.bind(place, *number);
    } else {
      statement.bindNoCopy(place, std::get<std::string>(value));
    }
  }
}

std::int64_t pragma(SQLite::Database& database, const char* name) {
  return database.execAndGet(fmt::format("PRAGMA {}", name)).getInt64();
}

// Runs the migrations that are missing, each whole or not at all. May throw SQLite::Exception.
Result<void> migrate(SQLite::Database& database, const std::string& path) {
  for (;;) {
    // Looked at within the transaction, since another server may be doing the same.
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    const std::int64_t application = pragma(database, "application_id");
    const bool empty = database.execAndGet("SELECT count(*) FROM sqlite_schema").getInt64() == 0;
    if (application != kLedgerId && !(application == 0 && empty)) return foreign_ledger(path);
    const std::int64_t version = pragma(database, "user_version");
    if (version < 0 || version > ledger_version()) return newer_ledger(path, version);
    if (version == ledger_version()) return {};
    database.exec(fmt::format("PRAGMA application_id = {}", kLedgerId));
    database.exec(ledger_migrations()[static_cast<std::size_t>(version)].sqlite);
    database.exec(fmt::format("PRAGMA user_version = {}", version + 1));
    transaction.commit();
  }
}

Result<void> check_header(const std::string& path) {
  auto header = base::read_sqlite_header(path);
  if (!header) return header.error();
  if (!*header) return {};
  const auto [application, version] = **header;
  if (application != 0 && application != std::uint32_t{kLedgerId}) return foreign_ledger(path);
  if (application != 0 && version > ledger_version()) return newer_ledger(path, version);
  return {};
}

// Made here, so that it is never readable by others, not even for a moment. The folder must exist.
Result<void> make_private(const std::string& path) {
  const base::Descriptor made(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (made) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: cannot be opened: {}; see that its folder exists and may be written",
                                           path, std::strerror(errno))};
}

class SqliteLedger final : public LedgerBackend {
 public:
  // All of these may throw SQLite::Exception until they have returned.
  explicit SqliteLedger(std::string path)
      : path_(std::move(path)), file_(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, kBusyTimeoutMs) {}
  Result<void> prepare();

  std::optional<Failure> write(const LedgerBatch& batch) override;
  Result<bool> written(std::uint64_t) override { return false; }  // a commit that fails here is rolled back
  Result<std::size_t> prune(const Expiry& expiry) override;
  Result<std::vector<Execution>> executions(const Ledger::ExecutionQuery& query) override;
  Result<std::vector<UsageRow>> usage(const Ledger::UsageQuery& query) override;

 private:
  void insert(const Execution& execution);
  void add(const UsageKey& key, const Usage& usage);
  std::size_t remove(SQLite::Statement& statement, Nanos before, std::size_t rows);
  template <class Row, class Make>
  Result<std::vector<Row>> read(const Sql& sql, Make make);

  const std::string path_;
  SQLite::Database file_;  // of the one thread that writes
  std::optional<SQLite::Statement> insert_execution_;
  std::optional<SQLite::Statement> add_usage_;
  std::optional<SQLite::Statement> prune_executions_;
  std::optional<SQLite::Statement> prune_usage_;

  std::mutex reading_;  // guards reader_
  std::optional<SQLite::Database> reader_;
};

Result<void> SqliteLedger::prepare() {
  if (auto migrated = migrate(file_, path_); !migrated) return migrated;
  // A commit is on disk when it returns. Pages go to the file itself only now and then, many at once.
  file_.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF");
  file_.exec("PRAGMA wal_autocheckpoint = 32768; PRAGMA journal_size_limit = 134217728; PRAGMA cache_size = -65536");
  std::error_code ignored;
  if (std::filesystem::file_size(path_, ignored) <= kCheckedBytes) {
    const std::string state = file_.execAndGet("PRAGMA quick_check(1)").getString();
    if (state != "ok") return damaged(path_, state);
  }
  insert_execution_.emplace(file_, kInsertExecution);
  add_usage_.emplace(file_, add_usage_sql());
  prune_executions_.emplace(file_, kDropExecutions);
  prune_usage_.emplace(file_, kDropUsage);
  reader_.emplace(path_, SQLite::OPEN_READWRITE, kBusyTimeoutMs);
  reader_->exec("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -16384");
  return {};
}

std::optional<LedgerBackend::Failure> SqliteLedger::write(const LedgerBatch& batch) {
  try {
    SQLite::Transaction transaction(file_, SQLite::TransactionBehavior::IMMEDIATE);
    if (batch.executions.empty() && batch.usage.empty())
      file_.exec(fmt::format("PRAGMA user_version = {}", ledger_version()));
    for (const Execution* execution : batch.executions) insert(*execution);
    for (const auto& [key, usage] : batch.usage) add(*key, usage);
    transaction.commit();
    return std::nullopt;
  } catch (const SQLite::Exception& e) {
    return Failure{error_of(e, path_, sqlite3_system_errno(file_.getHandle()))};
  }
}

void SqliteLedger::insert(const Execution& execution) {
  SQLite::Statement& statement = *insert_execution_;
  const ResetLater reset(statement);
  statement.bindNoCopy(1, execution.user);
  bind_or_null(statement, 2, execution.session);
  statement.bindNoCopy(3, execution.type);
  if (execution.command_hash.empty()) {
    statement.bind(4);
  } else {
    const auto bytes = bytes_of(execution.command_hash);
    statement.bind(4, bytes.data(), static_cast<int>(bytes.size()));
  }
  statement.bind(5, execution.duration_ms);
  statement.bind(6, execution.cpu_percent);
  statement.bind(7, execution.memory_mb);
  statement.bind(8, execution.exit_code);
  bind_or_null(statement, 9, execution.error);
  statement.bind(10, to_ms(execution.executed_at));
  statement.exec();
}

void SqliteLedger::add(const UsageKey& key, const Usage& usage) {
  SQLite::Statement& statement = *add_usage_;
  const ResetLater reset(statement);
  statement.bindNoCopy(1, key.user);
  statement.bindNoCopy(2, key.type);
  statement.bind(3, to_ms(key.day));
  statement.bindNoCopy(4, key.session);
  int place = 4;
  for (const std::int64_t figure : {usage.commands, usage.refused, usage.would_refuse, usage.throttled, usage.runs,
                                    usage.failures, usage.duration_ms, usage.cpu_ms}) {
    statement.bind(++place, figure);
  }
  statement.bind(++place, usage.memory_mb);
  statement.exec();
}

std::size_t SqliteLedger::remove(SQLite::Statement& statement, Nanos before, std::size_t rows) {
  const ResetLater reset(statement);
  statement.bind(1, to_ms_up(before));
  statement.bind(2, static_cast<std::int64_t>(rows));
  return static_cast<std::size_t>(statement.exec());
}

Result<std::size_t> SqliteLedger::prune(const Expiry& expiry) {
  try {
    std::size_t gone = remove(*prune_executions_, expiry.executions, expiry.rows);
    if (gone < expiry.rows) gone += remove(*prune_usage_, expiry.usage, expiry.rows - gone);
    return gone;
  } catch (const SQLite::Exception& e) {
    return error_of(e, path_, sqlite3_system_errno(file_.getHandle()));
  }
}

template <class Row, class Make>
Result<std::vector<Row>> SqliteLedger::read(const Sql& sql, Make make) {
  const std::lock_guard guard(reading_);
  try {
    std::vector<Row> rows;
    SQLite::Statement statement(*reader_, sql.text);
    bind_all(statement, sql);
    while (statement.executeStep()) rows.push_back(make(statement));
    return rows;
  } catch (const SQLite::Exception& e) {
    return error_of(e, path_, sqlite3_system_errno(reader_->getHandle()));
  }
}

Result<std::vector<Execution>> SqliteLedger::executions(const Ledger::ExecutionQuery& query) {
  return read<Execution>(executions_sql(query), [](SQLite::Statement& row) {
    Execution execution;
    execution.id = row.getColumn(0).getInt64();
    execution.user = row.getColumn(1).getString();
    execution.session = row.getColumn(2).getString();
    execution.type = row.getColumn(3).getString();
    execution.command_hash = hex_of(row.getColumn(4));
    execution.duration_ms = row.getColumn(5).getInt64();
    execution.cpu_percent = row.getColumn(6).getDouble();
    execution.memory_mb = row.getColumn(7).getDouble();
    execution.exit_code = row.getColumn(8).getInt();
    execution.error = row.getColumn(9).getString();
    execution.executed_at = from_ms(row.getColumn(10).getInt64());
    return execution;
  });
}

Result<std::vector<UsageRow>> SqliteLedger::usage(const Ledger::UsageQuery& query) {
  return read<UsageRow>(usage_sql(query), [](SQLite::Statement& row) {
    UsageRow found;
    found.key.user = row.getColumn(0).getString();
    found.key.type = row.getColumn(1).getString();
    found.key.session = row.getColumn(2).getString();
    found.key.day = from_ms(row.getColumn(3).getInt64());
    int column = 3;
    Usage& usage = found.usage;
    for (std::int64_t* figure : {&usage.commands, &usage.refused, &usage.would_refuse, &usage.throttled, &usage.runs,
                                 &usage.failures, &usage.duration_ms, &usage.cpu_ms}) {
      *figure = row.getColumn(++column).getInt64();
    }
    usage.memory_mb = row.getColumn(++column).getDouble();
    return found;
  });
}

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::open_sqlite(const std::string& path, LedgerOptions options) {
  if (auto checked = check_header(path); !checked) return checked.error();
  if (auto made = make_private(path); !made) return made.error();
  try {
    auto backend = std::make_unique<SqliteLedger>(path);
    if (auto prepared = backend->prepare(); !prepared) return prepared.error();
    return Result<std::unique_ptr<Ledger>>(std::make_unique<LedgerWriter>(std::move(backend), std::move(options)));
  } catch (const SQLite::Exception& e) {
    return error_of(e, path, 0);
  }
}

}  // namespace headgate::quota
