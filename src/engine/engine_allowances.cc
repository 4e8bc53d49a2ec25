// Limits that checks bring along: quotas of commands.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/plan.h"

namespace headgate::engine {

const WorkingLimit* Engine::allowance_limit(const Limit& limit) {
  const std::lock_guard guard(control_mutex_);
  const std::string identity = "allowance\n" + limit.describe();
  const auto known = allowance_limits_.find(identity);
  if (known != allowance_limits_.end()) return known->second.get();
  if (allowance_limits_.size() >= kMostAllowanceLimits) return nullptr;
  LimitBook::Changes changes;
  auto working = std::make_unique<WorkingLimit>(book_.limit(identity, limit, hasher_.seed(), 1, changes));
  book_.apply(changes);
  return (allowance_limits_[identity] = std::move(working)).get();
}

base::Hash128 Engine::allowance_cell(std::span<const std::string_view> names) const noexcept {
  // Apart from the cells of policies and of CL.THROTTLE.
  base::Hash128 cell{0x48656164676174D6u, 0x416C6C6F77616E63u};
  for (const std::string_view name : names) cell = base::mix(cell, hasher_(name));
  return cell;
}

bool Engine::add_allowances(const Allowances& allowances, Plan& plan, CheckDecision& decision) {
  plan.of_allowances = allowances.on_store_failure;
  if (plan.charges.size() + allowances.all.size() > store::kMaxCharges) return false;
  store::Charge* charge = plan.charges.end();
  const WorkingLimit** limit = plan.limits.end();
  for (const Allowances::One& one : allowances.all) {
    new (charge) store::Charge;
    charge->key = one.cell;
    charge->limit = &one.limit->numbers->live;
    charge->cost = 1;
    charge->counted = false;
    charge->patience = Nanos{0};
    ++charge;
    *limit++ = one.limit;
  }
  plan.charges.grow_to(plan.charges.size() + allowances.all.size());
  plan.limits.grow_to(plan.charges.size());
  decision.allowance_count = static_cast<std::uint32_t>(allowances.all.size());
  return true;
}

bool Engine::decide_by_allowances(CheckDecision& decision, Nanos& longest) {
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

void Engine::forget_outcomes(CheckDecision& decision) noexcept {
  for (core::Outcome& outcome : decision.outcomes) outcome = {};
}

void Engine::look_at(std::span<const Allowances::One> allowances, std::span<core::Outcome> outcomes) {
  const Nanos now = clock_->now();
  const store::Ask ask{now, clock_->wall(now), store::Effect::kNone};
  base::BoundedArray<store::Charge, store::kMaxCharges> charges;
  for (std::size_t begin = 0; begin < allowances.size(); begin += charges.size()) {
    charges.grow_to(0);
    for (std::size_t i = begin; i < allowances.size() && !charges.full(); ++i) {
      store::Charge& charge = charges.emplace_back();
      charge.key = allowances[i].cell;
      charge.limit = &allowances[i].limit->numbers->live;
    }
    (void)apply_plain({charges.data(), charges.size()}, ask, outcomes.subspan(begin, charges.size()));
  }
}

void Engine::look_at(std::span<const Allowances::One> allowances, Looked done) {
  struct Looking {
    std::vector<store::Charge> charges;
    std::vector<core::Outcome> outcomes;
    std::atomic<std::size_t> left{0};
    Looked done;
  };
  auto looking = std::make_shared<Looking>();
  looking->outcomes.resize(allowances.size());
  if (remote_ == nullptr) {
    look_at(allowances, looking->outcomes);
    return done(looking->outcomes);
  }
  looking->done = std::move(done);
  for (const Allowances::One& each : allowances) {
    store::Charge& charge = looking->charges.emplace_back();
    charge.key = each.cell;
    charge.limit = &each.limit->numbers->live;
  }
  const Nanos now = clock_->now();
  const store::Ask ask{now, clock_->wall(now), store::Effect::kNone};
  const std::size_t parts = (allowances.size() + store::kMaxCharges - 1) / store::kMaxCharges;
  looking->left = parts + 1;  // and this one, so that none of them is the last before all are asked
  const auto end_part = [](Looking& of) {
    if (of.left.fetch_sub(1) == 1) of.done(of.outcomes);
  };
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = part * store::kMaxCharges;
    const std::size_t count = std::min(store::kMaxCharges, allowances.size() - first);
    const std::span<const store::Charge> charges{looking->charges.data() + first, count};
    const std::span<core::Outcome> outcomes{looking->outcomes.data() + first, count};
    remote_->apply(charges, ask, outcomes,
                   [this, looking, charges, outcomes, ask, end_part](const Result<store::RemoteStore::Answer>& answer) {
                     if (!answer) (void)store_.apply(charges, ask, outcomes);
                     end_part(*looking);
                   });
  }
  end_part(*looking);
}

bool Engine::raise_to(const Allowances::One& allowance, Units used) {
  core::Outcome outcome;
  store::Charge charge;
  charge.key = allowance.cell;
  charge.limit = &allowance.limit->numbers->live;
  const Nanos now = clock_->now();
  store::Ask ask{now, clock_->wall(now), store::Effect::kNone};
  if (!apply_there({&charge, 1}, ask, {&outcome, 1})) return false;
  charge.cost = std::min(used - (outcome.limit - outcome.remaining), outcome.remaining);
  if (charge.cost <= 0) return true;
  ask.effect = store::Effect::kCharge;
  return apply_there({&charge, 1}, ask, {&outcome, 1}).has_value();
}

}  // namespace headgate::engine
