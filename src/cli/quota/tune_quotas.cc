#include "cli/quota/tune_quotas.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "cli/json_fields.h"
#include "cli/quota/quota_tune.h"
#include "cli/quota/quota_view.h"
#include "cli/view/describe.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr const char* kDefaultSince = "30d";
constexpr Nanos kMostSince = 24h * 400;
constexpr int kUsersPage = 1000;
constexpr int kUsagePage = 100'000;  // users and types of one day; the most that a server tells
constexpr std::array<const char*, 3> kPeriodNames{"day", "week", "month"};

std::optional<std::uint64_t> amount(const JsonFields& limits, const char* key) {
  if (!limits.has(key)) return std::nullopt;
  return limits.count(key);
}

Result<void> read_plans(Client& client, QuotaTuneInput& input) {
  const Result<ordered_json> all = client.json("GET", "/api/quotas/commands");
  if (!all) return all.error();
  input.default_plan = JsonFields(*all).text("default_plan");
  if (!all->contains("plans")) return {};
  for (const auto& [name, plan] : (*all)["plans"].items()) {
    if (!plan.is_object() || !plan.contains("types")) continue;
    for (const auto& [type, json] : plan["types"].items()) {
      const JsonFields limits(json);
      input.limits[name][type] = {amount(limits, "daily"), amount(limits, "weekly"), amount(limits, "monthly")};
    }
  }
  return {};
}

Result<void> read_users(Client& client, QuotaTuneInput& input) {
  std::string after;
  while (true) {
    std::string path = fmt::format("/api/quotas/users?limit={}", kUsersPage);
    if (!after.empty()) path += "&after=" + url_encoded(after);
    const Result<ordered_json> page = client.json("GET", path);
    if (!page) return page.error();
    for (const ordered_json& each : JsonFields(*page).list("users")) {
      const JsonFields user(each);
      const std::string plan = user.object("rule").text("plan");
      if (!plan.empty()) input.plans[user.text("user")] = plan;
    }
    const std::string next = JsonFields(*page).text("next");
    if (next.empty() || next <= after) return {};
    after = next;
  }
}

// A day at a time, so that no answer grows with how far back it goes. True: there was more than a server tells of a
// day.
Result<bool> read_rows(Client& client, Nanos since, QuotaTuneInput& input) {
  bool truncated = false;
  std::set<std::tuple<std::string, std::string, Day>> known;
  for (Nanos from = day_of(since).time_since_epoch(); from < input.now; from += 24h) {
    const Nanos to = std::min(from + 24h, input.now);
    const Result<ordered_json> page = client.json(
        "GET", fmt::format("/api/quotas/usage?limit={}&since={}&until={}", kUsagePage, from / 1ms, to / 1ms));
    if (!page) return page.error();
    truncated = truncated || JsonFields(*page).flag("truncated");
    for (UsageDay& row : read_usage(*page)) {
      if (known.emplace(row.user, row.type, row.day).second) input.rows.push_back(std::move(row));
    }
  }
  return truncated;
}

std::string limit_of(const std::optional<std::uint64_t>& limit) { return limit ? count_text(*limit) : "unlimited"; }

std::string effect_text(const QuotaTuned::Effect& effect) {
  if (effect.users == 0) return "no user";
  return fmt::format("{} {}, {} {}", count_text(effect.users), effect.users == 1 ? "user" : "users",
                     count_text(effect.days), effect.days == 1 ? "day" : "days");
}

std::string page_text(const QuotaTuneReport& report, const TuneQuotasOptions& options, const Terminal& terminal) {
  const std::string percentile = "P" + number_text(options.percentile);
  Table table({{"PLAN"},
               {"TYPE"},
               {"PER"},
               {percentile, Table::Align::kRight},
               {"MOST", Table::Align::kRight},
               {"LIMIT", Table::Align::kRight},
               {"PROPOSED", Table::Align::kRight},
               {"WOULD REFUSE"}});
  bool scaled = false;
  std::uint64_t refused = 0;
  for (const QuotaTuned& tuned : report.types) {
    refused += tuned.refused;
    const bool worse = tuned.after.days > tuned.before.days;
    const std::array<std::string, 3> effect{tuned.limits ? "now " + effect_text(tuned.before) : "no limit now",
                                            "then " + effect_text(tuned.after), ""};
    for (std::size_t i = 0; i < kPeriodNames.size(); ++i) {
      const QuotaTuned::Seen& seen = tuned.seen[i];
      const auto count = [&](double value) {
        return count_text(static_cast<std::uint64_t>(std::ceil(value))) + (seen.scaled ? "*" : "");
      };
      scaled = scaled || seen.scaled;
      table.add({{i == 0 ? tuned.plan : "", Ink::kBold},
                 {i == 0 ? tuned.type : "", Ink::kBold},
                 {kPeriodNames[i]},
                 {count(seen.at_percentile)},
                 {count(seen.most)},
                 {tuned.limits ? limit_of((*tuned.limits)[i]) : "-"},
                 {count_text(seen.proposed), Ink::kCyan},
                 {effect[i], i == 1 && worse ? Ink::kYellow : Ink::kPlain}});
    }
  }
  std::string about = fmt::format(
      "From {} {}. Proposed is the {} over users and the days (weeks, months) on which they ran any, times {}, rounded "
      "up.",
      count_text(report.days), report.days == 1 ? "day" : "days", percentile, number_text(options.headroom));
  if (report.only_today) about += " Only today is known, and it is not over: come back tomorrow.";
  if (scaled) about += " * is scaled up, since fewer days are known than the period has.";
  if (refused > 0) {
    about += fmt::format(" {} refused in that time: what those users wanted beyond is not counted in.",
                         refused == 1 ? "1 command was" : count_text(refused) + " commands were");
  }
  std::string text = table.text(terminal) + "\n";
  for (const std::string& line : wrap(about, terminal.width, 0)) text += line + "\n";
  return text;
}

