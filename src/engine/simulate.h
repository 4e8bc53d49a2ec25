// Replays a trace against policies in virtual time: the same engine, driven by a clock that is moved by hand.
//
// Whatever falls due between two lines (waits in a queue, leases, the controls' steps) happens at its own instant. Not
// for sharing between threads; costs little more per check than the engine itself, and builds no text unless
// on_decided is set.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/owned_check.h"
#include "engine/trace.h"

namespace headgate::engine {

// The answer to one check of the trace. All is borrowed, during the call only.
struct Decided {
  std::uint64_t index = 0;  // of its line
  Nanos at{0};              // when it was asked, from the start
  Nanos time{0};            // the same by the wall clock
  const Check* check = nullptr;
  const CheckDecision* decision = nullptr;
};

struct SimulateOptions {
  Nanos start{0};         // the wall clock at t = 0
  std::string directory;  // where the files of `policies` events are looked for first
  // Called for every check when it is answered; a check that queues is answered later than those behind it.
  std::function<void(const Decided&)> on_decided;
};

// How far one limit of a policy was used.
struct PeakUse {
  double used = 0;      // in the policy's unit
  double capacity = 0;  // of the limit as it stood then
  Nanos at{0};
  std::string agent;
  [[nodiscard]] double share() const noexcept { return capacity > 0 ? used / capacity : 0; }
};

struct PolicyReport {
  std::string id;
  std::string unit;
  std::uint64_t matched = 0;    // checks
  std::uint64_t denied = 0;     // checks that it denied
  std::uint64_t exceeded = 0;   // times it was, whatever came of it
  std::uint64_t monitored = 0;  // times it would have denied, but was only monitored
  struct OfLimit {
    std::string limit;  // "sliding_window 50/60s"
    PeakUse peak;
  };
  std::vector<OfLimit> limits;
};

struct AgentReport {
  std::uint64_t checks = 0;
  std::uint64_t denied = 0;
};

struct FirstDenial {
  Nanos at{0};
  std::string agent;
  std::string operation;
  std::string policy;
  std::string reason;
};

// Checks over time: buckets of one width, which doubles whenever the trace outgrows them.
class Histogram {
 public:
  static constexpr std::size_t kMost = 256;
  struct Bucket {
    std::uint64_t allowed = 0;
    std::uint64_t denied = 0;
  };
  void add(Nanos at, bool allowed);
  [[nodiscard]] Nanos width() const noexcept { return width_; }
  // As many as have been reached.
  [[nodiscard]] std::span<const Bucket> buckets() const noexcept { return {buckets_.data(), used_}; }

 private:
  Nanos width_{std::chrono::milliseconds{1}};
  std::array<Bucket, kMost> buckets_{};
  std::size_t used_ = 0;
};

struct SimulationReport {
  std::uint64_t lines = 0;
  std::uint64_t checks = 0;
  std::uint64_t allowed = 0;
  std::uint64_t denied = 0;
  std::uint64_t invalid = 0;  // could not be answered; neither allowed nor denied
  std::uint64_t queued = 0;   // had to wait for their answer
  std::uint64_t escalations = 0;
  std::uint64_t warnings = 0;
  std::uint64_t without_effect = 0;  // settle, release and renew events whose check held no lease (any more)
  bool absolute = false;             // the trace told `time`
  Nanos first{0};                    // instants of the first and last line, from the start
  Nanos last{0};
  Nanos start{0};                      // by the wall clock
  std::vector<PolicyReport> policies;  // in order of judgement; after a reload, those that are new at the end
  std::vector<std::pair<std::string, AgentReport>> agents;  // most denied first, then most checks; see kMostAgents
  std::optional<FirstDenial> first_denial;
  Histogram over_time;
};

class Simulation final : private EventSink {
 public:
  static constexpr std::size_t kMostAgents = 100'000;  // further ones are counted as "(others)"

  explicit Simulation(SimulateOptions options);
  ~Simulation() override;
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  [[nodiscard]] Result<void> load(policy::Document document);
  // Steps through all of it, and on until no check waits.
  [[nodiscard]] Result<void> run(TraceReader& trace);
  // One line. Errors are those of events that could never work, without the line's number.
  [[nodiscard]] Result<void> step(const TraceStep& step);
  // Lets every wait come to its end; one that would outlast time itself (kMaxTime) is cancelled.
  void finish();
  [[nodiscard]] SimulationReport report() const;
  [[nodiscard]] Engine& engine() noexcept { return *engine_; }

 private:
  struct Asked {
    std::uint64_t index = 0;
    Nanos at{0};
    OwnedCheck check;           // only of those who wait
    std::uint64_t waiting = 0;  // what cancels it
  };
  struct TextHash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
  };
  struct OfPolicy {
    PolicyReport report;
    double scale = 1;  // of one of its units in those of a cell
  };

  void on_event(const Event& event) noexcept override;
  void advance(Nanos to);
  void ask(const TraceStep& step);
  void answered(const Asked& asked, const Check& check, const CheckDecision& decision);
  void count_policies(Nanos at, const Check& check, const CheckDecision& decision);
  void bind_policies();
  [[nodiscard]] AgentReport& agent(const Check& check);
  [[nodiscard]] Result<void> settle(const TraceStep& step);
  [[nodiscard]] Result<void> reload(std::string_view file);

  SimulateOptions options_;
  ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  Nanos controls_until_{0};   // the controls step every second until then
  Nanos next_due_{kMaxTime};  // when a wait or lease is due, unless `changed_`
  bool changed_ = false;
  bool begun_ = false;
  Nanos origin_{0};  // the instant that is t = 0
  std::uint64_t since_maintained_ = 0;

  SimulationReport totals_;
  std::deque<OfPolicy> policies_;
  std::vector<OfPolicy*> bound_;  // by index of the rules in force
  std::unordered_map<std::string, AgentReport, TextHash, std::equal_to<>> agents_;

  std::uint64_t sequence_ = 0;  // of the check being asked
  const Check* asking_ = nullptr;
  Asked current_;
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Asked>> waiting_;  // by sequence
  absl::flat_hash_map<std::uint64_t, std::string> leases_;              // by index of the line
  std::vector<bool> is_check_;                                          // by index of the line
};

}  // namespace headgate::engine
