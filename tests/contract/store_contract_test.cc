// What every store promises, whichever it is: one suite, run over each.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "support/both_stores.h"

namespace headgate::test {
namespace {

using store::Applied;
using store::Ask;
using store::Charge;
using store::Effect;
using store::LiveLimit;

class MemoryCells : public store::MemoryStore {
 public:
  MemoryCells() : MemoryStore({.seed = 1}) {}
};

constexpr std::array kEveryStrategy{Strategy::kTokenBucket,          Strategy::kGcra,        Strategy::kSlidingWindow,
                                    Strategy::kSlidingWindowCounter, Strategy::kFixedWindow, Strategy::kLeakyBucket,
                                    Strategy::kConcurrency,          Strategy::kQuota};

template <class Store>
class StoreContract : public ::testing::Test {
 protected:
  static LiveLimit ten(Strategy strategy) { return LiveLimit(core::compile(limit_of(strategy, {}))); }
  static Charge of(const LiveLimit& live, Units cost = 1, std::string_view name = "key") {
    Charge charge;
    charge.key = base::hash128(name, static_cast<std::uint64_t>(live.strategy()));
    charge.limit = &live;
    charge.cost = cost;
    return charge;
  }
  Applied ask(std::vector<Charge> charges, Nanos now, Effect effect = Effect::kCharge, Nanos patience = Nanos{0},
              LeaseId lease = next_lease()) {
    outcomes_.assign(charges.size(), {});
    return store_.apply(charges, {now, now, effect, patience, lease}, outcomes_);
  }
  bool take(const Charge& charge, Nanos now) { return ask({charge}, now).wait == Nanos{0}; }
  Units left(const LiveLimit& live, Nanos now, std::string_view name = "key") {
    ask({of(live, 0, name)}, now, Effect::kNone);
    return outcomes_[0].remaining;
  }

