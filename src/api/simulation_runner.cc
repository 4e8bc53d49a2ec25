#include "api/simulation_runner.h"

#include <fmt/format.h>

#include <sstream>

#include "api/call.h"
#include "engine/simulate.h"

namespace headgate::api {
namespace {

constexpr std::size_t kMostAgentsTold = 100;  // of the summary

struct Outcome {
  int status = 200;
  Json body;
};

Outcome refused(std::string_view code, std::string_view message, int status = 400) {
  return {status, Json{{"error", code}, {"message", message}}};
}

double exact_millis(Nanos span) { return static_cast<double>(span.count()) / 1e6; }

Json policy_json(const engine::PolicyReport& policy) {
  Json limits = Json::array();
  for (const auto& limit : policy.limits) {
    Json peak;
    if (limit.peak.capacity > 0) {
      peak = {{"used", number_json(limit.peak.used)},
              {"capacity", number_json(limit.peak.capacity)},
              {"t", number_json(exact_millis(limit.peak.at))},
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

Json report_json(const engine::SimulationReport& report) {
  Json json{{"lines", report.lines},
            {"checks", report.checks},
            {"allowed", report.allowed},
            {"denied", report.denied},
            {"invalid", report.invalid},
            {"queued", report.queued},
            {"warnings", report.warnings},
            {"escalations", report.escalations},
            {"without_effect", report.without_effect},
            {"start_time", number_json(exact_millis(report.start))},
            {"duration_ms", number_json(exact_millis(report.last - report.first))},
            {"policies", Json::array()},
            {"agents", Json::array()},
            {"first_denial", nullptr}};
  for (const engine::PolicyReport& policy : report.policies) json["policies"].push_back(policy_json(policy));
  for (std::size_t i = 0; i < std::min(report.agents.size(), kMostAgentsTold); ++i) {
    const auto& [name, about] = report.agents[i];
    json["agents"].push_back({{"agent", name}, {"checks", about.checks}, {"denied", about.denied}});
  }
  if (const auto& first = report.first_denial) {
    json["first_denial"] = {{"t", number_json(exact_millis(first->at))},
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
  json["over_time"] = {{"width_ms", number_json(exact_millis(report.over_time.width()))},
                       {"allowed", std::move(allowed)},
                       {"denied", std::move(denied)}};
  return json;
}

Outcome simulate(const Simulated& simulated, const std::atomic<bool>& ending) {
  std::istringstream in(simulated.trace);
  engine::TraceReader trace(in, "trace");
  engine::Simulation simulation({});
  if (const Result<void> loaded = simulation.load(simulated.document); !loaded) {
    return refused("invalid_policies", loaded.error().message);
  }
  for (std::size_t lines = 0;; ++lines) {
    if (ending.load()) return refused("unavailable", "the server is going away", 503);
    const Result<bool> more = trace.next();
    if (!more) return refused("invalid_trace", more.error().message);
    if (!*more) break;
    if (lines == SimulationRunner::kMostLines) {
      return refused("invalid_trace",
                     fmt::format("trace must be at most {} lines long, has more", SimulationRunner::kMostLines));
    }
    if (trace.step().kind == engine::TraceStep::Kind::kPolicies) {
      return refused("invalid_trace", trace.error("events that read files are not for here; send the text").message);
    }
    if (const Result<void> stepped = simulation.step(trace.step()); !stepped) {
      return refused("invalid_trace", trace.error(stepped.error().message).message);
    }
  }
  simulation.finish();
  return {200, report_json(simulation.report())};
}

void answer(const Simulated& simulated, const Outcome& told) {
  const std::string body = text_of(told.body);
  const std::string headers = fmt::format("X-Request-Id: {}\r\n", simulated.request_id);
  net::HttpAnswer answer;
  answer.status = told.status;
  answer.body = body;
  answer.headers = headers;
  simulated.reply->send(answer);
}

}  // namespace

SimulationRunner::~SimulationRunner() {
  ending_.store(true);
  if (thread_.joinable()) thread_.join();
}

void SimulationRunner::start(Simulated simulated) {
  const std::lock_guard guard(mutex_);
  if (running_.exchange(true)) return answer(simulated, refused("busy", "another simulation is running", 503));
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread([this, simulated = std::move(simulated)] { run(simulated); });
}

void SimulationRunner::run(const Simulated& simulated) {
  Outcome told;
  try {
    told = simulate(simulated, ending_);
  } catch (const std::exception& error) {
    told = refused("internal", error.what(), 500);
  }
  running_.store(false);
  answer(simulated, told);
}

}  // namespace headgate::api
