// Which policies a check meets: every kind of condition, and an index that must never lose one.
#include "policy/rules.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>

#include "support/engines.h"
#include "unit/policy/reading.h"

namespace headgate::policy {
namespace {

using control::LoadLevel;
using headgate::test::Q;

constexpr std::uint64_t kSeed = 42;
const base::Hasher kSeededHasher(kSeed);

std::vector<std::string> met(const Rules& rules, const Check& check, const Surroundings& surroundings = {}) {
  Fields fields(check, kSeededHasher);
  fields.set_tier(rules.classify(check.operation).tier);
  Matched matched;
  rules.match(fields, surroundings, matched);
  std::vector<std::string> ids;
  for (const std::uint32_t index : matched.policies()) ids.push_back(rules.policies()[index].id);
  return ids;
}

// Whether the only policy of a document, with this for its match, meets the check.
struct Matching {
  Rules rules;
  explicit Matching(const std::string& match, const std::string& more = "")
      : rules(test::document("policies: [{id: p, limit: 1/s, match: {" + match + "}" + more + "}]"), kSeed) {}
  bool operator()(const Q& q, const Surroundings& surroundings = {}) const {
    const bool meets = !met(rules, q.get(), surroundings).empty();
    Fields fields(q.get(), kSeededHasher);
    fields.set_tier(rules.classify(q.get().operation).tier);
    EXPECT_EQ(rules.why_not(0, fields, surroundings).empty(), meets) << rules.why_not(0, fields, surroundings);
    return meets;
  }
  [[nodiscard]] std::string why_not(const Q& q, const Surroundings& surroundings = {}) const {
    Fields fields(q.get(), kSeededHasher);
    fields.set_tier(rules.classify(q.get().operation).tier);
    return rules.why_not(0, fields, surroundings);
  }
};

TEST(Rules, EveryDimensionIsMatchedOnItsOwnField) {
  struct Row {
    const char* list;
    Q& (Q::*set)(std::string_view);
  };
  const Row rows[] = {{"agents", &Q::agent},     {"sessions", &Q::session},   {"users", &Q::user},
                      {"tenants", &Q::tenant},   {"plans", &Q::plan},         {"channels", &Q::channel},
                      {"contexts", &Q::context}, {"resources", &Q::resource}, {"ips", &Q::ip}};
  for (const Row& row : rows) {
    const Matching exact(std::string(row.list) + ": [red, blue]");
    const Matching glob(std::string(row.list) + ": ['re*', '!rex']");
    const Matching prefix(std::string(row.list) + ": [re/]");
    for (const Row& other : rows) {
      const bool own = other.list == row.list;
      Q q("run");
      (q.*other.set)("red");
      EXPECT_EQ(exact(q), own) << row.list << " and " << other.list;
      EXPECT_EQ(glob(q), own) << row.list << " and " << other.list;
      Q path("run");
      (path.*other.set)("re/d");
      EXPECT_EQ(prefix(path), own) << row.list << " and " << other.list;
    }
    Q excepted("run");
    (excepted.*row.set)("rex");
    EXPECT_FALSE(glob(excepted)) << row.list;
    Q second("run");
    (second.*row.set)("blue");
    EXPECT_TRUE(exact(second)) << row.list;
    EXPECT_FALSE(exact(Q("run"))) << row.list << ": a check without the field is skipped";
  }
}

TEST(Rules, OperationsMatchExactlyByGlobByPrefixAndWithExceptions) {
  const Matching matching("operations: [CREATE_COMPONENT, 'ui.*', 'tokens/', '!ui.secret']");
  EXPECT_TRUE(matching(Q("CREATE_COMPONENT")));
  EXPECT_TRUE(matching(Q("ui.button")));
  EXPECT_TRUE(matching(Q("tokens/a")));
  EXPECT_FALSE(matching(Q("ui.secret")));
  EXPECT_FALSE(matching(Q("create_component")));
  EXPECT_TRUE(Matching("operations: ['*']")(Q("anything")));
  EXPECT_TRUE(Matching("operations: ['!a']")(Q("b")));
  EXPECT_FALSE(Matching("operations: ['!a']")(Q("a")));
}

TEST(Rules, TiersAreThoseOfTheOperation) {
  const Matching heavy("tiers: [heavy]");
  EXPECT_TRUE(heavy(Q("deploy")));
  EXPECT_TRUE(heavy(Q("create_channel")));
  EXPECT_FALSE(heavy(Q("ping")));
  EXPECT_FALSE(heavy(Q("whatever")));
  EXPECT_TRUE(Matching("tiers: [normal]")(Q("whatever"))) << "an unknown operation is normal";
}

TEST(Rules, WhatIsOnTwoTiersListsIsOfTheHeavier) {
  const Rules rules(test::document("tiers: {operations: {light: ['get_*'], heavy: [get_all]}}"), kSeed);
  EXPECT_EQ(rules.classify("get_all").tier, Tier::kHeavy);
  EXPECT_EQ(rules.classify("get_one").tier, Tier::kLight);
  EXPECT_TRUE(rules.classify("get_one").known);
  EXPECT_FALSE(rules.classify("other").known);
}

TEST(Rules, AMissingFieldSkipsThePolicyUnlessItSaysMatch) {
  EXPECT_FALSE(Matching("contexts: [UI]")(Q("run")));
  EXPECT_TRUE(Matching("contexts: [UI]", ", missing: match")(Q("run")));
  EXPECT_FALSE(Matching("contexts: [UI]", ", missing: match")(Q("run").context("DB")));
  EXPECT_FALSE(Matching("contexts: ['*']")(Q("run"))) << "a star means: there is one";
  EXPECT_TRUE(Matching("contexts: ['*']", ", missing: match")(Q("run")));
  EXPECT_TRUE(Matching("contexts: ['UI*']", ", missing: match")(Q("run"))) << "filed under its prefix";
  EXPECT_TRUE(Matching("resources: [tokens/], users: [u]", ", missing: match")(Q("run")));
}

TEST(Rules, NobodyIsTakenForANamedAgentByNotSayingWhoTheyAre) {
  EXPECT_FALSE(Matching("agents: [A]")(Q("run")));
  EXPECT_FALSE(Matching("agents: [A]", ", missing: match")(Q("run")));
  EXPECT_FALSE(Matching("agents: ['A*']", ", missing: match")(Q("run")));
  EXPECT_FALSE(Matching("agents: ['*']")(Q("run")));
  EXPECT_TRUE(Matching("agents: ['*']", ", missing: match")(Q("run")));
  EXPECT_TRUE(Matching("operations: [run]")(Q("run"))) << "where agents do not matter, nobody is as good as anybody";
}

TEST(Rules, AttributesMatchAnyOfAList) {
  const Matching matching("attributes: {kind: [Button, 'Card*', 3, true, '!CardX']}");
  EXPECT_TRUE(matching(Q("run").attr("kind", "Button")));
  EXPECT_TRUE(matching(Q("run").attr("kind", "CardList")));
  EXPECT_FALSE(matching(Q("run").attr("kind", "CardX")));
  EXPECT_TRUE(matching(Q("run").attr("kind", 3)));
  EXPECT_TRUE(matching(Q("run").attr("kind", 3.0)));
  EXPECT_TRUE(matching(Q("run").attr("kind", "3")));
  EXPECT_TRUE(matching(Q("run").attr("kind", true)));
  EXPECT_FALSE(matching(Q("run").attr("kind", false)));
  EXPECT_FALSE(matching(Q("run").attr("kind", "Link")));
  EXPECT_FALSE(matching(Q("run").attr("other", "Button")));
  EXPECT_FALSE(matching(Q("run")));
}

TEST(Rules, ALargeNumberInAListIsThatNumberHoweverItComes) {
  const Matching matching("attributes: {size: [100000]}");
  EXPECT_TRUE(matching(Q("run").attr("size", "100000")));
  EXPECT_TRUE(matching(Q("run").attr("size", 100000)));
}

TEST(Rules, AttributesMatchARangeWithBothEndsIn) {
  const Matching matching("attributes: {size: {min: 10, max: 20.5}}");
  EXPECT_TRUE(matching(Q("run").attr("size", 10)));
  EXPECT_TRUE(matching(Q("run").attr("size", 20.5)));
  EXPECT_TRUE(matching(Q("run").attr("size", "15")));
  EXPECT_FALSE(matching(Q("run").attr("size", 9.999)));
  EXPECT_FALSE(matching(Q("run").attr("size", 21)));
  EXPECT_FALSE(matching(Q("run").attr("size", "fifteen")));
  EXPECT_FALSE(matching(Q("run").attr("size", true)));
  EXPECT_FALSE(matching(Q("run")));
  EXPECT_TRUE(Matching("attributes: {max_size: 20}")(Q("run").attr("size", -5)));
  EXPECT_FALSE(Matching("attributes: {min_size: 20}")(Q("run").attr("size", -5)));
}

TEST(Rules, LevelsAdmitWhatIsAtMostThatHigh) {
  const Matching matching("attributes: {max_component_complexity: medium}");
  EXPECT_TRUE(matching(Q("run").attr("component_complexity", "low")));
  EXPECT_TRUE(matching(Q("run").attr("componentComplexity", "medium")));
  EXPECT_FALSE(matching(Q("run").attr("component_complexity", "high")));
  EXPECT_FALSE(matching(Q("run").attr("component_complexity", "enormous")));
  EXPECT_FALSE(matching(Q("run")));
  EXPECT_FALSE(matching(Q("run").attr("componentComplexity", "low").attr("component_complexity", "high")))
      << "of two spellings the first that the policy knows counts";
}

TEST(Rules, BooleansMatchHoweverTheyAreSpelled) {
  const Matching matching("attributes: {draft: true}");
  EXPECT_TRUE(matching(Q("run").attr("draft", true)));
  EXPECT_TRUE(matching(Q("run").attr("draft", "true")));
  EXPECT_FALSE(matching(Q("run").attr("draft", false)));
  EXPECT_FALSE(matching(Q("run").attr("draft", 1)));
  EXPECT_FALSE(matching(Q("run")));
}

TEST(Rules, NullWantsAnAttributeToBeAbsentWhateverMissingSays) {
  for (const char* missing : {", missing: skip", ", missing: match"}) {
    const Matching matching("attributes: {draft: null}", missing);
    EXPECT_TRUE(matching(Q("run"))) << missing;
    EXPECT_FALSE(matching(Q("run").attr("draft", false))) << missing;
  }
}

TEST(Rules, MissingAttributesMatchOnlyWhereThePolicySaysSo) {
  for (const char* condition : {"{x: [a]}", "{x: {min: 1}}", "{max_x: medium}", "{x: true}"}) {
    EXPECT_FALSE(Matching(std::string("attributes: ") + condition)(Q("run"))) << condition;
    EXPECT_TRUE(Matching(std::string("attributes: ") + condition, ", missing: match")(Q("run"))) << condition;
    EXPECT_FALSE(Matching(std::string("attributes: ") + condition, ", missing: match")(Q("run").attr("x", "zzz")))
        << condition;
  }
}

TEST(Rules, LoadAndEmergencyAreThoseOfTheController) {
  const Matching load("system_load: [high, critical]");
  EXPECT_FALSE(load(Q("run"), {LoadLevel::kLow, false}));
  EXPECT_FALSE(load(Q("run"), {LoadLevel::kNormal, false}));
  EXPECT_TRUE(load(Q("run"), {LoadLevel::kHigh, false}));
  EXPECT_TRUE(load(Q("run"), {LoadLevel::kCritical, true}));
  const Matching on("emergency: true");
  EXPECT_FALSE(on(Q("run"), {LoadLevel::kHigh, false}));
  EXPECT_TRUE(on(Q("run"), {LoadLevel::kLow, true}));
  const Matching off("emergency: false");
  EXPECT_TRUE(off(Q("run"), {LoadLevel::kHigh, false}));
  EXPECT_FALSE(off(Q("run"), {LoadLevel::kHigh, true}));
}

TEST(Rules, UnidentifiedMeansWithoutAnAgent) {
  const Rules rules(Document{}, kSeed);
  EXPECT_EQ(met(rules, Q("ping").get()), (std::vector<std::string>{"unidentified"}));
  EXPECT_EQ(met(rules, Q("register").get()), (std::vector<std::string>{"registration"}));
  EXPECT_EQ(met(rules, Q("ping").agent("A").get()), (std::vector<std::string>{"tier-light"}));
  EXPECT_EQ(met(rules, Q("register").agent("A").get()), (std::vector<std::string>{"tier-heavy"}));
}

TEST(Rules, TierLimitsStepBackForADocumentWithPoliciesUnlessItAsksForThem) {
  EXPECT_EQ(met(Rules(test::document("policies: [{id: p, limit: 1/s}]"), kSeed), Q("ping").agent("A").get()),
            (std::vector<std::string>{"p"}));
  EXPECT_EQ(met(Rules(test::document("tiers: {}\npolicies: [{id: p, limit: 1/s}]"), kSeed), Q("ping").agent("A").get()),
            (std::vector<std::string>{"p", "tier-light"}));
}

TEST(Rules, AreJudgedByPriorityThenAsDeclared) {
  const Rules rules(test::document(R"(
policies:
  - {id: c, limit: 1/s, priority: 5}
  - {id: a, limit: 1/s, priority: -1, match: {operations: [run]}}
  - {id: d, limit: 1/s, priority: 5, match: {agents: [A]}}
  - {id: b, limit: 1/s}
  - {id: e, limit: 1/s, priority: 5, match: {agents: [A], operations: [run]}}
)"),
                    kSeed);
  EXPECT_EQ(met(rules, Q("run").agent("A").get()), (std::vector<std::string>{"a", "b", "c", "d", "e"}));
}

TEST(Rules, PoliciesThatAreOffMeetNothing) {
  const Rules rules(test::document("policies: [{id: p, limit: 1/s, mode: 'off'}, {id: q, limit: 1/s}]"), kSeed);
  EXPECT_EQ(met(rules, Q("run").get()), (std::vector<std::string>{"q"}));
  const Rules none(test::document("mode: 'off'\npolicies: [{id: p, limit: 1/s}]"), kSeed);
  EXPECT_TRUE(met(none, Q("run").get()).empty());
}

TEST(Rules, MoreThanSixtyFourMatchesAreToldNotCutOff) {
  for (const int count : {64, 65}) {
    std::string text = "policies:\n";
    for (int i = 0; i < count; ++i) text += "  - {id: p" + std::to_string(i) + ", limit: 1/s}\n";
    const Rules rules(test::document(text), kSeed);
    const Q q("run");
    Fields fields(q.get(), kSeededHasher);
    Matched matched;
    rules.match(fields, {}, matched);
    EXPECT_EQ(matched.overflow(), count > 64);
  }
}

TEST(Rules, SaysWhyAPolicyDoesNotMatch) {
  EXPECT_EQ(Matching("agents: [A, B]").why_not(Q("run").agent("C")), "agent \"C\" is not among A, B");
  EXPECT_EQ(Matching("contexts: [UI]").why_not(Q("run")), "the check has no context (the policy wants UI)");
  EXPECT_EQ(Matching("attributes: {x: [a]}").why_not(Q("run")), "the check has no attribute x (missing: skip)");
  EXPECT_EQ(Matching("attributes: {x: {min: 1, max: 100000}}").why_not(Q("run").attr("x", 200000)),
            "attribute x \"200000\" is not at least 1 and at most 100000");
  EXPECT_EQ(Matching("attributes: {x: true}").why_not(Q("run").attr("x", "no")), "attribute x \"no\" is not true");
  EXPECT_EQ(Matching("attributes: {x: null}").why_not(Q("run").attr("x", 1)), "the check has the attribute x");
  EXPECT_EQ(Matching("emergency: true").why_not(Q("run")), "the emergency throttle is off");
  EXPECT_EQ(Matching("emergency: false").why_not(Q("run"), {LoadLevel::kHigh, true}), "the emergency throttle is on");
  EXPECT_EQ(Matching("system_load: high").why_not(Q("run")), "the system load is normal");
  EXPECT_EQ(Matching("operations: [run]", ", mode: 'off'").why_not(Q("run")), "its mode is off");
}

// The conditions of a policy, one by one, with nothing of the code that is tested.
namespace oracle {

bool glob(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') return glob(pattern.substr(1), text) || (!text.empty() && glob(pattern, text.substr(1)));
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && glob(pattern.substr(1), text.substr(1));
}
bool one(const std::string& pattern, std::string_view text) {
  if (pattern.find_first_of("*?") != std::string::npos) return glob(pattern, text);
  return pattern.back() == '/' ? text.substr(0, pattern.size()) == pattern : text == pattern;
}
bool any(const Patterns& patterns, std::string_view text) {
  bool wanted = false;
  bool found = false;
  for (const std::string& pattern : patterns) {
    if (pattern[0] == '!') {
      if (one(pattern.substr(1), text)) return false;
    } else {
      wanted = true;
      found = found || one(pattern, text);
    }
  }
  return found || !wanted;
}
bool everybody(const Patterns& patterns) {
  return std::all_of(patterns.begin(), patterns.end(), [](const std::string& p) { return p[0] == '!'; }) ||
         std::find(patterns.begin(), patterns.end(), "*") != patterns.end();
}

std::string reading(const Value& value) {
  if (value.kind == Value::Kind::kBoolean) return value.boolean ? "true" : "false";
  if (value.kind == Value::Kind::kText) return std::string(value.text);
  std::string text = std::to_string(value.number);  // "2.500000"
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

bool attribute(const AttributeRule& rule, bool missing, const Check& check) {
  const Value* value = nullptr;
  for (const std::string& name : rule.names) {
    for (const Attribute& attribute : check.attributes) {
      if (value == nullptr && attribute.name == name) value = &attribute.value;
    }
  }
  if (rule.kind == AttributeRule::Kind::kAbsent) return value == nullptr;
  if (value == nullptr) return missing;
  const std::string text = reading(*value);
  if (rule.kind == AttributeRule::Kind::kBoolean) return text == (rule.boolean ? "true" : "false");
  if (rule.kind != AttributeRule::Kind::kRange) return any(rule.patterns, text);
  if (value->kind == Value::Kind::kBoolean || text.empty() || !(std::isdigit(text[0]) || text[0] == '-')) return false;
  const double number = std::stod(text);
  return (!rule.min || number >= *rule.min) && (!rule.max || number <= *rule.max);
}

bool matches(const Policy& policy, const Check& check, const std::string& tier, const Surroundings& around) {
  const Match& m = policy.match;
  const bool missing = policy.missing == Missing::kMatch;
  if (policy.mode == Mode::kOff) return false;
  const std::pair<const Patterns*, std::string_view> fields[] = {{&m.agents, check.agent},
                                                                 {&m.operations, check.operation},
                                                                 {&m.contexts, check.context},
                                                                 {&m.users, check.user},
                                                                 {&m.tenants, check.tenant},
                                                                 {&m.plans, check.plan},
                                                                 {&m.channels, check.channel},
                                                                 {&m.tiers, tier},
                                                                 {&m.resources, check.resource},
                                                                 {&m.sessions, check.session},
                                                                 {&m.ips, check.ip}};
  for (const auto& [patterns, text] : fields) {
    if (patterns->empty()) continue;
    if (text.empty() && !missing) return false;
    if (text.empty() && patterns == &m.agents && !everybody(m.agents)) return false;
    if (!text.empty() && !any(*patterns, text)) return false;
  }
  for (const AttributeRule& rule : m.attributes) {
    if (!attribute(rule, missing, check)) return false;
  }
  if (!m.system_load.empty() && std::count(m.system_load.begin(), m.system_load.end(), around.load) == 0) return false;
  if (m.emergency && *m.emergency != around.emergency) return false;
  return !m.unidentified || check.agent.empty();
}

}  // namespace oracle

// Documents and checks from a small vocabulary, so that they meet often.
class Maker {
 public:
  explicit Maker(std::uint32_t seed) : random_(seed) {}

