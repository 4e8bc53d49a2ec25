// Limits that a check brings along besides the policies that match it: judged and charged with them, all or nothing.
#pragma once

#include "base/bounded_array.h"
#include "engine/ruleset.h"

namespace headgate {

struct Allowances {
  static constexpr std::size_t kMost = 4;
  struct One {
    const engine::WorkingLimit* limit = nullptr;  // of Engine::allowance_limit()
    base::Hash128 cell;                           // of Engine::allowance_cell(); the same one whatever the numbers
  };
  base::BoundedArray<One, kMost> all;
  policy::OnStoreFailure on_store_failure = policy::OnStoreFailure::kLocal;
};

}  // namespace headgate
