#include <gmock/gmock.h>

#include "unit/policy/reading.h"

namespace headgate::policy::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

TEST(NativePolicy, EveryKeyOfTheSampleIsRead) {
  const Policy p = policy(R"(
enforcement: strict
policies:
  - id: ui-component-creation
    name: UI component creation
    mode: monitor
    priority: -3
    match:
      agents: ["A"]
      operations: [CREATE_COMPONENT, "ui.*"]
      contexts: UI_DEVELOPMENT
      users: [u]
      tenants: [t]
      plans: [free]
      channels: [ws]
      tiers: [heavy]
      resources: ["files/"]
      sessions: ["!x"]
      ips: ["10.*"]
      attributes: {componentType: ["*"], max_component_complexity: medium}
      system_load: [high, critical]
      emergency: false
    missing: match
    key: [agent, "attr:componentType"]
    unit: tokens
    limit: {strategy: sliding_window, limit: 50, window: 60s, burst_allowance: 10}
    action: throttle
    behavior: reject
    max_wait: 2s
    warn_at: 90%
    message: Too many new components
    escalation: {to: AGENT_E, threshold: 3, time_window: 300s}
    adaptive: false
    rollout: 10%
    on_store_failure: closed
    consistency: leased
)");
  EXPECT_EQ(p.id, "ui-component-creation");
  EXPECT_EQ(p.name, "UI component creation");
  EXPECT_EQ(p.mode, Mode::kMonitor);
  EXPECT_EQ(p.priority, -3);
  EXPECT_THAT(p.match.agents, ElementsAre("A"));
  EXPECT_THAT(p.match.operations, ElementsAre("CREATE_COMPONENT", "ui.*"));
  EXPECT_THAT(p.match.contexts, ElementsAre("UI_DEVELOPMENT"));
  EXPECT_THAT(p.match.users, ElementsAre("u"));
  EXPECT_THAT(p.match.tenants, ElementsAre("t"));
  EXPECT_THAT(p.match.plans, ElementsAre("free"));
  EXPECT_THAT(p.match.channels, ElementsAre("ws"));
  EXPECT_THAT(p.match.tiers, ElementsAre("heavy"));
  EXPECT_THAT(p.match.resources, ElementsAre("files/"));
  EXPECT_THAT(p.match.sessions, ElementsAre("!x"));
  EXPECT_THAT(p.match.ips, ElementsAre("10.*"));
  ASSERT_EQ(p.match.attributes.size(), 2U);
  EXPECT_THAT(p.match.attributes[0].names, ElementsAre("componentType"));
  EXPECT_THAT(p.match.attributes[0].patterns, ElementsAre("*"));
  EXPECT_THAT(p.match.attributes[1].names, ElementsAre("component_complexity", "componentComplexity"));
  EXPECT_THAT(p.match.attributes[1].patterns, ElementsAre("low", "medium", "small", "simple"));
  EXPECT_THAT(p.match.system_load, ElementsAre(control::LoadLevel::kHigh, control::LoadLevel::kCritical));
  EXPECT_EQ(p.match.emergency, false);
  EXPECT_EQ(p.missing, Missing::kMatch);
  EXPECT_THAT(p.key, ElementsAre(KeyPart{Dimension::kAgent, {}}, KeyPart{Dimension::kAttribute, "componentType"}));
  EXPECT_EQ(p.unit, "tokens");
  ASSERT_EQ(p.limits.size(), 1U);
  EXPECT_EQ(p.limits[0], *Limit::sliding_window({50, 60s, 10}));
  EXPECT_EQ(p.action, Action::kThrottle);
  EXPECT_EQ(p.max_wait, 2s);
  EXPECT_EQ(p.warn_at, 0.9);
  EXPECT_EQ(p.message, "Too many new components");
  ASSERT_TRUE(p.escalation);
  EXPECT_EQ(p.escalation->to, "AGENT_E");
  EXPECT_EQ(p.escalation->threshold, 3U);
  EXPECT_EQ(p.escalation->time_window, 300s);
  EXPECT_FALSE(p.adaptive);
  EXPECT_EQ(p.rollout, 0.1);
  EXPECT_EQ(p.on_store_failure, OnStoreFailure::kClosed);
  EXPECT_EQ(p.consistency, Consistency::kLeased);
  EXPECT_EQ(p.place.line, 4);
}

