#include "engine/matcher.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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

// The cost of a check in one unit: as it came, and in whole units, rounded up.
struct Amount {
  double exact;  // negative: it has none of that unit
  Units whole;
};
using Amounts = std::array<Amount, kMaxUnits>;  // by unit of the rules

void amounts_of(std::span<const Cost> costs, const Ruleset& rules, Amounts& amounts) noexcept {
  for (std::size_t unit = 0; unit < rules.units.size(); ++unit) amounts[unit].exact = -1;
  if (costs.empty()) amounts[0] = {1, 1};
  for (const Cost& cost : costs) {
    for (std::size_t unit = 0; unit < rules.units.size(); ++unit) {
      if (rules.units[unit] != cost.unit) continue;
      amounts[unit].exact = std::max(amounts[unit].exact, 0.0) + cost.amount;
      amounts[unit].whole = units_of(amounts[unit].exact, 1);
    }
  }
}

base::Hash128 part_hash(const policy::KeyPart& part, Fields& fields) noexcept {
  if (part.dimension == Dimension::kAttribute) return fields.hash(fields.attribute(part.attribute));
  return fields.hash(part.dimension);
}

// The salt mixed with every part of the key in turn.
base::Hash128 key_hash(const WorkingPolicy& working, base::Hash128 salt, Fields& fields,
                       const base::Hasher& hasher) noexcept {
  if (working.tiered) {
    for (const policy::KeyPart& part : working.policy->key) {
      const bool channel = part.dimension == Dimension::kChannel;
      salt = base::mix(
          salt, channel ? hasher(policy::bucket_channel(fields.text(part.dimension))) : fields.hash(part.dimension));
    }
    return salt;
  }
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
bool find_route(const State& state, Fields& fields, const base::Hasher& hasher, Route& route) {
  policy::Matched matched;
  state.rules->rules.match(fields, state.surroundings, matched);
  if (matched.overflow()) return false;
  for (const std::uint32_t index : matched.policies()) {
    const WorkingPolicy& working = state.rules->policies[index];
    const Side side = side_of(working, fields);
    route.legs.emplace_back() = {index, side.strand, side.enforced};
    for (const WorkingLimit& limit : working.strands[side.strand].limits) {
      if (route.cells.full()) return false;
      route.cells.emplace_back() = key_hash(working, limit.salt, fields, hasher);
    }
  }
  return true;
}

}  // namespace

bool Matcher::add(const State& state, Fields& fields, bool parent, ChargeList& list, CheckDecision& decision) {
  Recall::Memory* const memory = recall_.mine();
  if (memory == nullptr) return add_matching(state, fields, parent, {}, list, decision);
  const policy::LooksAt& looks_at = state.rules->rules.looks_at();
  const Remembered as{memory, fields.identity(state.number, looks_at)};
  const Recall::Memory::Known known =
      memory->find(as.identity, state.number, [&](std::string_view names) { return fields.reads_as(looks_at, names); });
  // The usual case: one request of an agent without an override.
  const bool plain = fields.check().costs.empty() && !parent && !list.as_stated;
  if (plain && known.draft != nullptr && (!known.draft->tiered || state.overrides->empty())) [[likely]] {
    follow(*known.draft, known.cells.data(), list, decision);
    return true;
  }
  if (known.legs.data() == nullptr) return add_matching(state, fields, parent, as, list, decision);
  return add_legs(state, fields, known, parent, list, decision);
}

bool Matcher::add_matching(const State& state, Fields& fields, bool parent, const Remembered& as, ChargeList& list,
                           CheckDecision& decision) {
  Route route;
  if (!find_route(state, fields, store_.hasher(), route)) return false;
  if (as.memory != nullptr) {
    std::array<char, Recall::kMostNames> names;
    const std::size_t size = fields.write(state.rules->rules.looks_at(), names.data(), names.size());
    if (size > 0) {
      const Recall::Draft* const draft = draft_of(state, fields, route, *as.memory);
      as.memory->keep(as.identity, state.number, {names.data(), size}, route, draft);
    }
  }
  return add_legs(state, fields, {route}, parent, list, decision);
}

bool Matcher::add(const Allowances& allowances, ChargeList& list, CheckDecision& decision) {
  list.of_allowances = allowances.on_store_failure;
  if (list.charges.size() + allowances.all.size() > store::kMaxCharges) return false;
  store::Charge* charge = list.charges.end();
  const WorkingLimit** limit = list.limits.end();
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
  list.charges.grow_to(list.charges.size() + allowances.all.size());
  list.limits.grow_to(list.charges.size());
  decision.allowance_count = static_cast<std::uint32_t>(allowances.all.size());
  return true;
}

