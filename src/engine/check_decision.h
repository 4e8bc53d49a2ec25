// The engine's answer to a Check.
#pragma once

#include <absl/container/inlined_vector.h>

#include <span>
#include <string>
#include <string_view>

#include "base/bounded_array.h"
#include "base/published.h"
#include "core/outcome.h"
#include "engine/ruleset.h"
#include "engine/state.h"
#include "store/charge.h"

namespace headgate::engine {

enum class Why : std::uint8_t {
  kPassed,            // every policy that matches
  kAdmittedPast,      // admitted, although a policy that warns or logs was exceeded
  kNoPolicy,          // none matches
  kExempt,            // the agent is on the exempt list
  kExceeded,          // a limit
  kCostExceedsLimit,  // no wait could help
  kLoopDetected,      // a `repeat` policy
  kBackingOff,        // back-off is enforced, and its time is not over
  kStoreFull,         // a new key, and the store is at its cap
  kShareFull,         // a new key, and the agent has as many cells as one agent may have
  kStoreAway,         // the remote store does not answer, and a policy is closed then
  kStoreLate,         // the remote store is there, but did not answer this check in time
  kQueueFull,         // as many checks wait as may wait
  kTimedOut,          // waited as long as it may
  kCancelled,         // while it waited
  kRevoked,           // the caller stopped being valid while its check waited (see Done)
  kTooManyLeases,     // as many holds are open as may be
  kQuota,             // of the allowances that the check brought along
  kInvalid,           // not a question that can be answered; `problem` says why
};

// One policy that matched.
struct Judged {
  std::uint32_t policy = 0;  // index into rules
  std::uint16_t first = 0;   // its outcomes: one per limit
  std::uint16_t count = 0;
  std::uint8_t strand = 0;
  bool enforced = true;  // false: monitored
  bool soft = false;     // exceeding it only warns
  bool parent = false;   // judged for the parent of the check
  bool exceeded = false;
  Counters::Id counter = 0;
  const WorkingLimit* own = nullptr;  // the agent's override, which stands in for the policy's limits
};

struct Warning {
  enum class Kind : std::uint8_t { kApproaching, kExceeded, kBurst, kMonitor };
  Kind kind = Kind::kApproaching;
  std::uint32_t policy = 0;
  double remaining = 0;
  double capacity = 0;
};
[[nodiscard]] const char* to_string(Warning::Kind kind) noexcept;

// Holds on to the policies it speaks of for as long as it lives, so do not keep it: read it, and let it go.
class CheckDecision {
 public:
  bool allowed = false;
  bool waits = false;  // denied now, but every limit that denies it lets checks queue
  Why why = Why::kPassed;
  policy::Action action = policy::Action::kBlock;  // of the strongest policy exceeded; see action_text()
  bool exceeded = false;                           // any policy was, whatever came of it
  bool stand_in = false;                           // judged by cells of this process: the remote store is away
  double limit = 0;      // of the policy with the least remaining; of the denying one if denied
  double remaining = 0;  //
  Nanos retry_after{0};  // when denied; kNever: no wait could help
  Nanos backoff{0};      // retry_after, where it is so long for violations in a row and not for the limit's sake
  Nanos delay{0};        // when allowed: act this much later
  Nanos waited{0};       // in the queue, before this answer
  Nanos reset_after{0};
  Nanos wall{0};  // when it was judged
  double throttle_factor = 1;
  std::string lease;    // empty: none
  std::string problem;  // with kInvalid
  std::string_view tier;
  std::int32_t decider = -1;                                      // index into judged of the policy that denied
  base::BoundedArray<Judged, 2 * policy::Matched::kMost> judged;  // of the check, then of its parent
  std::int32_t denying_allowance = -1;                            // index into allowances() of the one that did
  std::uint32_t allowance_count = 0;
  base::BoundedArray<core::Outcome, store::kMaxCharges> outcomes;  // of the policies, then of the allowances
  absl::InlinedVector<Warning, 2> warnings;
  base::Hash128 line;  // with `waits`: the cell that holds it up
  Nanos patience{0};   // and how long it may be waited for

  // The engine's state that it was judged in. REQUIRES for state() and all that name a policy: has_state().
  void pin(base::Published<State>::Pin state) noexcept { state_ = std::move(state); }
  [[nodiscard]] bool has_state() const noexcept { return static_cast<bool>(state_); }
  [[nodiscard]] const State& state() const noexcept { return *state_; }

  [[nodiscard]] const policy::Policy& policy(const Judged& judged_policy) const noexcept {
    return state_->rules->rules.policies()[judged_policy.policy];
  }
  [[nodiscard]] const policy::Policy& policy(std::uint32_t index) const noexcept {
    return state_->rules->rules.policies()[index];
  }
  [[nodiscard]] const WorkingPolicy& working(const Judged& judged_policy) const noexcept {
    return state_->rules->policies[judged_policy.policy];
  }
  // The policy that denied, or nullptr.
  [[nodiscard]] const policy::Policy* denied_by() const noexcept {
    return decider < 0 ? nullptr : &policy(judged[static_cast<std::size_t>(decider)]);
  }
  // allow, block, throttle, warn or log.
  [[nodiscard]] const char* action_text() const noexcept;
  // "Sliding window limit 50/60s exceeded".
  [[nodiscard]] std::string reason() const;
  // The same of one policy that was exceeded, whatever came of it.
  [[nodiscard]] std::string reason_of(const Judged& exceeded_policy) const;
  // The same without a string of its own, where the reason is always the same; empty: it is not.
  [[nodiscard]] std::string_view fixed_reason() const noexcept;
  // A code for programs: cost_exceeds_limit, loop_detected, ...; empty where `reason` is all there is.
  [[nodiscard]] std::string_view error() const noexcept;
  [[nodiscard]] Nanos reset_time() const noexcept { return wall + reset_after; }
  // How each of the check's allowances stands; none where nothing was judged.
  [[nodiscard]] std::span<const core::Outcome> allowances() const noexcept {
    return {outcomes.data() + outcomes.size() - allowance_count, allowance_count};
  }

 private:
  struct Broken {
    const core::Outcome* outcome = nullptr;  // nullptr: none of its limits is exceeded
    const Limit* limit = nullptr;
  };
  // Of a policy's limits the one that is exceeded, and of several the one that takes longest.
  [[nodiscard]] Broken broken_of(const Judged& by) const noexcept;

  base::Published<State>::Pin state_;
};

}  // namespace headgate::engine