  Document document(int policies) {
    Document document;
    document.has_policies = true;
    document.tiers.operations = {Patterns{"a*"}, Patterns{"b"}, Patterns{"ab", "c/"}};
    for (int i = 0; i < policies; ++i) {
      Policy& policy = document.policies.emplace_back();
      policy.id = "p" + std::to_string(i);
      policy.priority = static_cast<int>(below(3));
      policy.mode = one_in(15) ? Mode::kOff : Mode::kEnforce;
      policy.missing = one_in(3) ? Missing::kMatch : Missing::kSkip;
      Match& m = policy.match;
      if (!one_in(3)) m.operations = patterns();
      if (one_in(2)) m.agents = patterns();
      for (Patterns* list :
           {&m.contexts, &m.users, &m.tenants, &m.plans, &m.channels, &m.resources, &m.sessions, &m.ips}) {
        if (one_in(8)) *list = patterns();
      }
      if (one_in(8)) m.tiers = one_in(2) ? Patterns{"heavy"} : Patterns{"light", "normal"};
      while (one_in(3)) m.attributes.push_back(rule());
      if (one_in(8)) m.system_load = {static_cast<LoadLevel>(below(4)), LoadLevel::kNormal};
      if (one_in(8)) m.emergency = one_in(2);
      m.unidentified = one_in(20);
    }
    return document;
  }

