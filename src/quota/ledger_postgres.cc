// The ledger in PostgreSQL, which several servers may share.
#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <mutex>
#include <random>
#include <utility>

#include "quota/ledger_entry.h"
#include "quota/ledger_schema.h"
#include "quota/ledger_writer.h"
#include "quota/postgres_link.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kReadPatience = 30s;
// A batch of entries that no caller waits for may take so many times as long.
constexpr int kAsyncPatience = 5;

// One batch is one statement, so one round trip, and all or nothing. It does nothing at all if its number has been
// passed: a server that was lost and comes back may still find it in its socket.
std::string write_sql() {
  std::string sql =
      "WITH mark AS ("
      "INSERT INTO headgate_writers VALUES ($1, $2, $2, $3) ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, "
      "applied = excluded.applied, seen_at = excluded.seen_at WHERE headgate_writers.batch < excluded.batch "
      "RETURNING 1), "
      "runs AS ("
      "INSERT INTO executions (user_id, session_id, command_type, command_hash, duration_ms, cpu_usage_percent, "
      "memory_usage_mb, exit_code, error_message, executed_at) "
      "SELECT * FROM unnest($4::text[], $5::text[], $6::text[], $7::bytea[], $8::bigint[], $9::double precision[], "
      "$10::double precision[], $11::integer[], $12::text[], $13::bigint[]) WHERE EXISTS (SELECT FROM mark)) "
      "INSERT INTO usage "
      "SELECT * FROM unnest($14::text[], $15::text[], $16::bigint[], $17::text[], $18::bigint[], $19::bigint[], "
      "$20::bigint[], $21::bigint[], $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[], "
      "$26::double precision[]) WHERE EXISTS (SELECT FROM mark) "
      "ON CONFLICT (user_id, command_type, day_start, session_id) DO UPDATE SET "
      "memory_mb = usage.memory_mb + excluded.memory_mb";
  for (const char* figure : kUsageSums) {
    sql += fmt::format(", {0} = LEAST(usage.{0} + excluded.{0}, {1})", figure, kMostUsage);
  }
  return sql;
}

// Says whether the batch was applied, and sees to it that it never will be if it was not.
constexpr const char* kSettle =
    "INSERT INTO headgate_writers VALUES ($1, $2, 0, $3) ON CONFLICT (id) DO UPDATE SET batch = "
    "greatest(headgate_writers.batch, excluded.batch) RETURNING applied = $2";

// Rows that another server is taking away are left to it.
constexpr const char* kPruneExecutions =
    "DELETE FROM executions WHERE id IN (SELECT id FROM executions WHERE executed_at < $1 ORDER BY executed_at, id "
    "LIMIT $2 FOR UPDATE SKIP LOCKED)";
constexpr const char* kPruneUsage =
    "DELETE FROM usage WHERE (user_id, command_type, day_start, session_id) IN (SELECT user_id, command_type, "
    "day_start, session_id FROM usage WHERE day_start < $1 ORDER BY day_start LIMIT $2 FOR UPDATE SKIP LOCKED)";
constexpr const char* kPruneWriters = "DELETE FROM headgate_writers WHERE seen_at < $1";

// An array as PostgreSQL reads it: {1,"text",NULL}.
class ArrayText {
 public:
  template <class Number>
  void add(Number number) {
    fmt::format_to(std::back_inserter(next()), "{}", number);
  }
  void add(const std::string& text) {
    std::string& out = next();
    out += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    out += '"';
  }
  void add_or_null(const std::string& text) {
    if (text.empty()) {
      next() += "NULL";
    } else {
      add(text);
    }
  }
  std::string finish() && { return (text_.empty() ? "{" : std::move(text_)) + "}"; }

 private:
  std::string& next() { return text_ += text_.empty() ? '{' : ','; }
  std::string text_;
};

// Columns as arrays, in the order of write_sql().
using Arrays = std::array<ArrayText, 23>;

void add_execution(Arrays& arrays, const Execution& execution) {
  arrays[0].add(execution.user);
  arrays[1].add_or_null(execution.session);
  arrays[2].add(execution.type);
  arrays[3].add_or_null(execution.command_hash.empty() ? "" : "\\x" + execution.command_hash);
  arrays[4].add(execution.duration_ms);
  arrays[5].add(execution.cpu_percent);
  arrays[6].add(execution.memory_mb);
  arrays[7].add(execution.exit_code);
  arrays[8].add_or_null(execution.error);
  arrays[9].add(to_ms(execution.executed_at));
}

