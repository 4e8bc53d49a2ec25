// headgate serve: the server.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "headgate/version.h"
#include "server/config.h"
#include "server/server.h"

namespace headgate::cli {

namespace {

constexpr const char* kHelp = R"(headgate serve: run the server: checks over HTTP, Redis protocol and gRPC

Every configuration key can also be set as a variable: HEADGATE_LISTEN_HTTP for
listen.http, HEADGATE_DATA for data. Options override variables, and variables
override the file. packaging/headgate.yaml lists every key.

Usage: headgate serve [OPTIONS]

Options:
  --config FILE       the configuration
  --policies PATH     file or folder of policies; may be repeated
                      (default: the built-in limits per tier)
  --http ADDR         host:port to listen on for HTTP and WebSocket; port 0
                      picks a free one, "off" disables it (default:
                      127.0.0.1:7070)
  --resp ADDR         the same for the Redis protocol (default: 127.0.0.1:7379)
  --grpc ADDR         the same for Envoy's rate limit service (default:
                      127.0.0.1:7071)
  --data DIR          folder for tokens, settings and counters (default:
                      ./headgate-data)
  --threads N         io threads; 0: one per core (default: 0)
  --auth local|required
                      local: checks from this machine need no token;
                      required: every request needs one
  --set KEY=VALUE     set any configuration key; may be repeated
  --print-config      print the configuration in effect and exit
  -h, --help          print this

Signals:
  TERM, INT           finish pending requests and exit
  HUP                 reload policies and certificates
  USR1                toggle the emergency throttle
)";

struct Options {
  std::string config;
  std::vector<std::string> policies;
  std::string http;
  std::string resp;
  std::string grpc;
  std::string data;
  std::string threads;
  std::string auth;
  std::vector<std::string> settings;
  bool print_config = false;
};

std::string banner(server::Server& server, const server::Config& config) {
  std::string text = fmt::format("headgate {} is serving\n", HEADGATE_VERSION);
  const std::string http = server.address("http");
  const char* scheme = config.tls.enabled() ? "https" : "http";
  if (!http.empty()) text += fmt::format("  http   {}://{}\n", scheme, http);
  if (const std::string resp = server.address("resp"); !resp.empty()) text += fmt::format("  resp   {}\n", resp);
  if (const std::string grpc = server.address("grpc"); !grpc.empty()) text += fmt::format("  grpc   {}\n", grpc);
  text += fmt::format("  data   {} (the admin token is in {}/admin.token)\n", config.data, config.data);
  if (!http.empty()) {
    text += fmt::format("\nOpen it in a browser (the link signs in once, within ten minutes):\n  {}\n",
                        server.sign_in_link());
    const char* token = config.auth == service::Auth::kRequired ? " -H \"Authorization: Bearer $HEADGATE_TOKEN\"" : "";
    text += fmt::format(
        "\nTry a check:\n  headgate check --agent A --operation CREATE_COMPONENT\n"
        "  curl -s{} -d '{}' {}://{}/v1/check\n\n",
        token, R"({"agent": "A", "operation": "CREATE_COMPONENT"})", scheme, http);
  }
  return text;
}

}  // namespace

Command serve_command(Arguments parent) {
  Arguments arguments = parent.command("serve");
  auto options = std::make_shared<Options>();
  arguments.option("--config", options->config);
  arguments.option("--policies", options->policies).one_value_each();
  arguments.option("--http", options->http);
  arguments.option("--resp", options->resp);
  arguments.option("--grpc", options->grpc);
  arguments.option("--data", options->data);
  arguments.option("--threads", options->threads);
  arguments.option("--auth", options->auth);
  arguments.option("--set", options->settings).one_value_each();
  arguments.flag("--print-config", options->print_config);
  return {"serve", kHelp, arguments, [options] {
            server::ConfigSources sources;
            sources.file = options->config;
            sources.environment = server::headgate_environment();
            for (const std::string& setting : options->settings) {
              const std::size_t equals = setting.find('=');
              if (equals == std::string::npos) {
                return not_understood(fmt::format("--set must be KEY=VALUE, got \"{}\"", setting), "serve");
              }
              sources.flags[setting.substr(0, equals)] = setting.substr(equals + 1);
            }
            const std::pair<const char*, const std::string*> flags[] = {
                {"listen.http", &options->http}, {"listen.resp", &options->resp}, {"listen.grpc", &options->grpc},
                {"data", &options->data},        {"threads", &options->threads},  {"auth", &options->auth}};
            for (const auto& [key, value] : flags) {
              if (!value->empty()) sources.flags[key] = *value;
            }
            if (!options->policies.empty())
              sources.flags["policies"] = fmt::format("{}", fmt::join(options->policies, ","));
            const Result<server::Config> config = server::read_config(sources);
            if (!config) return failed(config.error().message);
            if (options->print_config) return write(server::print_config(*config));
            const Result<void> ended =
                server::run(*config, [&](server::Server& server) { write(banner(server, *config)); });
            return ended ? kDone : failed(ended.error().message);
          }};
}

}  // namespace headgate::cli
