// The policy commands against a running server, where they would otherwise work on files.
#pragma once

#include <string>
#include <vector>

#include "cli/ask/check_options.h"
#include "cli/client.h"
#include "cli/command.h"

namespace headgate::cli {

#define HEADGATE_CLI_POLICY_SERVER_HELP                                    \
  "The server, instead of files:\n"                                        \
  "  --server            ask the one of HEADGATE_URL (or\n"                \
  "                      http://127.0.0.1:7070)\n"                         \
  "  --url URL           ask this one\n"                                   \
  "  --token-file FILE   holds the token (default: HEADGATE_TOKEN)\n"      \
  "  --cacert FILE       trust this certificate authority\n"               \
  "  --data DIR          where a server on this machine keeps its admin\n" \
  "                      token, used if no other is given (default:\n"     \
  "                      HEADGATE_DATA, else ./headgate-data)\n"

struct PolicyServer {
  ClientOptions client;
  bool server = false;

  void add_to(Arguments arguments) {
    arguments.flag("--server", server);
    client.add_to_managing(arguments);
  }
  [[nodiscard]] bool wanted() const noexcept { return server || !client.url.empty(); }
  // For a command that was given neither files nor a server: asks the server of HEADGATE_URL if it answers. Says on
  // standard error what is shown: that server's policies, or the built-in limits.
  [[nodiscard]] bool answers() const;
};

struct PolicyOutput {
  bool json = false;
  Terminal terminal;
};

// Each returns the exit code.
[[nodiscard]] int list_from_server(const PolicyServer& server, const PolicyOutput& output);
[[nodiscard]] int explain_by_server(const PolicyServer& server, const CheckOptions& check, const PolicyOutput& output);
[[nodiscard]] int validate_by_server(const PolicyServer& server, const std::vector<std::string>& paths, bool json);

}  // namespace headgate::cli
