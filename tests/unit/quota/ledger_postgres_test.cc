// What only the ledger in PostgreSQL must live through: a server that goes away, freezes or is shared.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "quota/ledger_schema.h"
#include "quota/postgres_link.h"
#include "support/ledgers.h"

// When the connection is lost while a statement runs, libpqxx 6 throws before it owns the result. It is some hundred
// bytes for each time that happens, and not ours to mend.
extern "C" const char* __lsan_default_suppressions() { return "leak:pqxx::connection_base\n"; }

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;
using test::add_all;
using test::charge_of;
using test::commands_of;
using test::eventually;
using test::PostgresServer;
using test::run_of;
using testing::HasSubstr;
using testing::Not;

class PostgresLedgerTest : public testing::Test {
 protected:
  std::string ask(const std::string& sql) const {
    pqxx::connection connection(place_.where());
    pqxx::nontransaction work(connection);
    std::string text;
    for (const auto& row : work.exec(sql)) text += std::string(row[0].c_str()) + "\n";
    return text;
  }
  std::string refusal(const std::string& url) const {
    auto opened = Ledger::open_postgres(url);
    return opened ? "opened" : opened.error().message;
  }
  // Once the ledger has looked for old rows, which it does first of all, and has written something.
  std::unique_ptr<Ledger> open_at_rest(LedgerOptions options) {
    options.wall = [this] {
      ++looks_;
      return Nanos{std::chrono::system_clock::now().time_since_epoch()};
    };
    auto ledger = place_.open(std::move(options));
    EXPECT_TRUE(eventually([&] { return looks_ >= 2; }));
    add_all(*ledger, {charge_of("ann")});
    return ledger;
  }
  const test::LedgerPlace place_{test::LedgerKind::kPostgres};

 private:
  std::atomic<int> looks_ = 0;
};

