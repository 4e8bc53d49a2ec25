#include "quota/command_watch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/allocation_counter.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;

constexpr std::array<Standing, 3> kNoQuotas{};

std::array<Standing, 3> standing(Units day, Units week = 0, Units month = 0) {
  return {Standing{Period::kDay, day, Amount{500}}, Standing{Period::kWeek, week, Amount{3'000}},
          Standing{Period::kMonth, month, Amount{}}};
}

std::string texts(const std::vector<Alert>& alerts) {
  std::string all;
  for (const Alert& alert : alerts) all += (all.empty() ? "" : "\n") + alert.kind + ": " + alert.text;
  return all;
}

// So many commands of one user, evenly within a minute; what was told.
std::string minute_of(CommandWatch& watch, std::string_view user, int commands, Nanos at) {
  std::string told;
  for (int i = 0; i < commands; ++i)
    told += texts(watch.admitted({user, "shell", 1, at + i * (60s / commands)}, kNoQuotas));
  return told;
}

TEST(QuotaWatch, TellsOnceWhenAQuotaIsNearlyUsedUp) {
  CommandWatch watch;
  const CommandWatch::Command command{"ann", "shell", 1, 1s};
  EXPECT_EQ(texts(watch.admitted(command, standing(399))), "");
  const auto alerts = watch.admitted(command, standing(400));
  EXPECT_EQ(texts(alerts), "quota_high: \"ann\" has used 400 of 500 shell commands today (80 %)");
  EXPECT_EQ(alerts[0].user, "ann");
  EXPECT_EQ(alerts[0].type, "shell");
  EXPECT_EQ(alerts[0].value, 80);
  EXPECT_EQ(texts(watch.admitted(command, standing(401))), "");
  EXPECT_EQ(texts(watch.admitted(command, standing(500))), "");
  EXPECT_EQ(texts(watch.admitted(command, standing(1))), "") << "the next day";
  EXPECT_EQ(texts(watch.admitted(command, standing(450))),
            "quota_high: \"ann\" has used 450 of 500 shell commands today (90 %)")
      << "counters of several nodes may skip";
}

TEST(QuotaWatch, WhatWasHighBeforeItWatchedHasBeenTold) {
  CommandWatch watch;
  const CommandWatch::Command command{"ann", "shell", 1, 1s};
  watch.found(command, standing(450, 2'000));
  EXPECT_EQ(texts(watch.admitted(command, standing(451, 2'001))), "");
  EXPECT_EQ(texts(watch.admitted(command, standing(452, 2'400))),
            "quota_high: \"ann\" has used 2400 of 3000 shell commands this week (80 %)");
  EXPECT_EQ(texts(watch.admitted(command, standing(1, 2'401))), "") << "the next day";
  EXPECT_NE(texts(watch.admitted(command, standing(400, 2'800))), "");
}

TEST(QuotaWatch, TellsQuotasApart) {
  CommandWatch watch;
  EXPECT_EQ(texts(watch.admitted({"ann", "shell", 1, 1s}, standing(499, 2'999, 9'999'999))),
            "quota_high: \"ann\" has used 499 of 500 shell commands today (99 %)\n"
            "quota_high: \"ann\" has used 2999 of 3000 shell commands this week (99 %)");
  EXPECT_NE(texts(watch.admitted({"ann", "code", 1, 1s}, standing(499))), "");
  EXPECT_NE(texts(watch.admitted({"bob", "shell", 1, 1s}, standing(499))), "");
  EXPECT_EQ(texts(watch.admitted({"ann", "shell", 1, 1s}, standing(499))), "");
  std::array<Standing, 3> none{};
  none[0] = {Period::kDay, 0, Amount{0}};
  EXPECT_EQ(texts(watch.admitted({"ann", "test", 1, 1s}, none)), "") << "nothing of nothing";
}

TEST(QuotaWatch, TellsWhenOverHalfOfCommandsAreThrottled) {
  CommandWatch watch;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(texts(watch.admitted({"ann", "shell", 1, 1s}, kNoQuotas)), "");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(texts(watch.admitted({"bob", "code", 0.6, 2s}, kNoQuotas)), "") << i;
  const auto alerts = watch.admitted({"bob", "code", 0.6, 3s}, kNoQuotas);
  EXPECT_EQ(texts(alerts), "quota_throttled: 11 of 21 commands of the last 5 minutes were throttled (52 %)");
  EXPECT_EQ(alerts[0].user, "");
  EXPECT_DOUBLE_EQ(alerts[0].value, 11.0 / 21);
  EXPECT_EQ(texts(watch.admitted({"ann", "shell", 0.3, 4s}, kNoQuotas)), "") << "it cools down";
  std::string later;
  for (int i = 0; i < 20; ++i) later += texts(watch.admitted({"ann", "shell", 0.3, 15min + 3s}, kNoQuotas));
  EXPECT_EQ(later, "quota_throttled: 20 of 20 commands of the last 5 minutes were throttled (100 %)")
      << "what was before has passed";
}

TEST(QuotaWatch, FewThrottledCommandsAreNotTold) {
  CommandWatch watch;
  for (int i = 0; i < 19; ++i) EXPECT_EQ(texts(watch.admitted({"ann", "shell", 0.3, 1s}, kNoQuotas)), "");
  for (int i = 0; i < 19; ++i) EXPECT_EQ(texts(watch.admitted({"ann", "shell", 0.3, 5min + 30s}, kNoQuotas)), "");
  EXPECT_NE(texts(watch.admitted({"ann", "shell", 0.3, 5min + 30s}, kNoQuotas)), "");
}

TEST(QuotaWatch, TellsOfASpikeAboveTheUsersUsualPace) {
  CommandWatch watch;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(minute_of(watch, "ann", 10, i * 1min), "");
  EXPECT_EQ(minute_of(watch, "ann", 40, 20min), "");
  EXPECT_EQ(minute_of(watch, "ann", 60, 21min), "quota_spike: \"ann\" runs 46 commands within a minute, usually 11.4");
  EXPECT_EQ(minute_of(watch, "ann", 100, 22min), "") << "it cools down";
  EXPECT_NE(minute_of(watch, "ann", 200, 37min), "");
}

TEST(QuotaWatch, NothingIsUsualForANewUserNorAFewCommands) {
  CommandWatch watch;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(minute_of(watch, "ann", 100, i * 1min), "");
  EXPECT_EQ(minute_of(watch, "bob", 1, 0min), "");
  EXPECT_EQ(minute_of(watch, "bob", 29, 60min), "") << "many for bob, but not many";
  EXPECT_EQ(minute_of(watch, "bob", 30, 61min), "quota_spike: \"bob\" runs 30 commands within a minute, usually 0.5");
}

TEST(QuotaWatch, UsualPaceFadesWithinHours) {
  CommandWatch watch;
  for (int i = 0; i < 60; ++i) EXPECT_EQ(minute_of(watch, "ann", 100, i * 1min), "");
  EXPECT_EQ(minute_of(watch, "ann", 399, 60min), "");
  EXPECT_NE(minute_of(watch, "ann", 31, 60min + 24h * 365), "");
}

TEST(QuotaWatch, TellsOfCommandsThatRunForLong) {
  CommandWatch watch;
  Execution execution{.user = "ann", .type = "test", .duration_ms = 300'000};
  EXPECT_EQ(texts(watch.recorded(execution, 0s)), "");
  execution.duration_ms = 450'000;
  const auto alerts = watch.recorded(execution, 1s);
  EXPECT_EQ(texts(alerts), "command_long: a test command of \"ann\" ran for 7.5 minutes");
  EXPECT_EQ(alerts[0].value, 7.5);
  EXPECT_EQ(texts(watch.recorded(execution, 2s)), "");
  EXPECT_EQ(texts(watch.recorded(execution, 15min)), "");
  EXPECT_EQ(texts(watch.recorded(execution, 15min + 1s)),
            "command_long: a test command of \"ann\" ran for 7.5 minutes; 2 more ran for long since the last alert");
}

TEST(QuotaWatch, TellsOfCommandsThatFail) {
  CommandWatch watch;
  Execution execution{.user = "ann", .type = "shell", .duration_ms = 5, .exit_code = 2, .error = "secret"};
  const auto alerts = watch.recorded(execution, 1s);
  EXPECT_EQ(texts(alerts), "command_failed: a shell command of \"ann\" failed with exit code 2");
  EXPECT_EQ(alerts[0].value, 2);
  EXPECT_EQ(texts(watch.recorded(execution, 2s)), "");
  execution.user = "bob";
  EXPECT_NE(texts(watch.recorded(execution, 2s)), "") << "another's";
  execution.exit_code = 0;
  EXPECT_EQ(texts(watch.recorded(execution, 1h)), "");
  execution = {.user = "cid", .type = "shell", .duration_ms = 600'000, .exit_code = -9};
  EXPECT_EQ(texts(watch.recorded(execution, 1s)),
            "command_long: a shell command of \"cid\" ran for 10.0 minutes\n"
            "command_failed: a shell command of \"cid\" failed with exit code -9");
}

TEST(QuotaWatch, ForgetsWhoWasQuietForLongest) {
  CommandWatch watch({.max_users = 2});
  EXPECT_NE(texts(watch.admitted({"ann", "shell", 1, 1s}, standing(450))), "");
  EXPECT_NE(texts(watch.admitted({"bob", "shell", 1, 2s}, standing(450))), "");
  EXPECT_EQ(texts(watch.admitted({"ann", "shell", 1, 3s}, standing(451))), "");
  EXPECT_NE(texts(watch.admitted({"cid", "shell", 1, 4s}, standing(450))), "");
  EXPECT_EQ(texts(watch.admitted({"ann", "shell", 1, 5s}, standing(452))), "") << "not quiet for longest";
  EXPECT_NE(texts(watch.admitted({"bob", "shell", 1, 6s}, standing(451))), "") << "forgotten, so told again";
}

TEST(QuotaWatch, CommandOfAKnownUserAllocatesNothing) {
  CommandWatch watch;
  const std::string user = "a-user-whose-name-is-too-long-to-be-kept-without-memory";
  EXPECT_EQ(texts(watch.admitted({user, "shell", 1, 1s}, standing(1))), "");
  EXPECT_EQ(test::allocations_in([&] {
              EXPECT_TRUE(watch.admitted({user, "shell", 1, 2s}, standing(2)).empty());
            }),
            0U);
}

Amount left(Units value) { return {value}; }
constexpr Amount kAny{};

TEST(WarningText, IsEmptyWhileThereIsEnough) {
  EXPECT_EQ(warning_text("shell", {left(101), left(601), left(2'001)}, {left(500), left(3'000), left(10'000)}, 1), "");
  EXPECT_EQ(warning_text("shell", {kAny, kAny, kAny}, {kAny, kAny, kAny}, 1), "");
  EXPECT_EQ(warning_text("shell", {left(10), kAny, kAny}, {left(12), kAny, kAny}, 1), "");
}

TEST(WarningText, FewerThanTenOrAFifthAreFew) {
  EXPECT_EQ(warning_text("shell", {left(9), kAny, kAny}, {left(12), kAny, kAny}, 1),
            "Only 9 shell commands left today");
  EXPECT_EQ(warning_text("shell", {left(1), kAny, kAny}, {left(1), kAny, kAny}, 1), "Only 1 shell command left today");
  EXPECT_EQ(warning_text("shell", {left(100), kAny, kAny}, {left(500), kAny, kAny}, 1),
            "Only 100 shell commands left today");
}

TEST(WarningText, NamesThePeriodWithTheLeastLeft) {
  const std::array<Amount, 3> limits{left(500), left(3'000), left(10'000)};
  EXPECT_EQ(warning_text("shell", {left(9), left(900), left(900)}, limits, 1), "Only 9 shell commands left today");
  EXPECT_EQ(warning_text("shell", {left(25), left(900), left(900)}, limits, 1), "Only 25 shell commands left today");
  EXPECT_EQ(warning_text("code", {left(20), left(1), left(500)}, limits, 1), "Only 1 code command left this week");
  EXPECT_EQ(warning_text("code", {left(400), left(400), left(500)}, limits, 1),
            "Only 400 code commands left this week");
  EXPECT_EQ(warning_text("code", {left(3), left(200), left(3)}, limits, 1), "Only 3 code commands left this month")
      << "of equals the longest";
  EXPECT_EQ(warning_text("code", {left(0), left(5), left(5)}, limits, 1), "No code commands left today");
  EXPECT_EQ(warning_text("x", {left(7), kAny, kAny}, {left(15), kAny, kAny}, 1), "Only 7 x commands left today");
  EXPECT_EQ(warning_text("x", {left(0), kAny, kAny}, {left(0), kAny, kAny}, 1), "No x commands left today");
}

TEST(WarningText, TellsThePace) {
  const std::array<Amount, 3> any{};
  EXPECT_EQ(warning_text("shell", any, any, 0.6), "Throttled: the system is busy, running at 60 % speed");
  EXPECT_EQ(warning_text("shell", any, any, 0.999), "Throttled: the system is busy, running at 99 % speed");
  EXPECT_EQ(warning_text("shell", any, any, 0.001), "Throttled: the system is busy, running at 1 % speed");
  EXPECT_EQ(warning_text("shell", any, any, 0), "Throttled: the system is too busy to start commands now");
  EXPECT_EQ(warning_text("shell", any, any, std::nan("")), "");
  EXPECT_EQ(warning_text("shell", {left(9), kAny, kAny}, {left(500), kAny, kAny}, 0.3),
            "Only 9 shell commands left today. Throttled: the system is busy, running at 30 % speed");
}

}  // namespace
}  // namespace headgate::quota
