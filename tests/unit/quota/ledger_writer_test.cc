// The ledger over a fake database.
#include "quota/ledger_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "support/ledgers.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;
using test::charge_of;
using test::eventually;
using test::run_of;
using testing::HasSubstr;

// What the test and the ledger's thread share.
struct Script {
  std::mutex mutex;
  std::condition_variable changed;
  bool hold = false;                       // writes wait
  bool fails = false;                      // writes fail
  bool loses = false;                      // writes fail without an answer
  bool applied = false;                    // what written() says of a lost one
  bool settle_fails = false;               // written() fails too
  std::vector<std::size_t> rows_of_usage;  // of each batch that was written
  std::size_t attempts = 0;
  std::map<std::string, std::int64_t> commands;
  std::size_t prunes = 0;

  template <class Change>
  void change(Change to) {
    const std::lock_guard guard(mutex);
    to(*this);
    changed.notify_all();
  }
  template <class Read>
  auto read(Read from) {
    const std::lock_guard guard(mutex);
    return from(*this);
  }
};

class ScriptedBackend final : public LedgerBackend {
 public:
  explicit ScriptedBackend(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  std::optional<Failure> write(const LedgerBatch& batch) override {
    std::unique_lock lock(script_->mutex);
    ++script_->attempts;
    script_->changed.wait(lock, [&] { return !script_->hold; });
    if (script_->fails) return Failure{{ErrorCode::kIo, "the disk is full", true}};
    if (!script_->loses || script_->applied) keep(batch);
    if (script_->loses) return Failure{{ErrorCode::kIo, "the line is dead", true}, Fate::kUnknown};
    return std::nullopt;
  }
  Result<bool> written(std::uint64_t) override {
    const std::lock_guard guard(script_->mutex);
    if (script_->settle_fails) return Error{ErrorCode::kIo, "still dead", true};
    script_->loses = false;
    return script_->applied;
  }
  Result<std::size_t> prune(const Expiry&) override {
    const std::lock_guard guard(script_->mutex);
    ++script_->prunes;
    return std::size_t{0};
  }
  Result<std::vector<Execution>> executions(const Ledger::ExecutionQuery&) override { return std::vector<Execution>{}; }
  Result<std::vector<UsageRow>> usage(const Ledger::UsageQuery&) override { return std::vector<UsageRow>{}; }

 private:
  void keep(const LedgerBatch& batch) {
    script_->rows_of_usage.push_back(batch.usage.size());
    EXPECT_TRUE(std::is_sorted(batch.usage.begin(), batch.usage.end(),
                               [](const auto& a, const auto& b) { return *a.first < *b.first; }));
    for (const auto& [key, usage] : batch.usage) script_->commands[key->user] += usage.commands;
  }
  const std::shared_ptr<Script> script_;
};

class LedgerWriterTest : public testing::Test {
 protected:
  std::unique_ptr<Ledger> make(LedgerOptions options) {
    return std::make_unique<LedgerWriter>(std::make_unique<ScriptedBackend>(script_), std::move(options));
  }
  std::int64_t commands(const std::string& user) {
    return script_->read([&](Script& script) { return script.commands[user]; });
  }
  const std::shared_ptr<Script> script_ = std::make_shared<Script>();
};

TEST_F(LedgerWriterTest, ChargesOfOneKeyBecomeOneRow) {
  const auto ledger = make({.interval = 1h});
  for (int i = 0; i < 1'000; ++i) ledger->add(charge_of(i % 2 == 0 ? "bob" : "ann"), nullptr);
  ledger->add(run_of("ann"), nullptr);
  ASSERT_TRUE(ledger->flush().has_value());
  EXPECT_EQ(script_->rows_of_usage, std::vector<std::size_t>{2});
  EXPECT_EQ(commands("ann"), 500);
  EXPECT_EQ(ledger->facts().commits, 1U);
  EXPECT_EQ(ledger->facts().written, 1'001U);
}

TEST_F(LedgerWriterTest, ManyEntriesDoNotWaitForTheInterval) {
  const auto ledger = make({.interval = 1h});
  for (int i = 0; i < 5'000; ++i) ledger->add(charge_of("ann"), nullptr);
  EXPECT_TRUE(eventually([&] { return ledger->facts().pending == 0; }));
}

TEST_F(LedgerWriterTest, FewWaitUntilItIsOver) {
  const auto ledger = make({.interval = 1h});
  for (int i = 0; i < 4'000; ++i) ledger->add(charge_of("ann"), nullptr);
  ASSERT_TRUE(eventually([&] { return script_->read([](Script& script) { return script.prunes > 0; }); }));
  EXPECT_EQ(ledger->facts().pending, 4'000U);
  EXPECT_GT(ledger->facts().behind, 0ns);
}

TEST_F(LedgerWriterTest, SyncGroupsAllThatCameWhileItWrote) {
  const auto ledger = make({.durability = Durability::kSync});
  script_->change([](Script& script) { script.hold = true; });
  test::LedgerAnswers answers;
  ledger->add(charge_of("first"), answers.next());
  ASSERT_TRUE(eventually([&] { return script_->read([](Script& script) { return script.attempts == 1; }); }));
  for (int i = 0; i < 100; ++i) ledger->add(charge_of("ann"), answers.next());
  EXPECT_EQ(answers.count(), 0U);
  script_->change([](Script& script) { script.hold = false; });
  EXPECT_EQ(answers.take(101).size(), 101U);
  EXPECT_EQ(ledger->facts().commits, 2U);
}

TEST_F(LedgerWriterTest, SyncTellsTheErrorWhenPatienceIsOverAndKeepsNothing) {
  std::atomic<int> troubles = 0;
  const auto ledger = make({.durability = Durability::kSync, .patience = 30ms, .on_trouble = [&](const Error* error) {
                              if (error != nullptr) ++troubles;
                            }});
  script_->change([](Script& script) { script.fails = true; });
  test::LedgerAnswers answers;
  for (int i = 0; i < 3; ++i) ledger->add(charge_of("ann"), answers.next());
  const auto told = answers.take(3);
  ASSERT_EQ(told.size(), 3U);
  for (const auto& answer : told) {
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().message, "the disk is full");
  }
  EXPECT_GT(script_->read([](Script& script) { return script.attempts; }), 1U) << "it was tried again";
  EXPECT_EQ(ledger->facts().failed, 3U);
  EXPECT_EQ(ledger->facts().pending, 0U);
  EXPECT_EQ(troubles, 1);
  script_->change([](Script& script) { script.fails = false; });
  ledger->add(charge_of("bob"), answers.next());
  ASSERT_EQ(answers.take(4).size(), 4U);
  EXPECT_TRUE(answers.take(4)[3].has_value());
  EXPECT_EQ(commands("ann"), 0);
  EXPECT_EQ(commands("bob"), 1);
}

TEST_F(LedgerWriterTest, ItFindsOutByItselfThatWritesWorkAgain) {
  script_->change([](Script& script) { script.fails = true; });
  std::atomic<int> recovered{0};
  LedgerOptions options{.durability = Durability::kSync, .patience = 10ms};
  options.on_trouble = [&](const Error* error) { recovered += error == nullptr ? 1 : 0; };
  const auto ledger = make(options);
  std::atomic<bool> told{false};
  ledger->add(charge_of("u"), [&](const Result<void>& kept) { told = !kept; });
  ASSERT_TRUE(eventually([&] { return told.load(); }));
  ASSERT_TRUE(eventually([&] { return ledger->facts().pending == 0; }));
  EXPECT_FALSE(ledger->facts().problem.empty());
  const std::size_t before = script_->read([](const Script& script) { return script.attempts; });
  ASSERT_TRUE(eventually([&] { return script_->read([](const Script& script) { return script.attempts; }) > before; }));
  script_->change([](Script& script) { script.fails = false; });
  ASSERT_TRUE(eventually([&] { return ledger->facts().problem.empty(); }));
  ASSERT_TRUE(eventually([&] { return recovered.load() == 1; }));
  EXPECT_EQ(commands("u"), 0);
}

TEST_F(LedgerWriterTest, AsyncKeepsEverythingThroughTroubleAndTellsOfItOnce) {
  std::vector<std::string> told;
  const auto ledger = make({.interval = 1ms, .on_trouble = [&](const Error* error) {
                              told.emplace_back(error == nullptr ? "works again" : error->message);
                            }});
  script_->change([](Script& script) { script.fails = true; });
  for (int i = 0; i < 10; ++i) ledger->add(charge_of("ann"), nullptr);
  ASSERT_TRUE(eventually([&] { return script_->read([](Script& script) { return script.attempts > 2; }); }));
  EXPECT_EQ(ledger->facts().problem, "the disk is full");
  EXPECT_EQ(ledger->facts().pending, 10U);
  script_->change([](Script& script) { script.fails = false; });
  ledger->add(charge_of("ann"), nullptr);
  ASSERT_TRUE(ledger->flush().has_value());
  EXPECT_EQ(commands("ann"), 11);
  EXPECT_THAT(told, testing::ElementsAre("the disk is full", "works again"));
  EXPECT_EQ(ledger->facts().problem, "");
}

TEST_F(LedgerWriterTest, WhoComesWhileItIsFarBehindIsAnsweredOnceItIsWritten) {
  const auto ledger = make({.interval = 5ms});
  test::LedgerAnswers answers;
  script_->change([](Script& script) { script.hold = true; });
  ledger->add(charge_of("ann"), answers.next());
  EXPECT_EQ(answers.count(), 1U) << "told before add() returned";
  ASSERT_TRUE(eventually([&] { return ledger->facts().behind > 15ms; }));
  for (int i = 0; i < 2; ++i) ledger->add(charge_of("ann"), answers.next());
  EXPECT_EQ(answers.count(), 1U) << "a crash now would take more than was promised";
  script_->change([](Script& script) { script.hold = false; });
  for (const Result<void>& answer : answers.take(3)) EXPECT_TRUE(answer.has_value());
  ASSERT_TRUE(ledger->flush().has_value());
  ledger->add(charge_of("ann"), answers.next());
  EXPECT_EQ(answers.count(), 4U) << "at once again";
}

TEST_F(LedgerWriterTest, AsyncNobodyWaitsForADatabaseThatIsAway) {
  const auto ledger = make({.interval = 5ms});
  test::LedgerAnswers answers;
  script_->change([](Script& script) { script.hold = true; });
  ledger->add(charge_of("ann"), answers.next());
  ASSERT_TRUE(eventually([&] { return ledger->facts().behind > 15ms; }));
  ledger->add(charge_of("ann"), answers.next());
  script_->change([](Script& script) {
    script.fails = true;
    script.hold = false;
  });
  EXPECT_TRUE(eventually([&] { return answers.count() == 2; })) << "it waits in memory, as those before it do";
  ledger->add(charge_of("ann"), answers.next());
  EXPECT_EQ(answers.count(), 3U);
  for (const Result<void>& answer : answers.take(3)) EXPECT_TRUE(answer.has_value());
  script_->change([](Script& script) { script.fails = false; });
  ASSERT_TRUE(ledger->flush().has_value());
  EXPECT_EQ(commands("ann"), 3);
}

TEST_F(LedgerWriterTest, RefusesAtTheBoundAndSaysWhy) {
  const auto ledger = make({.interval = 1ms, .max_pending = 10});
  script_->change([](Script& script) { script.fails = true; });
  test::LedgerAnswers answers;
  ledger->add(charge_of("ann"), answers.next());
  ASSERT_TRUE(eventually([&] { return !ledger->facts().problem.empty(); }));
  for (int i = 0; i < 12; ++i) ledger->add(charge_of("ann"), answers.next());
  const auto told = answers.take(13);
  ASSERT_EQ(told.size(), 13U);
  EXPECT_TRUE(told[9].has_value());
  ASSERT_FALSE(told[10].has_value());
  EXPECT_EQ(told[10].error().message, "the ledger is full: 10 entries wait to be written; the disk is full");
  EXPECT_EQ(ledger->facts().refused, 3U);
  script_->change([](Script& script) { script.fails = false; });
  ASSERT_TRUE(eventually([&] { return ledger->facts().pending == 0; }));
  EXPECT_EQ(commands("ann"), 10);
}

TEST_F(LedgerWriterTest, ABatchWhoseAnswerWasLostIsNotWrittenTwice) {
  for (const bool applied : {true, false}) {
    script_->change([&](Script& script) {
      script.loses = script.settle_fails = true;
      script.applied = applied;
      script.commands.clear();
    });
    const auto ledger = make({.interval = 1ms});
    for (int i = 0; i < 10; ++i) ledger->add(charge_of("ann"), nullptr);
    ASSERT_TRUE(eventually([&] { return ledger->facts().problem == "still dead"; }));
    for (int i = 0; i < 5; ++i) ledger->add(charge_of("ann"), nullptr);
    script_->change([](Script& script) { script.settle_fails = false; });
    ASSERT_TRUE(ledger->flush().has_value());
    EXPECT_EQ(commands("ann"), 15) << applied;
    EXPECT_EQ(ledger->facts().written, 15U);
  }
}

TEST_F(LedgerWriterTest, ALostSyncBatchThatTurnsOutWrittenIsToldSo) {
  script_->change([](Script& script) { script.loses = script.applied = true; });
  const auto ledger = make({.durability = Durability::kSync});
  test::LedgerAnswers answers;
  ledger->add(charge_of("ann"), answers.next());
  const auto told = answers.take(1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].has_value());
  EXPECT_EQ(commands("ann"), 1);
}

TEST_F(LedgerWriterTest, FlushGivesUpWithTheProblemWhenPatienceIsOver) {
  const auto ledger = make({.interval = 1h, .patience = 20ms});
  script_->change([](Script& script) { script.fails = true; });
  ledger->add(charge_of("ann"), nullptr);
  auto flushed = ledger->flush();
  ASSERT_FALSE(flushed.has_value());
  EXPECT_EQ(flushed.error().message, "the disk is full");
}

TEST_F(LedgerWriterTest, EndingItInTroubleTellsThoseWhoWait) {
  test::LedgerAnswers answers;
  {
    const auto ledger = make({.durability = Durability::kSync, .patience = 20ms});
    script_->change([](Script& script) { script.fails = true; });
    ledger->add(charge_of("ann"), answers.next());
  }
  ASSERT_EQ(answers.count(), 1U) << "told before the destructor returned";
  EXPECT_FALSE(answers.take(1)[0].has_value());
}

TEST_F(LedgerWriterTest, ConcurrentThreadsLoseNothing) {
  const auto ledger = make({.interval = 1ms});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5'000; ++i) ledger->add(charge_of("ann"), nullptr);
      (void)ledger->facts();
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(ledger->flush().has_value());
  EXPECT_EQ(commands("ann"), 20'000);
}

}  // namespace
}  // namespace headgate::quota
