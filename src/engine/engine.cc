#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/check_problem.h"
#include "engine/plan.h"

namespace headgate::engine {

using policy::Dimension;
using policy::Fields;
using store::Effect;

namespace {

// Behind these names stand cells that many checks share; whoever has none of them is nobody in particular.
control::Subject subject_of(const Check& check) noexcept {
  using Kind = control::Subject::Kind;
  if (check.allowances != nullptr) return {check.user, Kind::kUser};  // a command: its agent is only the user's name
  if (!check.agent.empty()) return {check.agent, Kind::kAgent};
  if (!check.user.empty()) return {check.user, Kind::kUser};
  if (!check.ip.empty()) return {check.ip, Kind::kAddress};
  return {"(unidentified)", Kind::kUnidentified};
}

}  // namespace

CheckDecision Engine::check_at(Nanos now, const Check& check) {
  CheckDecision decision;
  judge(now, check, Asker::kNow, decision);
  return decision;
}

inline Engine::Answered Engine::apply_now(Plan& plan, CheckDecision& decision) {
  if (remote_ != nullptr) [[unlikely]]
    return apply_far(plan, decision);
  return {store_.apply(plan.all(), plan.ask, {decision.outcomes.data(), decision.outcomes.size()})};
}

void Engine::judge(Nanos now, const Check& check, Asker asker, CheckDecision& decision) {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  Plan plan;
  if (!prepare(now, check, asker, plan, decision)) return;
  conclude(now, check, asker, apply_now(plan, decision), plan, decision);
}

bool Engine::prepare(Nanos now, const Check& check, Asker asker, Plan& plan, CheckDecision& decision) {
  decision.wall = clock_->wall(now);
  if (!is_fine(check)) {
    decision.problem = problem_of(check);
    decision.why = Why::kInvalid;
    return false;
  }
  decision.state_ = state_->pin();
  const State& state = *decision.state_;
  decision.throttle_factor = state.throttle_factor;
  // What the plan comes to last is fetched first.
  if (check.allowances != nullptr && !check.allowances->all.empty()) store_.prefetch_way(check.allowances->all[0].cell);
  Fields fields(check, hasher_);
  if (leases_.next_expiry() <= now) expire_leases(now);
  if (state.may_be_exempt(check.agent) && check.allowances == nullptr && state.is_exempt(check.agent)) {
    decision.allowed = true;
    decision.why = Why::kExempt;
    return false;
  }
  if (state.rules->rules.tiers_matter() && check.allowances == nullptr) {
    const auto [tier, known] = state.rules->rules.classify(check.operation);
    fields.set_tier(tier);
    decision.tier = policy::to_string(tier);
    if (!known) note_unknown(check, decision.wall);
  }
  if (enforce_backoff_.load(std::memory_order_relaxed)) {
    const Nanos blocked = violations_.blocked_for(subject_of(check), now);
    if (blocked > Nanos{0}) {
      deny(decision, Why::kBackingOff);
      decision.retry_after = blocked;
      return false;
    }
  }

  bool fits = add_to_plan(state, fields, false, plan, decision);
  if (fits && !check.parent_session.empty()) {
    Check parent = check;
    parent.session = check.parent_session;
    if (!check.parent_agent.empty()) parent.agent = check.parent_agent;
    Fields parent_fields(parent, hasher_);
    if (!decision.tier.empty()) parent_fields.copy_tier(fields);
    fits = add_to_plan(state, parent_fields, true, plan, decision);
  }
  if (fits && check.allowances != nullptr) fits = add_allowances(*check.allowances, plan, decision);
  if (!fits) {
    decision.why = Why::kInvalid;
    decision.problem = fmt::format("at most {} limits may apply to one check, and more policies than that match it",
                                   store::kMaxCharges);
    return false;
  }
  if (plan.charges.empty()) {
    decision.allowed = true;
    decision.why = decision.judged.empty() ? Why::kNoPolicy : Why::kPassed;
    for (const Judged& judged : decision.judged) {
      if (!check.peek) counters_.add(judged.counter, Counters::kAdmitted);
    }
    return false;
  }

  plan.charges[0].counted = true;  // however many limits there are, it is one call
  decision.outcomes.grow_to(plan.charges.size());
  // One by one: a whole that is built elsewhere and copied is read before it has been written.
  plan.ask.now = now;
  plan.ask.wall = decision.wall;
  plan.ask.effect = check.peek ? Effect::kNone : Effect::kCharge;
  plan.ask.owner = owner_of(check);
  if (!room_.empty() && asker != Asker::kFromLine && !check.peek && line_before(check, plan, decision)) {
    plan.ask.effect = Effect::kNone;
    return true;
  }
  if (plan.patience > Nanos{0} && !check.peek) {
    plan.ask.effect = Effect::kReserve;
    plan.ask.patience = core::kLongestSpan;
    plan.ask.apart = true;
  }
  plan.holds = (plan.holds_slots || check.hold) && !check.peek;
  if (plan.holds) {
    if (leases_.full(owner_of(check))) {
      forget_outcomes(decision);
      deny(decision, Why::kTooManyLeases);
      return false;
    }
    decision.lease = Leases::new_id();
    plan.ask.lease = Leases::slot_of(decision.lease);
  }
  return true;
}

bool Engine::line_before(const Check& check, Plan& plan, const CheckDecision& decision) const {
  // Whoever lets checks queue keeps newcomers behind those who wait.
  for (std::size_t j = 0; j < decision.judged.size(); ++j) {
    const Judged& judged = decision.judged[j];
    if (decision.policy(judged).behavior != policy::Behavior::kQueue || judged.soft) continue;
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      if (!room_.has_line(plan.charges[i].key, check.priority)) continue;
      plan.line_judged = static_cast<std::int32_t>(j);
      plan.line_charge = static_cast<std::int32_t>(i);
      return true;
    }
  }
  return false;
}

