#include "quota/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace headgate::quota {
namespace {

std::string complaint(const auto& result) { return result ? "" : result.error().message; }

const Plan& free_plan() { return built_in_plans().at("free"); }

std::array<Amount, 3> amounts(Units day, Units week, Units month) { return {Amount{day}, Amount{week}, Amount{month}}; }

TEST(BuiltInPlans, HaveTheFiguresPerTypeOfCommand) {
  const auto expect = [](const char* type, std::array<Amount, 3> limits, double cpu, double mem) {
    const TypeRule& rule = free_plan().types.at(type);
    EXPECT_EQ(rule.limits, limits) << type;
    EXPECT_TRUE(rule.session.unlimited()) << type;
    EXPECT_EQ(rule.estimated_cpu, cpu) << type;
    EXPECT_EQ(rule.estimated_mem, mem) << type;
  };
  expect("shell", amounts(500, 3'000, 10'000), 10, 100);
  expect("code", amounts(300, 1'500, 5'000), 15, 200);
  expect("test", amounts(1'000, 5'000, 20'000), 5, 50);
  expect("review", amounts(200, 1'000, 3'000), 20, 300);
  expect("refactor", amounts(200, 1'000, 3'000), 20, 300);
  expect("other", amounts(500, 3'000, 10'000), 5, 50);
  EXPECT_EQ(free_plan().types.size(), 6);
  EXPECT_EQ(built_in_plans().size(), 3);
}

TEST(BuiltInPlans, PremiumIsTenTimesFreeAndEnterpriseHasNoLimits) {
  const Plan& premium = built_in_plans().at("premium");
  const Plan& enterprise = built_in_plans().at("enterprise");
  for (const auto& [name, rule] : free_plan().types) {
    for (std::size_t i = 0; i < kPeriods.size(); ++i) {
      EXPECT_EQ(premium.types.at(name).limits[i].value, rule.limits[i].value * 10) << name;
      EXPECT_TRUE(enterprise.types.at(name).limits[i].unlimited()) << name;
    }
    EXPECT_EQ(premium.types.at(name).estimated_cpu, rule.estimated_cpu);
    EXPECT_EQ(enterprise.types.at(name).estimated_mem, rule.estimated_mem);
  }
  EXPECT_EQ(free_plan().weight, 1);
  EXPECT_EQ(premium.weight, 4);
  EXPECT_EQ(enterprise.weight, 16);
}

TEST(PlanJson, IsWrittenAsPeopleWriteIt) {
  Plan plan;
  plan.types["other"] = {{Amount{5}, Amount{}, Amount{0}}, Amount{2}, 10, 0.5};
  EXPECT_EQ(to_json(plan),
            R"({"timezone":"","mode":"enforce","weight":1,"types":{"other":{"daily":5,"weekly":null,"monthly":0,)"
            R"("session":2,"estimated_cpu":10,"estimated_mem":0.5}}})");
  UserRule rule;
  EXPECT_EQ(to_json(rule), "{}");
  rule.plan = "premium";
  rule.mode = Mode::kMonitor;
  rule.weight = 2.5;
  rule.types["shell"].limits = {Amount{50}, Amount{}, std::nullopt};
  EXPECT_EQ(to_json(rule),
            R"({"plan":"premium","mode":"monitor","weight":2.5,"types":{"shell":{"daily":50,"weekly":"unlimited"}}})");
}

TEST(PlanJson, NamedFieldsGoOverTheBaseAndOthersStay) {
  const auto plan = plan_of(
      R"({"timezone": "Europe/Berlin", "weight": 3, "types": {"shell": {"daily": 7, "weekly": null, "session": 1e1}}})",
      free_plan());
  ASSERT_TRUE(plan) << complaint(plan);
  Plan expected = free_plan();
  expected.timezone = "Europe/Berlin";
  expected.weight = 3;
  expected.types["shell"].limits = amounts(7, Amount::kUnlimited, 10'000);
  expected.types["shell"].session = Amount{10};
  EXPECT_EQ(*plan, expected);
  EXPECT_EQ(plan_of(R"({"timezone": null})", *plan)->timezone, "");
  EXPECT_EQ(*plan_of("{}", *plan), *plan);
}

TEST(PlanJson, NewTypeBeginsAsOtherOfTheSameDocumentAndNullTakesATypeOut) {
  const auto plan = plan_of(
      R"({"types": {"deploy": {"daily": 2}, "other": {"monthly": 99}, "review": null, "none": null}})", free_plan());
  ASSERT_TRUE(plan) << complaint(plan);
  EXPECT_EQ(plan->types.at("deploy").limits, amounts(2, 3'000, 99));
  EXPECT_EQ(plan->types.at("deploy").estimated_mem, 50);
  EXPECT_FALSE(plan->types.contains("review"));
  EXPECT_FALSE(plan->types.contains("none"));
}

TEST(PlanJson, TellsAllProblemsAtOnce) {
  const auto plan = plan_of(
      R"({"typs": 1, "mode": "monitr", "weight": 0, "timezone": "Europe/Berlim",
          "types": {"shell": {"daily": -1, "dayly": 5, "estimated_cpu": 1e7, "weekly": 1.5, "monthly": "many"},
                    "a b": {}, "code": 5, "other": null}})",
      free_plan());
  EXPECT_EQ(complaint(plan),
            R"(there is no field "typs" here, did you mean "types"?
timezone must be a name of the IANA time zone database, such as Europe/Berlin, got "Europe/Berlim", did you mean "Europe/Berlin"?
mode must be "enforce", "monitor" or "off", got "monitr", did you mean "monitor"?
weight must be a number from 0.01 to 1000, got 0
types.other must be an object such as {"daily": 500}, got null
the name of a type must be 1 to 50 letters, digits, "-", "_", "." or ":", got "a b"
types.code must be an object such as {"daily": 500}, or null, got 5
there is no field "dayly" in types.shell, did you mean "daily"?
types.shell.daily must be a whole number from 0 to 1000000000000, "unlimited" or null, got -1
types.shell.weekly must be a whole number from 0 to 1000000000000, "unlimited" or null, got 1.5
types.shell.monthly must be a whole number from 0 to 1000000000000, "unlimited" or null, got "many"
types.shell.estimated_cpu must be a number from 0 to 1000000, got 10000000.0)");
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
}

TEST(PlanJson, RefusesWhatIsNoPlan) {
  const auto told = [](const std::string& json) { return complaint(plan_of(json, free_plan())); };
  EXPECT_EQ(told(""), "the plan must be JSON, is empty");
  EXPECT_EQ(told("{\"mode\""), "the plan must be valid JSON in UTF-8");
  EXPECT_EQ(told("{\"timezone\": \"\xff\"}"), "the plan must be valid JSON in UTF-8");
  EXPECT_EQ(told("[1]"), "the plan must be a JSON object, got [1]");
  EXPECT_EQ(told("null"), "the plan must be a JSON object, got null");
  EXPECT_EQ(told(R"({"types": {"shell": {"daily": [[1]]}}})"), "the plan must be at most 4 deep");
  EXPECT_EQ(told(std::string(200'000, '[')), "the plan must be at most 4 deep");
  EXPECT_EQ(told(std::string(300'000, ' ')), "the plan must have at most 262144 bytes, got 300000");
  EXPECT_EQ(told(R"({"types": {"shell": {"daily": 1, "daily": 2}}})"),
            "the field \"types.shell.daily\" must be given once, is given twice");
  EXPECT_EQ(told(R"({"types": null})"),
            "types must be an object of types, such as {\"shell\": {\"daily\": 500}}, got null");
  EXPECT_EQ(told(R"({"timezone": 5})"),
            "timezone must be the name of a time zone, such as \"Europe/Berlin\", or null, got 5");
  EXPECT_EQ(complaint(plan_of("{}", Plan{})),
            "types.other must be given: types that the plan does not name count as it");
}

TEST(PlanJson, TellsEachProblemOnOneLine) {
  EXPECT_EQ(complaint(rule_of(R"({"a\nb": 1, "timezone": "c\nd", "mode": "on\nly", "types": {"g\nh": {}}})", {})),
            R"(there is no field "a\nb" here
timezone must be a name of the IANA time zone database, such as Europe/Berlin, got "c\nd"
mode must be "enforce", "monitor" or "off", got "on\nly"
the name of a type must be 1 to 50 letters, digits, "-", "_", "." or ":", got "g\nh")");
}

TEST(PlanJson, HasBounds) {
  const auto told = [](const std::string& json) { return complaint(plan_of(json, free_plan())); };
  const auto daily = [&](const std::string& amount) { return told(R"({"types":{"shell":{"daily":)" + amount + "}}}"); };
  EXPECT_EQ(daily("1000000000000"), "");
  EXPECT_EQ(daily("1e12"), "");
  for (const char* far : {"1000000000001", "18446744073709551615", "99999999999999999999999", "-9223372036854775808",
                          "1e300", "true", "\"5\"", "{}"}) {
    EXPECT_NE(daily(far), "") << far;
  }
  EXPECT_EQ(told(R"({"weight": 0.01})"), "");
  EXPECT_EQ(told(R"({"weight": 1000.1})"), "weight must be a number from 0.01 to 1000, got 1000.1");
  EXPECT_EQ(told(R"({"weight": null})"), "weight must be a number from 0.01 to 1000, got null");
  std::string types;
  for (int i = 0; i < 95; ++i) types += (i > 0 ? "," : "") + ("\"t" + std::to_string(i)) + "\":{}";
  EXPECT_EQ(told("{\"types\":{" + types + "}}"), "types must be at most 100, are 101");
  types.clear();
  for (int i = 0; i < 30; ++i) types += (i > 0 ? "," : "") + ("\"t" + std::to_string(i)) + "\":5";
  const std::string many = told("{\"types\":{" + types + "}}");
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n'), 20);
  EXPECT_EQ(many.substr(many.rfind('\n')), "\nand 10 more");
}

TEST(RuleJson, NullTakesBackWhatWasSet) {
  const auto rule = rule_of(R"({"plan": "premium", "timezone": "Asia/Kolkata", "mode": "off", "weight": 9,
      "types": {"shell": {"daily": 5, "session": "unlimited"}, "code": {"weekly": 1}, "test": {"daily": 1}}})",
                            UserRule{});
  ASSERT_TRUE(rule) << complaint(rule);
  EXPECT_EQ(rule->types.at("shell").limits[0], Amount{5});
  EXPECT_EQ(rule->types.at("shell").session, Amount{});
  EXPECT_EQ(rule->types.at("shell").limits[1], std::nullopt);
  const auto less = rule_of(R"({"plan": null, "mode": null, "types": {"shell": {"daily": null}, "code": null,
      "test": {"daily": null}}})",
                            *rule);
  ASSERT_TRUE(less) << complaint(less);
  EXPECT_EQ(to_json(*less), R"({"timezone":"Asia/Kolkata","weight":9,"types":{"shell":{"session":"unlimited"}}})");
  const auto none = rule_of(R"({"timezone": null, "weight": null, "types": null})", *less);
  ASSERT_TRUE(none) << complaint(none);
  EXPECT_TRUE(none->empty());
}

TEST(RuleJson, NamesWhatIsWrong) {
  const auto told = [](const std::string& json) { return complaint(rule_of(json, UserRule{})); };
  EXPECT_EQ(told(R"({"types": {"shell": {"estimated_cpu": 5}}, "plan": "a/b", "weight": "x"})"),
            "plan must be 1 to 50 letters, digits, \"-\", \"_\", \".\" or \":\", got \"a/b\"\n"
            "weight must be a number from 0.01 to 1000, got \"x\"\n"
            "there is no field \"estimated_cpu\" in types.shell of a rule");
  EXPECT_EQ(told(R"({"plan": 5})"), "plan must be the name of a plan or null, got 5");
  EXPECT_EQ(told(R"({"types": 5})"),
            "types must be an object of types, such as {\"shell\": {\"daily\": 500}} or null, got 5");
  EXPECT_EQ(told("[]"), "the rule must be a JSON object, got []");
}

TEST(CheckTimezone, RefusesWhatDoesNotExistWithTheNearestThatDoes) {
  EXPECT_TRUE(check_timezone("Europe/Berlin"));
  const std::string start = "timezone must be a name of the IANA time zone database, such as Europe/Berlin, got ";
  EXPECT_EQ(complaint(check_timezone("Amerika/New_York")),
            start + "\"Amerika/New_York\", did you mean \"America/New_York\"?");
  EXPECT_EQ(complaint(check_timezone("../../etc/passwd")), start + "\"../../etc/passwd\"");
  EXPECT_EQ(complaint(check_timezone(std::string(100, 'x'))), start + "\"" + std::string(60, 'x') + "...\"");
}

TEST(ModeNamed, KnowsAllModes) {
  for (const Mode mode : {Mode::kEnforce, Mode::kMonitor, Mode::kOff}) EXPECT_EQ(mode_named(to_string(mode)), mode);
  EXPECT_EQ(mode_named("Enforce"), std::nullopt);
  EXPECT_EQ(mode_named(""), std::nullopt);
}

// What follows is written as JSON and read back.
std::string any_name() {
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
  const auto size = *rc::gen::inRange<std::size_t>(1, 51);
  return *rc::gen::container<std::string>(size, rc::gen::elementOf(letters));
}
Amount any_amount() {
  return {*rc::gen::oneOf(rc::gen::just(Amount::kUnlimited), rc::gen::inRange<Units>(0, kMostCommands + 1))};
}
double any_double(double least, double most) {
  const auto share = static_cast<double>(*rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 53)) * 0x1p-53;
  return least + (most - least) * share;
}
std::string any_zone() { return *rc::gen::element<std::string>("", "UTC", "Europe/Berlin", "Australia/Lord_Howe"); }
Mode any_mode() { return *rc::gen::element(Mode::kEnforce, Mode::kMonitor, Mode::kOff); }

RC_GTEST_PROP(PlanJson, ReadsBackWhatItWrote, ()) {
  Plan plan;
  plan.timezone = any_zone();
  plan.mode = any_mode();
  plan.weight = any_double(kLeastWeight, kMostWeight);
  for (int types = *rc::gen::inRange(0, 8); types >= 0; --types) {
    TypeRule& type = plan.types[types == 0 ? std::string(kOther) : any_name()];
    for (Amount& limit : type.limits) limit = any_amount();
    type.session = any_amount();
    type.estimated_cpu = any_double(0, kMostEstimate);
    type.estimated_mem = any_double(0, kMostEstimate);
  }
  const auto again = plan_of(to_json(plan), Plan{});
  RC_ASSERT(complaint(again) == "");
  RC_ASSERT(*again == plan);
  RC_ASSERT(complaint(check_plan(plan)) == "");
}

RC_GTEST_PROP(RuleJson, ReadsBackWhatItWrote, ()) {
  UserRule rule;
  if (*rc::gen::arbitrary<bool>()) rule.plan = any_name();
  rule.timezone = any_zone();
  if (*rc::gen::arbitrary<bool>()) rule.mode = any_mode();
  if (*rc::gen::arbitrary<bool>()) rule.weight = any_double(kLeastWeight, kMostWeight);
  for (int types = *rc::gen::inRange(0, 8); types > 0; --types) {
    TypeChange change;
    for (auto& limit : change.limits) {
      if (*rc::gen::arbitrary<bool>()) limit = any_amount();
    }
    if (*rc::gen::arbitrary<bool>()) change.session = any_amount();
    if (!change.empty()) rule.types[any_name()] = change;
  }
  const auto again = rule_of(to_json(rule), UserRule{});
  RC_ASSERT(complaint(again) == "");
  RC_ASSERT(*again == rule);
  RC_ASSERT(complaint(check_rule(rule)) == "");
}

}  // namespace
}  // namespace headgate::quota
