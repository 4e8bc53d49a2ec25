// `headgate quota history`: what a user ran.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/rfc3339.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/quota/quota_days.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate quota history: list the commands that a user ran

A small graph of commands a day, in whole days, and the latest commands that
were recorded: how long each took, what it used, how it ended. The command line
itself is not kept, only its SHA-256, which --csv and --json show.

Usage: headgate quota history --user U [OPTIONS]

Options:
  --user U            the user
  --since SPAN        7d, 12h, or a day such as 2026-11-01 (default: 7d)
  --type T            only this type of command
  --failed            only commands that failed
  --limit N           how many commands, 1 to 10000 (default: 20)
  --csv               all of them as CSV, however many; --limit is the most
  --json              one JSON object: usage and executions
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr int kPage = 10'000;  // the most that a server tells at a time
constexpr int kShown = 20;

struct Options {
  ClientOptions client;
  std::string user;
  std::string since = "7d";
  std::string type;
  bool failed_only = false;
  int limit = 0;
  bool csv = false;
  bool json = false;
  TerminalOptions terminal;
};

std::string query_of(const Options& options, Nanos since) {
  std::string query =
      fmt::format("?user_id={}&since={}", url_encoded(options.user), since / std::chrono::milliseconds{1});
  if (!options.type.empty()) query += "&command_type=" + url_encoded(options.type);
  return query;
}

std::string failed_query(const Options& options) { return options.failed_only ? "&failed=true" : ""; }

// Page after page, as it comes; only the first keeps its line of names.
int export_csv(Client& client, const Options& options, Nanos since) {
  std::int64_t left = options.limit > 0 ? options.limit : std::numeric_limits<std::int64_t>::max();
  std::string cursor;
  for (bool first = true; left > 0; first = false) {
    const std::int64_t wanted = std::min<std::int64_t>(left, kPage);
    std::string path = "/api/quotas/executions" + query_of(options, since) + failed_query(options);
    path += fmt::format("&format=csv&limit={}", wanted);
    if (!cursor.empty()) path += "&cursor=" + url_encoded(cursor);
    const Result<Response> page = client.call("GET", path);
    if (!page) return failed(page.error().message);
    if (page->status != 200) return failed(error_text(*page));
    std::string_view text = page->body;
    if (!first) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    if (const int written = write(text); written != kDone) return written;
    const std::string next = client.header("X-Next-Cursor");
    if (next.empty() || next == cursor) return kDone;
    cursor = next;
    left -= wanted;
  }
  return kDone;
}

std::string took_text(const JsonFields& run) {
  return run.has("duration_ms")
             ? span_text(std::chrono::milliseconds{static_cast<std::int64_t>(run.count("duration_ms"))})
             : "";
}

std::string time_text(const JsonFields& run) {
  const auto seconds = std::chrono::seconds{static_cast<std::int64_t>(run.count("executed_at") / 1000)};
  std::string text = base::format_rfc3339(seconds);
  std::replace(text.begin(), text.end(), 'T', ' ');
  if (text.ends_with('Z')) text.pop_back();
  return text;
}

std::string runs_table(const ordered_json& runs, const Terminal& terminal) {
  const auto any = [&](const char* key) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const ordered_json& run) { return !JsonFields(run).text(key).empty(); });
  };
  const bool sessions = any("session_id");
  const bool errors = any("error_message");
  std::vector<Table::Column> columns{{"TIME (UTC)"}, {"TYPE"}};
  if (sessions) columns.push_back({"SESSION"});
  for (const char* name : {"TOOK", "CPU %", "MB", "EXIT"}) columns.push_back({name, Table::Align::kRight});
  if (errors) columns.push_back({"ERROR"});
  Table table(columns);
  for (const ordered_json& json : runs) {
    const JsonFields run(json);
    const bool bad = run.number("exit_code") != 0 || !run.text("error_message").empty();
    std::vector<Table::Cell> cells{{time_text(run)}, {run.text("command_type"), Ink::kBold}};
    if (sessions) cells.push_back({run.text("session_id")});
    cells.push_back({took_text(run)});
    cells.push_back({run.has("cpu_usage_percent") ? number_text(std::round(run.number("cpu_usage_percent"))) : ""});
    cells.push_back({run.has("memory_usage_mb") ? number_text(std::round(run.number("memory_usage_mb"))) : ""});
    cells.push_back({run.text_or_number("exit_code"), bad ? Ink::kRed : Ink::kPlain});
    if (errors) cells.push_back({run.text("error_message"), Ink::kRed});
    table.add(std::move(cells));
  }
  return table.text(terminal);
}

