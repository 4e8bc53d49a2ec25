#include "engine/simulate.h"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/decision_lines.h"
#include "engine/tune.h"
#include "policy/reader.h"

namespace headgate::engine {
namespace {

using namespace std::chrono_literals;

policy::Document document(const std::string& yaml) {
  policy::ReadResult read = policy::read_text(yaml, "test.yaml");
  EXPECT_TRUE(read.ok()) << read.problems[0].text();
  return std::move(read.document);
}

struct Answer {
  std::uint64_t index = 0;
  Nanos at{0};
  bool allowed = false;
  std::string reason;
  Nanos waited{0};
  double remaining = 0;
};

struct Played {
  std::string error;
  SimulationReport report;
  std::vector<Answer> answers;  // as they came
  std::string lines;
};

Played play(const std::string& yaml, const std::string& trace, SimulateOptions options = {}) {
  Played played;
  DecisionLines lines([&](std::string_view text) {
    played.lines += text;
    return true;
  });
  options.on_decided = [&](const Decided& decided) {
    const CheckDecision& decision = *decided.decision;
    played.answers.push_back(
        {decided.index, decided.at, decision.allowed, decision.reason(), decision.waited, decision.remaining});
    lines.decided(decided);
  };
  Simulation simulation(std::move(options));
  if (!yaml.empty()) {
    EXPECT_TRUE(simulation.load(document(yaml)));
  }
  std::istringstream in(trace);
  TraceReader reader(in, "trace");
  for (;;) {
    const Result<bool> more = reader.next();
    EXPECT_TRUE(more) << more.error().message;
    if (!more || !*more) break;
    lines.asked(reader.step());
    if (const Result<void> stepped = simulation.step(reader.step()); !stepped) {
      played.error = stepped.error().message;
      break;
    }
  }
  simulation.finish();
  lines.finish();
  played.report = simulation.report();
  return played;
}

std::string ask(int t, const std::string& agent, const std::string& operation = "run", const std::string& more = "") {
  return "{\"t\":" + std::to_string(t) + ",\"agent\":\"" + agent + "\",\"operation\":\"" + operation + "\"" + more +
         "}\n";
}

TEST(Simulate, CountsWhoWasDeniedByWhatAndWhen) {
  const Played played = play("policies: [{id: p, limit: 2/60s}, {id: wide, key: [], limit: 100/60s}]",
                             ask(0, "A") + ask(10, "A") + ask(20, "A") + ask(30, "B") + ask(60'000, "A"));
  const SimulationReport& report = played.report;
  EXPECT_EQ(report.checks, 5U);
  EXPECT_EQ(report.allowed, 4U);
  EXPECT_EQ(report.denied, 1U);
  ASSERT_TRUE(report.first_denial);
  EXPECT_EQ(report.first_denial->at, 20ms);
  EXPECT_EQ(report.first_denial->agent, "A");
  EXPECT_EQ(report.first_denial->operation, "run");
  EXPECT_EQ(report.first_denial->policy, "p");
  EXPECT_EQ(report.first_denial->reason, "Sliding window limit 2/60s exceeded");
  ASSERT_EQ(report.policies.size(), 2U);
  EXPECT_EQ(report.policies[0].matched, 5U);
  EXPECT_EQ(report.policies[0].denied, 1U);
  EXPECT_EQ(report.policies[1].denied, 0U);
  EXPECT_EQ(report.policies[0].limits[0].peak.used, 2);
  EXPECT_EQ(report.policies[0].limits[0].peak.capacity, 2);
  EXPECT_EQ(report.policies[0].limits[0].peak.at, 10ms);
  EXPECT_EQ(report.policies[1].limits[0].peak.used, 3) << "a denied check uses nothing of the others";
  ASSERT_EQ(report.agents.size(), 2U);
  EXPECT_EQ(report.agents[0].first, "A");
  EXPECT_EQ(report.agents[0].second.checks, 4U);
  EXPECT_EQ(report.agents[0].second.denied, 1U);
}

TEST(Simulate, WithoutPoliciesTheTierLimitsApply) {
  std::string trace;
  for (int i = 0; i < 11; ++i) trace += ask(0, "A", "task_submit");
  const Played played = play("", trace);
  EXPECT_EQ(played.report.denied, 1U);
  EXPECT_EQ(played.report.first_denial->policy, "tier-heavy");
}

TEST(Simulate, AQueuedCheckIsAnsweredAtItsOwnInstant) {
  const Played played = play("policies: [{id: q, limit: 1/1s, behavior: queue, max_wait: 5s}]",
                             ask(0, "A") + ask(100, "A") + ask(200, "B") + ask(5000, "B"));
  ASSERT_EQ(played.answers.size(), 4U);
  EXPECT_EQ(played.report.queued, 1U);
  EXPECT_EQ(played.answers[1].index, 2U) << "B is answered while A waits";
  EXPECT_EQ(played.answers[2].index, 1U);
  EXPECT_EQ(played.answers[2].at, 100ms);
  EXPECT_TRUE(played.answers[2].allowed);
  EXPECT_EQ(played.answers[2].waited, 900ms);
}

TEST(Simulate, DecisionsAreWrittenInTheOrderOfTheChecks) {
  const Played played = play("policies: [{id: q, limit: 1/1s, behavior: queue, max_wait: 5s}]",
                             ask(0, "A") + ask(100, "A") + ask(200, "B"));
  std::istringstream lines(played.lines);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_TRUE(all[0].starts_with(R"({"t":0,"allowed":true,)")) << all[0];
  EXPECT_TRUE(all[1].starts_with(R"({"t":100,"allowed":true,)")) << all[1];
  EXPECT_NE(all[1].find(R"("delay_ms":900,"waited_ms":900,)"), std::string::npos) << all[1];
  EXPECT_TRUE(all[2].starts_with(R"({"t":200,"allowed":true,)")) << all[2];
}

TEST(Simulate, WaitsAtTheEndOfTheTraceComeToTheirEnd) {
  const Played played = play("policies: [{id: q, limit: 1/10s, behavior: queue, max_wait: 20s}]",
                             ask(0, "A") + ask(0, "A") + ask(0, "A") + ask(0, "A"));
  EXPECT_EQ(played.answers.size(), 4U);
  EXPECT_EQ(played.report.allowed, 3U);
  EXPECT_EQ(played.report.denied, 1U);
}

TEST(Simulate, LeasesAreSettledByTheLineThatTookThem) {
  const std::string yaml = "policies: [{id: t, unit: tokens, key: [], limit: 100/60s}]";
  const std::string hold = R"(,"hold":true,"cost":{"tokens":80})";
  const std::string small = R"(,"cost":{"tokens":50})";
  Played played =
      play(yaml, ask(0, "A", "run", hold) + ask(1, "A", "run", small) +
                     R"({"t":2,"event":"settle","lease":0,"cost":{"tokens":10}})" + "\n" + ask(3, "A", "run", small));
  ASSERT_EQ(played.answers.size(), 3U);
  EXPECT_FALSE(played.answers[1].allowed);
  EXPECT_TRUE(played.answers[2].allowed);
  EXPECT_EQ(played.answers[2].remaining, 40);
  EXPECT_NE(played.lines.find(R"("lease":"0")"), std::string::npos) << "the same in every replay";

  played = play(yaml, ask(0, "A", "run", hold) + "{\"t\":2,\"event\":\"release\",\"lease\":0}\n" +
                          "{\"t\":2,\"event\":\"release\",\"lease\":0}\n" + ask(3, "A", "run", small));
  EXPECT_EQ(played.answers.back().remaining, 50);
  EXPECT_EQ(played.report.without_effect, 1U);
}

TEST(Simulate, ALeaseThatWasNeverTakenHasNoEffectButMustBeACheck) {
  Played played =
      play("policies: [{id: p, limit: 9/60s}]", ask(0, "A") + "{\"t\":1,\"event\":\"release\",\"lease\":0}\n");
  EXPECT_EQ(played.error, "");
  EXPECT_EQ(played.report.without_effect, 1U);
  for (const char* lease : {"1", "2", "99999999999"}) {
    played = play("", ask(0, "A") +
                          "{\"t\":0,\"event\":\"exempt\",\"agent\":\"X\"}\n{\"t\":1,\"event\":\"release\",\"lease\":" +
                          lease + "}\n");
    EXPECT_EQ(played.error, std::string("lease must be the zero-based line of an earlier check, got ") + lease);
  }
}

TEST(Simulate, LeasesExpireBetweenLines) {
  const Played played = play("policies: [{id: c, limit: {strategy: concurrency, max: 1, lease_ttl: 1s}}]",
                             ask(0, "A") + ask(999, "A") + ask(1000, "A"));
  ASSERT_EQ(played.answers.size(), 3U);
  EXPECT_FALSE(played.answers[1].allowed);
  EXPECT_TRUE(played.answers[2].allowed);
}

TEST(Simulate, EventsTakeEffectOnTheVeryNextCheck) {
  const Played played =
      play("policies: [{id: p, key: [], limit: 100/60s}]",
           ask(0, "A") + R"({"t":0,"event":"emergency_on","reason":"fire"})" + "\n" + ask(0, "A") +
               "{\"t\":1,\"event\":\"emergency_off\"}\n" + ask(1, "A") + R"({"t":1,"event":"exempt","agent":"A"})" +
               "\n" + ask(1, "A") + R"({"t":1,"event":"exempt","agent":"A","remove":true})" + "\n" + ask(1, "A"));
  ASSERT_EQ(played.answers.size(), 5U);
  EXPECT_EQ(played.answers[0].remaining, 99);
  EXPECT_LT(played.answers[1].remaining, 10) << "a tenth of the limit is left";
  EXPECT_GT(played.answers[2].remaining, 50) << "the whole limit is back";
  EXPECT_EQ(played.answers[3].reason, "The agent is exempt");
  EXPECT_NE(played.answers[4].reason, "The agent is exempt");
}

TEST(Simulate, AHighLoadHalvesLimitsWhileItLasts) {
  const Played played = play("policies: [{id: p, key: [], limit: 100/60s}]",
                             "{\"t\":0,\"event\":\"load\",\"load\":0.85}\n"
                             "{\"t\":60000,\"event\":\"load\",\"load\":0.85}\n" +
                                 ask(110'000, "A"));
  ASSERT_EQ(played.answers.size(), 1U);
  EXPECT_EQ(played.answers[0].remaining, 49);
}

TEST(Simulate, TheWallClockBeginsWhereItIsToldTo) {
  SimulateOptions options;
  options.start = 1'672'531'200s;
  Played played = play("policies: [{id: p, limit: 9/60s}]", ask(500, "A"), options);
  EXPECT_NE(played.lines.find(R"("reset_time":1672531260500)"), std::string::npos) << played.lines;
  played = play("policies: [{id: p, limit: 9/60s}]",
                "{\"time\":1672531200000,\"operation\":\"x\"}\n{\"time\":1672531200500,\"operation\":\"x\"}\n");
  EXPECT_NE(played.lines.find(R"({"t":500,"time":1672531200500,)"), std::string::npos) << played.lines;
  EXPECT_NE(played.lines.find(R"("reset_time":1672531260500)"), std::string::npos) << played.lines;
}

TEST(Simulate, UnanswerableChecksAreCountedApart) {
  const Played played = play("", "{\"t\":0,\"agent\":\"A\"}\n" + ask(0, "A"));
  EXPECT_EQ(played.report.checks, 2U);
  EXPECT_EQ(played.report.invalid, 1U);
  EXPECT_EQ(played.report.allowed, 1U);
  EXPECT_TRUE(played.lines.starts_with(R"({"t":0,"error":"invalid_check","message":"operation is required)"));
}

TEST(Simulate, EscalationsAndWarningsAreCounted) {
  const Played played =
      play("policies: [{id: p, limit: 5/60s, escalation: {to: E, threshold: 2, time_window: 60s}}]",
           ask(0, "A") + ask(0, "A") + ask(0, "A") + ask(0, "A") + ask(0, "A") + ask(0, "A") + ask(0, "A"));
  EXPECT_EQ(played.report.warnings, 1U);
  EXPECT_EQ(played.report.escalations, 1U);
}

TEST(Simulate, TheSameTraceGivesTheSameAnswers) {
  std::string trace;
  for (int i = 0; i < 500; ++i) {
    trace += ask(i * 7, "agent" + std::to_string(i % 7), "run", i % 5 == 0 ? ",\"hold\":true" : "");
  }
  const std::string yaml = "policies: [{id: p, limit: 9/1s, rollout: 50%}, {id: q, limit: 3/1s, behavior: queue}]";
  EXPECT_EQ(play(yaml, trace).lines, play(yaml, trace).lines);
}

TEST(Histogram, DoublesItsBucketsInsteadOfGrowing) {
  Histogram histogram;
  for (int i = 0; i < 1000; ++i) histogram.add(i * 1ms, i % 4 != 0);
  EXPECT_EQ(histogram.width(), 4ms);
  ASSERT_EQ(histogram.buckets().size(), 250U);
  for (const Histogram::Bucket& bucket : histogram.buckets()) {
    EXPECT_EQ(bucket.allowed, 3U);
    EXPECT_EQ(bucket.denied, 1U);
  }
  histogram.add(24h * 365, true);
  EXPECT_LE(histogram.buckets().size(), Histogram::kMost);
}

class Tune : public testing::Test {
 protected:
  Result<TuneReport> tuned(const std::string& yaml, const std::string& trace, TuneOptions options = {}) {
    streams_.clear();
    return tune(
        document(yaml),
        [&]() -> Result<TraceReader> {
          streams_.push_back(std::make_unique<std::istringstream>(trace));
          return TraceReader(*streams_.back(), "trace");
        },
        options);
  }
  std::vector<std::unique_ptr<std::istringstream>> streams_;
};

TEST_F(Tune, ProposesThePercentileOfThePeaksTimesHeadroom) {
  // Agent n asks n times within a window: 1 to 20.
  std::string trace;
  for (int agent = 1; agent <= 20; ++agent) {
    for (int i = 0; i < agent; ++i) trace += ask(0, "agent" + std::to_string(agent));
  }
  trace += ask(60'000, "agent1");
  const Result<TuneReport> report = tuned("policies: [{id: p, limit: 10/60s}]", trace);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->limits.size(), 1U);
  const Tuned& tuned = report->limits[0];
  EXPECT_EQ(tuned.keys, 20U);
  EXPECT_EQ(tuned.median, 10);
  EXPECT_EQ(tuned.at_percentile, 19);
  EXPECT_EQ(tuned.most, 20);
  EXPECT_EQ(tuned.proposal, 23);
  EXPECT_EQ(tuned.proposed, "sliding_window 23/60s");
  EXPECT_EQ(tuned.before, 55U);
  EXPECT_EQ(tuned.after, 0U);
  EXPECT_EQ(report->denied_before, 55U);
  EXPECT_EQ(report->denied_after, 0U);
}

TEST_F(Tune, ATighterProposalTellsWhatItWouldHaveDenied) {
  std::string trace;
  for (int agent = 1; agent <= 10; ++agent) {
    for (int i = 0; i < agent; ++i) trace += ask(0, "agent" + std::to_string(agent));
  }
  const Result<TuneReport> report =
      tuned("policies: [{id: p, limit: 100/60s}]", trace, {.percentile = 50, .headroom = 1, .simulate = {}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->limits[0].proposal, 5);
  EXPECT_EQ(report->limits[0].before, 0U);
  EXPECT_EQ(report->limits[0].after, 1U + 2 + 3 + 4 + 5);
}

TEST_F(Tune, ABucketKeepsTheTimeInWhichItFills) {
  std::string trace;
  for (int i = 0; i < 30; ++i) trace += ask(i * 100, "A");
  const Result<TuneReport> report =
      tuned("policies: [{id: p, limit: {strategy: token_bucket, capacity: 10, refill_rate: 2}}]", trace,
            {.headroom = 1, .simulate = {}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->limits[0].at_percentile, 30) << "thirty within the five seconds that it takes to fill";
  EXPECT_EQ(report->limits[0].proposed, "token_bucket 30, refilled at 30/5s");
  EXPECT_GT(report->limits[0].before, 0U);
  EXPECT_EQ(report->limits[0].after, 0U);
}

TEST_F(Tune, WhatCannotBeTunedSaysWhy) {
  const Result<TuneReport> report = tuned(R"(
policies:
  - {id: slots, limit: {strategy: concurrency, max: 3}}
  - {id: unused, match: {operations: [never]}, limit: 5/s}
  - {id: dark, mode: "off", limit: 5/s}
)",
                                          ask(0, "A"));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->limits[0].note, "no proposals for concurrency");
  EXPECT_EQ(report->limits[1].note, "not used in this trace");
  EXPECT_EQ(report->limits[2].note, "its mode is off");
  EXPECT_EQ(tuned("policies: []", "{\"t\":0,\"event\":\"policies\",\"file\":\"x\"}\n").error().message,
            "trace:1: a trace that reloads policies cannot be tuned: which of them should be?");
}

}  // namespace
}  // namespace headgate::engine