  Q check() {
    Q q(word());
    for (Q& (Q::*set)(std::string_view) :
         {&Q::agent, &Q::context, &Q::user, &Q::tenant, &Q::plan, &Q::channel, &Q::resource, &Q::session, &Q::ip}) {
      if (one_in(2)) (q.*set)(word());
    }
    while (one_in(2)) {
      static constexpr const char* kNames[] = {"x", "y", "z"};
      static const Value kValues[] = {"a", "b", "ab", "3", "true", 3, 2.5, -1, true, false, 100000};
      q.attr(kNames[below(3)], kValues[below(std::size(kValues))]);
    }
    return q;
  }

  Surroundings surroundings() { return {static_cast<LoadLevel>(below(4)), one_in(2)}; }

 private:
  std::uint32_t below(std::size_t end) { return static_cast<std::uint32_t>(random_() % end); }
  bool one_in(std::size_t many) { return below(many) == 0; }
  std::string word() {
    static constexpr const char* kWords[] = {"a", "b", "ab", "abc", "c/", "c/d", "ba"};
    return kWords[below(std::size(kWords))];
  }
  Patterns patterns() {
    static constexpr const char* kPatterns[] = {"a",   "b",  "ab",  "abc", "c/", "ba",   "a",   "b",   "a*",
                                                "ab*", "*b", "?b*", "*",   "!a", "!ab*", "!c/", "c/d", "b?"};
    Patterns made;
    do {
      made.emplace_back(kPatterns[below(std::size(kPatterns))]);
    } while (one_in(2));
    return made;
  }
  AttributeRule rule() {
    AttributeRule made;
    made.names = one_in(3) ? std::vector<std::string>{"x", "y"} : std::vector<std::string>{one_in(2) ? "x" : "z"};
    made.kind = one_in(2) ? AttributeRule::Kind::kAnyOf : static_cast<AttributeRule::Kind>(below(5));
    made.patterns = one_in(2) ? Patterns{"3", "true", "100000"} : patterns();
    if (!one_in(3)) made.min = below(4);
    if (!one_in(3)) made.max = below(4) + made.min.value_or(0);
    made.boolean = one_in(2);
    return made;
  }

