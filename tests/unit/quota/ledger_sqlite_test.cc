// What only the ledger in SQLite must live through: crashes, full disks, files of others.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <random>

#include "quota/ledger_schema.h"
#include "support/ledgers.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;
using test::add_all;
using test::charge_of;
using test::commands_of;
using test::eventually;
using test::run_of;
using testing::HasSubstr;

class SqliteLedgerTest : public testing::Test {
 protected:
  std::string refusal(const std::string& path) const {
    auto opened = Ledger::open_sqlite(path);
    return opened ? "opened" : opened.error().message;
  }
  const test::LedgerPlace place_{test::LedgerKind::kSqlite};
  const test::TempFolder folder_;
};

// Charges in a child, one at a time, and reports each that was answered through a pipe, until it is killed.
struct Crash {
  pid_t pid = -1;
  int reports = -1;
};
Crash start_charging(const test::LedgerPlace& place, const LedgerOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto ledger = place.open(options);
    for (;;) {
      ledger->add(charge_of("ann"), [&](const Result<void>& result) {
        const char answer = result ? '+' : '-';
        if (::write(ends[1], &answer, 1) != 1) ::_exit(1);
      });
    }
  }
  ::close(ends[1]);
  return {pid, ends[0]};
}
std::int64_t kill_after(const Crash& crash, std::int64_t at_least) {
  std::int64_t fine = 0;
  char answers[4096];
  bool killed = false;
  for (ssize_t got = 0; (got = ::read(crash.reports, answers, sizeof answers)) > 0;) {
    fine += std::count(answers, answers + got, '+');
    if (!killed && fine >= at_least) {
      ::kill(crash.pid, SIGKILL);
      killed = true;
    }
  }
  ::close(crash.reports);
  ::waitpid(crash.pid, nullptr, 0);
  return fine;
}

