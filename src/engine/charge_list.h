// What one check is to be charged: the charges that the store gets, in the order of the policies that make them.
#pragma once

#include <algorithm>
#include <span>

#include "base/bounded_array.h"
#include "engine/ruleset.h"
#include "store/charge.h"

namespace headgate::engine {

struct ChargeList {
  base::BoundedArray<store::Charge, store::kMaxCharges> charges;
  base::BoundedArray<const WorkingLimit*, store::kMaxCharges> limits;  // beside charges
  Nanos patience{0};                                                   // the most that any charge may be waited for
  policy::OnStoreFailure of_allowances = policy::OnStoreFailure::kLocal;
  bool holds_slots = false;
  bool as_stated = false;         // costs count as the check states them, whatever a policy's least_cost is
  bool holds = false;             // something, under a lease
  std::int32_t line_judged = -1;  // the policy and the charge at which other checks wait; -1: none does
  std::int32_t line_charge = -1;
  store::Ask ask;

  [[nodiscard]] bool charges_to(const base::Hash128& cell) const noexcept {
    return std::any_of(charges.begin(), charges.end(), [&](const store::Charge& each) { return each.key == cell; });
  }
  [[nodiscard]] std::span<const store::Charge> all() const noexcept { return {charges.data(), charges.size()}; }
};

}  // namespace headgate::engine
