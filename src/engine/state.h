// Everything a check reads besides cells: immutable, replaced whole.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <array>
#include <memory>
#include <optional>

#include "base/same_text.h"
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
  std::uint64_t hints = 0;  // of their names
};

struct State {
  std::uint64_t number = 0;  // no other state has it
  std::shared_ptr<const Ruleset> rules;
  std::shared_ptr<const OverrideTable> overrides;
  std::shared_ptr<const ExemptTable> exempt;
  policy::Surroundings surroundings;
  Factors factors;             // at which adaptive limits stand
  double throttle_factor = 1;  // the pace at which commands are to run

  // The agent's own limit for the tier; nullptr: it has none.
  [[nodiscard]] const WorkingLimit* own_limit(const base::Hash128& agent, policy::Tier tier) const noexcept {
    const auto found = overrides->find(agent);
    if (found == overrides->end()) return nullptr;
    const std::optional<WorkingLimit>& own = found->second.tiers[static_cast<std::size_t>(tier)];
    return own ? &*own : nullptr;
  }
  // Most who are not are told apart at once, before their name is hashed.
  [[nodiscard]] bool may_be_exempt(std::string_view agent) const noexcept {
    return !agent.empty() && (exempt->hints & base::hint_of(agent)) != 0;
  }
  [[nodiscard]] bool is_exempt(const base::Hash128& agent) const noexcept { return exempt->agents.contains(agent); }
};

}  // namespace headgate::engine
