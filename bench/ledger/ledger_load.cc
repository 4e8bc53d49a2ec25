// How fast executions go into the ledger, and how fast one user's history comes out, beside what the disk and a bare
// SQLite can do in the same run. See bench/README.md.
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "quota/ledger.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr int kUsers = 10'000;
constexpr Nanos kDay = 24h;

double seconds_since(Steady::time_point start) { return std::chrono::duration<double>(Steady::now() - start).count(); }

void report(std::string_view what, double value, std::string_view unit) {
  fmt::print("{:<58} {:>12.0f} {}\n", what, value, unit);
  std::fflush(stdout);
}

void must(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}
std::unique_ptr<Ledger> must(Result<std::unique_ptr<Ledger>> opened) {
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(opened).value();
}

// As a busy server would add them: any of the users, five types, now.
class Runs {
 public:
  explicit Runs(unsigned seed) : random_(seed) {}
  Ledger::Run next() {
    static constexpr std::array kTypes{"shell", "code", "test", "review", "refactor"};
    const Nanos now{std::chrono::system_clock::now().time_since_epoch()};
    const auto bits = random_();
    Ledger::Run run;
    Execution& execution = run.execution;
    execution.user = fmt::format("user-{:05}", bits % kUsers);
    // Each user goes on to another session after some twenty runs.
    execution.session = fmt::format("session-{:05}-{:04}", bits % kUsers, count_++ / 200'000);
    execution.type = kTypes[bits % kTypes.size()];
    execution.command_hash = fmt::format("{0:016x}{0:016x}{0:016x}{0:016x}", bits);
    execution.duration_ms = static_cast<std::int64_t>(bits % 60'000);
    execution.cpu_percent = static_cast<double>(bits % 1000) / 7;
    execution.memory_mb = static_cast<double>(bits % 4000) / 3;
    execution.exit_code = bits % 20 == 0 ? 1 : 0;
    execution.executed_at = now;
    run.key = {execution.user, execution.type, "", now - now % kDay};
    return run;
  }

 private:
  std::mt19937_64 random_;
  int count_ = 0;
};

void measure_fsync(const std::filesystem::path& folder) {
  const std::string path = folder / "fsync";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::string page(4096, 'x');
  int count = 0;
  const auto start = Steady::now();
  while (file >= 0 && seconds_since(start) < 3) {
    if (::pwrite(file, page.data(), page.size(), count * 4096L) != 4096 || ::fdatasync(file) != 0) break;
    ++count;
  }
  report("floor: 4 KiB appended and fdatasync", count / seconds_since(start), "/s");
  ::close(file);
  std::filesystem::remove(path);
}

// A SQLite file opened bare, for the floor and to make many rows at once.
class Bare {
 public:
  explicit Bare(const std::string& path) {
    if (sqlite3_open(path.c_str(), &file_) != SQLITE_OK) throw std::runtime_error("cannot open " + path);
  }
  ~Bare() { sqlite3_close(file_); }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;
  void run(const std::string& sql) {
    if (sqlite3_exec(file_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
      throw std::runtime_error(sqlite3_errmsg(file_));
    }
  }
  sqlite3* get() { return file_; }

 private:
  sqlite3* file_ = nullptr;
};

// The same rows into the same tables with prepared statements, one thread, nothing else: what the ledger adds to that
// are queues, sums of usage and the making of entries.
void measure_bare_inserts(const std::string& path, int rows) {
  (void)must(Ledger::open_sqlite(path));
  Bare bare(path);
  bare.run(
      "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 32768; "
      "PRAGMA cache_size = -65536");
  sqlite3_stmt* insert = nullptr;
  sqlite3_prepare_v2(bare.get(),
                     "INSERT INTO executions (user_id, session_id, command_type, command_hash, duration_ms, "
                     "cpu_usage_percent, memory_usage_mb, exit_code, executed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                     -1, &insert, nullptr);
  Runs runs(1);
  const auto start = Steady::now();
  for (int i = 0; i < rows; ++i) {
    if (i % 5'000 == 0) bare.run(i == 0 ? "BEGIN" : "COMMIT; BEGIN");
    const Execution execution = runs.next().execution;
    const auto text = [&](int place, const std::string& value) {
      sqlite3_bind_text(insert, place, value.data(), static_cast<int>(value.size()), SQLITE_STATIC);
    };
    text(1, execution.user);
    text(2, execution.session);
    text(3, execution.type);
    sqlite3_bind_blob(insert, 4, execution.command_hash.data(), 32, SQLITE_STATIC);
    sqlite3_bind_int64(insert, 5, execution.duration_ms);
    sqlite3_bind_double(insert, 6, execution.cpu_percent);
    sqlite3_bind_double(insert, 7, execution.memory_mb);
    sqlite3_bind_int(insert, 8, execution.exit_code);
    sqlite3_bind_int64(insert, 9, execution.executed_at / 1ms);
    if (sqlite3_step(insert) != SQLITE_DONE) throw std::runtime_error(sqlite3_errmsg(bare.get()));
    sqlite3_reset(insert);
  }
  bare.run("COMMIT");
  report(fmt::format("floor: bare SQLite inserts, 5,000 a commit, {} rows", rows), rows / seconds_since(start), "/s");
  sqlite3_finalize(insert);
}

void measure_async(Ledger& ledger, int rows, std::string_view name) {
  Runs runs(2);
  double worst_behind = 0;
  const auto start = Steady::now();
  for (int i = 0; i < rows;) {
    bool taken = true;
    ledger.add(runs.next(), [&](const Result<void>& result) { taken = result.has_value(); });
    if (taken) ++i;
    if (!taken) std::this_thread::sleep_for(1ms);
    if (i % 10'000 == 0)
      worst_behind = std::max(worst_behind, static_cast<double>(ledger.facts().behind.count()) / 1e6);
  }
  must(ledger.flush());
  report(fmt::format("{} async: executions written, {} rows", name, rows), rows / seconds_since(start), "/s");
  report(fmt::format("{} async: commits", name), static_cast<double>(ledger.facts().commits), "");
  report(fmt::format("{} async: oldest entry not yet written, at worst", name), worst_behind, "ms");
}

class Waiter {
 public:
  void wait_for(Ledger& ledger, Ledger::Entry entry) {
    told_ = false;
    ledger.add(std::move(entry), [this](const Result<void>& result) {
      must(result);
      const std::lock_guard guard(mutex_);
      told_ = true;
      wake_.notify_one();
    });
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return told_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool told_ = false;
};

void measure_sync(Ledger& ledger, unsigned threads, std::string_view name) {
  std::atomic<bool> over = false;
  std::atomic<std::int64_t> written = 0;
  std::vector<std::thread> callers;
  const auto start = Steady::now();
  for (unsigned i = 0; i < threads; ++i) {
    callers.emplace_back([&, i] {
      Waiter waiter;
      Runs runs(100 + i);
      for (; !over; ++written) waiter.wait_for(ledger, runs.next());
    });
  }
  std::this_thread::sleep_for(5s);
  over = true;
  for (auto& caller : callers) caller.join();
  const double took = seconds_since(start);
  report(fmt::format("{} sync: executions on disk, {} callers who wait", name, threads),
         static_cast<double>(written.load()) / took, "/s");
  report(fmt::format("{} sync: entries a commit", name),
         static_cast<double>(written.load()) / static_cast<double>(ledger.facts().commits), "");
}

// In one go: without indexes, which are made afterwards. Rows are spread over 90 days and all users.
void fill_sqlite(const std::string& path, std::int64_t rows) {
  (void)must(Ledger::open_sqlite(path));
  Bare bare(path);
  bare.run("PRAGMA synchronous = OFF; PRAGMA cache_size = -500000; PRAGMA temp_store = MEMORY");
  bare.run(
      "CREATE TEMP TABLE kept AS SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = "
      "'executions'");
  std::vector<std::string> again;
  const auto collect = [](void* into, int, char** values, char**) {
    static_cast<std::vector<std::string>*>(into)->emplace_back(values[0]);
    return 0;
  };
  sqlite3_exec(bare.get(), "SELECT sql FROM kept", collect, &again, nullptr);
  bare.run("DROP INDEX executions_by_user; DROP INDEX executions_by_time; DROP INDEX executions_by_session");
  const std::int64_t first = (Nanos{std::chrono::system_clock::now().time_since_epoch()} - 89 * kDay) / 1ms;
  bare.run(fmt::format(
      "WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {0}) "
      "INSERT INTO executions (user_id, session_id, command_type, command_hash, duration_ms, cpu_usage_percent, "
      "memory_usage_mb, exit_code, error_message, executed_at) "
      "SELECT format('user-%05d', (i * 7919 + i / {1}) % {1}), format('session-%07d', i / 10), 'shell', "
      "randomblob(32), i % 60000, 12.5, 100.25, i % 20 = 0, NULL, {2} + i * {3} / {0} FROM n",
      rows, kUsers, first, 89 * kDay / 1ms));
  for (const std::string& sql : again) bare.run(sql);
}

void measure_history(Ledger& ledger, std::string_view name) {
  const Nanos since = Nanos{std::chrono::system_clock::now().time_since_epoch()} - 90 * kDay;
  std::mt19937 random(3);
  for (const std::size_t limit : {std::size_t{10'000}, std::size_t{100}}) {
    std::vector<double> took;
    std::size_t rows = 0;
    for (int i = 0; i < 500; ++i) {
      const auto start = Steady::now();
      auto found =
          ledger.executions({.user = fmt::format("user-{:05}", random() % kUsers), .since = since, .limit = limit});
      took.push_back(seconds_since(start) * 1e6);
      if (!found) throw std::runtime_error(found.error().message);
      rows += found->size();
    }
    const double first = took.front();
    std::sort(took.begin(), took.end());
    const std::string what = fmt::format("{} history: one user, 90 days, {} rows on average", name, rows / took.size());
    report(what + ", first", first, "us");
    report(what + ", median", took[took.size() / 2], "us");
    report(what + ", p99", took[took.size() * 99 / 100], "us");
    report(what + ", worst", took.back(), "us");
  }
}

struct Plan {
  std::string folder = ".";
  std::string postgres;
  int rows = 2'000'000;
  std::int64_t history_rows = 10'000'000;
  int postgres_rows = 300'000;
};

void measure_sqlite(const Plan& plan, const std::filesystem::path& folder) {
  measure_bare_inserts(folder / "bare.db", plan.rows);
  {
    const auto ledger = must(Ledger::open_sqlite(folder / "async.db"));
    measure_async(*ledger, plan.rows, "SQLite");
  }
  {
    const auto ledger = must(Ledger::open_sqlite(folder / "sync.db", {.durability = Durability::kSync}));
    measure_sync(*ledger, 64, "SQLite");
  }
  if (plan.history_rows == 0) return;
  const std::string path = folder / "history.db";
  fill_sqlite(path, plan.history_rows);
  report("SQLite history: rows", static_cast<double>(plan.history_rows), "");
  report("SQLite history: file", static_cast<double>(std::filesystem::file_size(path)) / 1e6, "MB");
  const auto ledger = must(Ledger::open_sqlite(path));
  measure_history(*ledger, "SQLite");
}

void measure_postgres(const Plan& plan) {
  {
    const auto ledger = must(Ledger::open_postgres(plan.postgres));
    measure_async(*ledger, plan.postgres_rows, "PostgreSQL");
    measure_history(*ledger, "PostgreSQL");
  }
  const auto ledger = must(Ledger::open_postgres(plan.postgres, {.durability = Durability::kSync}));
  measure_sync(*ledger, 64, "PostgreSQL");
}

int run(int argc, char** argv) {
  Plan plan;
  CLI::App app{"Measures the ledger of executions"};
  app.add_option("--folder", plan.folder, "Where to put the SQLite files; a disk, not memory")->capture_default_str();
  app.add_option("--rows", plan.rows, "To write into SQLite")->capture_default_str();
  app.add_option("--history-rows", plan.history_rows, "To ask for one user's history among; 0: none")
      ->capture_default_str();
  app.add_option("--postgres", plan.postgres, "URL of an empty database; none: SQLite only");
  app.add_option("--postgres-rows", plan.postgres_rows, "To write into PostgreSQL")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::string name = (std::filesystem::path(plan.folder) / "ledger-load-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder in " + plan.folder);
  const std::filesystem::path folder = name;
  try {
    measure_fsync(folder);
    if (plan.rows > 0) measure_sqlite(plan, folder);
    if (!plan.postgres.empty()) measure_postgres(plan);
  } catch (...) {
    std::filesystem::remove_all(folder);
    throw;
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace headgate::quota

int main(int argc, char** argv) {
  try {
    return headgate::quota::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "ledger_load: {}\n", e.what());
    return 1;
  }
}
