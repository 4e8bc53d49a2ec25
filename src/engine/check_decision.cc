#include "engine/check_decision.h"

#include <fmt/format.h>

#include "base/text.h"
#include "engine/event.h"
#include "engine/scaled_limit.h"

namespace headgate::engine {
namespace {

// "50/60s": seconds however long the window is, as people configure and grep for it.
std::string count_per_window(const Limit& limit, double count) {
  const Nanos window = limit.window();
  const bool whole = window % std::chrono::seconds{1} == Nanos{0};
  const std::string length = whole
                                 ? fmt::format("{}s", std::chrono::duration_cast<std::chrono::seconds>(window).count())
                                 : base::format_duration(window);
  return fmt::format("{:g}/{}", count, length);
}

// By the numbers that were in force, which load, an emergency and a store that is away make others than the policy's.
std::string exceeded_text(const Limit& limit, double scale, const core::Outcome& outcome) {
  const double count = static_cast<double>(outcome.limit) / scale;
  const double seconds = static_cast<double>(outcome.wait.count()) / 1e9;
  switch (limit.strategy()) {
    case Strategy::kTokenBucket: return fmt::format("Token bucket exhausted, {:.2f}s to refill", seconds);
    case Strategy::kGcra: return fmt::format("GCRA limit {:g} exceeded, {:.2f}s to refill", count, seconds);
    case Strategy::kSlidingWindow: return "Sliding window limit " + count_per_window(limit, count) + " exceeded";
    case Strategy::kSlidingWindowCounter:
      return "Sliding window counter limit " + count_per_window(limit, count) + " exceeded";
    case Strategy::kFixedWindow: return "Fixed window limit " + count_per_window(limit, count) + " exceeded";
    case Strategy::kLeakyBucket: return fmt::format("Leaky bucket full, {:.2f}s until there is room", seconds);
    case Strategy::kConcurrency: return fmt::format("Concurrency limit {} reached", outcome.limit);
    case Strategy::kQuota: return fmt::format("Quota {:g}/{} exceeded", count, to_string(limit.period()));
  }
  return "Limit exceeded";
}

}  // namespace

const char* to_string(Warning::Kind kind) noexcept {
  switch (kind) {
    case Warning::Kind::kApproaching: return "approaching";
    case Warning::Kind::kExceeded: return "exceeded";
    case Warning::Kind::kBurst: return "burst";
    case Warning::Kind::kMonitor: return "monitor";
  }
  return "unknown";
}

const char* to_string(Event::Kind kind) noexcept {
  switch (kind) {
    case Event::Kind::kViolation: return "violation";
    case Event::Kind::kExceeded: return "exceeded";
    case Event::Kind::kMonitored: return "monitored";
    case Event::Kind::kWarning: return "warning";
    case Event::Kind::kEscalation: return "escalation";
    case Event::Kind::kSustainedAbuse: return "sustained_abuse";
    case Event::Kind::kUnknownOperation: return "unknown_operation";
    case Event::Kind::kLeaseExpired: return "lease_expired";
    case Event::Kind::kOverrun: return "overrun";
    case Event::Kind::kEmergency: return "emergency";
    case Event::Kind::kAdaptive: return "adaptive";
    case Event::Kind::kCellsFull: return "cells_full";
    case Event::Kind::kReload: return "reload";
  }
  return "unknown";
}

const char* CheckDecision::action_text() const noexcept {
  if (!allowed) return "block";
  if (!exceeded) return "allow";
  // Only monitored policies were exceeded.
  for (const Judged& each : judged) {
    if (each.exceeded && each.enforced) return policy::to_string(action);
  }
  return "allow";
}

std::string_view CheckDecision::error() const noexcept {
  switch (why) {
    case Why::kCostExceedsLimit: return "cost_exceeds_limit";
    case Why::kLoopDetected: return "loop_detected";
    case Why::kBackingOff: return "backing_off";
    case Why::kStoreFull:
    case Why::kShareFull: return "too_many_keys";
    case Why::kStoreAway: return "store_unavailable";
    case Why::kStoreLate: return "store_late";
    case Why::kQueueFull: return "queue_full";
    case Why::kTimedOut: return "timed_out";
    case Why::kCancelled: return "cancelled";
    case Why::kRevoked: return "unauthorized";
    case Why::kTooManyLeases: return "too_many_leases";
    case Why::kQuota: return "quota_exceeded";
    case Why::kInvalid: return "invalid_check";
    default: return {};
  }
}

std::string_view CheckDecision::fixed_reason() const noexcept {
  switch (why) {
    case Why::kPassed: return "All rate limit policies passed";
    case Why::kNoPolicy: return "No rate limit policy matches";
    case Why::kExempt: return "The agent is exempt";
    case Why::kLoopDetected: return "loop_detected";
    case Why::kBackingOff: return "Backing off after repeated violations";
    case Why::kStoreFull: return "No room for a new key: the store is at its cap";
    case Why::kShareFull: return "No room for a new key: this agent has as many as one agent may have";
    case Why::kStoreAway: return "The store does not answer, and the policy is closed until it does";
    case Why::kStoreLate: return "The store did not answer in time; ask again";
    case Why::kQueueFull: return "As many checks wait as may wait";
    case Why::kCancelled: return "Cancelled while it waited";
    case Why::kRevoked: return "The token has expired or was revoked while the check waited";
    case Why::kTooManyLeases: return "As many leases are held as may be, in all or by this agent";
    case Why::kQuota: return "Quota used up";
    default: return {};
  }
}

std::string CheckDecision::reason() const {
  if (const std::string_view fixed = fixed_reason(); !fixed.empty()) return std::string(fixed);
  if (why == Why::kInvalid) return problem;
  if (why == Why::kAdmittedPast) {
    // Of several the one with the stronger action, and of equals the one that is judged first.
    const Judged* past = nullptr;
    for (const Judged& each : judged) {
      if (!each.exceeded || !each.enforced || !each.soft) continue;
      if (past == nullptr || policy(each).action < policy(*past).action) past = &each;
    }
    return "Admitted past: " + (past != nullptr ? reason_of(*past) : std::string("Limit exceeded"));
  }
  std::string text = why == Why::kTimedOut ? "Waited as long as it may" : "Limit exceeded";
  if (decider < 0) return text;
  const Judged& by = judged[static_cast<std::size_t>(decider)];
  const Broken broken = broken_of(by);
  if (broken.outcome == nullptr) return text;
  if (why == Why::kCostExceedsLimit) {
    const WorkingPolicy& about = working(by);
    const double factor = by.own != nullptr ? state_->factors.document() : state_->factors.of(*about.policy);
    return fmt::format("The cost is more than {} could ever admit",
                       policy::describe(*about.policy, scaled(*broken.limit, factor)));
  }
  return why == Why::kTimedOut ? "Timed out waiting: " + reason_of(by) : reason_of(by);
}

std::string CheckDecision::reason_of(const Judged& exceeded_policy) const {
  const Broken broken = broken_of(exceeded_policy);
  if (broken.outcome == nullptr) return "Limit exceeded";
  return exceeded_text(*broken.limit, working(exceeded_policy).scale, *broken.outcome);
}

CheckDecision::Broken CheckDecision::broken_of(const Judged& by) const noexcept {
  const Strand& strand = working(by).strands[by.strand];
  Broken worst;
  for (std::size_t i = 0; i < by.count; ++i) {
    const core::Outcome& outcome = outcomes[by.first + i];
    if (outcome.wait == Nanos{0}) continue;
    const bool worse = worst.outcome == nullptr || outcome.wait == kNever ||
                       (worst.outcome->wait != kNever && outcome.wait > worst.outcome->wait);
    if (worse) worst = {&outcome, by.own != nullptr ? &by.own->base : &strand.limits[i].base};
  }
  return worst;
}

}  // namespace headgate::engine
