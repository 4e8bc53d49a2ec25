// One command of the command line, and what all of them share. Exit codes: 0 done, 1 could not, 2 was not understood,
// 3 was denied. `headgate check` has promised scripts 1 for whatever is no answer, so that is what it says of arguments
// it does not understand, too. `headgate run` has those of the command that it runs.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/view/terminal.h"
#include "policy/reader.h"

namespace headgate::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kNotAllowed = 3;

// `help` is the one place where a command is described: the list of commands, completions and the manual are made from
// it (see catalogue.h for its form).
struct Command {
  std::string path;  // "policy validate"
  const char* help;
  Arguments arguments;
  std::function<int()> run;  // returns the exit code
};

// Each command adds itself, under its parent, and keeps what it was told in what it returns.
[[nodiscard]] Command serve_command(Arguments parent);
[[nodiscard]] Command check_command(Arguments parent);
[[nodiscard]] Command status_command(Arguments parent);
[[nodiscard]] Command top_command(Arguments parent);
// `command` is what follows "--", ending with a null pointer; null if there is no "--". It is set before it is run.
[[nodiscard]] Command run_command(Arguments parent, char** const& command);
[[nodiscard]] Command bench_command(Arguments parent);
[[nodiscard]] Command emergency_on_command(Arguments parent);
[[nodiscard]] Command emergency_off_command(Arguments parent);
[[nodiscard]] Command emergency_status_command(Arguments parent);
[[nodiscard]] Command token_create_command(Arguments parent);
[[nodiscard]] Command token_list_command(Arguments parent);
[[nodiscard]] Command token_revoke_command(Arguments parent);
[[nodiscard]] Command quota_status_command(Arguments parent);
[[nodiscard]] Command quota_set_command(Arguments parent);
[[nodiscard]] Command quota_set_plan_command(Arguments parent);
[[nodiscard]] Command quota_plans_command(Arguments parent);
[[nodiscard]] Command quota_history_command(Arguments parent);
[[nodiscard]] Command quota_report_command(Arguments parent);
[[nodiscard]] Command quota_queue_command(Arguments parent);
[[nodiscard]] Command policy_validate_command(Arguments parent);
[[nodiscard]] Command policy_list_command(Arguments parent);
[[nodiscard]] Command policy_explain_command(Arguments parent);
[[nodiscard]] Command policy_versions_command(Arguments parent);
[[nodiscard]] Command policy_rollback_command(Arguments parent);
[[nodiscard]] Command simulate_command(Arguments parent);
[[nodiscard]] Command tune_command(Arguments parent);
[[nodiscard]] Command demo_command(Arguments parent);

// To standard output, as one write where it takes that; kFailed, with a message, if it cannot be written.
int write(std::string_view text);
// Could not: one line on standard error.
int failed(std::string_view message);
// Was not understood; `command` is its path, empty for the program itself. kUsage, or kFailed of "check".
int not_understood(std::string_view message, std::string_view command);

// --width and --no-color.
struct TerminalOptions {
  int width = 0;  // 0: what the terminal has
  bool no_color = false;
  void add_to(Arguments arguments);
  [[nodiscard]] Terminal terminal() const;
};

// One line of JSON; bytes that are not UTF-8 are replaced.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& json);

// Accepts whole numbers of this range.
[[nodiscard]] ValueCheck between(int least, int most);

// What --policies names, or the built-in limits if it names nothing. False: everything wrong with it has been told on
// standard error. Notes are told there, too.
[[nodiscard]] bool read_policies(const std::vector<std::string>& paths, policy::Document& document);

}  // namespace headgate::cli
