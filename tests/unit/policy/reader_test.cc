#include "policy/reader.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "unit/policy/reading.h"

namespace headgate::policy::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
namespace fs = std::filesystem;

class ReadPaths : public testing::Test {
 protected:
  ReadPaths() : folder_(fs::temp_directory_path() / ("headgate-reader-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ReadPaths() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  [[nodiscard]] std::string path(const std::string& name = "") const {
    return name.empty() ? folder_.string() : (folder_ / name).string();
  }
  // Problems, with the folder left out.
  [[nodiscard]] std::vector<std::string> problems_of(const std::vector<std::string>& paths) const {
    auto lines = texts(read_paths(paths).problems);
    for (std::string& line : lines) {
      for (std::size_t at = 0; (at = line.find(path())) != std::string::npos;) line.replace(at, path().size(), "D");
    }
    return lines;
  }

 private:
  fs::path folder_;
};

TEST_F(ReadPaths, ADirectoryIsOneDocumentInOrderOfName) {
  write("b.yml", "policies: [{id: b, limit: 1/s}]");
  write("a.yaml", "policies: [{id: a, limit: 1/s}]\nmode: monitor");
  write("c.json",
        R"({"globalPolicies": [{"id": "c", "strategy": "SLIDING_WINDOW", "maxRequests": 1, "timeWindow": 1}]})");
  write("d.txt", "not read");
  const ReadResult result = read_paths({path()});
  EXPECT_TRUE(result.ok());
  std::vector<std::string> ids;
  for (const Policy& each : result.document.policies) ids.push_back(each.id);
  EXPECT_THAT(ids, ElementsAre("a", "b", "c"));
  EXPECT_EQ(result.document.mode, Mode::kMonitor);
  EXPECT_EQ(result.document.policies[1].place.file, path("b.yml"));
}

TEST_F(ReadPaths, SettingsGivenTwiceMustBeEqual) {
  write("a.yaml", "mode: monitor\nbackoff: {quiet: 60s}\n");
  write("b.yaml", "mode: off\nbackoff: {quiet: 60s}\n");
  EXPECT_THAT(problems_of({path()}),
              ElementsAre("D/b.yaml:1:1: mode must be given once, is also given at D/a.yaml:1:1"));
}

TEST_F(ReadPaths, IdsAreUniqueAcrossFilesAndLevelsAreShared) {
  write("a.yaml", "policies: [{id: a, limit: 1/s, match: {attributes: {max_heat: warm}}}]");
  write("b.yaml", "levels: [[cold, warm, hot]]\npolicies: [{id: a, limit: 1/s}]");
  EXPECT_THAT(problems_of({path()}),
              ElementsAre("D/b.yaml:2:12: policy \"a\": id must be unique, is also given at D/a.yaml:1:12"));
}

TEST_F(ReadPaths, WhatCannotBeReadIsNamed) {
  fs::create_directory(path("empty"));
  EXPECT_THAT(problems_of({path("none.yaml"), path("empty"), "/dev/null"}),
              ElementsAre("/dev/null: must be a file or a directory",
                          "D/empty: must have at least one *.yaml, *.yml or "
                          "*.json file, has none",
                          "D/none.yaml: must be a file or a directory, is not there"));
}

TEST_F(ReadPaths, LargeFilesAreRefusedUnread) {
  const std::string large = write("large.yaml", "");
  fs::resize_file(large, std::uintmax_t{50} << 20);
  EXPECT_THAT(problems_of({large}), ElementsAre("D/large.yaml: must be at most 16 MiB, is 50 MiB"));
}

TEST(ReadText, ADocumentWithoutAnyKeyIsAMistake) {
  for (const char* text : {"", "{}", "# nothing\n", "---\n", "\xEF\xBB\xBF", "---\n---\n"}) {
    EXPECT_EQ(problems(text),
              "1:1: the document has no keys; write policies: [] if there are to be no policies of its own");
  }
  EXPECT_EQ(document("policies: []\n---\n").policies.size(), 0U) << "one document of a stream may be empty";
  EXPECT_TRUE(document("mode: enforce").tier_limits_apply());
  EXPECT_FALSE(document("policies: []").tier_limits_apply());
  EXPECT_TRUE(document("policies: []\ntiers: {}").tier_limits_apply());
}

TEST(ReadText, AStreamOfDocumentsIsOneDocument) {
  const Document read = document("policies: [{id: a, limit: 1/s}]\n---\npolicies: [{id: b, limit: 1/s}]\n");
  EXPECT_EQ(read.policies.size(), 2U);
  EXPECT_EQ(problems("mode: off\n---\nmode: monitor\n"), "3:1: mode must be given once, is also given at f:1:1");
}

TEST(ReadText, BrokenTextIsOneProblem) {
  EXPECT_EQ(problems("a:\n  b: [1"), "2:8: cannot be read as YAML or JSON: end of sequence flow not found");
  EXPECT_EQ(problems("mode: off\n\xFFx"), "2:1: must be UTF-8 text, got byte 0xff");
  EXPECT_EQ(problems(std::string("mode: off\0", 10)), "1:10: must be UTF-8 text, got byte 0x00");
  EXPECT_EQ(problems("mode: off\n\x04policies: 5"), "2:1: must be UTF-8 text, got byte 0x04");
  EXPECT_EQ(problems(std::string((16 << 20) + 1, ' ')), " must be at most 16 MiB, is 16.1 MiB");
}

TEST(ReadText, DuplicateKeysNameBothLines) {
  EXPECT_EQ(problems("mode: off\nexempt: []\nmode: off\nbackof: {}\n"),
            "3:1: key \"mode\" is given twice, first on line 1\n"
            "4:1: unknown key \"backof\" in the document; did you mean \"backoff\"?");
  EXPECT_EQ(problems("? [a]\n: b\n"), "1:3: a key must be text, got a list");
}

TEST(ReadText, DepthIsBounded) {
  const auto nested = [](std::size_t depth) { return "x: " + std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(problems(nested(31)).substr(0, 18), "1:1: unknown key \"");
  EXPECT_EQ(problems(nested(32)), "1:35: must be nested at most 32 deep");
  EXPECT_THAT(problems(std::string(1'000'000, '[')), testing::EndsWith("must be nested at most 32 deep"));
  EXPECT_EQ(problems(std::string(100'000, '-')).substr(0, 30), "1:1: the document must be a ma");
  std::string block;
  for (int i = 0; i < 5'000; ++i) block += "- ";
  EXPECT_EQ(problems(block), "1:65: must be nested at most 32 deep");
  std::string keys;
  for (int i = 0; i < 5'000; ++i) keys += "? ";
  EXPECT_EQ(problems(keys), "1:65: must be nested at most 32 deep");
}

TEST(ReadText, AliasesAreReadAndTheirBombsRefused) {
  EXPECT_EQ(document("policies:\n- {id: a, limit: &l [1/s, 5/min]}\n- {id: b, limit: *l}\n").policies[1].limits.size(),
            2U);
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j == 0 ? "" : ",") + before;
    bomb += "]\n";
  }
  EXPECT_THAT(problems(bomb), testing::HasSubstr("must have at most 2000000 values, with aliases counted"));
  EXPECT_EQ(problems("a: &a [*a]"), "1:8: an alias must not stand inside what it stands for");
  EXPECT_THAT(problems("a: *b"), testing::HasSubstr("cannot be read as YAML or JSON"));
}

TEST(ReadText, ProblemsAreCutAtAHundred) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "key" + std::to_string(i) + "zzzzzzzzzzz: 1\n";
  const auto found = read_text(text, "f").problems;
  ASSERT_EQ(found.size(), kMaxProblems + 1);
  EXPECT_EQ(found.front().place.line, 1);
  EXPECT_EQ(found[99].place.line, 100);
  EXPECT_EQ(found.back().text(), "and 19900 more problems");
}

TEST(Settings, AllAreRead) {
  const Document read = document(R"(version: 1
enforcement: strict
mode: off
tiers:
  light: {capacity: 5, refill_per_minute: 6}
  registration: {capacity: 2}
  operations: {heavy: [burn], light: []}
backoff: {steps: [1s, 3s], quiet: 2m, enforced: true}
adaptive: {enabled: false, high: 70%, low: 0.2, dwell: 5s, auto_emergency: false}
leases: {ttl: 10s}
queue: {max_waiting: 5}
exempt: [dashboard, A]
)");
  EXPECT_EQ(read.mode, Mode::kOff);
  EXPECT_TRUE(read.has_tiers);
  EXPECT_EQ(read.tiers.limits[0], (TierLimit{5, 6}));
  EXPECT_EQ(read.tiers.limits[1], (TierLimit{60, 60}));
  EXPECT_EQ(read.tiers.registration, (TierLimit{2, 5}));
  EXPECT_THAT(read.tiers.operations[2], ElementsAre("burn"));
  EXPECT_TRUE(read.tiers.operations[0].empty());
  EXPECT_THAT(read.backoff.steps, ElementsAre(1s, 3s));
  EXPECT_EQ(read.backoff.quiet, 2min);
  EXPECT_TRUE(read.backoff.enforced);
  EXPECT_FALSE(read.adaptive.enabled);
  EXPECT_EQ(read.adaptive.high, 0.7);
  EXPECT_EQ(read.leases.ttl, 10s);
  EXPECT_EQ(read.queue.max_waiting, 5U);
  EXPECT_THAT(read.exempt, ElementsAre("dashboard", "A"));
}

TEST(Settings, BadOnesAreRefusedWhereTheyStand) {
  EXPECT_EQ(problems(R"(version: 2
tiers: {light: {capacity: 0}, medium: {}}
backoff: {steps: [2s, 1s], quiet: 0s}
adaptive: {high: 1.5, low: 0.9}
leases: {ttl: 0}
queue: {max_waiting: 0}
exempt: [[a]]
levels: [[a, a], b]
)"),
            R"(1:10: version must be 1, got 2
2:27: tiers.light: capacity must be between 1 and 1000000000, got 0
2:31: tiers: unknown key "medium" in tiers; it takes light, normal, heavy, unidentified, registration and operations
3:23: backoff: each of steps must be at least the one before, got 1s
3:35: backoff: quiet must be between 1s and 7d, got 0s
4:18: adaptive: high must be between 0.01 and 1, got 1.5
4:28: adaptive: low must be between 0 and 0.8, got 0.9
5:15: leases: ttl must be between 1ms and 10y, got 0
6:22: queue: max_waiting must be between 1 and 10000000, got 0
7:10: each of exempt must be text, got a list
8:14: a level must be given once, got "a" again
8:18: each of levels must be a list of 2 to 64 words from low to high, got "b")");
}

TEST(Attributes, EveryFormIsRead) {
  const Policy p = policy(with(R"(match:
  attributes:
    any: [a, 3, true]
    word: b
    number: 3.5
    flag: false
    range: {min: 1, max: 2.5}
    gone: ~
    max_size: 10
    min_risk: high
    max_tokens: {min: 5}
)"));
  using Kind = AttributeRule::Kind;
  const auto& rules = p.match.attributes;
  ASSERT_EQ(rules.size(), 9U);
  EXPECT_THAT(rules[0].patterns, ElementsAre("a", "3", "true"));
  EXPECT_THAT(rules[1].patterns, ElementsAre("b"));
  EXPECT_THAT(rules[2].patterns, ElementsAre("3.5"));
  EXPECT_EQ(rules[3].kind, Kind::kBoolean);
  EXPECT_FALSE(rules[3].boolean);
  EXPECT_EQ(rules[4].kind, Kind::kRange);
  EXPECT_EQ(rules[4].min, 1.0);
  EXPECT_EQ(rules[4].max, 2.5);
  EXPECT_EQ(rules[5].kind, Kind::kAbsent);
  EXPECT_THAT(rules[6].names, ElementsAre("size"));
  EXPECT_EQ(rules[6].max, 10.0);
  EXPECT_THAT(rules[7].patterns, ElementsAre("high", "critical"));
  EXPECT_THAT(rules[8].names, ElementsAre("max_tokens"));
}

TEST(Attributes, BadOnesAreRefused) {
  EXPECT_EQ(
      problems(with("match: {attributes: {max_size: enormous, a: {}, b: {min: 2, max: 1}, c: [], d: [\"!\"]}}")),
      R"(4:36: policy "p": max_size must be a number or a level of [low, medium, high, critical], [small, medium, large, huge], [simple, medium, complex], got "enormous"
4:49: policy "p": the range of a must have min or max
4:56: policy "p": the range of b must have min at most max, got 2 and 1
4:77: policy "p": c must have 1 to 10000 patterns, got 0; leave it out to match all
4:85: policy "p": each of d must have something after the "!")");
}

TEST(Tiers, BecomePoliciesForAgentsAndAddresses) {
  const auto policies = tier_policies(default_tiers());
  ASSERT_EQ(policies.size(), 5U);
  EXPECT_EQ(policies[0].id, "tier-light");
  EXPECT_EQ(policies[0].limits.at(0), *Limit::token_bucket({120, {120, 60s}, 0}));
  EXPECT_THAT(policies[0].match.agents, ElementsAre("*"));
  EXPECT_EQ(policies[2].tier, Tier::kHeavy);
  EXPECT_TRUE(policies[3].match.unidentified);
  EXPECT_THAT(policies[3].match.operations,
              ElementsAre("!register", "!registration", "!onboard_register", "!post_onboard_register"));
  EXPECT_THAT(policies[4].key, ElementsAre(KeyPart{Dimension::kIp, {}}));
  EXPECT_EQ(policies[4].limits.at(0).limit(), 5);
}

}  // namespace
}  // namespace headgate::policy::test