// Others rely on this one, word for word.
TEST(NativePolicy, ThePolicyOfTheContractLoads) {
  const Policy p = policy(R"(
enforcement: graded            # or strict
policies:
  - id: ui-component-creation  # unique; letters, digits, - _ . :
    name: UI component creation
    mode: enforce              # enforce | monitor | off
    priority: 0                # lower is judged first
    match:                     # everything is optional; an absent field matches all
      agents: ["A"]
      operations: [CREATE_COMPONENT, "ui.*"]
      contexts: [UI_DEVELOPMENT, UI_SANDBOX]
      attributes: {componentType: ["*"], max_component_complexity: medium}
      # also: users, tenants, plans, channels, tiers, resources, system_load, emergency
    key: [agent, "attr:componentType"]
    unit: requests
    limit: {strategy: sliding_window, limit: 50, window: 60s, burst_allowance: 10}
    action: block              # block | throttle | warn | log
    behavior: reject           # reject | queue
    max_wait: 5s
    warn_at: 0.8
    message: Too many new components
    escalation: {to: AGENT_E, threshold: 3, time_window: 300s}
    adaptive: true
    rollout: 100%
    on_store_failure: local    # local | open | closed
    consistency: strict        # strict | leased
)");
  EXPECT_EQ(p.action, Action::kBlock);
  EXPECT_EQ(p.behavior, Behavior::kReject);
  EXPECT_EQ(p.max_wait, 5s);
}

TEST(NativePolicy, AWaitThatNothingBoundsIsNoProblem) {
  EXPECT_EQ(problems(with("max_wait: 1s")), "");
  EXPECT_EQ(problems(with("max_wait: 1s\naction: log")), "");
}

