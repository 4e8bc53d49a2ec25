#include "engine/explain.h"

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/scaled_limit.h"
#include "engine/side.h"

namespace headgate::engine {

using policy::Dimension;
using policy::Fields;

std::string why_not(const Explained& about, const Check& check) {
  if (!about.why_not.empty()) return about.why_not;
  const policy::Policy& policy = *about.policy;
  if (policy.least_cost > 0 || (check.costs.empty() && policy.unit == "requests")) return {};
  for (const Cost& cost : check.costs) {
    if (cost.unit == policy.unit) return {};
  }
  return fmt::format("the check has no cost in {}", policy.unit);
}

Explanation Engine::explain(const Check& check) {
  Explanation explanation;
  Check peek = check;
  peek.peek = true;
  peek.hold = false;
  const Nanos now = clock_.now();
  explanation.decision = check_at(now, peek);
  if (explanation.decision.why == Why::kInvalid) return explanation;
  if (!explanation.decision.has_state()) explanation.decision.pin(controls_.pin());
  const State& state = explanation.decision.state();
  const policy::Rules& rules = state.rules->rules;
  Fields fields(check, cells_.hasher());
  fields.set_tier(rules.classify(check.operation).tier);
  for (std::size_t i = 0; i < rules.policies().size(); ++i) {
    const WorkingPolicy& working = state.rules->policies[i];
    Explained& about = explanation.policies.emplace_back();
    about.policy = working.policy;
    about.why_not = rules.why_not(i, fields, state.surroundings);
    const Side side = side_of(working, fields);
    about.enforced = side.enforced && working.policy->mode == policy::Mode::kEnforce;
    about.variant = working.strands[side.strand].variant;
    for (const policy::KeyPart& part : working.policy->key) {
      std::string value(part.dimension == Dimension::kAttribute ? "" : fields.text(part.dimension));
      if (const Value* attribute = fields.attribute(part.attribute);
          part.dimension == Dimension::kAttribute && attribute) {
        value = policy::ValueText(*attribute).view();
      }
      if (working.tiered && part.dimension == Dimension::kChannel) value = policy::bucket_channel(value);
      const std::string name =
          part.dimension == Dimension::kAttribute ? part.attribute : policy::to_string(part.dimension);
      about.key += fmt::format("{}{}={}", about.key.empty() ? "" : " ", name, value.empty() ? "-" : value);
    }
    if (about.key.empty()) about.key = "(all)";
  }
  for (const Judged& judged : explanation.decision.judged) {
    if (judged.parent) continue;
    const WorkingPolicy& working = state.rules->policies[judged.policy];
    const Strand& strand = working.strands[judged.strand];
    Explained& about = explanation.policies[judged.policy];
    for (std::size_t i = 0; i < judged.count; ++i) {
      const core::Outcome& outcome = explanation.decision.outcomes[judged.first + i];
      Explained::Cell& cell = about.cells.emplace_back();
      const WorkingLimit& limit = judged.own != nullptr ? *judged.own : strand.limits[i];
      // Not what the live numbers say: they may change under our eyes.
      cell.limit = policy::describe(*working.policy, scaled(limit.base, state.factors.of(*working.policy)));
      cell.capacity = static_cast<double>(outcome.limit) * limit.unit;
      cell.remaining = static_cast<double>(outcome.remaining) * limit.unit;
      cell.reset_after = outcome.reset_after;
      cell.fits = outcome.wait == Nanos{0};
    }
  }
  return explanation;
}

std::vector<Engine::TierUsage> Engine::tier_usage(std::string_view agent, std::string_view channel) {
  std::vector<TierUsage> usages;
  const Nanos now = clock_.now();
  const Nanos wall = clock_.wall(now);
  for (int i = 0; i < policy::kTierCount; ++i) {
    const auto tier = static_cast<policy::Tier>(i);
    Check check;
    check.agent = agent;
    check.channel = channel;
    check.operation = policy::to_string(tier);
    CheckDecision decision;
    decision.pin(controls_.pin());
    const State& state = decision.state();
    Fields fields(check, cells_.hasher());
    fields.set_tier(tier);
    ChargeList list;
    if (!matcher_.add(state, fields, false, list, decision)) continue;
    for (const Judged& judged : decision.judged) {
      if (!decision.policy(judged).tier || judged.count == 0) continue;
      store::Charge charge = list.charges[judged.first];
      charge.cost = 0;
      core::Outcome outcome;
      (void)cells_.apply_or_stand_in({&charge, 1}, {now, wall, store::Effect::kNone}, {&outcome, 1});
      TierUsage& usage = usages.emplace_back();
      usage.tier = policy::to_string(tier);
      usage.limit = static_cast<double>(outcome.limit) * list.limits[judged.first]->unit;
      usage.remaining = static_cast<double>(outcome.remaining) * list.limits[judged.first]->unit;
      usage.reset_after = outcome.reset_after;
      usage.overridden = judged.own != nullptr;
    }
  }
  return usages;
}

}  // namespace headgate::engine
