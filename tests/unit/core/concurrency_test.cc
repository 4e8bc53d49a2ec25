#include "core/concurrency.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "driver.h"

namespace headgate {
namespace {

using core::ConcurrencyNumbers;
using core::Hold;
using core::HoldTable;
using core::Outcome;
using testing::Move;
using namespace std::chrono_literals;

class Holds {
 public:
  Holds(ConcurrencyNumbers numbers, std::size_t capacity) : holds_(capacity), numbers_(numbers) {
    table_.holds = holds_.data();
    table_.capacity = static_cast<std::uint32_t>(capacity);
  }
  [[nodiscard]] Outcome peek(Units cost, Nanos now) const { return core::concurrency(table_, numbers_, cost, now); }
  Outcome take(Units cost, Nanos now, LeaseId lease) {
    const Outcome outcome = peek(cost, now);
    if (outcome.fits() && cost > 0) {
      core::drop_expired_holds(table_, now);
      core::concurrency_charge(table_, {lease, now + numbers_.ttl, cost});
    }
    return outcome;
  }
  bool release(LeaseId lease, Nanos now) { return core::concurrency_release(table_, lease, now); }
  bool renew(LeaseId lease, Nanos now) { return core::concurrency_renew(table_, lease, numbers_.ttl, now); }
  [[nodiscard]] const HoldTable& table() const { return table_; }

