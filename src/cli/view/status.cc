// `headgate status`: one screen about a server.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/rfc3339.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/view/describe.h"
#include "cli/view/overview.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate status: show the state of a server on one screen

Without a token it shows only whether the server is up and ready.

Usage: headgate status [OPTIONS]

Options:
  --json              one JSON object
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP R"(
Exit code: 0 if the server is ready to answer checks, 1 if not.
)";

constexpr std::size_t kMostRows = 5;

struct Options {
  ClientOptions client;
  bool json = false;
  TerminalOptions terminal;
};

class Page {
 public:
  explicit Page(const Terminal& terminal) : terminal_(terminal) {}
  void entry(std::string_view name, std::string_view text, Ink ink = Ink::kPlain) {
    constexpr int kIndent = 15;
    std::vector<std::string> lines = wrap(printable(text), terminal_.width, kIndent);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string left(kIndent, ' ');
      if (i == 0) left.replace(2, name.size(), name);
      text_ += left + terminal_.paint(lines[i].substr(kIndent), ink) + "\n";
    }
  }
  void line(std::string_view text) { text_ += std::string(text) + "\n"; }
  void table(const Table& table) {
    if (!table.empty()) text_ += "\n" + table.text(terminal_, 2);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const Terminal& terminal_;
  std::string text_;
};

std::string emergency_text(const Overview& overview) {
  if (!overview.emergency) return "off";
  std::string text = "ON";
  if (overview.emergency_since > Nanos{0}) text += " since " + base::format_rfc3339(overview.emergency_since);
  if (!overview.emergency_by.empty()) text += " by " + overview.emergency_by;
  if (!overview.emergency_reason.empty()) text += ": " + overview.emergency_reason;
  return text;
}

void show(const Overview& overview, Page& page) {
  const std::uint64_t checks = overview.allowed + overview.denied + overview.errors;
  page.entry("checks",
             fmt::format("{}: {} allowed, {} denied, {} errors", count_text(checks), count_text(overview.allowed),
                         count_text(overview.denied), count_text(overview.errors)));
  page.entry("now", fmt::format("{} a second, {} denied, {} errors", rate_text(overview.checks_per_second),
                                rate_text(overview.denied_per_second), rate_text(overview.errors_per_second)));
  page.entry("latency", fmt::format("p50 {}, p99 {}", latency_text(overview.p50_us), latency_text(overview.p99_us)));
  const bool calm = overview.load_level.empty() || overview.load_level == "normal" || overview.load_level == "low";
  page.entry("load", load_text(overview), calm ? Ink::kPlain : Ink::kYellow);
  page.entry("emergency", emergency_text(overview), overview.emergency ? Ink::kRed : Ink::kPlain);
  page.entry("cells",
             fmt::format("{} of {}, {} evicted, {} refused", count_text(overview.cells), count_text(overview.max_cells),
                         count_text(overview.evicted), count_text(overview.refused)));
  page.entry("connections", fmt::format("{} HTTP, {} RESP, {} gRPC", count_text(overview.http),
                                        count_text(overview.resp), count_text(overview.grpc)));
  page.entry("held",
             fmt::format("{} leases, {} checks waiting", count_text(overview.leases), count_text(overview.waiting)));
  page.entry("policies",
             fmt::format("{}{}", count_text(overview.policies),
                         overview.policies_version.empty() ? "" : ", version " + overview.policies_version));

  Table agents({{"AGENT"}, {"ALLOWED", Table::Align::kRight}, {"DENIED", Table::Align::kRight}, {"STATE"}});
  for (std::size_t i = 0; i < std::min(overview.agents.size(), kMostRows); ++i) {
    const Overview::Agent& agent = overview.agents[i];
    agents.add({{agent.name, Ink::kBold},
                {count_text(agent.allowed)},
                {count_text(agent.denied), agent.denied > 0 ? Ink::kYellow : Ink::kPlain},
                {agent.limited ? "limited" : "", Ink::kRed}});
  }
  page.table(agents);
  Table policies({{"POLICY"}, {"ADMITTED", Table::Align::kRight}, {"DENIED", Table::Align::kRight}});
  for (std::size_t i = 0; i < std::min(overview.top_policies.size(), kMostRows); ++i) {
    const Overview::Policy& policy = overview.top_policies[i];
    policies.add({{policy.id, Ink::kBold},
                  {count_text(policy.admitted)},
                  {count_text(policy.denied), policy.denied > 0 ? Ink::kYellow : Ink::kPlain}});
  }
  page.table(policies);
  Table offenders({{"OFFENDER"}, {"VIOLATIONS", Table::Align::kRight}});
  for (std::size_t i = 0; i < std::min(overview.offenders.size(), kMostRows); ++i) {
    offenders.add({{overview.offenders[i].agent, Ink::kBold}, {count_text(overview.offenders[i].violations)}});
  }
  page.table(offenders);
}

int status(const Options& options) {
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<Response> readiness = client->call("GET", "/readyz");
  if (!readiness) return failed(readiness.error().message);
  const bool ready = readiness->status == 200;
  const Result<ordered_json> overview = client->json("GET", "/api/overview");
  const bool refused = !overview && overview.error().code == ErrorCode::kForbidden && !overview.error().transient;
  if (!overview && !refused) return failed(overview.error().message);

  if (options.json) {
    ordered_json body = ordered_json::parse(readiness->body, nullptr, false);
    ordered_json json{{"url", client->url()}, {"ready", ready}};
    json["readiness"] = body.is_discarded() ? ordered_json(readiness->body) : std::move(body);
    json["overview"] = overview ? *overview : ordered_json();
    const int written = write(json_text(json));
    return ready ? written : kFailed;
  }
  const Terminal terminal = options.terminal.terminal();
  Page page(terminal);
  std::string title = "headgate";
  std::string uptime;
  if (overview) {
    const Overview about = read_overview(*overview);
    title += " " + printable(about.version);
    uptime = ", up " + span_text(about.uptime);
  }
  page.line(terminal.paint(title, Ink::kBold) + " at " + client->url() + uptime + ", " +
            (ready ? terminal.paint("ready", Ink::kGreen) : terminal.paint("not ready", Ink::kRed)));
  if (!ready) page.entry("readiness", readiness->body.empty() ? "no reason was given" : readiness->body, Ink::kRed);
  if (overview) {
    page.line("");
    show(read_overview(*overview), page);
  } else {
    page.line("");
    for (const std::string& line :
         wrap(client->has_token() ? "There is more to see, but not with this token: " + overview.error().message
                                  : "There is more to see with a token: set HEADGATE_TOKEN, or name the server's data "
                                    "directory with --data DIR.",
              terminal.width, 0)) {
      page.line(line);
    }
  }
  const int written = write(page.text());
  return ready ? written : kFailed;
}

}  // namespace

Command status_command(Arguments parent) {
  Arguments arguments = parent.command("status");
  auto options = std::make_shared<Options>();
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->client.add_to_managing(arguments);
  return {"status", kHelp, arguments, [options] { return status(*options); }};
}

}  // namespace headgate::cli
