// `headgate tune`: propose limits from observed use.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/rfc3339.h"
#include "cli/command.h"
#include "cli/policy/trace_start.h"
#include "cli/quota/tune_quotas.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"
#include "engine/tune.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate tune: propose limits from observed use

From a trace: replays it to see how much each key asks for at its busiest, takes
a percentile of that over all keys, adds headroom, and replays the trace again
with the limits that come out, to show what they would have denied.

From a server's ledger, without a trace: takes a percentile of the commands that
users ran a day, a week and a month, by plan and type, adds headroom, rounds up,
and tells whom the limits of now and those proposed would have refused. Changes
nothing: --commands prints what to type.

Usage: headgate tune --trace FILE [OPTIONS]
       headgate tune [--since SPAN] [OPTIONS]

Options:
  --percentile P      of the keys or users, over 0 and up to 100 (default: 95)
  --headroom F        times what was seen, 1 to 100, or on top: 20%
                      (default: 1.2)
  --json              one JSON object
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

From a trace:
  --trace FILE        the trace, as "headgate simulate" reads it
  --policies PATH...  files and directories (default: the tier limits)
  --start TIME        the wall clock at t = 0, as RFC 3339 or epoch milliseconds
                      (not where lines have time)

From a server's ledger:
  --since SPAN        how far back: 30d, or a day such as 2026-11-01
                      (default: 30d)
  --plan P            for this plan alone
  --commands          the "headgate quota set-plan" commands that would set what
                      is proposed, and nothing else

)" HEADGATE_CLI_MANAGING_HELP;

struct Options {
  std::vector<std::string> policies;
  std::string trace;
  std::string start;
  std::string since;
  std::string plan;
  double percentile = 95;
  std::string headroom_text = "1.2";
  double headroom = 1.2;  // what that says
  bool commands = false;
  ClientOptions client;
  bool json = false;
  TerminalOptions terminal;
};

std::string rounded(double number) {
  return number_text(number >= 100 ? std::round(number) : std::round(number * 100) / 100);
}

std::string page(const engine::TuneReport& report, const Options& options, const Terminal& terminal) {
  const std::string percentile = "P" + number_text(options.percentile);
  Table table({{"POLICY"},
               {"LIMIT"},
               {"KEYS", Table::Align::kRight},
               {percentile, Table::Align::kRight},
               {"MOST", Table::Align::kRight},
               {"PROPOSED"},
               {"DENIED"}});
  for (const engine::Tuned& tuned : report.limits) {
    const bool proposal = !tuned.proposed.empty();
    const bool worse = tuned.after > tuned.before;
    const std::string change = fmt::format("{} -> {}", count_text(tuned.before), count_text(tuned.after));
    table.add({{tuned.policy, Ink::kBold},
               {tuned.current},
               {count_text(tuned.keys)},
               {proposal ? rounded(tuned.at_percentile) : "-"},
               {proposal ? rounded(tuned.most) : "-"},
               {proposal ? tuned.proposed : tuned.note, proposal ? Ink::kCyan : Ink::kDim},
               {change, worse ? Ink::kYellow : Ink::kPlain}});
  }
  std::string text = table.text(terminal) + "\n";
  const std::string about = fmt::format(
      "{} checks, {} denied; with all proposals {}. Proposed is the {} of the keys' peak use, times {}; a bucket keeps "
      "the time in which it fills.",
      count_text(report.checks), count_text(report.denied_before), count_text(report.denied_after), percentile,
      number_text(options.headroom));
  for (const std::string& line : wrap(about, terminal.width, 0)) text += line + "\n";
  return text;
}

