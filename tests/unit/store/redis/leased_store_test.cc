#include "store/redis/leased_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "support/lease_redis.h"

namespace headgate::store::redis {
namespace {

using namespace std::chrono_literals;

// A line to a store in memory. Messages wait until they are let through, and then fail if the line is cut.
class Line final : public RemoteStore, public Caller {
 public:
  Line(test::LeaseRedis& redis, const ManualClock& clock) : redis_(redis), clock_(clock) {}

  void apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes,
             RemoteStore::Done done) override {
    applied.emplace_back(charges.begin(), charges.end());
    send([this, charges, ask, outcomes, done] {
      if (cut) return done(Error{ErrorCode::kIo, "cut", true});
      Answer answer;
      answer.at = redis_time();
      answer.applied = redis_.apply(charges, ask, outcomes, answer.at);
      done(answer);
    });
  }
  void refund(const Charge& charge, Nanos charged_at, Told told) override {
    refunded += charge.cost;
    send([this, charge, limit = charge.limit->current(), charged_at, told] {
      if (cut) return told(Error{ErrorCode::kIo, "cut", true});
      const LiveLimit live(limit);
      Charge here = charge;
      here.limit = &live;
      redis_.refund(here, charged_at, redis_time());
      told(true);
    });
  }
  void release(const Charge&, LeaseId, Told) override {}
  void renew(const Charge&, LeaseId, Told) override {}
  [[nodiscard]] Nanos now_approx() const noexcept override { return {}; }
  void call(Command command, Caller::Done done) override {
    send([this, command = std::move(command), done] {
      if (cut) return done(Error{ErrorCode::kIo, "cut", true});
      test::answer_with(redis_.hold(command, redis_time()), done);
    });
  }

  void let_through() {
    while (!waiting_.empty()) let_one_through();
  }
  void let_one_through() {
    const auto message = std::move(waiting_.front());
    waiting_.pop_front();
    message();
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

  bool held = false;  // messages wait for let_through()
  bool cut = false;
  std::vector<std::vector<Charge>> applied;
  Units refunded = 0;

 private:
  [[nodiscard]] Nanos redis_time() const noexcept { return clock_.now() + 1h; }  // its clock is another
  void send(std::function<void()> message) {
    waiting_.push_back(std::move(message));
    if (!held) let_through();
  }

  test::LeaseRedis& redis_;
  const ManualClock& clock_;
  std::deque<std::function<void()>> waiting_;
};

class LeasedStoreTest : public testing::Test {
 protected:
  LeasedStoreTest() {
    charge_.key = {1, 2};
    charge_.limit = &limit_;
    charge_.leased = true;
  }

  // What the engine does with a check.
  bool check(LeasedStore& store, Units cost = 1) {
    charge_.cost = cost;
    const std::optional<Applied> at_once = store.try_now({&charge_, 1}, {.now = clock_.now()}, {&outcome_, 1});
    asked_ = !at_once.has_value();
    if (!asked_) return at_once->wait == 0s;
    bool admitted = false;
    store.apply({&charge_, 1}, {}, {&outcome_, 1}, [&](const Result<RemoteStore::Answer>& answer) {
      admitted = answer.has_value() && answer->applied.wait == 0s;
    });
    return admitted;
  }
  void check_times(LeasedStore& store, int times) {
    for (int i = 0; i < times; ++i) {
      EXPECT_TRUE(check(store));
      clock_.advance(1ms);
    }
  }
  // What a store without leases says is left.
  Units remaining_in_redis() {
    Charge look = charge_;
    look.cost = 0;
    core::Outcome outcome;
    Ask ask;
    ask.effect = Effect::kNone;
    std::ignore = redis_.apply({&look, 1}, ask, {&outcome, 1}, clock_.now() + 1h);
    return outcome.remaining;
  }
  LeasedStore::Options options(std::string node) const {
    return {.prefix = "t:", .node = std::move(node), .max_cells = 256, .clock = &clock_, .settings = settings_};
  }

  ManualClock clock_{100s};
  test::LeaseRedis redis_;
  Line line_{redis_, clock_};
  LiveLimit limit_{core::compile(*Limit::sliding_window({1000, 60s, 0}))};
  LeaseSettings settings_;
  Charge charge_;
  core::Outcome outcome_;
  bool asked_ = false;
  LeasedStore store_{line_, line_, options("a")};
};

TEST_F(LeasedStoreTest, ACellAskedForNowAndThenCostsOneMessageACheck) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(check(store_));
    EXPECT_TRUE(asked_);
    clock_.advance(1s);
    for (int round = 0; round < 16; ++round) store_.maintain();
  }
  EXPECT_EQ(redis_.commands(), 20U);
}

