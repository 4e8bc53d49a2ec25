// A limiter that is saved and restored answers as if it had never stopped.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "support/cells.h"
#include "support/draws.h"
#include "support/limiters.h"
#include "support/snapshot_file.h"

namespace headgate::test {
namespace {

Options options_of(const std::vector<Limit>& limits, Clock& clock) {
  Options options;
  for (const Limit& limit : limits) options.limit(limit);
  return options.clock(clock).max_keys(1000);
}

std::unique_ptr<MemoryLimiter> restored_from(const std::string& path, const Options& options) {
  auto limiter = make(options);
  const auto count = limiter->restore(path);
  if (!count) throw std::runtime_error(count.error().message);
  return limiter;
}

// A step of a trace that two limiters replay.
Decision step(MemoryLimiter& limiter, const std::string& key, Units cost, int what) {
  if (what == 0) return limiter.peek(key, cost);
  if (what == 1) return limiter.reserve(key, cost, 5s).decision();
  return limiter.try_acquire(key, cost);
}

RC_GTEST_PROP(Snapshot, DecisionsAreThoseOfALimiterThatWasNeverAway, ()) {
  const TempFolder folder;
  ManualClock clock(kStart);
  const auto any_size = [] {
    return Size{*rc::gen::inRange<Units>(1, 12), *rc::gen::element<Nanos>(1s, 10s), *rc::gen::element<Units>(0, 0, 3)};
  };
  std::vector<Limit> limits;
  const int count = *rc::gen::inRange(1, 4);
  for (int i = 0; i < count; ++i) limits.push_back(limit_of(*rc::gen::elementOf(all_strategies()), any_size()));
  auto stayed = make(options_of(limits, clock));
  auto restarted = make(options_of(limits, clock));

  const int steps = *rc::gen::inRange(0, 60);
  for (int i = 0; i < steps; ++i) {
    clock.advance(up_to(1s));
    const std::string key = name_of(*rc::gen::inRange(0, 4));
    const Units cost = *rc::gen::inRange<Units>(0, 8);
    const int what = *rc::gen::inRange(0, 8);
    RC_ASSERT(same(step(*stayed, key, cost, what), step(*restarted, key, cost, what)));
    if (*rc::gen::inRange(0, 12) == 0) {
      const auto index = *rc::gen::inRange<std::size_t>(0, limits.size());
      const Limit changed = limit_of(limits[index].strategy(), any_size());
      const OnChange how = *rc::gen::element(OnChange::kKeepFraction, OnChange::kKeepUnits, OnChange::kReset);
      RC_ASSERT(static_cast<bool>(stayed->set_limit(changed, how, index)));
      RC_ASSERT(static_cast<bool>(restarted->set_limit(changed, how, index)));
      limits[index] = changed;
    }
    if (*rc::gen::inRange(0, 10) == 0) {
      RC_ASSERT(static_cast<bool>(restarted->save(folder.file("cells"))));
      // The new process is started with the limits as they are now, and perhaps another number of shards.
      restarted = restored_from(folder.file("cells"),
                                options_of(limits, clock).max_keys(*rc::gen::element<std::size_t>(200, 1'000'000)));
    }
  }
}

RC_GTEST_PROP(Snapshot, LimitsThatChangedMeanwhileKeepTheFractionUsed, ()) {
  const TempFolder folder;
  ManualClock clock(kStart);
  const Strategy strategy = *rc::gen::elementOf(all_strategies());
  const Size before{*rc::gen::inRange<Units>(1, 30), 10s, 0};
  const Size after{*rc::gen::inRange<Units>(1, 30), *rc::gen::element<Nanos>(5s, 10s, 20s), 0};
  const auto saved = make(limit_of(strategy, before), clock);
  RC_ASSERT(static_cast<bool>(saved->try_acquire("key", *rc::gen::inRange<Units>(1, before.limit + 1))));
  RC_ASSERT(static_cast<bool>(saved->save(folder.file("cells"))));
  const auto restored = restored_from(folder.file("cells"), options_of({limit_of(strategy, after)}, clock));
  RC_ASSERT(static_cast<bool>(saved->set_limit(limit_of(strategy, after))));
  for (int i = 0; i < 10; ++i) {
    RC_ASSERT(same(restored->try_acquire("key"), saved->try_acquire("key")));
    clock.advance(up_to(2s));
  }
}

class EverySnapshot : public testing::TestWithParam<Strategy> {
 protected:
  TempFolder folder_;
  std::string path_ = folder_.file("cells");
  ManualClock clock_{kStart};
  Limit limit_ = limit_of(GetParam(), {});
};
INSTANTIATE_TEST_SUITE_P(Snapshot, EverySnapshot, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(EverySnapshot, AKeySleptThroughManyChangesIsCarriedOverAfterTheRestart) {
  for (const int changes : {1, 7, 8, 30}) {
    const auto saved = make(limit_, clock_);
    ASSERT_TRUE(saved->try_acquire("key", 5));
    for (int i = 1; i <= changes; ++i) {
      ASSERT_TRUE(saved->set_limit(limit_of(GetParam(), {.limit = 10 + i}), OnChange::kKeepUnits));
    }
    ASSERT_TRUE(saved->save(path_));
    const auto restored = restored_from(path_, options_of({limit_of(GetParam(), {.limit = 10 + changes})}, clock_));
    EXPECT_TRUE(same(restored->peek("key"), saved->peek("key"))) << changes;
    // And once more, through a file written by a limiter that has itself been brought back.
    ASSERT_TRUE(restored->save(path_));
    const auto again = restored_from(path_, options_of({limit_of(GetParam(), {.limit = 10 + changes})}, clock_));
    EXPECT_TRUE(same(again->peek("key"), saved->peek("key"))) << changes;
  }
}

TEST_P(EverySnapshot, LowNumbersThatWereOnceHighComeBack) {
  // Carried over to a smaller limit, several charges may be worth no whole unit each.
  const auto saved = make(limit_of(GetParam(), {.limit = 100}), clock_);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(saved->try_acquire("key"));
    clock_.advance(1ms);
  }
  ASSERT_TRUE(saved->set_limit(limit_of(GetParam(), {.limit = 3})));
  (void)saved->try_acquire("key");
  ASSERT_TRUE(saved->save(path_));
  const auto restored = restored_from(path_, options_of({limit_of(GetParam(), {.limit = 3})}, clock_));
  EXPECT_TRUE(same(restored->peek("key"), saved->peek("key")));
}

TEST(Snapshot, ChargesWorthNoUnitDoNotTakeOneFromALargerCharge) {
  const TempFolder folder;
  ManualClock clock(kStart);
  const auto saved = make(sliding_window(20, 10s), clock);
  ASSERT_TRUE(saved->try_acquire("key"));
  clock.advance(1s);
  ASSERT_TRUE(saved->try_acquire("key"));
  clock.advance(1s);
  // Of three, the two are worth one, which is the later one's. With the next charge, three units in three runs.
  ASSERT_TRUE(saved->set_limit(sliding_window(3, 10s)));
  ASSERT_TRUE(saved->try_acquire("key", 2));
  ASSERT_TRUE(saved->save(folder.file("cells")));
  const auto restored = restored_from(folder.file("cells"), options_of({sliding_window(3, 10s)}, clock));
  for (const Units left : {0, 1, 3}) {
    clock.set(clock.now() + (left == 0 ? 8s : 1s));
    EXPECT_EQ(saved->remaining("key"), left);
    EXPECT_EQ(restored->remaining("key"), left);
  }
}

TEST_P(EverySnapshot, ClockSetBackBeforeTheRestartGrantsNothingTwice) {
  const auto saved = make(limit_, clock_);
  ASSERT_TRUE(saved->try_acquire("key", 10));
  ASSERT_TRUE(saved->save(path_));
  clock_.set(kStart - 1min);
  const auto restored = restored_from(path_, options_of({limit_}, clock_));
  EXPECT_FALSE(restored->try_acquire("key"));
  clock_.advance(whole_again({}));
  EXPECT_TRUE(restored->try_acquire("key", 10));
}

TEST_P(EverySnapshot, IdleKeysStayBehind) {
  const auto saved = make(limit_, clock_);
  ASSERT_TRUE(saved->try_acquire("key", 10));
  ASSERT_TRUE(saved->save(path_));
  clock_.advance(whole_again({}));
  const auto restored = make(options_of({limit_}, clock_));
  const auto count = restored->restore(path_);
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 0U);
  EXPECT_EQ(restored->totals().cells, 0U);
}

TEST(Snapshot, ALeaseOutlivesTheRestart) {
  const TempFolder folder;
  ManualClock clock(kStart);
  const auto saved = make(concurrency(2, 30s), clock);
  const Decision held = saved->try_acquire("key", 2);
  ASSERT_TRUE(held);
  ASSERT_TRUE(saved->save(folder.file("cells")));
  const auto restored = restored_from(folder.file("cells"), options_of({concurrency(2, 30s)}, clock));
  EXPECT_FALSE(restored->try_acquire("key"));
  EXPECT_TRUE(restored->renew("key", held.lease));
  EXPECT_TRUE(restored->release("key", held.lease));
  EXPECT_TRUE(restored->try_acquire("key", 2));
}

TEST(Snapshot, AKeyThatCameBackIsTrackedFromItsNextCallOn) {
  const TempFolder folder;
  ManualClock clock(kStart);
  const auto saved = make(token_bucket(10, 1), clock);
  ASSERT_TRUE(saved->try_acquire("key", 5));
  ASSERT_TRUE(saved->save(folder.file("cells")));
  const auto restored = restored_from(folder.file("cells"), options_of({token_bucket(10, 1)}, clock).track_keys());
  ASSERT_TRUE(restored->try_acquire("key", 5));
  EXPECT_FALSE(restored->try_acquire("key", 5));
  std::set<std::string> names;
  restored->for_each_key([&](std::string_view name, std::uint64_t, std::uint64_t) { names.emplace(name); });
  EXPECT_EQ(names, std::set<std::string>{"key"});
  EXPECT_EQ(restored->statistics("key").total_acquired, 1U);
  EXPECT_EQ(restored->statistics("key").total_throttled, 1U);
}

// --- Refusals
// ----------------------------------------------------------------------------------------------------------

class SnapshotRefusal : public testing::Test {
 protected:
  // A file whose limits read as given, with the cells of a limiter of two token buckets.
  void write_with(const std::string& meta) const {
    const store::MemoryStore empty({.max_cells = 100, .seed = 7});
    const auto done = empty.save(path_, meta, kStart);
    ASSERT_TRUE(done);
  }
  [[nodiscard]] std::string refusal(const std::vector<Limit>& limits) const {
    const auto limiter = make(options_of(limits, clock_));
    const auto restored = limiter->restore(path_);
    if (restored) return "accepted";
    EXPECT_TRUE(restored.error().message.starts_with(path_ + ": ")) << restored.error().message;
    EXPECT_EQ(limiter->remaining("key"), limits[0].limit()) << "an empty start";
    EXPECT_TRUE(limiter->try_acquire("key"));
    return restored.error().message.substr(path_.size() + 2);
  }
  [[nodiscard]] std::string refusal(const std::string& meta) const {
    write_with(meta);
    return refusal({token_bucket(10, 1)});
  }

