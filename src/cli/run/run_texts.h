// What `headgate run` tells people and the server: functions of their arguments alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/json_fields.h"
#include "cli/run/supervisor.h"

namespace headgate::cli {

// Why a command may not run, and when it may: "not run: Daily quota of 500 shell commands is used up; try again in
// 3h12m". `now_ms` is the wall clock; what is far off has the time of day as well.
[[nodiscard]] std::string denial_text(const JsonFields& answer, std::int64_t now_ms);

// "waiting in line: position 3 of 7, about 12s"; without a position if the line does not have that run.
[[nodiscard]] std::string line_text(const nlohmann::ordered_json& queue, std::string_view run);

// Who runs what, as it is checked and recorded.
struct RunSubject {
  std::string user;
  std::string type;
  std::string session{};  // empty: none
  std::string plan{};     // empty: the server knows it
};

// The body of POST /api/quotas/executions. `run` may be empty.
[[nodiscard]] nlohmann::ordered_json record_json(const RunSubject& subject, const std::string& hash,
                                                 const Execution& execution, const std::string& error,
                                                 const std::string& run);

// "killed by signal 9 (Killed)".
[[nodiscard]] std::string end_text(const Execution& execution);

// SHA-256 of the words, with a NUL between each two, as 64 hex digits.
[[nodiscard]] std::string command_hash(char* const* command);
// As a shell would have it: the words with a blank between each two.
[[nodiscard]] std::size_t command_size(char* const* command) noexcept;

}  // namespace headgate::cli
