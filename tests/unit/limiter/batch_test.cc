// Several keys in one call: all or nothing, and each on its own.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "support/limiters.h"

namespace headgate::test {
namespace {

class AllOrNothing : public testing::TestWithParam<Strategy> {
 protected:
  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(ten_of(GetParam()), clock_);
  Decision all(const std::vector<Request>& requests) { return limiter_->try_acquire_all(requests); }
};
INSTANTIATE_TEST_SUITE_P(Batch, AllOrNothing, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(AllOrNothing, ChargesEveryKeyWhenAllFit) {
  const Decision decision = all({{"a", 1}, {"b", 4}, {"c", 10}});
  EXPECT_TRUE(decision.allowed());
  EXPECT_EQ(decision.remaining, 0);
  EXPECT_EQ(limiter_->remaining("a"), 9);
  EXPECT_EQ(limiter_->remaining("b"), 6);
  EXPECT_EQ(limiter_->remaining("c"), 0);
}

TEST_P(AllOrNothing, OneKeyWithoutRoomChargesNone) {
  ASSERT_TRUE(limiter_->try_acquire("b", 8));
  const Decision expected = limiter_->peek("b", 3);
  const Decision decision = all({{"a", 1}, {"b", 3}, {"c", 1}});
  EXPECT_EQ(decision.verdict, Verdict::kNotYet);
  EXPECT_EQ(decision.reason, Reason::kLimited);
  EXPECT_EQ(decision.retry_after, expected.retry_after);
  EXPECT_EQ(decision.lease, 0U);
  EXPECT_EQ(limiter_->remaining("a"), 10);
  EXPECT_EQ(limiter_->remaining("b"), 2);
  EXPECT_EQ(limiter_->remaining("c"), 10);
  EXPECT_EQ(limiter_->totals().cells, 1U);
}

TEST_P(AllOrNothing, OneKeyThatNeverFitsChargesNone) {
  const Decision decision = all({{"a", 1}, {"b", 11}, {"c", 1}});
  EXPECT_EQ(decision.verdict, Verdict::kNever);
  EXPECT_EQ(decision.reason, Reason::kCostExceedsLimit);
  EXPECT_EQ(limiter_->totals().cells, 0U);
}

TEST_P(AllOrNothing, AKeyNamedTwiceIsChargedTwice) {
  EXPECT_TRUE(all({{"a", 3}, {"b", 1}, {"a", 4}}));
  EXPECT_EQ(limiter_->remaining("a"), 3);
  EXPECT_EQ(all({{"a", 2}, {"a", 2}}).verdict, Verdict::kNotYet);
  EXPECT_EQ(limiter_->remaining("a"), 3);
  EXPECT_EQ(all({{"a", 6}, {"a", 5}}).verdict, Verdict::kNever);
  EXPECT_TRUE(all({{"a", 2}, {"a", 1}}));
  EXPECT_EQ(limiter_->remaining("a"), 0);
}

TEST_P(AllOrNothing, SixtyFourKeysAreTakenAndSixtyFiveRefused) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i <= kMaxKeysPerCall; ++i) names.push_back("key " + std::to_string(i));
  std::vector<Request> requests;
  for (const std::string& name : names) requests.push_back({name, 1});
  const Decision refused = all(requests);
  EXPECT_EQ(refused.verdict, Verdict::kNever);
  EXPECT_EQ(refused.reason, Reason::kInvalidCost);
  EXPECT_EQ(limiter_->totals().cells, 0U);
  requests.pop_back();
  EXPECT_TRUE(all(requests));
  EXPECT_EQ(limiter_->totals().cells, kMaxKeysPerCall);
}

TEST_P(AllOrNothing, NoKeysAtAllIsAnInvalidCost) {
  const Decision decision = all({});
  EXPECT_EQ(decision.verdict, Verdict::kNever);
  EXPECT_EQ(decision.reason, Reason::kInvalidCost);
}

TEST_P(AllOrNothing, ZeroPermitsAmongOthersChargeNothing) {
  EXPECT_TRUE(all({{"a", 0}, {"b", 2}}));
  EXPECT_EQ(limiter_->remaining("a"), 10);
  EXPECT_EQ(limiter_->remaining("b"), 8);
  const Decision nothing = all({{"a", 0}});
  EXPECT_TRUE(nothing.allowed());
  EXPECT_EQ(nothing.lease, 0U);
}

TEST(Batch, WhereTheStoreIsFullNothingIsCharged) {
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(to_string(strategy));
    ManualClock clock(kStart);
    const auto limiter = make(Options().limit(ten_of(strategy)).clock(clock).max_keys(3));
    ASSERT_TRUE(limiter->try_acquire("a", 2));
    ASSERT_TRUE(limiter->try_acquire("b", 2));
    const Decision decision = limiter->try_acquire_all(std::vector<Request>{{"a", 3}, {"new", 3}, {"too many", 3}});
    EXPECT_EQ(decision.verdict, Verdict::kNotYet);
    EXPECT_EQ(decision.reason, Reason::kTooManyKeys);
    EXPECT_EQ(limiter->remaining("a"), 8);
    EXPECT_EQ(limiter->remaining("b"), 8);
    EXPECT_EQ(limiter->remaining("new"), 10);
  }
}