TEST(NativePolicy, ReadsWhatACheckIsChargedAtLeastAndWhetherHoldsAreGivenBack) {
  const Policy none = policy(with(""));
  EXPECT_EQ(none.least_cost, 0);
  EXPECT_TRUE(none.holds);
  const Policy both = policy(with("least_cost: 5\nholds: false", "limit: 10/s"));
  EXPECT_EQ(both.least_cost, 5);
  EXPECT_FALSE(both.holds);
  EXPECT_EQ(policy(with("unit: usd\nleast_cost: 0.25", "limit: 10/s")).least_cost, 250'000);
  const Policy json = policy(R"({"policies": [{"id": "p", "limit": "10/s", "least_cost": 2, "holds": false}]})");
  EXPECT_EQ(json.least_cost, 2);
  EXPECT_FALSE(json.holds);
  const Policy slots = policy(with("unit: usd\nleast_cost: 2", "limit: {strategy: concurrency, max: 4}"));
  EXPECT_EQ(slots.least_cost, 2) << "slots are counted one by one";
}

TEST(NativePolicy, RefusesALeastCostThatNoLimitCouldAdmit) {
  const std::string where = "4:17: policy \"p\": ";
  EXPECT_EQ(problems(with("least_cost: 0")),
            where + "least_cost must be above 0 and at most 1, the most that its limits admit at once, got 0");
  EXPECT_EQ(problems(with("least_cost: -1")),
            where + "least_cost must be above 0 and at most 1, the most that its limits admit at once, got -1");
  EXPECT_EQ(problems(with("least_cost: 6", "limit: [5/s, 100/1h]")),
            where + "least_cost must be above 0 and at most 5, the most that its limits admit at once, got 6");
  EXPECT_EQ(problems(with("least_cost: 0.5")), where + "least_cost must be a whole number, got 0.5");
  EXPECT_EQ(problems(with("least_cost: much")), where + "least_cost must be a number, got \"much\"");
  EXPECT_EQ(problems(with("least_cost: [1]")), where + "least_cost must be a number, got a list");
  EXPECT_EQ(problems(with("least_cost: 0.0000001\nunit: usd")),
            where + "least_cost must have at most 6 decimals, got 0.0000001");
  EXPECT_EQ(problems(with("least_cost: 2.5\nunit: usd", "limit: 2.25/s")),
            where + "least_cost must be above 0 and at most 2.25, the most that its limits admit at once, got 2.5");
  EXPECT_EQ(problems(with("least_cost: 6", "limit: unlimited")), "");
}

TEST(NativePolicy, RefusesToKeepSlotsForGood) {
  EXPECT_EQ(
      problems(with("holds: false", "limit: {strategy: concurrency, max: 4}")),
      "4:12: policy \"p\": holds: false must go with a limit other than concurrency, whose slots are always given "
      "back");
  EXPECT_EQ(problems(with("holds: false", "limit: [{strategy: concurrency, max: 4}, 5/s]")), "");
  EXPECT_EQ(problems(with("holds: never")), "4:12: policy \"p\": holds must be true or false, got \"never\"");
}

TEST(NativePolicy, TiersThatThereAreNotAreRefused) {
  EXPECT_EQ(problems(with("match: {tiers: [huge]}")),
            "4:21: policy \"p\": each of tiers must match light, normal or heavy, got \"huge\"");
  EXPECT_EQ(
      problems(with("match: {tiers: [light, haevy]}")),
      "4:28: policy \"p\": each of tiers must match light, normal or heavy, got \"haevy\", did you mean \"heavy\"?");
  EXPECT_EQ(problems(with("match: {tiers: \"!huge\"}")),
            "4:20: policy \"p\": each of tiers must match light, normal or heavy, got \"!huge\"");
  EXPECT_EQ(problems(with("match: {tiers: [\"*\", \"!heavy\", \"l*\", \"?ormal\"]}")), "");
  EXPECT_EQ(problems(with("match: {channels: [pigeon]}")), "") << "channels are anybody's words";
}

TEST(NativePolicy, WhatIsLeftOutHasItsDefault) {
  const Policy p = policy(with(""));
  EXPECT_EQ(p.mode, Mode::kEnforce);
  EXPECT_EQ(p.missing, Missing::kSkip);
  EXPECT_THAT(p.key, ElementsAre(KeyPart{Dimension::kAgent, {}}));
  EXPECT_EQ(p.unit, "requests");
  EXPECT_EQ(p.action, Action::kBlock);
  EXPECT_EQ(p.warn_at, 0.8);
  EXPECT_EQ(p.rollout, 1.0);
  EXPECT_TRUE(p.adaptive);
}

TEST(NativePolicy, AllProblemsAreToldAtOnceInOrder) {
  EXPECT_EQ(problems(R"(enforcement: strickt
policies:
  - id: ui-search
    limit: {strategy: sliding_window, limit: 0, windw: 60s}
    acton: block
  - name: no id
    warn_at: 1.5
    limit: {strategy: sliding_window, limit: 5, window: 0s}
tier: {}
)"),
            R"(1:14: enforcement must be graded or strict, got "strickt", did you mean "strict"?
4:12: policy "ui-search": limit must have window
4:46: policy "ui-search": limit must be between 1 and 4503599627370496, got 0
4:49: policy "ui-search": unknown key "windw" in a sliding_window limit; did you mean "window"?
5:5: policy "ui-search": unknown key "acton" in policy; did you mean "action"?
6:5: policy 2: policy must have id
7:14: policy 2: warn_at must be above 0 and at most 1, got 1.5
8:57: policy 2: window must be between 1ms and 10y, got 0s
9:1: unknown key "tier" in the document; did you mean "tiers"?)");
}

TEST(NativePolicy, JsonHasTheSamePlaces) {
  EXPECT_EQ(problems(R"({
	"policies": [
		{"id": "p", "name": "é", "limit": {"strategy": "sliding_window", "limit": 5, "window": "0s"}},
		{"id": "q", "limit": "5/s", "mode": "no"}
	]
})"),
            "3:90: policy \"p\": window must be between 1ms and 10y, got 0s\n"
            "4:39: policy \"q\": mode must be enforce, monitor or off, got \"no\"");
}

