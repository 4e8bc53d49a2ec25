#include "api/http/simulation_runner.h"

#include <fmt/format.h>

#include <cassert>
#include <nlohmann/json.hpp>
#include <sstream>

#include "api/http/handoff.h"
#include "engine/simulate_json.h"

namespace headgate::api {
namespace {

constexpr std::size_t kMostAgentsShown = 100;  // of the summary

struct Outcome {
  int status = 200;
  std::string code{};     // of an error
  std::string message{};  // of an error
  Json report{};          // with 200
};

Outcome refused(std::string_view code, std::string message, int status = 400) {
  return {status, std::string(code), std::move(message)};
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
  return {.report = engine::to_json(simulation.report(), kMostAgentsShown)};
}

void answer(const Simulated& simulated, const Outcome& outcome) {
  if (outcome.status == 200) return simulated.handoff->send(outcome.report);
  simulated.handoff->fail(outcome.status, outcome.code, outcome.message);
}

}  // namespace

SimulationRunner::~SimulationRunner() { ending_.store(true); }

void SimulationRunner::start(Simulated simulated) {
  if (running_.exchange(true)) return answer(simulated, refused("busy", "another simulation is running", 503));
  const bool taken = background_.run([this, simulated = std::move(simulated)] { run(simulated); });
  assert(taken);  // at most the last one is still being answered
  (void)taken;
}

void SimulationRunner::run(const Simulated& simulated) {
  Outcome outcome;
  try {
    outcome = simulate(simulated, ending_);
  } catch (const std::exception& error) {
    outcome = refused("internal", error.what(), 500);
  }
  running_.store(false);
  answer(simulated, outcome);
}

}  // namespace headgate::api
