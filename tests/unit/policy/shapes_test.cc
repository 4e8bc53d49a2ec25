#include <gmock/gmock.h>

#include "unit/policy/reading.h"

namespace headgate::policy::test {
namespace {

using namespace std::chrono_literals;
using control::LoadLevel;
using testing::ElementsAre;

constexpr const char* kS1 = R"({
  "rateLimitPolicies": {
    "builder": {
      "agentId": "B",
      "policies": [
        {"id": "widgets", "name": "Widgets", "strategy": "SLIDING_WINDOW", "operations": ["MAKE", "MEND"],
         "maxRequests": 40, "timeWindow": 30, "burstAllowance": 4,
         "conditions": {"contexts": ["SHOP"], "widgetTypes": ["*"], "properties": ["id"], "maxWidgetSize": "medium",
                        "paths": ["parts/"], "onGrid": true},
         "consequences": {"action": "WARN", "message": "slow down",
                          "escalation": {"to": "E", "threshold": 2, "timeWindow": 0}}},
        {"id": "paint", "strategy": "TOKEN_BUCKET", "operations": ["PAINT"], "capacity": 20, "refillRate": 2.5,
         "consequences": {"action": "BLOCK"}}
      ]
    }
  },
  "globalPolicies": [
    {"id": "all", "strategy": "FIXED_WINDOW", "operations": ["*"], "maxRequests": 10, "timeWindow": 60,
     "conditions": {"agents": ["*"], "systemLoad": "high", "emergency": true}}
  ],
  "enforcement": "strict"
})";

TEST(S1Shape, LoadsUnchanged) {
  const Document read = document(kS1);
  EXPECT_EQ(read.enforcement, Enforcement::kStrict);
  EXPECT_TRUE(read.has_policies);
  ASSERT_EQ(read.policies.size(), 3U);
  const Policy& widgets = read.policies[0];
  EXPECT_EQ(widgets.id, "widgets");
  EXPECT_THAT(widgets.match.agents, ElementsAre("B"));
  EXPECT_THAT(widgets.match.operations, ElementsAre("MAKE", "MEND"));
  EXPECT_THAT(widgets.match.contexts, ElementsAre("SHOP"));
  EXPECT_EQ(widgets.missing, Missing::kMatch);
  EXPECT_EQ(widgets.limits.at(0), *Limit::sliding_window({40, 30s, 4}));
  EXPECT_EQ(widgets.action, Action::kWarn);
  EXPECT_EQ(widgets.message, "slow down");
  EXPECT_EQ(widgets.escalation->time_window, 0s);
  EXPECT_EQ(widgets.key.size(), 5U);
  EXPECT_EQ(widgets.key[4].dimension, Dimension::kResource);
  const auto& rules = widgets.match.attributes;
  ASSERT_EQ(rules.size(), 5U);
  EXPECT_THAT(rules[0].names, ElementsAre("widgetType", "widgetTypes"));
  EXPECT_THAT(rules[1].names, ElementsAre("property", "properties"));
  EXPECT_THAT(rules[2].names, ElementsAre("widgetSize", "widget_size"));
  EXPECT_EQ(rules[2].kind, AttributeRule::Kind::kAtMost);
  EXPECT_THAT(rules[2].patterns, ElementsAre("low", "medium", "small", "simple"));
  EXPECT_THAT(rules[3].patterns, ElementsAre("parts/"));
  EXPECT_EQ(rules[4].kind, AttributeRule::Kind::kBoolean);
  EXPECT_EQ(read.policies[1].limits.at(0), *Limit::token_bucket({20, {5, 2s}, 0}));
  const Policy& all = read.policies[2];
  EXPECT_TRUE(all.key.empty());
  EXPECT_THAT(all.match.system_load, ElementsAre(LoadLevel::kHigh, LoadLevel::kCritical));
  EXPECT_EQ(all.match.emergency, true);
  EXPECT_EQ(all.limits.at(0).strategy(), Strategy::kFixedWindow);
}

TEST(S1Shape, ProblemsUseItsOwnNames) {
  EXPECT_EQ(problems(R"({"globalPolicies": [
  {"id": "a", "strategy": "SLIDING_WINDOW", "operations": ["*"], "maxRequests": 0, "timeWindow": 60},
  {"id": "b", "strategy": "FIXED_WINDOW", "operations": ["*"], "maxRequests": 5, "timeWindow": -1, "refillRate": 2},
  {"id": "c", "strategy": "sliding_window", "consequences": {"action": "block"}},
  {"strategy": "TOKEN_BUCKET", "capacity": 5}
], "rateLimitPolicies": {"x": {"policies": {}}}})"),
            R"(2:81: policy "a": maxRequests must be between 1 and 4503599627370496, got 0
