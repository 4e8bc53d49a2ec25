// One suite over every database.
#include "quota/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "quota/ledger_writer.h"
#include "support/ledgers.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;
using test::add_all;
using test::charge_of;
using test::commands_of;
using test::run_of;
using testing::HasSubstr;

class LedgerTest : public testing::TestWithParam<test::LedgerKind> {
 protected:
  const test::LedgerPlace place_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Databases, LedgerTest, testing::Values(test::LedgerKind::kSqlite, test::LedgerKind::kPostgres),
                         [](const auto& tested) { return test::name_of(tested.param); });

std::vector<Execution> executions(Ledger& ledger, const Ledger::ExecutionQuery& query = {}) {
  auto found = ledger.executions(query);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  return found ? *found : std::vector<Execution>{};
}
std::vector<UsageRow> usage(Ledger& ledger, const Ledger::UsageQuery& query = {}) {
  auto found = ledger.usage(query);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  return found ? *found : std::vector<UsageRow>{};
}
std::vector<std::string> users(const std::vector<Execution>& found) {
  std::vector<std::string> names;
  for (const Execution& execution : found) names.push_back(execution.user);
  return names;
}

void expect_same(const Execution& a, const Execution& b) {
  EXPECT_EQ(a.user, b.user);
  EXPECT_EQ(a.session, b.session);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.command_hash, b.command_hash);
  EXPECT_EQ(a.duration_ms, b.duration_ms);
  EXPECT_EQ(a.cpu_percent, b.cpu_percent);
  EXPECT_EQ(a.memory_mb, b.memory_mb);
  EXPECT_EQ(a.exit_code, b.exit_code);
  EXPECT_EQ(a.error, b.error);
  EXPECT_EQ(a.executed_at, b.executed_at);
}

TEST_P(LedgerTest, KeepsEveryFieldOverARestart) {
  Ledger::Run full = run_of("ann");
  full.execution.session = "s-1";
  full.execution.command_hash = std::string(32, 'a') + std::string(32, '7');
  full.execution.duration_ms = 123'456;
  full.execution.cpu_percent = 187.3;
  full.execution.memory_mb = 0.1;
  full.execution.exit_code = -9;
  full.execution.error = "killed: out of memory";
  full.execution.executed_at = test::recent_day() + 17ms;
  const Ledger::Run bare = run_of("bob");
  {
    const auto ledger = place_.open();
    add_all(*ledger, {full, bare});
  }
  const auto ledger = place_.open();
  const auto found = executions(*ledger);
  ASSERT_EQ(found.size(), 2U);
  expect_same(found[0], full.execution);
  expect_same(found[1], bare.execution);
  EXPECT_GT(found[0].id, 0);
  EXPECT_NE(found[0].id, found[1].id);
}

TEST_P(LedgerTest, AddsUpWhatIsChargedAndWhatRunsUse) {
  const auto ledger = place_.open();
  Ledger::Charge charge = charge_of("ann");
  charge.usage = {1, 2, 3, 4, 5, 6, 7, 8, 9.5};
  Ledger::Run run = run_of("ann");
  run.execution.duration_ms = 1000;
  run.execution.cpu_percent = 250;
  run.execution.memory_mb = 0.25;
  run.execution.exit_code = 1;
  add_all(*ledger, {charge, charge, run});
  add_all(*ledger, {charge});  // in a commit of its own
  const auto rows = usage(*ledger);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].key, charge.key);
  const Usage& sum = rows[0].usage;
  EXPECT_EQ(sum.commands, 3);
  EXPECT_EQ(sum.refused, 6);
  EXPECT_EQ(sum.would_refuse, 9);
  EXPECT_EQ(sum.throttled, 12);
  EXPECT_EQ(sum.runs, 16);
  EXPECT_EQ(sum.failures, 19);
  EXPECT_EQ(sum.duration_ms, 1021);
  EXPECT_EQ(sum.cpu_ms, 2524);
  EXPECT_DOUBLE_EQ(sum.memory_mb, 28.75);
}