ordered_json report_json(const QuotaTuneReport& report, const TuneQuotasOptions& options) {
  ordered_json json{{"days", report.days},
                    {"only_today", report.only_today},
                    {"percentile", number_json(options.percentile)},
                    {"headroom", number_json(options.headroom)},
                    {"types", ordered_json::array()}};
  const auto effect = [](const QuotaTuned::Effect& one) {
    return ordered_json{{"users", one.users}, {"days", one.days}, {"commands", one.commands}};
  };
  for (const QuotaTuned& tuned : report.types) {
    ordered_json type{{"plan", tuned.plan}, {"type", tuned.type}, {"users", tuned.users}, {"refused", tuned.refused}};
    for (std::size_t i = 0; i < kQuotaPeriods.size(); ++i) {
      const QuotaTuned::Seen& seen = tuned.seen[i];
      ordered_json period{{"samples", seen.samples},
                          {"percentile", number_json(seen.at_percentile)},
                          {"most", number_json(seen.most)},
                          {"scaled", seen.scaled}};
      if (tuned.limits) {
        const std::optional<std::uint64_t>& limit = (*tuned.limits)[i];
        period["limit"] = limit ? ordered_json(*limit) : ordered_json();
      }
      period["proposed"] = seen.proposed;
      type[kQuotaPeriods[i]] = std::move(period);
    }
    type["would_refuse_now"] = effect(tuned.before);
    type["would_refuse_then"] = effect(tuned.after);
    json["types"].push_back(std::move(type));
  }
  return json;
}

// A plan without limits is meant to have none, and a type that no plan names counts with others: these get limits only
// where the plan was asked for by name.
bool is_limited(const QuotaTuned& tuned) {
  return tuned.limits && std::any_of(tuned.limits->begin(), tuned.limits->end(),
                                     [](const std::optional<std::uint64_t>& limit) { return limit.has_value(); });
}

std::string commands_text(const QuotaTuneReport& report, bool all) {
  std::string text;
  for (const QuotaTuned& tuned : report.types) {
    if (!all && !is_limited(tuned)) continue;
    text += fmt::format("headgate quota set-plan --plan {} --type {} --daily {} --weekly {} --monthly {}\n", tuned.plan,
                        tuned.type, tuned.seen[0].proposed, tuned.seen[1].proposed, tuned.seen[2].proposed);
  }
  return text;
}

}  // namespace

int tune_quotas_command(const TuneQuotasOptions& options, const Terminal& terminal) {
  QuotaTuneInput input;
  input.percentile = options.percentile;
  input.headroom = options.headroom;
  input.now = std::chrono::system_clock::now().time_since_epoch();
  const Result<Nanos> since = parse_since(options.since.empty() ? kDefaultSince : options.since, input.now);
  if (!since) return not_understood(since.error().message, "tune");
  if (input.now - *since > kMostSince) return not_understood("--since must be at most 400 days ago", "tune");
  Result<Client> client = Client::open(options.client, Client::Purpose::kManage);
  if (!client) return failed(client.error().message);
  if (const Result<void> read = read_plans(*client, input); !read) return failed(read.error().message);
  if (!options.plan.empty() && !input.limits.contains(options.plan)) {
    return failed(fmt::format("there is no plan \"{}\": \"headgate quota plans\" shows them", printable(options.plan)));
  }
  if (const Result<void> read = read_users(*client, input); !read) return failed(read.error().message);
  const Result<bool> truncated = read_rows(*client, *since, input);
  if (!truncated) return failed(truncated.error().message);
  if (*truncated) {
    fmt::print(stderr, "headgate: some days have more than {} users and types; the others are left out\n", kUsagePage);
  }
  QuotaTuneReport report = tune_quotas(input);
  if (!options.plan.empty()) {
    std::erase_if(report.types, [&](const QuotaTuned& tuned) { return tuned.plan != options.plan; });
  }
  if (options.json) return write(json_text(report_json(report, options)));
  if (report.types.empty()) {
    return failed(fmt::format("no user{} ran a command since {}: there is nothing to propose from",
                              options.plan.empty() ? "" : " with plan " + printable(options.plan),
                              day_text(day_of(*since))));
  }
  return write(options.commands ? commands_text(report, !options.plan.empty()) : page_text(report, options, terminal));
}

}  // namespace headgate::cli
