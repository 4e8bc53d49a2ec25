// `headgate emergency on`, `off` and `status`: the emergency throttle of a server.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/rfc3339.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kOnHelp = R"(headgate emergency on: turn on the emergency throttle for all agents

Usage: headgate emergency on --reason REASON [OPTIONS]

Options:
  --reason REASON     why; shown in denials, and kept in the audit log
  --json              print the server's answer as it is
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kOffHelp = R"(headgate emergency off: turn off the emergency throttle

Usage: headgate emergency off [OPTIONS]

Options:
  --json              print the server's answer as it is
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kStatusHelp = R"(headgate emergency status: show whether the emergency throttle is on, and why

Usage: headgate emergency status [OPTIONS]

Options:
  --json              print the server's answer as it is
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kPath = "/api/admin/emergency";

struct Options {
  ClientOptions client;
  std::string reason;
  bool json = false;
};

std::string page(const ordered_json& json, const Terminal& terminal) {
  const JsonFields state(json);
  if (!state.flag("active")) return "emergency throttle: " + terminal.paint("off", Ink::kGreen) + "\n";
  std::string text = "emergency throttle: " + terminal.paint("on", Ink::kRed) + "\n";
  const auto add = [&](std::string_view name, std::string_view about) {
    if (about.empty()) return;
    constexpr int kIndent = 10;
    std::vector<std::string> lines = wrap(printable(about), terminal.width, kIndent);
    lines.front().replace(2, name.size(), name);
    for (const std::string& line : lines) text += line + "\n";
  };
  add("reason", state.text("reason"));
  if (const double at = state.number("enabled_at"); at > 0) {
    add("since", base::format_rfc3339(std::chrono::milliseconds{static_cast<std::int64_t>(at)}));
  }
  add("by", state.text("enabled_by"));
  return text;
}

int ask(const Options& options, const char* method, const ordered_json& body) {
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> state = client->json(method, kPath, body);
  if (!state) return failed(state.error().message);
  return write(options.json ? client->received() : page(*state, Terminal::detect()));
}

int turn_on(const Options& options) {
  if (options.reason.empty()) return not_understood("--reason is needed", "emergency on");
  return ask(options, "PUT", {{"reason", options.reason}});
}

std::shared_ptr<Options> add_options(Arguments arguments) {
  auto options = std::make_shared<Options>();
  options->client.add_to_managing(arguments);
  arguments.flag("--json", options->json);
  return options;
}

}  // namespace

Command emergency_on_command(Arguments parent) {
  Arguments arguments = parent.command("on");
  auto options = add_options(arguments);
  arguments.option("--reason", options->reason);
  return {"emergency on", kOnHelp, arguments, [options] { return turn_on(*options); }};
}

Command emergency_off_command(Arguments parent) {
  Arguments arguments = parent.command("off");
  auto options = add_options(arguments);
  return {"emergency off", kOffHelp, arguments, [options] { return ask(*options, "DELETE", nullptr); }};
}

Command emergency_status_command(Arguments parent) {
  Arguments arguments = parent.command("status");
  auto options = add_options(arguments);
  return {"emergency status", kStatusHelp, arguments, [options] { return ask(*options, "GET", nullptr); }};
}

}  // namespace headgate::cli