TEST_P(LedgerTest, SumsUsageOverSessionsUnlessAskedForThem) {
  const auto ledger = place_.open();
  const Nanos day = test::recent_day();
  add_all(*ledger, {charge_of("bob", 1, "shell", "s2", day), charge_of("bob", 2, "shell", "s1", day),
                    charge_of("bob", 4, "shell", "", day - 24h), charge_of("ann", 8, "test"),
                    charge_of("ann", 16, "code", "", day), charge_of("Zoe", 32)});
  std::vector<std::string> seen;
  for (const auto& row : usage(*ledger)) {
    EXPECT_EQ(row.key.session, "");
    seen.push_back(row.key.user + " " + row.key.type + " " + std::to_string(row.usage.commands));
  }
  EXPECT_THAT(seen, testing::ElementsAre("Zoe shell 32", "ann code 16", "ann test 8", "bob shell 4", "bob shell 3"));
  const auto sessions = usage(*ledger, {.user = "bob", .since = day, .sessions = true});
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(sessions[0].key.session, "s1");
  EXPECT_EQ(sessions[0].usage.commands, 2);
  EXPECT_EQ(usage(*ledger, {.type = "code"}).size(), 1U);
  EXPECT_EQ(usage(*ledger, {.until = day}).size(), 1U);
  EXPECT_EQ(usage(*ledger, {.limit = 2}).size(), 2U);
}

TEST_P(LedgerTest, FiltersHistoryByEveryField) {
  const auto ledger = place_.open();
  const Nanos day = test::recent_day();
  Ledger::Run failed = run_of("cy", day + 3ms);
  failed.execution.exit_code = 2;
  Ledger::Run session = run_of("di", day + 4ms);
  session.execution.session = "s";
  add_all(*ledger, {run_of("ann", day + 1ms), run_of("bob", day + 2ms, "test"), failed, session});
  const auto ask = [&](const Ledger::ExecutionQuery& query) { return users(executions(*ledger, query)); };
  using testing::ElementsAre;
  EXPECT_THAT(ask({}), ElementsAre("di", "cy", "bob", "ann"));
  EXPECT_THAT(ask({.user = "bob"}), ElementsAre("bob"));
  EXPECT_THAT(ask({.user = "nobody"}), ElementsAre());
  EXPECT_THAT(ask({.type = "test"}), ElementsAre("bob"));
  EXPECT_THAT(ask({.session = "s"}), ElementsAre("di"));
  EXPECT_THAT(ask({.user = "ann", .session = "s"}), ElementsAre());
  EXPECT_THAT(ask({.failed = true}), ElementsAre("cy"));
  EXPECT_THAT(ask({.failed = false}), ElementsAre("di", "bob", "ann"));
  EXPECT_THAT(ask({.since = day + 2ms, .until = day + 4ms}), ElementsAre("cy", "bob"));
  EXPECT_THAT(ask({.since = day + 2ms + 1ns}), ElementsAre("di", "cy"));
  EXPECT_THAT(ask({.until = day + 2ms + 1ns}), ElementsAre("bob", "ann"));
  EXPECT_THAT(ask({.limit = 2}), ElementsAre("di", "cy"));
}

