#include "observe/traffic.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "observe/agent_table.h"
#include "observe/history.h"

namespace headgate::observe {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kNow = 1'000'000s;

Answered answered(std::string_view agent, bool allowed = true) {
  Answered made;
  made.agent = agent;
  made.allowed = allowed;
  return made;
}

TEST(Traffic, CountsByProtocolAndResult) {
  Traffic traffic;
  Answered one;
  one.protocol = Protocol::kResp;
  traffic.add(one, kNow);
  one.allowed = false;
  traffic.add(one, kNow);
  traffic.add(one, kNow);
  one.error = true;
  traffic.add(one, kNow);
  one.protocol = Protocol::kGrpc;
  one.error = false;
  one.allowed = true;
  traffic.add(one, kNow);
  const auto totals = traffic.totals();
  EXPECT_EQ(totals[static_cast<std::size_t>(Protocol::kResp)].allowed, 1U);
  EXPECT_EQ(totals[static_cast<std::size_t>(Protocol::kResp)].denied, 2U);
  EXPECT_EQ(totals[static_cast<std::size_t>(Protocol::kResp)].errors, 1U);
  EXPECT_EQ(totals[static_cast<std::size_t>(Protocol::kGrpc)].allowed, 1U);
  EXPECT_EQ(totals[static_cast<std::size_t>(Protocol::kHttp)].allowed, 0U);
  EXPECT_STREQ(to_string(Protocol::kWebSocket), "websocket");
}

TEST(Traffic, MeasuresOneInSixtyFourOfChecksThatComeFast) {
  Traffic traffic;
  int measured = 0;
  for (unsigned i = 0; i < 10 * Traffic::kMeasureEvery; ++i) measured += traffic.measures(kNow + i * 1us) ? 1 : 0;
  EXPECT_EQ(measured, 10);
}

TEST(Traffic, MeasuresEveryCheckWhileThereAreFew) {
  Traffic traffic;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(traffic.measures(kNow + i * Traffic::kMeasureAfter)) << i;
  EXPECT_FALSE(traffic.measures(kNow + 9 * Traffic::kMeasureAfter)) << "another at once";
}

TEST(Traffic, PutsTimesInBucketsOfPowersOfTwo) {
  Traffic traffic;
  const auto add = [&](Nanos took) {
    Answered one;
    one.took = took;
    traffic.add(one, kNow);
  };
  for (const Nanos took : {0ns, 1ns, 128ns}) add(took);  // up to 128 ns
  for (const Nanos took : {129ns, 256ns}) add(took);     // up to 256 ns
  add(257ns);
  add(1h);
  add(-1ns);  // not measured
  const Histogram histogram = traffic.latency();
  EXPECT_EQ(histogram.counts[0], 3U);
  EXPECT_EQ(histogram.counts[1], 2U);
  EXPECT_EQ(histogram.counts[2], 1U);
  EXPECT_EQ(histogram.counts[Histogram::kBuckets - 1], 1U);
  EXPECT_EQ(histogram.total, 7U);
  EXPECT_NEAR(histogram.sum_seconds, 3600.0, 0.001);
}

TEST(Traffic, KnowsTheBusiestAgents) {
  Traffic traffic;
  for (int i = 0; i < 3; ++i) traffic.add(answered("busy"), kNow);
  traffic.add(answered("busy", false), kNow + 1s);
  traffic.add(answered("calm"), kNow);
  traffic.add(answered("also calm"), kNow);
  traffic.add(answered(""), kNow);
  Answered error = answered("broken");
  error.error = true;
  traffic.add(error, kNow);
  const auto agents = traffic.agents(2);
  ASSERT_EQ(agents.size(), 2U);
  EXPECT_EQ(agents[0].agent, "busy");
  EXPECT_EQ(agents[0].allowed, 3U);
  EXPECT_EQ(agents[0].denied, 1U);
  EXPECT_EQ(agents[0].last_seen, kNow + 1s);
  EXPECT_EQ(agents[1].agent, "also calm") << "equals by name";
  EXPECT_EQ(traffic.agents(100).size(), 3U);
  EXPECT_EQ(traffic.agent("busy").allowed, 3U);
  EXPECT_EQ(traffic.agent("nobody").allowed, 0U);
  EXPECT_EQ(traffic.agent("nobody").last_seen, 0ns);
}

TEST(Traffic, ForgetsAgentsAfterADay) {
  Traffic traffic;
  traffic.add(answered("old"), kNow);
  traffic.add(answered("new"), kNow + 1h);
  traffic.tick(kNow + 24h);
  const auto agents = traffic.agents(10);
  ASSERT_EQ(agents.size(), 1U);
  EXPECT_EQ(agents[0].agent, "new");
}

TEST(Traffic, HistoryIsWhatEachSecondBrought) {
  Traffic traffic;
  traffic.tick(kNow);
  traffic.add(answered("A"), kNow + 500ms);
  traffic.add(answered("A", false), kNow + 600ms);
  traffic.tick(kNow + 1s);
  traffic.tick(kNow + 2s);
  traffic.add(answered("A"), kNow + 2500ms);
  traffic.tick(kNow + 3s);
  const auto moments = traffic.history(kNow, 1s).moments;
  ASSERT_EQ(moments.size(), 3U);
  EXPECT_EQ(moments[0].time, kNow);
  EXPECT_EQ(moments[0].allowed, 1U);
  EXPECT_EQ(moments[0].denied, 1U);
  EXPECT_EQ(moments[1].allowed, 0U);
  EXPECT_EQ(moments[2].time, kNow + 2s);
  EXPECT_EQ(moments[2].allowed, 1U);
}

TEST(Traffic, ConcurrentThreadsLoseNothing) {
  Traffic traffic;
  constexpr int kThreads = 4;
  constexpr int kEach = 5'000;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    for (Nanos wall = kNow; !stop; wall += 1s) {
      traffic.tick(wall);
      (void)traffic.agents(10);
      (void)traffic.latency();
      (void)traffic.agent("agent 1");
    }
  });
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        Answered one = answered(i % 2 == 0 ? "agent 0" : "agent 1", i % 4 != 0);
        if (traffic.measures(kNow)) one.took = 100ns;
        traffic.add(one, kNow);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  reader.join();
  const auto http = traffic.totals()[0];
  EXPECT_EQ(http.allowed, std::uint64_t{kThreads} * kEach / 4 * 3);
  EXPECT_EQ(http.denied, std::uint64_t{kThreads} * kEach / 4);
  EXPECT_EQ(traffic.agent("agent 0").denied, http.denied);
  EXPECT_EQ(traffic.agent("agent 1").allowed, std::uint64_t{kThreads} * kEach / 2);
}

