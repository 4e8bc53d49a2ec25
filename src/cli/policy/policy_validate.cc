// `headgate policy validate`: says report every problem in policy files.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/policy/policy_server.h"
#include "policy/rules.h"

namespace headgate::cli {
namespace {

constexpr const char* kHelp = R"(headgate policy validate: report every problem in policy files

Reads files and directories (their *.yaml, *.yml and *.json) as one document,
as the server would, and tells everything that is wrong with it, each problem
as file:line:column: message.

Usage: headgate policy validate [OPTIONS] PATH...

Options:
  --json              problems and notes as one JSON object
  -h, --help          print this

)" HEADGATE_CLI_POLICY_SERVER_HELP R"(
A server is sent one file, or standard input for -, and says whether it would
take it; nothing is put in force.

Exit code: 0 if the policies can be loaded, 1 if not.
)";

struct Options {
  std::vector<std::string> paths;
  bool json = false;
  PolicyServer server;
};

nlohmann::ordered_json problems_json(const std::vector<policy::Problem>& problems) {
  auto all = nlohmann::ordered_json::array();
  for (const policy::Problem& problem : problems) {
    all.push_back({{"file", problem.place.file},
                   {"line", problem.place.line},
                   {"column", problem.place.column},
                   {"message", problem.message}});
  }
  return all;
}

std::string summary(const policy::Document& document) {
  const policy::Rules rules(document, 1);
  std::array<std::size_t, 3> modes{};
  for (const policy::Policy& policy : document.policies) ++modes[static_cast<std::size_t>(policy.mode)];
  std::string text =
      fmt::format("ok: {} polic{}", document.policies.size(), document.policies.size() == 1 ? "y" : "ies");
  const char* separator = " (";
  for (std::size_t mode = 0; mode < modes.size(); ++mode) {
    if (modes[mode] == 0) continue;
    text += fmt::format("{}{} {}", separator, modes[mode], policy::to_string(static_cast<policy::Mode>(mode)));
    separator = ", ";
  }
  if (!document.policies.empty()) text += ")";
  if (document.tier_limits_apply()) text += ", and the tier limits apply";
  return text + "\n";
}

int validate(const Options& options) {
  if (options.paths.empty()) return not_understood("a file or directory of policies is needed", "policy validate");
  if (options.server.wanted()) return validate_by_server(options.server, options.paths, options.json);
  if (!options.json) {
    policy::Document document;
    return read_policies(options.paths, document) ? write(summary(document)) : kFailed;
  }
  const policy::ReadResult read = policy::read_paths(options.paths);
  nlohmann::ordered_json json;
  json["ok"] = read.ok();
  json["policies"] = read.ok() ? read.document.policies.size() : 0;
  json["problems"] = problems_json(read.problems);
  json["notes"] = problems_json(read.notes);
  const int written = write(json_text(json));
  return read.ok() ? written : kFailed;
}

}  // namespace

Command policy_validate_command(Arguments parent) {
  Arguments arguments = parent.command("validate");
  auto options = std::make_shared<Options>();
  arguments.option("paths", options->paths);
  arguments.flag("--json", options->json);
  options->server.add_to(arguments);
  return {"policy validate", kHelp, arguments, [options] { return validate(*options); }};
}

}  // namespace headgate::cli
