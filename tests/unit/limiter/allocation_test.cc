// Once a cell exists, being answered costs no allocation.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

#include "support/allocation_counter.h"
#include "support/limiters.h"

namespace headgate::test {
namespace {

static_assert(sizeof(Decision) <= 64);
static_assert(std::is_trivially_copyable_v<Decision>);

// Without this the tests below would prove nothing.
TEST(AllocationCounter, SeesEveryWayToAllocate) {
  void* volatile block = nullptr;  // so that no compiler may leave the allocation out
  const auto allocated = [&](auto allocate, auto free) {
    const std::uint64_t count = allocations_in([&] { block = allocate(); });
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(allocations_in([&] { free(block); }), 0U);
    return count;
  };
  EXPECT_EQ(allocated([] { return std::malloc(100); }, std::free), 1U);
  EXPECT_EQ(allocated([] { return std::calloc(10, 10); }, std::free), 1U);
  EXPECT_EQ(allocated([] { return ::operator new(100); }, [](void* memory) { ::operator delete(memory); }), 1U);
  EXPECT_GE(allocated([] { return std::aligned_alloc(64, 128); }, std::free), counts_aligned() ? 1U : 0U);
}

class Allocation : public testing::TestWithParam<Strategy> {
 protected:
  // Calls that go on for long enough to meet everything that happens only now and then.
  static constexpr int kCalls = 20'000;

  // A call, and where it took a slot the slot's return.
  void take(std::string_view key, Units permits) {
    const Decision decision = limiter_->try_acquire(key, permits);
    admitted_ += decision ? 1 : 0;
    if (decision.lease != 0) limiter_->release(key, decision.lease);
  }

  ManualClock clock_{kStart};
  std::unique_ptr<MemoryLimiter> limiter_ = make(ten_of(GetParam()), clock_);
  int admitted_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Limiter, Allocation, testing::ValuesIn(all_strategies()), StrategyName());

TEST_P(Allocation, AllowedCallsAllocateNothing) {
  // A quota of ten an hour would deny all but a few.
  const Nanos step = GetParam() == Strategy::kQuota ? Nanos{6min} : Nanos{100ms};
  // What a sliding window or a concurrency limit records grows to its full size first.
  for (int i = 0; i < 40; ++i) {
    clock_.advance(step);
    take("key", 1);
  }
  admitted_ = 0;
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < kCalls; ++i) {
                clock_.advance(step);
                take("key", 1);
              }
            }),
            0U);
  EXPECT_GE(admitted_, kCalls / 2) << "the test must be about calls that are allowed";
}

TEST_P(Allocation, AllowedCallsWithTheTimePassedInAllocateNothing) {
  Nanos now = kStart;
  const Nanos step = GetParam() == Strategy::kQuota ? Nanos{7min} : Nanos{150ms};
  const auto call = [&] {
    now += step;
    admitted_ += limiter_->try_acquire_at(now, "key", 1) ? 1 : 0;
  };
  for (int i = 0; i < 40; ++i) call();
  admitted_ = 0;
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < kCalls; ++i) call();
            }),
            0U);
  EXPECT_GE(admitted_, kCalls / 2);
}

TEST_P(Allocation, DeniedCallsAllocateNothing) {
  ASSERT_TRUE(limiter_->try_acquire("key", 10));
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < kCalls; ++i) take("key", 1);
              for (int i = 0; i < kCalls; ++i) take("key", 11);
              for (int i = 0; i < kCalls; ++i) take("never seen", -1);
            }),
            0U);
  EXPECT_EQ(admitted_, 0);
}

TEST_P(Allocation, ReadingAllocatesNothing) {
  ASSERT_TRUE(limiter_->try_acquire("key", 4));
  Units seen = 0;
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < kCalls; ++i) {
                seen += limiter_->peek("key", 1 + i % 11).remaining;
                seen += limiter_->remaining("never seen");
                seen += limiter_->reset_time("key") > kStart ? 1 : 0;
                if (i % 100 == 0) seen += limiter_->totals().acquired > 0 ? 1 : 0;
              }
            }),
            0U);
  EXPECT_GT(seen, 0);
}

TEST_P(Allocation, ManyAndAllAllocateNothing) {
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back("key " + std::to_string(i));
  std::vector<Request> requests;
  for (const std::string& name : names) requests.push_back({name, 1});
  std::vector<Decision> decisions(requests.size());
  const Nanos step = GetParam() == Strategy::kQuota ? Nanos{24min} : Nanos{500ms};
  const auto round = [&] {
    clock_.advance(step);
    limiter_->try_acquire_many(requests, decisions);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      admitted_ += decisions[i] ? 1 : 0;
      if (decisions[i].lease != 0) limiter_->release(requests[i].key, decisions[i].lease);
    }
    const Decision all = limiter_->try_acquire_all(requests);
    admitted_ += all ? 1 : 0;
    if (all.lease == 0) return;
    for (const Request& request : requests) limiter_->release(request.key, all.lease);
  };
  for (int i = 0; i < 20; ++i) round();
  admitted_ = 0;
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < 300; ++i) round();
            }),
            0U);
  EXPECT_EQ(admitted_, 300 * 61);
}

TEST_P(Allocation, TrackedKeysAllocateOnlyWhenFirstSeen) {
  limiter_ = make(Options().limit(ten_of(GetParam())).clock(clock_).track_keys());
  const Nanos step = GetParam() == Strategy::kQuota ? Nanos{6min} : Nanos{100ms};
  const auto call = [&] {
    clock_.advance(step);
    take("a key that is too long to be kept inside a string object", 1);
  };
  EXPECT_GT(allocations_in(call), 0U);
  for (int i = 0; i < 40; ++i) call();
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < kCalls; ++i) call();
            }),
            0U);
  EXPECT_GT(admitted_, kCalls / 2);
}

TEST(AllocationWithSeveralLimits, AllowedCallsAllocateNothing) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(token_bucket(10, 10)).limit(sliding_window(20, 1s)).clock(clock));
  int admitted = 0;
  const auto call = [&] {
    clock.advance(100ms);
    admitted += limiter->try_acquire("key") ? 1 : 0;
  };
  for (int i = 0; i < 40; ++i) call();
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < 20'000; ++i) call();
            }),
            0U);
  EXPECT_EQ(admitted, 20'040);
}

// Cells of other keys come and go all the time; what that costs is theirs.
TEST(AllocationAmongOthers, AllowedCallsOnAnOldKeyAllocateNothingAfterOthersWereDropped) {
  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(token_bucket(10, 10)).clock(clock).max_keys(256).seed(1));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(limiter->try_acquire("other " + std::to_string(i)));
  ASSERT_TRUE(limiter->try_acquire("key"));
  std::uint64_t allocated = 0;
  for (int i = 0; i < 20'000; ++i) {
    clock.advance(100ms);
    allocated += allocations_in([&] { (void)limiter->try_acquire("key"); });
  }
  EXPECT_LE(allocated, 3U) << "at most the few steps in which the table gives memory back";
  EXPECT_EQ(limiter->totals().cells, 1U);
}

}  // namespace
}  // namespace headgate::test
