#include "cli/run/run_texts.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

TEST(RunTexts, ADenialSaysWhyAndWhen) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  constexpr std::int64_t kNoon = 1'763'294'400'000;  // 2025-11-16 12:00 UTC
  ordered_json answer{{"reason", "Daily quota used up"}, {"retry_after_ms", 11'520'000}};
  EXPECT_EQ(denial_text(JsonFields(answer), kNoon),
            "not run: Daily quota used up; try again in 3h12m (2025-11-16 15:12)");
  answer["retry_after_ms"] = 1'200;
  EXPECT_EQ(denial_text(JsonFields(answer), kNoon), "not run: Daily quota used up; try again in 2s");
  answer["retry_after_ms"] = 0;
  EXPECT_EQ(denial_text(JsonFields(answer), kNoon), "not run: Daily quota used up");
  answer["retry_after_ms"] = -1;
  EXPECT_EQ(denial_text(JsonFields(answer), kNoon), "not run: Daily quota used up; waiting cannot help");
}

TEST(RunTexts, ADenialWithoutAReasonStillSaysSomething) {
  EXPECT_EQ(denial_text(JsonFields(ordered_json{{"error", "queue_full"}}), 0), "not run: queue_full");
  EXPECT_EQ(denial_text(JsonFields(ordered_json::object()), 0), "not run: the server refused it");
  EXPECT_EQ(denial_text(JsonFields(ordered_json{{"reason", "a\033[2Jb"}}), 0), "not run: a?[2Jb");
}

TEST(RunTexts, TheLineTellsPositionAndEstimate) {
  const ordered_json queue = ordered_json::parse(R"({"waiting": 7, "line": [
    {"run": "a", "position": 1, "estimated_start_ms": 900},
    {"run": "b", "position": 3, "estimated_start_ms": 11500},
    {"run": "c", "position": 4, "estimated_start_ms": null}]})");
  EXPECT_EQ(line_text(queue, "b"), "waiting in line: position 3 of 7, about 12s");
  EXPECT_EQ(line_text(queue, "c"), "waiting in line: position 4 of 7");
  EXPECT_EQ(line_text(queue, "nobody"), "waiting in line");
  EXPECT_EQ(line_text(nullptr, "b"), "waiting in line");
}

TEST(RunTexts, ARecordHoldsWhatWasUsed) {
  Execution execution;
  execution.exit_code = 3;
  execution.started_ms = 1'700'000'000'000;
  execution.duration = 2s;
  execution.cpu = 3s;
  execution.peak_bytes = 200u << 20;
  const ordered_json json = record_json({"42", "shell", "s"}, "abc", execution, "", "r1");
  EXPECT_EQ(
      json.dump(),
      R"({"user_id":"42","session_id":"s","command_type":"shell","command_hash":"abc","duration_ms":2000,)"
      R"("cpu_usage_percent":150.0,"memory_usage_mb":200.0,"exit_code":3,"executed_at":1700000000000,"run":"r1"})");
}

TEST(RunTexts, ARecordLeavesOutWhatIsNotKnown) {
  const ordered_json json = record_json({"42", "shell", ""}, "abc", Execution{}, "", "");
  for (const char* field : {"session_id", "memory_usage_mb", "error_message", "run"})
    EXPECT_FALSE(json.contains(field));
  EXPECT_EQ(json["cpu_usage_percent"], 0) << "of a command that took no time";
}

TEST(RunTexts, ASignalIsNamed) {
  Execution execution;
  EXPECT_EQ(end_text(execution), "");
  execution.signal = SIGKILL;
  EXPECT_EQ(end_text(execution), "killed by signal 9 (Killed)");
}

TEST(RunTexts, TheHashIsOfTheWordsWithANulBetween) {
  std::string echo = "echo";
  std::string word = "a b";
  char* command[] = {echo.data(), word.data(), nullptr};
  // printf 'echo\0a b' | sha256sum
  EXPECT_EQ(command_hash(command), "8a0686df3e4c0fb90f27f36d6633321b3c7ebdcb590aca2ad77287c7e15b594b");
  EXPECT_EQ(command_size(command), 8u);
  char* none[] = {nullptr};
  EXPECT_EQ(command_size(none), 0u);
}

}  // namespace
}  // namespace headgate::cli
