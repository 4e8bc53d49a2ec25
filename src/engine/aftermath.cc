#include "engine/aftermath.h"

#include <chrono>

namespace headgate::engine {

control::Subject Aftermath::subject_of(const Request& request) noexcept {
  using Kind = control::Subject::Kind;
  const Check& check = request.check;
  // The agent of a command is only the user's name.
  if (request.account.allowances != nullptr) return {check.user, Kind::kUser};
  if (!check.agent.empty()) return {check.agent, Kind::kAgent};
  if (!check.user.empty()) return {check.user, Kind::kUser};
  if (!check.ip.empty()) return {check.ip, Kind::kAddress};
  return {"(unidentified)", Kind::kUnidentified};
}

void Aftermath::denied(const Request& request, CheckDecision& decision) {
  const Check& check = request.check;
  const policy::Policy* decider = decision.denied_by();
  if (decider != nullptr) {
    const Judged& judged = decision.judged[static_cast<std::size_t>(decision.decider)];
    counters_.add(judged.counter, Counters::kDenied);
  }
  // A cost that can never fit is a mistake, not a violation: waiting would not help.
  const bool violation = decision.why != Why::kCostExceedsLimit && decision.why != Why::kStoreFull &&
                         decision.why != Why::kStoreAway && decision.why != Why::kStoreLate;
  if (violation) {
    const auto [wait, sustained] = violations_.record(subject_of(request), request.now);
    if (wait > decision.retry_after) decision.retry_after = decision.backoff = wait;
    if (decider != nullptr && decider->built_in) {
      decision.retry_after = std::chrono::ceil<std::chrono::seconds>(decision.retry_after);
    }
    if (sustained) {
      tell({.kind = Event::Kind::kSustainedAbuse,
            .time = decision.wall,
            .agent = subject_of(request).name,
            .operation = check.operation,
            .policy_id = decider == nullptr ? std::string_view() : decider->id,
            .text = "10 violations within 5 minutes",
            .value = static_cast<double>(control::kSustainedCount)});
    }
  }
  const std::string reason = decision.reason();
  if (decision.why == Why::kShareFull) tell_share_full(request.owner(), decision.wall);
  tell({.kind = Event::Kind::kViolation,
        .time = decision.wall,
        .agent = check.agent,
        .operation = check.operation,
        .policy_id = decider == nullptr ? std::string_view() : decider->id,
        .text = reason,
        .value = static_cast<double>(decision.retry_after.count()) / 1e6});
  for (const Judged& judged : decision.judged) {
    if (!judged.exceeded) continue;
    counters_.add(judged.counter, judged.enforced ? Counters::kExceeded : Counters::kMonitored);
    if (judged.enforced && violation) escalate(request, decision.policy(judged), decision.wall);
  }
}

void Aftermath::tell_share_full(std::string_view owner, Nanos wall) const {
  tell({.kind = Event::Kind::kCellsFull,
        .time = wall,
        .agent = owner,
        .text =
            "this agent has as many cells as one agent may have (store.max_cells_per_agent); its new keys are denied",
        .value = 1});
}

void Aftermath::exceeded(const Request& request, const CheckDecision& decision) {
  for (const Judged& judged : decision.judged) {
    if (!judged.exceeded) continue;
    const policy::Policy& policy = decision.policy(judged);
    counters_.add(judged.counter, judged.enforced ? Counters::kExceeded : Counters::kMonitored);
    const std::string text = policy.message.empty() ? decision.reason_of(judged) : policy.message;
    tell({.kind = judged.enforced ? Event::Kind::kExceeded : Event::Kind::kMonitored,
          .time = decision.wall,
          .agent = request.check.agent,
          .operation = request.check.operation,
          .policy_id = policy.id,
          .action = judged.enforced ? std::string_view(policy::to_string(policy.action)) : std::string_view(),
          .text = text});
    if (judged.enforced) escalate(request, policy, decision.wall);
  }
}

void Aftermath::escalate(const Request& request, const policy::Policy& policy, Nanos wall) {
  if (!policy.escalation) return;
  const control::Subject subject = subject_of(request);
  const base::Hash128 who =
      base::nth(base::mix(hasher_(policy.id), hasher_(subject.name)), static_cast<std::uint64_t>(subject.kind));
  if (!escalations_.violated(who, *policy.escalation, request.now)) return;
  tell({.kind = Event::Kind::kEscalation,
        .time = wall,
        .agent = request.check.agent,
        .operation = request.check.operation,
        .policy_id = policy.id,
        .to = policy.escalation->to,
        .text = policy.message,
        .value = static_cast<double>(policy.escalation->threshold)});
}

void Aftermath::tell_unknown_operation(const Check& check, Nanos wall) {
  constexpr std::size_t kMostRemembered = 10'000;
  if (sink_ == nullptr) return;
  {
    const std::lock_guard guard(unknown_mutex_);
    if (unknown_operations_.size() >= kMostRemembered || unknown_operations_.contains(check.operation)) return;
    unknown_operations_.emplace(check.operation);
  }
  tell({.kind = Event::Kind::kUnknownOperation,
        .time = wall,
        .agent = check.agent,
        .operation = check.operation,
        .text = "on no tier's list: taken as normal"});
}

void Aftermath::configure(const control::BackoffSettings& backoff) {
  violations_.configure(backoff);
  enforce_backoff_.store(backoff.enforced);
}

}  // namespace headgate::engine
