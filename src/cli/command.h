// One command of the command line, and what all commands share. Exit codes: 0 done, 1 failed, 2 usage error, 3 denied.
// `headgate check` exits with 1 for everything but a decision, including usage errors. `headgate run` has the exit code
// of the command that it runs.
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

// Each declares its arguments under its parent; the returned command owns the parsed values.
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
// Prints an error to standard error; kFailed.
int failed(std::string_view message);
// Prints a usage error; `command` is its path, empty for the program itself. kUsage, or kFailed of "check".
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

// The policies of --policies, or the built-in limits if there are no paths. Problems and notes are printed to standard
// error. False: there are problems.
[[nodiscard]] bool read_policies(const std::vector<std::string>& paths, policy::Document& document);

}  // namespace headgate::cli
