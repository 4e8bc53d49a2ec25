#include "engine/ruleset.h"

#include <algorithm>
#include <cmath>

#include "engine/scaled_limit.h"
#include "store/memory/memory_store.h"

namespace headgate::engine {
namespace {

std::string identity_of(const policy::Policy& policy, const std::string& variant, const Limit& limit, int nth) {
  std::string identity = policy.id + '\n' + variant + '\n' + to_string(limit.strategy()) + std::to_string(nth) + '\n';
  for (const policy::KeyPart& part : policy.key) {
    identity += policy::to_string(part.dimension);
    identity += ':' + part.attribute + '\n';
  }
  identity += policy.unit;
  // Another calendar counts something else.
  if (limit.strategy() == Strategy::kQuota)
    identity += std::string("\n") + to_string(limit.period()) + limit.timezone();
  return identity;
}

std::uint16_t unit_index(std::vector<std::string>& units, const std::string& unit) {
  const auto found = std::find(units.begin(), units.end(), unit);
  if (found != units.end()) return static_cast<std::uint16_t>(found - units.begin());
  units.push_back(unit);
  return static_cast<std::uint16_t>(units.size() - 1);
}

}  // namespace

void LimitBook::set(LiveNumbers& numbers, const Limit& limit) {
  if (numbers.stands == limit) return;
  numbers.stands = limit;
  store_.change(numbers.live, core::compile(limit), OnChange::kKeepFraction);
}

WorkingLimit LimitBook::limit(const std::string& identity, const Limit& base, std::uint64_t seed, double factor) {
  const std::lock_guard guard(mutex_);
  std::weak_ptr<LiveNumbers>& known = limits_[identity];
  std::shared_ptr<LiveNumbers> numbers = known.lock();
  if (numbers == nullptr) {
    numbers = std::make_shared<LiveNumbers>(scaled(base, factor));
    known = numbers;
  }
  return {.numbers = std::move(numbers), .salt = base::hash128(identity, seed), .base = base};
}

std::shared_ptr<const Ruleset> LimitBook::make(policy::Document document, std::uint64_t seed, double factor) {
  const bool strict = document.enforcement == policy::Enforcement::kStrict;
  auto ruleset = std::make_shared<Ruleset>(std::move(document), seed);
  ruleset->units.emplace_back("requests");
  for (const policy::Policy& policy : ruleset->rules.policies()) {
    WorkingPolicy& working = ruleset->policies.emplace_back();
    working.policy = &policy;
    working.unit = unit_index(ruleset->units, policy.unit);
    const bool gentle = policy.action == policy::Action::kWarn || policy.action == policy::Action::kLog;
    working.soft = gentle && !strict;
    working.throttles = policy.action == policy::Action::kThrottle && !strict;
    working.enforced_share = static_cast<std::uint32_t>(std::lround(policy.rollout * 1e6));
    working.split = policy.rollout < 1 || !policy.variants.empty();
    bool slots_only = !policy.limits.empty();
    const auto add_strand = [&](const std::string& variant, std::uint32_t weight, const std::vector<Limit>& limits) {
      Strand strand;
      strand.variant = variant;
      strand.share_end = (working.strands.empty() ? 0 : working.strands.back().share_end) + weight;
      strand.counter = counters_.id_of(variant.empty() ? policy.id : policy.id + "/" + variant);
      std::array<int, kStrategyCount> seen{};
      for (const Limit& each : limits) {
        const int nth = seen[static_cast<std::size_t>(each.strategy())]++;
        slots_only = slots_only && each.strategy() == Strategy::kConcurrency;
        strand.limits.push_back(
            limit(identity_of(policy, variant, each, nth), each, seed, policy.adaptive ? factor : 1));
        if (each.strategy() != Strategy::kConcurrency) {
          strand.limits.back().unit = 1 / static_cast<double>(policy::unit_scale(policy.unit));
        }
      }
      working.strands.push_back(std::move(strand));
    };
    if (policy.variants.empty()) {
      add_strand({}, 1, policy.limits);
    } else {
      for (const policy::Variant& variant : policy.variants) add_strand(variant.name, variant.weight, variant.limits);
    }
    working.scale = slots_only ? 1 : static_cast<double>(policy::unit_scale(policy.unit));
  }
  const std::lock_guard guard(mutex_);
  std::erase_if(limits_, [](const auto& entry) { return entry.second.expired(); });
  return ruleset;
}

void LimitBook::scale(const WorkingLimit& limit, double factor) {
  const std::lock_guard guard(mutex_);
  set(*limit.numbers, scaled(limit.base, factor));
}

void LimitBook::scale(const Ruleset& rules, double factor) {
  for (const WorkingPolicy& working : rules.policies) {
    for (const Strand& strand : working.strands) {
      for (const WorkingLimit& limit : strand.limits) scale(limit, working.policy->adaptive ? factor : 1);
    }
  }
}

}  // namespace headgate::engine
