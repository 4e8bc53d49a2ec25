// The numbers of tiers as JSON: {"light": {"capacity": 120, "refill_per_minute": 120}}, any subset of tiers.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "policy/model.h"
#include "service/json.h"

namespace headgate::service {

inline constexpr std::array<std::string_view, policy::kTierCount> kTierNames{"light", "normal", "heavy"};
using TierOverrides = std::array<std::optional<policy::TierLimit>, policy::kTierCount>;

[[nodiscard]] Json tier_json(const TierOverrides& tiers);
// nullopt: it is not what tier_json() writes.
[[nodiscard]] std::optional<TierOverrides> tiers_of_json(const std::string& text);

}  // namespace headgate::service
