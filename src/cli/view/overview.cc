#include "cli/view/overview.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/json_fields.h"
#include "cli/view/describe.h"

namespace headgate::cli {

using nlohmann::ordered_json;

Overview read_overview(const ordered_json& json) {
  const JsonFields all(json);
  Overview out;
  out.version = all.text("version");
  out.uptime = milliseconds(all.number("uptime_ms"));
  const JsonFields checks = all.object("checks");
  out.allowed = checks.count("allowed");
  out.denied = checks.count("denied");
  out.errors = checks.count("errors");
  const JsonFields rates = all.object("rates");
  out.checks_per_second = rates.number("checks_per_second");
  out.denied_per_second = rates.number("denied_per_second");
  out.errors_per_second = rates.number("errors_per_second");
  const JsonFields latency = all.object("latency");
  out.p50_us = latency.number("p50_us");
  out.p99_us = latency.number("p99_us");
  const JsonFields cells = all.object("cells");
  out.cells = cells.count("count");
  out.max_cells = cells.count("max");
  out.evicted = cells.count("evicted");
  out.refused = cells.count("refused");
  const JsonFields connections = all.object("connections");
  out.http = connections.count("http");
  out.resp = connections.count("resp");
  out.grpc = connections.count("grpc");
  out.leases = all.count("leases");
  out.waiting = all.count("waiting");
  const JsonFields load = all.object("load");
  if (load.has("load")) out.load = load.number("load");
  out.load_level = load.text("level");
  out.load_factor = load.number("factor", 1);
  const JsonFields emergency = all.object("emergency");
  out.emergency = emergency.flag("active");
  out.emergency_reason = emergency.text("reason");
  out.emergency_by = emergency.text("enabled_by");
  out.emergency_since = milliseconds(emergency.number("enabled_at"));
  const JsonFields policies = all.object("policies");
  out.policies = policies.count("count");
  out.policies_version = policies.text_or_number("version");
  for (const ordered_json& each : all.list("top_agents")) {
    const JsonFields agent(each);
    out.agents.push_back(
        {agent.text("agent"), agent.count("allowed"), agent.count("denied"), agent.flag("rate_limited")});
  }
  for (const ordered_json& each : all.list("top_policies")) {
    const JsonFields policy(each);
    out.top_policies.push_back({policy.text("policy_id"), policy.count("admitted"), policy.count("denied")});
  }
  for (const ordered_json& each : all.list("offenders")) {
    const JsonFields offender(each);
    out.offenders.push_back({offender.text("agent"), offender.count("violations")});
  }
  return out;
}

std::string rate_text(double per_second) {
  constexpr double kWholeFrom = 100;
  constexpr double kMost = 9e15;
  if (!(per_second > 0)) return "0";
  if (per_second < kWholeFrom) return number_text(std::round(per_second * 10) / 10);
  return count_text(static_cast<std::uint64_t>(std::round(std::min(per_second, kMost))));
}

std::string short_count(std::uint64_t count) {
  constexpr std::uint64_t kThousand = 1000;
  constexpr std::array<const char*, 6> kSuffixes{"", "k", "M", "G", "T", "P"};
  if (count < kThousand) return std::to_string(count);
  double value = static_cast<double>(count);
  std::size_t suffix = 0;
  // 999,500 would round to 1000k.
  while (value >= 999.5 && suffix + 1 < kSuffixes.size()) {
    value /= kThousand;
    ++suffix;
  }
  return fmt::format("{:.{}f}{}", value, value < 99.95 ? 1 : 0, kSuffixes[suffix]);
}

std::string load_text(const Overview& overview) {
  std::string text = overview.load_level.empty() ? "unknown" : overview.load_level;
  if (overview.load) text = fmt::format("{:.2f} {}", *overview.load, text);
  if (overview.load_factor != 1) text += ", limits x" + number_text(std::round(overview.load_factor * 100) / 100);
  return text;
}

std::string latency_text(double microseconds) {
  constexpr double kMilli = 1000;
  if (microseconds < kMilli) return number_text(std::round(microseconds * 10) / 10) + " us";
  if (microseconds < kMilli * kMilli) return number_text(std::round(microseconds / 10) / 100) + " ms";
  return number_text(std::round(microseconds / kMilli / 10) / 100) + " s";
}

}  // namespace headgate::cli
