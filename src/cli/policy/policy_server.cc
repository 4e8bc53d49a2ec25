#include "cli/policy/policy_server.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/json_fields.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPath = "/api/admin/policies";
constexpr std::size_t kMostBytes = 16 << 20;

// A file, or standard input for "-".
Result<std::string> read_whole(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return Error{ErrorCode::kIo, fmt::format("{} cannot be read", path)};
  std::string text;
  std::array<char, 64 << 10> piece;
  while (text.size() <= kMostBytes) {
    const std::size_t count = std::fread(piece.data(), 1, piece.size(), file);
    if (count == 0) break;
    text.append(piece.data(), count);
  }
  const bool broken = std::ferror(file) != 0;  // a directory can be opened, but not read
  if (file != stdin) std::fclose(file);
  if (broken) return Error{ErrorCode::kIo, fmt::format("{} cannot be read", path)};
  if (text.size() > kMostBytes) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} must be at most {} MB", path, kMostBytes >> 20)};
  }
  return text;
}

Ink ink_of(const std::string& mode) {
  if (mode == "monitor") return Ink::kYellow;
  return mode == "off" ? Ink::kDim : Ink::kGreen;
}

// "    key       agent=A", with what follows indented below.
std::string entry(std::string_view name, std::string_view text, const Terminal& terminal) {
  constexpr int kIndent = 14;
  std::vector<std::string> lines = wrap(printable(text), terminal.width, kIndent);
  lines.front().replace(4, name.size(), name);
  return joined(lines, "\n") + "\n";
}

std::string explained(const JsonFields& policy, const Terminal& terminal) {
  const bool matches = policy.flag("matches");
  const std::string mark = matches ? terminal.paint(terminal.unicode ? "✓" : "+", Ink::kGreen)
                                   : terminal.paint(terminal.unicode ? "×" : "-", Ink::kDim);
  std::string out = mark + " " + terminal.paint(printable(policy.text("id")), matches ? Ink::kBold : Ink::kDim) + "\n";
  if (!matches) return out + entry("no match", policy.text("why_not"), terminal);
  const std::string variant = policy.text("variant");
  const std::string action = policy.text("action");
  out += entry("mode",
               std::string(policy.flag("enforced") ? "enforced" : "monitored") + (action.empty() ? "" : ", " + action) +
                   (variant.empty() ? "" : ", variant " + variant),
               terminal);
  out += entry("key", policy.text("key"), terminal);
  if (const double least = policy.number("least_cost"); least > 0) {
    out += entry("cost", least_cost_text(least), terminal);
  }
  if (policy.has("holds") && !policy.flag("holds")) out += entry("holds", kNoHolds, terminal);
  for (const ordered_json& json : policy.list("cells")) {
    const JsonFields cell(json);
    const double reset = cell.number("reset_after_ms");
    out += entry("cell",
                 fmt::format("{}: {} of {} left{}{}", cell.text("limit"), number_text(cell.number("remaining")),
                             number_text(cell.number("capacity")),
                             reset > 0 ? ", full in " + span_text(Nanos{static_cast<std::int64_t>(reset * 1e6)}) : "",
                             cell.flag("fits") ? "" : ", the cost does not fit"),
                 terminal);
  }
  if (policy.list("cells").empty()) out += entry("cell", "unlimited", terminal);
  return out;
}

}  // namespace

bool PolicyServer::answers() const {
  constexpr Nanos kWithin = std::chrono::seconds{2};
  Result<Client> asked = Client::open(client, Client::Purpose::kAsk);
  if (asked) {
    asked->answer_within(kWithin);
    if (const Result<Response> alive = asked->call("GET", "/healthz"); alive && alive->status == 200) {
      fmt::print(stderr, "The policies of the server at {}:\n", asked->url());
      return true;
    }
  }
  fmt::print(stderr, "The built-in limits, since no server answers{}:\n", asked ? " at " + asked->url() : "");
  return false;
}

int list_from_server(const PolicyServer& server, const PolicyOutput& output) {
  Result<Client> client = Client::open(server.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer = client->json("GET", kPath);
  if (!answer) return failed(answer.error().message);
  if (output.json) return write(client->received());
  const JsonFields all(*answer);
  Table table({{"ID"}, {"MODE"}, {"KEY"}, {"LIMIT"}, {"ACTION"}, {"FROM"}});
  for (const ordered_json& json : all.list("policies")) {
    const JsonFields policy(json);
    const std::vector<std::string> key = policy.texts("key");
    const std::vector<std::string> limits = policy.texts("limits");
    table.add({{policy.text("id"), Ink::kBold},
               {policy.text("mode"), ink_of(policy.text("mode"))},
               {key.empty() ? "(all)" : joined(key, ", ")},
               {limits.empty() ? "unlimited" : joined(limits, " and ")},
               {policy.text("action")},
               {policy.text("source")}});
  }
  std::string text = table.empty() ? "no policies\n" : table.text(output.terminal);
  if (all.has("version")) {
    text += output.terminal.paint(fmt::format("version {}, from {}", all.text_or_number("version"),
                                              all.text("source") == "api" ? "the API" : "files"),
                                  Ink::kDim) +
            "\n";
  }
  return write(text);
}

int explain_by_server(const PolicyServer& server, const CheckOptions& check, const PolicyOutput& output) {
  Result<ordered_json> body = check.json();
  if (!body) return not_understood(body.error().message, "policy explain");
  Result<Client> client = Client::open(server.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer = client->json("POST", std::string(kPath) + "/explain", *body);
  if (!answer) return failed(answer.error().message);
  if (output.json) return write(client->received());
  const JsonFields all(*answer);
  const JsonFields decision = all.object("decision");
  const bool allowed = decision.flag("allowed");
  const Terminal& terminal = output.terminal;
  std::string text = allowed ? terminal.paint("allowed", Ink::kGreen) : terminal.paint("denied", Ink::kRed);
  text += ": " + printable(decision.text("reason")) + "\n";
  if (const std::string tier = decision.text("tier"); !tier.empty()) {
    text += terminal.paint("tier " + printable(tier), Ink::kDim) + "\n";
  }
  text += "\n";
  for (const ordered_json& policy : all.list("policies")) text += explained(JsonFields(policy), terminal);
  return write(text);
}

int validate_by_server(const PolicyServer& server, const std::vector<std::string>& paths, bool json) {
  if (paths.size() != 1) {
    return not_understood(
        fmt::format("with a server one file is needed, or - for standard input, got {}", paths.size()),
        "policy validate");
  }
  const std::string& path = paths.front();
  const Result<std::string> text = read_whole(path);
  if (!text) return failed(text.error().message);
  Result<Client> client = Client::open(server.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const Result<ordered_json> answer = client->json("POST", std::string(kPath) + "/validate", {{"text", *text}});
  if (!answer) return failed(answer.error().message);
  const JsonFields result(*answer);
  const bool ok = result.flag("ok");
  if (json) {
    const int written = write(client->received());
    return ok ? written : kFailed;
  }
  // The server was sent a text; where it came from, only we know.
  const std::string file = path == "-" ? "standard input" : path;
  for (const ordered_json& problem : result.list("problems")) {
    const JsonFields about(problem);
    fmt::print(stderr, "{}:{}:{}: {}\n", file, about.count("line"), about.count("column"),
               printable(about.text("message")));
  }
  if (!ok) return kFailed;
  return write(fmt::format("ok: {} would take it\n", client->url()));
}

}  // namespace headgate::cli