TEST(NativePolicy, JsonEscapesOfCharactersBeyondTheFirstPlaneAreRead) {
  EXPECT_EQ(
      policy(R"({"policies": [{"id": "p", "message": "\ud83d\ude00 \\ud83d \u00e9 \/", "limit": "5/s"}]})").message,
      "\xF0\x9F\x98\x80 \\ud83d \xC3\xA9 /");
}

TEST(NativePolicy, IdsAreUniqueAndOfFewCharacters) {
  EXPECT_EQ(problems("policies:\n- {id: a, limit: 1/s}\n- {id: a, limit: 1/s}\n"),
            "3:3: policy \"a\": id must be unique, is also given at f:2:3");
  EXPECT_EQ(problems("policies: [{id: a b, limit: 1/s}]"),
            "1:17: policy 1: id must be 1 to 128 letters, digits, - _ . and :, got \"a b\"");
  EXPECT_EQ(problems("policies: [{id: \"a-B_1.:\", limit: 1/s}]"), "");
  EXPECT_EQ(problems("policies: [{id: " + std::string(129, 'a') + ", limit: 1/s}]").substr(0, 40),
            "1:17: policy 1: id must be 1 to 128 lett");
}

TEST(NativePolicy, ContradictionsAreRefused) {
  EXPECT_EQ(problems(with("", "")), "2:5: policy \"p\": policy must have limit, variants or repeat");
  EXPECT_EQ(problems(with("repeat: {fingerprint: f, max: 3, window: 60s}")),
            "2:5: policy \"p\": policy must have only one of limit, variants and repeat");
  EXPECT_EQ(problems(with("variants: [{name: a, limit: 1/s}]")),
            "2:5: policy \"p\": policy must have only one of limit, variants and repeat");
  EXPECT_EQ(problems(with("behavior: queue\naction: warn")),
            "4:15: policy \"p\": behavior: queue must go with action: block, got action: warn");
  EXPECT_EQ(problems(with("description: x")).substr(0, 61),
            "4:5: policy \"p\": unknown key \"description\" in policy; it take");
}

TEST(NativePolicy, NumbersHaveTheirRanges) {
  EXPECT_EQ(problems(with("warn_at: 0")), "4:14: policy \"p\": warn_at must be above 0 and at most 1, got 0");
  EXPECT_EQ(problems(with("rollout: 10")), "4:14: policy \"p\": rollout must be between 0 and 1, got 10");
  EXPECT_EQ(problems(with("rollout: 101%")), "4:14: policy \"p\": rollout must be between 0 and 1, got 101%");
  EXPECT_EQ(problems(with("rollout: some")),
            "4:14: policy \"p\": rollout must be a number such as 0.1 or 10%, got \"some\"");
  EXPECT_EQ(problems(with("priority: 1.5")), "4:15: policy \"p\": priority must be a whole number, got 1.5");
  EXPECT_EQ(problems(with("adaptive: maybe")), "4:15: policy \"p\": adaptive must be true or false, got \"maybe\"");
  EXPECT_EQ(problems(with("escalation: {to: X, threshold: 0}")),
            "4:36: policy \"p\": threshold must be between 1 and 1000000, got 0");
  EXPECT_EQ(problems(with("escalation: {threshold: 2}")), "4:17: policy \"p\": escalation must have to");
  EXPECT_EQ(problems(with("message: \"a\\0b\"")), "4:14: policy \"p\": message must not have control characters");
  EXPECT_EQ(problems(with("message: [a]")), "4:14: policy \"p\": message must be text, got a list");
}

