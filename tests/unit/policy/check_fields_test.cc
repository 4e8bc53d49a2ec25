#include "policy/check_fields.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/same_text.h"

namespace headgate::policy {
namespace {

std::string reads(const Value& value) { return std::string(ValueText(value).view()); }

const base::Hasher kHasher(1);
constexpr LooksAt kAll{~std::uint32_t{0}, ~std::uint64_t{0}};

TEST(ValueText, NumbersReadAsPeopleWriteThem) {
  EXPECT_EQ(reads(3), "3");
  EXPECT_EQ(reads(3.0), "3");
  EXPECT_EQ(reads(0.1), "0.1");
  EXPECT_EQ(reads(-2.5), "-2.5");
  EXPECT_EQ(reads(-0.0), "0");
  EXPECT_EQ(reads(true), "true");
  EXPECT_EQ(reads(false), "false");
  EXPECT_EQ(reads("3.0"), "3.0") << "text is as it is";
}

// JSON's 100000 must be the same key as the text "100000", or the kind of a value would be a way around a limit.
TEST(ValueText, LargeWholeNumbersReadAsTheirDigits) {
  EXPECT_EQ(reads(100000), "100000");
  EXPECT_EQ(reads(1'000'000), "1000000");
  EXPECT_EQ(reads(1e15), "1000000000000000");
  EXPECT_EQ(reads(-200000), "-200000");
  EXPECT_EQ(reads(9007199254740991.0), "9007199254740991");
}

RC_GTEST_PROP(ValueText, AWholeNumberReadsAsItsDigits, ()) {
  const auto number = *rc::gen::inRange<std::int64_t>(-9007199254740991, 9007199254740991);
  RC_ASSERT(reads(static_cast<double>(number)) == std::to_string(number));
  const auto round = (number % 1000) * 100'000;
  RC_ASSERT(reads(static_cast<double>(round)) == std::to_string(round));
}

RC_GTEST_PROP(ValueText, AnyNumberIsGivenBack, (double number)) {
  if (!std::isfinite(number)) return;
  const std::string text = reads(number);
  RC_ASSERT(number_of(Value(text)) == std::optional<double>(number));
}

TEST(ValueText, TheLongestNumbersFit) {
  EXPECT_EQ(number_of(Value(reads(-std::numeric_limits<double>::min()))), -std::numeric_limits<double>::min());
  EXPECT_EQ(number_of(Value(reads(std::numeric_limits<double>::max()))), std::numeric_limits<double>::max());
  EXPECT_EQ(number_of(Value(reads(-1.2345678901234567e-300))), -1.2345678901234567e-300);
}

TEST(NumberOf, TakesTextOnlyIfAllOfItIsAFiniteNumber) {
  EXPECT_EQ(number_of(Value("3")), 3);
  EXPECT_EQ(number_of(Value("-2.5e3")), -2500);
  EXPECT_FALSE(number_of(Value("3 apples")));
  EXPECT_FALSE(number_of(Value("")));
  EXPECT_FALSE(number_of(Value("inf")));
  EXPECT_FALSE(number_of(Value("nan")));
  EXPECT_FALSE(number_of(Value(true)));
}

TEST(Fields, GivesEveryDimensionItsOwnText) {
  Check check;
  check.operation = "o";
  check.agent = "a";
  check.session = "s";
  check.user = "u";
  check.tenant = "t";
  check.plan = "p";
  check.channel = "c";
  check.ip = "i";
  check.context = "x";
  check.resource = "r";
  Fields fields(check, kHasher);
  fields.set_tier(Tier::kHeavy);
  const std::pair<Dimension, std::string_view> expected[] = {
      {Dimension::kAgent, "a"},   {Dimension::kSession, "s"},   {Dimension::kUser, "u"},     {Dimension::kTenant, "t"},
      {Dimension::kPlan, "p"},    {Dimension::kOperation, "o"}, {Dimension::kTier, "heavy"}, {Dimension::kChannel, "c"},
      {Dimension::kContext, "x"}, {Dimension::kResource, "r"},  {Dimension::kIp, "i"}};
  for (const auto& [dimension, text] : expected) {
    EXPECT_EQ(fields.text(dimension), text) << to_string(dimension);
    EXPECT_TRUE(fields.hash(dimension) == kHasher(text)) << to_string(dimension);
    EXPECT_TRUE(fields.hash(dimension) == kHasher(text)) << "a second time";
  }
}

TEST(Fields, AttributesOfOneNameCountOnce) {
  const Attribute attributes[] = {{"x", 1}, {"x", 2}, {"y", "text"}};
  Check check;
  check.attributes = attributes;
  const Fields fields(check, kHasher);
  ASSERT_NE(fields.attribute("x"), nullptr);
  EXPECT_EQ(fields.attribute("x")->number, 1);
  EXPECT_EQ(fields.attribute("z"), nullptr);
}

TEST(Fields, ValuesThatReadTheSameHashTheSame) {
  const Check check;
  const Fields fields(check, kHasher);
  const Value three(3), exact(3.0), text("3"), other("3.5"), large(100000), large_text("100000");
  EXPECT_TRUE(fields.hash(&three) == fields.hash(&exact));
  EXPECT_TRUE(fields.hash(&three) == fields.hash(&text));
  EXPECT_FALSE(fields.hash(&three) == fields.hash(&other));
  EXPECT_TRUE(fields.hash(&large) == fields.hash(&large_text));
}

// Checks that matching might treat differently are never taken for one another.
TEST(Fields, EachThingThatACheckSaysGivesItAnotherIdentity) {
  std::set<std::uint64_t> seen;
  std::set<std::string> written;
  std::string before;
  std::size_t said = 0;
  const auto say = [&](const Check& check, std::uint64_t number = 1, std::optional<Tier> tier = {}) {
    Fields fields(check, kHasher);
    if (tier) fields.set_tier(*tier);
    EXPECT_EQ(fields.identity(number, kAll), fields.identity(number, kAll));
    seen.insert(fields.identity(number, kAll));
    ++said;
    std::array<char, 256> bytes{};
    const std::string_view told(bytes.data(), fields.write(kAll, bytes.data(), bytes.size()));
    ASSERT_FALSE(told.empty());
    EXPECT_TRUE(fields.reads_as(kAll, told));
    EXPECT_FALSE(fields.reads_as(kAll, told.substr(0, told.size() - 1)));
    const bool is_new = written.emplace(told).second;
    EXPECT_TRUE(is_new || number != 1) << "another check is written alike";
    EXPECT_TRUE(before.empty() || fields.reads_as(kAll, before) == (before == told));
    before = told;
    EXPECT_EQ(fields.write(kAll, bytes.data(), told.size() - 1), 0U) << "it does not fit";
  };
  Check plain;
  plain.operation = "run";
  say(plain);
  say(plain, 2);
  for (const Tier tier : {Tier::kLight, Tier::kNormal, Tier::kHeavy}) say(plain, 1, tier);
  for (const auto field : {&Check::agent, &Check::session, &Check::user, &Check::tenant, &Check::plan, &Check::channel,
                           &Check::ip, &Check::context, &Check::resource, &Check::operation}) {
    std::string text;
    for (int size = 1; size <= 70; ++size) {
      text += 'a';
      Check check = plain;
      check.*field = text;
      say(check);
    }
    // One letter differs, wherever it is.
    for (char& letter : text) {
      letter = 'b';
      Check check = plain;
      check.*field = text;
      say(check);
      letter = 'a';
    }
  }
  const std::vector<std::vector<Attribute>> attributes{{{"a", "b"}},
                                                       {{"ab", ""}},
                                                       {{"", "ab"}},
                                                       {{"a", 1}},
                                                       {{"a", 2}},
                                                       {{"a", true}},
                                                       {{"a", false}},
                                                       {{"a", "true"}},
                                                       {{"a", ""}},
                                                       {{"b", "a"}},
                                                       {{"a", "1"}},
                                                       {{"a", 0}},
                                                       {{"a", "b"}, {"a", "b"}},
                                                       {{"a", "b"}, {"c", "d"}},
                                                       {{"c", "d"}, {"a", "b"}},
                                                       {{"a", "c"}, {"b", "d"}},
                                                       {{"a", "bc"}, {"", "d"}}};
  for (const std::vector<Attribute>& each : attributes) {
    Check check = plain;
    check.attributes = each;
    say(check);
  }
  EXPECT_EQ(seen.size(), said);
}

TEST(Fields, ATextOfMoreThan255BytesIsNotWritten) {
  const std::string longest(255, 'a');
  const std::string longer(256, 'a');
  std::array<char, 1024> bytes{};
  Check check;
  check.agent = longest;
  EXPECT_GT(Fields(check, kHasher).write(kAll, bytes.data(), bytes.size()), 255U);
  check.agent = longer;
  EXPECT_EQ(Fields(check, kHasher).write(kAll, bytes.data(), bytes.size()), 0U);
}

TEST(Fields, WhatNobodyLooksAtIsNoPartOfAnIdentity) {
  const std::array<Attribute, 1> attributes{{{"a", "b"}}};
  Check one;
  one.operation = "run";
  one.agent = "A";
  Check other = one;
  other.session = "s";
  other.attributes = attributes;
  const auto identity = [](const Check& check, std::uint32_t dimensions, std::string_view attribute = {}) {
    const std::uint64_t hint = attribute.empty() ? 0 : base::hint_of(attribute);
    return Fields(check, kHasher).identity(1, {dimensions, hint});
  };
  const std::uint32_t agent = bit_of(Dimension::kAgent);
  EXPECT_EQ(identity(one, agent), identity(other, agent));
  EXPECT_NE(identity(one, agent), identity(one, bit_of(Dimension::kOperation)));
  EXPECT_NE(identity(one, agent | bit_of(Dimension::kSession)), identity(other, agent | bit_of(Dimension::kSession)));
  const std::uint32_t with_attributes = agent | bit_of(Dimension::kAttribute);
  EXPECT_NE(identity(one, with_attributes, "a"), identity(other, with_attributes, "a"));
  EXPECT_EQ(identity(one, with_attributes, "other"), identity(other, with_attributes, "other"));
}

}  // namespace
}  // namespace headgate::policy
