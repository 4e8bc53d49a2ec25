// `headgate quota status`: show what a user has used and has left.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/quota/quota_view.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate quota status: show what a user has used and has left

Shows the user's plan and, for each type of command, what is used of the day,
the week and the month; when they reset; and at what speed commands run
now. A bar is green below half, yellow up to 80 %, red above.

Usage: headgate quota status --user U [OPTIONS]

Options:
  --user U            the user
  --json              print the server's answer as it is
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

struct Options {
  ClientOptions client;
  std::string user;
  bool json = false;
  TerminalOptions terminal;
};

int status(const Options& options) {
  if (options.user.empty()) return not_understood("--user is needed: whose quotas?", "quota status");
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer = client->json("GET", "/api/quotas/user/" + url_encoded(options.user));
  if (!answer) return failed(answer.error().message);
  if (options.json) return write(client->received());
  const Nanos now = std::chrono::system_clock::now().time_since_epoch();
  return write(quota_page(read_quota_status(*answer), now, options.terminal.terminal()));
}

}  // namespace

Command quota_status_command(Arguments parent) {
  Arguments arguments = parent.command("status");
  auto options = std::make_shared<Options>();
  arguments.option("--user", options->user);
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->client.add_to_managing(arguments);
  return {"quota status", kHelp, arguments, [options] { return status(*options); }};
}

}  // namespace headgate::cli
