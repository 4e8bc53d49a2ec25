#include "cli/quota/quota_tune.h"

#include <algorithm>
#include <limits>

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

const Day kMonday = *parse_day("2026-11-02");

UsageDay used(const std::string& user, Day day, std::uint64_t commands, const std::string& type = "shell") {
  UsageDay row;
  row.user = user;
  row.type = type;
  row.day = day;
  row.start = day.time_since_epoch();
  row.commands = commands;
  return row;
}

QuotaTuneInput input_of(std::vector<UsageDay> rows) {
  QuotaTuneInput input;
  input.rows = std::move(rows);
  input.default_plan = "free";
  input.limits["free"]["shell"] = {500, 3000, 10000};
  input.now = (kMonday + std::chrono::days{60}).time_since_epoch();
  return input;
}

QuotaTuned::Effect replay(const std::vector<UsageDay>& rows, const Limit3& limits) {
  std::vector<const UsageDay*> days;
  for (const UsageDay& row : rows) days.push_back(&row);
  return replay_quota(days, limits);
}

TEST(QuotaTune, RoundsUpToWhatIsEasyToSay) {
  const std::vector<std::pair<double, std::uint64_t>> pairs{{0, 0},
                                                            {0.1, 1},
                                                            {7, 7},
                                                            {10, 10},
                                                            {11, 15},
                                                            {95.1, 100},
                                                            {100, 100},
                                                            {101, 110},
                                                            {1000, 1000},
                                                            {1001, 1100},
                                                            {12345, 13000},
                                                            {100 * 1.1, 110},
                                                            {1e15, 1'000'000'000'000}};
  for (const auto& [value, rounded] : pairs) EXPECT_EQ(round_up_nicely(value), rounded) << value;
  EXPECT_EQ(round_up_nicely(std::numeric_limits<double>::quiet_NaN()), 0U);
}