base::Hash128 hash_of(const std::string& name) { return base::hash128(name, 7); }

TEST(AgentTable, AgreesWithAnOrdinaryMap) {
  AgentTable table(1'000);
  std::map<std::string, std::uint64_t> oracle;
  std::minstd_rand chance(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = fmt::format("agent-{}", chance() % 900);
    ASSERT_TRUE(table.add(hash_of(name), name, true, kNow));
    ++oracle[name];
  }
  ASSERT_EQ(table.size(), oracle.size());
  for (const auto& [name, count] : oracle) EXPECT_EQ(table.find(hash_of(name))->allowed, count) << name;
  EXPECT_EQ(table.find(hash_of("nobody")), nullptr);
}

TEST(AgentTable, AFullTableMakesRoomOfThoseNotSeenForLongAndThoseSeenOnce) {
  AgentTable table(4);
  const auto add = [&](const std::string& name, Nanos wall) { return table.add(hash_of(name), name, true, wall); };
  const Nanos later = kNow + 24h;
  add("old", kNow);
  add("old", kNow);
  add("stays", later);
  add("stays", later);
  add("made up 1", later);
  add("made up 2", later);
  EXPECT_TRUE(add("fresh", later)) << "the old one went";
  EXPECT_EQ(table.find(hash_of("old")), nullptr);
  EXPECT_FALSE(add("fresh 2", later + 30s)) << "not so soon again";
  EXPECT_TRUE(add("stays", later + 30s)) << "those known still count";
  EXPECT_TRUE(add("fresh 2", later + 61s)) << "those seen once went";
  EXPECT_EQ(table.find(hash_of("made up 1")), nullptr);
  ASSERT_NE(table.find(hash_of("stays")), nullptr);
  EXPECT_EQ(table.find(hash_of("stays"))->allowed, 3U);
  for (std::size_t i = 0; i < table.size(); ++i) EXPECT_EQ(table.find(hash_of(table.name(i))), &table.counts(i));
}

Moment moment(std::uint64_t allowed) {
  Moment made;
  made.allowed = allowed;
  return made;
}

TEST(History, IsByTheSecondForFiveMinutesAndByTenSecondsForADay) {
  History history;
  for (Nanos at = 1s; at <= 48h; at += 1s) history.add(moment(1), kNow + at);
  const Nanos end = kNow + 48h;
  const auto fine = history.since(end - 4min, 1s);
  EXPECT_EQ(fine.size(), 240U);
  EXPECT_EQ(fine.back().time, end - 1s);
  const auto day = history.since(0s, 1s);
  EXPECT_EQ(day.size(), History::kCoarseSteps);
  EXPECT_EQ(day.back().time, end - 10s);
  for (const Moment& step : day) EXPECT_EQ(step.allowed, 10U) << step.time.count();
  const auto hours = history.since(end - 3h, 1h);
  ASSERT_GE(hours.size(), 3U);
  EXPECT_EQ(hours[1].allowed, 3600U);
  const auto seven = history.since(end - 1min, 7s);
  EXPECT_EQ(seven[1].time - seven[0].time, 7s);
  EXPECT_EQ(history.since(end + 1h, 1s).size(), 0U);
  std::uint64_t sum = 0;
  for (const Moment& step : history.since(0s, 100h)) sum += step.allowed;
  EXPECT_EQ(sum, 86'400U);
}

TEST(History, BeginsWithTheFirstSecondAndHasQuietOnes) {
  History history;
  EXPECT_TRUE(history.since(0s, 1s).empty());
  history.add(moment(5), kNow + 1s);
  history.add(moment(7), kNow + 5s);
  const auto steps = history.since(kNow - 1min, 1s);
  ASSERT_EQ(steps.size(), 5U);
  EXPECT_EQ(steps[0].allowed, 5U);
  EXPECT_EQ(steps[2].allowed, 0U);
  EXPECT_EQ(steps[4].allowed, 7U);
}

TEST(History, AClockThatGoesBackLosesNothing) {
  History history;
  history.add(moment(1), kNow + 100s);
  history.add(moment(2), kNow + 1s);
  const auto steps = history.since(kNow, 1s);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].time, kNow + 99s);
  EXPECT_EQ(steps[0].allowed, 3U);
}

}  // namespace
}  // namespace headgate::observe