TEST_F(LeasedStoreTest, ACellAskedForOftenIsAnsweredHere) {
  check_times(store_, 400);
  EXPECT_EQ(remaining_in_redis() + static_cast<Units>(store_.totals().units), 600);
  EXPECT_LT(redis_.commands(), 80U);
  EXPECT_EQ(store_.totals().strict, 16U) << "until it was known to be in demand";
}

TEST_F(LeasedStoreTest, AnEvenPaceIsRefilledInTimeAndTogether) {
  const LiveLimit wide(core::compile(*Limit::sliding_window({100'000, 60s, 0})));
  charge_.limit = &wide;
  const auto pass = [&](Nanos span) {
    for (const Nanos until = clock_.now() + span; clock_.now() < until; clock_.advance(1ms)) {
      EXPECT_TRUE(check(store_));
      EXPECT_EQ(line_.waiting(), 0U);
      if (clock_.now().count() % 62'000'000 == 0) store_.maintain();
    }
  };
  pass(3s);
  const LeasedStore::Totals before = store_.totals();
  pass(10s);
  EXPECT_EQ(store_.totals().strict, before.strict) << "a block never ran out";
  EXPECT_LE(store_.totals().blocks - before.blocks, 27U) << "one lasts for three eighths of a second and more";
  line_.held = true;
  while (line_.waiting() == 0) pass(1ms);  // no check sent anything: it was maintain()
  EXPECT_EQ(line_.waiting(), 1U);
}

TEST_F(LeasedStoreTest, OneNodeAdmitsExactlyTheLimit) {
  int admitted = 0;
  for (int i = 0; i < 3000; ++i) {
    admitted += check(store_) ? 1 : 0;
    clock_.advance(1ms);
    if (i % 60 == 0) store_.maintain();
  }
  EXPECT_EQ(admitted, 1000);
  EXPECT_LT(redis_.commands(), 400U) << "denials are answered here as well";
}

TEST_F(LeasedStoreTest, WhatLiesAboutGoesBack) {
  check_times(store_, 100);
  EXPECT_GT(store_.totals().units, 0);
  for (int i = 0; i < 64; ++i) {
    clock_.advance(62ms);
    store_.maintain();
  }
  EXPECT_EQ(store_.totals().units + store_.totals().lapsed, 0);
  EXPECT_EQ(redis_.out(), 0);
  EXPECT_EQ(remaining_in_redis(), 900);
  EXPECT_EQ(store_.totals().cells, 0U);
}

TEST_F(LeasedStoreTest, ABucketGetsBackAllThatLayAbout) {
  LiveLimit bucket(core::compile(*Limit::token_bucket({1000, {10, 1s}, 0})));
  charge_.limit = &bucket;
  check_times(store_, 100);
  const Nanos used_at = clock_.now();
  for (int i = 0; i < 64; ++i) {
    clock_.advance(62ms);
    store_.maintain();
  }
  const Units refilled = (clock_.now() - used_at) / 100ms;
  EXPECT_NEAR(static_cast<double>(remaining_in_redis()), static_cast<double>(900 + refilled), 3);
}

TEST_F(LeasedStoreTest, ClosingGivesEverythingBack) {
  check_times(store_, 100);
  EXPECT_GT(redis_.out(), 0);
  bool closed = false;
  store_.close([&] { closed = true; });
  EXPECT_TRUE(closed);
  EXPECT_EQ(redis_.out(), 0);
  EXPECT_EQ(remaining_in_redis(), 900);
  EXPECT_TRUE(check(store_));
  EXPECT_TRUE(asked_) << "it goes on without leases";
}

TEST_F(LeasedStoreTest, ClosingGivesBackWhatWasAboutToBeRefilled) {
  check_times(store_, 100);
  clock_.advance(300ms);
  const Units held = store_.totals().units;
  ASSERT_GT(held, 4);
  const std::uint64_t blocks = store_.totals().blocks;
  EXPECT_TRUE(check(store_, held - 1));  // it runs low, though not in a hurry
  EXPECT_FALSE(asked_);
  EXPECT_EQ(store_.totals().blocks, blocks) << "which waits for maintain()";
  bool closed = false;
  store_.close([&] { closed = true; });
  EXPECT_TRUE(closed);
  EXPECT_EQ(redis_.out(), 0);
  EXPECT_EQ(remaining_in_redis(), 900 - (held - 1));
}

TEST_F(LeasedStoreTest, ClosingEndsThoughNobodyAnswers) {
  check_times(store_, 100);
  line_.cut = true;
  bool closed = false;
  store_.close([&] { closed = true; });
  EXPECT_TRUE(closed);
  EXPECT_EQ(store_.totals().units, 0);
}

TEST_F(LeasedStoreTest, ClosingWaitsForABlockThatIsOnItsWay) {
  check_times(store_, 15);
  line_.held = true;
  charge_.cost = 1;
  store_.apply({&charge_, 1}, {}, {&outcome_, 1}, [](const auto&) {});
  line_.let_one_through();  // the check; the errand it began waits
  ASSERT_EQ(line_.waiting(), 1U);
  bool closed = false;
  store_.close([&] { closed = true; });
  EXPECT_FALSE(closed);
  line_.let_through();
  EXPECT_TRUE(closed);
  EXPECT_EQ(redis_.out(), 0);
  EXPECT_EQ(remaining_in_redis(), 984);
}

TEST_F(LeasedStoreTest, TheLeaseEndsHereBeforeItDoesThere) {
  settings_.ttl = 100ms;
  LeasedStore brief(line_, line_, options("brief"));
  check_times(brief, 15);
  line_.held = true;
  charge_.cost = 1;
  brief.apply({&charge_, 1}, {}, {&outcome_, 1}, [](const auto&) {});
  line_.let_one_through();
  clock_.advance(40ms);  // the errand is on its way
  line_.let_through();
  line_.held = false;
  EXPECT_TRUE(check(brief));
  EXPECT_FALSE(asked_);
  clock_.advance(60ms);  // a ttl since it was sent
  EXPECT_TRUE(check(brief));
  EXPECT_TRUE(asked_);
}

TEST_F(LeasedStoreTest, AllNodesTogetherNeverHoldMoreThanTheShare) {
  std::deque<LeasedStore> nodes;
  for (int i = 0; i < 20; ++i) nodes.emplace_back(line_, line_, options("n" + std::to_string(i)));
  Units most = 0;
  for (int i = 0; i < 4000; ++i) {
    std::ignore = check(nodes[static_cast<std::size_t>(i) % nodes.size()]);
    clock_.advance(100us);
    Units held = 0;
    for (const LeasedStore& node : nodes) held += node.totals().units;
    most = std::max(most, held);
  }
  EXPECT_GT(most, 50);
  EXPECT_LE(most, 100);
}

TEST_F(LeasedStoreTest, ADeadNodesRoomIsFreeAfterItsTtlAndItsUnitsStayCharged) {
  {
    LeasedStore dying(line_, line_, options("dying"));
    check_times(dying, 100);
    EXPECT_GT(dying.totals().units, 20);
  }
  const Units out = redis_.out();
  EXPECT_GT(out, 20);
  const Units remaining = remaining_in_redis();
  clock_.advance(1100ms);
  check_times(store_, 17);
  EXPECT_LE(redis_.out(), 16) << "nothing of the dead one's";
  EXPECT_LE(remaining_in_redis(), remaining - 17) << "for it may have used them";
}

TEST_F(LeasedStoreTest, WithoutAnAnswerNothingIsHeldAndItIsTriedAgain) {
  check_times(store_, 15);
  line_.held = true;
  store_.apply({&charge_, 1}, {}, {&outcome_, 1}, [](const auto&) {});
  line_.let_one_through();
  line_.cut = true;
  line_.let_through();
  EXPECT_EQ(store_.totals().failed, 1U);
  EXPECT_EQ(store_.totals().units, 0);
  line_.cut = false;
  line_.held = false;
  clock_.advance(100ms);
  EXPECT_TRUE(check(store_));
  EXPECT_GT(store_.totals().units, 0);
}

TEST_F(LeasedStoreTest, ChecksThatNobodyAnsweredAreDemandAllTheSame) {
  line_.cut = true;
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(check(store_));
  EXPECT_EQ(store_.totals().failed, 0U);
  line_.held = true;
  store_.apply({&charge_, 1}, {}, {&outcome_, 1}, [](const auto&) {});
  line_.let_one_through();
  line_.cut = false;
  line_.let_through();
  EXPECT_GT(store_.totals().units, 0) << "so that those after them find a block";
}

TEST_F(LeasedStoreTest, WhereTheRecordCannotBeKeptNothingIsLost) {
  check_times(store_, 15);
  line_.held = true;
  store_.apply({&charge_, 1}, {}, {&outcome_, 1}, [](const auto&) {});
  line_.let_one_through();
  line_.let_one_through();  // the record; the charge is lost
  line_.cut = true;
  line_.let_through();
  EXPECT_EQ(redis_.out(), 16) << "the record says too much, which is the safe side";
  EXPECT_EQ(remaining_in_redis(), 984);
  line_.cut = line_.held = false;
  check_times(store_, 300);
  EXPECT_EQ(store_.totals().units, remaining_in_redis() >= 684 ? 0 : 684 - remaining_in_redis());
}

TEST_F(LeasedStoreTest, AConcurrencyLimitIsAlwaysAskedFor) {
  LiveLimit concurrency(core::compile(*Limit::concurrency({1000, 30s, 0})));
  charge_.limit = &concurrency;
  for (int i = 0; i < 100; ++i) {
    std::ignore = check(store_);
    EXPECT_TRUE(asked_);
  }
  EXPECT_EQ(redis_.commands(), 100U);
}

TEST_F(LeasedStoreTest, ABlockOutlivesThePolicyItWasFetchedFor) {
  {
    const LiveLimit gone(core::compile(*Limit::sliding_window({1000, 60s, 0})));
    charge_.limit = &gone;
    check_times(store_, 100);
  }
  charge_.limit = &limit_;
  store_.close([] {});
  EXPECT_EQ(remaining_in_redis(), 900);
}

// A line whose messages are carried, one after the other, by a thread of its own.
class CarriedLine final : public RemoteStore, public Caller {
 public:
  explicit CarriedLine(Line& line) : line_(line), carrier_([this] { carry(); }) {}
  ~CarriedLine() override {
    send(nullptr);
    carrier_.join();
  }
  void apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes,
             RemoteStore::Done done) override {
    send([=, this] { line_.apply(charges, ask, outcomes, done); });
  }
  void refund(const Charge& charge, Nanos charged_at, Told told) override {
    send([this, charge, limit = std::make_shared<LiveLimit>(charge.limit->current()), charged_at, told] {
      Charge here = charge;
      here.limit = limit.get();
      line_.refund(here, charged_at, told);
    });
  }
  void release(const Charge&, LeaseId, Told) override {}
  void renew(const Charge&, LeaseId, Told) override {}
  [[nodiscard]] Nanos now_approx() const noexcept override { return {}; }
  void call(Command command, Caller::Done done) override {
    send([=, this] { line_.call(command, done); });
  }

 private:
  void send(std::function<void()> message) {
    const std::lock_guard guard(mutex_);
    messages_.push_back(std::move(message));
    wake_.notify_one();
  }
  void carry() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !messages_.empty(); });
      const std::function<void()> message = std::move(messages_.front());
      messages_.pop_front();
      lock.unlock();
      if (message == nullptr) return;
      message();
    }
  }

  Line& line_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> messages_;
  std::thread carrier_;
};