TEST_F(SqliteLedgerTest, WhatWasAnsweredSurvivesKillsAtAnyMoment) {
  std::minstd_rand random(1);
  std::int64_t answered = 0;
  std::int64_t kept = 0;
  for (int round = 0; round < 25; ++round) {
    const Crash crash = start_charging(place_, {.durability = Durability::kSync});
    answered = kill_after(crash, static_cast<std::int64_t>(1 + random() % 3'000));
    const std::int64_t before = kept;
    kept = commands_of(*place_.open())["ann"];
    ASSERT_GE(kept - before, answered) << "round " << round;
    ASSERT_GT(answered, 0);
  }
}

TEST_F(SqliteLedgerTest, AsyncLosesNoMoreThanWasPending) {
  std::int64_t kept = 0;
  for (int round = 0; round < 5; ++round) {
    constexpr std::int64_t kMost = 2'000;
    const Crash crash = start_charging(place_, {.interval = 1ms, .max_pending = static_cast<std::size_t>(kMost)});
    const std::int64_t answered = kill_after(crash, 30'000);
    const std::int64_t before = kept;
    kept = commands_of(*place_.open())["ann"];
    EXPECT_GE(kept - before, answered - kMost);
    EXPECT_GT(kept, before);
  }
}

TEST_F(SqliteLedgerTest, IsForItsOwnerAloneAndUsesAWriteAheadLog) {
  const auto ledger = place_.open();
  add_all(*ledger, {charge_of("ann")});
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat status {};
    ASSERT_EQ(::stat((place_.where() + suffix).c_str(), &status), 0) << suffix;
    EXPECT_EQ(status.st_mode & 0777U, 0600U) << suffix;
  }
}

// Files may not grow past this while it lives; writes past it fail as on a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(std::size_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(SqliteLedgerTest, AFullDiskLosesNothingAndWritingGoesOnAfterwards) {
  const auto ledger = place_.open({.interval = 1ms});
  add_all(*ledger, {charge_of("ann")});
  {
    const SmallDisk small(64 << 10);
    for (int i = 0; i < 2'000; ++i) ledger->add(run_of("bob" + std::to_string(i)), nullptr);
    ASSERT_TRUE(eventually([&] { return !ledger->facts().problem.empty(); }));
    EXPECT_THAT(ledger->facts().problem, HasSubstr("ledger.db: cannot be read or written (disk I/O error"));
    EXPECT_THAT(ledger->facts().problem, HasSubstr("see that its disk has room and is sound"));
  }
  ASSERT_TRUE(eventually([&] { return ledger->facts().pending == 0; }));
  auto found = ledger->executions({.limit = 10'000});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->size(), 2'000U);
  EXPECT_EQ(ledger->facts().problem, "");
}

TEST_F(SqliteLedgerTest, AFullDiskIsToldToSyncCallersAndTheirChargeIsNotKept) {
  const auto ledger = place_.open({.durability = Durability::kSync, .patience = 20ms});
  test::LedgerAnswers answers;
  {
    const SmallDisk small(4 << 10);
    ledger->add(charge_of("ann"), answers.next());
    const auto told = answers.take(1);
    ASSERT_EQ(told.size(), 1U);
    ASSERT_FALSE(told[0].has_value());
    EXPECT_THAT(told[0].error().message, HasSubstr("see that its disk has room"));
  }
  ledger->add(charge_of("bob"), answers.next());
  EXPECT_TRUE(answers.take(2)[1].has_value());
  EXPECT_THAT(commands_of(*ledger), testing::ElementsAre(testing::Pair("bob", 1)));
}

TEST_F(SqliteLedgerTest, ALockedFileIsToldAndWaitedFor) {
  const auto ledger = place_.open({.interval = 1ms});
  constexpr int kPatienceMs = 60'000;  // the ledger may be writing itself
  SQLite::Database other(place_.where(), SQLite::OPEN_READWRITE, kPatienceMs);
  other.exec("BEGIN IMMEDIATE");
  ledger->add(charge_of("ann"), nullptr);
  ASSERT_TRUE(eventually([&] { return !ledger->facts().problem.empty(); }));
  EXPECT_THAT(ledger->facts().problem, HasSubstr("ledger.db: is locked by another program (database is locked); end "
                                                 "that program or its transaction"));
  EXPECT_THAT(refusal(place_.where()), HasSubstr("is locked by another program"));
  other.exec("COMMIT");
  ASSERT_TRUE(eventually([&] { return ledger->facts().pending == 0; })) << ledger->facts().problem;
  EXPECT_EQ(commands_of(*ledger)["ann"], 1);
}

TEST_F(SqliteLedgerTest, RefusesADamagedFileAndSaysWhatToDo) {
  {
    const auto ledger = place_.open();
    for (int i = 0; i < 500; ++i) ledger->add(run_of("ann"), nullptr);
  }
  std::string bytes = test::read_bytes(place_.where());
  ASSERT_GT(bytes.size(), 40'000U);
  std::fill(bytes.begin() + 4096, bytes.begin() + 40'000, '\x55');
  test::write_bytes(place_.where(), bytes);
  EXPECT_THAT(refusal(place_.where()),
              testing::AllOf(HasSubstr("ledger.db: is damaged ("),
                             HasSubstr("stop the server and restore the file from a backup, or move it away")));
}

TEST_F(SqliteLedgerTest, ReadsOfAFileDamagedLaterAreErrors) {
  const auto ledger = place_.open();
  for (int i = 0; i < 2'000; ++i) ledger->add(run_of("ann"), nullptr);
  ASSERT_TRUE(ledger->flush().has_value());
  SQLite::Database(place_.where(), SQLite::OPEN_READWRITE).exec("PRAGMA wal_checkpoint(TRUNCATE)");
  std::string bytes = test::read_bytes(place_.where());
  std::fill(bytes.begin() + 4096, bytes.end(), '\x55');
  test::write_bytes(place_.where(), bytes);
  auto found = ledger->executions({.user = "ann", .limit = 10'000});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::kCorrupt);
}

TEST_F(SqliteLedgerTest, RefusesForeignFilesAndLeavesThemAlone) {
  const std::string path = folder_.file("other.db");
  SQLite::Database(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE theirs (x)");
  for (const int application : {0, 42, 0x48474442}) {
    SQLite::Database(path, SQLite::OPEN_READWRITE).exec(fmt::format("PRAGMA application_id = {}", application));
    const std::string before = test::read_bytes(path);
    EXPECT_EQ(refusal(path),
              path + ": is a database of another program and was left alone; give the ledger one of its own");
    EXPECT_EQ(test::read_bytes(path), before);
  }
  const std::string text = folder_.file("notes.txt");
  test::write_bytes(text, std::string(5000, 'n'));
  EXPECT_THAT(refusal(text), HasSubstr("notes.txt: is not an SQLite database"));
  EXPECT_EQ(test::read_bytes(text), std::string(5000, 'n'));
}

TEST_F(SqliteLedgerTest, RefusesANewerFileAndLeavesItAlone) {
  (void)place_.open();
  SQLite::Database(place_.where(), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99");
  const std::string before = test::read_bytes(place_.where());
  EXPECT_EQ(refusal(place_.where()),
            fmt::format("{}: was written by a newer Headgate (its tables are version 99, this program knows up to {}); "
                        "run that one, or give another ledger",
                        place_.where(), ledger_version()));
  EXPECT_EQ(test::read_bytes(place_.where()), before);
}

TEST_F(SqliteLedgerTest, SaysWhichFolderCannotBeWritten) {
  EXPECT_EQ(refusal("/nowhere/at/all.db"),
            "/nowhere/at/all.db: cannot be opened: No such file or directory; see that its folder exists and may be "
            "written");
  EXPECT_THAT(refusal("/proc/ledger.db"), HasSubstr("/proc/ledger.db: cannot be opened: "));  // root may not either
}

TEST_F(SqliteLedgerTest, BringsAFileOfTheFirstVersionUpToDateWithItsRows) {
  {
    SQLite::Database old(place_.where(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(ledger_migrations()[0].sqlite);
    old.exec(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = 1", kLedgerId));
    old.exec(fmt::format("INSERT INTO executions VALUES (7, 'ann', 's', 'shell', NULL, 1, 2, 3, 4, NULL, {})",
                         test::recent_day() / 1ms));
  }
  const auto ledger = place_.open();
  const auto found = ledger->executions({.session = "s"});
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().id, 7);
  SQLite::Database file(place_.where(), SQLite::OPEN_READONLY);
  EXPECT_EQ(file.execAndGet("PRAGMA user_version").getInt64(), ledger_version());
  EXPECT_EQ(file.execAndGet("SELECT count(*) FROM sqlite_schema WHERE name = 'executions_by_session'").getInt(), 1);
}

TEST_F(SqliteLedgerTest, HistoryIsFoundThroughAnIndexWithoutSorting) {
  (void)place_.open();
  SQLite::Database file(place_.where(), SQLite::OPEN_READONLY);
  const auto plan = [&](const Ledger::ExecutionQuery& query) {
    SQLite::Statement explain(file, "EXPLAIN QUERY PLAN " + executions_sql(query).text);
    std::string text;
    while (explain.executeStep()) text += explain.getColumn(3).getString() + ";";
    return text;
  };
  const Nanos day = test::recent_day();
  EXPECT_EQ(plan({.user = "ann", .since = day}),
            "SEARCH executions USING INDEX executions_by_user (user_id=? AND executed_at>?);");
  EXPECT_EQ(plan({.user = "ann", .failed = true, .since = day, .until = day + 1h, .after = Ledger::Position{day, 3}}),
            "SEARCH executions USING INDEX executions_by_user (user_id=? AND executed_at>? AND executed_at<?);");
  EXPECT_EQ(plan({.user = "ann", .after = Ledger::Position{day, 3}}),
            "SEARCH executions USING INDEX executions_by_user (user_id=? AND executed_at<?);");
  EXPECT_EQ(plan({.session = "s"}), "SEARCH executions USING INDEX executions_by_session (session_id=?);");
  EXPECT_EQ(plan({}), "SCAN executions USING INDEX executions_by_time;");
}

}  // namespace
}  // namespace headgate::quota
