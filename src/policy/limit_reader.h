// Reads limits: a mapping with a strategy, the short form 50/60s, a list of these, or `unlimited`.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "policy/scope.h"

namespace headgate::policy {

inline constexpr std::size_t kMaxLimits = 8;  // of one policy

// Numbers are multiplied by `scale` (see unit_scale), but for the slots of a concurrency limit. Empty: unlimited.
// Null: something was wrong, and has been reported.
std::optional<std::vector<Limit>> read_limits(const Scope& scope, const Node& node, Units scale);

// How another shape spells a parameter of ours.
struct Spelling {
  std::string_view ours;
  std::string_view theirs;
};

// One limit whose parameters stand in `node` under the given spellings (ours where none is given), among other keys.
std::optional<Limit> read_parameters(const Scope& scope, const Node& node, Strategy strategy, Units scale,
                                     std::span<const Spelling> spellings);

// The parameters that a strategy takes, as we spell them.
[[nodiscard]] std::vector<std::string> parameters_of(Strategy strategy);
// Those that any strategy takes: all that can be said where the strategy itself is wrong.
[[nodiscard]] std::vector<std::string> parameters_of_any();

}  // namespace headgate::policy
