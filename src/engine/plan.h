// What one check would charge, in the order of the policies that ask for it.
#pragma once

#include <algorithm>
#include <span>

#include "base/bounded_array.h"
#include "engine/engine.h"

namespace headgate::engine {

// To whose share of the cells the new cells of a check count: the owner that the check states, else its agent, else its
// address. The user does not count: a caller without an agent could name another user with each check.
[[nodiscard]] inline std::string_view owner_of(const Check& check) noexcept {
  if (!check.owner.empty()) return check.owner;
  if (!check.agent.empty()) return check.agent;
  return check.ip.empty() ? std::string_view("(unidentified)") : check.ip;
}

struct Engine::Plan {
  base::BoundedArray<store::Charge, store::kMaxCharges> charges;
  base::BoundedArray<const WorkingLimit*, store::kMaxCharges> limits;  // beside charges
  Nanos patience{0};                                                   // the most that any charge may be waited for
  policy::OnStoreFailure of_allowances = policy::OnStoreFailure::kLocal;
  bool holds_slots = false;
  bool as_stated = false;         // costs count as the check states them, whatever a policy's least_cost is
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