3:96: policy "b": timeWindow must be between 1ms and 10y, got -1s
3:100: policy "b": unknown key "refillRate" in a FIXED_WINDOW policy; it takes id, name, enabled, strategy, operations, conditions, consequences, priority, maxRequests, timeWindow and burstAllowance
4:27: policy "c": strategy must be TOKEN_BUCKET, GCRA, SLIDING_WINDOW, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, LEAKY_BUCKET, CONCURRENCY or QUOTA, got "sliding_window"
4:72: policy "c": action must be BLOCK, THROTTLE, WARN or LOG, got "block"
5:3: globalPolicies 4: policy must have id
5:3: globalPolicies 4: limit must have refillRate
6:31: an agent of rateLimitPolicies must have agentId
6:44: policies must be a list, got a mapping)");
}

TEST(S1Shape, KeysThatNoStrategyTakesAreToldBesideAnUnknownStrategy) {
  EXPECT_EQ(
      problems(R"({"globalPolicies": [
  {"id": "a", "strategy": "WINDOWS", "maxRequests": 5, "timeWidow": 60}
]})"),
      R"(2:27: policy "a": strategy must be TOKEN_BUCKET, GCRA, SLIDING_WINDOW, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, LEAKY_BUCKET, CONCURRENCY or QUOTA, got "WINDOWS"
2:56: policy "a": unknown key "timeWidow" in any policy; did you mean "timeWindow"?)");
}

TEST(S1Shape, AnAgentsPolicyNamesNobodyElse) {
  const auto text = [](const std::string& agents) {
    return R"({"rateLimitPolicies": {"x": {"agentId": "A", "policies": [{"id": "p", "strategy": "SLIDING_WINDOW",
"maxRequests": 1, "timeWindow": 1, "conditions": {"agents": )" +
           agents + "}}]}}}";
  };
  EXPECT_THAT(policy(text("[\"*\"]")).match.agents, ElementsAre("A"));
  EXPECT_EQ(problems(text("[\"B\"]")),
            "2:61: policy \"p\": agents must be \"*\" or have the policy's own agent, \"A\"");
}

TEST(S3Shape, DefaultLimitsBecomePolicies) {
  const ReadResult result = read_text(R"(rate_limiting:
  enabled: true
  storage: redis
  redis_url: redis://cells:6379
  default_limits:
    user_logins: {max_requests: 10, window_seconds: 60}
    agent_runs: {max_requests: 5, window_seconds: 3600}
    calls: {max_requests: 7, window_seconds: 0.5}
)",
                                      "f");
  EXPECT_THAT(texts(result.problems), ElementsAre());
  EXPECT_THAT(texts(result.notes), ElementsAre());
  ASSERT_TRUE(result.document.store);
  EXPECT_TRUE(result.document.store->redis);
  EXPECT_EQ(result.document.store->redis_url, "redis://cells:6379");
  const auto& policies = result.document.policies;
  ASSERT_EQ(policies.size(), 3U);
  EXPECT_EQ(policies[0].id, "user_logins");
  EXPECT_THAT(policies[0].match.operations, ElementsAre("user_logins"));
  EXPECT_THAT(policies[0].key, ElementsAre(KeyPart{Dimension::kUser, {}}));
  EXPECT_EQ(policies[0].limits.at(0), *Limit::sliding_window({10, 60s, 0}));
  EXPECT_THAT(policies[1].key, ElementsAre(KeyPart{Dimension::kAgent, {}}));
  EXPECT_EQ(policies[2].key.size(), 3U);
  EXPECT_EQ(policies[2].limits.at(0).window(), 500ms);
}

TEST(S3Shape, DisabledMeansOffAndProblemsHavePlaces) {
  EXPECT_EQ(policy("rate_limiting: {enabled: false, default_limits: {a: {max_requests: 1, window_seconds: 1}}}").mode,
            Mode::kOff);
  EXPECT_EQ(problems("rate_limiting:\n  default_limits:\n    a: {max_requests: 0, window_secs: 1}\n    b c: {}\n"),
            "3:8: policy \"a\": limit must have window_seconds\n"
            "3:23: policy \"a\": max_requests must be between 1 and 4503599627370496, got 0\n"
            "3:26: policy \"a\": unknown key \"window_secs\" in default_limits.a; did you mean \"window_seconds\"?\n"
            "4:5: a name in default_limits must be 1 to 128 letters, digits, - _ . and :");
}