std::string summary(const std::vector<UsageDay>& rows, const Options& options) {
  UsageDay sum;
  for (const UsageDay& row : rows) {
    sum.commands += row.commands;
    sum.refused += row.refused;
    sum.would_refuse += row.would_refuse;
    sum.throttled += row.throttled;
    sum.failures += row.failures;
  }
  std::string text = fmt::format("user {}: {} {}{}", printable(options.user), count_text(sum.commands),
                                 options.type.empty() ? "" : printable(options.type) + " ",
                                 sum.commands == 1 ? "command" : "commands");
  const auto add = [&](std::uint64_t count, const char* what) {
    if (count > 0) text += fmt::format(", {} {}", count_text(count), what);
  };
  add(sum.refused, "refused");
  add(sum.would_refuse, "past the limit");
  add(sum.throttled, "slowed");
  add(sum.failures, "failed");
  return text;
}

int history(const Options& options) {
  const auto misused = [](std::string_view message) { return not_understood(message, "quota history"); };
  if (options.user.empty()) return misused("--user is needed: whose history?");
  if (options.csv && options.json) return misused("--csv and --json cannot go together");
  const Nanos now = std::chrono::system_clock::now().time_since_epoch();
  const Result<Nanos> since = parse_since(options.since, now);
  if (!since) return misused(since.error().message);
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  if (options.csv) return export_csv(*client, options, *since);
  const Day from = day_of(*since);
  const Result<ordered_json> usage = client->json("GET", "/api/quotas/usage" + query_of(options, earliest_start(from)));
  if (!usage) return failed(usage.error().message);
  const int limit = options.limit > 0 ? options.limit : kShown;
  const Result<ordered_json> runs = client->json("GET", "/api/quotas/executions" + query_of(options, *since) +
                                                            failed_query(options) + fmt::format("&limit={}", limit));
  if (!runs) return failed(runs.error().message);
  if (options.json) {
    ordered_json json{{"user", options.user}, {"since", *since / std::chrono::milliseconds{1}}};
    json["usage"] = JsonFields(*usage).list("usage");
    json["executions"] = JsonFields(*runs).list("executions");
    json["next_cursor"] = runs->contains("next_cursor") ? (*runs)["next_cursor"] : ordered_json();
    return write(json_text(json));
  }
  const Terminal terminal = options.terminal.terminal();
  std::vector<UsageDay> rows = read_usage(*usage);
  std::erase_if(rows, [&](const UsageDay& row) { return row.day < from; });
  std::string text;
  for (const std::string& line : wrap(summary(rows, options), terminal.width, 0)) text += line + "\n";
  text += "\n" + usage_graph(rows, from, day_of(now), terminal) + "\n";
  const ordered_json& list = JsonFields(*runs).list("executions");
  const char* kind = options.failed_only ? "failed commands" : "commands";
  if (list.empty()) return write(text + fmt::format("no {} were recorded in that time\n", kind));
  text += runs_table(list, terminal);
  if (JsonFields(*runs).has("next_cursor")) {
    text += terminal.paint(fmt::format("the latest {}; --limit shows more, --csv all", list.size()), Ink::kDim) + "\n";
  }
  return write(text);
}

}  // namespace

Command quota_history_command(Arguments parent) {
  Arguments arguments = parent.command("history");
  auto options = std::make_shared<Options>();
  arguments.option("--user", options->user);
  arguments.option("--since", options->since);
  arguments.option("--type", options->type);
  arguments.flag("--failed", options->failed_only);
  arguments.option("--limit", options->limit).check(between(1, 10'000));
  arguments.flag("--csv", options->csv);
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->client.add_to_managing(arguments);
  return {"quota history", kHelp, arguments, [options] { return history(*options); }};
}

}  // namespace headgate::cli