TEST(NativePolicy, KeysAreListsOfDimensions) {
  EXPECT_TRUE(policy(with("key: []")).key.empty());
  EXPECT_TRUE(policy(with("key: global")).key.empty());
  EXPECT_THAT(policy(with("key: user")).key, ElementsAre(KeyPart{Dimension::kUser, {}}));
  EXPECT_EQ(policy(with("key: [agent, session, user, tenant, plan, operation, tier, channel, context, resource, ip]"))
                .key.size(),
            11U);
  EXPECT_EQ(problems(with("key: [agent, agent]")),
            "4:18: policy \"p\": each part of key must be given once, got \"agent\" again");
  EXPECT_EQ(
      problems(with("key: [agnt, \"attr:\"]")),
      "4:11: policy \"p\": each part of key must be agent, session, user, tenant, plan, operation, tier, channel, "
      "context, resource, ip or attr:<name>, got \"agnt\", did you mean \"agent\"?\n"
      "4:17: policy \"p\": each part of key must be agent, session, user, tenant, plan, operation, tier, channel, "
      "context, resource, ip or attr:<name>, got \"attr:\"");
}

TEST(NativePolicy, RepeatBecomesAWindowOverItsFingerprint) {
  const Policy p = policy(with("repeat: {fingerprint: [tool, args], max: 3, window: 60s}", ""));
  ASSERT_TRUE(p.repeat);
  EXPECT_THAT(p.repeat->fingerprint, ElementsAre("tool", "args"));
  EXPECT_THAT(p.key, ElementsAre(KeyPart{Dimension::kAgent, {}}, KeyPart{Dimension::kSession, {}},
                                 KeyPart{Dimension::kOperation, {}}, KeyPart{Dimension::kAttribute, "tool"},
                                 KeyPart{Dimension::kAttribute, "args"}));
  ASSERT_EQ(p.limits.size(), 1U);
  EXPECT_EQ(p.limits[0], *Limit::sliding_window({3, 60s, 0}));
  ASSERT_EQ(p.match.attributes.size(), 2U);
  EXPECT_THAT(p.match.attributes[1].patterns, ElementsAre("*"));
  EXPECT_EQ(problems(with("repeat: {fingerprint: f, max: 0, window: 60s}\nkey: agent", "")),
            "3:35: policy \"p\": max must be between 1 and 4503599627370496, got 0\n"
            "4:5: policy \"p\": key must not be given with repeat, which sets it");
}

TEST(NativePolicy, VariantsHaveNamesWeightsAndLimits) {
  const Policy p = policy(with("variants: [{name: a, limit: 1/s}, {name: b, weight: 3, limit: [2/s, 5/min]}]", ""));
  ASSERT_EQ(p.variants.size(), 2U);
  EXPECT_EQ(p.variants[0].weight, 1U);
  EXPECT_EQ(p.variants[1].name, "b");
  EXPECT_EQ(p.variants[1].weight, 3U);
  EXPECT_EQ(p.variants[1].limits.size(), 2U);
  EXPECT_EQ(problems(with("variants: [{name: a, limit: 1/s}, {name: a, weight: 0}]", "")),
            "3:39: policy \"p\": variant must have limit\n"
            "3:46: policy \"p\": each variant must have a name of its own, got \"a\" again\n"
            "3:57: policy \"p\": weight must be between 1 and 1000000, got 0");
}

TEST(NativePolicy, PoliciesMustBeAListOfMappings) {
  EXPECT_EQ(problems("policies: 5"), "1:11: policies must be a list ([] where there are none), got 5");
  EXPECT_THAT(problems("policies:\n"), ::testing::HasSubstr("policies must be a list ([] where there are none)"));
  EXPECT_THAT(problems("policies: ~"), ::testing::HasSubstr("policies must be a list ([] where there are none)"));
  EXPECT_EQ(problems("policies: [5]"), "1:12: policy 1: policy must be a mapping, got 5");
  EXPECT_EQ(problems("[]"), "1:1: the document must be a mapping, got a list");
  EXPECT_TRUE(document("policies: []").has_policies);
}

}  // namespace
}  // namespace headgate::policy::test
