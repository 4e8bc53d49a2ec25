#include "engine/check_json.h"

#include <gtest/gtest.h>

#include "base/json_pen.h"
#include "engine/engine.h"
#include "policy/reader.h"

namespace headgate::engine {
namespace {

using namespace std::chrono_literals;

// Why that text is refused; empty: it is not.
std::string problem(std::string_view json) {
  CheckReader reader;
  const Result<void> read = reader.read(json);
  return read ? std::string() : read.error().message;
}

TEST(CheckJson, ReadsEveryFieldOfTheContract) {
  CheckReader reader;
  const Result<void> read = reader.read(R"({
    "agent": "A", "operation": "CREATE_COMPONENT", "session": "s1", "user": "42", "tenant": "t", "plan": "free",
    "channel": "http", "ip": "::1", "resource": "r",
    "context": {"type": "UI_DEVELOPMENT", "componentType": "Button", "size": 3, "fresh": true},
    "cost": {"requests": 1, "tokens": 1200, "usd": 0.03}, "peek": true, "max_wait_ms": 1500.5, "hold": true,
    "priority": -2, "parent": {"agent": "P", "session": "root"}})");
  ASSERT_TRUE(read) << read.error().message;
  const Check& check = reader.check();
  EXPECT_EQ(check.agent, "A");
  EXPECT_EQ(check.operation, "CREATE_COMPONENT");
  EXPECT_EQ(check.session, "s1");
  EXPECT_EQ(check.user, "42");
  EXPECT_EQ(check.tenant, "t");
  EXPECT_EQ(check.plan, "free");
  EXPECT_EQ(check.channel, "http");
  EXPECT_EQ(check.ip, "::1");
  EXPECT_EQ(check.resource, "r");
  EXPECT_EQ(check.context, "UI_DEVELOPMENT");
  ASSERT_EQ(check.attributes.size(), 3U);
  EXPECT_EQ(check.attributes[0].name, "componentType");
  EXPECT_EQ(check.attributes[0].value.text, "Button");
  EXPECT_EQ(check.attributes[1].value.number, 3);
  EXPECT_EQ(check.attributes[2].value.kind, Value::Kind::kBoolean);
  ASSERT_EQ(check.costs.size(), 3U);
  EXPECT_EQ(check.costs[2].unit, "usd");
  EXPECT_EQ(check.costs[2].amount, 0.03);
  EXPECT_TRUE(check.peek);
  EXPECT_TRUE(check.hold);
  EXPECT_EQ(check.max_wait, Nanos{1'500'500'000});
  EXPECT_EQ(check.priority, -2);
  EXPECT_EQ(check.parent_agent, "P");
  EXPECT_EQ(check.parent_session, "root");
}

TEST(CheckJson, ShortFormsMeanTheSame) {
  CheckReader reader;
  ASSERT_TRUE(reader.read(R"({"operation": "x", "cost": 3, "parent": "root", "contextType": "UI"})"));
  ASSERT_EQ(reader.check().costs.size(), 1U);
  EXPECT_EQ(reader.check().costs[0].unit, "requests");
  EXPECT_EQ(reader.check().costs[0].amount, 3);
  EXPECT_EQ(reader.check().parent_session, "root");
  EXPECT_EQ(reader.check().context, "UI");
}

TEST(CheckJson, NothingIsLeftOfTheCheckBefore) {
  CheckReader reader;
  ASSERT_TRUE(reader.read(R"({"operation": "x", "agent": "A", "context": {"a": 1}, "cost": 2, "hold": true})"));
  ASSERT_TRUE(reader.read(R"({"operation": "y"})"));
  EXPECT_EQ(reader.check().operation, "y");
  EXPECT_EQ(reader.check().agent, "");
  EXPECT_TRUE(reader.check().attributes.empty());
  EXPECT_TRUE(reader.check().costs.empty());
  EXPECT_FALSE(reader.check().hold);
  ASSERT_TRUE(reader.read("{}"));
  EXPECT_EQ(reader.check().operation, "") << "that an operation is needed, the engine says";
}

TEST(CheckJson, UnknownFieldsAreNamedWithASuggestion) {
  EXPECT_EQ(problem(R"({"operaton": "x"})"), "there is no field \"operaton\" in a check, did you mean \"operation\"?");
  EXPECT_EQ(problem(R"({"frob": 1})"), "there is no field \"frob\" in a check");
  EXPECT_EQ(problem(R"({"t": 1})"), "there is no field \"t\" in a check");
  EXPECT_EQ(problem(R"({"parent": {"user": "x"}})"), "parent must have agent and session, got \"user\"");
}

TEST(CheckJson, WrongTypesAreNamedWithWhatCame) {
  EXPECT_EQ(problem(R"({"agent": 5})"), "agent must be text, got 5");
  EXPECT_EQ(problem(R"({"agent": null})"), "agent must be text, got null");
  EXPECT_EQ(problem(R"({"operation": ["x"]})"), "operation must be text, got a list");
  EXPECT_EQ(problem(R"({"peek": 1})"), "peek must be true or false, got 1");
  EXPECT_EQ(problem(R"({"peek": "true"})"), "peek must be true or false, got \"true\"");
  EXPECT_EQ(problem(R"({"context": "UI"})"), "context must be an object, got \"UI\"");
  EXPECT_EQ(problem(R"({"context": {"type": 1}})"), "context.type must be text, got 1");
  EXPECT_EQ(problem(R"({"context": {"a": {"b": 1}}})"),
            "context.a must be text, a number, true or false, got an object");
  EXPECT_EQ(problem(R"({"context": {"a": [1]}})"), "context.a must be text, a number, true or false, got a list");
  EXPECT_EQ(problem(R"({"cost": "1"})"), "cost must be between 0 and 1000000000000, got \"1\"");
  EXPECT_EQ(problem(R"({"parent": 1})"), "parent must be text, got 1");
  EXPECT_EQ(problem("[]"), "a check must be a JSON object, got a list");
  EXPECT_EQ(problem("5"), "a check must be a JSON object, got a number");
}

TEST(CheckJson, AParentNeedsItsSession) {
  const std::string must = "parent.session must be given: whose budgets are to be debited too?";
  EXPECT_EQ(problem(R"({"parent": {}})"), must);
  EXPECT_EQ(problem(R"({"parent": {"agent": "A"}})"), must);
  EXPECT_EQ(problem(R"({"parent": {"agent": "A", "session": ""}})"), must);
  EXPECT_EQ(problem(R"({"parent": {"session": "root"}})"), "");
  EXPECT_EQ(problem(R"({"parent": ""})"), "") << "no parent, as an empty session is none";
}

TEST(CheckJson, NumbersOutOfRangeAreRefused) {
  EXPECT_EQ(problem(R"({"cost": {"tokens": -5}})"), "cost.tokens must be between 0 and 1000000000000, got -5");
  EXPECT_EQ(problem(R"({"cost": 1e13})"), "cost must be between 0 and 1000000000000, got 10000000000000");
  EXPECT_EQ(problem(R"({"max_wait_ms": -1})"), "max_wait_ms must be between 0 and 31536000000, got -1");
  EXPECT_EQ(problem(R"({"priority": 1.5})"), "priority must be a whole number between -1000000 and 1000000, got 1.5");
  EXPECT_EQ(problem(R"({"priority": 18446744073709551615})"),
            "priority must be a whole number between -1000000 and 1000000, got 1.8446744073709552e+19");
}

TEST(CheckJson, KeysGivenTwiceAreRefused) {
  EXPECT_EQ(problem(R"({"agent": "A", "agent": "B"})"), "agent must be given once, is given twice");
  EXPECT_EQ(problem(R"({"context": {}, "context": {}})"), "context must be given once, is given twice");
  EXPECT_EQ(problem(R"({"context": {"a": 1, "a": 1}})"), "context.a must be given once, is given twice");
  EXPECT_EQ(problem(R"({"context": {"type": "a", "type": "a"}})"), "context.type must be given once, is given twice");
  EXPECT_EQ(problem(R"({"cost": {"usd": 1, "usd": 2}})"), "cost.usd must be given once, is given twice");
  EXPECT_EQ(problem(R"({"parent": {"agent": "a", "agent": "b"}})"), "parent.agent must be given once, is given twice");
  EXPECT_EQ(problem(R"({"contextType": "a", "context": {"type": "b"}})"),
            "contextType and context.type must be the same, got \"a\" and \"b\"");
  EXPECT_EQ(problem(R"({"contextType": "a", "context": {"type": "a"}})"), "");
}

TEST(CheckJson, WhatIsNotJsonIsRefused) {
  for (const char* text : {"", "{", "{\"agent\": }", "{\"cost\": NaN}", "{\"cost\": 1e999}", "{} {}",
                           "{\"a\":\"\xFF\"}", "{\"agent\": \"\\ud800\"}"}) {
    EXPECT_TRUE(problem(text).starts_with("a check must be valid JSON: ")) << text << ": " << problem(text);
  }
}

TEST(CheckJson, SizesAreBounded) {
  EXPECT_EQ(problem(R"({"agent": ")" + std::string(kMaxCheckBytes, 'a') + "\"}"),
            "a check must be at most 1048576 bytes long, got 1048589");
  EXPECT_TRUE(problem(R"({"context": )" + std::string(100, '[') + std::string(100, ']') + "}")
                  .starts_with("a check must be valid JSON: "));
  std::string many = R"({"context": {)";
  for (int i = 0; i < 65; ++i) many += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": 1";
  EXPECT_EQ(problem(many + "}}"), "context must have at most 64 attributes besides its type, got more");
  std::string units = R"({"cost": {)";
  for (int i = 0; i < 9; ++i) units += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": 1";
  EXPECT_EQ(problem(units + "}}"), "cost must have at most 8 units, got more");
}

class DecisionJson : public testing::Test {
 protected:
  void load(const std::string& yaml) {
    policy::ReadResult read = policy::read_text(yaml, "test.yaml");
    ASSERT_TRUE(read.ok()) << read.problems[0].text();
    ASSERT_TRUE(engine_.load(std::move(read.document)));
  }
  std::string ask(std::string_view json, const DecisionFormat& format = {}) {
    const Result<void> read = reader_.read(json);
    EXPECT_TRUE(read) << read.error().message;
    std::string out;
    append_json(engine_.check(reader_.check()), out, format);
    return out;
  }

