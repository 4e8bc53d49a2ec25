// `headgate quota plans`, `report` and `queue`: the plans there are, who met a limit, and who waits.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/rfc3339.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/quota/quota_days.h"
#include "cli/quota/quota_view.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

#define HEADGATE_QUOTA_LIST_HELP                     \
  "  --json              as the server answers\n"    \
  "  --width N           fit N columns, 40 to 400\n" \
  "  --no-color          no colours\n"               \
  "  -h, --help          print this\n\n" HEADGATE_CLI_MANAGING_HELP

constexpr const char* kPlansHelp = R"(headgate quota plans: list quota plans and what they allow

Usage: headgate quota plans [OPTIONS]

Options:
)" HEADGATE_QUOTA_LIST_HELP;

constexpr const char* kReportHelp = R"(headgate quota report: list users that were denied, or would have been

Users and types of command with something refused for want of quota, or past
a limit in monitor mode, where nothing is refused: what would happen if it were
enforced. Whole days, most affected first.

Usage: headgate quota report [OPTIONS]

Options:
  --since SPAN        7d, 12h, or a day such as 2026-11-01 (default: 7d)
)" HEADGATE_QUOTA_LIST_HELP;

constexpr const char* kQueueHelp = R"(headgate quota queue: list running and waiting commands

Usage: headgate quota queue [OPTIONS]

Options:
)" HEADGATE_QUOTA_LIST_HELP;

constexpr int kMostUsers = 1000;  // of a report

struct Options {
  ClientOptions client;
  std::string since = "7d";
  bool json = false;
  TerminalOptions terminal;
};

void add_options(Arguments arguments, Options& options) {
  arguments.flag("--json", options.json);
  options.terminal.add_to(arguments);
  options.client.add_to_managing(arguments);
}

// What a GET answers, shown as text by `show`, or as it came.
template <typename Show>
int shown(const Options& options, const std::string& path, const Show& show) {
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer = client->json("GET", path);
  if (!answer) return failed(answer.error().message);
  if (options.json) return write(client->received());
  return write(show(*answer, options.terminal.terminal()));
}

std::string plan_text(const std::string& name, const ordered_json& json, const JsonFields& all,
                      const Terminal& terminal) {
  const JsonFields plan(json);
  const std::string zone = plan.text("timezone").empty() ? all.text("timezone") : plan.text("timezone");
  std::string text = terminal.paint(printable(name), Ink::kBold);
  if (name == all.text("default_plan")) text += " (default)";
  text += fmt::format(": {}, {}, weight {}\n", printable(plan.text("mode")), printable(zone),
                      number_text(plan.number("weight", 1)));
  Table table({{"TYPE"},
               {"DAILY", Table::Align::kRight},
               {"WEEKLY", Table::Align::kRight},
               {"MONTHLY", Table::Align::kRight},
               {"A SESSION", Table::Align::kRight},
               {"CPU %", Table::Align::kRight},
               {"MB", Table::Align::kRight}});
  if (!json.contains("types")) return text;
  for (const auto& [type, limits] : json["types"].items()) {
    const auto cell = [&, &rule = limits](const char* key) -> Table::Cell {
      const ordered_json limit = rule.contains(key) ? rule[key] : ordered_json();
      return {limit.is_null() ? "-" : amount_text(limit), limit.is_null() ? Ink::kDim : Ink::kPlain};
    };
    table.add({{type, Ink::kBold},
               cell("daily"),
               cell("weekly"),
               cell("monthly"),
               cell("session"),
               cell("estimated_cpu"),
               cell("estimated_mem")});
  }
  return text + table.text(terminal, 2);
}

std::string plans_text(const ordered_json& json, const Terminal& terminal) {
  const JsonFields all(json);
  std::string text;
  if (!json.contains("plans")) return "no plans\n";
  for (const auto& [name, plan] : json["plans"].items()) {
    text += (text.empty() ? "" : "\n") + plan_text(name, plan, all, terminal);
  }
  if (const std::string mode = all.text("mode"); mode == "monitor" || mode == "off") {
    text += "\n" + terminal.paint(mode == "off" ? "Quotas are off: nothing is counted."
                                                : "Quotas are in monitor mode: counted, never refused.",
                                  Ink::kYellow);
    text += "\n";
  }
  return text + "\n" + terminal.paint("- is no limit. CPU % and MB are what one command is taken to use.", Ink::kDim) +
         "\n";
}

