// Everything a check reads besides cells: immutable, replaced whole.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <array>
#include <memory>
#include <optional>

#include "engine/ruleset.h"

namespace headgate::engine {

struct HashOfHash {
  std::size_t operator()(const base::Hash128& hash) const noexcept { return hash.low; }
};

// Limits of one agent that stand in for the built-in ones of its tiers.
struct AgentLimits {
  std::array<std::optional<WorkingLimit>, policy::kTierCount> tiers;
};
using OverrideTable = absl::flat_hash_map<base::Hash128, AgentLimits, HashOfHash>;
using ExemptTable = absl::flat_hash_set<base::Hash128, HashOfHash>;

struct State {
  std::shared_ptr<const Ruleset> rules;
  std::shared_ptr<const OverrideTable> overrides;
  std::shared_ptr<const ExemptTable> exempt;
  policy::Surroundings surroundings;
  double factor = 1;  // at which adaptive limits stand
};

}  // namespace headgate::engine