TEST_F(LeasedStoreTest, ManyThreadsTogetherAdmitWhatWasChargedAndNoMore) {
  std::atomic<int> admitted{0};
  CarriedLine carried(line_);
  LeasedStore store(carried, carried, options("threads"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Charge charge = charge_;
      charge.cost = 1;
      core::Outcome outcome;
      for (int i = 0; i < 600; ++i) {
        clock_.advance(50us);
        if (i % 100 == 0 && t == 0) store.maintain();
        const std::optional<Applied> at_once = store.try_now({&charge, 1}, {.now = clock_.now()}, {&outcome, 1});
        if (at_once.has_value() && at_once->wait == 0s) ++admitted;
        if (at_once.has_value()) continue;
        std::promise<bool> answered;
        store.apply({&charge, 1}, {}, {&outcome, 1}, [&](const Result<RemoteStore::Answer>& answer) {
          answered.set_value(answer.has_value() && answer->applied.wait == 0s);
        });
        if (answered.get_future().get()) ++admitted;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::promise<void> closed;
  store.close([&] { closed.set_value(); });
  closed.get_future().wait();
  EXPECT_GT(admitted, 900);
  EXPECT_LE(admitted, 1000);
  EXPECT_EQ(remaining_in_redis(), 1000 - admitted);
  EXPECT_EQ(redis_.out(), 0);
}

}  // namespace
}  // namespace headgate::store::redis
