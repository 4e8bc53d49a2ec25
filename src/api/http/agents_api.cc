// GET /api/agents, /api/overview, /api/history: what schedulers and dashboards look at.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "api/http/aside.h"
#include "api/http/call.h"
#include "api/http/routes.h"
#include "headgate/version.h"
#include "service/tier_json.h"

namespace headgate::api {
namespace {

constexpr std::size_t kMostAgents = observe::Traffic::kMostAgents;
constexpr std::size_t kMostOffenders = 100'000;
constexpr std::size_t kTop = 10;
constexpr std::array<std::string_view, 2> kChannels{"http", "ws"};

using Offences = std::unordered_map<std::string, std::uint64_t>;

Offences offences(engine::Engine& engine) {
  Offences all;
  for (const control::Offender& offender : engine.aftermath().offenders(kMostOffenders)) {
    if (offender.kind == control::Subject::Kind::kAgent) all[offender.agent] = offender.total;
  }
  return all;
}

Json agent_json(const service::Service& service, const observe::AgentTraffic& traffic, const Offences& violations,
                const std::set<std::string>& exempt) {
  const auto found = violations.find(traffic.agent);
  return {{"agent", traffic.agent},
          {"rate_limited", service.engine->aftermath().rate_limited(traffic.agent)},
          {"violations", found == violations.end() ? 0 : found->second},
          {"allowed", traffic.allowed},
          {"denied", traffic.denied},
          {"last_seen", traffic.last_seen == Nanos{0} ? Json() : Json(millis(traffic.last_seen))},
          {"exempt", exempt.contains(traffic.agent)}};
}

std::set<std::string> exempt_of(engine::Engine& engine) {
  const std::vector<std::string> all = engine.controls().exempt();
  return {all.begin(), all.end()};
}

// Microseconds below which that share of the measured checks stayed, to the next power of two.
Json percentile(const observe::Histogram& latency, double share) {
  if (latency.total == 0) return nullptr;
  const double wanted = share * static_cast<double>(latency.total);
  std::uint64_t below = 0;
  for (int i = 0; i < observe::Histogram::kBuckets; ++i) {
    below += latency.counts[static_cast<std::size_t>(i)];
    if (static_cast<double>(below) >= wanted) return static_cast<double>(std::uint64_t{128} << i) / 1e3;
  }
  return nullptr;
}

// Over the last ten whole seconds.
Json rates_json(const observe::Traffic& traffic, Nanos wall) {
  constexpr int kSeconds = 10;
  double allowed = 0;
  double denied = 0;
  double errors = 0;
  const Nanos since = wall - std::chrono::seconds{kSeconds};
  for (const observe::Moment& moment : traffic.history(since, std::chrono::seconds{1}).moments) {
    allowed += static_cast<double>(moment.allowed);
    denied += static_cast<double>(moment.denied);
    errors += static_cast<double>(moment.errors);
  }
  return {{"checks_per_second", number_json((allowed + denied) / kSeconds)},
          {"denied_per_second", number_json(denied / kSeconds)},
          {"errors_per_second", number_json(errors / kSeconds)}};
}

Json top_policies(engine::Engine& engine) {
  auto counts = engine.aftermath().counts();
  std::erase_if(counts, [](const auto& each) { return each.second.admitted + each.second.denied == 0; });
  const auto busier = [](const auto& a, const auto& b) {
    return std::pair(a.second.denied, a.second.admitted) > std::pair(b.second.denied, b.second.admitted);
  };
  const std::size_t most = std::min(counts.size(), kTop);
  std::partial_sort(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(most), counts.end(), busier);
  Json list = Json::array();
  for (std::size_t i = 0; i < most; ++i) {
    const auto& [id, of] = counts[i];
    list.push_back({{"policy_id", id}, {"admitted", of.admitted}, {"denied", of.denied}});
  }
  return list;
}

Json connections_json(const HttpApiOptions& options) {
  Json json = Json::object();
  for (const char* listener : {"http", "resp", "grpc"}) {
    const bool there = options.io_counts && std::find(options.listeners.begin(), options.listeners.end(), listener) !=
                                                options.listeners.end();
    json[listener] = there ? options.io_counts(listener).open : 0;
  }
  return json;
}

Json all_of_agent(const service::Service& service, const std::string& agent) {
  observe::AgentTraffic traffic = service.traffic->agent(agent);
  traffic.agent = agent;
  Json json = agent_json(service, traffic, offences(*service.engine), exempt_of(*service.engine));
  json["override"] = nullptr;
  for (const engine::Override& each : service.engine->controls().overrides()) {
    if (each.agent == agent) json["override"] = service::tier_json(each.tiers);
  }
  Json usage = Json::object();
  for (const std::string_view channel : kChannels) {
    Json tiers = Json::object();
    for (const engine::Engine::TierUsage& tier : service.engine->tier_usage(agent, channel)) {
      tiers[std::string(tier.tier)] = {{"limit", number_json(tier.limit)},
                                       {"remaining", number_json(tier.remaining)},
                                       {"used", number_json(tier.limit - tier.remaining)},
                                       {"reset_after_ms", millis(tier.reset_after)},
                                       {"overridden", tier.overridden}};
    }
    usage[std::string(channel)] = std::move(tiers);
  }
  json["usage"] = std::move(usage);
  return json;
}

}  // namespace

void get_agents(Call& call) {
  const auto limit = query_number(call, "limit", 1'000, {1, static_cast<std::int64_t>(kMostAgents)});
  if (!limit) return;
  bool asked = false;
  const std::string eligible = net::query_value(call.request.query, "eligible", &asked);
  if (asked && eligible != "true" && eligible != "false") {
    return call.fail(400, "invalid_request", "eligible must be true or false");
  }
  service::Service& service = call.service();
  const Offences violations = offences(*service.engine);
  const std::set<std::string> exempt = exempt_of(*service.engine);
  // Agents that an operator has named and that have sent no check yet are listed, too.
  std::vector<observe::AgentTraffic> all = service.traffic->agents(kMostAgents);
  std::set<std::string> seen;
  for (const observe::AgentTraffic& each : all) seen.insert(each.agent);
  for (const engine::Override& each : service.engine->controls().overrides()) {
    if (!seen.insert(each.agent).second) continue;
    observe::AgentTraffic& more = all.emplace_back();
    more.agent = each.agent;
  }
  Json agents = Json::array();
  for (const observe::AgentTraffic& each : all) {
    if (agents.size() == static_cast<std::size_t>(*limit)) break;
    if (eligible == "true" && service.engine->aftermath().rate_limited(each.agent)) continue;
    agents.push_back(agent_json(service, each, violations, exempt));
  }
  call.send(Json{{"agents", std::move(agents)}});
}

void get_agent(Call& call) {
  if (!is_name(call, "agent", call.id)) return;
  answer_aside(call, [&service = call.service(), agent = call.id](Handoff& handoff) {
    handoff.send(all_of_agent(service, agent));
  });
}
void get_overview(Call& call) {
  service::Service& service = call.service();
  engine::Engine& engine = *service.engine;
  const HttpApiOptions& options = call.context.options;
  const Nanos wall = call.wall();
  observe::Traffic::ByResult checks;
  for (const observe::Traffic::ByResult& each : service.traffic->totals()) {
    checks.allowed += each.allowed;
    checks.denied += each.denied;
    checks.errors += each.errors;
  }
  const observe::Histogram latency = service.traffic->latency();
  const LimiterTotals totals = engine.cells().totals();
  const engine::Controls::Load load = engine.controls().load_state();
  const control::Emergency emergency = engine.controls().emergency();
  Json agents = Json::array();
  for (const observe::AgentTraffic& each : service.traffic->agents(kTop)) {
    agents.push_back({{"agent", each.agent},
                      {"allowed", each.allowed},
                      {"denied", each.denied},
                      {"rate_limited", engine.aftermath().rate_limited(each.agent)}});
  }
  Json offenders = Json::array();
  for (const control::Offender& each : engine.aftermath().offenders(kTop)) {
    offenders.push_back({{"agent", each.agent}, {"violations", each.total}});
  }
  call.send(
      Json{{"version", HEADGATE_VERSION},
           {"uptime_ms", millis(wall - options.started)},
           {"started_at", millis(options.started)},
           {"checks", {{"allowed", checks.allowed}, {"denied", checks.denied}, {"errors", checks.errors}}},
           {"rates", rates_json(*service.traffic, wall)},
           {"latency", {{"p50_us", percentile(latency, 0.5)}, {"p99_us", percentile(latency, 0.99)}}},
           {"cells",
            {{"count", totals.cells},
             {"max", options.max_cells == 0 ? Json() : Json(options.max_cells)},
             {"evicted", totals.evicted},
             {"refused", totals.refused}}},
           {"connections", connections_json(options)},
           {"leases", engine.holds().open()},
           {"waiting", engine.queue().size()},
           {"load",
            {{"load", load.load ? number_json(*load.load) : Json()},
             {"reported", load.reported ? number_json(*load.reported) : Json()},
             {"sensors", load.sensors},
             {"level", control::to_string(load.level)},
             {"factor", number_json(load.factor)}}},
           {"emergency",
            {{"active", emergency.active},
             {"reason", emergency.active ? Json(emergency.reason) : Json()},
             {"enabled_at", emergency.active ? Json(millis(emergency.since)) : Json()},
             {"enabled_by", emergency.active ? Json(emergency.by) : Json()}}},
           {"top_agents", std::move(agents)},
           {"top_policies", top_policies(engine)},
           {"offenders", std::move(offenders)},
           {"policies", {{"count", engine.rules()->policies.size()}, {"version", call.context.policies.version()}}}});
}

void get_history(Call& call) {
  constexpr std::int64_t kHourMs = 3'600'000;
  constexpr std::int64_t kDayMs = 24 * kHourMs;
  constexpr std::int64_t kMostPoints = 10'000;
  const std::int64_t now = millis(call.wall());
  const auto since = query_number(call, "since", std::max<std::int64_t>(0, now - kHourMs), {0, 1LL << 52});
  if (!since) return;
  const auto step = query_number(call, "step", 10'000, {1'000, kDayMs});
  if (!step) return;
  if ((now - std::max(*since, now - kDayMs)) / *step > kMostPoints) {
    return call.fail(400, "invalid_request",
                     fmt::format("since and step must make at most {} points; take a longer step", kMostPoints));
  }
  Json points = Json::array();
  const observe::Traffic::Past past =
      call.service().traffic->history(std::chrono::milliseconds{*since}, std::chrono::milliseconds{*step});
  for (const observe::Moment& moment : past.moments) {
    points.push_back({{"time", millis(moment.time)},
                      {"allowed", moment.allowed},
                      {"denied", moment.denied},
                      {"errors", moment.errors}});
  }
  call.send(Json{{"step_ms", millis(past.step)}, {"points", std::move(points)}});
}

}  // namespace headgate::api
