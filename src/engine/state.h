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
struct ExemptTable {
  absl::flat_hash_set<base::Hash128, HashOfHash> agents;
  std::uint64_t hints = 0;  // a bit for each of them, so that most others are told apart at once
  void insert(const base::Hash128& agent) {
    agents.insert(agent);
    hints |= std::uint64_t{1} << (agent.high & 63);
  }
};

struct State {
  std::shared_ptr<const Ruleset> rules;
  std::shared_ptr<const OverrideTable> overrides;
  std::shared_ptr<const ExemptTable> exempt;
  policy::Surroundings surroundings;
  double factor = 1;           // at which adaptive limits stand
  double throttle_factor = 1;  // the pace at which commands are to run

  // The agent's own limit for the tier; nullptr: it has none.
  [[nodiscard]] const WorkingLimit* own_limit(const base::Hash128& agent, policy::Tier tier) const noexcept {
    const auto found = overrides->find(agent);
    if (found == overrides->end()) return nullptr;
    const std::optional<WorkingLimit>& own = found->second.tiers[static_cast<std::size_t>(tier)];
    return own ? &*own : nullptr;
  }
  [[nodiscard]] bool is_exempt(const base::Hash128& agent) const noexcept {
    return (exempt->hints >> (agent.high & 63) & 1) != 0 && exempt->agents.contains(agent);
  }
};

}  // namespace headgate::engine