RC_GTEST_PROP(QuotaTune, RoundingNeverLowersAndNeverAddsMoreThanATenthBeyondAHundred, ()) {
  const auto value = *rc::gen::inRange<std::uint64_t>(1, 1'000'000'000);
  const std::uint64_t rounded = round_up_nicely(static_cast<double>(value));
  RC_ASSERT(rounded >= value);
  RC_ASSERT(rounded - value <= std::max<std::uint64_t>(4, value / 10));
}

TEST(QuotaTune, APercentileIsASample) {
  const std::vector<double> samples{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(percentile_of(samples, 100), 10);
  EXPECT_EQ(percentile_of(samples, 95), 10);
  EXPECT_EQ(percentile_of(samples, 90), 9);
  EXPECT_EQ(percentile_of(samples, 50), 5);
  EXPECT_EQ(percentile_of(samples, 0.1), 1);
  EXPECT_EQ(percentile_of({}, 95), 0);
}

TEST(QuotaTune, ReplayCountsByCalendarWeekAndMonth) {
  // Friday to Monday: the week ends on Sunday, the month with November.
  const Day friday = *parse_day("2026-11-27");
  std::vector<UsageDay> rows;
  for (int i = 0; i < 5; ++i) rows.push_back(used("a", friday + std::chrono::days{i}, 10));
  const Limit3 none{std::nullopt, std::nullopt, std::nullopt};
  EXPECT_EQ(replay(rows, none).days, 0U);
  EXPECT_EQ(replay(rows, {9, std::nullopt, std::nullopt}).days, 5U);
  // Friday, Saturday and half of Sunday; then a new week.
  const auto by_week = replay(rows, {std::nullopt, 25, std::nullopt});
  EXPECT_EQ((std::tuple{by_week.users, by_week.days, by_week.commands}), (std::tuple{1U, 1U, 5U}));
  // Monday is the 30th; Tuesday begins a month.
  const auto by_month = replay(rows, {std::nullopt, std::nullopt, 25});
  EXPECT_EQ((std::tuple{by_month.days, by_month.commands}), (std::tuple{2U, 15U}));
}

TEST(QuotaTune, WhatWasRefusedByOnePeriodIsNotChargedToAnother) {
  const std::vector<UsageDay> rows{used("a", kMonday, 100), used("a", kMonday + std::chrono::days{1}, 10)};
  const auto effect = replay(rows, {10, 20, std::nullopt});
  EXPECT_EQ((std::tuple{effect.days, effect.commands}), (std::tuple{1U, 90U}));
}

TEST(QuotaTune, ProposesFromThePercentileOverUsersAndDays) {
  std::vector<UsageDay> rows;
  for (int user = 1; user <= 20; ++user) {
    for (int day = 0; day < 30; ++day) {
      rows.push_back(used("u" + std::to_string(user), kMonday + std::chrono::days{day}, static_cast<unsigned>(user)));
    }
  }
  const QuotaTuneReport report = tune_quotas(input_of(rows));
  EXPECT_EQ(report.days, 30U);
  EXPECT_FALSE(report.only_today);
  ASSERT_EQ(report.types.size(), 1U);
  const QuotaTuned& tuned = report.types[0];
  EXPECT_EQ(tuned.users, 20U);
  EXPECT_EQ((std::tuple{tuned.seen[0].samples, tuned.seen[0].at_percentile, tuned.seen[0].proposed}),
            (std::tuple{600U, 19.0, 25U}));
  // Four whole weeks; the two days before them are no week.
  EXPECT_EQ((std::tuple{tuned.seen[1].samples, tuned.seen[1].at_percentile, tuned.seen[1].most}),
            (std::tuple{80U, 133.0, 140.0}));
  EXPECT_EQ((std::tuple{tuned.seen[2].samples, tuned.seen[2].at_percentile, tuned.seen[2].scaled}),
            (std::tuple{20U, 570.0, false}));
  EXPECT_EQ(tuned.before.users, 0U);
  EXPECT_EQ(tuned.after.users, 0U);
}

TEST(QuotaTune, FewDaysAreScaledUp) {
  const QuotaTuneReport report =
      tune_quotas(input_of({used("a", kMonday, 30), used("a", kMonday + std::chrono::days{2}, 30)}));
  const QuotaTuned& tuned = report.types.at(0);
  EXPECT_FALSE(tuned.seen[0].scaled);
  EXPECT_TRUE(tuned.seen[1].scaled);
  EXPECT_DOUBLE_EQ(tuned.seen[1].at_percentile, 140);  // 60 in three days
  EXPECT_DOUBLE_EQ(tuned.seen[2].at_percentile, 600);
}

TEST(QuotaTune, ADayThatIsNotOverCountsOnlyWhereThereIsNoOther) {
  QuotaTuneInput input = input_of({used("a", kMonday, 100), used("a", kMonday + std::chrono::days{1}, 1)});
  input.now = (kMonday + std::chrono::days{1}).time_since_epoch() + 3h;
  EXPECT_EQ(tune_quotas(input).types.at(0).seen[0].samples, 1U);
  EXPECT_FALSE(tune_quotas(input).only_today);
  input.now = kMonday.time_since_epoch() + 3h;
  EXPECT_TRUE(tune_quotas(input).only_today);
  EXPECT_EQ(tune_quotas(input).types.at(0).seen[0].samples, 2U);
}

TEST(QuotaTune, UsersAreJudgedByTheirOwnPlan) {
  QuotaTuneInput input =
      input_of({used("small", kMonday, 600), used("large", kMonday, 4000), used("large", kMonday, 5, "code")});
  input.plans["large"] = "premium";
  input.limits["premium"]["shell"] = {5000, 30000, 100000};
  const QuotaTuneReport report = tune_quotas(input);
  ASSERT_EQ(report.types.size(), 3U);
  EXPECT_EQ((std::tuple{report.types[0].plan, report.types[0].before.users, report.types[0].before.commands}),
            (std::tuple{std::string("free"), std::uint64_t{1}, std::uint64_t{100}}));
  EXPECT_EQ((std::tuple{report.types[1].plan, report.types[1].type}), (std::tuple{"premium", "code"}));
  EXPECT_FALSE(report.types[1].limits);
  EXPECT_EQ(report.types[2].before.users, 0U);
}

TEST(QuotaTune, ALongerPeriodNeverAllowsLessThanAShorterOne) {
  QuotaTuneInput input = input_of({used("a", kMonday, 1), used("a", kMonday + std::chrono::days{6}, 1)});
  input.rows.push_back(used("b", kMonday - std::chrono::days{40}, 90));
  const QuotaTuned tuned = tune_quotas(input).types.at(0);
  EXPECT_LE(tuned.seen[0].proposed, tuned.seen[1].proposed);
  EXPECT_LE(tuned.seen[1].proposed, tuned.seen[2].proposed);
}

TEST(QuotaTune, NobodyIsNoProposal) {
  EXPECT_TRUE(tune_quotas(input_of({})).types.empty());
  EXPECT_TRUE(tune_quotas(input_of({used("a", kMonday, 0)})).types.empty());
}

}  // namespace
}  // namespace headgate::cli
