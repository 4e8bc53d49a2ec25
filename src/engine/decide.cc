#include "engine/decide.h"

#include <algorithm>
#include <limits>

namespace headgate::engine {
namespace {

// What is to be said about the nth charge, though it was admitted.
void warn(const Check& check, const ChargeList& list, std::size_t nth, const Aftermath& aftermath, Judged& judged,
          CheckDecision& decision) {
  const WorkingPolicy& working = decision.working(judged);
  const policy::Policy& policy = *working.policy;
  const core::Outcome& outcome = decision.outcomes[nth];
  const double remaining = static_cast<double>(outcome.remaining) * list.limits[nth]->unit;
  const double capacity = static_cast<double>(outcome.limit) * list.limits[nth]->unit;
  const auto tell_asker = [&](Warning::Kind kind) {
    decision.warnings.push_back({kind, judged.policy, remaining, capacity});
  };
  if (!outcome.fits()) {
    judged.exceeded = true;
    decision.exceeded = true;
    if (!judged.enforced) return tell_asker(Warning::Kind::kMonitor);
    decision.action = std::min(decision.action, policy.action);
    if (judged.soft) decision.why = Why::kAdmittedPast;
    if (policy.action == policy::Action::kWarn) tell_asker(Warning::Kind::kExceeded);
    return;
  }
  if (outcome.burst) return tell_asker(Warning::Kind::kBurst);
  // Told by the charge that crosses it: below before, at or above it after.
  const double before = static_cast<double>(outcome.limit - outcome.remaining - list.charges[nth].cost);
  if (working.warn_at >= 1 || check.peek ||
      before >= WorkingPolicy::warns_from(working.warn_at, static_cast<double>(outcome.limit)))
    return;
  tell_asker(Warning::Kind::kApproaching);
  aftermath.tell({.kind = Event::Kind::kWarning,
                  .time = decision.wall,
                  .agent = check.agent,
                  .operation = check.operation,
                  .policy_id = policy.id,
                  .value = remaining});
}

// The same about these charges (bit i: the i-th).
void warn(const Check& check, const ChargeList& list, std::uint64_t charges, const Aftermath& aftermath,
          CheckDecision& decision) {
  for (Judged& judged : decision.judged) {
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      if ((charges >> i & 1) != 0) warn(check, list, i, aftermath, judged, decision);
    }
  }
}

// Whether any allowance denies the check; then `longest` is at least its wait.
bool decide_by_allowances(CheckDecision& decision, Nanos& longest) {
  const std::span<const core::Outcome> outcomes = decision.allowances();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].fits()) continue;
    const std::int32_t before = decision.denying_allowance;
    if (before < 0 || outcomes[i].wait > outcomes[static_cast<std::size_t>(before)].wait) {
      decision.denying_allowance = static_cast<std::int32_t>(i);
    }
  }
  if (decision.denying_allowance < 0) return false;
  const core::Outcome& worst = outcomes[static_cast<std::size_t>(decision.denying_allowance)];
  longest = std::max(longest, worst.wait);
  // A policy that denies, too, has the word.
  if (decision.decider >= 0) return true;
  decision.why = Why::kQuota;
  decision.limit = static_cast<double>(worst.limit);
  decision.remaining = static_cast<double>(worst.remaining);
  decision.reset_after = worst.reset_after;
  decision.retry_after = longest;
  return true;
}

}  // namespace

void deny(CheckDecision& decision, Why why) noexcept {
  decision.allowed = false;
  decision.why = why;
  decision.action = policy::Action::kBlock;
  decision.exceeded = true;
}

void forget_outcomes(CheckDecision& decision) noexcept {
  for (core::Outcome& outcome : decision.outcomes) outcome = {};
}

