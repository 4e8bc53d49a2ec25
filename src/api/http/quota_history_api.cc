// /api/quotas/executions, /usage, /report: what the ledger has kept. Read by a thread of its own.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "api/http/handoff.h"
#include "api/http/quota_calls.h"
#include "api/http/routes.h"
#include "base/rfc3339.h"
#include "base/utf8.h"

namespace headgate::api {
namespace {

using quota::Execution;
using quota::Ledger;

constexpr std::int64_t kMostExecutions = 10'000;  // a page
constexpr std::int64_t kMostRows = 100'000;
constexpr std::int64_t kMostOfAgents = 1'000;  // in an answer to an agent, whatever limit it gives

// The limit that the query gives. nullopt: it was answered with 400.
std::optional<std::size_t> limit_of(const Call& call, std::int64_t otherwise, std::int64_t most) {
  const auto limit = query_number(call, "limit", otherwise, {1, most});
  if (!limit) return std::nullopt;
  return static_cast<std::size_t>(is_agent(call.caller) ? std::min(*limit, kMostOfAgents) : *limit);
}

// Epoch milliseconds, RFC 3339 or a date. nullopt: it was answered with 400.
std::optional<Nanos> query_time(const Call& call, std::string_view name, Nanos otherwise) {
  bool found = false;
  const std::string text = net::query_value(call.request.query, name, &found);
  if (!found || text.empty()) return otherwise;
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec == std::errc{} && read.ptr == end && number >= 0 && number <= millis(kMaxTime)) {
    return Nanos{std::chrono::milliseconds{number}};
  }
  if (const auto time = base::parse_rfc3339(text)) return time;
  if (const auto time = base::parse_rfc3339(text + "T00:00:00Z")) return time;
  call.fail(400, "invalid_request",
            fmt::format("{} must be epoch milliseconds, RFC 3339 or a date such as 2026-11-16, got \"{}\"", name,
                        base::shortened(text, 60)));
  return std::nullopt;
}

std::string cursor_of(const Execution& last) { return fmt::format("{}-{}", millis(last.executed_at), last.id); }

std::optional<Ledger::Position> position_of(std::string_view cursor) {
  const std::size_t dash = cursor.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  std::int64_t at = 0;
  std::int64_t id = 0;
  const char* middle = cursor.data() + dash;
  const char* end = cursor.data() + cursor.size();
  const auto first = std::from_chars(cursor.data(), middle, at);
  const auto second = std::from_chars(middle + 1, end, id);
  if (first.ec != std::errc{} || first.ptr != middle || second.ec != std::errc{} || second.ptr != end) {
    return std::nullopt;
  }
  if (at < 0 || at > millis(kMaxTime)) return std::nullopt;
  return Ledger::Position{std::chrono::milliseconds{at}, id};
}

// Runs the work on the thread for such, with everything in the ledger that was answered before.
void in_background(Call& call, service::Quotas& quotas, std::function<void(Handoff&)> work) {
  read_in_background(call, [&quotas, work = std::move(work)](Handoff& handoff) {
    (void)quotas.ledger().flush();  // if it fails, what is there is told
    work(handoff);
  });
}

void fail_read(Handoff& handoff, const Error& error) {
  handoff.fail(503, "ledger_unavailable", "the ledger cannot be read: " + error.message);
}

Json execution_json(const Execution& execution) {
  return {{"id", execution.id},
          {"user_id", execution.user},
          {"session_id", text_or_null(execution.session)},
          {"command_type", execution.type},
          {"command_hash", text_or_null(execution.command_hash)},
          {"duration_ms", execution.duration_ms},
          {"cpu_usage_percent", number_json(execution.cpu_percent)},
          {"memory_usage_mb", number_json(execution.memory_mb)},
          {"exit_code", execution.exit_code},
          {"error_message", text_or_null(execution.error)},
          {"executed_at", millis(execution.executed_at)}};
}

// A field as RFC 4180 has it. What a spreadsheet would take for a formula is told that it is text.
void append_csv(std::string& out, std::string_view text) {
  const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos;
  const bool quoted = formula || text.find_first_of(",\"\r\n") != std::string_view::npos;
  if (quoted) out += '"';
  if (formula) out += '\'';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  if (quoted) out += '"';
}

std::string csv_of(const std::vector<Execution>& executions) {
  std::string out =
      "id,user_id,session_id,command_type,command_hash,duration_ms,cpu_usage_percent,memory_usage_mb,exit_code,"
      "error_message,executed_at\r\n";
  for (const Execution& each : executions) {
    out += fmt::format("{},", each.id);
    append_csv(out, each.user);
    out += ',';
    append_csv(out, each.session);
    out += ',';
    append_csv(out, each.type);
    out += fmt::format(",{},{},{},{},{},", each.command_hash, each.duration_ms, each.cpu_percent, each.memory_mb,
                       each.exit_code);
    append_csv(out, each.error);
    out += fmt::format(",{}\r\n", base::format_rfc3339(each.executed_at));
  }
  return out;
}

std::optional<Ledger::UsageQuery> usage_query(Call& call, Nanos since) {
  static constexpr std::array<std::string_view, 5> kNames{"user_id", "command_type", "since", "until", "limit"};
  if (!query_fits(call, kNames)) return std::nullopt;
  Ledger::UsageQuery query;
  query.user = net::query_value(call.request.query, "user_id");
  if (!speaks_for_user(call, query.user)) return std::nullopt;
  query.type = net::query_value(call.request.query, "command_type");
  const auto from = query_time(call, "since", since);
  if (!from) return std::nullopt;
  const auto until = query_time(call, "until", kMaxTime);
  if (!until) return std::nullopt;
  query.since = *from;
  query.until = *until;
  query.limit = static_cast<std::size_t>(kMostRows);
  return query;
}

}  // namespace