void Engine::conclude(Nanos now, const Check& check, Asker asker, const Answered& answered, const Plan& plan,
                      CheckDecision& decision) {
  const store::Applied& applied = answered.applied;
  if (answered.by == AnsweredBy::kNobody) {
    decision.lease.clear();
    if (!check.peek) after_denial(now, check, decision);
    return;
  }
  if (plan.line_judged >= 0) {
    decide_denied(plan, applied, decision);
    // What no wait in this line would help is denied as ever.
    if (decision.denying_allowance < 0 && (decision.decider < 0 || decision.waits)) {
      decision.decider = plan.line_judged;
      decision.waits = true;
      decision.line_ = plan.charges[static_cast<std::size_t>(plan.line_charge)].key;
      decision.patience_ = decision.policy(decision.judged[static_cast<std::size_t>(plan.line_judged)]).max_wait;
    }
    if (asker == Asker::kNow || !decision.waits) after_denial(now, check, decision);
    return;
  }
  const bool admitted = (applied.wait == Nanos{0} || applied.reserved) && !applied.store_full;
  if (admitted) {
    decide_allowed(check, plan, applied, decision);
    if (plan.holds && !take_lease(now, check, plan, answered, decision)) return;
    if (decision.exceeded && !check.peek) after_soft(now, check, decision);
    return;
  }
  decision.lease.clear();
  decide_denied(plan, applied, decision);
  if (check.peek || (decision.waits && asker != Asker::kNow)) return;
  after_denial(now, check, decision);
}

void Engine::deny(CheckDecision& decision, Why why) const noexcept {
  decision.allowed = false;
  decision.why = why;
  decision.action = policy::Action::kBlock;
  decision.exceeded = true;
}

void Engine::decide_allowed(const Check& check, const Plan& plan, const store::Applied& applied,
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
  const WorkingPolicy* const policies = decision.state_->rules->policies.data();
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
      const double remaining = left * plan.limits[i]->unit;
      if (remaining < least) {
        least = remaining;
        tightest = i;
      }
      reset = std::max(reset, outcome.reset_after);
      if (outcome.delay > delay && (outcome.fits() || !judged.soft)) delay = outcome.delay;
    }
  }
  if (telling != 0) [[unlikely]]
    warn(check, plan, telling, decision);
  if (!check.peek) {
    const std::size_t slot = base::thread_slot();
    for (const Judged& judged : decision.judged) counters_.add(slot, judged.counter, Counters::kAdmitted);
  }
  if (least != std::numeric_limits<double>::infinity()) {
    decision.remaining = least;
    decision.limit = static_cast<double>(decision.outcomes[tightest].limit) * plan.limits[tightest]->unit;
  }
  decision.reset_after = reset;
  decision.delay = delay;
  if (applied.reserved) {
    decision.exceeded = true;
    decision.action = policy::Action::kThrottle;
  }
}

void Engine::warn(const Check& check, const Plan& plan, std::uint64_t charges, CheckDecision& decision) {
  for (Judged& judged : decision.judged) {
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      if ((charges >> i & 1) != 0) warn(check, plan, i, judged, decision);
    }
  }
}

void Engine::warn(const Check& check, const Plan& plan, std::size_t nth, Judged& judged, CheckDecision& decision) {
  const WorkingPolicy& working = decision.working(judged);
  const policy::Policy& policy = *working.policy;
  const core::Outcome& outcome = decision.outcomes[nth];
  const double remaining = static_cast<double>(outcome.remaining) * plan.limits[nth]->unit;
  const double capacity = static_cast<double>(outcome.limit) * plan.limits[nth]->unit;
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
  const double before = static_cast<double>(outcome.limit - outcome.remaining - plan.charges[nth].cost);
  if (working.warn_at >= 1 || check.peek ||
      before >= WorkingPolicy::warns_from(working.warn_at, static_cast<double>(outcome.limit)))
    return;
  tell_asker(Warning::Kind::kApproaching);
  tell({.kind = Event::Kind::kWarning,
        .time = decision.wall,
        .agent = check.agent,
        .operation = check.operation,
        .policy_id = policy.id,
        .value = remaining});
}

