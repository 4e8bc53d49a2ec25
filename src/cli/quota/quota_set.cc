// `headgate quota set` and `quota set-plan`: the quota of a user, or of all users with a plan.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/quota/quota_view.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"
#include "policy/number.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kUserHelp = R"(headgate quota set: set the quota of one user

Changes the named fields and keeps the others. It applies to the next command.
Fields without a value of the user's own follow the plan; the value "plan"
removes one.

Usage: headgate quota set --user U [OPTIONS]

Options:
  --user U            the user
  --plan P            free, premium, enterprise or another that exists;
                      "default" is the server's default
  --timezone Z        whose midnight counts: Europe/Berlin, UTC, plan
  --mode enforce|monitor|off|plan
                      monitor counts and reports, off does not count either
  --weight W          share of starts when commands queue, 0.01 to 1000
  --type T            type of command that the following limits are for
  --daily N           commands a day: a number, unlimited or plan
  --weekly N          commands a week, from Monday
  --monthly N         commands a month
  --session N         commands a day within one session
  --clear             remove all values of the user's own
  --json              print the server's answer as it is
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

constexpr const char* kPlanHelp = R"(headgate quota set-plan: set the quota of all users with a plan

Changes the named fields and keeps the others; creates the plan if it does not
exist. "headgate quota plans" lists all plans.

Usage: headgate quota set-plan --plan P [OPTIONS]

Options:
  --plan P            the plan
  --timezone Z        whose midnight counts: Europe/Berlin, UTC
  --mode enforce|monitor|off
                      monitor counts and reports, off does not count either
  --weight W          share of starts when commands queue, 0.01 to 1000
  --type T            type of command that the following limits are for
  --daily N           commands a day: a number or unlimited
  --weekly N          commands a week, from Monday
  --monthly N         commands a month
  --session N         commands a day within one session
  --estimate-cpu N    assumed CPU of one command, in percent of a core
  --estimate-mem N    assumed memory of one command, in MB
  --clear             restore a built-in plan, or delete any other
  --json              print the server's answer as it is
  --width N           fit N columns, 40 to 400
  --no-color          no colours
  -h, --help          print this

)" HEADGATE_CLI_MANAGING_HELP;

struct Options {
  ClientOptions client;
  std::string user;
  std::string plan;
  std::string timezone;
  std::string mode;
  std::string weight;
  std::string type;
  std::array<std::string, 4> limits;  // by kLimits
  std::array<std::string, 2> estimates;
  bool clear = false;
  bool json = false;
  TerminalOptions terminal;
};

constexpr std::array<const char*, 4> kLimits{"daily", "weekly", "monthly", "session"};
constexpr std::array<const char*, 2> kEstimates{"estimated_cpu", "estimated_mem"};
constexpr std::array<const char*, 2> kEstimateOptions{"--estimate-cpu", "--estimate-mem"};

