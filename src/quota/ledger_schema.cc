#include "quota/ledger_schema.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"
#include "quota/ledger_entry.h"

namespace headgate::quota {
namespace {

// SQLite puts the row's id at the end of every index by itself. PostgreSQL compares text by bytes, as SQLite does.
constexpr LedgerMigration kTables{
    .sqlite = R"sql(
CREATE TABLE executions (
  id INTEGER PRIMARY KEY,
  user_id TEXT NOT NULL,
  session_id TEXT,
  command_type TEXT NOT NULL,
  command_hash BLOB CHECK (length(command_hash) = 32),
  duration_ms INTEGER NOT NULL,
  cpu_usage_percent REAL NOT NULL,
  memory_usage_mb REAL NOT NULL,
  exit_code INTEGER NOT NULL,
  error_message TEXT,
  executed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX executions_by_user ON executions (user_id, executed_at);
CREATE INDEX executions_by_time ON executions (executed_at);
CREATE TABLE usage (
  user_id TEXT NOT NULL,
  command_type TEXT NOT NULL,
  day_start INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  commands INTEGER NOT NULL,
  refused INTEGER NOT NULL,
  would_refuse INTEGER NOT NULL,
  throttled INTEGER NOT NULL,
  runs INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  cpu_ms INTEGER NOT NULL,
  memory_mb REAL NOT NULL,
  PRIMARY KEY (user_id, command_type, day_start, session_id)
) STRICT, WITHOUT ROWID;
)sql",
    // headgate_writers: the last batch of each server, so that one whose answer was lost is not written twice.
    .postgres = R"sql(
CREATE TABLE executions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_id text COLLATE "C" NOT NULL,
  session_id text COLLATE "C",
  command_type text COLLATE "C" NOT NULL,
  command_hash bytea CHECK (length(command_hash) = 32),
  duration_ms bigint NOT NULL,
  cpu_usage_percent double precision NOT NULL,
  memory_usage_mb double precision NOT NULL,
  exit_code integer NOT NULL,
  error_message text,
  executed_at bigint NOT NULL
);
CREATE INDEX executions_by_user ON executions (user_id, executed_at, id);
CREATE INDEX executions_by_time ON executions (executed_at, id);
CREATE TABLE usage (
  user_id text COLLATE "C" NOT NULL,
  command_type text COLLATE "C" NOT NULL,
  day_start bigint NOT NULL,
  session_id text COLLATE "C" NOT NULL,
  commands bigint NOT NULL,
  refused bigint NOT NULL,
  would_refuse bigint NOT NULL,
  throttled bigint NOT NULL,
  runs bigint NOT NULL,
  failures bigint NOT NULL,
  duration_ms bigint NOT NULL,
  cpu_ms bigint NOT NULL,
  memory_mb double precision NOT NULL,
  PRIMARY KEY (user_id, command_type, day_start, session_id)
);
CREATE TABLE headgate_writers (
  id text PRIMARY KEY,
  batch bigint NOT NULL,
  applied bigint NOT NULL,
  seen_at bigint NOT NULL
);
)sql"};

constexpr LedgerMigration kMoreIndexes{.sqlite = R"sql(
CREATE INDEX executions_by_session ON executions (session_id, executed_at) WHERE session_id IS NOT NULL;
CREATE INDEX usage_by_day ON usage (day_start);
)sql",
                                       .postgres = R"sql(
CREATE INDEX executions_by_session ON executions (session_id, executed_at, id) WHERE session_id IS NOT NULL;
CREATE INDEX usage_by_day ON usage (day_start);
)sql"};

// WHERE a = $1 AND ..., with its values.
class Where {
 public:
  template <class Value>
  void add(const char* column_and_sign, Value value) {
    text_ += fmt::format("{}{}${}", text_.empty() ? " WHERE " : " AND ", column_and_sign, place(std::move(value)));
  }
  void add(const char* condition) { text_ += (text_.empty() ? " WHERE " : " AND ") + std::string(condition); }
  void add_name(const char* column_and_sign, std::string name) {
    if (name.empty()) return;
    base::repair(name);  // as it was when it was written
    add(column_and_sign, std::move(name));
  }
  void add_after(const Ledger::Position& after) {
    const auto time = place(to_ms(after.executed_at));
    const auto id = place(after.id);
    text_ += fmt::format("{}(executed_at, id) < (${}, ${})", text_.empty() ? " WHERE " : " AND ", time, id);
  }
  Sql finish(std::string before, std::string_view after, std::size_t limit) {
    before += text_;
    before += after;
    before += fmt::format(" LIMIT {}", limit);
    return {std::move(before), std::move(values_)};
  }

 private:
  std::size_t place(std::variant<std::int64_t, std::string> value) {
    values_.push_back(std::move(value));
    return values_.size();
  }
  std::string text_;
  std::vector<std::variant<std::int64_t, std::string>> values_;
};

}  // namespace

const std::vector<LedgerMigration>& ledger_migrations() {
  // What has been released is never changed: add another.
  static const std::vector<LedgerMigration> kAll{kTables, kMoreIndexes};
  return kAll;
}

Sql executions_sql(const Ledger::ExecutionQuery& query) {
  Where where;
  where.add_name("user_id = ", query.user);
  where.add_name("command_type = ", query.type);
  where.add_name("session_id = ", query.session);
  if (query.failed) where.add(*query.failed ? "exit_code <> 0" : "exit_code = 0");
  if (query.since > Nanos{0}) where.add("executed_at >= ", to_ms_up(query.since));
  if (query.until < kMaxTime) where.add("executed_at < ", to_ms_up(query.until));
  if (query.after) where.add_after(*query.after);
  return where.finish(
      "SELECT id, user_id, session_id, command_type, command_hash, duration_ms, cpu_usage_percent, memory_usage_mb, "
      "exit_code, error_message, executed_at FROM executions",
      " ORDER BY executed_at DESC, id DESC", query.limit);
}

Sql usage_sql(const Ledger::UsageQuery& query) {
  Where where;
  where.add_name("user_id = ", query.user);
  where.add_name("command_type = ", query.type);
  if (query.since > Nanos{0}) where.add("day_start >= ", to_ms_up(query.since));
  if (query.until < kMaxTime) where.add("day_start < ", to_ms_up(query.until));
  if (query.sessions) {
    return where.finish(
        "SELECT user_id, command_type, session_id, day_start, commands, refused, would_refuse, throttled, runs, "
        "failures, duration_ms, cpu_ms, memory_mb FROM usage",
        " ORDER BY user_id, command_type, day_start, session_id", query.limit);
  }
  return where.finish(
      "SELECT user_id, command_type, '', day_start, sum(commands), sum(refused), sum(would_refuse), sum(throttled), "
      "sum(runs), sum(failures), sum(duration_ms), sum(cpu_ms), sum(memory_mb) FROM usage",
      " GROUP BY user_id, command_type, day_start ORDER BY user_id, command_type, day_start", query.limit);
}

Error newer_ledger(const std::string& where, std::int64_t version) {
  return {ErrorCode::kCorrupt,
          fmt::format("{}: was written by a newer Headgate (its tables are version {}, this program knows up to {}); "
                      "run that one, or give another ledger",
                      where, version, ledger_version())};
}

Error foreign_ledger(const std::string& where) {
  return {
      ErrorCode::kCorrupt,
      fmt::format("{}: is a database of another program and was left alone; give the ledger one of its own", where)};
}

}  // namespace headgate::quota