void get_executions(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  static constexpr std::array<std::string_view, 9> kNames{"user_id", "command_type", "session_id", "since", "until",
                                                          "limit",   "failed",       "cursor",     "format"};
  if (quotas == nullptr || !query_fits(call, kNames)) return;
  Ledger::ExecutionQuery query;
  query.user = net::query_value(call.request.query, "user_id");
  if (!speaks_for_user(call, query.user)) return;
  query.type = net::query_value(call.request.query, "command_type");
  query.session = net::query_value(call.request.query, "session_id");
  const auto since = query_time(call, "since", Nanos{0});
  if (!since) return;
  const auto until = query_time(call, "until", kMaxTime);
  if (!until) return;
  const auto limit = limit_of(call, 100, kMostExecutions);
  if (!limit) return;
  query.since = *since;
  query.until = *until;
  query.limit = *limit;
  if (const std::string failed = net::query_value(call.request.query, "failed"); !failed.empty()) {
    if (failed != "true" && failed != "false") {
      return call.fail(400, "invalid_request",
                       "failed must be true or false, got \"" + base::shortened(failed, 60) + '"');
    }
    query.failed = failed == "true";
  }
  if (const std::string cursor = net::query_value(call.request.query, "cursor"); !cursor.empty()) {
    query.after = position_of(cursor);
    if (!query.after) {
      return call.fail(400, "invalid_request", "cursor must be the next_cursor of the page before, as it came");
    }
  }
  const std::string format = net::query_value(call.request.query, "format");
  if (!format.empty() && format != "csv" && format != "json") {
    return call.fail(400, "invalid_request", "format must be json or csv, got \"" + base::shortened(format, 60) + '"');
  }
  const bool csv = format == "csv" || (format.empty() && call.request.header("accept").starts_with("text/csv"));
  in_background(call, *quotas, [quotas, query, csv](Handoff& handoff) {
    const Result<std::vector<Execution>> found = quotas->ledger().executions(query);
    if (!found) return fail_read(handoff, found.error());
    const std::string next = found->size() == query.limit ? cursor_of(found->back()) : std::string();
    if (csv) {
      return handoff.answer({.body = csv_of(*found),
                             .headers = next.empty() ? "" : "X-Next-Cursor: " + next + "\r\n",
                             .content_type = "text/csv; charset=utf-8"});
    }
    Json executions = Json::array();
    for (const Execution& execution : *found) executions.push_back(execution_json(execution));
    handoff.send(Json{{"executions", std::move(executions)}, {"next_cursor", text_or_null(next)}});
  });
}

