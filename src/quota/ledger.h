// The Ledger keeps what was used and what was run: in SQLite, or in PostgreSQL when several servers share it.
//
// Safe for concurrent use. add() never waits for the database: one thread of the ledger writes, many entries to a
// commit. Reads wait for the database, so they are not for threads that serve others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/durability.h"
#include "headgate/result.h"
#include "quota/execution.h"

namespace headgate::quota {

// What is counted together: one user, one type of command, one local day. Weeks and months are sums of days.
struct UsageKey {
  std::string user{};
  std::string type{};
  std::string session{};                              // empty, but where commands are limited by session
  Nanos day{0};                                       // when the local day began, by the wall clock
  auto operator<=>(const UsageKey&) const = default;  // NOLINT(modernize-use-nullptr): it misreads this
};

struct Usage {
  std::int64_t commands = 0;      // charged
  std::int64_t refused = 0;       // for want of quota
  std::int64_t would_refuse = 0;  // in monitor mode: admitted, but past the limit
  std::int64_t throttled = 0;     // admitted at less than full speed
  std::int64_t runs = 0;          // recorded executions, and what those used
  std::int64_t failures = 0;      // exit code other than 0
  std::int64_t duration_ms = 0;
  std::int64_t cpu_ms = 0;
  double memory_mb = 0;  // summed over runs

  Usage& operator+=(const Usage& more) noexcept {
    commands += more.commands;
    refused += more.refused;
    would_refuse += more.would_refuse;
    throttled += more.throttled;
    runs += more.runs;
    failures += more.failures;
    duration_ms += more.duration_ms;
    cpu_ms += more.cpu_ms;
    memory_mb += more.memory_mb;
    return *this;
  }
};

struct UsageRow {
  UsageKey key;
  Usage usage;
};

using base::Durability;

struct LedgerOptions {
  // kAsync: an entry is on disk about `interval` after add(), sooner if many came. kSync: `done` is called once it is.
  Durability durability = Durability::kAsync;
  // kAsync: what a crash may take; three of them, and the commit under way, when more comes than the disk takes.
  Nanos interval{std::chrono::milliseconds{100}};
  // Executions and usage older than this go, in small steps. Usage stays for 32 days at least, since months are summed
  // from it. After the wall clock has leapt ahead nothing goes for an hour, so that it can be set right.
  Nanos retention{std::chrono::hours{24 * 90}};
  // Entries not written yet. At the bound add() refuses, since it may not lose what it took.
  std::size_t max_pending = 200'000;
  Nanos patience{std::chrono::seconds{2}};     // kSync: how long a write is tried before `done` hears that it failed
  Nanos prune_every{std::chrono::minutes{1}};  // how often to look for what is too old
  std::function<Nanos()> wall{};               // by which it is too old; empty: the system's wall clock
  // Called from the ledger's thread when writes begin to fail (the error) and when they work again (nullptr).
  std::function<void(const Error*)> on_trouble{};
};

struct LedgerFacts {
  std::uint64_t written = 0;  // entries
  std::uint64_t commits = 0;
  std::uint64_t refused = 0;  // at max_pending
  std::uint64_t failed = 0;   // told so, kSync
  std::uint64_t pruned = 0;   // rows
  std::size_t pending = 0;
  Nanos behind{0};        // age of the oldest entry that is not written yet
  std::string problem{};  // empty: the last write worked
};

class Ledger {
 public:
  // Both make or migrate the schema by themselves. What is newer than this program, or no ledger of ours, is refused
  // and left alone; so is a file that is corrupt or locked, with what to do about it.
  [[nodiscard]] static Result<std::unique_ptr<Ledger>> open_sqlite(const std::string& path, LedgerOptions options = {});
  // A PostgreSQL that is away at start is an error; one that goes away later is not: entries wait for it.
  [[nodiscard]] static Result<std::unique_ptr<Ledger>> open_postgres(const std::string& url,
                                                                     LedgerOptions options = {});
  virtual ~Ledger() = default;  // writes what is pending, as far as `patience` allows

  // Adds to the row of that key, or adds an execution (and to the usage of its key: day, type as given).
  struct Charge {
    UsageKey key;
    Usage usage;
  };
  struct Run {
    UsageKey key;  // where the run's own figures are added; see Usage::runs
    Execution execution;
  };
  using Entry = std::variant<Charge, Run>;
  // Called exactly once. kSync: from the ledger's thread, when it is on disk or has failed; then nothing of the entry
  // is kept, unless the database was lost just while it committed. kAsync: before add() returns, or, when the ledger is
  // behind by more than three intervals, once it is written; an Error: it is full.
  using Done = std::function<void(const Result<void>&)>;
  virtual void add(Entry entry, Done done) = 0;

  // Newest first.
  struct Position {
    Nanos executed_at{0};
    std::int64_t id = 0;
  };
  struct ExecutionQuery {
    std::string user{};  // empty: all; so are the next two
    std::string type{};
    std::string session{};
    std::optional<bool> failed{};
    Nanos since{0};
    Nanos until = kMaxTime;  // exclusive
    std::size_t limit = 100;
    std::optional<Position> after{};  // only those that follow on it
  };
  [[nodiscard]] virtual Result<std::vector<Execution>> executions(const ExecutionQuery& query) = 0;

  struct UsageQuery {
    std::string user{};  // empty: all
    std::string type{};  // empty: all
    Nanos since{0};      // days that begin at or after
    Nanos until = kMaxTime;
    bool sessions = false;  // false: rows of one day are summed over sessions
    std::size_t limit = 1'000'000;
  };
  // By user, type and day.
  [[nodiscard]] virtual Result<std::vector<UsageRow>> usage(const UsageQuery& query) = 0;

  // Writes everything added so far, and waits for it.
  [[nodiscard]] virtual Result<void> flush() = 0;
  [[nodiscard]] virtual LedgerFacts facts() const = 0;
};

}  // namespace headgate::quota