  TempFolder folder_;
  std::string path_ = folder_.file("cells");
  mutable ManualClock clock_{kStart};
};

TEST_F(SnapshotRefusal, OfOtherStrategies) {
  const auto saved = make(token_bucket(10, 1), clock_);
  ASSERT_TRUE(saved->try_acquire("key"));
  ASSERT_TRUE(saved->save(path_));
  EXPECT_EQ(refusal({sliding_window(10, 1s)}),
            "the snapshot must be of a limiter with the same strategies, got token_bucket 10, refilled at 1/s as limit "
            "0");
  EXPECT_EQ(refusal({token_bucket(10, 1), sliding_window(10, 1s)}),
            "the snapshot must be of a limiter with 2 limits, got none for limit 1");
  EXPECT_EQ(refusal({token_bucket(20, 1)}), "accepted");
}

TEST_F(SnapshotRefusal, OfMoreLimitsThanThereAre) {
  const auto saved = make(options_of({token_bucket(10, 1), sliding_window(10, 1s)}, clock_));
  ASSERT_TRUE(saved->save(path_));
  EXPECT_EQ(refusal({token_bucket(10, 1)}),
            "the snapshot must be of a limiter with the same strategies, got sliding_window 10/1s as limit 1");
}

TEST_F(SnapshotRefusal, LeavesTheLimitsThatWereHere) {
  // The first limit could be read, the second could not: neither may have changed.
  write_with("0 0 0 0 77 0 1 1000000000 1 -\n");
  const auto limiter = make(options_of({token_bucket(10, 1), token_bucket(20, 1)}, clock_));
  ASSERT_FALSE(limiter->restore(path_));
  EXPECT_EQ(limiter->peek("key").limit, 10);
  EXPECT_TRUE(limiter->try_acquire("key", 10));
  EXPECT_TRUE(limiter->set_limit(token_bucket(30, 1), OnChange::kKeepUnits));
  EXPECT_EQ(limiter->remaining("key"), 10) << "of the second limit; the first has twenty left";
}

TEST_F(SnapshotRefusal, OfLimitsThatCannotBeRead) {
  const std::string good = "0 0 0 0 10 0 1 1000000000 1 -\n";
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_EQ(refusal(""), "the snapshot must be of a limiter with 1 limits, got none for limit 0");
  EXPECT_EQ(refusal("nonsense\n"), "a limit in the snapshot cannot be read: nonsense");
  EXPECT_EQ(refusal("0 0 0 0 10 0 1 1000000000 1\n"),
            "a limit in the snapshot cannot be read: 0 0 0 0 10 0 1 1000000000 1");
  EXPECT_EQ(refusal("0 0 9 0 10 0 1 1000000000 1 -\n"),
            "a limit in the snapshot cannot be read: 0 0 9 0 10 0 1 1000000000 1 -");
  EXPECT_EQ(refusal("0 0 0 8 10 0 1 1000000000 1 -\n"),
            "a limit in the snapshot cannot be read: 0 0 0 8 10 0 1 1000000000 1 -");
  EXPECT_EQ(refusal("0 0 0 0 10 0 1 99999999999999999999 1 -\n"),
            "a limit in the snapshot cannot be read: 0 0 0 0 10 0 1 99999999999999999999 1 -");
  EXPECT_EQ(refusal("0 0 0 0 0 0 1 1000000000 1 -\n"),
            "a limit in the snapshot is not valid: limit must be at least 1, got 0");
  EXPECT_EQ(refusal("0 0 0 1 -9223372036854775808 0 1 1000000000 1 -\n"),
            "a limit in the snapshot is not valid: limit must be at least 1, got -9223372036854775808");
  EXPECT_EQ(refusal("0 0 0 0 10 0 0 1000000000 1 -\n"),
            "a limit in the snapshot is not valid: refill_rate must be above 0 and finite, got 0/s");
  EXPECT_TRUE(refusal("0 0 0 7 10 0 10 0 1 ../../etc/passwd\n")
                  .starts_with("a limit in the snapshot is not valid: timezone must be a name"));
}

TEST_F(SnapshotRefusal, OfLimitsWithAPastThatCannotBe) {
  const auto line = [](int generation) { return "0 " + std::to_string(generation) + " 0 0 10 0 1 1000000000 1 -\n"; };
  EXPECT_EQ(refusal(line(0) + line(2)), "the limits in the snapshot are not in order: 0 2 0 0 10 0 1 1000000000 1 -");
  EXPECT_EQ(refusal(line(1) + line(0)), "the limits in the snapshot are not in order: 0 0 0 0 10 0 1 1000000000 1 -");
  EXPECT_EQ(refusal(line(100)), "limit 0 in the snapshot must have 8 versions, got 1");
  EXPECT_EQ(refusal(line(1)), "limit 0 in the snapshot must have 2 versions, got 1");
  std::string nine;
  for (int i = 100; i <= 108; ++i) nine += line(i);
  EXPECT_EQ(refusal(nine), "limit 0 in the snapshot must have 8 versions, got 9");
  EXPECT_EQ(refusal(nine.substr(nine.find('\n') + 1)), "accepted");
}

TEST_F(SnapshotRefusal, OfAFileThatIsNoSnapshot) {
  write_bytes(path_, "{}");
  EXPECT_EQ(refusal({token_bucket(10, 1)}), "not a usable snapshot: it was written by something else");
  std::filesystem::remove(path_);
  EXPECT_EQ(refusal({token_bucket(10, 1)}), "cannot be read: No such file or directory");
}

RC_GTEST_FIXTURE_PROP(SnapshotRefusal, NonsenseWithAValidSumNeverDoesHarm, ()) {
  const Strategy strategy = *rc::gen::elementOf(all_strategies());
  const auto saved = make(limit_of(strategy, {}), clock_);
  for (int i = 0; i < 3; ++i) {
    (void)saved->try_acquire("key", 3);
    clock_.advance(100ms);
    RC_ASSERT(static_cast<bool>(saved->set_limit(limit_of(strategy, {.limit = 10 + i}))));
  }
  (void)saved->reserve("key", 9, 1h);
  RC_ASSERT(static_cast<bool>(saved->save(path_)));
  const std::string whole = read_bytes(path_);
  for (int i = 0; i < 10; ++i) {
    write_bytes(path_, mutated(whole, *rc::gen::arbitrary<std::uint64_t>()));
    const auto limiter = make(options_of({limit_of(strategy, {.limit = *rc::gen::element<Units>(12, 20)})}, clock_));
    (void)limiter->restore(path_);
    for (const Nanos now : {kStart, kStart + 1s, kStart + 1h, kMaxTime}) {
      (void)limiter->try_acquire_at(now, "key", 2);
      (void)limiter->peek_at(now, "key", 2);
      (void)limiter->statistics_at(now, "key");
      (void)limiter->reserve_at(now, "key", 2, 1h);
    }
    RC_ASSERT(static_cast<bool>(limiter->set_limit(limit_of(strategy, {.limit = 7, .window = 1s}))));
    const Decision decision = limiter->peek("key");
    RC_ASSERT(decision.remaining >= 0);
    RC_ASSERT(decision.remaining <= 7);
    limiter->maintain(1000);
    RC_ASSERT(static_cast<bool>(limiter->save(path_)));
  }
}

}  // namespace
}  // namespace headgate::test
