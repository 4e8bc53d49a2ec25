#include "service/tier_json.h"

#include <nlohmann/json.hpp>

namespace headgate::service {

Json tier_json(const TierOverrides& tiers) {
  Json json = Json::object();
  for (std::size_t t = 0; t < kTierNames.size(); ++t) {
    if (!tiers[t]) continue;
    json[std::string(kTierNames[t])] = {{"capacity", tiers[t]->capacity},
                                        {"refill_per_minute", tiers[t]->refill_per_minute}};
  }
  return json;
}

std::optional<TierOverrides> tiers_of_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  TierOverrides tiers;
  for (std::size_t t = 0; t < kTierNames.size(); ++t) {
    const auto tier = json.find(kTierNames[t]);
    if (tier == json.end()) continue;
    const Json capacity = tier->value("capacity", Json());
    const Json refill = tier->value("refill_per_minute", Json());
    if (!capacity.is_number_integer() || !refill.is_number_integer()) return std::nullopt;
    tiers[t] = policy::TierLimit{capacity.get<Units>(), refill.get<Units>()};
  }
  return tiers;
}

}  // namespace headgate::service
