// Ledgers over a real SQLite file or a real PostgreSQL, and entries for them.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "quota/ledger.h"
#include "support/cells.h"
#include "support/postgres_server.h"

namespace headgate::test {

enum class LedgerKind { kSqlite, kPostgres };
inline std::string name_of(LedgerKind kind) { return kind == LedgerKind::kSqlite ? "Sqlite" : "Postgres"; }

// One ledger's place, which outlives the ledgers that are opened there.
class LedgerPlace {
 public:
  explicit LedgerPlace(LedgerKind kind) : kind_(kind) {
    where_ = kind == LedgerKind::kSqlite ? folder_.file("ledger.db") : PostgresServer::shared().new_database();
  }
  [[nodiscard]] Result<std::unique_ptr<quota::Ledger>> try_open(quota::LedgerOptions options = {}) const {
    return kind_ == LedgerKind::kSqlite ? quota::Ledger::open_sqlite(where_, std::move(options))
                                        : quota::Ledger::open_postgres(where_, std::move(options));
  }
  [[nodiscard]] std::unique_ptr<quota::Ledger> open(quota::LedgerOptions options = {}) const {
    auto opened = try_open(std::move(options));
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(opened).value();
  }
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  [[nodiscard]] LedgerKind kind() const noexcept { return kind_; }

 private:
  const LedgerKind kind_;
  const TempFolder folder_;
  std::string where_;
};

// Collects what is told to those who added entries.
class LedgerAnswers {
 public:
  [[nodiscard]] quota::Ledger::Done next() {
    return [this](const Result<void>& result) {
      const std::lock_guard guard(mutex_);
      answers_.push_back(result);
      told_.notify_all();
    };
  }
  // Waits until so many have come.
  [[nodiscard]] std::vector<Result<void>> take(std::size_t count) {
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, std::chrono::seconds{30}, [&] { return answers_.size() >= count; });
    return answers_;
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard guard(mutex_);
    return answers_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable told_;
  std::vector<Result<void>> answers_;
};

// A recent day, so that nothing is pruned unless a test wants it.
inline Nanos recent_day() {
  constexpr Nanos kDay = std::chrono::hours{24};
  const Nanos now{std::chrono::system_clock::now().time_since_epoch()};
  return now - now % kDay - kDay;
}

inline quota::Ledger::Charge charge_of(std::string user, std::int64_t commands = 1, std::string type = "shell",
                                       std::string session = "", Nanos day = recent_day()) {
  quota::Ledger::Charge charge;
  charge.key = {std::move(user), std::move(type), std::move(session), day};
  charge.usage.commands = commands;
  return charge;
}

inline quota::Ledger::Run run_of(std::string user, Nanos executed_at = recent_day(), std::string type = "shell") {
  quota::Ledger::Run run;
  run.key = {user, type, "", recent_day()};
  run.execution.user = std::move(user);
  run.execution.type = std::move(type);
  run.execution.executed_at = executed_at;
  run.execution.duration_ms = 100;
  return run;
}

inline void add_all(quota::Ledger& ledger, const std::vector<quota::Ledger::Entry>& entries) {
  for (const auto& entry : entries) {
    ledger.add(entry, [](const Result<void>& result) {
      EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    });
  }
  const auto flushed = ledger.flush();
  EXPECT_TRUE(flushed.has_value()) << (flushed ? "" : flushed.error().message);
}

// How many commands are charged to each user.
inline std::map<std::string, std::int64_t> commands_of(quota::Ledger& ledger) {
  std::map<std::string, std::int64_t> commands;
  auto rows = ledger.usage({});
  EXPECT_TRUE(rows.has_value()) << (rows ? "" : rows.error().message);
  if (rows) {
    for (const auto& row : *rows) commands[row.key.user] += row.usage.commands;
  }
  return commands;
}

}  // namespace headgate::test