ordered_json report_json(const engine::TuneReport& report, const Options& options) {
  ordered_json json{{"checks", report.checks},
                    {"denied_before", report.denied_before},
                    {"denied_after", report.denied_after},
                    {"percentile", number_json(options.percentile)},
                    {"headroom", number_json(options.headroom)}};
  json["limits"] = ordered_json::array();
  for (const engine::Tuned& tuned : report.limits) {
    ordered_json about{{"policy_id", tuned.policy},
                       {"unit", tuned.unit},
                       {"current", tuned.current},
                       {"keys", tuned.keys},
                       {"limit", number_json(tuned.limit)}};
    about["proposed"] = tuned.proposed.empty() ? ordered_json() : ordered_json(tuned.proposed);
    if (!tuned.proposed.empty()) {
      about["proposed_limit"] = number_json(tuned.proposal);
      about["peak"] = {{"median", number_json(tuned.median)},
                       {"percentile", number_json(tuned.at_percentile)},
                       {"most", number_json(tuned.most)}};
    }
    if (!tuned.note.empty()) about["note"] = tuned.note;
    about["denied_before"] = tuned.before;
    about["denied_after"] = tuned.after;
    json["limits"].push_back(std::move(about));
  }
  return json;
}

// 1.2 and 20% are the same.
std::optional<double> headroom_of(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const auto number = policy::parse_decimal(text);
  if (!number) return std::nullopt;
  const double headroom = percent ? 1 + number->value() / 100 : number->value();
  if (!(headroom >= 1) || headroom > 100) return std::nullopt;
  return headroom;
}

// What does not go together; empty: all is well.
std::string conflict(const Options& options) {
  if (options.trace.empty()) {
    if (!options.policies.empty()) {
      return "--policies goes with --trace: of checks a server keeps only counts, so their limits are tuned from "
             "recorded traffic";
    }
    if (!options.start.empty()) return "--start goes with --trace";
    if (options.commands && options.json) return "--commands and --json cannot go together";
    return {};
  }
  if (!options.since.empty()) return "--since asks a server for its history: a trace is always taken whole";
  if (!options.plan.empty() || options.commands) return "--plan and --commands cannot go with --trace";
  if (options.trace == "-") return "--trace must be a file, since it is read three times, got standard input";
  return {};
}

int tune(Options options) {
  if (const std::string wrong = conflict(options); !wrong.empty()) return not_understood(wrong, "tune");
  if (!(options.percentile > 0) || options.percentile > 100) {
    return not_understood(
        fmt::format("--percentile must be over 0 and up to 100, got {}", number_text(options.percentile)), "tune");
  }
  const std::optional<double> headroom = headroom_of(options.headroom_text);
  if (!headroom) {
    return not_understood(
        fmt::format("--headroom must be between 1 and 100, or a share such as 20%, got {}", options.headroom_text),
        "tune");
  }
  options.headroom = *headroom;
  if (options.trace.empty()) {
    return tune_quotas_command({options.client, options.since, options.plan, options.commands, options.percentile,
                                options.headroom, options.json},
                               options.terminal.terminal());
  }
  engine::TuneOptions how;
  how.percentile = options.percentile;
  how.headroom = options.headroom;
  if (!options.start.empty()) {
    const auto start = base::parse_instant(options.start);
    if (!start) return not_understood(not_a_start(options.start), "tune");
    how.simulate.start = *start;
  }
  policy::Document document;
  if (!read_policies(options.policies, document)) return kFailed;
  const auto open = [&] { return engine::TraceReader::open(options.trace); };
  if (!options.start.empty()) {
    Result<engine::TraceReader> trace = open();
    const Result<bool> read = trace ? trace->next() : trace.error();  // what is wrong with it, tuning says
    if (read && *read && trace->step().absolute) return not_understood(kStartWithTime, "tune");
  }
  const Result<engine::TuneReport> report = engine::tune(document, open, how);
  if (!report) return failed(report.error().message);
  if (options.json) return write(json_text(report_json(*report, options)));
  return write(page(*report, options, options.terminal.terminal()));
}

}  // namespace

Command tune_command(Arguments parent) {
  Arguments arguments = parent.command("tune");
  auto options = std::make_shared<Options>();
  arguments.option("--policies", options->policies);
  arguments.option("--trace", options->trace);
  arguments.option("--start", options->start);
  arguments.option("--since", options->since);
  arguments.option("--percentile", options->percentile);
  arguments.option("--headroom", options->headroom_text);
  arguments.option("--plan", options->plan);
  arguments.flag("--commands", options->commands);
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->client.add_to_managing(arguments);
  return {"tune", kHelp, arguments, [options] { return tune(*options); }};
}

}  // namespace headgate::cli
