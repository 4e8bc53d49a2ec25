// From the policies that match a check to what it would charge.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/side.h"

namespace headgate::engine {

using policy::Dimension;
using policy::Fields;
using store::Charge;

namespace {

// So much of a cell's units; fractions of one are rounded up, but not what only a double's noise has put there.
Units units_of(double amount, double scale) noexcept {
  const double exact = amount * scale;
  if (exact < 1e15) {
    const auto whole = static_cast<Units>(exact);
    if (static_cast<double>(whole) == exact) return whole;
  }
  const double near = std::round(exact);
  const double rounded = std::abs(exact - near) <= 1e-6 * std::max(1.0, exact) ? near : std::ceil(exact);
  constexpr double kMost = 9e18;
  return rounded >= kMost ? std::numeric_limits<Units>::max() : static_cast<Units>(rounded);
}

base::Hash128 part_hash(const policy::KeyPart& part, Fields& fields) noexcept {
  if (part.dimension == Dimension::kAttribute) return fields.hash(fields.attribute(part.attribute));
  return fields.hash(part.dimension);
}

// The salt mixed with every part of the key in turn.
base::Hash128 key_hash(const WorkingPolicy& working, base::Hash128 salt, Fields& fields) noexcept {
  if (!working.attributes) {
    for (std::uint64_t rest = working.key; rest != 0; rest >>= 4) {
      salt = base::mix(salt, fields.hash(static_cast<Dimension>((rest & 15) - 1)));
    }
    return salt;
  }
  for (const policy::KeyPart& part : working.policy->key) salt = base::mix(salt, part_hash(part, fields));
  return salt;
}

// By matching; false: more policies match, or have more limits, than there may be.
bool find_route(const State& state, Fields& fields, Route& route) {
  policy::Matched matched;
  state.rules->rules.match(fields, state.surroundings, matched);
  if (matched.overflow()) return false;
  for (const std::uint32_t index : matched.policies()) {
    const WorkingPolicy& working = state.rules->policies[index];
    const Side side = side_of(working, fields);
    route.legs.emplace_back() = {index, side.strand, side.enforced};
    for (const WorkingLimit& limit : working.strands[side.strand].limits) {
      if (route.cells.full()) return false;
      route.cells.emplace_back() = key_hash(working, limit.salt, fields);
    }
  }
  return true;
}

}  // namespace

bool Engine::add_to_plan(const State& state, Fields& fields, const Amounts& amounts, bool parent, Plan& plan,
                         CheckDecision& decision) {
  Recall::Memory* const memory = recall_.mine();
  const std::uint64_t asked = memory == nullptr ? 0 : fields.identity(state.number, state.rules->rules.looks_at());
  Recall::Memory::Known known;
  if (memory != nullptr) known = memory->find(asked);
  Route fresh;
  if (known.legs.data() == nullptr) {
    if (!find_route(state, fields, fresh)) return false;
    if (memory != nullptr) memory->keep(asked, fresh);
    known = {{fresh.legs.data(), fresh.legs.size()}, {fresh.cells.data(), fresh.cells.size()}};
  }
  for (const base::Hash128& each : known.cells) store_.prefetch_way(each);

  const bool overridden = !state.overrides->empty();
  const base::Hash128* cell = known.cells.data();
  for (const Leg leg : known.legs) {
    const WorkingPolicy& working = state.rules->policies[leg.policy];
    const Strand& strand = working.strands[leg.strand];
    const Amount& amount = amounts[working.unit];
    if (amount.exact < 0) {  // the check has no such cost
      cell += strand.limits.size();
      continue;
    }
    Judged& judged = decision.judged.emplace_back();
    judged.policy = leg.policy;
    judged.first = static_cast<std::uint16_t>(plan.charges.size());
    judged.strand = leg.strand;
    judged.counter = strand.counter;
    judged.enforced = working.enforced && leg.enforced != 0;
    judged.soft = working.soft || !judged.enforced;
    judged.parent = parent;
    const Nanos patience = judged.enforced ? working.patience : Nanos{0};
    if (patience > plan.patience) plan.patience = patience;
    const Units units = working.scale == 1 ? amount.whole : units_of(amount.exact, working.scale);

    const auto charge = [&](const WorkingLimit& limit, const base::Hash128& key) {
      if (parent && plan.charges_to(key)) return true;  // the parent's cell is the check's own
      if (plan.charges.full()) return false;
      // In place: a charge that is built here and copied there is read before it has been written.
      Charge& added = plan.charges.emplace_back();
      added.key = key;
      added.limit = &limit.numbers->live;
      added.cost = units;
      added.soft = judged.soft;
      added.counted = false;
      added.patience = patience;
      added.leased = working.leased;
      plan.limits.emplace_back() = &limit;
      if (added.limit->strategy() == Strategy::kConcurrency) [[unlikely]] {
        plan.holds_slots = true;
        if (working.scale != 1) added.cost = 1;
      }
      return true;
    };
    if (overridden && working.tiered) {
      judged.own = state.own_limit(fields.hash(Dimension::kAgent), *working.policy->tier);
    }
    if (judged.own != nullptr) {
      if (!charge(*judged.own, key_hash(working, judged.own->salt, fields))) return false;
      cell += strand.limits.size();
    } else {
      for (const WorkingLimit& limit : strand.limits) {
        if (!charge(limit, *cell++)) return false;
      }
    }
    judged.count = static_cast<std::uint16_t>(plan.charges.size() - judged.first);
    if (parent && judged.count == 0) decision.judged.pop_back();
  }
  return true;
}

void Engine::amounts_of(const Check& check, const Ruleset& rules, Amounts& amounts) noexcept {
  for (std::size_t unit = 0; unit < rules.units.size(); ++unit) amounts[unit].exact = -1;
  if (check.costs.empty()) amounts[0] = {1, 1};
  for (const Cost& cost : check.costs) {
    for (std::size_t unit = 0; unit < rules.units.size(); ++unit) {
      if (rules.units[unit] != cost.unit) continue;
      amounts[unit].exact = std::max(amounts[unit].exact, 0.0) + cost.amount;
      amounts[unit].whole = units_of(amounts[unit].exact, 1);
    }
  }
}

}  // namespace headgate::engine