void add_usage(Arrays& arrays, const UsageKey& key, const Usage& usage) {
  arrays[10].add(key.user);
  arrays[11].add(key.type);
  arrays[12].add(to_ms(key.day));
  arrays[13].add(key.session);
  std::size_t column = 13;
  for (const std::int64_t figure : {usage.commands, usage.refused, usage.would_refuse, usage.throttled, usage.runs,
                                    usage.failures, usage.duration_ms, usage.cpu_ms}) {
    arrays[++column].add(figure);
  }
  arrays[++column].add(usage.memory_mb);
}

std::vector<std::string> texts_of(const Sql& sql) {
  std::vector<std::string> texts;
  for (const auto& value : sql.values) {
    const auto* number = std::get_if<std::int64_t>(&value);
    texts.push_back(number != nullptr ? std::to_string(*number) : std::get<std::string>(value));
  }
  return texts;
}

template <class Number>
Number number_of(const pqxx::field& field) {
  Number number{};
  std::from_chars(field.c_str(), field.c_str() + field.size(), number);
  return number;
}

std::string text_of(const pqxx::field& field) { return {field.c_str(), field.size()}; }

// Of bytes as PostgreSQL writes them: \x and hexadecimal digits.
std::string hex_of(const pqxx::field& field) { return field.size() < 2 ? std::string() : text_of(field).substr(2); }

Execution execution_of(const pqxx::row& row) {
  Execution execution;
  execution.id = number_of<std::int64_t>(row[0]);
  execution.user = text_of(row[1]);
  execution.session = text_of(row[2]);
  execution.type = text_of(row[3]);
  execution.command_hash = hex_of(row[4]);
  execution.duration_ms = number_of<std::int64_t>(row[5]);
  execution.cpu_percent = number_of<double>(row[6]);
  execution.memory_mb = number_of<double>(row[7]);
  execution.exit_code = number_of<int>(row[8]);
  execution.error = text_of(row[9]);
  execution.executed_at = from_ms(number_of<std::int64_t>(row[10]));
  return execution;
}

UsageRow usage_row_of(const pqxx::row& row) {
  UsageRow found;
  found.key.user = text_of(row[0]);
  found.key.type = text_of(row[1]);
  found.key.session = text_of(row[2]);
  found.key.day = from_ms(number_of<std::int64_t>(row[3]));
  Usage& usage = found.usage;
  pqxx::row::size_type column = 3;
  for (std::int64_t* figure : {&usage.commands, &usage.refused, &usage.would_refuse, &usage.throttled, &usage.runs,
                               &usage.failures, &usage.duration_ms, &usage.cpu_ms}) {
    *figure = number_of<std::int64_t>(row[++column]);
  }
  usage.memory_mb = number_of<double>(row[++column]);
  return found;
}

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::int64_t wall_ms() { return to_ms(Nanos{std::chrono::system_clock::now().time_since_epoch()}); }

class PostgresLedger final : public LedgerBackend {
 public:
  PostgresLedger(const PostgresAddress& address, const LedgerOptions& options)
      : name_(random_name()),
        writer_(address, options.durability == Durability::kSync ? options.patience : options.patience * kAsyncPatience,
                prepare_writer),
        reader_(address, kReadPatience, [](pqxx::connection_base&) {}) {}

  // Makes the tables, or brings them up to date.
  Result<void> migrate();

  std::optional<Failure> write(const LedgerBatch& batch) override;
  Result<bool> written(std::uint64_t number) override;
  Result<std::size_t> prune(const Expiry& expiry) override;
  Result<std::vector<Execution>> executions(const Ledger::ExecutionQuery& query) override {
    return read<Execution>(executions_sql(query), execution_of);
  }
  Result<std::vector<UsageRow>> usage(const Ledger::UsageQuery& query) override {
    return read<UsageRow>(usage_sql(query), usage_row_of);
  }

 private:
  static void prepare_writer(pqxx::connection_base& connection) {
    connection.prepare("write", write_sql());
    connection.prepare("settle", kSettle);
    connection.prepare("prune_executions", kPruneExecutions);
    connection.prepare("prune_usage", kPruneUsage);
    connection.prepare("prune_writers", kPruneWriters);
  }
  template <class Row, class Make>
  Result<std::vector<Row>> read(const Sql& sql, Make make);

  const std::string name_;  // in headgate_writers
  PostgresLink writer_;
  std::mutex reading_;  // guards reader_
  PostgresLink reader_;
};

