#include "engine/simulate_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/check_json.h"

namespace headgate::engine {

using Json = nlohmann::ordered_json;

namespace {

Json millis_json(Nanos span) { return number_json(static_cast<double>(span.count()) / 1e6); }

Json policy_json(const PolicyReport& policy) {
  Json limits = Json::array();
  for (const auto& limit : policy.limits) {
    Json peak;
    if (limit.peak.capacity > 0) {
      peak = {{"used", number_json(limit.peak.used)},
              {"capacity", number_json(limit.peak.capacity)},
              {"t", millis_json(limit.peak.at)},
              {"agent", limit.peak.agent}};
    }
    limits.push_back({{"limit", limit.limit}, {"peak", std::move(peak)}});
  }
  return {{"id", policy.id},
          {"unit", policy.unit},
          {"matched", policy.matched},
          {"denied", policy.denied},
          {"exceeded", policy.exceeded},
          {"monitored", policy.monitored},
          {"limits", std::move(limits)}};
}

}  // namespace

Json number_json(double number) {
  constexpr double kExactly = 9e15;
  if (!std::isfinite(number)) return nullptr;
  number = to_millionths(number);
  if (number == std::floor(number) && std::abs(number) < kExactly) return static_cast<std::int64_t>(number);
  return number;
}

Json to_json(const SimulationReport& report, std::size_t most_agents) {
  Json json{{"lines", report.lines},
            {"checks", report.checks},
            {"allowed", report.allowed},
            {"denied", report.denied},
            {"invalid", report.invalid},
            {"queued", report.queued},
            {"warnings", report.warnings},
            {"escalations", report.escalations},
            {"without_effect", report.without_effect},
            {"start_time", millis_json(report.start)},
            {"duration_ms", millis_json(report.last - report.first)},
            {"policies", Json::array()},
            {"agents", Json::array()},
            {"first_denial", nullptr}};
  for (const PolicyReport& policy : report.policies) json["policies"].push_back(policy_json(policy));
  for (std::size_t i = 0; i < std::min(report.agents.size(), most_agents); ++i) {
    const auto& [name, about] = report.agents[i];
    json["agents"].push_back({{"agent", name}, {"checks", about.checks}, {"denied", about.denied}});
  }
  if (const auto& first = report.first_denial) {
    json["first_denial"] = {{"t", millis_json(first->at)},
                            {"agent", first->agent},
                            {"operation", first->operation},
                            {"policy_id", first->policy},
                            {"reason", first->reason}};
  }
  Json allowed = Json::array();
  Json denied = Json::array();
  for (const auto& bucket : report.over_time.buckets()) {
    allowed.push_back(bucket.allowed);
    denied.push_back(bucket.denied);
  }
  json["over_time"] = {{"width_ms", millis_json(report.over_time.width())},
                       {"allowed", std::move(allowed)},
                       {"denied", std::move(denied)}};
  return json;
}

}  // namespace headgate::engine