// An oracle for all or nothing: what is free under each key, all at one instant.
RC_GTEST_PROP(Batch, AllOrNothingAgreesWithCountingByHand, ()) {
  const Strategy strategy = *rc::gen::elementOf(all_strategies());
  const auto calls = *rc::gen::container<std::vector<std::vector<std::pair<int, int>>>>(
      rc::gen::container<std::vector<std::pair<int, int>>>(
          rc::gen::pair(rc::gen::inRange(0, 4), rc::gen::inRange(0, 7))));
  static const std::vector<std::string> kKeys = {"a", "b", "c", "d"};
  ManualClock clock(kStart);
  const auto limiter = make(ten_of(strategy), clock);
  std::vector<Units> free(kKeys.size(), 10);
  for (const auto& call : calls) {
    if (call.empty()) continue;
    std::vector<Request> requests;
    std::vector<Units> after = free;
    for (const auto& [key, permits] : call) {
      requests.push_back({kKeys[static_cast<std::size_t>(key)], permits});
      after[static_cast<std::size_t>(key)] -= permits;
    }
    const bool fits = std::all_of(after.begin(), after.end(), [](Units units) { return units >= 0; });
    const Decision decision = limiter->try_acquire_all(requests);
    RC_ASSERT(decision.allowed() == fits);
    if (fits) free = after;
    for (std::size_t i = 0; i < kKeys.size(); ++i) RC_ASSERT(limiter->remaining(kKeys[i]) == free[i]);
  }
}

// Many in one call is the same as one after the other, whatever came before.
RC_GTEST_PROP(Batch, ManyEqualsOneByOne, ()) {
  const Strategy strategy = *rc::gen::elementOf(all_strategies());
  const bool tracked = *rc::gen::arbitrary<bool>();
  const auto rounds = *rc::gen::container<std::vector<std::pair<int, std::vector<std::pair<int, int>>>>>(
      rc::gen::pair(rc::gen::inRange(0, 700), rc::gen::container<std::vector<std::pair<int, int>>>(
                                                  rc::gen::pair(rc::gen::inRange(0, 40), rc::gen::inRange(-1, 13)))));
  ManualClock clock(kStart);
  const auto many = make(Options().limit(ten_of(strategy)).clock(clock).seed(1).track_keys(tracked));
  const auto single = make(Options().limit(ten_of(strategy)).clock(clock).seed(1).track_keys(tracked));
  std::vector<std::string> keys;
  for (int i = 0; i < 40; ++i) keys.push_back("key " + std::to_string(i));
  for (const auto& [millis, calls] : rounds) {
    clock.advance(std::chrono::milliseconds{millis});
    std::vector<Request> requests;
    for (const auto& [key, permits] : calls) requests.push_back({keys[static_cast<std::size_t>(key)], permits});
    std::vector<Decision> decisions(requests.size());
    many->try_acquire_many(requests, decisions);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      RC_ASSERT(same(decisions[i], single->try_acquire(requests[i].key, requests[i].permits)));
    }
  }
  RC_ASSERT(many->totals().acquired == single->totals().acquired);
  RC_ASSERT(many->totals().throttled == single->totals().throttled);
}

TEST(Batch, ManyReachesPastOneRoundOfPrefetching) {
  ManualClock clock(kStart);
  const auto limiter = make(token_bucket(10, 10), clock);
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back(std::to_string(i % 100));
  std::vector<Request> requests;
  for (const std::string& key : keys) requests.push_back({key, 1});
  std::vector<Decision> decisions(requests.size() + 1);
  limiter->try_acquire_many(requests, decisions);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(decisions[i].remaining, 9 - static_cast<Units>(i / 100));
  EXPECT_FALSE(decisions.back()) << "what was not asked for is not answered";
  limiter->try_acquire_many({}, decisions);
  EXPECT_EQ(limiter->totals().acquired, 1000U);
}

}  // namespace
}  // namespace headgate::test
