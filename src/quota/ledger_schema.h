// The tables of the ledger, how older ones become these, and the questions that both databases are asked.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "quota/ledger.h"

namespace headgate::quota {

// "HGLG", in the header of every SQLite file of ours, and the key of PostgreSQL's advisory lock.
inline constexpr std::int32_t kLedgerId = 0x48474C47;

struct LedgerMigration {
  const char* sqlite;
  const char* postgres;
};
// Numbered from 1 by their place.
[[nodiscard]] const std::vector<LedgerMigration>& ledger_migrations();
[[nodiscard]] inline std::int64_t ledger_version() { return static_cast<std::int64_t>(ledger_migrations().size()); }

// SQL with $1, $2, ... in the order in which they are first used, which both databases understand.
struct Sql {
  std::string text;
  std::vector<std::variant<std::int64_t, std::string>> values;
};
// Columns: id, user_id, session_id, command_type, the hash as it is stored, duration_ms, cpu_usage_percent,
// memory_usage_mb, exit_code, error_message, executed_at.
[[nodiscard]] Sql executions_sql(const Ledger::ExecutionQuery& query);
// Columns: user_id, command_type, session_id, day_start, then the figures in the order of Usage.
[[nodiscard]] Sql usage_sql(const Ledger::UsageQuery& query);

// Where the ledger is, and what is wrong with it.
[[nodiscard]] Error newer_ledger(const std::string& where, std::int64_t version);
[[nodiscard]] Error foreign_ledger(const std::string& where);

}  // namespace headgate::quota
