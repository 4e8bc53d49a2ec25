// What one check would charge, in the order of the policies that ask for it.
#pragma once

#include <algorithm>
#include <span>

#include "base/bounded_array.h"
#include "engine/engine.h"

namespace headgate::engine {

struct Engine::Plan {
  base::BoundedArray<store::Charge, store::kMaxCharges> charges;
  base::BoundedArray<const WorkingLimit*, store::kMaxCharges> limits;  // beside charges
  Nanos patience{0};                                                   // the most that any charge may be waited for
  policy::OnStoreFailure of_allowances = policy::OnStoreFailure::kLocal;
  bool holds_slots = false;
  bool holds = false;             // something, under a lease
  std::int32_t line_judged = -1;  // the policy and the charge at which others wait already; -1: nobody does
  std::int32_t line_charge = -1;
  store::Ask ask;

  [[nodiscard]] bool charges_to(const base::Hash128& cell) const noexcept {
    return std::any_of(charges.begin(), charges.end(), [&](const store::Charge& each) { return each.key == cell; });
  }
  [[nodiscard]] std::span<const store::Charge> all() const noexcept { return {charges.data(), charges.size()}; }
};

}  // namespace headgate::engine