TEST_P(LedgerTest, PagesThroughEqualTimesWithoutGapsOrRepeats) {
  const auto ledger = place_.open();
  constexpr int kRows = 57;
  for (int i = 0; i < kRows; ++i) {
    // Five to the same millisecond.
    Ledger::Run run = run_of(i % 3 == 0 ? "ann" : "bob", test::recent_day() + i / 5 * 1ms);
    run.execution.duration_ms = i;
    ledger->add(run, nullptr);
  }
  ASSERT_TRUE(ledger->flush().has_value());
  for (const char* user : {"", "ann", "bob"}) {
    const auto all = executions(*ledger, {.user = user});
    EXPECT_EQ(all.size(), user[0] == 0 ? 57U : user[0] == 'a' ? 19U : 38U);
    std::vector<std::int64_t> paged;
    Ledger::ExecutionQuery query{.user = user, .limit = 4};
    for (;;) {
      const auto page = executions(*ledger, query);
      for (const Execution& execution : page) paged.push_back(execution.duration_ms);
      if (page.size() < query.limit) break;
      query.after = {page.back().executed_at, page.back().id};
    }
    std::vector<std::int64_t> whole;
    for (const Execution& execution : all) whole.push_back(execution.duration_ms);
    EXPECT_EQ(paged, whole);
    // Newest first; of one user even within a millisecond.
    EXPECT_TRUE(std::is_sorted(all.rbegin(), all.rend(),
                               [](const Execution& a, const Execution& b) { return a.executed_at < b.executed_at; }));
    EXPECT_TRUE(user[0] == 0 || std::is_sorted(whole.rbegin(), whole.rend()));
  }
}

TEST_P(LedgerTest, SyncEntriesAreReadableByAnotherOnceDone) {
  const auto ledger = place_.open({.durability = Durability::kSync});
  const auto other = place_.open();
  for (int i = 1; i <= 20; ++i) {
    test::LedgerAnswers answers;
    ledger->add(charge_of("ann"), answers.next());
    const auto told = answers.take(1);
    ASSERT_EQ(told.size(), 1U);
    ASSERT_TRUE(told[0].has_value());
    EXPECT_EQ(commands_of(*other)["ann"], i);
  }
  EXPECT_EQ(ledger->facts().written, 20U);
}

TEST_P(LedgerTest, ManyWhoWaitShareACommit) {
  const auto ledger = place_.open({.durability = Durability::kSync});
  constexpr std::size_t kThreads = 16;
  constexpr std::size_t kEach = 25;
  std::vector<std::thread> threads;
  std::atomic<int> fine = 0;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < kEach; ++i) {
        test::LedgerAnswers answers;
        ledger->add(charge_of("ann"), answers.next());
        const auto told = answers.take(1);
        if (!told.empty() && told[0].has_value()) ++fine;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(fine.load(), static_cast<int>(kThreads * kEach));
  EXPECT_EQ(commands_of(*ledger)["ann"], static_cast<std::int64_t>(kThreads * kEach));
  EXPECT_LT(ledger->facts().commits, kThreads * kEach / 2);
}

TEST_P(LedgerTest, AsyncEntriesAreWrittenByThemselves) {
  const auto ledger = place_.open({.interval = 20ms});
  test::LedgerAnswers answers;
  ledger->add(charge_of("ann"), answers.next());
  EXPECT_EQ(answers.count(), 1U) << "told before add() returned";
  EXPECT_TRUE(test::eventually([&] { return ledger->facts().pending == 0; }));
  EXPECT_EQ(commands_of(*ledger)["ann"], 1);
  EXPECT_EQ(ledger->facts().behind, 0ns);
}

TEST_P(LedgerTest, EndingItWritesWhatIsPending) {
  {
    const auto ledger = place_.open({.interval = 1h});
    for (int i = 0; i < 100; ++i) ledger->add(charge_of("ann"), nullptr);
  }
  EXPECT_EQ(commands_of(*place_.open())["ann"], 100);
}

