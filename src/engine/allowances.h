// Limits that a check brings along besides the policies that match it: judged and charged with them, all or nothing.
#pragma once

#include "base/bounded_array.h"
#include "engine/ruleset.h"
#include "store/memory/cell.h"

namespace headgate {

struct Allowances {
  static constexpr std::size_t kMost = 4;
  struct One {
    const engine::WorkingLimit* limit = nullptr;  // of Engine::allowance_limit()
    base::Hash128 cell;                           // of Engine::allowance_cell(); the same one whatever the numbers
  };
  base::BoundedArray<One, kMost> all;

  // One of several cells of the same names. They lie side by side, so that a check takes one lock for all of them.
  [[nodiscard]] static base::Hash128 cell(const base::Hash128& names, std::uint64_t which) noexcept {
    return {names.low, names.high ^ (which << store::Tag::kHashShift)};
  }
  policy::OnStoreFailure on_store_failure = policy::OnStoreFailure::kLocal;
};

}  // namespace headgate