void Engine::decide_denied(const Plan& plan, const store::Applied& applied, CheckDecision& decision) {
  deny(decision, Why::kExceeded);
  // Nothing was charged: what had room is told as it stands, not as it would stand.
  for (std::size_t i = 0; i < plan.charges.size(); ++i) {
    core::Outcome& outcome = decision.outcomes[i];
    if (outcome.fits()) outcome.remaining = std::min(outcome.limit, outcome.remaining + plan.charges[i].cost);
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
      const bool bearable = !hopeless && outcome.wait <= plan.charges[i].patience &&
                            plan.charges[i].limit->strategy() != Strategy::kConcurrency;
      if (bearable && !applied.store_full) continue;
      // By priority; of equals the one that takes longest. What can never fit goes before all.
      const bool first = decision.decider < 0 || (hopeless && !never);
      const bool equal =
          !never && !first &&
          policy.priority == decision.policy(decision.judged[static_cast<std::size_t>(decision.decider)]).priority;
      if (first || (equal && outcome.wait > deciding->wait)) {
        decision.decider = static_cast<std::int32_t>(j);
        deciding = &outcome;
        unit = plan.limits[i]->unit;
        decision.line_ = plan.charges[i].key;
      }
      never = never || hopeless;
      if (!hopeless) longest = std::max(longest, outcome.wait);
      all_queue = all_queue && policy.behavior == policy::Behavior::kQueue;
      decision.patience_ = std::max(decision.patience_, policy.max_wait);
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

void Engine::after_denial(Nanos now, const Check& check, CheckDecision& decision) {
  const policy::Policy* decider = decision.denied_by();
  if (decider != nullptr) {
    const Judged& judged = decision.judged[static_cast<std::size_t>(decision.decider)];
    counters_.add(judged.counter, Counters::kDenied);
  }
  // A cost that can never fit is a mistake, not a violation: waiting would not help.
  const bool violation = decision.why != Why::kCostExceedsLimit && decision.why != Why::kStoreFull &&
                         decision.why != Why::kStoreAway && decision.why != Why::kStoreLate;
  if (violation) {
    const auto [wait, sustained] = violations_.record(subject_of(check), now);
    if (wait > decision.retry_after) decision.retry_after = decision.backoff = wait;
    if (decider != nullptr && decider->built_in) {
      decision.retry_after = std::chrono::ceil<std::chrono::seconds>(decision.retry_after);
    }
    if (sustained) {
      tell({.kind = Event::Kind::kSustainedAbuse,
            .time = decision.wall,
            .agent = subject_of(check).name,
            .operation = check.operation,
            .policy_id = decider == nullptr ? std::string_view() : decider->id,
            .text = "10 violations within 5 minutes",
            .value = static_cast<double>(control::kSustainedCount)});
    }
  }
  const std::string reason = decision.reason();
  if (decision.why == Why::kShareFull) tell_share_full(owner_of(check), decision.wall);
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
    if (judged.enforced && violation) escalate(now, check, decision.policy(judged), decision);
  }
}

void Engine::tell_share_full(std::string_view owner, Nanos wall) const {
  tell({.kind = Event::Kind::kCellsFull,
        .time = wall,
        .agent = owner,
        .text =
            "this agent has as many cells as one agent may have (store.max_cells_per_agent); its new keys are denied",
        .value = 1});
}

void Engine::after_soft(Nanos now, const Check& check, CheckDecision& decision) {
  for (const Judged& judged : decision.judged) {
    if (!judged.exceeded) continue;
    const policy::Policy& policy = decision.policy(judged);
    counters_.add(judged.counter, judged.enforced ? Counters::kExceeded : Counters::kMonitored);
    const std::string text = policy.message.empty() ? decision.reason_of(judged) : policy.message;
    tell({.kind = judged.enforced ? Event::Kind::kExceeded : Event::Kind::kMonitored,
          .time = decision.wall,
          .agent = check.agent,
          .operation = check.operation,
          .policy_id = policy.id,
          .action = judged.enforced ? std::string_view(policy::to_string(policy.action)) : std::string_view(),
          .text = text});
    if (judged.enforced) escalate(now, check, policy, decision);
  }
}

void Engine::escalate(Nanos now, const Check& check, const policy::Policy& policy, CheckDecision& decision) {
  if (!policy.escalation) return;
  const control::Subject subject = subject_of(check);
  const base::Hash128 who =
      base::nth(base::mix(hasher_(policy.id), hasher_(subject.name)), static_cast<std::uint64_t>(subject.kind));
  if (!escalations_.violated(who, *policy.escalation, now)) return;
  tell({.kind = Event::Kind::kEscalation,
        .time = decision.wall,
        .agent = check.agent,
        .operation = check.operation,
        .policy_id = policy.id,
        .to = policy.escalation->to,
        .text = policy.message,
        .value = static_cast<double>(policy.escalation->threshold)});
}

void Engine::note_unknown(const Check& check, Nanos wall) {
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

}  // namespace headgate::engine
