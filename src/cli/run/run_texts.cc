#include "cli/run/run_texts.h"

#include <fmt/format.h>
// The functions of old: the new ones first read a configuration and set up providers, which takes longer than the hash.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/json_fields.h"
#include "cli/view/describe.h"
#include "cli/view/terminal.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono_literals;

// To the second: estimates are no more exact.
std::string about_span(double count) { return span_text(std::chrono::ceil<std::chrono::seconds>(milliseconds(count))); }

std::string clock_text(std::int64_t epoch_ms) {
  const std::time_t seconds = epoch_ms / 1000;
  std::tm local{};
  if (::localtime_r(&seconds, &local) == nullptr) return {};
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return {text, size};
}

}  // namespace

std::string denial_text(const JsonFields& answer, std::int64_t now_ms) {
  std::string reason = answer.text("reason");
  if (reason.empty()) reason = answer.text("error");
  if (reason.empty()) reason = "the server refused it";
  std::string text = "not run: " + printable(reason);
  const double retry = answer.number("retry_after_ms");
  if (retry > 0) {
    text += "; try again in " + about_span(retry);
    if (milliseconds(retry) >= 1h) {
      text += fmt::format(" ({})", clock_text(now_ms + milliseconds(retry).count() / 1'000'000));
    }
  } else if (retry < 0) {
    text += "; waiting cannot help";
  }
  return text;
}

std::string line_text(const ordered_json& queue, std::string_view run) {
  std::string text = "waiting in line";
  const JsonFields all(queue);
  for (const ordered_json& entry : all.list("line")) {
    const JsonFields place(entry);
    if (place.text("run") != run) continue;
    text += fmt::format(": position {} of {}", place.count("position"),
                        std::max(all.count("waiting"), place.count("position")));
    if (place.has("estimated_start_ms")) text += ", about " + about_span(place.number("estimated_start_ms"));
  }
  return text;
}

ordered_json record_json(const RunSubject& subject, const std::string& hash, const Execution& execution,
                         const std::string& error, const std::string& run) {
  const double wall = std::max(millis(execution.duration), 0.001);
  ordered_json json;
  json["user_id"] = subject.user;
  if (!subject.session.empty()) json["session_id"] = subject.session;
  json["command_type"] = subject.type;
  json["command_hash"] = hash;
  json["duration_ms"] = static_cast<std::int64_t>(std::llround(millis(execution.duration)));
  const auto rounded = [](double value, double parts) { return std::round(value * parts) / parts; };
  json["cpu_usage_percent"] = rounded(millis(execution.cpu) / wall * 100, 10);
  if (execution.peak_bytes > 0) {
    constexpr double kMegabyte = 1 << 20;
    json["memory_usage_mb"] = rounded(static_cast<double>(execution.peak_bytes) / kMegabyte, 10);
  }
  json["exit_code"] = execution.exit_code;
  if (!error.empty()) json["error_message"] = error;
  json["executed_at"] = execution.started_ms;
  if (!run.empty()) json["run"] = run;
  if (!subject.plan.empty()) json["plan"] = subject.plan;
  return json;
}

std::string end_text(const Execution& execution) {
  if (execution.signal == 0) return {};
  const char* name = ::strsignal(execution.signal);
  return fmt::format("killed by signal {} ({})", execution.signal, name == nullptr ? "unknown" : name);
}

std::string command_hash(char* const* command) {
  SHA256_CTX digest;
  SHA256_Init(&digest);
  for (char* const* word = command; *word != nullptr; ++word) {
    // With its NUL, but for the last.
    SHA256_Update(&digest, *word, std::strlen(*word) + (word[1] == nullptr ? 0 : 1));
  }
  unsigned char bytes[SHA256_DIGEST_LENGTH];
  SHA256_Final(bytes, &digest);
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::size_t command_size(char* const* command) noexcept {
  std::size_t size = 0;
  for (char* const* word = command; *word != nullptr; ++word) size += std::strlen(*word) + 1;
  return size == 0 ? 0 : size - 1;
}

}  // namespace headgate::cli
