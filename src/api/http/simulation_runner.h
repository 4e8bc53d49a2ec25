// Replays traces for POST /api/admin/policies/simulate, on a thread of its own: a long one must not hold up the
// connections of an io thread.
//
// Safe for concurrent use. One at a time; a trace has at most kMostBytes and kMostLines.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/background.h"
#include "policy/model.h"

namespace headgate::api {

class Handoff;

struct Simulated {
  policy::Document document;
  std::string trace;
  std::shared_ptr<Handoff> handoff;  // answers
};

class SimulationRunner {
 public:
  static constexpr std::size_t kMostBytes = 16 << 20;
  static constexpr std::size_t kMostLines = 1'000'000;

  SimulationRunner() = default;
  ~SimulationRunner();  // has it end early
  SimulationRunner(const SimulationRunner&) = delete;
  SimulationRunner& operator=(const SimulationRunner&) = delete;

  [[nodiscard]] bool idle() const noexcept { return !running_.load(); }
  // If another began since idle() was asked, this one is answered with 503.
  void start(Simulated simulated);

 private:
  void run(const Simulated& simulated);

  std::atomic<bool> running_{false};
  std::atomic<bool> ending_{false};
  base::Background background_;  // last, so that its thread ends first
};

}  // namespace headgate::api