// One migration in one transaction; servers that start together wait for each other. True: none is missing.
Result<bool> migrate_once(pqxx::connection_base& connection, const std::string& shown) {
  pqxx::work work(connection);
  work.exec(fmt::format("SELECT pg_advisory_xact_lock({})", kLedgerId));
  if (work.exec1("SELECT to_regclass('headgate_schema') IS NULL")[0].as<bool>()) {
    if (work.exec1("SELECT to_regclass('executions') IS NOT NULL OR to_regclass('usage') IS NOT NULL")[0].as<bool>()) {
      return foreign_ledger(shown);
    }
    work.exec("CREATE TABLE headgate_schema (version bigint NOT NULL); INSERT INTO headgate_schema VALUES (0)");
  }
  const auto version = work.exec1("SELECT max(version) FROM headgate_schema")[0].as<std::int64_t>(0);
  if (version < 0 || version > ledger_version()) return newer_ledger(shown, version);
  if (version == ledger_version()) return true;
  work.exec(ledger_migrations()[static_cast<std::size_t>(version)].postgres);
  work.exec(fmt::format("UPDATE headgate_schema SET version = {}", version + 1));
  work.commit();
  return false;
}

Result<void> PostgresLedger::migrate() {
  for (;;) {
    Result<bool> current = false;
    const auto failure =
        reader_.run([&](pqxx::connection_base& connection) { current = migrate_once(connection, reader_.shown()); });
    if (failure) return failure->error;
    if (!current) return current.error();
    if (*current) return {};
  }
}

std::optional<LedgerBackend::Failure> PostgresLedger::write(const LedgerBatch& batch) {
  Arrays arrays;
  for (const Execution* execution : batch.executions) add_execution(arrays, *execution);
  for (const auto& [key, usage] : batch.usage) add_usage(arrays, *key, usage);
  std::vector<std::string> values{name_, std::to_string(batch.number), std::to_string(wall_ms())};
  for (ArrayText& array : arrays) values.push_back(std::move(array).finish());
  const auto failure = writer_.run([&](pqxx::connection_base& connection) {
    pqxx::nontransaction work(connection);
    work.exec_prepared("write", pqxx::prepare::make_dynamic_params(values));
  });
  if (!failure) return std::nullopt;
  return Failure{failure->error, failure->lost ? Fate::kUnknown : Fate::kNotWritten};
}

Result<bool> PostgresLedger::written(std::uint64_t number) {
  bool applied = false;
  const auto failure = writer_.run([&](pqxx::connection_base& connection) {
    pqxx::nontransaction work(connection);
    applied = work.exec_prepared1("settle", name_, number, wall_ms())[0].as<bool>();
  });
  if (failure) return failure->error;
  return applied;
}

Result<std::size_t> PostgresLedger::prune(const Expiry& expiry) {
  std::size_t gone = 0;
  const auto failure = writer_.run([&](pqxx::connection_base& connection) {
    pqxx::nontransaction work(connection);
    gone = work.exec_prepared("prune_executions", to_ms_up(expiry.executions), expiry.rows).affected_rows();
    if (gone == expiry.rows) return;
    gone += work.exec_prepared("prune_usage", to_ms_up(expiry.usage), expiry.rows - gone).affected_rows();
    work.exec_prepared("prune_writers", to_ms_up(expiry.usage));
  });
  if (failure) return failure->error;
  return gone;
}

template <class Row, class Make>
Result<std::vector<Row>> PostgresLedger::read(const Sql& sql, Make make) {
  const std::lock_guard guard(reading_);
  std::vector<Row> rows;
  const auto ask = [&](pqxx::connection_base& connection) {
    pqxx::nontransaction work(connection);
    const std::vector<std::string> values = texts_of(sql);
    const pqxx::result result = work.exec_params(sql.text, pqxx::prepare::make_dynamic_params(values));
    rows.clear();
    rows.reserve(result.size());
    for (const pqxx::row& row : result) rows.push_back(make(row));
  };
  // Again, since PostgreSQL may have been started anew since the last question.
  auto failure = reader_.run(ask);
  if (failure && failure->lost) failure = reader_.run(ask);
  if (failure) return failure->error;
  return rows;
}

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::open_postgres(const std::string& url, LedgerOptions options) {
  auto address = parse_postgres(url);
  if (!address) return address.error();
  auto backend = std::make_unique<PostgresLedger>(*address, options);
  if (auto migrated = backend->migrate(); !migrated) return migrated.error();
  return Result<std::unique_ptr<Ledger>>(std::make_unique<LedgerWriter>(std::move(backend), std::move(options)));
}

}  // namespace headgate::quota