TEST_P(LedgerTest, OddTextsAreKeptOrRepairedButNeverStopIt) {
  const auto ledger = place_.open();
  std::minstd_rand random(7);
  std::vector<std::string> odd{std::string("nul\0nul", 7),
                               "quote ' \" \\ back",
                               "{a,b}",
                               "NULL",
                               "bytes \xff\xfe",
                               "\xc3",
                               "tab\tline\nreturn\r",
                               "\xed\xa0\x80",
                               "\xf0\x9f\x98\x80",
                               "$1",
                               "%s",
                               " "};
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (unsigned length = 1 + random() % 20; length > 0; --length) text += static_cast<char>(random() % 256);
    odd.push_back(text);
  }
  std::vector<Ledger::Entry> entries;
  for (const std::string& text : odd) {
    Ledger::Run run = run_of(text, test::recent_day(), text);
    run.execution.session = text;
    run.execution.error = text;
    run.key.session = text;
    entries.emplace_back(run);
  }
  add_all(*ledger, entries);
  for (const std::string& text : odd) {
    const auto found = executions(*ledger, {.user = text, .session = text});
    ASSERT_FALSE(found.empty()) << testing::PrintToString(text);
    EXPECT_EQ(found[0].user, found[0].error);
    EXPECT_EQ(found[0].user, found[0].type);
    EXPECT_FALSE(usage(*ledger, {.user = text, .sessions = true}).empty());
  }
  EXPECT_EQ(executions(*ledger, {.user = "nul\xEF\xBF\xBDnul"}).size(), 1U);
  EXPECT_EQ(executions(*ledger, {.user = "bytes \xEF\xBF\xBD\xEF\xBF\xBD"}).size(), 1U) << "two bytes, two marks";
  EXPECT_EQ(executions(*ledger, {.user = "\xf0\x9f\x98\x80"}).size(), 1U);
}

TEST_P(LedgerTest, NumbersBeyondReasonAreBroughtIntoRange) {
  const auto ledger = place_.open();
  Ledger::Run run = run_of("ann");
  run.execution.duration_ms = std::numeric_limits<std::int64_t>::max();
  run.execution.cpu_percent = std::numeric_limits<double>::infinity();
  run.execution.memory_mb = std::numeric_limits<double>::quiet_NaN();
  run.execution.exit_code = std::numeric_limits<int>::min();
  run.execution.executed_at = Nanos::max();
  Ledger::Charge most = charge_of("bob", std::numeric_limits<std::int64_t>::max());
  add_all(*ledger, {run, run, most});
  add_all(*ledger, {run, most});
  const auto found = executions(*ledger, {.user = "ann"});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].duration_ms, 315'360'000'000);
  EXPECT_EQ(found[0].cpu_percent, 1e6);
  EXPECT_EQ(found[0].memory_mb, 0);
  EXPECT_EQ(found[0].exit_code, std::numeric_limits<int>::min());
  EXPECT_EQ(found[0].executed_at, std::chrono::floor<std::chrono::milliseconds>(kMaxTime));
  const auto rows = usage(*ledger);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].usage.cpu_ms, 1'000'000'000'000'000);
  EXPECT_EQ(rows[1].usage.commands, 1'000'000'000'000'000) << "sums stay at the most there is";
}

TEST_P(LedgerTest, RefusesWhatCanNeverBeWritten) {
  const auto ledger = place_.open({.durability = Durability::kSync});
  const auto refusal = [&](const Ledger::Entry& entry) {
    std::string message = "none";
    test::LedgerAnswers answers;
    ledger->add(entry, answers.next());
    const auto told = answers.take(1);
    return told.empty() || told[0].has_value() ? message : told[0].error().message;
  };
  EXPECT_EQ(refusal(charge_of("")), "user must be 1 to 512 bytes, got 0");
  EXPECT_EQ(refusal(charge_of(std::string(513, 'x'))), "user must be 1 to 512 bytes, got 513");
  EXPECT_EQ(refusal(charge_of("ann", 1, "")), "type must be 1 to 512 bytes, got 0");
  EXPECT_EQ(refusal(charge_of("ann", 1, "a", std::string(600, 'x'))), "session must be 0 to 512 bytes, got 600");
  Ledger::Run run = run_of("ann");
  run.execution.command_hash = "abc";
  EXPECT_EQ(refusal(run), "command_hash must be 64 hexadecimal digits, got 3 bytes");
  EXPECT_EQ(refusal(charge_of(std::string(512, 'x'), 1, std::string(512, 'y'), std::string(512, 'z'))), "none");
}