Error misused(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Result<ordered_json> number_of(const char* option, const std::string& text, const char* others) {
  const auto number = policy::parse_decimal(text);
  if (number && number->digits >= 0) return number_json(number->value());
  return misused(fmt::format("{} must be a number{}, got \"{}\"", option, others, text));
}

Result<ordered_json> amount_of(const std::string& option, const std::string& text, bool of_user) {
  if (text == "unlimited") return ordered_json("unlimited");
  if (of_user && text == "plan") return ordered_json(nullptr);
  const auto number = policy::parse_decimal(text);
  if (number && number->digits >= 0 && number->is_whole()) {
    if (const auto whole = number->times(1)) return ordered_json(*whole);
  }
  return misused(
      fmt::format("{} must be a whole number{} or unlimited, got \"{}\"", option, of_user ? ", plan" : "", text));
}

// The fields of one type, if one is named.
Result<ordered_json> type_body(const Options& options, bool of_user) {
  ordered_json body = ordered_json::object();
  for (std::size_t i = 0; i < kLimits.size(); ++i) {
    if (options.limits[i].empty()) continue;
    Result<ordered_json> amount = amount_of(std::string("--") + kLimits[i], options.limits[i], of_user);
    if (!amount) return amount;
    body[kLimits[i]] = std::move(*amount);
  }
  for (std::size_t i = 0; i < kEstimates.size(); ++i) {
    if (options.estimates[i].empty()) continue;
    Result<ordered_json> number = number_of(kEstimateOptions[i], options.estimates[i], "");
    if (!number) return number;
    body[kEstimates[i]] = std::move(*number);
  }
  if (body.empty() && !options.type.empty()) {
    return misused("--type says what --daily, --weekly, --monthly or --session is for: at least one of them is needed");
  }
  if (!body.empty() && options.type.empty()) {
    return misused(fmt::format("--type is needed: {} of which type of command?", body.begin().key()));
  }
  return body;
}

// What to send; empty: nothing was named.
Result<ordered_json> body_of(const Options& options, bool of_user) {
  const auto back = [&](const std::string& text) { return of_user && text == "plan"; };
  ordered_json body = ordered_json::object();
  if (of_user && !options.plan.empty()) {
    body["plan"] = options.plan == "default" ? ordered_json(nullptr) : ordered_json(options.plan);
  }
  if (!options.timezone.empty()) {
    body["timezone"] = back(options.timezone) ? ordered_json(nullptr) : ordered_json(options.timezone);
  }
  if (!options.mode.empty()) {
    constexpr std::array<const char*, 3> kModes{"enforce", "monitor", "off"};
    const bool known = std::find(kModes.begin(), kModes.end(), options.mode) != kModes.end();
    if (!known && !back(options.mode)) {
      return misused(fmt::format("--mode must be enforce, monitor{}, got \"{}\"", of_user ? ", off or plan" : " or off",
                                 options.mode));
    }
    body["mode"] = known ? ordered_json(options.mode) : ordered_json(nullptr);
  }
  if (back(options.weight)) {
    body["weight"] = nullptr;
  } else if (!options.weight.empty()) {
    Result<ordered_json> weight = number_of("--weight", options.weight, of_user ? " or plan" : "");
    if (!weight) return weight;
    body["weight"] = std::move(*weight);
  }
  Result<ordered_json> type = type_body(options, of_user);
  if (!type) return type;
  if (!type->empty()) body["types"][options.type] = std::move(*type);
  if (options.clear && !body.empty()) {
    return misused(fmt::format("--clear takes everything away: it cannot go with --{}",
                               body.begin().key() == "types" ? "type" : body.begin().key()));
  }
  if (!options.clear && body.empty()) return misused("what is to change? name at least one option, or --clear");
  return body;
}

// What holds for fields that are not set: by name, or else this.
struct Unset {
  QuotaFields known;
  const char* otherwise;
};

// "shell daily  as the plan: 500 -> 50", for all that differs.
std::string changes(const std::string& whose, const QuotaFields& before, const QuotaFields& after, const Unset& unset,
                    const Terminal& terminal) {
  Table table({{"FIELD"}, {"BEFORE"}, {""}, {"AFTER"}});
  const auto shown = [&](const std::string* value, const std::string& name) {
    if (value != nullptr) return *value;
    const std::string* known = find_field(unset.known, name);
    return known == nullptr ? std::string(unset.otherwise) : *known;
  };
  const auto add = [&](const std::string& name) {
    const std::string* old = find_field(before, name);
    const std::string* now = find_field(after, name);
    if (old != nullptr && now != nullptr && *old == *now) return;
    table.add({{name, Ink::kBold},
               {shown(old, name), old == nullptr ? Ink::kDim : Ink::kPlain},
               {"->", Ink::kDim},
               {shown(now, name), now == nullptr ? Ink::kDim : Ink::kCyan}});
  };
  for (const auto& [name, value] : before) add(name);
  for (const auto& [name, value] : after) {
    if (find_field(before, name) == nullptr) add(name);
  }
  if (table.empty()) return printable(whose) + ": all was so already\n";
  return printable(whose) + "\n" + table.text(terminal, 2);
}

const ordered_json& member(const ordered_json& json, const std::string& name) {
  static const ordered_json kNothing;
  return json.is_object() && json.contains(name) ? json[name] : kNothing;
}

// The laxest mode of server, plan and user holds. Setting a stricter one has no effect, which is worth a warning.
std::string mode_note(const std::string& set, const std::string& holds) {
  if (set.empty() || holds.empty() || set == holds) return {};
  return fmt::format("note: mode {} still holds, the laxest of server, plan and user\n", printable(holds));
}

int set_user(const Options& options) {
  if (options.user.empty()) {
    return not_understood("--user is needed; \"headgate quota set-plan\" changes a plan", "quota set");
  }
  const Result<ordered_json> body = body_of(options, true);
  if (!body) return not_understood(body.error().message, "quota set");
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  const std::string path = "/api/quotas/user/" + url_encoded(options.user);
  // A server may not know users before they have a rule.
  const Result<ordered_json> before = client->json("GET", path);
  if (!before && before.error().code != ErrorCode::kNotFound) return failed(before.error().message);
  const ordered_json old = before ? *before : ordered_json::object();
  // A rule that is not there is no reason to fail: all is as it was to be.
  const bool nothing_to_clear = options.clear && !options.json && before && member(old, "rule").is_null();
  const Result<ordered_json> done = nothing_to_clear ? ordered_json()
                                    : options.clear  ? client->json("DELETE", path)
                                                     : client->json("PUT", path, *body);
  if (!done) return failed(done.error().message);
  if (options.json) return write(client->received());
  const QuotaFields old_rule = quota_fields(member(old, "rule"));
  // Fields that the rule does not set follow the plan.
  ordered_json effective;
  if (find_field(old_rule, "plan") == nullptr) effective["plan"] = JsonFields(old).text("plan");
  effective["timezone"] = JsonFields(old).text("timezone");
  effective["mode"] = JsonFields(old).text("mode");
  for (const char* period : kQuotaPeriods) {
    for (const auto& [type, use] : member(old, period).items()) effective["types"][type][period] = member(use, "limit");
  }
  QuotaFields otherwise{{"plan", "the default"}};
  for (const auto& [name, value] : quota_fields(effective)) {
    if (find_field(old_rule, name) != nullptr) continue;
    if (name == "plan") {
      otherwise.front().second += ": " + value;
    } else {
      otherwise.emplace_back(name, "as the plan: " + value);
    }
  }
  const ordered_json none;
  const QuotaFields new_rule = quota_fields(options.clear ? none : member(*done, "rule"));
  std::string note;
  if (!options.mode.empty() && options.mode != "plan") {
    const Result<ordered_json> now = client->json("GET", path);
    if (now) note = mode_note(options.mode, JsonFields(*now).text("mode"));
  }
  return write(
      changes("user " + options.user, old_rule, new_rule, {otherwise, "as the plan"}, options.terminal.terminal()) +
      note);
}

int set_plan(const Options& options) {
  if (options.plan.empty()) return not_understood("--plan is needed: which plan?", "quota set-plan");
  const Result<ordered_json> body = body_of(options, false);
  if (!body) return not_understood(body.error().message, "quota set-plan");
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  std::string server_mode;
  const auto fields = [&]() -> Result<QuotaFields> {
    const Result<ordered_json> all = client->json("GET", "/api/quotas/commands");
    if (!all) return all.error();
    server_mode = JsonFields(*all).text("mode");
    return quota_fields(member(member(*all, "plans"), options.plan));
  };
  const Result<QuotaFields> before = fields();
  if (!before) return failed(before.error().message);
  const std::string path = "/api/quotas/plans/" + url_encoded(options.plan);
  const Result<ordered_json> done = options.clear ? client->json("DELETE", path) : client->json("PUT", path, *body);
  if (!done) return failed(done.error().message);
  if (options.json) return write(client->received());
  const Result<QuotaFields> after = fields();
  if (!after) return failed(after.error().message);
  const Terminal terminal = options.terminal.terminal();
  if (after->empty()) return write(fmt::format("plan {} is gone\n", printable(options.plan)));
  const bool laxer = server_mode == "off" || (server_mode == "monitor" && options.mode == "enforce");
  const std::string note = laxer ? mode_note(options.mode, server_mode) : "";
  if (before->empty()) {
    Table table({{"FIELD"}, {"VALUE"}});
    for (const auto& [name, value] : *after) table.add({{name, Ink::kBold}, {value}});
    return write(fmt::format("plan {} is new\n", printable(options.plan)) + table.text(terminal, 2) + note);
  }
  return write(
      changes("plan " + options.plan, *before, *after, {{{"time zone", "the server's"}}, "not named"}, terminal) +
      note);
}

void add_options(Arguments arguments, Options& options) {
  arguments.option("--plan", options.plan);
  arguments.option("--timezone", options.timezone);
  arguments.option("--mode", options.mode);
  arguments.option("--weight", options.weight);
  arguments.option("--type", options.type);
  for (std::size_t i = 0; i < kLimits.size(); ++i) arguments.option(std::string("--") + kLimits[i], options.limits[i]);
  arguments.flag("--clear", options.clear);
  arguments.flag("--json", options.json);
  options.terminal.add_to(arguments);
  options.client.add_to_managing(arguments);
}

}  // namespace

Command quota_set_command(Arguments parent) {
  Arguments arguments = parent.command("set");
  auto options = std::make_shared<Options>();
  arguments.option("--user", options->user);
  add_options(arguments, *options);
  return {"quota set", kUserHelp, arguments, [options] { return set_user(*options); }};
}

Command quota_set_plan_command(Arguments parent) {
  Arguments arguments = parent.command("set-plan");
  auto options = std::make_shared<Options>();
  for (std::size_t i = 0; i < kEstimates.size(); ++i) arguments.option(kEstimateOptions[i], options->estimates[i]);
  add_options(arguments, *options);
  return {"quota set-plan", kPlanHelp, arguments, [options] { return set_plan(*options); }};
}

}  // namespace headgate::cli