void get_usage(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  std::optional<Ledger::UsageQuery> query = usage_query(call, Nanos{0});
  if (!query) return;
  const auto limit = limit_of(call, 10'000, kMostRows);
  if (!limit) return;
  query->limit = *limit;
  in_background(call, *quotas, [quotas, query = *query](Handoff& handoff) {
    const Result<std::vector<quota::UsageRow>> rows = quotas->ledger().usage(query);
    if (!rows) return fail_read(handoff, rows.error());
    Json usage = Json::array();
    for (const auto& [key, used] : *rows) {
      const double runs = static_cast<double>(std::max<std::int64_t>(1, used.runs));
      usage.push_back({{"user_id", key.user},
                       {"command_type", key.type},
                       {"day", quotas->local_date(key.user, key.type, key.day)},
                       {"day_start", millis(key.day)},
                       {"commands", used.commands},
                       {"refused", used.refused},
                       {"would_refuse", used.would_refuse},
                       {"throttled", used.throttled},
                       {"runs", used.runs},
                       {"failures", used.failures},
                       {"duration_ms", used.duration_ms},
                       {"cpu_ms", used.cpu_ms},
                       {"memory_mb", number_json(used.memory_mb / runs)}});
    }
    handoff.send(Json{{"usage", std::move(usage)}, {"truncated", rows->size() == query.limit}});
  });
}

void get_quota_report(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  constexpr Nanos kWeek = std::chrono::hours{7 * 24};
  const Nanos wall = call.wall();
  const std::optional<Ledger::UsageQuery> query = usage_query(call, std::max(Nanos{0}, wall - kWeek));
  if (!query) return;
  const auto limit = limit_of(call, 100, kMostRows);
  if (!limit) return;
  in_background(call, *quotas, [quotas, query = *query, wall, limit = *limit](Handoff& handoff) {
    const Result<std::vector<quota::UsageRow>> rows = quotas->ledger().usage(query);
    if (!rows) return fail_read(handoff, rows.error());
    struct Sum {
      quota::Usage usage;
      std::int64_t days = 0;
      Nanos worst{0};
      std::int64_t most = -1;
    };
    std::map<std::pair<std::string, std::string>, Sum> sums;
    for (const auto& [key, used] : *rows) {
      Sum& sum = sums[{key.user, key.type}];
      sum.usage += used;
      ++sum.days;
      if (used.commands <= sum.most) continue;
      sum.most = used.commands;
      sum.worst = key.day;
    }
    using Entry = std::pair<const std::pair<std::string, std::string>, Sum>;
    std::vector<const Entry*> worst;
    worst.reserve(sums.size());
    for (const Entry& entry : sums) worst.push_back(&entry);
    const auto refused = [](const Entry* entry) {
      return entry->second.usage.refused + entry->second.usage.would_refuse;
    };
    std::stable_sort(worst.begin(), worst.end(), [&](const Entry* a, const Entry* b) {
      return std::pair(refused(a), a->second.usage.commands) > std::pair(refused(b), b->second.usage.commands);
    });
    if (worst.size() > limit) worst.resize(limit);
    Json users = Json::array();
    for (const Entry* entry : worst) {
      const Sum& sum = entry->second;
      users.push_back({{"user_id", entry->first.first},
                       {"command_type", entry->first.second},
                       {"commands", sum.usage.commands},
                       {"refused", sum.usage.refused},
                       {"would_refuse", sum.usage.would_refuse},
                       {"throttled", sum.usage.throttled},
                       {"days", sum.days},
                       {"worst_day",
                        {{"day", quotas->local_date(entry->first.first, entry->first.second, sum.worst)},
                         {"commands", sum.most}}}});
    }
    handoff.send(Json{{"since", millis(query.since)},
                      {"until", query.until == kMaxTime ? Json(millis(wall)) : Json(millis(query.until))},
                      {"users", std::move(users)},
                      {"truncated", rows->size() == query.limit}});
  });
}

}  // namespace headgate::api
