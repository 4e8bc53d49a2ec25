// `headgate simulate`: who would have been denied, by what and when.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/rfc3339.h"
#include "cli/command.h"
#include "cli/policy/trace_start.h"
#include "cli/view/chart.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"
#include "engine/decision_lines.h"
#include "engine/simulate_json.h"

namespace headgate::cli {
namespace {

using engine::PeakUse;
using engine::SimulationReport;

constexpr const char* kHelp = R"(headgate simulate: replay a trace against policies in virtual time

Every line of the trace is a check, with the fields of POST /v1/check, or an
event; each has "t", milliseconds from the start, or "time", epoch
milliseconds or RFC 3339:

  {"t": 0, "agent": "A", "operation": "CREATE_COMPONENT"}
  {"t": 5000, "event": "load", "load": 0.85}

CSV with a header of the same names reads too (context.type, cost.tokens).
Events: load, emergency_on, emergency_off, override, exempt, settle, release,
renew, policies.

Usage: headgate simulate --trace FILE [OPTIONS]

Options:
  --trace FILE        the trace; - is standard input
  --policies PATH...  files and directories (default: the tier limits)
  --decisions         one JSON decision for each check, instead of a summary
  --start TIME        the wall clock at t = 0, as RFC 3339 or epoch milliseconds
                      (default: 1970-01-01T00:00:00Z); not where lines have time
  --json              the summary as one JSON object
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

Exit code: 0 however much was denied, 1 if a file cannot be read.
)";

constexpr std::size_t kMostRows = 20;

struct Options {
  std::vector<std::string> policies;
  std::string trace;
  std::string start;
  bool decisions = false;
  bool json = false;
  TerminalOptions terminal;
};

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return fmt::format("{:.1f} %", whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

const engine::PolicyReport::OfLimit* most_used(const engine::PolicyReport& policy) {
  const engine::PolicyReport::OfLimit* most = nullptr;
  for (const auto& limit : policy.limits) {
    if (limit.peak.capacity > 0 && (most == nullptr || limit.peak.share() > most->peak.share())) most = &limit;
  }
  return most;
}

std::string when(const SimulationReport& report, Nanos at) {
  return report.absolute ? base::format_rfc3339(report.start + at) : span_text(at);
}

std::string peak_text(const SimulationReport& report, const engine::PolicyReport& policy) {
  const auto* most = most_used(policy);
  if (most == nullptr) return "-";
  const PeakUse& peak = most->peak;
  return fmt::format("{} of {} ({:.0f} %) at {}", number_text(peak.used), number_text(peak.capacity),
                     100 * peak.share(), when(report, peak.at));
}

Ink ink_of_share(double share) {
  constexpr double kYellow = 0.5;
  constexpr double kRed = 0.8;
  return share < kYellow ? Ink::kGreen : share <= kRed ? Ink::kYellow : Ink::kRed;
}

std::string totals_text(const SimulationReport& report, const Terminal& terminal) {
  const auto line = [&](const Terminal& on) {
    return on.paint(count_text(report.checks) + (report.checks == 1 ? " check" : " checks"), Ink::kBold) + " over " +
           span_text(report.last - report.first) + ": " +
           on.paint(count_text(report.allowed) + " allowed", Ink::kGreen) + ", " +
           on.paint(count_text(report.denied) + " denied", report.denied > 0 ? Ink::kRed : Ink::kPlain) + " (" +
           percent(report.denied, report.checks) + ")";
  };
  const std::string plain = line({});
  std::string text = line(terminal) + "\n";
  if (plain.size() > static_cast<std::size_t>(terminal.width)) {
    text.clear();
    for (const std::string& piece : wrap(plain, terminal.width, 0)) text += piece + "\n";
  }
  std::vector<std::string> more;
  const auto add = [&](std::uint64_t count, const char* one, const char* many) {
    if (count > 0) more.push_back(count_text(count) + " " + (count == 1 ? one : many));
  };
  add(report.invalid, "could not be answered", "could not be answered");
  add(report.queued, "queued", "queued");
  add(report.warnings, "warning", "warnings");
  add(report.escalations, "escalation", "escalations");
  add(report.without_effect, "lease event without effect", "lease events without effect");
  if (more.empty()) return text;
  for (const std::string& piece : wrap(fmt::format("{}", fmt::join(more, ", ")), terminal.width, 0)) {
    text += piece + "\n";
  }
  return text;
}

std::string chart_text(const SimulationReport& report, const Terminal& terminal) {
  ChartRow allowed{"allowed", Ink::kGreen, {}};
  ChartRow denied{"denied", Ink::kRed, {}};
  for (const auto& bucket : report.over_time.buckets()) {
    allowed.values.push_back(static_cast<double>(bucket.allowed));
    denied.values.push_back(static_cast<double>(bucket.denied));
  }
  return chart({allowed, denied}, {when(report, Nanos{0}), when(report, report.last)}, terminal);
}

std::string policies_text(const SimulationReport& report, const Terminal& terminal) {
  Table table({{"POLICY"},
               {"MATCHED", Table::Align::kRight},
               {"DENIED", Table::Align::kRight},
               {"MONITORED", Table::Align::kRight},
               {"PEAK USE"}});
  std::size_t shown = 0;
  std::size_t matched = 0;
  for (const engine::PolicyReport& policy : report.policies) {
    if (policy.matched == 0) continue;
    if (++matched > kMostRows && policy.denied == 0 && policy.monitored == 0) continue;
    ++shown;
    const auto* most = most_used(policy);
    table.add({{policy.id, Ink::kBold},
               {count_text(policy.matched)},
               {count_text(policy.denied), policy.denied > 0 ? Ink::kRed : Ink::kPlain},
               {count_text(policy.monitored), policy.monitored > 0 ? Ink::kYellow : Ink::kPlain},
               {peak_text(report, policy), most == nullptr ? Ink::kPlain : ink_of_share(most->peak.share())}});
  }
  std::string text = table.empty() ? "No policy matched anything.\n" : table.text(terminal);
  if (matched > shown) text += fmt::format("and {} more that denied nothing\n", matched - shown);
  const std::size_t unmatched = report.policies.size() - matched;
  if (unmatched > 0 && !table.empty()) {
    text +=
        terminal.paint(fmt::format("{} polic{} matched nothing", unmatched, unmatched == 1 ? "y" : "ies"), Ink::kDim) +
        "\n";
  }
  return text;
}

std::string agents_text(const SimulationReport& report, const Terminal& terminal) {
  Table table({{"AGENT"}, {"CHECKS", Table::Align::kRight}, {"DENIED", Table::Align::kRight}});
  const std::size_t shown = std::min(report.agents.size(), kMostRows / 2);
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& [name, about] = report.agents[i];
    table.add({{name, Ink::kBold},
               {count_text(about.checks)},
               {count_text(about.denied), about.denied > 0 ? Ink::kRed : Ink::kPlain}});
  }
  std::string text = table.text(terminal);
  if (report.agents.size() > shown) text += fmt::format("and {} more\n", count_text(report.agents.size() - shown));
  return text;
}

std::string summary(const SimulationReport& report, const Terminal& terminal) {
  std::string text = totals_text(report, terminal);
  if (report.checks == 0) return text;
  text += "\n" + chart_text(report, terminal);
  text += "\n" + policies_text(report, terminal);
  text += "\n" + agents_text(report, terminal);
  if (const auto& first = report.first_denial) {
    const std::string who =
        fmt::format("First denied at {}: {}, {}{}{}: {}", when(report, first->at), first->agent, first->operation,
                    first->policy.empty() ? "" : ", by ", first->policy, first->reason);
    text += "\n";
    for (const std::string& line : wrap(printable(who), terminal.width, 0)) text += line + "\n";
  }
  return text;
}

int simulate(const Options& options) {
  if (options.trace.empty()) return not_understood("--trace is needed: a file, or - for standard input", "simulate");
  engine::SimulateOptions how;
  if (!options.start.empty()) {
    const auto start = base::parse_instant(options.start);
    if (!start) return not_understood(not_a_start(options.start), "simulate");
    how.start = *start;
  }
  if (options.trace != "-") how.directory = std::filesystem::path(options.trace).parent_path().string();
  policy::Document document;
  if (!read_policies(options.policies, document)) return kFailed;
  Result<engine::TraceReader> trace = engine::TraceReader::open(options.trace);
  if (!trace) return failed(trace.error().message);

  engine::DecisionLines lines([](std::string_view text) { return write(text) == kDone; });
  if (options.decisions) how.on_decided = [&](const engine::Decided& decided) { lines.decided(decided); };
  engine::Simulation simulation(std::move(how));
  if (const Result<void> loaded = simulation.load(std::move(document)); !loaded) return failed(loaded.error().message);
  while (lines.works()) {
    const Result<bool> more = trace->next();
    if (!more || !*more) {
      simulation.finish();
      lines.finish();
      if (!more) return failed(more.error().message);
      break;
    }
    if (trace->step().absolute && !options.start.empty()) return not_understood(kStartWithTime, "simulate");
    if (options.decisions) lines.asked(trace->step());
    if (const Result<void> stepped = simulation.step(trace->step()); !stepped) {
      simulation.finish();
      lines.finish();
      return failed(trace->error(stepped.error().message).message);
    }
  }
  if (!lines.works()) return kFailed;
  if (options.decisions) return kDone;
  if (options.json) return write(json_text(engine::to_json(simulation.report())));
  return write(summary(simulation.report(), options.terminal.terminal()));
}

}  // namespace

Command simulate_command(Arguments parent) {
  Arguments arguments = parent.command("simulate");
  auto options = std::make_shared<Options>();
  arguments.option("--policies", options->policies);
  arguments.option("--trace", options->trace);
  arguments.option("--start", options->start);
  arguments.flag("--decisions", options->decisions);
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  return {"simulate", kHelp, arguments, [options] { return simulate(*options); }};
}

}  // namespace headgate::cli