TEST(EnvoyShape, EachNodeWithALimitBecomesAPolicy) {
  const ReadResult result = read_text(R"(domain: shop
descriptors:
  - key: path
    value: /cart
    rate_limit: {unit: minute, requests_per_unit: 30, name: cart}
  - key: path
    value: /static*
    rate_limit: {unlimited: true}
  - key: path
    shadow_mode: true
    rate_limit: {unit: SECOND, requests_per_unit: 5}
    descriptors:
      - key: user
        rate_limit: {unit: month, requests_per_unit: 1000}
      - key: kind
        value: bot
        rate_limit: {unit: hour, requests_per_unit: 1}
)",
                                      "f");
  EXPECT_THAT(texts(result.problems), ElementsAre());
  const auto& policies = result.document.policies;
  ASSERT_EQ(policies.size(), 5U);
  EXPECT_EQ(policies[0].id, "shop.path__cart");
  EXPECT_EQ(policies[0].name, "cart");
  EXPECT_EQ(policies[0].limits.at(0), *Limit::fixed_window({30, 60s, 0}));
  EXPECT_THAT(policies[0].key,
              ElementsAre(KeyPart{Dimension::kAttribute, "domain"}, KeyPart{Dimension::kAttribute, "path"}));
  EXPECT_THAT(policies[0].match.attributes.at(0).names, ElementsAre("domain"));
  EXPECT_THAT(policies[0].match.attributes.at(0).patterns, ElementsAre("shop"));
  EXPECT_THAT(policies[0].match.attributes.at(1).patterns, ElementsAre("/cart"));
  EXPECT_TRUE(policies[1].limits.empty());
  EXPECT_THAT(policies[1].match.attributes.at(1).patterns, ElementsAre("/static*"));
  EXPECT_EQ(policies[2].id, "shop.path");
  EXPECT_EQ(policies[2].mode, Mode::kMonitor);
  EXPECT_EQ(policies[2].limits.at(0).window(), 1s);
  EXPECT_THAT(policies[2].match.attributes.at(1).patterns, ElementsAre("*", "!/cart", "!/static*"));
  EXPECT_EQ(policies[2].match.attributes.at(2).kind, AttributeRule::Kind::kAbsent);
  EXPECT_THAT(policies[2].match.attributes.at(2).names, ElementsAre("kind"));
  EXPECT_THAT(texts(result.notes),
              ElementsAre("f:9:5: its own limit also counts checks with user, which its descriptors name: only "
                          "attributes and the agent can be asked to be absent"));
  EXPECT_EQ(policies[3].id, "shop.path.user");
  EXPECT_THAT(policies[3].match.users, ElementsAre("*"));
  EXPECT_EQ(policies[3].limits.at(0).period(), Period::kMonth);
  EXPECT_EQ(policies[4].id, "shop.path.kind_bot");
  EXPECT_THAT(policies[4].match.attributes.at(1).patterns, ElementsAre("*", "!/cart", "!/static*"));
}

TEST(EnvoyShape, MoreSpecificSiblingsComeFirst) {
  const Document read = document(R"(domain: d
descriptors:
  - {key: k, value: a*, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: k, value: ab*, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: k, value: abc, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: k, value: dir/, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: agent, rate_limit: {unit: second, requests_per_unit: 3}}
)");
  ASSERT_EQ(read.policies.size(), 5U);
  EXPECT_THAT(read.policies[0].match.attributes.at(1).patterns, ElementsAre("a*", "!abc"));
  EXPECT_THAT(read.policies[1].match.attributes.at(1).patterns, ElementsAre("ab*", "!a*", "!abc"));
  EXPECT_THAT(read.policies[2].match.attributes.at(1).patterns, ElementsAre("abc"));
  EXPECT_THAT(read.policies[3].match.attributes.at(1).patterns, ElementsAre("dir/", "!dir/?*"));
  EXPECT_THAT(read.policies[4].match.agents, ElementsAre("*"));
  EXPECT_EQ(read.policies[0].id, "d.k_a_");
}

TEST(EnvoyShape, IdsThatWouldBeTheSameGetANumber) {
  const Document read = document(R"(domain: d
descriptors:
  - {key: k, value: "a+", rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: k, value: "a-", rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: k, value: "a_", rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: k, value: "a#", rate_limit: {unit: second, requests_per_unit: 1}}
)");
  std::vector<std::string> ids;
  for (const Policy& each : read.policies) ids.push_back(each.id);
  EXPECT_THAT(ids, ElementsAre("d.k_a_", "d.k_a-", "d.k_a_-2", "d.k_a_-3"));
}

TEST(EnvoyShape, WhatCannotBeMappedIsRefusedByName) {
  EXPECT_EQ(problems(R"(domain: d
descriptors:
  - key: k
    rate_limit: {unit: fortnight, requests_per_unit: 0, replaces: [{name: x}]}
    quota_mode: true
  - {key: k}
  - {value: v}
  - {key: j, value: "a*b", rate_limit: {unit: second}}
  - key: m
    descriptors: [{key: m, rate_limit: {unlimited: true}}, {key: n, rate_limit: {unlimited: true, unit: day}}]
policies: []
)"),
            R"(4:24: unit must be second, minute, hour, day, week, month or year, got "fortnight"
4:54: requests_per_unit must be between 1 and 4294967295, got 0
4:57: unknown key "replaces" in rate_limit; it takes unit, requests_per_unit, unlimited and name
5:5: unknown key "quota_mode" in descriptor; it takes key, value, rate_limit, descriptors, shadow_mode and detailed_metric
6:5: descriptor must be given once, is also given on line 3
7:5: descriptor must have key
8:21: value must not begin with "!" nor have "?", or "*" but at its end, got "a*b"
10:19: key must be given once on the way to a limit, got "m" again
10:99: unit must not be given with unlimited
11:1: unknown key "policies" in a document with domain and descriptors; it takes domain and descriptors)");
  EXPECT_EQ(problems("descriptors: []"), "1:1: a document with domain and descriptors must have domain");
}

}  // namespace
}  // namespace headgate::policy::test
