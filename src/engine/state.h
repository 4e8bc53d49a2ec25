// Everything a check reads besides cells: immutable, replaced whole.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/strings/string_view.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
// By name: who is trusted with more is compared in full.
using OverrideTable = absl::flat_hash_map<std::string, AgentLimits>;
struct ExemptTable {
  absl::flat_hash_set<std::string> agents;
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
  [[nodiscard]] const WorkingLimit* own_limit(std::string_view agent, policy::Tier tier) const noexcept {
    const auto found = overrides->find(absl::string_view(agent.data(), agent.size()));
    if (found == overrides->end()) return nullptr;
    const std::optional<WorkingLimit>& own = found->second.tiers[static_cast<std::size_t>(tier)];
    return own ? &*own : nullptr;
  }
  // Most who are not are told apart at once, before their name is looked for.
  [[nodiscard]] bool may_be_exempt(std::string_view agent) const noexcept {
    return !agent.empty() && (exempt->hints & base::hint_of(agent)) != 0;
  }
  [[nodiscard]] bool is_exempt(std::string_view agent) const noexcept {
    return exempt->agents.contains(absl::string_view(agent.data(), agent.size()));
  }
};

}  // namespace headgate::engine
