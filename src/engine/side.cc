#include "engine/side.h"

#include <cassert>

namespace headgate::engine {
namespace {

// The same for a key on every node and after every restart, unlike its hash.
std::uint64_t stable_hash(const policy::Policy& policy, const policy::Fields& fields) noexcept {
  std::uint64_t hash = base::hash128(policy.id, 0).low;
  for (const policy::KeyPart& part : policy.key) {
    if (part.dimension != policy::Dimension::kAttribute) {
      hash = base::hash128(fields.text(part.dimension), hash).low;
    } else if (const Value* value = fields.attribute(part.attribute)) {
      hash = base::hash128(policy::ValueText(*value).view(), hash).low;
    }
  }
  return hash;
}

}  // namespace

Side split_side(const WorkingPolicy& working, const policy::Fields& fields) noexcept {
  assert(working.split);
  constexpr std::uint64_t kWhole = 1'000'000;
  const std::uint64_t hash = stable_hash(*working.policy, fields);
  Side side;
  side.enforced = hash % kWhole < working.enforced_share;
  if (working.strands.size() > 1) {
    const auto pick = static_cast<std::uint32_t>((hash >> 32) % working.strands.back().share_end);
    while (working.strands[side.strand].share_end <= pick) ++side.strand;
  }
  return side;
}

}  // namespace headgate::engine
