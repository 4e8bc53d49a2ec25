// `headgate check`: one check against a server.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/ask/check_options.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/view/describe.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate check: ask a server whether an operation is allowed now

Usage: headgate check --operation OP [OPTIONS]

)" HEADGATE_CLI_CHECK_HELP R"(  --peek              charge nothing
  --hold              hold what is charged under a lease
  --max-wait SPAN     longest wait where a policy queues, such as 5s
  --priority N        place in that queue; higher is served first (default: 0)

)" HEADGATE_CLI_SERVER_HELP R"(
Options:
  --json              print the server's answer as it is
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

Exit code: 0 allowed, 3 denied, 1 if there was no answer or the options are
wrong.
)";

struct Options {
  CheckOptions check;
  ClientOptions client;
  bool peek = false;
  bool hold = false;
  std::string max_wait;
  std::optional<int> priority;
  bool json = false;
  TerminalOptions terminal;
};

std::string span(double milliseconds) { return span_text(Nanos{static_cast<std::int64_t>(milliseconds * 1e6)}); }

std::string policies_text(const JsonFields& decision) {
  if (decision.has("policy_id")) return "policy " + decision.text("policy_id");
  const std::vector<std::string> all = decision.texts("policy_ids");
  return all.empty() ? "" : fmt::format("{} {}", all.size() == 1 ? "policy" : "policies", fmt::join(all, ", "));
}

std::string page(const Options& options, const ordered_json& json, const Terminal& terminal) {
  const JsonFields decision(json);
  const bool allowed = decision.flag("allowed");
  const std::string action = decision.text("action");
  std::string reason = decision.text("reason");
  if (const std::string message = decision.text("message"); !message.empty()) reason += " (" + message + ")";
  std::string out;
  const std::string verdict = allowed ? "allowed" : "denied";
  const std::vector<std::string> first =
      wrap(printable(fmt::format("{}: {}: {}", verdict, options.check.subject(), reason)), terminal.width, 0);
  out += terminal.paint(verdict, allowed ? Ink::kGreen : Ink::kRed) + first.front().substr(verdict.size()) + "\n";
  for (std::size_t i = 1; i < first.size(); ++i) out += "  " + first[i] + "\n";
  const auto add = [&](std::string_view text, Ink ink = Ink::kPlain) {
    for (const std::string& line : wrap(printable(text), terminal.width, 2)) out += terminal.paint(line, ink) + "\n";
  };

  std::vector<std::string> state;
  if (decision.has("limit")) {
    state.push_back(
        fmt::format("{} of {} left", number_text(decision.number("remaining")), number_text(decision.number("limit"))));
  }
  if (const std::string policies = policies_text(decision); !policies.empty()) state.push_back(policies);
  if (action != "allow" && action != "block" && !action.empty()) state.push_back("action " + action);
  if (!state.empty()) add(fmt::format("{}", fmt::join(state, ", ")));

  const double retry = decision.number("retry_after_ms");
  if (!allowed && retry > 0) {
    const bool backing_off = decision.number("backoff_ms") > 0;
    add("retry in " + span(retry) + (backing_off ? ": backing off, since it was denied several times in a row" : ""));
  }
  if (!allowed && retry < 0) add("no wait can help: it costs more than the limit allows at any time");
  if (const double delay = decision.number("delay_ms"); delay > 0) add("act in " + span(delay), Ink::kYellow);
  if (const std::string lease = decision.text("lease"); !lease.empty()) add("lease " + lease, Ink::kCyan);
  for (const ordered_json& warning : decision.list("warnings")) {
    add("warning: " + JsonFields(warning).text("message"), Ink::kYellow);
  }
  return out;
}

int check(const Options& options) {
  Result<ordered_json> body = options.check.json();
  if (!body) return not_understood(body.error().message, "check");
  if (options.peek) (*body)["peek"] = true;
  if (options.hold) (*body)["hold"] = true;
  if (options.priority) (*body)["priority"] = *options.priority;
  Nanos wait{0};
  if (!options.max_wait.empty()) {
    const auto span = policy::parse_duration(options.max_wait);
    if (!span || *span < Nanos{0}) {
      return not_understood(
          fmt::format("--max-wait must be a duration such as 500ms or 5s, got \"{}\"", options.max_wait), "check");
    }
    wait = *span;
    (*body)["max_wait_ms"] = number_json(millis(wait));
  }
  Result<Client> client = Client::open(options.client, Client::Purpose::kAsk);
  if (!client) return failed(client.error().message);
  client->allow_extra(wait);
  const Result<ordered_json> decision = client->json("POST", "/v1/check", *body);
  if (!decision) return failed(decision.error().message);
  if (!decision->is_object() || !decision->contains("allowed")) {
    return failed(fmt::format("{}/v1/check did not answer with a decision", client->url()));
  }
  const int written = write(options.json ? client->received() : page(options, *decision, options.terminal.terminal()));
  if (written != kDone) return written;
  return JsonFields(*decision).flag("allowed") ? kDone : kNotAllowed;
}

}  // namespace

Command check_command(Arguments parent) {
  Arguments arguments = parent.command("check");
  auto options = std::make_shared<Options>();
  options->check.add_to(arguments);
  arguments.flag("--peek", options->peek);
  arguments.flag("--hold", options->hold);
  arguments.option("--max-wait", options->max_wait);
  arguments.option("--priority", options->priority);
  options->client.add_to(arguments);
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  return {"check", kHelp, arguments, [options] { return check(*options); }};
}

}  // namespace headgate::cli
