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

// A window has counted what happened in it, and other numbers do not change what did. A bucket is as full as it is.
OnChange on_change(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket:
    case Strategy::kGcra: return OnChange::kKeepFraction;
    default: return OnChange::kKeepUnits;
  }
}

std::uint16_t unit_index(std::vector<std::string>& units, const std::string& unit) {
  const auto found = std::find(units.begin(), units.end(), unit);
  if (found != units.end()) return static_cast<std::uint16_t>(found - units.begin());
  units.push_back(unit);
  return static_cast<std::uint16_t>(units.size() - 1);
}

}  // namespace

std::shared_ptr<LiveNumbers> LimitBook::numbers(const std::string& identity, const Limit& limit) {
  std::weak_ptr<LiveNumbers>& known = limits_[identity];
  std::shared_ptr<LiveNumbers> numbers = known.lock();
  if (numbers == nullptr) {
    numbers = std::make_shared<LiveNumbers>(limit);
    known = numbers;
  }
  return numbers;
}

WorkingLimit LimitBook::limit(const std::string& identity, const Limit& base, std::uint64_t seed, double factor,
                              Changes& changes) {
  const Limit stands = scaled(base, factor);
  WorkingLimit limit{numbers(identity, stands), base::hash128(identity, seed), 1, nullptr, base};
  if (share_ > 0) limit.local = numbers(identity + "\nlocal", share_of(stands, share_));
  scale(limit, factor, changes);
  return limit;
}

void LimitBook::scale(const WorkingLimit& limit, double factor, Changes& changes) const {
  const auto change = [&](LiveNumbers& numbers, Limit wanted) {
    if (!(numbers.stands == wanted)) changes.emplace_back(&numbers, std::move(wanted));
  };
  const Limit stands = scaled(limit.base, factor);
  change(*limit.numbers, stands);
  if (limit.local != nullptr) change(*limit.local, share_of(stands, share_));
}

void LimitBook::scale(const Ruleset& rules, const Factors& factors, Changes& changes) const {
  for (const WorkingPolicy& working : rules.policies) {
    if (!scales(*working.policy) && share_ == 0) continue;
    for (const Strand& strand : working.strands) {
      for (const WorkingLimit& limit : strand.limits) scale(limit, factors.of(*working.policy), changes);
    }
  }
}

void LimitBook::apply(const Changes& changes, std::optional<OnChange> how) {
  std::vector<store::MemoryStore::Change> of_store;
  for (const auto& [numbers, limit] : changes) {
    numbers->stands = limit;
    of_store.push_back({&numbers->live, core::compile(limit), how.value_or(on_change(limit.strategy()))});
  }
  store_.change(of_store);
}

void LimitBook::equip(Ruleset& rules, std::uint64_t seed, const Factors& factors, Changes& changes) {
  const bool strict = rules.rules.document().enforcement == policy::Enforcement::kStrict;
  rules.units.emplace_back("requests");
  for (const policy::Policy& policy : rules.rules.policies()) {
    WorkingPolicy& working = rules.policies.emplace_back();
    working.policy = &policy;
    working.warn_at = policy.warn_at;
    working.tiered = policy.tier.has_value();
    working.unit = unit_index(rules.units, policy.unit);
    const bool gentle = policy.action == policy::Action::kWarn || policy.action == policy::Action::kLog;
    working.soft = gentle && !strict;
    const bool throttles = policy.action == policy::Action::kThrottle && !strict;
    working.patience = throttles ? policy.max_wait : Nanos{0};
    working.enforced = policy.mode == policy::Mode::kEnforce;
    working.leased = policy.consistency == policy::Consistency::kLeased;
    unsigned shift = 0;
    for (const policy::KeyPart& part : policy.key) {
      working.attributes = working.attributes || part.dimension == policy::Dimension::kAttribute;
      if (shift < 64) working.key |= (static_cast<std::uint64_t>(part.dimension) + 1) << shift;
      shift += 4;
    }
    working.enforced_share = static_cast<std::uint32_t>(std::lround(policy.rollout * 1e6));
    working.split = policy.rollout < 1 || !policy.variants.empty();
    const auto add_strand = [&](const std::string& variant, std::uint32_t weight, const std::vector<Limit>& limits) {
      Strand strand;
      strand.variant = variant;
      strand.share_end = (working.strands.empty() ? 0 : working.strands.back().share_end) + weight;
      strand.counter = counters_.id_of(variant.empty() ? policy.id : policy.id + "/" + variant);
      std::array<int, kStrategyCount> seen{};
      for (const Limit& each : limits) {
        const int nth = seen[static_cast<std::size_t>(each.strategy())]++;
        strand.limits.push_back(
            limit(identity_of(policy, variant, each, nth), each, seed, factors.of(policy), changes));
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
    working.scale = static_cast<double>(policy::cell_scale(policy));
    working.least = policy.least_cost;
  }
  std::erase_if(limits_, [](const auto& entry) { return entry.second.expired(); });
}

}  // namespace headgate::engine
