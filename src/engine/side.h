// On which side of a policy's variants and rollout a check falls.
#pragma once

#include "engine/ruleset.h"
#include "policy/check_fields.h"

namespace headgate::engine {

struct Side {
  std::uint8_t strand = 0;
  bool enforced = true;
};

// REQUIRES: working.split.
[[nodiscard]] Side split_side(const WorkingPolicy& working, const policy::Fields& fields) noexcept;

// The same for a key on every node and after every restart.
[[nodiscard]] inline Side side_of(const WorkingPolicy& working, const policy::Fields& fields) noexcept {
  return working.split ? split_side(working, fields) : Side{};
}

}  // namespace headgate::engine