const Recall::Draft* Matcher::draft_of(const State& state, Fields& fields, const Route& route, Recall::Memory& memory) {
  bool is_new = false;
  Recall::Draft* const draft = memory.draft(state.number, route, is_new);
  if (!is_new) return draft;
  Check one_request = fields.check();
  one_request.costs = {};
  Fields its_fields(one_request, store_.hasher());
  ChargeList list;
  CheckDecision decision;
  (void)add_legs(state, its_fields, {route}, false, list, decision);
  draft->charges.append(list.charges);
  draft->limits.append(list.limits);
  draft->judged.append(decision.judged);
  draft->patience = list.patience;
  draft->holds_slots = list.holds_slots;
  for (const Leg leg : route.legs) draft->tiered = draft->tiered || state.rules->policies[leg.policy].tiered;
  // Policies that count something else than requests are passed over, with their cells, unless they charge every check.
  std::uint8_t cell = 0;
  for (const Leg leg : route.legs) {
    const WorkingPolicy& working = state.rules->policies[leg.policy];
    for (std::size_t i = 0; i < working.strands[leg.strand].limits.size(); ++i, ++cell) {
      if (working.unit == 0 || working.least > 0) draft->cells.append(cell);
    }
  }
  return draft;
}

inline void Matcher::follow(const Recall::Draft& draft, const base::Hash128* cells, ChargeList& list,
                            CheckDecision& decision) const noexcept {
  list.charges.append(draft.charges);
  Charge* charge = list.charges.data();
  for (const std::uint8_t cell : draft.cells) {
    store_.prefetch_way(cells[cell]);
    charge++->key = cells[cell];
  }
  list.limits.append(draft.limits);
  decision.judged.append(draft.judged);
  list.patience = draft.patience;
  list.holds_slots = draft.holds_slots;
}

bool Matcher::add_legs(const State& state, Fields& fields, const Recall::Memory::Known& known, bool parent,
                       ChargeList& list, CheckDecision& decision) const {
  for (const base::Hash128& each : known.cells) store_.prefetch_way(each);
  Amounts amounts;
  amounts_of(fields.check().costs, *state.rules, amounts);
  const bool overridden = !state.overrides->empty();
  const base::Hash128* cell = known.cells.data();
  for (const Leg leg : known.legs) {
    const WorkingPolicy& working = state.rules->policies[leg.policy];
    const Strand& strand = working.strands[leg.strand];
    const Amount& amount = amounts[working.unit];
    const Units least = list.as_stated ? 0 : working.least;
    if (amount.exact < 0 && least == 0) {  // the check has no such cost
      cell += strand.limits.size();
      continue;
    }
    Judged& judged = decision.judged.emplace_back();
    judged.policy = leg.policy;
    judged.first = static_cast<std::uint16_t>(list.charges.size());
    judged.strand = leg.strand;
    judged.counter = strand.counter;
    judged.enforced = working.enforced && leg.enforced != 0;
    judged.soft = working.soft || !judged.enforced;
    judged.parent = parent;
    const Nanos patience = judged.enforced ? working.patience : Nanos{0};
    if (patience > list.patience) list.patience = patience;
    const Units stated = amount.exact < 0     ? 0
                         : working.scale == 1 ? amount.whole
                                              : units_of(amount.exact, working.scale);
    const Units units = std::max(stated, least);

    const auto charge = [&](const WorkingLimit& limit, const base::Hash128& key) {
      if (parent && list.charges_to(key)) return true;  // the parent's cell is the check's own
      if (list.charges.full()) return false;
      // Fields are assigned in place: building the struct elsewhere and copying it stalls store forwarding.
      Charge& added = list.charges.emplace_back();
      added.key = key;
      added.limit = &limit.numbers->live;
      added.cost = units;
      added.soft = judged.soft;
      added.counted = false;
      added.patience = patience;
      added.leased = working.leased;
      list.limits.emplace_back() = &limit;
      if (added.limit->strategy() == Strategy::kConcurrency) [[unlikely]] {
        list.holds_slots = true;
        if (working.scale != 1) added.cost = 1;
      }
      return true;
    };
    if (overridden && working.tiered) {
      judged.own = state.own_limit(fields.text(Dimension::kAgent), *working.policy->tier);
    }
    if (judged.own != nullptr) {
      if (!charge(*judged.own, key_hash(working, judged.own->salt, fields, store_.hasher()))) return false;
      cell += strand.limits.size();
    } else {
      for (const WorkingLimit& limit : strand.limits) {
        if (!charge(limit, *cell++)) return false;
      }
    }
    judged.count = static_cast<std::uint16_t>(list.charges.size() - judged.first);
    if (parent && judged.count == 0) decision.judged.pop_back();
  }
  return true;
}

}  // namespace headgate::engine
