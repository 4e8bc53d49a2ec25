// `headgate token create`, `list` and `revoke`: credentials of a server.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/rfc3339.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kCreateHelp = R"(headgate token create: create a token; its secret is shown only once

Roles: an admin manages, a viewer may look at everything, an agent asks, and a
gateway asks for others: it may name any subject, plan, priority and parent, and
give back. A token of role agent or gateway may be bound to an agent, a user, a
tenant and a plan. It then speaks for no other, and no other token of role agent
may name these agents, users and tenants.

Usage: headgate token create --role ROLE [OPTIONS]

Options:
  --role admin|viewer|gateway|agent
                      what it may do
  --agent A           the only agent that it speaks for
  --user U            the only user that it speaks for
  --tenant T          the only tenant that it speaks for
  --plan P            the only plan that it may name
  --name NAME         what to call it in lists and in the audit log
  --ttl SPAN          how long it is good: 12h, 30d (default: until revoked)
  --json              print the server's answer as it is, with the secret
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kListHelp = R"(headgate token list: list tokens, without their secrets

Usage: headgate token list [OPTIONS]

Options:
  --json              print the server's answer as it is
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kRevokeHelp = R"(headgate token revoke: revoke a token immediately

Usage: headgate token revoke [OPTIONS] ID

Options:
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kPath = "/api/admin/tokens";
constexpr std::array<const char*, 4> kRoles{"admin", "viewer", "gateway", "agent"};
constexpr std::array<const char*, 4> kBound{"agent", "user", "tenant", "plan"};

struct Options {
  ClientOptions client;
  std::string role;
  std::array<std::string, kBound.size()> bound;  // one for each of kBound
  std::string name;
  std::string ttl;
  std::string id;
  bool json = false;
  TerminalOptions terminal;
};

std::string time_text(const JsonFields& token, const char* key, const char* otherwise) {
  const double at = token.number(key);
  if (!(at > 0)) return otherwise;
  // To the second.
  return base::format_rfc3339(std::chrono::seconds{static_cast<std::int64_t>(at / 1000)});
}

int create(const Options& options) {
  const auto misused = [](std::string_view message) { return not_understood(message, "token create"); };
  if (options.role.empty()) return misused("--role is needed: admin, viewer, gateway or agent");
  if (std::find(kRoles.begin(), kRoles.end(), options.role) == kRoles.end()) {
    return misused(fmt::format("--role must be admin, viewer, gateway or agent, got \"{}\"", options.role));
  }
  ordered_json body{{"role", options.role}};
  std::string whose;
  for (std::size_t i = 0; i < kBound.size(); ++i) {
    if (options.bound[i].empty()) continue;
    if (options.role != "agent" && options.role != "gateway") {
      return misused(fmt::format("--{} goes with --role agent and gateway, got --role {}", kBound[i], options.role));
    }
    body[kBound[i]] = options.bound[i];
    whose += fmt::format("{} {} {}", whose.empty() ? " for" : ",", kBound[i], options.bound[i]);
  }
  if (!options.name.empty()) body["name"] = options.name;
  if (!options.ttl.empty()) {
    const auto ttl = policy::parse_duration(options.ttl);
    if (!ttl || *ttl < std::chrono::seconds{1}) {
      return misused(fmt::format("--ttl must be a duration such as 12h or 30d, got \"{}\"", options.ttl));
    }
    body["ttl_ms"] = number_json(millis(*ttl));
  }
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> made = client->json("POST", kPath, body);
  if (!made) return failed(made.error().message);
  if (options.json) return write(client->received());
  const JsonFields token(*made);
  // The secret alone on standard output, so that it can be piped into a file without ever being on the screen.
  if (const int written = write(token.text("secret") + "\n"); written != kDone) return written;
  fmt::print(stderr,
             "{} token {}{}, good until {}.\n"
             "The line above is its secret, and is not shown again. Use it with:\n"
             "  export HEADGATE_TOKEN=...\n",
             options.role, printable(token.text_or_number("id")), printable(whose),
             time_text(token, "expires_at", "revoked"));
  return kDone;
}

int list(const Options& options) {
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer = client->json("GET", kPath);
  if (!answer) return failed(answer.error().message);
  if (options.json) return write(client->received());
  Table table({{"ID"}, {"ROLE"}, {"BOUND TO"}, {"NAME"}, {"CREATED"}, {"EXPIRES"}});
  for (const ordered_json& json : JsonFields(*answer).list("tokens")) {
    const JsonFields token(json);
    std::string bound;
    for (const char* kind : kBound) {
      if (token.has(kind)) bound += fmt::format("{}{} {}", bound.empty() ? "" : ", ", kind, token.text(kind));
    }
    table.add({{token.text_or_number("id"), Ink::kBold},
               {token.text("role")},
               {bound},
               {token.text("name")},
               {time_text(token, "created_at", "")},
               {time_text(token, "expires_at", "never")}});
  }
  return write(table.empty() ? "no tokens\n" : table.text(options.terminal.terminal()));
}

int revoke(const Options& options) {
  if (options.id.empty())
    return not_understood("the id of a token is needed, as \"headgate token list\" shows it", "token revoke");
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> done = client->json("DELETE", std::string(kPath) + "/" + url_encoded(options.id));
  if (!done) return failed(done.error().message);
  return write(fmt::format("token {} is revoked\n", printable(options.id)));
}

}  // namespace

Command token_create_command(Arguments parent) {
  Arguments arguments = parent.command("create");
  auto options = std::make_shared<Options>();
  arguments.option("--role", options->role);
  for (std::size_t i = 0; i < kBound.size(); ++i) arguments.option(std::string("--") + kBound[i], options->bound[i]);
  arguments.option("--name", options->name);
  arguments.option("--ttl", options->ttl);
  arguments.flag("--json", options->json);
  options->client.add_to_managing(arguments);
  return {"token create", kCreateHelp, arguments, [options] { return create(*options); }};
}

Command token_list_command(Arguments parent) {
  Arguments arguments = parent.command("list");
  auto options = std::make_shared<Options>();
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->client.add_to_managing(arguments);
  return {"token list", kListHelp, arguments, [options] { return list(*options); }};
}

Command token_revoke_command(Arguments parent) {
  Arguments arguments = parent.command("revoke");
  auto options = std::make_shared<Options>();
  arguments.option("id", options->id);
  options->client.add_to_managing(arguments);
  return {"token revoke", kRevokeHelp, arguments, [options] { return revoke(*options); }};
}

}  // namespace headgate::cli
