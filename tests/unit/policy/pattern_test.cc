#include "policy/pattern.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace headgate::policy {
namespace {

bool matches(std::initializer_list<std::string> patterns, std::string_view text) {
  return PatternSet(patterns).matches(text);
}

TEST(Glob, StarStandsForAnyRunAndQuestionMarkForOneCharacter) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("ui.*", "ui."));
  EXPECT_TRUE(glob_matches("ui.*", "ui.button.new"));
  EXPECT_FALSE(glob_matches("ui.*", "ui"));
  EXPECT_TRUE(glob_matches("a?c", "abc"));
  EXPECT_FALSE(glob_matches("a?c", "ac"));
  EXPECT_TRUE(glob_matches("*a*b", "xaxbxb"));
  EXPECT_FALSE(glob_matches("*a*b", "xbxa"));
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_FALSE(glob_matches("", "a"));
}

TEST(Glob, NothingElseIsSpecial) {
  EXPECT_TRUE(glob_matches("a[b].+\\*", "a[b].+\\x"));
  EXPECT_FALSE(glob_matches("a[b]", "ab"));
}

TEST(Glob, APatternMadeToBacktrackEnds) {
  const std::string text(2000, 'a');
  EXPECT_FALSE(glob_matches("*a*a*a*a*a*a*a*a*a*a*b", text));
}

// Straight from the definition.
bool obvious(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (std::size_t taken = 0; taken <= text.size(); ++taken) {
      if (obvious(pattern.substr(1), text.substr(taken))) return true;
    }
    return false;
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && obvious(pattern.substr(1), text.substr(1));
}

RC_GTEST_PROP(Glob, AgreesWithItsDefinition, ()) {
  const auto pattern = *rc::gen::container<std::string>(rc::gen::element('a', 'b', '*', '?'));
  const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  const std::string_view short_pattern = std::string_view(pattern).substr(0, 10);
  const std::string_view short_text = std::string_view(text).substr(0, 12);
  RC_ASSERT(glob_matches(short_pattern, short_text) == obvious(short_pattern, short_text));
}

TEST(PatternSet, IsExactWithoutWildcards) {
  EXPECT_TRUE(matches({"run"}, "run"));
  EXPECT_FALSE(matches({"run"}, "runs"));
  EXPECT_FALSE(matches({"run"}, "Run"));
  EXPECT_TRUE(matches({"run", "walk"}, "walk"));
}

TEST(PatternSet, FindsOneOfManyExactValues) {
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back("op" + std::to_string(i * 7 % 100));
  const PatternSet set(many);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(set.matches("op" + std::to_string(i))) << i;
  EXPECT_FALSE(set.matches("op100"));
  EXPECT_FALSE(set.matches("op"));
}

TEST(PatternSet, ASlashAtTheEndIsAPathPrefix) {
  EXPECT_TRUE(matches({"tokens/"}, "tokens/colors.json"));
  EXPECT_TRUE(matches({"tokens/"}, "tokens/"));
  EXPECT_FALSE(matches({"tokens/"}, "tokens"));
  EXPECT_FALSE(matches({"tokens/"}, "tokens2/colors.json"));
  EXPECT_FALSE(matches({"tokens/"}, "a/tokens/colors.json"));
}

TEST(PatternSet, ExceptionsWinWhateverTheirOrder) {
  EXPECT_TRUE(matches({"ui.*", "!ui.secret"}, "ui.button"));
  EXPECT_FALSE(matches({"ui.*", "!ui.secret"}, "ui.secret"));
  EXPECT_FALSE(matches({"!ui.secret", "ui.secret", "ui.*"}, "ui.secret"));
  EXPECT_FALSE(matches({"*", "!tmp/"}, "tmp/x"));
  EXPECT_TRUE(matches({"*", "!tmp/"}, "src/x"));
  EXPECT_FALSE(matches({"ui.*", "!ui.s*"}, "other"));
}

TEST(PatternSet, OnlyExceptionsMeanAnythingElse) {
  EXPECT_TRUE(matches({"!a", "!b*"}, "c"));
  EXPECT_FALSE(matches({"!a", "!b*"}, "a"));
  EXPECT_FALSE(matches({"!a", "!b*"}, "bc"));
}

TEST(PatternSet, NoPatternsAreEmptyAndAnyPatternIsNot) {
  EXPECT_TRUE(PatternSet().empty());
  EXPECT_TRUE(PatternSet(std::vector<std::string>{}).empty());
  EXPECT_FALSE(PatternSet({"*"}).empty());
  EXPECT_FALSE(PatternSet({"!a"}).empty());
  EXPECT_FALSE(PatternSet({"a/"}).empty());
}

TEST(PatternSet, MatchesAllOnlyWithAStarAndNoExceptions) {
  EXPECT_TRUE(PatternSet({"*"}).matches_all());
  EXPECT_TRUE(PatternSet({"a", "*"}).matches_all());
  EXPECT_FALSE(PatternSet({"*", "!a"}).matches_all());
  EXPECT_FALSE(PatternSet({"a*"}).matches_all());
}

RC_GTEST_PROP(PatternSet, WhateverMatchesHasOneOfItsLeads, ()) {
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const auto word = [&](std::string_view letters) {
    std::string text;
    for (std::uint32_t i = 0, size = 1 + random() % 4; i < size; ++i) text += letters[random() % letters.size()];
    return text;
  };
  std::vector<std::string> patterns;
  for (std::uint32_t i = 0, count = 1 + random() % 3; i < count; ++i) {
    patterns.push_back((random() % 5 == 0 ? "!" : "") + word("ab/*?"));
  }
  const PatternSet set(patterns);
  const auto leads = set.leads();
  if (leads.empty()) return;
  for (int i = 0; i < 50; ++i) {
    const std::string text = word("ab/");
    if (!set.matches(text)) continue;
    bool led = false;
    for (const auto& lead : leads) led = led || (lead.whole ? text == lead.text : text.starts_with(lead.text));
    RC_LOG() << text << '\n';
    RC_ASSERT(led);
  }
}

}  // namespace
}  // namespace headgate::policy