TEST_F(PostgresLedgerTest, AsyncLosesNothingAndDoublesNothingWhileTheServerCrashesAgainAndAgain) {
  const auto ledger = place_.open({.interval = 1ms});
  std::int64_t added = 0;
  for (int round = 0; round < 4; ++round) {
    std::atomic<bool> over = false;
    std::thread adder([&] {
      while (!over) {
        ledger->add(charge_of("ann"), nullptr);
        ++added;
        if (ledger->facts().pending > 50'000) (void)eventually([&] { return over.load(); }, 30s);
      }
    });
    PostgresServer::shared().crash();
    PostgresServer::shared().start();
    over = true;
    adder.join();
    ASSERT_TRUE(eventually([&] { return ledger->facts().pending == 0; }, 30s)) << ledger->facts().problem;
    EXPECT_EQ(commands_of(*ledger)["ann"], added) << "round " << round;
  }
  EXPECT_EQ(ledger->facts().problem, "");
}

TEST_F(PostgresLedgerTest, SyncCallersHearOfACrashWhenPatienceIsOver) {
  const auto ledger = place_.open({.durability = Durability::kSync});
  test::LedgerAnswers answers;
  ledger->add(charge_of("ann"), answers.next());
  ASSERT_TRUE(answers.take(1)[0].has_value());
  PostgresServer::shared().crash();
  ledger->add(charge_of("bob"), answers.next());
  const auto told = answers.take(2);
  PostgresServer::shared().start();
  ASSERT_EQ(told.size(), 2U);
  ASSERT_FALSE(told[1].has_value());
  EXPECT_THAT(told[1].error().message, HasSubstr("PostgreSQL cannot be reached"));
  EXPECT_THAT(told[1].error().message, HasSubstr("see that it runs"));
  EXPECT_TRUE(told[1].error().transient);
  ledger->add(charge_of("cy"), answers.next());
  const auto again = answers.take(3);
  ASSERT_EQ(again.size(), 3U);
  EXPECT_TRUE(again[2].has_value());
  EXPECT_THAT(commands_of(*ledger), testing::ElementsAre(testing::Pair("ann", 1), testing::Pair("cy", 1)));
}

TEST_F(PostgresLedgerTest, AFrozenServerIsGivenUpOnAndNothingIsDoneTwiceWhenItThaws) {
  const auto sync = place_.open({.durability = Durability::kSync});
  test::LedgerAnswers answers;
  sync->add(charge_of("ann"), answers.next());
  ASSERT_TRUE(answers.take(1)[0].has_value());
  PostgresServer::shared().freeze();
  sync->add(charge_of("bob"), answers.next());
  const auto told = answers.take(2);
  PostgresServer::shared().thaw();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_FALSE(told[1].has_value());
  sync->add(charge_of("cy"), answers.next());
  const auto again = answers.take(3);
  ASSERT_EQ(again.size(), 3U);
  EXPECT_TRUE(again[2].has_value());
  // Lost while it was being written: kept once or not at all.
  EXPECT_LE(commands_of(*sync)["bob"], 1);
}

TEST_F(PostgresLedgerTest, ABatchFoundLateInASocketIsNotAppliedAgain) {
  const auto ledger = open_at_rest({.interval = 1ms, .patience = 500ms});
  const std::string backend =
      ask("SELECT pid FROM pg_stat_activity WHERE query LIKE '%headgate_writers%' AND pid <> "
          "pg_backend_pid() AND datname = current_database()");
  const pid_t pid = std::stoi(backend);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  for (int i = 0; i < 10; ++i) ledger->add(charge_of("ann"), nullptr);
  // Given up on, settled and written anew over another connection.
  const bool written = eventually([&] { return ledger->facts().pending == 0; });
  ::kill(pid, SIGCONT);
  ASSERT_TRUE(written) << ledger->facts().problem;
  ASSERT_TRUE(eventually([&] { return ask("SELECT 1 FROM pg_stat_activity WHERE pid = " + backend).empty(); }));
  EXPECT_EQ(commands_of(*ledger)["ann"], 11);
}

TEST_F(PostgresLedgerTest, ABatchWhoseBackendWasKilledIsWrittenOnce) {
  const auto ledger = open_at_rest({.interval = 1ms});
  pqxx::connection connection(place_.where());
  {
    pqxx::work work(connection);
    work.exec("LOCK TABLE usage IN EXCLUSIVE MODE");
    for (int i = 0; i < 10; ++i) ledger->add(charge_of("ann"), nullptr);
    ASSERT_TRUE(
        eventually([&] { return work.exec1("SELECT count(*) FROM pg_locks WHERE NOT granted")[0].as<int>() > 0; }));
    pqxx::connection killer(place_.where());
    pqxx::nontransaction kill(killer);
    kill.exec("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted");
    ASSERT_TRUE(eventually([&] { return !ledger->facts().problem.empty(); }));
    work.commit();
  }
  ASSERT_TRUE(eventually([&] { return ledger->facts().pending == 0; })) << ledger->facts().problem;
  EXPECT_EQ(commands_of(*ledger)["ann"], 11);
}

TEST_F(PostgresLedgerTest, ServersThatStartTogetherAgreeOnTheTables) {
  std::vector<std::thread> threads;
  std::vector<std::string> problems(6);
  for (auto& problem : problems) {
    threads.emplace_back([&] {
      auto opened = place_.try_open();
      if (!opened) {
        problem = opened.error().message;
        return;
      }
      for (int i = 0; i < 200; ++i) {
        (*opened)->add(charge_of("ann"), nullptr);
        (*opened)->add(charge_of("bob"), nullptr);
      }
      const auto flushed = (*opened)->flush();
      if (!flushed) problem = flushed.error().message;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(problems, testing::Each(""));
  EXPECT_EQ(ask("SELECT version FROM headgate_schema"), fmt::format("{}\n", ledger_version()));
  EXPECT_EQ(ask("SELECT sum(commands) FROM usage"), "2400\n");
}

TEST_F(PostgresLedgerTest, BringsTablesOfTheFirstVersionUpToDateWithTheirRows) {
  ask(ledger_migrations()[0].postgres);
  ask("CREATE TABLE headgate_schema (version bigint NOT NULL); INSERT INTO headgate_schema VALUES (1)");
  ask(
      fmt::format("INSERT INTO executions (user_id, session_id, command_type, duration_ms, cpu_usage_percent, "
                  "memory_usage_mb, exit_code, executed_at) VALUES ('ann', 's', 'shell', 1, 2, 3, 4, {})",
                  test::recent_day() / 1ms));
  const auto ledger = place_.open();
  const auto found = ledger->executions({.session = "s"});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->size(), 1U);
  EXPECT_EQ(ask("SELECT count(*) FROM pg_indexes WHERE indexname = 'executions_by_session'"), "1\n");
  EXPECT_EQ(ask("SELECT version FROM headgate_schema"), fmt::format("{}\n", ledger_version()));
}

TEST_F(PostgresLedgerTest, RefusesNewerAndForeignTables) {
  ask("CREATE TABLE usage (theirs int)");
  EXPECT_THAT(refusal(place_.where()), HasSubstr("is a database of another program and was left alone"));
  ask("DROP TABLE usage");
  (void)place_.open();
  ask("UPDATE headgate_schema SET version = 99");
  EXPECT_THAT(refusal(place_.where()), HasSubstr("was written by a newer Headgate (its tables are version 99"));
}

TEST_F(PostgresLedgerTest, NeverShowsThePassword) {
  for (const std::string url : {"postgresql://ann:s3cret@127.0.0.1:1/db", "host=127.0.0.1 port=1 password=s3cret",
                                "postgresql://ann:s3cret@127.0.0.1:port/db", "host=127.0.0.1 s3cret",
                                "postgresql://ann:s3cret@127.0.0.1:1/db?nonsense=s3cret"}) {
    const std::string message = refusal(url);
    EXPECT_THAT(message, Not(HasSubstr("s3cret")));
    EXPECT_THAT(message, testing::AnyOf(HasSubstr("PostgreSQL cannot be reached"), HasSubstr("must be like"))) << url;
  }
  EXPECT_THAT(refusal("postgresql://ann:s3cret@127.0.0.1:1/db"),
              HasSubstr("postgresql://ann@127.0.0.1:1/db: PostgreSQL cannot be reached ("));
}

TEST_F(PostgresLedgerTest, CommitsReachTheDiskWhateverTheServersDefault) {
  std::string name = ask("SELECT current_database()");
  name.pop_back();
  ask("ALTER DATABASE " + name + " SET synchronous_commit = off");
  const auto address = parse_postgres(place_.where());
  ASSERT_TRUE(address.has_value());
  PostgresLink link(*address, 5s, [](pqxx::connection_base&) {});
  std::string setting;
  const auto failure = link.run([&](pqxx::connection_base& connection) {
    pqxx::nontransaction work(connection);
    setting = work.exec1("SHOW synchronous_commit")[0].c_str();
  });
  ASSERT_FALSE(failure.has_value()) << failure->error.message;
  EXPECT_EQ(setting, "on");
}

TEST_F(PostgresLedgerTest, HistoryIsFoundThroughAnIndex) {
  (void)place_.open();
  ask("INSERT INTO executions (user_id, session_id, command_type, duration_ms, cpu_usage_percent, memory_usage_mb, "
      "exit_code, executed_at) SELECT 'user' || i % 500, 's' || i, 'shell', 1, 2, 3, 4, i FROM "
      "generate_series(1, 50000) i");
  ask("ANALYZE executions");
  const auto plan = [&](const Ledger::ExecutionQuery& query) {
    const Sql sql = executions_sql(query);
    pqxx::connection connection(place_.where());
    pqxx::nontransaction work(connection);
    std::vector<std::string> values;
    for (const auto& value : sql.values) {
      const auto* number = std::get_if<std::int64_t>(&value);
      values.push_back(number != nullptr ? std::to_string(*number) : std::get<std::string>(value));
    }
    std::string text;
    for (const auto& row : work.exec_params("EXPLAIN " + sql.text, pqxx::prepare::make_dynamic_params(values))) {
      text += std::string(row[0].c_str()) + "\n";
    }
    return text;
  };
  const std::string by_user = plan({.user = "user7", .since = 1s});
  EXPECT_THAT(by_user, HasSubstr("executions_by_user"));
  EXPECT_THAT(by_user, Not(HasSubstr("Seq Scan")));
  EXPECT_THAT(plan({.user = "user7", .after = Ledger::Position{20s, 3}}), HasSubstr("executions_by_user"));
  EXPECT_THAT(plan({.session = "s7"}), HasSubstr("executions_by_session"));
  EXPECT_THAT(plan({}), HasSubstr("executions_by_time"));
}

}  // namespace
}  // namespace headgate::quota
