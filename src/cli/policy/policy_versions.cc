// `headgate policy versions` and `policy rollback`: what a server's policies have been.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/rfc3339.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kVersionsHelp = R"(headgate policy versions: list versions of the server's policies

Usage: headgate policy versions [OPTIONS]

Options:
  --json              print the server's answer as it is
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kRollbackHelp = R"(headgate policy rollback: restore an earlier version of the policies

Usage: headgate policy rollback [OPTIONS] VERSION

Options:
  --json              print the server's answer as it is
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kPath = "/api/admin/policies";

struct Options {
  ClientOptions client;
  std::int64_t version = 0;
  bool json = false;
  TerminalOptions terminal;
};

int versions(const Options& options) {
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer = client->json("GET", std::string(kPath) + "/versions");
  if (!answer) return failed(answer.error().message);
  if (options.json) return write(client->received());
  Table table({{"VERSION", Table::Align::kRight}, {"TIME"}, {"WHO"}, {"SOURCE"}, {"NOTE"}});
  for (const ordered_json& json : JsonFields(*answer).list("versions")) {
    const JsonFields version(json);
    const auto at = std::chrono::milliseconds{static_cast<std::int64_t>(version.number("time"))};
    table.add({{version.text_or_number("id"), Ink::kBold},
               {base::format_rfc3339(at)},
               {version.text("who")},
               {version.text("source")},
               {version.text("note")}});
  }
  return write(table.empty() ? "no versions yet\n" : table.text(options.terminal.terminal()));
}

int rollback(const Options& options) {
  if (options.version <= 0) {
    return not_understood("a version is needed, as \"headgate policy versions\" numbers them", "policy rollback");
  }
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer =
      client->json("POST", std::string(kPath) + "/rollback", {{"version", options.version}});
  if (!answer) return failed(answer.error().message);
  if (options.json) return write(client->received());
  const JsonFields now(*answer);
  const std::string as = now.has("version") ? " as version " + now.text_or_number("version") : "";
  return write(fmt::format("version {} is in force again{}\n", options.version, printable(as)));
}

}  // namespace

Command policy_versions_command(Arguments parent) {
  Arguments arguments = parent.command("versions");
  auto options = std::make_shared<Options>();
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->client.add_to_managing(arguments);
  return {"policy versions", kVersionsHelp, arguments, [options] { return versions(*options); }};
}

Command policy_rollback_command(Arguments parent) {
  Arguments arguments = parent.command("rollback");
  auto options = std::make_shared<Options>();
  arguments.option("version", options->version);
  arguments.flag("--json", options->json);
  options->client.add_to_managing(arguments);
  return {"policy rollback", kRollbackHelp, arguments, [options] { return rollback(*options); }};
}

}  // namespace headgate::cli
