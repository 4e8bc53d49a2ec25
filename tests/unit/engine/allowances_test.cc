// Limits that a check brings along: judged and charged with the policies, all or nothing.
#include <gtest/gtest.h>

#include "support/engines.h"

namespace headgate::engine {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using test::EngineFixture;
using test::Q;

class AllowancesTest : public EngineFixture {
 protected:
  const WorkingLimit* quota(Units limit, Period period = Period::kDay, const std::string& zone = "UTC") {
    return engine_.allowances().limit(*Limit::quota({.limit = limit, .period = period, .timezone = zone}));
  }
  base::Hash128 cell(std::string_view user, std::string_view period = "day") {
    return engine_.allowances().cell(std::array<std::string_view, 2>{user, period});
  }
  static Allowances of(std::initializer_list<Allowances::One> all) {
    Allowances allowances;
    for (const Allowances::One& one : all) allowances.all.emplace_back() = one;
    return allowances;
  }
  CheckDecision ask(const Q& q, const Allowances& allowances) {
    return engine_.check_at(clock_.now(), q.get(), {{}, &allowances});
  }
  Units left(const Allowances::One& one) {
    core::Outcome outcome;
    engine_.allowances().look_at({&one, 1}, {&outcome, 1});
    return outcome.remaining;
  }
};

TEST_F(AllowancesTest, AreChargedWithTheCheckAndDenyItOnceUsedUp) {
  const Allowances two = of({{quota(2), cell("u")}});
  EXPECT_TRUE(ask(Q("shell").agent("u"), two).allowed);
  const CheckDecision second = ask(Q("shell").agent("u"), two);
  EXPECT_TRUE(second.allowed);
  ASSERT_EQ(second.allowances().size(), 1u);
  EXPECT_EQ(second.allowances()[0].remaining, 0);
  const CheckDecision third = ask(Q("shell").agent("u"), two);
  EXPECT_FALSE(third.allowed);
  EXPECT_EQ(third.why, Why::kQuota);
  EXPECT_EQ(third.error(), "quota_exceeded");
  EXPECT_EQ(third.denying_allowance, 0);
  EXPECT_GT(third.retry_after, Nanos{0});
}

TEST_F(AllowancesTest, CellsOfTheSameNamesAreCountedApart) {
  const base::Hash128 names = cell("u");
  for (std::uint64_t which = 0; which < Allowances::kMost; ++which) {
    const Allowances one = of({{quota(2), Allowances::cell(names, which)}});
    EXPECT_TRUE(ask(Q("shell").agent("u"), one).allowed) << which;
    EXPECT_EQ(left(one.all[0]), 1) << which;
  }
  EXPECT_EQ(engine_.cells().totals().cells, Allowances::kMost);
}

TEST_F(AllowancesTest, APolicyThatDeniesLeavesThemAsTheyWere) {
  load("policies: [{id: p, key: [user], limit: {strategy: fixed_window, limit: 1, window: 60s}}]");
  const Allowances::One one{quota(10), cell("u")};
  EXPECT_TRUE(ask(Q("shell").agent("u").user("u"), of({one})).allowed);
  EXPECT_EQ(left(one), 9);
  const CheckDecision denied = ask(Q("shell").agent("u").user("u"), of({one}));
  EXPECT_FALSE(denied.allowed);
  ASSERT_NE(denied.denied_by(), nullptr);
  EXPECT_EQ(denied.denied_by()->id, "p");
  EXPECT_EQ(left(one), 9);
}

TEST_F(AllowancesTest, OneThatDeniesLeavesPoliciesAndTheOthersAsTheyWere) {
  load("policies: [{id: p, key: [user], limit: {strategy: fixed_window, limit: 5, window: 60s}}]");
  const Allowances::One day{quota(10), cell("u")};
  const Allowances::One month{quota(1, Period::kMonth), cell("u", "month")};
  EXPECT_TRUE(ask(Q("shell").agent("u").user("u"), of({day, month})).allowed);
  const CheckDecision denied = ask(Q("shell").agent("u").user("u"), of({day, month}));
  EXPECT_EQ(denied.why, Why::kQuota);
  EXPECT_EQ(denied.denying_allowance, 1);
  EXPECT_EQ(left(day), 9);
  const CheckDecision peek = engine_.check_at(clock_.now(), Q("shell").agent("u").user("u").peek().get());
  EXPECT_EQ(peek.remaining, 3);  // one was charged, one is looked for
}

TEST_F(AllowancesTest, OtherNumbersGoOnFromWhatWasUsed) {
  EXPECT_TRUE(ask(Q("shell").agent("u"), of({{quota(2), cell("u")}})).allowed);
  EXPECT_TRUE(ask(Q("shell").agent("u"), of({{quota(2), cell("u")}})).allowed);
  EXPECT_EQ(left({quota(5), cell("u")}), 3);
  EXPECT_FALSE(ask(Q("shell").agent("u"), of({{quota(1), cell("u")}})).allowed);
  EXPECT_TRUE(ask(Q("shell").agent("u"), of({{quota(3), cell("u")}})).allowed);
}

TEST_F(AllowancesTest, CommandsAreNotCountedByTiers) {
  const Allowances many = of({{quota(1'000), cell("u")}});
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(ask(Q("shell").agent("u").channel("command"), many).allowed) << i;
}

TEST_F(AllowancesTest, ARefundGivesThemBackToo) {
  const Allowances::One one{quota(5), cell("u")};
  const Allowances allowances = of({one});
  const Q question = std::move(Q("shell").agent("u"));
  EXPECT_TRUE(ask(question, allowances).allowed);
  engine_.refund(clock_.now(), question.get(), GiveBack::kReturned, {{}, &allowances});
  EXPECT_EQ(left(one), 5);
}

TEST_F(AllowancesTest, AreRaisedToWhatIsKnownToBeUsedAndNeverLowered) {
  const Allowances::One one{quota(100), cell("u")};
  engine_.allowances().raise_to(one, 40);
  EXPECT_EQ(left(one), 60);
  engine_.allowances().raise_to(one, 30);
  EXPECT_EQ(left(one), 60);
  engine_.allowances().raise_to(one, 1'000);
  EXPECT_EQ(left(one), 0);
}

TEST_F(AllowancesTest, TheSameNumbersAreTheSameLimit) {
  EXPECT_EQ(quota(7), quota(7));
  EXPECT_NE(quota(7), quota(8));
  EXPECT_NE(quota(7), quota(7, Period::kDay, "Europe/Berlin"));
}

TEST_F(AllowancesTest, MoreThanOnePlanHasRoomForAreLookedAtAllTheSame) {
  std::vector<Allowances::One> all;
  for (int i = 0; i < 100; ++i) all.push_back({quota(50), cell("u" + std::to_string(i))});
  engine_.allowances().raise_to(all[99], 9);
  std::vector<core::Outcome> outcomes(all.size());
  engine_.allowances().look_at(all, outcomes);
  EXPECT_EQ(outcomes[0].remaining, 50);
  EXPECT_EQ(outcomes[99].remaining, 41);
}

}  // namespace
}  // namespace headgate::engine