 private:
  std::vector<Hold> holds_;
  ConcurrencyNumbers numbers_;
  HoldTable table_;
};

TEST(Concurrency, AdmitsUpToTheMostHeldAndAReleaseMakesRoom) {
  Holds holds({3, 0, 30s}, 4);
  EXPECT_EQ(holds.peek(0, 0s).remaining, 3);
  EXPECT_EQ(holds.peek(0, 0s).reset_after, 0s);
  EXPECT_EQ(holds.take(1, 0s, 11).remaining, 2);
  EXPECT_EQ(holds.take(2, 5s, 12).remaining, 0);
  const Outcome denied = holds.take(1, 6s, 13);
  EXPECT_EQ(denied.wait, 24s) << "at the latest when the first hold expires";
  EXPECT_EQ(denied.reset_after, 29s) << "when the last hold expires";
  EXPECT_TRUE(holds.release(12, 7s));
  EXPECT_EQ(holds.peek(0, 7s).reset_after, 23s);
  EXPECT_FALSE(holds.release(12, 7s)) << "it had ended";
  EXPECT_FALSE(holds.release(99, 7s)) << "it never was";
  EXPECT_EQ(holds.take(2, 7s, 14).remaining, 0);
}

TEST(Concurrency, ALostHoldersLeaseExpiresWithItsTtl) {
  Holds holds({1, 0, 30s}, 2);
  EXPECT_TRUE(holds.take(1, 100s, 1).fits());
  EXPECT_EQ(holds.take(1, 130s - 1ns, 2).wait, 1ns);
  EXPECT_TRUE(holds.take(1, 130s, 2).fits());
  EXPECT_FALSE(holds.release(1, 130s)) << "another holds the slot now";
  EXPECT_EQ(holds.table().held, 1);
}

TEST(Concurrency, RenewingKeepsAHoldAndNeverShortensIt) {
  Holds holds({1, 0, 30s}, 2);
  EXPECT_TRUE(holds.take(1, 100s, 1).fits());
  EXPECT_TRUE(holds.renew(1, 120s));
  EXPECT_FALSE(holds.take(1, 149s, 2).fits());
  EXPECT_TRUE(holds.renew(1, 110s)) << "the clock went back";
  EXPECT_FALSE(holds.take(1, 149s, 2).fits());
  EXPECT_FALSE(holds.renew(1, 150s)) << "it had ended";
  EXPECT_TRUE(holds.take(1, 150s, 2).fits());
}

TEST(Concurrency, ReleaseAndRenewMeanAllThatIsHeldUnderALease) {
  Holds holds({4, 0, 30s}, 4);
  EXPECT_TRUE(holds.take(1, 0s, 7).fits());
  EXPECT_TRUE(holds.take(2, 0s, 7).fits());
  EXPECT_TRUE(holds.take(1, 0s, 8).fits());
  EXPECT_TRUE(holds.renew(7, 20s));
  EXPECT_EQ(holds.peek(0, 30s).remaining, 1);
  EXPECT_TRUE(holds.release(7, 30s));
  EXPECT_EQ(holds.peek(0, 30s).remaining, 4);
  EXPECT_EQ(holds.table().size, 0u);
}

TEST(Concurrency, BurstAllowanceAdmitsPastTheLimitFlaggedAndRemainingCountsToTheLimit) {
  Holds holds({5, 2, 30s}, 8);  // 3 and 2
  const std::array<std::pair<Units, bool>, 5> admitted{{{2, false}, {1, false}, {0, false}, {0, true}, {0, true}}};
  LeaseId lease = 0;
  for (const auto& [remaining, burst] : admitted) {
    const Outcome outcome = holds.take(1, 1s, ++lease);
    EXPECT_TRUE(outcome.fits());
    EXPECT_EQ(outcome.remaining, remaining);
    EXPECT_EQ(outcome.burst, burst);
  }
  EXPECT_FALSE(holds.take(1, 1s, 9).fits());
}

TEST(Concurrency, MoreHeldThanTheLimitAllowsReadsAsNothingRemaining) {
  // As after a change to a lower limit.
  Holds holds({8, 0, 30s}, 8);
  EXPECT_TRUE(holds.take(8, 0s, 1).fits());
  const Outcome outcome = core::concurrency(holds.table(), {3, 0, 30s}, 1, 0s);
  EXPECT_EQ(outcome.remaining, 0);
  EXPECT_EQ(outcome.wait, 30s);
  EXPECT_TRUE(core::concurrency(holds.table(), {3, 0, 30s}, 0, 0s).fits()) << "a cost of 0 takes nothing";
}

TEST(Concurrency, TheWaitIsExactForAFewExpiriesAndNeverTooShort) {
  Holds holds({20, 0, 30s}, 32);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(holds.take(1, i * 1s, static_cast<LeaseId>(i + 1)).fits());
  EXPECT_EQ(holds.peek(1, 20s).wait, 10s);
  EXPECT_EQ(holds.peek(8, 20s).wait, 17s);
  for (Units cost = 9; cost <= 20; ++cost) EXPECT_EQ(holds.peek(cost, 20s).wait, 29s) << cost;
}

RC_GTEST_PROP(Concurrency, AnswersLikeAListOfHolds, ()) {
  const Units limit = *rc::gen::inRange<Units>(1, 20);
  const Units burst = *rc::gen::element<Units>(0, 0, 1, 7);
  const auto moves = *testing::script(testing::Time::kAnyWay);
  Holds holds({limit + burst, burst, 30s}, static_cast<std::size_t>(limit + burst));
  oracle::Concurrency model(limit + burst, 30s);
  Nanos now = 1'700'000'000s;
  Outcome last;
  LeaseId next = 1;
  for (const Move& move : moves) {
    const Nanos by = move.step(1s, 30s, last);
    // What has expired may be forgotten at once or with the next change; before time goes back both have forgotten it.
    if (by < 0ns) {
      RC_ASSERT(!holds.release(0, now));
      model.forget_expired(now);
    }
    now += by;
    const LeaseId some = 1 + static_cast<LeaseId>(move.amount) % next;
    if (move.act < 2) {
      RC_ASSERT(holds.release(some, now) == model.release(some, now));
    } else if (move.act < 4) {
      RC_ASSERT(holds.renew(some, now) == model.renew(some, now));
    } else {
      const Units cost = move.units(limit + burst);
      last = holds.take(cost, now, next);
      RC_ASSERT(last.fits() == model.fits(cost, now));
      if (!last.fits()) RC_ASSERT(model.fits(cost, now + last.wait));
      if (last.fits() && cost > 0) model.charge(cost, now, next++);
      RC_ASSERT(last.remaining == oracle::remaining(model.room(now), burst));
      RC_ASSERT(last.burst == (last.fits() && cost > 0 && oracle::used_burst(model.room(now), burst)));
      RC_ASSERT(model.held(now + last.reset_after) == 0);
      RC_ASSERT((model.held(now) == 0 ? last.reset_after == 0ns : model.held(now + last.reset_after - 1ns) > 0));
    }
    RC_ASSERT(holds.peek(0, now).remaining == oracle::remaining(model.room(now), burst));
    RC_ASSERT(model.held(now) <= limit + burst);
  }
}

TEST(Concurrency, WorksAtTheEndOfTime) {
  Holds holds({2, 0, core::kLongestSpan}, 2);
  EXPECT_TRUE(holds.take(1, kMaxTime, 1).fits());
  EXPECT_TRUE(holds.take(1, kMaxTime, 2).fits());
  EXPECT_EQ(holds.peek(1, kMaxTime).wait, core::kLongestSpan);
  EXPECT_EQ(holds.peek(2, 0s).wait, kMaxTime + core::kLongestSpan);
  EXPECT_TRUE(holds.renew(1, kMaxTime));
  EXPECT_TRUE(holds.release(1, kMaxTime));
  EXPECT_TRUE(holds.take(1, kMaxTime, 3).fits());
}

TEST(Concurrency, TheLargestLimitHoldsAsManyLeases) {
  testing::OneCell cell(Limit::concurrency({.max = core::kMaxHolds, .lease_ttl = 30s}));
  for (Units i = 1; i <= core::kMaxHolds; ++i) ASSERT_TRUE(cell.take(1, 1s, static_cast<LeaseId>(i)).fits()) << i;
  EXPECT_EQ(cell.take(1, 1s, 1).wait, 30s);
  EXPECT_TRUE(cell.take(1, 31s, 1).fits());
}

}  // namespace
}  // namespace headgate