  ManualClock clock_{1'672'531'200s};
  Engine engine_{{.clock = &clock_}};
  CheckReader reader_;
};

TEST_F(DecisionJson, AnAllowedCheckReadsAsTheContractShows) {
  load("policies: [{id: ui-component-creation, limit: 50/60s}]");
  EXPECT_EQ(ask(R"({"operation": "x", "agent": "A"})"),
            R"({"allowed":true,"action":"allow","reason":"All rate limit policies passed",)"
            R"("policy_ids":["ui-component-creation"],"limit":50,"remaining":49,"reset_time":1672531260000,)"
            R"("retry_after_ms":0,"delay_ms":0,"throttle_factor":1,"warnings":[],"lease":null})");
}

TEST_F(DecisionJson, ADenialNamesItsPolicyAndWhenToAskAgain) {
  load("policies: [{id: p, limit: 1/60s, message: \"Slow \\\"down\\\"\"}, {id: m, mode: monitor, limit: 9/60s}]");
  (void)ask(R"({"operation": "x"})");
  EXPECT_EQ(ask(R"({"operation": "x"})"),
            R"({"allowed":false,"action":"block","reason":"Sliding window limit 1/60s exceeded","policy_id":"p",)"
            R"("message":"Slow \"down\"","policy_ids":["p","m"],"limit":1,"remaining":0,"reset_time":1672531260000,)"
            R"("retry_after_ms":60000,"delay_ms":0,"throttle_factor":1,"warnings":[],"lease":null})");
}

TEST_F(DecisionJson, ACostThatNeverFitsSaysSo) {
  load("policies: [{id: p, limit: 5/60s}]");
  const std::string json = ask(R"({"operation": "x", "cost": 6})");
  EXPECT_NE(json.find(R"("error":"cost_exceeds_limit")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("retry_after_ms":-1)"), std::string::npos) << json;
}

TEST_F(DecisionJson, WithoutALimitThereIsNothingToCount) {
  load("policies: [{id: m, mode: monitor, limit: 9/60s, match: {operations: [x]}}]\nexempt: [E]");
  for (const char* check : {R"({"operation": "x"})", R"({"operation": "y"})", R"({"operation": "x", "agent": "E"})"}) {
    const std::string json = ask(check);
    EXPECT_NE(json.find(R"("limit":null,"remaining":null)"), std::string::npos) << json;
  }
}

TEST_F(DecisionJson, WarningsHaveASentenceOfTheirOwn) {
  load("policies: [{id: p, limit: {strategy: sliding_window, limit: 50, window: 60s, burst_allowance: 2}}]");
  EXPECT_NE(ask(R"({"operation": "x", "cost": 40})")
                .find(R"("warnings":[{"policy_id":"p","kind":"approaching","remaining":10,"capacity":50,)"
                      R"("message":"80 % of p used, 10 of 50 left"}])"),
            std::string::npos);
  EXPECT_NE(ask(R"({"operation": "x", "cost": 11})").find(R"("kind":"burst","remaining":0,"capacity":50)"),
            std::string::npos);
}

TEST_F(DecisionJson, FractionsReadAsShortAsTheyAre) {
  load("policies: [{id: p, unit: usd, limit: 0.5/1h}]");
  EXPECT_NE(ask(R"({"operation": "x", "cost": {"usd": 0.03}})").find(R"("limit":0.5,"remaining":0.47)"),
            std::string::npos);
}

TEST_F(DecisionJson, SpansAreRoundedUpToMilliseconds) {
  load("backoff: {steps: [1ms]}\npolicies: [{id: p, limit: {strategy: token_bucket, capacity: 1, refill_rate: 3}}]");
  (void)ask(R"({"operation": "x"})");
  const std::string json = ask(R"({"operation": "x"})");
  EXPECT_NE(json.find(R"("retry_after_ms":334)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("reset_time":1672531200334)"), std::string::npos) << json;
}

TEST_F(DecisionJson, AnUnanswerableCheckIsAnError) {
  EXPECT_EQ(ask(R"({"agent": "A"})"),
            R"({"error":"invalid_check","message":"operation is required: what does the agent want to do?"})");
}

TEST_F(DecisionJson, TheTierIsToldWhereTiersMatter) {
  EXPECT_NE(ask(R"({"operation": "ping", "agent": "A"})").find(R"("tier":"light")"), std::string::npos);
}

TEST_F(DecisionJson, AHoldReadsAsItsId) {
  load("policies: [{id: p, limit: {strategy: concurrency, max: 2, lease_ttl: 30s}}]");
  EXPECT_EQ(ask(R"({"operation": "x"})").find(R"("lease":null)"), std::string::npos);
  EXPECT_NE(ask(R"({"operation": "x"})", {.lease = "7"}).find(R"("lease":"7")"), std::string::npos);
}

TEST(JsonText, ControlCharactersAndQuotesAreEscaped) {
  std::string out;
  base::append_json_text("a\"b\\c\n\x01\x7F\xC3\xA9", out);
  EXPECT_EQ(out, "\"a\\\"b\\\\c\\n\\u0001\\u007f\xC3\xA9\"");
}

}  // namespace
}  // namespace headgate::engine