TEST_P(LedgerTest, LongErrorsAreCut) {
  const auto ledger = place_.open();
  Ledger::Run run = run_of("ann");
  run.execution.error = std::string(10'000, 'e');
  add_all(*ledger, {run});
  const auto found = executions(*ledger);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].error, std::string(kMaxErrorBytes - 3, 'e') + "...");
}

TEST_P(LedgerTest, OldRowsGoInStepsAndOthersStay) {
  const Nanos now{std::chrono::system_clock::now().time_since_epoch()};
  {
    const auto ledger = place_.open({.retention = 1000 * 24h});
    for (int i = 0; i < 1'200; ++i) ledger->add(run_of("old", now - 91 * 24h + i * 1ms), nullptr);
    ledger->add(run_of("new", now - 89 * 24h), nullptr);
    ledger->add(charge_of("old", 1, "shell", "", now - 91 * 24h), nullptr);
    ledger->add(charge_of("new", 1, "shell", "", now - 89 * 24h), nullptr);
    ASSERT_TRUE(ledger->flush().has_value());
  }
  const auto ledger = place_.open();
  EXPECT_TRUE(test::eventually([&] { return ledger->facts().pruned >= 1'201; }));
  EXPECT_THAT(users(executions(*ledger)), testing::ElementsAre("new"));
  EXPECT_EQ(usage(*ledger, {.until = now - 90 * 24h}).size(), 0U);
  EXPECT_EQ(commands_of(*ledger)["new"], 1);
}

TEST_P(LedgerTest, UsageOfAMonthStaysHoweverShortTheRetention) {
  const Nanos now{std::chrono::system_clock::now().time_since_epoch()};
  {
    const auto ledger = place_.open({.retention = 1000 * 24h});
    add_all(*ledger, {charge_of("ann", 1, "shell", "", now - 31 * 24h),
                      charge_of("bob", 1, "shell", "", now - 33 * 24h), run_of("cy", now - 2 * 24h)});
  }
  const auto ledger = place_.open({.retention = 24h});
  EXPECT_TRUE(test::eventually([&] { return ledger->facts().pruned >= 2; }));
  const auto left = commands_of(*ledger);
  EXPECT_TRUE(left.contains("ann"));
  EXPECT_FALSE(left.contains("bob"));
  EXPECT_TRUE(executions(*ledger).empty());
}

TEST_P(LedgerTest, AClockThatLeapsAheadPrunesNothing) {
  const Nanos now{std::chrono::system_clock::now().time_since_epoch()};
  std::atomic<std::int64_t> ahead = 0;
  std::atomic<int> looks = 0;
  const auto ledger = place_.open({.prune_every = 1ms, .wall = [&] {
                                     ++looks;
                                     return now + Nanos{ahead.load()};
                                   }});
  add_all(*ledger, {run_of("ann", now)});
  ahead = Nanos(200 * 24h).count();
  const int before = looks;
  EXPECT_TRUE(test::eventually([&] { return looks > before + 5; }));
  EXPECT_EQ(ledger->facts().pruned, 0U);
  EXPECT_EQ(executions(*ledger).size(), 1U);
}

TEST(Retention, HoldsForAnHourAfterALeapAndNotAfterAStepBack) {
  const Retention::Steady start{};
  const Nanos wall = 10'000 * 24h;
  Retention retention(90 * 24h, wall, start);
  const auto first = retention.expiry(wall + 1min, start + 1min);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->executions, wall + 1min - 90 * 24h);
  EXPECT_FALSE(retention.expiry(wall + 100 * 24h, start + 2min).has_value());
  EXPECT_FALSE(retention.expiry(wall + 100 * 24h + 1min, start + 3min).has_value());
  EXPECT_TRUE(retention.expiry(wall + 62min, start + 4min - 0s) == std::nullopt) << "set right, but still on hold";
  EXPECT_TRUE(retention.expiry(wall + 121min, start + 63min).has_value());
  EXPECT_TRUE(retention.expiry(wall - 24h, start + 64min).has_value()) << "a step back only keeps more";
}

}  // namespace
}  // namespace headgate::quota