  Store store_;
  std::vector<core::Outcome> outcomes_;
};

// Every cell in a slot of its own, as far as it goes: what a plan over several servers of a cluster does.
class SplitRedisCells : public RedisCells {
 public:
  SplitRedisCells() : RedisCells({.prefix = "headgate:", .cluster = true}) {}
};

using Stores = ::testing::Types<MemoryCells, RedisCells, SplitRedisCells>;
class StoreNames {
 public:
  template <class Store>
  static std::string GetName(int) {
    if (std::is_same_v<Store, SplitRedisCells>) return "RedisInSlots";
    return std::is_same_v<Store, RedisCells> ? "Redis" : "Memory";
  }
};
TYPED_TEST_SUITE(StoreContract, Stores, StoreNames);

TYPED_TEST(StoreContract, AdmitsUpToTheLimitAndNoFurther) {
  for (const Strategy strategy : kEveryStrategy) {
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit live = this->ten(strategy);
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(this->take(this->of(live), kStart)) << i;
    EXPECT_FALSE(this->take(this->of(live), kStart));
    EXPECT_EQ(this->left(live, kStart), 0);
  }
}

TYPED_TEST(StoreContract, AdmitsAgainAfterTheWaitItGave) {
  for (const Strategy strategy : kEveryStrategy) {
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit live = this->ten(strategy);
    for (int i = 0; i < 10; ++i) this->take(this->of(live), kStart);
    const Applied denied = this->ask({this->of(live)}, kStart);
    ASSERT_GT(denied.wait, Nanos{0});
    EXPECT_FALSE(this->take(this->of(live), kStart + denied.wait - 1us));
    EXPECT_TRUE(this->take(this->of(live), kStart + denied.wait));
  }
}

TYPED_TEST(StoreContract, ChargesAllOfAPlanOrNothing) {
  for (const Strategy strategy : kEveryStrategy) {
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit full = this->ten(strategy);
    const LiveLimit empty = this->ten(strategy);
    for (int i = 0; i < 10; ++i) this->take(this->of(full, 1, "full"), kStart);
    EXPECT_GT(this->ask({this->of(empty, 2, "empty"), this->of(full, 1, "full")}, kStart).wait, Nanos{0});
    EXPECT_EQ(this->left(empty, kStart, "empty"), 10);
  }
}

TYPED_TEST(StoreContract, SkipsASoftChargeThatDoesNotFit) {
  const LiveLimit full = this->ten(Strategy::kTokenBucket);
  const LiveLimit empty = this->ten(Strategy::kFixedWindow);
  for (int i = 0; i < 10; ++i) this->take(this->of(full), kStart);
  Charge soft = this->of(full);
  soft.soft = true;
  EXPECT_EQ(this->ask({soft, this->of(empty, 3)}, kStart).wait, Nanos{0});
  EXPECT_EQ(this->left(empty, kStart), 7);
  EXPECT_EQ(this->left(full, kStart), 0);
}

TYPED_TEST(StoreContract, LooksWithoutCharging) {
  for (const Strategy strategy : kEveryStrategy) {
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit live = this->ten(strategy);
    EXPECT_EQ(this->ask({this->of(live, 4)}, kStart, Effect::kNone).wait, Nanos{0});
    EXPECT_EQ(this->left(live, kStart), 10);
  }
}

TYPED_TEST(StoreContract, SaysThatACostAboveTheLimitNeverFits) {
  for (const Strategy strategy : kEveryStrategy) {
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit live = this->ten(strategy);
    EXPECT_EQ(this->ask({this->of(live, 11)}, kStart).wait, kNever);
    EXPECT_EQ(this->ask({this->of(live, std::numeric_limits<Units>::max())}, kStart).wait, kNever);
    EXPECT_EQ(this->left(live, kStart), 10);
  }
}

TYPED_TEST(StoreContract, CostsNothingToAskForNothing) {
  for (const Strategy strategy : kEveryStrategy) {
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit live = this->ten(strategy);
    for (int i = 0; i < 10; ++i) this->take(this->of(live), kStart);
    EXPECT_TRUE(this->take(this->of(live, 0), kStart));
  }
}

TYPED_TEST(StoreContract, ReservesForTheInstantAtWhichAllFit) {
  const LiveLimit bucket = this->ten(Strategy::kTokenBucket);
  const LiveLimit window = this->ten(Strategy::kSlidingWindow);
  for (int i = 0; i < 10; ++i) this->ask({this->of(bucket), this->of(window)}, kStart);
  const Applied reserved = this->ask({this->of(bucket), this->of(window)}, kStart, Effect::kReserve, 30s);
  EXPECT_TRUE(reserved.reserved);
  EXPECT_EQ(reserved.wait, 10s);
  // A later check queues behind it.
  EXPECT_FALSE(this->take(this->of(window), kStart + 10s - 1us));
  EXPECT_TRUE(this->take(this->of(window), kStart + 10s));
  // And no wait exceeds its patience.
  EXPECT_FALSE(this->ask({this->of(bucket, 10)}, kStart, Effect::kReserve, 1s).reserved);
}

TYPED_TEST(StoreContract, ChargesAtOnceWhatFitsWhereOnlyOthersHaveToWait) {
  const LiveLimit bucket = this->ten(Strategy::kTokenBucket);
  for (int i = 0; i < 10; ++i) this->take(this->of(bucket), kStart);
  for (const Strategy strategy : kEveryStrategy) {
    if (strategy == Strategy::kTokenBucket || strategy == Strategy::kLeakyBucket) continue;
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit shared = this->ten(strategy);
    std::vector<core::Outcome> outcomes(2);
    store::Ask apart{kStart, kStart, Effect::kReserve, 1h, next_lease()};
    apart.apart = true;
    const std::vector<Charge> plan{this->of(bucket), this->of(shared)};
    const Applied reserved = this->store_.apply(plan, apart, outcomes);
    EXPECT_TRUE(reserved.reserved);
    EXPECT_GT(reserved.wait, Nanos{0});
    EXPECT_EQ(this->left(shared, kStart), 9);
    EXPECT_TRUE(this->take(this->of(shared), kStart)) << "nobody else has to wait";
  }
}

TYPED_TEST(StoreContract, GivesBackWhatIsRefunded) {
  for (const Strategy strategy : kEveryStrategy) {
    if (strategy == Strategy::kConcurrency) continue;  // held by lease, given back by release
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit live = this->ten(strategy);
    this->take(this->of(live, 6), kStart);
    this->store_.refund(this->of(live, 6), kStart, kStart);
    EXPECT_EQ(this->left(live, kStart), 10);
  }
}

TYPED_TEST(StoreContract, HoldsUntilReleasedOrExpired) {
  const LiveLimit live = this->ten(Strategy::kConcurrency);
  this->ask({this->of(live, 4)}, kStart, Effect::kCharge, Nanos{0}, 77);
  this->ask({this->of(live, 1)}, kStart, Effect::kCharge, Nanos{0}, 78);
  EXPECT_EQ(this->left(live, kStart), 5);
  EXPECT_TRUE(this->store_.release(this->of(live), 77, kStart + 1s));
  EXPECT_FALSE(this->store_.release(this->of(live), 77, kStart + 1s));
  EXPECT_EQ(this->left(live, kStart + 1s), 9);
  EXPECT_TRUE(this->store_.renew(this->of(live), 78, kStart + 9s));
  EXPECT_EQ(this->left(live, kStart + 18s), 9);
  EXPECT_EQ(this->left(live, kStart + 19s), 10);
  EXPECT_FALSE(this->store_.renew(this->of(live), 78, kStart + 19s));
}

TYPED_TEST(StoreContract, CountsTwoInOneMicrosecondAsTwo) {
  const LiveLimit live = this->ten(Strategy::kSlidingWindow);
  this->take(this->of(live), kStart);
  this->take(this->of(live), kStart);
  EXPECT_EQ(this->left(live, kStart), 8);
}

TYPED_TEST(StoreContract, GrantsNothingWhenTheClockGoesBack) {
  for (const Strategy strategy : kEveryStrategy) {
    SCOPED_TRACE(to_string(strategy));
    const LiveLimit live = this->ten(strategy);
    for (int i = 0; i < 10; ++i) this->take(this->of(live), kStart);
    EXPECT_FALSE(this->take(this->of(live), kStart - 1s));
    EXPECT_FALSE(this->take(this->of(live), kStart));
  }
}

}  // namespace
}  // namespace headgate::test
