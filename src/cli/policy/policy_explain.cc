// `headgate policy explain`: explain what each policy decides about a check.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/ask/check_options.h"
#include "cli/command.h"
#include "cli/policy/policy_server.h"
#include "cli/view/describe.h"
#include "engine/check_json.h"
#include "engine/engine.h"
#include "engine/line_fields.h"

namespace headgate::cli {
namespace {

using engine::Explained;
using nlohmann::ordered_json;

constexpr const char* kHelp = R"(headgate policy explain: explain what each policy decides about a check

Shows for every policy whether it matches the check, and if not, why; the key
that it counts under, and what is left of its limits for that key. Nothing is
charged. With --policies all limits are unused. Without, the policies of the
server are explained if it answers, otherwise the built-in limits.

Usage: headgate policy explain --operation OP [OPTIONS]

)" HEADGATE_CLI_CHECK_HELP R"(
Options:
  --policies PATH...  files and directories (default: the tier limits)
  --json              one JSON object
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_POLICY_SERVER_HELP;

struct Options {
  std::vector<std::string> policies;
  CheckOptions check;
  bool json = false;
  TerminalOptions terminal;
  PolicyServer server;
};

std::string missing_text(const policy::Policy& policy) {
  if (match_text(policy) == "everything") return {};
  return policy.missing == policy::Missing::kMatch ? "match (what a check leaves out does not exempt it)"
                                                   : "skip (a check that leaves out what it names is not meant)";
}

ordered_json explanation_json(const engine::Explanation& explanation, const Check& check) {
  ordered_json json;
  std::string decision;
  engine::append_json(explanation.decision, decision);
  json["decision"] = ordered_json::parse(decision);
  json["policies"] = ordered_json::array();
  for (const Explained& about : explanation.policies) {
    const std::string reason = why_not(about, check);
    ordered_json policy;
    policy["id"] = about.policy->id;
    policy["matches"] = reason.empty();
    policy["why_not"] = reason.empty() ? ordered_json() : ordered_json(reason);
    policy["mode"] = policy::to_string(about.policy->mode);
    policy["enforced"] = about.enforced;
    policy["action"] = policy::to_string(about.policy->action);
    policy["missing"] = policy::to_string(about.policy->missing);
    policy["key"] = about.key;
    if (!about.variant.empty()) policy["variant"] = about.variant;
    const bool has_least = about.policy->least_cost > 0;
    policy["least_cost"] = has_least ? number_json(least_cost(*about.policy)) : ordered_json();
    policy["holds"] = about.policy->holds;
    policy["cells"] = ordered_json::array();
    for (const Explained::Cell& cell : about.cells) {
      policy["cells"].push_back({{"limit", cell.limit},
                                 {"capacity", number_json(cell.capacity)},
                                 {"remaining", number_json(cell.remaining)},
                                 {"reset_after_ms", number_json(millis(cell.reset_after))},
                                 {"fits", cell.fits}});
    }
    json["policies"].push_back(std::move(policy));
  }
  return json;
}

class Page {
 public:
  explicit Page(const Terminal& terminal) : terminal_(terminal) {}
  void line(std::string_view text, int indent = 0) {
    for (const std::string& line : wrap(text, terminal_.width, indent)) text_ += line + "\n";
  }
  // "    key       agent=A", with what follows indented below.
  void entry(std::string_view name, std::string_view text) {
    constexpr int kIndent = 14;
    std::vector<std::string> lines = wrap(printable(text), terminal_.width, kIndent);
    lines.front().replace(4, name.size(), name);
    for (const std::string& line : lines) text_ += line + "\n";
  }
  void raw(std::string_view text) { text_ += text; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const Terminal& terminal_;
  std::string text_;
};

void show(const Explained& about, const Check& check, const Terminal& terminal, Page& page) {
  const std::string reason = why_not(about, check);
  const std::string mark = reason.empty() ? terminal.paint(terminal.unicode ? "✓" : "+", Ink::kGreen)
                                          : terminal.paint(terminal.unicode ? "×" : "-", Ink::kDim);
  page.raw(mark + " " + terminal.paint(about.policy->id, reason.empty() ? Ink::kBold : Ink::kDim) + "\n");
  if (!reason.empty()) {
    page.entry("no match", reason);
    if (const std::string missing = missing_text(*about.policy); !missing.empty()) page.entry("missing", missing);
    return;
  }
  page.entry("matches", match_text(*about.policy));
  if (const std::string missing = missing_text(*about.policy); !missing.empty()) page.entry("missing", missing);
  page.entry("mode", std::string(about.enforced ? "enforced, " : "monitored, ") +
                         policy::to_string(about.policy->action) +
                         (about.variant.empty() ? "" : ", variant " + about.variant));
  page.entry("key", about.key);
  if (about.policy->least_cost > 0) page.entry("cost", least_cost_text(least_cost(*about.policy)));
  if (!about.policy->holds) page.entry("holds", kNoHolds);
  for (const Explained::Cell& cell : about.cells) {
    page.entry("cell", fmt::format("{}: {} of {} left{}", cell.limit, number_text(cell.remaining),
                                   number_text(cell.capacity), cell.fits ? "" : ", the cost does not fit"));
  }
  if (about.cells.empty()) page.entry("cell", "unlimited");
}

int explain(const Options& options) {
  if (options.server.wanted() || (options.policies.empty() && options.server.answers())) {
    if (!options.policies.empty()) {
      return not_understood("files and a server cannot both be explained", "policy explain");
    }
    return explain_by_server(options.server, options.check, {options.json, options.terminal.terminal()});
  }
  engine::LineFields fields;
  if (const Result<void> read = options.check.read(fields); !read) {
    return not_understood(read.error().message, "policy explain");
  }
  policy::Document document;
  if (!read_policies(options.policies, document)) return kFailed;
  engine::Engine engine;
  if (const Result<void> loaded = engine.load(std::move(document)); !loaded) return failed(loaded.error().message);
  const engine::Explanation explanation = engine.explain(fields.check);
  const engine::CheckDecision& decision = explanation.decision;
  if (decision.why == engine::Why::kInvalid) return not_understood(decision.problem, "policy explain");
  if (options.json) return write(json_text(explanation_json(explanation, fields.check)));

  const Terminal terminal = options.terminal.terminal();
  Page page(terminal);
  page.raw(decision.allowed ? terminal.paint("allowed", Ink::kGreen) : terminal.paint("denied", Ink::kRed));
  page.raw(": " + decision.reason() + "\n");
  std::string state =
      "load " + std::string(control::to_string(engine.controls().load_state().level)) + ", no emergency";
  if (!decision.tier.empty()) state += ", tier " + std::string(decision.tier);
  page.raw(terminal.paint(state, Ink::kDim) + "\n\n");
  for (const Explained& about : explanation.policies) show(about, fields.check, terminal, page);
  return write(page.text());
}

}  // namespace

Command policy_explain_command(Arguments parent) {
  Arguments arguments = parent.command("explain");
  auto options = std::make_shared<Options>();
  arguments.option("--policies", options->policies);
  options->check.add_to(arguments);
  arguments.flag("--json", options->json);
  options->terminal.add_to(arguments);
  options->server.add_to(arguments);
  return {"policy explain", kHelp, arguments, [options] { return explain(*options); }};
}

}  // namespace headgate::cli
