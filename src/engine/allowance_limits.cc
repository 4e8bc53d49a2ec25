#include "engine/allowance_limits.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "base/bounded_array.h"

namespace headgate::engine {

const WorkingLimit* AllowanceLimits::limit(const Limit& limit) {
  return controls_.lasting_limit("allowance\n" + limit.describe(), limit);
}

base::Hash128 AllowanceLimits::cell(std::span<const std::string_view> names) const noexcept {
  // Apart from the cells of policies and of CL.THROTTLE.
  base::Hash128 cell{0x48656164676174D6u, 0x416C6C6F77616E63u};
  for (const std::string_view name : names) cell = base::mix(cell, cells_.hasher()(name));
  return cell;
}

void AllowanceLimits::look_at(std::span<const Allowances::One> allowances, std::span<core::Outcome> outcomes) {
  const Nanos now = clock_.now();
  const store::Ask ask{now, clock_.wall(now), store::Effect::kNone};
  base::BoundedArray<store::Charge, store::kMaxCharges> charges;
  for (std::size_t begin = 0; begin < allowances.size(); begin += charges.size()) {
    charges.grow_to(0);
    for (std::size_t i = begin; i < allowances.size() && !charges.full(); ++i) {
      store::Charge& charge = charges.emplace_back();
      charge.key = allowances[i].cell;
      charge.limit = &allowances[i].limit->numbers->live;
    }
    (void)cells_.apply_or_stand_in({charges.data(), charges.size()}, ask, outcomes.subspan(begin, charges.size()));
  }
}

void AllowanceLimits::look_at(std::span<const Allowances::One> allowances, Looked done) {
  struct Looking {
    std::vector<store::Charge> charges;
    std::vector<core::Outcome> outcomes;
    std::atomic<std::size_t> left{0};
    Looked done;
  };
  auto looking = std::make_shared<Looking>();
  looking->outcomes.resize(allowances.size());
  if (!cells_.has_remote()) {
    look_at(allowances, looking->outcomes);
    return done(looking->outcomes);
  }
  looking->done = std::move(done);
  for (const Allowances::One& each : allowances) {
    store::Charge& charge = looking->charges.emplace_back();
    charge.key = each.cell;
    charge.limit = &each.limit->numbers->live;
  }
  const Nanos now = clock_.now();
  const store::Ask ask{now, clock_.wall(now), store::Effect::kNone};
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
    cells_.remote()->apply(
        charges, ask, outcomes,
        [this, looking, charges, outcomes, ask, end_part](const Result<store::RemoteStore::Answer>& answer) {
          if (!answer) (void)cells_.memory().apply(charges, ask, outcomes);
          end_part(*looking);
        });
  }
  end_part(*looking);
}

bool AllowanceLimits::raise_to(const Allowances::One& allowance, Units used) {
  core::Outcome outcome;
  store::Charge charge;
  charge.key = allowance.cell;
  charge.limit = &allowance.limit->numbers->live;
  const Nanos now = clock_.now();
  store::Ask ask{now, clock_.wall(now), store::Effect::kNone};
  if (!cells_.apply({&charge, 1}, ask, {&outcome, 1})) return false;
  charge.cost = std::min(used - (outcome.limit - outcome.remaining), outcome.remaining);
  if (charge.cost <= 0) return true;
  ask.effect = store::Effect::kCharge;
  return cells_.apply({&charge, 1}, ask, {&outcome, 1}).has_value();
}

}  // namespace headgate::engine
