// What a decision entails besides its answer: counts, events, back-off and escalation.
//
// Safe for concurrent use. Counting an admitted check costs a load and a store per policy.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "control/violations.h"
#include "engine/check_decision.h"
#include "engine/counters.h"
#include "engine/escalations.h"
#include "engine/event.h"
#include "engine/request.h"

namespace headgate::engine {

class Aftermath {
 public:
  // `sink` may be nullptr. All of them must outlive this.
  Aftermath(const Clock& clock, EventSink* sink, const base::Hasher& hasher)
      : clock_(clock), sink_(sink), hasher_(hasher), violations_({}) {}

  void tell(const Event& event) const noexcept {
    if (sink_ != nullptr) sink_->on_event(event);
  }
  void tell_share_full(std::string_view owner, Nanos wall) const;
  // Once for each operation, of the first 10,000.
  void tell_unknown_operation(const Check& check, Nanos wall);

  void admitted(const CheckDecision& decision) noexcept {
    const std::size_t slot = base::thread_slot();
    for (const Judged& judged : decision.judged) counters_.add(slot, judged.counter, Counters::kAdmitted);
  }
  // May lengthen retry_after: back-off.
  void denied(const Request& request, CheckDecision& decision);
  // Admitted, though policies that warn, log or are monitored were exceeded.
  void exceeded(const Request& request, const CheckDecision& decision);

  void configure(const control::BackoffSettings& backoff);
  // How long the check is denied whatever its policies say; zero: it is not, or back-off is not enforced.
  [[nodiscard]] Nanos blocked_for(const Request& request) const {
    if (!enforce_backoff_.load(std::memory_order_relaxed)) return Nanos{0};
    return violations_.blocked_for(subject_of(request), request.now);
  }
  // Whether the agent has active violations: a scheduler gives it no new work.
  [[nodiscard]] bool rate_limited(std::string_view agent) const noexcept {
    return violations_.rate_limited(agent, clock_.now());
  }
  [[nodiscard]] std::vector<control::Offender> offenders(std::size_t count) const {
    return violations_.top(count, clock_.now());
  }
  void forget_quiet(Nanos now) { (void)violations_.forget_quiet(now, 1000); }

  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  // By policy id, or id/variant.
  [[nodiscard]] std::vector<std::pair<std::string, Counts>> counts() const { return counters_.all(); }

 private:
  // Whose violations are counted. A check without a name counts for all that have none.
  [[nodiscard]] static control::Subject subject_of(const Request& request) noexcept;
  void escalate(const Request& request, const policy::Policy& policy, Nanos wall);

  const Clock& clock_;
  EventSink* sink_;
  const base::Hasher& hasher_;
  Counters counters_;
  control::Violations violations_;
  Escalations escalations_;
  std::atomic<bool> enforce_backoff_{false};
  std::mutex unknown_mutex_;
  std::set<std::string, std::less<>> unknown_operations_;
};

}  // namespace headgate::engine
