#include "observe/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

namespace headgate::observe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr Nanos kTime = 1'794'801'906'789ms;  // 2026-11-16T04:05:06.789Z

// What each test sets up is undone after it.
class LogTest : public testing::Test {
 protected:
  ~LogTest() override { set_up_log({}); }
};

TEST(LogLine, TextReadsWell) {
  EXPECT_EQ(format_line({.time = kTime,
                         .event = "policies reloaded",
                         .fields = {{"version", std::int64_t{3}}, {"policies", std::int64_t{12}}}},
                        LogFormat::kText, false),
            "2026-11-16T04:05:06.789Z info  policies reloaded version=3 policies=12");
  EXPECT_EQ(
      format_line({.time = 0s,
                   .level = LogLevel::kError,
                   .event = "x",
                   .fields = {{"text", "two words"}, {"empty", ""}, {"half", 0.5}, {"on", true}, {"word", "a-b"}}},
                  LogFormat::kText, false),
      "1970-01-01T00:00:00.000Z error x text=\"two words\" empty=\"\" half=0.5 on=true word=a-b");
}

TEST(LogLine, JsonIsOneObjectWithTypedFields) {
  const std::string line = format_line({.time = kTime,
                                        .level = LogLevel::kWarn,
                                        .event = "store trouble",
                                        .fields = {{"why", "no \"room\""},
                                                   {"count", std::int64_t{-1}},
                                                   {"share", 0.25},
                                                   {"nothing", std::numeric_limits<double>::quiet_NaN()},
                                                   {"ok", false}}},
                                       LogFormat::kJson, true);
  EXPECT_EQ(line, R"({"time":"2026-11-16T04:05:06.789Z","level":"warn","event":"store trouble","why":"no \"room\"",)"
                  R"("count":-1,"share":0.25,"nothing":null,"ok":false})");
  EXPECT_EQ(nlohmann::json::parse(line)["why"], "no \"room\"");
}

TEST(LogLine, NothingFromOutsideCanForgeALine) {
  const std::string evil = "a\n2026 error forged\r\x1b[31m\x7f \xC2\x85 \xE2\x80\xA8 \xff \xC3 \xED\xA0\x80 \u00e9";
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line = format_line({.time = kTime, .event = evil, .fields = {{"agent", evil}}}, format, false);
    for (const char c : line) EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f) << line;
    EXPECT_EQ(line.find("\xC2\x85"), std::string::npos);
    EXPECT_EQ(line.find("\xE2\x80\xA8"), std::string::npos);
    EXPECT_EQ(line.find('\xff'), std::string::npos);
    EXPECT_THAT(line, HasSubstr("\\n2026"));
    EXPECT_THAT(line, HasSubstr("\\u001b[31m\\u007f \\u0085 \\u2028 \\ufffd"));
    EXPECT_THAT(line, HasSubstr("\u00e9")) << "other languages stay readable";
  }
  const std::string line =
      format_line({.time = kTime, .event = "x", .fields = {{"agent", evil}}}, LogFormat::kJson, false);
  EXPECT_THAT(std::string(nlohmann::json::parse(line)["agent"]), HasSubstr("a\n2026 error forged\r\x1b[31m"));
  EXPECT_THAT(
      format_line({.time = kTime, .event = "x", .fields = {{"agent", "a=1 level=error"}}}, LogFormat::kText, false),
      HasSubstr("agent=\"a=1 level=error\""));
}

TEST_F(LogTest, WritesOneLineToStandardErrorForEachEventThatIsOfInterest) {
  set_up_log({.level = LogLevel::kWarn, .format = LogFormat::kJson});
  EXPECT_FALSE(logs(LogLevel::kInfo));
  EXPECT_TRUE(logs(LogLevel::kWarn));
  testing::internal::CaptureStderr();
  log(LogLevel::kInfo, "not of interest");
  log(LogLevel::kWarn, "first", {{"n", std::int64_t{1}}});
  log(LogLevel::kError, "second {}");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2) << out;
  EXPECT_THAT(out, HasSubstr(R"("level":"warn","event":"first","n":1})"));
  EXPECT_THAT(out, HasSubstr(R"("event":"second {}"})"));
}

TEST_F(LogTest, OffIsOff) {
  set_up_log({.level = LogLevel::kOff});
  EXPECT_FALSE(logs(LogLevel::kError));
  EXPECT_FALSE(logs(LogLevel::kOff));
}

TEST_F(LogTest, LinesOfConcurrentThreadsDoNotMix) {
  set_up_log({.format = LogFormat::kJson});
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log(LogLevel::kInfo, "line", {{"thread", std::int64_t{t}}, {"pad", "xxxxxxxxxx"}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream out(testing::internal::GetCapturedStderr());
  int lines = 0;
  for (std::string line; std::getline(out, line); ++lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_EQ(lines, 400);
}

TEST(LogLevel, ReadsWhatItWrites) {
  EXPECT_EQ(log_level_of("warn"), LogLevel::kWarn);
  EXPECT_EQ(log_level_of("loud"), std::nullopt);
  EXPECT_EQ(log_format_of("json"), LogFormat::kJson);
  EXPECT_EQ(log_format_of("xml"), std::nullopt);
}

}  // namespace
}  // namespace headgate::observe