  std::mt19937 random_;
};

RC_GTEST_PROP(RulesIndex, FindsExactlyWhatLookingAtEveryPolicyFinds, ()) {
  Maker maker(*rc::gen::arbitrary<std::uint32_t>());
  const Document document = maker.document(*rc::gen::inRange(1, 40));
  const Rules rules(document, kSeed);
  std::vector<Policy> ordered = document.policies;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Policy& a, const Policy& b) { return a.priority < b.priority; });
  for (int i = 0; i < 30; ++i) {
    const Q q = maker.check();
    const Surroundings around = maker.surroundings();
    const std::string operation(q.get().operation);
    const std::string tier = operation == "ab" || operation.starts_with("c/") ? "heavy"
                             : operation[0] == 'a'                            ? "light"
                                                                              : "normal";
    std::vector<std::string> expected;
    for (const Policy& policy : ordered) {
      if (oracle::matches(policy, q.get(), tier, around)) expected.push_back(policy.id);
    }
    RC_ASSERT(met(rules, q.get(), around) == expected);
  }
}

TEST(RulesIndex, TenThousandPoliciesStillGiveTheRightOnes) {
  Document document = Maker(7).document(20);
  for (int i = 0; i < 10'000; ++i) {
    Policy& policy = document.policies.emplace_back();
    policy.id = "q" + std::to_string(i);
    const std::string number = std::to_string(i);
    switch (i % 5) {
      case 0: policy.match.agents = {"agent" + number}, policy.match.operations = {"a", "b"}; break;
      case 1: policy.match.operations = {"op" + number + ".*"}; break;
      case 2: policy.match.resources = {"src/" + number + "/"}; break;
      case 3: {
        AttributeRule& rule = policy.match.attributes.emplace_back();
        rule.names = {"id"};
        rule.patterns = {number};
        break;
      }
      default: policy.match.users = {"user" + number, "user" + std::to_string(i - 5)}; break;
    }
  }
  const Rules rules(document, kSeed);
  std::vector<Policy> ordered = document.policies;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Policy& a, const Policy& b) { return a.priority < b.priority; });
  Maker maker(8);
  for (int i = 0; i < 40; ++i) {
    const int k = i * 251;
    Q q = maker.check();
    if (i % 2 == 0) q = Q(i % 4 == 0 ? "a" : "op" + std::to_string(k) + ".x");
    q.agent("agent" + std::to_string(k / 5 * 5)).user("user" + std::to_string(k)).attr("id", k);
    q.resource("src/" + std::to_string(k) + "/x");
    const std::string operation(q.get().operation);
    const std::string tier = operation == "ab" || operation.starts_with("c/") ? "heavy"
                             : operation[0] == 'a'                            ? "light"
                                                                              : "normal";
    std::vector<std::string> expected;
    for (const Policy& policy : ordered) {
      if (oracle::matches(policy, q.get(), tier, {})) expected.push_back(policy.id);
    }
    EXPECT_EQ(met(rules, q.get()), expected) << i;
  }
}

}  // namespace
}  // namespace headgate::policy
