// `headgate tune`: limits proposed from observed use.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/rfc3339.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/table.h"
#include "engine/tune.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate tune: limits proposed from observed use

Replays a trace to see how much each key asks for at its busiest, takes a
percentile of that over all keys, adds headroom, and replays the trace again
with the limits that come out, to show what they would have denied.

Usage: headgate tune --trace FILE [OPTIONS]

Options:
  --trace FILE        the trace, as "headgate simulate" reads it
  --policies PATH...  files and directories (default: the tier limits)
  --percentile P      of the keys, over 0 and up to 100 (default: 95)
  --headroom F        times what was seen, 1 to 100 (default: 1.2)
  --start TIME        the wall clock at t = 0, as RFC 3339
  --since SPAN        needs a server; not with a trace
  --json              one JSON object
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this
)";

struct Options {
  std::vector<std::string> policies;
  std::string trace;
  std::string start;
  std::string since;
  double percentile = 95;
  double headroom = 1.2;
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

int tune(const Options& options) {
  if (!options.trace.empty() && !options.since.empty()) {
    return not_understood("--since asks a server for its history: a trace is always taken whole", "tune");
  }
  if (options.trace.empty()) {
    return not_understood(
        "--trace is needed: without it the history of a server would be, and this version has no server", "tune");
  }
  if (options.trace == "-") {
    return not_understood("--trace must be a file, since it is read three times, got standard input", "tune");
  }
  if (!(options.percentile > 0) || options.percentile > 100) {
    return not_understood(
        fmt::format("--percentile must be over 0 and up to 100, got {}", number_text(options.percentile)), "tune");
  }
  if (!(options.headroom >= 1) || options.headroom > 100) {
    return not_understood(fmt::format("--headroom must be between 1 and 100, got {}", number_text(options.headroom)),
                          "tune");
  }
  engine::TuneOptions how;
  how.percentile = options.percentile;
  how.headroom = options.headroom;
  if (!options.start.empty()) {
    const auto start = base::parse_rfc3339(options.start);
    if (!start) {
      return not_understood(
          fmt::format("--start must be an instant such as 2026-03-28T15:00:00Z, got \"{}\"", options.start), "tune");
    }
    how.simulate.start = *start;
  }
  policy::Document document;
  if (!read_policies(options.policies, document)) return kFailed;
  const auto open = [&] { return engine::TraceReader::open(options.trace); };
  const Result<engine::TuneReport> report = engine::tune(document, open, how);
  if (!report) return failed(report.error().message);
  if (options.json) return write(json_text(report_json(*report, options)));
  return write(page(*report, options, options.terminal.terminal()));
}

}  // namespace

Command tune_command(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("tune");
  auto options = std::make_shared<Options>();
  app->add_option("--policies", options->policies);
  app->add_option("--trace", options->trace);
  app->add_option("--start", options->start);
  app->add_option("--since", options->since);
  app->add_option("--percentile", options->percentile);
  app->add_option("--headroom", options->headroom);
  app->add_flag("--json", options->json);
  options->terminal.add_to(*app);
  return {"tune", kHelp, app, [options] { return tune(*options); }};
}

}  // namespace headgate::cli