void decide_allowed(const Request& request, const ChargeList& list, const store::Applied& applied, Aftermath& aftermath,
                    CheckDecision& decision) {
  decision.allowed = true;
  decision.why = Why::kPassed;
  decision.action = policy::Action::kLog;  // unless something speaks against it
  double least = std::numeric_limits<double>::infinity();
  std::size_t tightest = 0;
  Nanos reset{0};
  Nanos delay = applied.reserved ? applied.wait : Nanos{0};
  std::uint64_t telling = 0;  // bit i: something is to be said about the i-th charge
  static_assert(store::kMaxCharges <= 64);
  const WorkingPolicy* const policies = decision.state().rules->policies.data();
  for (const Judged& judged : decision.judged) {
    const double warn_at = policies[judged.policy].warn_at;
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      const core::Outcome& outcome = decision.outcomes[i];
      const auto limit = static_cast<double>(outcome.limit);
      const auto left = static_cast<double>(outcome.remaining);
      const bool much = limit - left >= WorkingPolicy::warns_from(warn_at, limit);
      if (!outcome.fits() || outcome.burst || much) [[unlikely]]
        telling |= std::uint64_t{1} << i;
      if (!judged.enforced) continue;
      const double remaining = left * list.limits[i]->unit;
      if (remaining < least) {
        least = remaining;
        tightest = i;
      }
      reset = std::max(reset, outcome.reset_after);
      if (outcome.delay > delay && (outcome.fits() || !judged.soft)) delay = outcome.delay;
    }
  }
  if (telling != 0) [[unlikely]]
    warn(request.check, list, telling, aftermath, decision);
  if (!request.check.peek) aftermath.admitted(decision);
  if (least != std::numeric_limits<double>::infinity()) {
    decision.remaining = least;
    decision.limit = static_cast<double>(decision.outcomes[tightest].limit) * list.limits[tightest]->unit;
  }
  decision.reset_after = reset;
  decision.delay = delay;
  if (applied.reserved) {
    decision.exceeded = true;
    decision.action = policy::Action::kThrottle;
  }
}

void decide_denied(const ChargeList& list, const store::Applied& applied, CheckDecision& decision) {
  deny(decision, Why::kExceeded);
  // Nothing was charged: what had room is reported as it stands, not as it would stand.
  for (std::size_t i = 0; i < list.charges.size(); ++i) {
    core::Outcome& outcome = decision.outcomes[i];
    if (outcome.fits()) outcome.remaining = std::min(outcome.limit, outcome.remaining + list.charges[i].cost);
  }
  bool never = false;
  bool all_queue = true;
  Nanos longest{0};
  const core::Outcome* deciding = nullptr;
  double unit = 1;
  for (std::size_t j = 0; j < decision.judged.size(); ++j) {
    Judged& judged = decision.judged[j];
    const policy::Policy& policy = decision.policy(judged);
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      const core::Outcome& outcome = decision.outcomes[i];
      if (outcome.wait == Nanos{0}) continue;
      judged.exceeded = true;
      if (judged.soft) continue;
      const bool hopeless = outcome.wait == kNever;
      const bool bearable = !hopeless && outcome.wait <= list.charges[i].patience &&
                            list.charges[i].limit->strategy() != Strategy::kConcurrency;
      if (bearable && !applied.store_full) continue;
      // By priority; of equals the one that takes longest. What can never fit goes before all.
      const bool first = decision.decider < 0 || (hopeless && !never);
      const bool equal =
          !never && !first &&
          policy.priority == decision.policy(decision.judged[static_cast<std::size_t>(decision.decider)]).priority;
      if (first || (equal && outcome.wait > deciding->wait)) {
        decision.decider = static_cast<std::int32_t>(j);
        deciding = &outcome;
        unit = list.limits[i]->unit;
        decision.line = list.charges[i].key;
      }
      never = never || hopeless;
      if (!hopeless) longest = std::max(longest, outcome.wait);
      all_queue = all_queue && policy.behavior == policy::Behavior::kQueue;
      decision.patience = std::max(decision.patience, policy.max_wait);
    }
  }
  if (decide_by_allowances(decision, longest) && deciding == nullptr) return;
  all_queue = all_queue && decision.denying_allowance < 0;
  if (deciding == nullptr) {
    // Every limit had room, or could be waited for: it was the store that had none, or a turn that comes too late.
    decision.why = applied.share_full ? Why::kShareFull : applied.store_full ? Why::kStoreFull : Why::kExceeded;
    decision.retry_after = applied.store_full ? std::chrono::seconds{1} : applied.wait;
    return;
  }
  const Judged& judged = decision.judged[static_cast<std::size_t>(decision.decider)];
  decision.limit = static_cast<double>(deciding->limit) * unit;
  decision.remaining = static_cast<double>(deciding->remaining) * unit;
  decision.reset_after = deciding->reset_after;
  const bool whole = decision.policy(judged).built_in;
  decision.retry_after = never ? kNever : whole ? std::chrono::ceil<std::chrono::seconds>(longest) : longest;
  if (never) {
    decision.why = Why::kCostExceedsLimit;
  } else if (decision.policy(judged).repeat) {
    decision.why = Why::kLoopDetected;
  }
  decision.waits = all_queue && !never;
}

void decide_by_line(const ChargeList& list, CheckDecision& decision) noexcept {
  if (decision.denying_allowance >= 0 || (decision.decider >= 0 && !decision.waits)) return;
  decision.decider = list.line_judged;
  decision.waits = true;
  decision.line = list.charges[static_cast<std::size_t>(list.line_charge)].key;
  decision.patience = decision.policy(decision.judged[static_cast<std::size_t>(list.line_judged)]).max_wait;
}

}  // namespace headgate::engine
