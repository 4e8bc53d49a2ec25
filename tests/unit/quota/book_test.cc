#include "quota/book.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/allocation_counter.h"

namespace headgate::quota {
namespace {

std::string message_of(const auto& result) { return result ? "" : result.error().message; }

UserRule rule_with(const std::string& json) {
  auto rule = rule_of(json, UserRule{});
  EXPECT_TRUE(rule) << message_of(rule);
  return *std::move(rule);
}
Plan plan_with(const std::string& json) {
  auto plan = plan_of(json, built_in_plans().at("free"));
  EXPECT_TRUE(plan) << message_of(plan);
  return *std::move(plan);
}

TEST(Book, UserWithoutRuleHasTheDefaultPlanOrTheOneAskedFor) {
  const Book book({.timezone = "Europe/Berlin"});
  const auto free = book.find("ann", "", "shell");
  ASSERT_TRUE(free);
  EXPECT_EQ(free->plan, "free");
  EXPECT_EQ(free->type, "shell");
  EXPECT_EQ(free->rule.limits[0], Amount{500});
  EXPECT_EQ(free->timezone, "Europe/Berlin");
  EXPECT_EQ(free->mode, Mode::kEnforce);
  EXPECT_FALSE(free->ruled);
  EXPECT_EQ(book.find("ann", "premium", "shell")->rule.limits[0], Amount{5'000});
  EXPECT_EQ(book.find("ann", "premium", "shell")->weight, 4);
  EXPECT_EQ(message_of(book.find("ann", "premum", "shell")), "there is no plan \"premum\", did you mean \"premium\"?");
  EXPECT_EQ(book.find("ann", "premum", "shell").error().code, ErrorCode::kInvalidArgument);
}

TEST(Book, RuleGoesBeforeWhatTheAskerSaysAndOverThePlan) {
  Book book;
  ASSERT_TRUE(book.set_rule("ann", rule_with(R"({"plan": "premium", "timezone": "Asia/Kolkata", "weight": 2,
      "types": {"shell": {"daily": 5, "session": 3}, "other": {"weekly": 9}}})")));
  const auto shell = book.find("ann", "enterprise", "shell");
  ASSERT_TRUE(shell);
  EXPECT_EQ(shell->plan, "premium");
  EXPECT_EQ(shell->rule.limits[0], Amount{5});
  EXPECT_EQ(shell->rule.limits[1], Amount{30'000});
  EXPECT_EQ(shell->rule.session, Amount{3});
  EXPECT_EQ(shell->rule.estimated_mem, 100);
  EXPECT_EQ(shell->timezone, "Asia/Kolkata");
  EXPECT_EQ(shell->weight, 2);
  EXPECT_TRUE(shell->ruled);
  EXPECT_EQ(book.find("ann", "", "made-up")->rule.limits[1], Amount{9}) << "what counts as other has other's rule";
  EXPECT_EQ(book.find("bob", "", "shell")->rule.limits[0], Amount{500}) << "somebody else's rule";
}

TEST(Book, MadeUpTypesShareOneAllowance) {
  const Book book;
  EXPECT_EQ(book.find("ann", "", "made-up")->type, "other");
  EXPECT_EQ(book.find("ann", "", "")->type, "other");
  EXPECT_EQ(book.find("ann", "", "other")->type, "other");
}

TEST(Book, TypeThatOnlyTheRuleNamesIsOneOfItsOwn) {
  Book book({.refuse_unknown_types = true});
  ASSERT_TRUE(book.set_rule("ann", rule_with(R"({"types": {"deploy": {"daily": 2}}})")));
  const auto deploy = book.find("ann", "", "deploy");
  ASSERT_TRUE(deploy) << message_of(deploy);
  EXPECT_EQ(deploy->type, "deploy");
  EXPECT_EQ(deploy->rule.limits[0], Amount{2});
  EXPECT_EQ(deploy->rule.limits[1], Amount{3'000}) << "as other";
  EXPECT_EQ(book.find("bob", "", "deploy").error().code, ErrorCode::kNotFound);
  const auto all = book.find_all("ann", "");
  ASSERT_TRUE(all);
  std::vector<std::string_view> types;
  for (const Allowance& allowance : *all) types.push_back(allowance.type);
  EXPECT_EQ(types, (std::vector<std::string_view>{"code", "deploy", "other", "refactor", "review", "shell", "test"}));
}

TEST(Book, WhatWasFoundOutlivesTheRuleThatNamesItsType) {
  Book book;
  const std::string type = "a-type-of-command-whose-name-is-rather-long";
  ASSERT_TRUE(book.set_rule("ann", rule_with("{\"types\": {\"" + type + "\": {\"daily\": 2}}}")));
  const auto found = book.find("ann", "", type);
  ASSERT_TRUE(found);
  ASSERT_TRUE(book.set_rule("ann", {}));
  EXPECT_EQ(found->holds_rule.use_count(), 1);
  EXPECT_EQ(found->type, type);
}

TEST(Book, FindingAllocatesNothing) {
  Book book({.timezone = "Europe/Berlin"});
  const std::string user = "a-user-whose-name-is-too-long-to-be-kept-without-memory";
  ASSERT_TRUE(book.set_rule(user, rule_with(R"({"plan": "premium", "types": {"a-very-long-name-of-a-type": {}, "shell":
      {"daily": 5}, "deploy-with-a-name-that-is-long": {"daily": 2}}})")));
  const auto found = [&](std::string_view plan, std::string_view type) {
    EXPECT_TRUE(book.find(user, plan, type));
    EXPECT_TRUE(book.find("somebody-else-whose-name-is-just-as-long", plan, type));
  };
  EXPECT_EQ(test::allocations_in([&] {
              found("", "shell");
              found("enterprise", "shell");
              found("", "deploy-with-a-name-that-is-long");
              found("", "made-up-on-the-spot-and-also-very-long");
            }),
            0U);
}

TEST(Book, RefusesUnknownUsersAndTypesWhenToldTo) {
  Book book({.refuse_unknown_users = true, .refuse_unknown_types = true});
  EXPECT_EQ(message_of(book.find("ann", "", "shell")), "there is no user \"ann\" here; give it a rule first");
  EXPECT_EQ(book.find("ann", "", "shell").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(book.find_all("ann", "").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(book.set_rule("ann", rule_with(R"({"plan": "free"})")));
  EXPECT_TRUE(book.has_rule("ann"));
  EXPECT_TRUE(book.find("ann", "", "shell"));
  EXPECT_TRUE(book.find("ann", "", "other"));
  EXPECT_EQ(message_of(book.find("ann", "", "shel")),
            "plan \"free\" has no type of command \"shel\", did you mean \"shell\"?");
  EXPECT_EQ(book.find("ann", "", "shel").error().code, ErrorCode::kNotFound);
}

TEST(Book, LaxestModeHolds) {
  const auto mode = [](Mode server, const char* plan, const char* rule) {
    Book book({.mode = server});
    EXPECT_TRUE(book.set_plan("free", plan_with(plan)));
    EXPECT_TRUE(book.set_rule("ann", rule_with(rule)));
    return book.find("ann", "", "shell")->mode;
  };
  EXPECT_EQ(mode(Mode::kEnforce, "{}", R"({"weight": 1})"), Mode::kEnforce);
  EXPECT_EQ(mode(Mode::kMonitor, "{}", R"({"mode": "enforce"})"), Mode::kMonitor);
  EXPECT_EQ(mode(Mode::kEnforce, R"({"mode": "monitor"})", R"({"mode": "enforce"})"), Mode::kMonitor);
  EXPECT_EQ(mode(Mode::kMonitor, R"({"mode": "monitor"})", R"({"mode": "off"})"), Mode::kOff);
  EXPECT_EQ(mode(Mode::kEnforce, "{}", R"({"mode": "monitor"})"), Mode::kMonitor);
}

TEST(Book, ChangeOfAPlanIsSeenFromTheNextFindOn) {
  Book book;
  const auto before = book.find("ann", "", "shell");
  ASSERT_TRUE(book.set_plan("free", plan_with(R"({"timezone": "Asia/Tokyo", "types": {"shell": {"daily": 1}}})")));
  const auto after = book.find("ann", "", "shell");
  EXPECT_EQ(after->rule.limits[0], Amount{1});
  EXPECT_EQ(after->timezone, "Asia/Tokyo");
  EXPECT_EQ(before->rule.limits[0], Amount{500});
  EXPECT_EQ(before->plan, "free") << "what was found earlier holds on to its plan";
  ASSERT_TRUE(book.clear_plan("free"));
  EXPECT_EQ(book.find("ann", "", "shell")->rule.limits[0], Amount{500});
  EXPECT_EQ(book.plan("free"), built_in_plans().at("free"));
}

TEST(Book, PlanInUseStays) {
  Book book({.default_plan = "house"});
  EXPECT_EQ(message_of(book.find("ann", "", "shell")), "there is no plan \"house\"");
  ASSERT_TRUE(book.set_plan("house", plan_with("{}")));
  ASSERT_TRUE(book.set_plan("gold", plan_with("{}")));
  ASSERT_TRUE(book.set_rule("ann", rule_with(R"({"plan": "gold"})")));
  ASSERT_TRUE(book.set_rule("bob", rule_with(R"({"plan": "gold"})")));
  EXPECT_EQ(message_of(book.clear_plan("house")), "plan \"house\" is the default one (quotas.default_plan)");
  EXPECT_EQ(message_of(book.clear_plan("gold")),
            "plan \"gold\" is still that of 2 users, such as \"ann\"; give them another first");
  EXPECT_EQ(message_of(book.clear_plan("silver")), "there is no plan \"silver\"");
  EXPECT_EQ(book.clear_plan("silver").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(book.set_rule("ann", {}));
  ASSERT_TRUE(book.set_rule("bob", {}));
  EXPECT_TRUE(book.clear_plan("gold"));
  EXPECT_EQ(book.plan("gold"), std::nullopt);
  EXPECT_EQ(book.plans().size(), 4);
}

TEST(Book, RulesAreListedByNameInPages) {
  Book book;
  for (const char* user : {"dan", "ann", "cid", "bob"}) {
    ASSERT_TRUE(book.set_rule(user, rule_with(R"({"weight": 2})")));
  }
  const auto names = [&](const char* after, std::size_t limit) {
    std::string all;
    for (const auto& [name, rule] : book.rules(after, limit)) all += name + " ";
    return all;
  };
  EXPECT_EQ(names("", 3), "ann bob cid ");
  EXPECT_EQ(names("cid", 3), "dan ");
  EXPECT_EQ(names("bb", 1), "bob ");
  ASSERT_TRUE(book.set_rule("ann", {})) << "an empty rule clears it";
  EXPECT_EQ(names("", 9), "bob cid dan ");
  EXPECT_EQ(book.rule("ann"), std::nullopt);
  EXPECT_EQ(book.rule("bob"), rule_with(R"({"weight": 2})"));
}

TEST(Book, RefusesWhatIsOutOfBounds) {
  Book book;
  Plan bare;
  EXPECT_EQ(message_of(book.set_plan("bare", bare)),
            "types.other must be given: types that the plan does not name count as it");
  Plan heavy = built_in_plans().at("free");
  heavy.weight = 0;
  EXPECT_EQ(message_of(book.set_plan("heavy", heavy)), "weight must be a number from 0.01 to 1000, got 0");
  EXPECT_EQ(message_of(book.set_plan("a b", built_in_plans().at("free"))),
            "the name of a plan must be 1 to 50 letters, digits, \"-\", \"_\", \".\" or \":\", got \"a b\"");
  UserRule rule;
  rule.plan = "premum";
  EXPECT_EQ(message_of(book.set_rule("ann", rule)), "there is no plan \"premum\", did you mean \"premium\"?");
  rule = {};
  rule.timezone = "Mars";
  EXPECT_NE(message_of(book.set_rule("ann", rule)), "");
  rule = rule_with(R"({"weight": 2})");
  for (const std::string& user : {std::string(), std::string("a\nb"), std::string("\xff"), std::string(513, 'a')}) {
    EXPECT_EQ(message_of(book.set_rule(user, rule)), "user must be 1 to 512 bytes of UTF-8 without control characters");
  }
  for (std::size_t i = book.plans().size(); i < Book::kMostPlans; ++i) {
    ASSERT_TRUE(book.set_plan("p" + std::to_string(i), built_in_plans().at("free")));
  }
  EXPECT_EQ(message_of(book.set_plan("more", built_in_plans().at("free"))),
            "there may be at most 100 plans; delete one first");
  EXPECT_TRUE(book.set_plan("free", built_in_plans().at("premium"))) << "one that exists may still change";
}

TEST(Book, IsSafeToReadWhileItChanges) {
  Book book;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const UserRule one = rule_with(R"({"types": {"deploy": {"daily": 1}}})");
    for (int i = 0; i < 2'000; ++i) {
      EXPECT_TRUE(book.set_rule("ann", i % 2 == 0 ? one : UserRule{}));
      EXPECT_TRUE(book.set_plan("free", built_in_plans().at(i % 3 == 0 ? "premium" : "free")));
    }
    stop = true;
  });
  while (!stop) {
    const auto found = book.find("ann", "", "deploy");
    ASSERT_TRUE(found);
    ASSERT_EQ(found->type, found->ruled ? "deploy" : "other");
    ASSERT_EQ(found->plan, "free");
  }
  writer.join();
}

}  // namespace
}  // namespace headgate::quota