std::string report_text(const ordered_json& json, const Terminal& terminal) {
  Table table({{"USER"},
               {"TYPE"},
               {"COMMANDS", Table::Align::kRight},
               {"REFUSED", Table::Align::kRight},
               {"WOULD BE", Table::Align::kRight},
               {"SLOWED", Table::Align::kRight},
               {"DAYS", Table::Align::kRight},
               {"BUSIEST DAY"}});
  const JsonFields all(json);
  std::uint64_t refused = 0;
  std::uint64_t would = 0;
  for (const ordered_json& each : all.list("users")) {
    const JsonFields user(each);
    if (user.count("refused") + user.count("would_refuse") + user.count("throttled") == 0) continue;
    refused += user.count("refused");
    would += user.count("would_refuse");
    const JsonFields worst = user.object("worst_day");
    table.add(
        {{user.text_or_number("user_id"), Ink::kBold},
         {user.text("command_type")},
         {count_text(user.count("commands"))},
         {count_text(user.count("refused")), user.count("refused") > 0 ? Ink::kRed : Ink::kPlain},
         {count_text(user.count("would_refuse")), user.count("would_refuse") > 0 ? Ink::kYellow : Ink::kPlain},
         {count_text(user.count("throttled"))},
         {count_text(user.count("days"))},
         {worst.text("day").empty() ? ""
                                    : fmt::format("{}: {}", worst.text("day"), count_text(worst.count("commands")))}});
  }
  const auto since = std::chrono::seconds{static_cast<std::int64_t>(all.count("since") / 1000)};
  std::string about = fmt::format(
      "Since {}: {} {} refused for want of quota, {} more would have been, were monitored limits enforced.",
      base::format_rfc3339(since), count_text(refused), refused == 1 ? "command" : "commands", count_text(would));
  if (all.flag("truncated")) about += " There was more than is read at once: --since a later day counts all of it.";
  std::string text;
  for (const std::string& line : wrap(about, terminal.width, 0)) text += line + "\n";
  return table.empty() ? text : text + "\n" + table.text(terminal);
}

std::string queue_page(const ordered_json& json, const Terminal& terminal) {
  const QuotaQueue queue = read_quota_queue(json);
  std::string text = queue_text(queue) + "\n";
  Table line({{"#", Table::Align::kRight},
              {"USER"},
              {"TYPE"},
              {"SESSION"},
              {"PRIORITY", Table::Align::kRight},
              {"WAITED", Table::Align::kRight},
              {"STARTS IN", Table::Align::kRight}});
  for (const QuotaQueue::Waiting& waiting : queue.line) {
    line.add({{count_text(waiting.position)},
              {waiting.user, Ink::kBold},
              {waiting.type},
              {waiting.session},
              {std::to_string(waiting.priority)},
              {span_text(waiting.waited)},
              {waiting.estimate ? "about " + span_text(*waiting.estimate) : "unknown"}});
  }
  if (!line.empty()) text += "\nwaiting\n" + line.text(terminal, 2);
  Table runs({{"USER"}, {"TYPE"}, {"SESSION"}, {"RUNNING FOR", Table::Align::kRight}});
  for (const QuotaQueue::Running& run : queue.runs) {
    runs.add({{run.user, Ink::kBold}, {run.type}, {run.session}, {span_text(run.since)}});
  }
  if (!runs.empty()) text += "\nrunning\n" + runs.text(terminal, 2);
  return text;
}

int report(const Options& options) {
  const Nanos now = std::chrono::system_clock::now().time_since_epoch();
  const Result<Nanos> since = parse_since(options.since, now);
  if (!since) return not_understood(since.error().message, "quota report");
  return shown(options,
               fmt::format("/api/quotas/report?limit={}&since={}", kMostUsers,
                           day_of(*since).time_since_epoch() / std::chrono::milliseconds{1}),
               report_text);
}

}  // namespace

Command quota_plans_command(Arguments parent) {
  Arguments arguments = parent.command("plans");
  auto options = std::make_shared<Options>();
  add_options(arguments, *options);
  return {"quota plans", kPlansHelp, arguments,
          [options] { return shown(*options, "/api/quotas/commands", plans_text); }};
}

Command quota_report_command(Arguments parent) {
  Arguments arguments = parent.command("report");
  auto options = std::make_shared<Options>();
  arguments.option("--since", options->since);
  add_options(arguments, *options);
  return {"quota report", kReportHelp, arguments, [options] { return report(*options); }};
}

Command quota_queue_command(Arguments parent) {
  Arguments arguments = parent.command("queue");
  auto options = std::make_shared<Options>();
  add_options(arguments, *options);
  return {"quota queue", kQueueHelp, arguments, [options] { return shown(*options, "/api/quotas/queue", queue_page); }};
}

}  // namespace headgate::cli
