// `headgate policy list`: the policies of files or of a server, as a table.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/policy/policy_server.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"
#include "policy/rules.h"

namespace headgate::cli {
namespace {

constexpr const char* kHelp = R"(headgate policy list: list policies in the order of their priority

Usage: headgate policy list [OPTIONS] [PATH...]

Without a path: those of the server of HEADGATE_URL if it answers,
otherwise the built-in tier limits.

Options:
  --policies PATH...  the same as naming the paths alone
  --json              a JSON list with everything about each policy
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_POLICY_SERVER_HELP;

struct Options {
  std::vector<std::string> paths;
  std::vector<std::string> more_paths;
  bool json = false;
  TerminalOptions terminal;
  PolicyServer server;
};

Ink ink_of(policy::Mode mode) {
  if (mode == policy::Mode::kMonitor) return Ink::kYellow;
  return mode == policy::Mode::kOff ? Ink::kDim : Ink::kGreen;
}

int list(const Options& options) {
  std::vector<std::string> paths = options.paths;
  paths.insert(paths.end(), options.more_paths.begin(), options.more_paths.end());
  if (options.server.wanted() || (paths.empty() && options.server.answers())) {
    if (!paths.empty()) return not_understood("files and a server cannot both be listed", "policy list");
    return list_from_server(options.server, {options.json, options.terminal.terminal()});
  }
  policy::Document document;
  if (!read_policies(paths, document)) return kFailed;
  const policy::Rules rules(std::move(document), 1);
  if (options.json) {
    auto json = nlohmann::ordered_json::array();
    for (const policy::Policy& policy : rules.policies()) json.push_back(policy_json(policy));
    return write(json_text(json));
  }
  Table table({{"ID"}, {"MODE"}, {"MATCH"}, {"KEY"}, {"LIMIT"}, {"ACTION"}});
  for (const policy::Policy& policy : rules.policies()) {
    table.add({{policy.id, Ink::kBold},
               {policy::to_string(policy.mode), ink_of(policy.mode)},
               {match_text(policy)},
               {key_text(policy)},
               {limit_text(policy)},
               {policy.behavior == policy::Behavior::kQueue ? "queue" : policy::to_string(policy.action)}});
  }
  if (table.empty()) return write("no policies\n");
  return write(table.text(options.terminal.terminal()));
}

}  // namespace

Command policy_list_command(Arguments parent) {
  Arguments arguments = parent.command("list");
  auto options = std::make_shared<Options>();
  arguments.option("paths", options->paths);
  arguments.option("--policies", options->more_paths);
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->server.add_to(arguments);
  return {"policy list", kHelp, arguments, [options] { return list(*options); }};
}

}  // namespace headgate::cli
