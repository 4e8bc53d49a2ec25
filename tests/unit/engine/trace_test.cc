#include "engine/trace.h"

#include <gtest/gtest.h>

#include <sstream>

namespace headgate::engine {
namespace {

using namespace std::chrono_literals;
using Kind = TraceStep::Kind;

// Reads all of it; the error, or how many lines counted.
std::string outcome(const std::string& text) {
  std::istringstream in(text);
  TraceReader reader(in, "trace");
  for (std::size_t count = 0;; ++count) {
    const Result<bool> more = reader.next();
    if (!more) return more.error().message;
    if (!*more) return std::to_string(count);
  }
}

// The first line, which must be fine. Lives as long as the test.
struct One {
  explicit One(const std::string& text) : in(text), reader(in, "trace") {
    const Result<bool> more = reader.next();
    EXPECT_TRUE(more && *more) << (more ? "no line" : more.error().message);
  }
  [[nodiscard]] const TraceStep& step() const { return reader.step(); }
  std::istringstream in;
  TraceReader reader;
};

TEST(Trace, JsonLinesAndCsvReadTheSame) {
  const One json(R"({"t": 1.5, "agent": "A", "operation": "op, \"x\"", "cost": {"tokens": 12}, "hold": true,)"
                 R"( "context": {"type": "UI", "size": 3}, "parent": {"agent": "P", "session": "root"}})");
  const One csv(
      "t,agent,operation,cost.tokens,hold,context.type,attr.size,parent.agent,parent.session,user\r\n"
      "1.5,A,\"op, \"\"x\"\"\",12,true,UI,3,P,root,\r\n");
  for (const One* one : {&json, &csv}) {
    const TraceStep& step = one->step();
    EXPECT_EQ(step.kind, Kind::kCheck);
    EXPECT_EQ(step.at, Nanos{1'500'000});
    EXPECT_FALSE(step.absolute);
    EXPECT_EQ(step.index, 0U);
    EXPECT_EQ(step.check.agent, "A");
    EXPECT_EQ(step.check.operation, "op, \"x\"");
    ASSERT_EQ(step.check.costs.size(), 1U);
    EXPECT_EQ(step.check.costs[0].unit, "tokens");
    EXPECT_EQ(step.check.costs[0].amount, 12);
    EXPECT_TRUE(step.check.hold);
    EXPECT_EQ(step.check.context, "UI");
    ASSERT_EQ(step.check.attributes.size(), 1U);
    EXPECT_EQ(step.check.attributes[0].name, "size");
    EXPECT_EQ(step.check.parent_agent, "P");
    EXPECT_EQ(step.check.parent_session, "root");
    EXPECT_TRUE(step.check.user.empty());
  }
}

TEST(Trace, EventsReadAsTheContractListsThem) {
  EXPECT_EQ(One(R"({"t": 5000, "event": "load", "load": 0.85})").step().load, 0.85);
  EXPECT_EQ(One(R"({"t": 0, "event": "emergency_on", "reason": "fire"})").step().reason, "fire");
  EXPECT_EQ(One(R"({"t": 0, "event": "emergency_off"})").step().kind, Kind::kEmergencyOff);
  const One numbers(
      R"({"t": 0, "event": "override", "agent": "A", "heavy": {"capacity": 20, "refill_per_minute": 5}})");
  EXPECT_EQ(numbers.step().numbers.agent, "A");
  EXPECT_EQ(numbers.step().numbers.tiers[2], (policy::TierLimit{20, 5}));
  EXPECT_FALSE(numbers.step().numbers.tiers[0]);
  EXPECT_TRUE(One(R"({"t": 0, "event": "override", "agent": "A", "remove": true})").step().remove);
  EXPECT_EQ(One(R"({"t": 0, "event": "exempt", "agent": "A"})").step().agent, "A");
  const One settle(R"({"t": 0, "event": "settle", "lease": 3, "cost": {"tokens": 7}})");
  EXPECT_EQ(settle.step().kind, Kind::kSettle);
  EXPECT_EQ(settle.step().lease, 3U);
  ASSERT_EQ(settle.step().costs.size(), 1U);
  EXPECT_EQ(settle.step().costs[0].amount, 7);
  EXPECT_EQ(One(R"({"t": 0, "event": "release", "lease": 0})").step().kind, Kind::kRelease);
  EXPECT_EQ(One(R"({"t": 0, "event": "renew", "lease": 0})").step().kind, Kind::kRenew);
  EXPECT_EQ(One(R"({"t": 0, "event": "policies", "file": "b.yaml"})").step().file, "b.yaml");
  EXPECT_EQ(One("t,event,agent,light.capacity,light.refill_per_minute\n0,override,A,5,6\n").step().numbers.tiers[0],
            (policy::TierLimit{5, 6}));
}

TEST(Trace, TimeIsEpochMillisecondsOrRfc3339) {
  EXPECT_EQ(One(R"({"time": 1672531260000, "operation": "x"})").step().at, Nanos{1'672'531'260s});
  EXPECT_EQ(One(R"({"time": "2023-01-01T00:01:00Z", "operation": "x"})").step().at, Nanos{1'672'531'260s});
  EXPECT_EQ(One("time,operation\n2023-01-01T00:01:00+00:00,x\n").step().at, Nanos{1'672'531'260s});
  EXPECT_TRUE(One("time,operation\n1672531260000,x\n").step().absolute);
}

TEST(Trace, TimesMustBeThereAndNeverGoBack) {
  EXPECT_EQ(outcome("{\"t\": 5, \"operation\": \"x\"}\n\n{\"t\": 4.5, \"operation\": \"x\"}\n"),
            "trace:3: time must not go backwards: 4.5 comes after 5");
  EXPECT_EQ(outcome(R"({"operation": "x"})"),
            "trace:1: must have t (milliseconds from the start) or time (epoch milliseconds or RFC 3339)");
  EXPECT_EQ(outcome(R"({"t": 1, "time": 1, "operation": "x"})"), "trace:1: must have t or time, not both");
  EXPECT_EQ(outcome("{\"t\": 5, \"operation\": \"x\"}\n{\"time\": 6, \"operation\": \"x\"}"),
            "trace:2: must have t as the lines before it");
  EXPECT_EQ(outcome(R"({"t": -1, "operation": "x"})"),
            "trace:1: t must be milliseconds between 0 and 4611686018427, got -1");
  EXPECT_EQ(outcome(R"({"t": "now", "operation": "x"})"),
            "trace:1: t must be milliseconds between 0 and 4611686018427, got \"now\"");
  EXPECT_EQ(outcome(R"({"time": "noon", "operation": "x"})"),
            "trace:1: time must be epoch milliseconds or an instant such as 2026-03-28T15:00:00Z, got \"noon\"");
}

TEST(Trace, BlankLinesDoNotCountAndTheLastNeedsNoBreak) {
  std::istringstream in("\n{\"t\":0,\"operation\":\"x\"}\r\n  \n{\"t\":1,\"operation\":\"y\"}");
  TraceReader reader(in, "trace");
  ASSERT_TRUE(*reader.next());
  EXPECT_EQ(reader.step().line, 2);
  ASSERT_TRUE(*reader.next());
  EXPECT_EQ(reader.step().line, 4);
  EXPECT_EQ(reader.step().index, 1U);
  EXPECT_FALSE(*reader.next());
  EXPECT_FALSE(*reader.next());
  EXPECT_EQ(outcome(""), "0");
  EXPECT_EQ(outcome("t,operation\n"), "0");
  EXPECT_EQ(outcome("\xEF\xBB\xBFt,operation\n0,x\n"), "1");
}

TEST(Trace, MistakesAreToldWithTheirLine) {
  EXPECT_EQ(outcome("{\"t\":0,\"operation\":\"x\"}\n{\"t\":0,\"agnt\":\"x\"}"),
            "trace:2: there is no field \"agnt\" in a line, did you mean \"agent\"?");
  EXPECT_EQ(outcome(R"({"t": 0, "event": "laod", "load": 1})"),
            "trace:1: there is no event \"laod\", did you mean \"load\"?");
  EXPECT_EQ(outcome(R"({"t": 0, "event": "load"})"), "trace:1: event \"load\" must have load");
  EXPECT_EQ(outcome(R"({"t": 0, "event": "load", "load": 1.5})"), "trace:1: load must be between 0 and 1, got 1.5");
  EXPECT_EQ(outcome(R"({"t": 0, "event": "exempt", "agent": "A", "user": "u"})"),
            "trace:1: event \"exempt\" has no user");
  EXPECT_EQ(outcome(R"({"t": 0, "operation": "x", "lease": 1})"), "trace:1: there is no field \"lease\" in a check");
  EXPECT_EQ(outcome(R"({"t": 0, "event": "override", "agent": "A"})"),
            "trace:1: an override must have light, normal or heavy, or \"remove\": true");
  EXPECT_EQ(outcome(R"({"t": 0, "event": "override", "agent": "A", "light": {"capacity": 5}})"),
            "trace:1: light.refill_per_minute is required");
  EXPECT_EQ(outcome(R"({"t": 0, "event": "settle", "lease": -1})"),
            "trace:1: lease must be a whole number between 0 and 9007199254740992, got -1");
  EXPECT_EQ(outcome("[{\"t\":0}]"), "trace:1: must be JSON lines, one object on each, or CSV; got a JSON list");
}

TEST(Trace, ATablesMistakesAreToldWithTheirLine) {
  EXPECT_EQ(outcome("t,operation,componentType\n"),
            "trace:1: there is no field \"componentType\" in a trace; attributes are columns that begin with "
            "\"context.\" or \"attr.\"");
  EXPECT_EQ(outcome("t,operation,operation\n"), "trace:1: column \"operation\" must be there once, is there twice");
  EXPECT_EQ(outcome("t,operation,context.a,attr.a\n"), "trace:1: column \"attr.a\" must be there once, is there twice");
  EXPECT_EQ(outcome("t,context\n"), "trace:1: column \"context\" must name a part of it, such as context.type");
  EXPECT_EQ(outcome("t,operation\n0\n"), "trace:2: must have 2 cells as the header has, got 1");
  EXPECT_EQ(outcome("t,operation\n0,\"x\n"), "trace:2: cell 2 must end with a quote on its line");
  EXPECT_EQ(outcome("t,operation\n0,\"x\"y\n"), "trace:2: cell 2 must have nothing after its quote");
  EXPECT_EQ(outcome("t,operation,peek\n0,x,yes\n"), "trace:2: peek must be true or false, got \"yes\"");
  EXPECT_EQ(outcome("t,operation,cost\n0,x,nan\n"), "trace:2: cost must be between 0 and 1000000000000, got \"nan\"");
  EXPECT_EQ(outcome("t,operation,parent.agent,parent.session\n0,x,A,\n"),
            "trace:2: parent.session must be given: whose budgets are to be debited too?");
  EXPECT_EQ(outcome("t,operation\n0,\xFF\n"), "trace:2: must be UTF-8 without control characters, byte 3 is not");
}

TEST(Trace, ALineIsBounded) {
  const std::string fine = "{\"t\":0,\"operation\":\"x\"}";
  const auto padded = [&](std::size_t size) {
    std::string line = fine;
    line.resize(size, ' ');
    return line;
  };
  const std::string refused = "trace:2: a line must be at most 1048576 bytes long";
  EXPECT_EQ(outcome(fine + "\n" + padded(kMaxLineBytes) + "\n"), "2");
  EXPECT_EQ(outcome(fine + "\n" + padded(kMaxLineBytes) + "\r\n"), "2");
  EXPECT_EQ(outcome(fine + "\n" + padded(kMaxLineBytes + 1) + "\n"), refused);
  EXPECT_EQ(outcome(fine + "\n" + padded(5 * kMaxLineBytes)), refused);
}

TEST(Trace, AFileThatCannotBeReadSaysWhy) {
  const Result<TraceReader> missing = TraceReader::open("/nowhere/trace.jsonl");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "/nowhere/trace.jsonl: cannot be read: No such file or directory");
  EXPECT_FALSE(TraceReader::open("/tmp"));
}

}  // namespace
}  // namespace headgate::engine
