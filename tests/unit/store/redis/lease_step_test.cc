#include "store/redis/lease_step.h"

#include <gtest/gtest.h>

#include "core/compiled_limit.h"

namespace headgate::store::redis {
namespace {

using namespace std::chrono_literals;

core::CompiledLimit window(Units limit, Nanos span) { return core::compile(*Limit::sliding_window({limit, span, 0})); }

TEST(LeaseStep, ATenthOfALimitMayBeOut) {
  const LeaseTerms terms = lease_terms(window(1000, 60s), {});
  EXPECT_EQ(terms.cap, 100);
  EXPECT_EQ(terms.ttl, 1s);
}

TEST(LeaseStep, ALeaseLastsAQuarterOfTheSpanAtMost) {
  EXPECT_EQ(lease_terms(window(1000, 2s), {}).ttl, 500ms);
  // 1,000 units at 5,000 a second: full after 200 ms.
  const auto bucket = core::compile(*Limit::token_bucket({1000, {5000, 1s}, 0}));
  EXPECT_EQ(lease_terms(bucket, {}).ttl, 50ms);
}

TEST(LeaseStep, WhatIsShortSmallOrHasTurnsIsNotLeased) {
  EXPECT_FALSE(lease_terms(window(1000, 30ms), {}).leased());
  EXPECT_FALSE(lease_terms(window(9, 60s), {}).leased());
  EXPECT_FALSE(lease_terms(window(1000, 60s), {.share = 0}).leased());
  EXPECT_FALSE(lease_terms(core::compile(*Limit::concurrency({1000, 30s, 0})), {}).leased());
  EXPECT_FALSE(lease_terms(core::compile(*Limit::leaky_bucket({{1000, 1s}, 1000})), {}).leased());
}

TEST(LeaseStep, TheBoundIsTheShareWhateverTheStrategy) {
  const LeaseSettings settings{.share = 0.2};
  const Window numbers{500, 10s, 0};
  for (const Limit& limit : {*Limit::sliding_window(numbers), *Limit::sliding_window_counter(numbers),
                             *Limit::fixed_window(numbers), *Limit::token_bucket({500, {50, 1s}, 0}),
                             *Limit::gcra({499, 500, 10s, 0}), *Limit::quota({500, Period::kDay})}) {
    const LeaseBounds bounds = lease_bounds(core::compile(limit), settings, 3);
    EXPECT_EQ(bounds.over, 100) << limit.describe();
    EXPECT_EQ(bounds.under, 100 + 3 * 50) << limit.describe();
  }
  const LeaseBounds exact = lease_bounds(core::compile(*Limit::concurrency({500, 10s, 0})), settings, 3);
  EXPECT_EQ(exact.over, 0);
  EXPECT_EQ(exact.under, 0);
}

TEST(LeaseStep, ABlockIsWhatIsUsedInHalfATtl) {
  const LeaseTerms terms{1000, 1s};
  EXPECT_EQ(target({0, 0s, 400}, terms), 200);
  EXPECT_EQ(target({0, 0s, 1e9}, terms), 1000) << "and no more than may be out";
  EXPECT_EQ(target({0, 0s, 7}, terms), 0) << "too few to be worth the messages";
}

TEST(LeaseStep, ABlockDoublesWhileItIsUsedUpEarly) {
  const LeaseTerms terms{1000, 1s};
  Demand demand;
  demand.asked = 16;
  Units block = target(demand, terms);
  for (int i = 0; i < 3; ++i) {
    demand = measured(demand, terms, 10ms * (i + 1));
    demand.asked += block;
    const Units next = target(demand, terms);
    EXPECT_EQ(next, 2 * block);
    block = next;
  }
}

TEST(LeaseStep, DemandFallsByHalves) {
  const LeaseTerms terms{1000, 1s};
  Demand demand{500, 0s, 0};
  demand = measured(demand, terms, 500ms);
  EXPECT_DOUBLE_EQ(demand.rate, 1000);
  demand = measured(demand, terms, 1s);
  EXPECT_DOUBLE_EQ(demand.rate, 500);
  EXPECT_EQ(measured(demand, terms, 1s + 499ms).since, 1s) << "looked at half a ttl at a time";
}

TEST(LeaseStep, AFewCallsTogetherAreNoReasonToLease) {
  const LeaseTerms terms{1000, 1s};
  EXPECT_FALSE(worth_leasing({15, 0s, 0}, terms, 1));
  EXPECT_TRUE(worth_leasing({16, 0s, 0}, terms, 1));
  EXPECT_FALSE(worth_leasing({16, 0s, 0}, terms, 3)) << "five calls of three units";
  EXPECT_TRUE(worth_leasing({0, 0s, 8}, terms, 1)) << "four units in half a second, as before";
  EXPECT_FALSE(worth_leasing({1000, 0s, 1000}, {3, 1s}, 1)) << "no block of any use fits under the cap";
}

TEST(LeaseStep, WhatIsNotNeededGoesBack) {
  const LeaseStep step = lease_step(100, 30, false);
  EXPECT_EQ(step.keep, 30);
  EXPECT_EQ(step.give_back, 70);
  EXPECT_EQ(step.want, 0);
}

TEST(LeaseStep, NothingOfALapsedLeaseIsKept) {
  const LeaseStep step = lease_step(10, 30, true);
  EXPECT_EQ(step.keep, 0);
  EXPECT_EQ(step.give_back, 10);
  EXPECT_EQ(step.want, 30);
}

TEST(LeaseStep, ADeniedNodeAsksAgainNeitherAtOnceNorMuchLater) {
  const LeaseTerms terms{1000, 1600ms};
  EXPECT_EQ(pause_after_denial(1us, terms), 100ms);
  EXPECT_EQ(pause_after_denial(700ms, terms), 700ms);
  EXPECT_EQ(pause_after_denial(24h, terms), 1600ms);
}

}  // namespace
}  // namespace headgate::store::redis
