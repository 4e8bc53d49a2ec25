#include "control/violations.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "unit/control/figures.h"

namespace headgate::control {
namespace {

using namespace std::chrono_literals;

Violations::Settings sized(std::size_t max_agents, bool enforced = false) {
  return {.backoff = {.enforced = enforced}, .max_agents = max_agents, .seed = 7};
}

std::vector<std::string> names(const std::vector<Offender>& offenders) {
  std::vector<std::string> all;
  for (const Offender& offender : offenders) all.push_back(offender.agent);
  return all;
}
using Names = std::vector<std::string>;

TEST(Violations, AnEmptyTableKnowsNobody) {
  const Violations table(sized(100));
  EXPECT_FALSE(table.rate_limited("a", kStart));
  EXPECT_EQ(table.blocked_for("a", kStart), 0s);
  EXPECT_TRUE(table.top(10, kStart).empty());
  EXPECT_EQ(table.totals().agents, 0U);
}

TEST(Violations, EachAgentHasItsOwnBackoff) {
  Violations table(sized(100));
  EXPECT_EQ(table.record("a", kStart).retry_after, 1s);
  EXPECT_EQ(table.record("a", kStart).retry_after, 2s);
  EXPECT_EQ(table.record("b", kStart).retry_after, 1s);
  EXPECT_TRUE(table.rate_limited("a", kStart));
  EXPECT_FALSE(table.rate_limited("c", kStart));
  EXPECT_EQ(table.blocked_for("a", kStart), 0s) << "back-off is not enforced";
}

TEST(Violations, RateLimitedClearsByItselfAfterTheQuietPeriod) {
  Violations table(sized(100));
  table.record("a", kStart);
  table.record("b", kStart + 30s);
  EXPECT_TRUE(table.rate_limited("a", kStart + 60s - 1ns));
  EXPECT_FALSE(table.rate_limited("a", kStart + 60s));
  EXPECT_TRUE(table.rate_limited("b", kStart + 60s));
  EXPECT_FALSE(table.rate_limited("b", kStart + 90s));
  EXPECT_TRUE(table.rate_limited("a", kStart - 1h)) << "a clock that goes backwards forgives nothing";
}

TEST(Violations, EnforcedBackoffCountsDown) {
  Violations table(sized(100, true));
  table.record("a", kStart);
  table.record("a", kStart);
  EXPECT_EQ(table.blocked_for("a", kStart), 2s);
  EXPECT_EQ(table.blocked_for("a", kStart + 1500ms), 500ms);
  EXPECT_EQ(table.blocked_for("a", kStart + 2s), 0s);
  EXPECT_EQ(table.blocked_for("b", kStart), 0s);
}

TEST(Violations, SustainedAbuseIsToldOnceWithTheTenthViolation) {
  Violations table(sized(100));
  for (int i = 1; i <= 50; ++i) {
    EXPECT_EQ(table.record("a", kStart + i * 10s).sustained, i == 10) << i;
  }
}

TEST(Violations, TenViolationsMustLieWithinLessThanFiveMinutes) {
  for (const bool within : {true, false}) {
    Violations table(sized(100));
    table.record("a", kStart);
    for (int i = 1; i <= 8; ++i) table.record("a", kStart + i * 33s);
    EXPECT_EQ(table.record("a", kStart + 5min - (within ? 1ns : 0ns)).sustained, within);
  }
}

TEST(Violations, SustainedAbuseIsToldAgainOnlyAfterQuietAndTenNewViolations) {
  Violations table(sized(100));
  const auto burst = [&](int count, Nanos at) {
    int told = 0;
    for (int i = 0; i < count; ++i) told += table.record("a", at).sustained ? 1 : 0;
    return told;
  };
  EXPECT_EQ(burst(30, kStart), 1);
  EXPECT_EQ(burst(30, kStart + 59s), 0) << "the same episode";
  EXPECT_EQ(burst(9, kStart + 59s + 60s), 1) << "21 of the same minutes have not been told yet";
  EXPECT_EQ(burst(9, kStart + 59s + 120s), 1);
  EXPECT_EQ(burst(1, kStart + 59s + 180s), 0);
}

TEST(Violations, BurstsBrokenByQuietStillAddUpToSustainedAbuse) {
  Violations table(sized(100));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(table.record("a", kStart).sustained);
  EXPECT_EQ(table.forget_quiet(kStart + 70s, 100), 0U) << "its violations still count for something";
  for (int i = 0; i < 5; ++i) EXPECT_EQ(table.record("a", kStart + 70s).sustained, i == 4);
}

TEST(Violations, TopListsTheActiveWithTheMostViolationsFirst) {
  Violations table(sized(100));
  const auto violate = [&](const std::string& agent, int times, Nanos at) {
    for (int i = 0; i < times; ++i) table.record(agent, at);
  };
  violate("quiet", 99, kStart - 60s);
  violate("few", 2, kStart);
  violate("many", 12, kStart);
  violate("same-but-earlier", 3, kStart - 1s);
  violate("same", 3, kStart);
  EXPECT_EQ(names(table.top(10, kStart)), (Names{"many", "same", "same-but-earlier", "few"}));
  EXPECT_EQ(names(table.top(2, kStart)), (Names{"many", "same"}));
  EXPECT_TRUE(table.top(0, kStart).empty());
  const Offender worst = table.top(1, kStart).front();
  EXPECT_EQ(worst.total, 12U);
  EXPECT_EQ(worst.consecutive, 12U);
  EXPECT_EQ(worst.recent, 10U) << "counted up to ten";
  EXPECT_EQ(worst.last, kStart);
}

TEST(Violations, ForgettingTakesOnlyTheQuietAndNoMoreThanAsked) {
  Violations table(sized(100));
  for (int i = 0; i < 10; ++i) table.record("old-" + std::to_string(i), kStart);
  table.record("new", kStart + 4min);
  EXPECT_EQ(table.forget_quiet(kStart + 5min - 1ns, 100), 0U);
  EXPECT_EQ(table.forget_quiet(kStart + 5min, 4), 4U);
  EXPECT_EQ(table.totals().agents, 7U);
  EXPECT_EQ(table.forget_quiet(kStart + 5min, 100), 6U);
  EXPECT_EQ(table.totals().agents, 1U);
  EXPECT_EQ(names(table.top(10, kStart + 4min)), Names{"new"});
  EXPECT_EQ(table.totals().evicted, 0U);
}

TEST(Violations, ForgettingReachesEveryShard) {
  Violations table(sized(100'000));
  for (int i = 0; i < 1000; ++i) table.record("agent-" + std::to_string(i), kStart);
  std::size_t forgotten = 0;
  for (int i = 0; i < 100; ++i) forgotten += table.forget_quiet(kStart + 1h, 10);
  EXPECT_EQ(forgotten, 1000U);
  EXPECT_EQ(table.totals().agents, 0U);
}

TEST(Violations, AtTheCapTheLeastRecentlyViolatingGoesAndIsCounted) {
  Violations table(sized(3));
  for (const char* agent : {"a", "b", "c"}) table.record(agent, kStart);
  table.record("a", kStart);
  table.record("d", kStart);
  EXPECT_EQ(table.totals().agents, 3U);
  EXPECT_EQ(table.totals().evicted, 1U);
  EXPECT_FALSE(table.rate_limited("b", kStart));
  for (const char* agent : {"a", "c", "d"}) EXPECT_TRUE(table.rate_limited(agent, kStart)) << agent;
}

TEST(Violations, AtTheCapAQuietAgentGoesUncounted) {
  Violations table(sized(2));
  table.record("quiet", kStart);
  table.record("active", kStart + 60s);
  table.record("new", kStart + 60s);
  EXPECT_EQ(table.totals().evicted, 0U);
  EXPECT_TRUE(table.rate_limited("active", kStart + 60s));
  EXPECT_TRUE(table.rate_limited("new", kStart + 60s));
}

TEST(Violations, ForgivingStartsAnAgentAnew) {
  Violations table(sized(10));
  table.record("a", kStart);
  table.record("a", kStart);
  EXPECT_TRUE(table.forgive("a"));
  EXPECT_FALSE(table.forgive("a"));
  EXPECT_FALSE(table.rate_limited("a", kStart));
  EXPECT_EQ(table.totals().agents, 0U);
  EXPECT_EQ(table.record("a", kStart).retry_after, 1s);
}

TEST(Violations, ANewQuietPeriodHoldsForOldViolationsToo) {
  Violations table(sized(10));
  table.record("a", kStart);
  table.configure({.steps = {7s}, .quiet = 10min, .enforced = true});
  EXPECT_TRUE(table.rate_limited("a", kStart + 10min - 1ns));
  EXPECT_EQ(table.blocked_for("a", kStart), 7s);
  table.configure({.quiet = 1s});
  EXPECT_FALSE(table.rate_limited("a", kStart + 1s));
}

TEST(Violations, LongNamesAreToldApartAndShownCutAtACharacter) {
  Violations table(sized(10));
  const std::string stem(127, 'x');
  table.record(stem + "\xC3\xA9" + "1", kStart);
  EXPECT_FALSE(table.rate_limited(stem + "\xC3\xA9" + "2", kStart));
  EXPECT_EQ(names(table.top(1, kStart)), Names{stem});
  EXPECT_FALSE(table.rate_limited("", kStart));
  table.record("", kStart);
  EXPECT_TRUE(table.rate_limited("", kStart));
}

// The least recently violating agent goes first, found by looking at all of them.
RC_GTEST_PROP(Violations, NeverHoldsMoreThanItsCapAndAnswersLikeAPlainMap, ()) {
  const auto cap = *rc::gen::inRange<std::size_t>(1, 8);
  Violations table(sized(cap));
  struct Known {
    BackoffState state;
    int order = 0;
  };
  const BackoffSettings settings;
  std::map<int, Known> plain;
  Nanos now = kStart;
  int order = 0;
  const auto moves = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 12), rc::gen::inRange(0, 40)));
  for (const auto& [agent, gap] : moves) {
    now += std::chrono::seconds{gap};
    if (!plain.contains(agent) && plain.size() == cap) {
      plain.erase(std::min_element(plain.begin(), plain.end(),
                                   [](const auto& a, const auto& b) { return a.second.order < b.second.order; }));
    }
    Known& known = plain[agent];
    known = {violated(known.state, settings, now), ++order};
    RC_ASSERT(table.record(std::to_string(agent), now).retry_after == delay(known.state, settings));
    RC_ASSERT(table.totals().agents == plain.size());
    for (int other = 0; other < 12; ++other) {
      const auto found = plain.find(other);
      const bool expected = found != plain.end() && active(found->second.state, settings, now);
      RC_ASSERT(table.rate_limited(std::to_string(other), now) == expected);
    }
  }
}

TEST(Violations, ALargeTableNeverExceedsItsCap) {
  Violations table(sized(5000));
  for (int i = 0; i < 20'000; ++i) table.record("agent-" + std::to_string(i), kStart);
  EXPECT_LE(table.totals().agents, 5000U);
  EXPECT_GE(table.totals().agents, 4000U);
  EXPECT_EQ(table.totals().agents + table.totals().evicted, 20'000U);
}

TEST(Violations, ConcurrentRecordingLosesNothing) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  Violations table(sized(10'000));
  std::atomic<int> sustained{0};
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done.load()) {
      (void)table.rate_limited("agent-3", kStart);
      (void)table.top(3, kStart);
      (void)table.forget_quiet(kStart, 10);
      table.configure({});
    }
  });
  std::vector<std::thread> writers;
  for (int t = 0; t < kThreads; ++t) {
    writers.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        if (table.record("agent-" + std::to_string(i % 10), kStart).sustained) ++sustained;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_EQ(sustained, 10) << "once for each agent";
  for (const Offender& offender : table.top(10, kStart)) EXPECT_EQ(offender.total, kThreads * kRounds / 10U);
  EXPECT_EQ(table.totals().agents, 10U);
}

TEST(Violations, ConcurrentNewcomersStayWithinTheCap) {
  Violations table(sized(100));
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t) {
    writers.emplace_back([&table, t] {
      for (int i = 0; i < 500; ++i) table.record(std::to_string(t) + "-" + std::to_string(i), kStart);
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(table.totals().agents, 100U);
  EXPECT_EQ(table.totals().evicted, 1900U);
  EXPECT_EQ(table.top(1000, kStart).size(), 100U);
}

}  // namespace
}  // namespace headgate::control
