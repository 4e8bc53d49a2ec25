// The store in Redis answers as the one in memory does: long random traces, asked of both at the same instants.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "support/both_stores.h"

namespace headgate::test {
namespace {

using store::Ask;
using store::Charge;
using store::Effect;

struct Habits {
  bool reserve = false;     // then limits whose units take whole microseconds: reservations are rounded up to those
  bool clock_back = false;  // then one cell and few steps: the memory store drops what is idle, Redis later
};

// A random course of asks, refunds and releases; stops at the first difference.
class Course {
 public:
  Course(std::uint32_t seed, Habits habits) : random_(seed), habits_(habits), memory_({.seed = 1}) {
    const int limits = habits.clock_back ? 1 : static_cast<int>(pick(1, 4));
    for (int i = 0; i < limits; ++i) limits_.emplace_back(core::compile(some_limit()));
  }

  void run() {
    const int steps = habits_.clock_back ? 50 : 120;
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      pass_time();
      const std::int64_t what = pick(0, 9);
      if (what < 7 || made_.empty()) {
        ask(step);
      } else {
        take_back(step);
      }
    }
  }

 private:
  struct Made {
    Charge charge;
    Nanos at;  // whose it is, or its turn
    LeaseId lease;
  };

  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  Limit some_limit() {
    const auto strategy = static_cast<Strategy>(pick(0, kStrategyCount - 1));
    Size size;
    size.limit = pick(0, 4) == 0 ? pick(1, 3) : pick(1, 40);
    size.burst = pick(0, 2) == 0 ? pick(1, 5) : 0;
    size.window = std::chrono::milliseconds{pick(1, 20'000)};
    if (habits_.reserve) size.window = size.limit * std::chrono::microseconds{pick(1000, 500'000)};
    span_ = std::max(span_, size.window);
    return limit_of(strategy, size);
  }

  void pass_time() {
    switch (pick(0, 6)) {
      case 0: break;  // the same microsecond
      case 1: now_ += std::chrono::microseconds{pick(1, 3)}; break;
      case 2: now_ += std::chrono::microseconds{pick(1, span_ / 1us)}; break;
      case 3:
        // Now and then so far that the windows of the cell lie in the future.
        if (habits_.clock_back)
          now_ -= std::chrono::microseconds{pick(1, (pick(0, 3) == 0 ? 20 * span_ : span_ / 2) / 1us)};
        break;
      case 4:
        if (pick(0, 5) == 0) now_ += 2 * span_;
        break;
      default: now_ += std::chrono::microseconds{pick(1, 1 + span_ / 20us)};
    }
  }

  void ask(int step) {
    std::vector<Charge> charges;
    const std::int64_t wanted = habits_.clock_back ? 1 : pick(1, 4);
    for (std::int64_t i = 0; i < wanted; ++i) {
      const auto which = static_cast<std::size_t>(pick(0, std::ssize(limits_) - 1));
      const auto key = static_cast<std::uint64_t>(habits_.clock_back ? 0 : pick(0, 2));
      Charge charge;
      charge.key = base::nth(base::hash128("cell", key), which);
      charge.limit = &limits_[which];
      charge.cost = pick(0, 5) < 4 ? 1 : pick(0, charge.limit->current().most + 1);
      charge.soft = pick(0, 5) == 0;
      if (pick(0, 3) == 0) charge.patience = std::chrono::microseconds{pick(0, span_ / 1us)};
      // The estimate's waits are no whole microseconds, so another cell would be charged for another instant.
      const bool estimate = charge.limit->strategy() == Strategy::kSlidingWindowCounter;
      if (habits_.reserve && estimate && !charges.empty()) continue;
      const bool twice =
          std::any_of(charges.begin(), charges.end(), [&](const Charge& other) { return other.key == charge.key; });
      if (!twice) charges.push_back(charge);
      if (habits_.reserve && estimate) break;
    }
    Ask terms{now_, now_, pick(0, 4) == 0 ? Effect::kNone : Effect::kCharge};
    if (habits_.reserve && pick(0, 1) == 0) terms.effect = Effect::kReserve;
    terms.apart = habits_.reserve && pick(0, 1) == 0;
    terms.patience = std::chrono::microseconds{pick(0, 2 * span_ / 1us)};
    terms.lease = next_lease();

    std::vector<core::Outcome> here(charges.size());
    std::vector<core::Outcome> there(charges.size());
    const store::Applied expected = memory_.apply(charges, terms, here);
    const store::Applied applied = redis_.apply(charges, terms, there);
    const std::string where = "step " + std::to_string(step) + " at " + std::to_string(now_.count()) + " effect " +
                              std::to_string(static_cast<int>(terms.effect));
    // A reservation is made for a whole microsecond.
    const bool rounded = expected.reserved && applied.wait - expected.wait < 1us;
    ASSERT_EQ(applied.wait, rounded ? std::max(applied.wait, expected.wait) : expected.wait) << where;
    ASSERT_EQ(applied.reserved, expected.reserved) << where;
    for (std::size_t i = 0; i < charges.size(); ++i) {
      ASSERT_TRUE(same(there[i], here[i]))
          << where << " charge " << i << " of " << charges[i].cost << " " << to_string(charges[i].limit->strategy())
          << "\nredis  " << describe(there[i]) << "\nmemory " << describe(here[i]);
    }
    if (terms.effect == Effect::kNone || (expected.wait != Nanos{0} && !expected.reserved)) return;
    for (std::size_t i = 0; i < charges.size(); ++i) {
      if (!here[i].fits() && charges[i].soft) continue;
      const bool leaky = charges[i].limit->strategy() == Strategy::kLeakyBucket;
      const Nanos wait = terms.apart && here[i].fits() ? Nanos{0} : expected.wait;
      if (charges[i].cost > 0) made_.push_back({charges[i], now_ + (leaky ? here[i].delay : wait), terms.lease});
    }
    while (made_.size() > 12) made_.pop_front();
  }

  void take_back(int step) {
    const auto which = made_.begin() + pick(0, std::ssize(made_) - 1);
    Made made = *which;
    if (made.charge.limit->strategy() != Strategy::kConcurrency) {
      made.charge.cost = pick(1, made.charge.cost);
      memory_.refund(made.charge, made.at, now_);
      redis_.refund(made.charge, made.at, now_);
      made_.erase(which);
    } else if (pick(0, 1) == 0) {
      ASSERT_EQ(redis_.renew(made.charge, made.lease, now_), memory_.renew(made.charge, made.lease, now_)) << step;
    } else {
      ASSERT_EQ(redis_.release(made.charge, made.lease, now_), memory_.release(made.charge, made.lease, now_)) << step;
    }
  }

  std::mt19937 random_;
  const Habits habits_;
  std::deque<store::LiveLimit> limits_;
  store::MemoryStore memory_;
  RedisCells redis_;
  std::deque<Made> made_;
  Nanos span_{1ms};
  Nanos now_ = kStart + 12345us;
};

void run_traces(std::uint32_t first_seed, int count, Habits habits) {
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    const std::uint32_t seed = first_seed + static_cast<std::uint32_t>(i);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Course(seed, habits).run();
  }
}

// Redis says when it was asked, and the memory store is asked the same for that instant. Nothing waits: the windows are
// so short that they pass meanwhile.
TEST(RedisTrace, AnswersByItsOwnClockAsTheMemoryStoreDoesAtThatInstant) {
  std::mt19937 random(7);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 48 && !::testing::Test::HasFailure(); ++round) {
    const auto strategy = round % 2 == 0 ? Strategy::kSlidingWindow : static_cast<Strategy>(round / 2 % kStrategyCount);
    const Size size{pick(1, 120), std::chrono::milliseconds{pick(1, 30)}, 0};
    SCOPED_TRACE(std::string(to_string(strategy)) + " " + std::to_string(size.limit) + " per " +
                 std::to_string(size.window.count()));
    store::LiveLimit live(core::compile(limit_of(strategy, size)));
    store::MemoryStore memory({.seed = 1});
    RedisCells redis;
    for (int step = 0; step < 300 && !::testing::Test::HasFailure(); ++step) {
      Charge charge;
      charge.limit = &live;
      charge.cost = pick(0, 30) > 0 ? 1 : pick(0, 3);
      Ask terms{Nanos{0}, Nanos{0}, pick(0, 9) > 0 ? Effect::kCharge : Effect::kNone};
      terms.lease = next_lease();
      core::Outcome here;
      core::Outcome there;
      const auto answer = must(redis.try_apply({&charge, 1}, terms, {&there, 1}));
      terms.now = terms.wall = answer.at;
      memory.apply({&charge, 1}, terms, {&here, 1});
      ASSERT_TRUE(same(there, here)) << "step " << step << " of " << charge.cost << "\nredis  " << describe(there)
                                     << "\nmemory " << describe(here);
    }
  }
}

TEST(RedisTrace, BelievesNoInstantBeforeTheLastOneThoughItsOwnClockShowsIt) {
  store::LiveLimit live(core::compile(sliding_window(10, 60s)));
  store::MemoryStore memory({.seed = 1});
  RedisCells redis;
  Charge charge;
  charge.limit = &live;
  charge.cost = 1;
  core::Outcome here;
  core::Outcome there;
  Ask terms;
  const Nanos ahead = must(redis.try_apply({&charge, 1}, {.effect = Effect::kNone}, {&there, 1})).at + 10s;
  for (int step = 0; step < 12; ++step) {
    // First by a clock that runs ahead, then by its own.
    terms.now = terms.wall = step < 2 ? ahead + step * 1s : Nanos{0};
    terms.now = terms.wall = must(redis.try_apply({&charge, 1}, terms, {&there, 1})).at;
    memory.apply({&charge, 1}, terms, {&here, 1});
    ASSERT_TRUE(same(there, here)) << step << "\nredis  " << describe(there) << "\nmemory " << describe(here);
  }
}

// Where products of units and microseconds pass 2^100, one unit more or less still decides.
TEST(RedisTrace, EstimatesHugeCountsToTheUnit) {
  std::mt19937_64 random(11);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 200 && !::testing::Test::HasFailure(); ++round) {
    const Units most = (Units{1} << 51) + pick(0, 1'000'000);
    const Nanos window = std::chrono::microseconds{pick(200'000'000'000'000, 300'000'000'000'000)};
    store::LiveLimit live(core::compile(must(Limit::sliding_window_counter({most, window}))));
    store::MemoryStore memory({.seed = 1});
    RedisCells redis;
    const auto both = [&](Units cost, Nanos now, Effect effect) {
      Charge charge;
      charge.limit = &live;
      charge.cost = cost;
      core::Outcome here;
      core::Outcome there;
      memory.apply({&charge, 1}, {now, now, effect}, {&here, 1});
      redis.apply({&charge, 1}, {now, now, effect}, {&there, 1});
      EXPECT_TRUE(same(there, here)) << "redis  " << describe(there) << "\nmemory " << describe(here);
      return here;
    };
    const Nanos start = 2 * window;
    both(pick(most / 2, most), start, Effect::kCharge);
    const Nanos now = start + window + std::chrono::microseconds{pick(1, window / 1us - 1)};
    const Units room = both(0, now, Effect::kNone).remaining;
    // One unit too many is not charged; the last one is.
    EXPECT_FALSE(both(room + 1, now, Effect::kCharge).fits());
    EXPECT_TRUE(both(room, now, Effect::kCharge).fits());
    both(1, now, Effect::kCharge);
  }
}

TEST(RedisTrace, ChargesAsTheMemoryStoreDoes) { run_traces(1000, 150, {}); }
TEST(RedisTrace, ReservesAsTheMemoryStoreDoes) { run_traces(2000, 150, {.reserve = true}); }
TEST(RedisTrace, KeepsWhatItHasSeenWhenTheClockGoesBack) { run_traces(3000, 150, {.clock_back = true}); }
TEST(RedisTrace, ReservesThroughAClockThatGoesBack) { run_traces(4000, 150, {.reserve = true, .clock_back = true}); }

}  // namespace
}  // namespace headgate::test
