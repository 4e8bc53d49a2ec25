#include "policy/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <unordered_set>

#include "base/same_text.h"

namespace headgate::policy {
namespace {

constexpr std::uint64_t kEverything = 1;  // the feature of policies that any check might match
constexpr std::size_t kMostPairs = 256;

constexpr std::uint64_t spread(std::uint64_t x) noexcept { return (x + 1) * 0x9E3779B97F4A7C15U; }
constexpr std::uint64_t whole_feature(Dimension dimension, std::uint64_t hash) noexcept {
  return hash ^ spread(static_cast<std::uint64_t>(dimension));
}
constexpr std::uint64_t prefix_feature(Dimension dimension, std::uint64_t hash) noexcept {
  return hash ^ spread(64 + static_cast<std::uint64_t>(dimension));
}
constexpr std::uint64_t pair_feature(std::uint64_t agent, std::uint64_t operation) noexcept {
  return std::rotl(agent, 17) ^ operation ^ spread(200);
}
constexpr std::uint64_t attribute_feature(std::uint64_t name, std::uint64_t value) noexcept {
  return std::rotl(name, 29) ^ value ^ spread(300);
}
constexpr std::uint64_t letter_hint(char letter) noexcept {
  return std::uint64_t{1} << (static_cast<unsigned char>(letter) & 63U);
}
// Zero marks a free slot.
constexpr std::uint64_t never_zero(std::uint64_t feature) noexcept { return feature == 0 ? 2 : feature; }

const Patterns& patterns_of(const Match& match, Dimension dimension) {
  static const Patterns kNone;
  switch (dimension) {
    case Dimension::kAgent: return match.agents;
    case Dimension::kSession: return match.sessions;
    case Dimension::kUser: return match.users;
    case Dimension::kTenant: return match.tenants;
    case Dimension::kPlan: return match.plans;
    case Dimension::kOperation: return match.operations;
    case Dimension::kTier: return match.tiers;
    case Dimension::kChannel: return match.channels;
    case Dimension::kContext: return match.contexts;
    case Dimension::kResource: return match.resources;
    case Dimension::kIp: return match.ips;
    case Dimension::kAttribute: break;
  }
  return kNone;
}

// The most telling fields first: a check that does not match is found out soon.
constexpr std::array kFieldOrder{Dimension::kOperation, Dimension::kAgent,    Dimension::kContext, Dimension::kTier,
                                 Dimension::kChannel,   Dimension::kUser,     Dimension::kTenant,  Dimension::kPlan,
                                 Dimension::kSession,   Dimension::kResource, Dimension::kIp};

const Value* first_of(const std::vector<std::string>& names, const Fields& fields) noexcept {
  for (const std::string& name : names) {
    if (const Value* value = fields.attribute(name)) return value;
  }
  return nullptr;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

}  // namespace

void Matched::insert(std::uint32_t policy) noexcept {
  std::uint32_t at = size_;
  while (at > 0 && policies_[at - 1] >= policy) {
    if (policies_[--at] == policy) return;
  }
  if (size_ == kMost) {
    overflow_ = true;
    return;
  }
  std::copy_backward(policies_.begin() + at, policies_.begin() + size_, policies_.begin() + size_ + 1);
  policies_[at] = policy;
  ++size_;
}

Rules::Rules(Document document, std::uint64_t seed) : document_(std::move(document)), hasher_(seed) {
  std::vector<Policy>& policies = document_.policies;
  if (document_.tier_limits_apply()) {
    std::unordered_set<std::string> ids;
    for (const Policy& policy : policies) ids.insert(policy.id);
    for (Policy& policy : tier_policies(document_.tiers)) {
      if (!ids.contains(policy.id)) policies.push_back(std::move(policy));
    }
  }
  for (Policy& policy : policies) {
    if (document_.mode == Mode::kOff || (document_.mode == Mode::kMonitor && policy.mode == Mode::kEnforce)) {
      policy.mode = document_.mode;
    }
  }
  if (document_.enforcement == Enforcement::kStrict) {
    for (Policy& policy : policies) {
      for (Limit& limit : policy.limits) limit = limit.without_burst();
      for (Variant& variant : policy.variants) {
        for (Limit& limit : variant.limits) limit = limit.without_burst();
      }
    }
  }
  std::stable_sort(policies.begin(), policies.end(),
                   [](const Policy& a, const Policy& b) { return a.priority < b.priority; });
  for (int tier = 0; tier < kTierCount; ++tier) {
    tier_operations_[tier] = PatternSet(document_.tiers.operations[tier]);
  }
  compile_conditions();
  build_index();
}

void Rules::compile_conditions() {
  for (const Policy& policy : policies()) {
    Conditions& conditions = conditions_.emplace_back();
    for (const Dimension dimension : kFieldOrder) {
      PatternSet patterns(patterns_of(policy.match, dimension));
      const bool everything = dimension == Dimension::kOperation && patterns.matches_all();
      if (!patterns.empty() && !everything) conditions.fields.push_back({dimension, std::move(patterns)});
    }
    for (const AttributeRule& rule : policy.match.attributes) {
      conditions.attributes.push_back({&rule, PatternSet(rule.patterns)});
    }
    for (const control::LoadLevel level : policy.match.system_load) {
      conditions.load_levels |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(level));
    }
    if (policy.match.emergency) conditions.emergency = *policy.match.emergency ? 1 : 0;
    conditions.unidentified = policy.match.unidentified;
    conditions.missing_matches = policy.missing == Missing::kMatch;
    conditions.only_fields = conditions.attributes.empty() && conditions.load_levels == 0 && conditions.emergency < 0 &&
                             !conditions.unidentified;
    for (const FieldRule& rule : conditions.fields) looks_at_.dimensions |= bit_of(rule.dimension);
    for (const KeyPart& part : policy.key) {
      looks_at_.dimensions |= bit_of(part.dimension);
      if (part.dimension == Dimension::kAttribute) looks_at_.attributes |= base::hint_of(part.attribute);
    }
    for (const AttributeCondition& condition : conditions.attributes) {
      looks_at_.dimensions |= bit_of(Dimension::kAttribute);
      for (const std::string& name : condition.rule->names) looks_at_.attributes |= base::hint_of(name);
    }
    if (conditions.unidentified) looks_at_.dimensions |= bit_of(Dimension::kAgent);
  }
}

Rules::Classified Rules::classify(std::string_view operation) const noexcept {
  for (const Tier tier : {Tier::kHeavy, Tier::kLight, Tier::kNormal}) {
    const PatternSet& operations = tier_operations_[static_cast<std::size_t>(tier)];
    if (!operations.empty() && operations.matches(operation)) return {tier, true};
  }
  return {};
}

inline bool Rules::holds(const FieldRule& rule, bool missing_matches, const Fields& fields) const noexcept {
  const std::string_view text = fields.text(rule.dimension);
  if (!text.empty()) return rule.patterns.matches(text);
  // A check without an agent matches no named agent.
  return missing_matches && (rule.dimension != Dimension::kAgent || rule.patterns.has_star());
}

bool Rules::holds(const AttributeCondition& condition, bool missing_matches, const Fields& fields) noexcept {
  const AttributeRule& rule = *condition.rule;
  const Value* value = first_of(rule.names, fields);
  if (rule.kind == AttributeRule::Kind::kAbsent) return value == nullptr;
  if (value == nullptr) return missing_matches;
  switch (rule.kind) {
    case AttributeRule::Kind::kRange: {
      const std::optional<double> number = number_of(*value);
      return number && (!rule.min || *number >= *rule.min) && (!rule.max || *number <= *rule.max);
    }
    case AttributeRule::Kind::kBoolean: return ValueText(*value).view() == (rule.boolean ? "true" : "false");
    default: return condition.patterns.matches(ValueText(*value).view());
  }
}

inline bool Rules::matches(std::uint32_t policy, const Fields& fields,
                           const Surroundings& surroundings) const noexcept {
  const Conditions& conditions = conditions_[policy];
  for (const FieldRule& rule : conditions.fields) {
    if (!holds(rule, conditions.missing_matches, fields)) return false;
  }
  if (conditions.only_fields) return true;
  if (conditions.load_levels != 0 && (conditions.load_levels >> static_cast<unsigned>(surroundings.load) & 1U) == 0) {
    return false;
  }
  if (conditions.emergency >= 0 && (conditions.emergency != 0) != surroundings.emergency) return false;
  if (conditions.unidentified && fields.has(Dimension::kAgent)) return false;
  for (const AttributeCondition& condition : conditions.attributes) {
    if (!holds(condition, conditions.missing_matches, fields)) return false;
  }
  return true;
}

std::string Rules::why_not(std::size_t policy, const Fields& fields, const Surroundings& surroundings) const {
  const Policy& about = policies()[policy];
  const Conditions& conditions = conditions_[policy];
  if (about.mode == Mode::kOff) return "its mode is off";
  for (const FieldRule& rule : conditions.fields) {
    if (holds(rule, conditions.missing_matches, fields)) continue;
    const std::string name = to_string(rule.dimension);
    const std::string wanted = joined(patterns_of(about.match, rule.dimension));
    if (!fields.has(rule.dimension)) return fmt::format("the check has no {} (the policy wants {})", name, wanted);
    return fmt::format("{} \"{}\" is not among {}", name, fields.text(rule.dimension), wanted);
  }
  for (const AttributeCondition& condition : conditions.attributes) {
    if (holds(condition, conditions.missing_matches, fields)) continue;
    const AttributeRule& rule = *condition.rule;
    const std::string& name = rule.names.front();
    const Value* value = first_of(rule.names, fields);
    if (rule.kind == AttributeRule::Kind::kAbsent) return "the check has the attribute " + name;
    if (value == nullptr) return "the check has no attribute " + name + " (missing: skip)";
    const std::string came = fmt::format("attribute {} \"{}\" ", name, ValueText(*value).view());
    switch (rule.kind) {
      case AttributeRule::Kind::kRange: {
        std::string range;
        if (rule.min) range = fmt::format("at least {}", ValueText(Value(*rule.min)).view());
        if (rule.max) {
          range += fmt::format("{}at most {}", range.empty() ? "" : " and ", ValueText(Value(*rule.max)).view());
        }
        return fmt::format("{}is not {}", came, range);
      }
      case AttributeRule::Kind::kBoolean: return fmt::format("{}is not {}", came, rule.boolean);
      default: return fmt::format("{}is not among {}", came, joined(rule.patterns));
    }
  }
  if (conditions.unidentified && fields.has(Dimension::kAgent)) return "the check names its agent";
  if (conditions.emergency >= 0 && (conditions.emergency != 0) != surroundings.emergency) {
    return surroundings.emergency ? "the emergency throttle is on" : "the emergency throttle is off";
  }
  if (!matches(static_cast<std::uint32_t>(policy), fields, surroundings)) {
    return std::string("the system load is ") + control::to_string(surroundings.load);
  }
  return {};
}

std::vector<Rules::IndexEntry> Rules::index_entries_of(std::size_t policy) const {
  using Kind = Feature::Kind;
  const Conditions& conditions = conditions_[policy];
  std::vector<IndexEntry> entries;
  std::vector<PatternSet::Lead> agents;
  std::vector<PatternSet::Lead> operations;
  for (const FieldRule& rule : conditions.fields) {
    const std::vector<PatternSet::Lead> leads = rule.patterns.leads();
    if (leads.empty()) continue;
    IndexEntry& entry = entries.emplace_back();
    for (const auto& [text, whole] : leads) {
      const std::uint64_t hash = hashed(text);
      entry.push_back(whole ? Feature{Kind::kWhole, rule.dimension, 0, whole_feature(rule.dimension, hash)}
                            : Feature{Kind::kPrefix, rule.dimension, static_cast<std::uint32_t>(text.size()),
                                      prefix_feature(rule.dimension, hash), letter_hint(text.front())});
    }
    // A field that is not there is filed as an empty one.
    if (conditions.missing_matches && rule.dimension != Dimension::kAgent) {
      entry.push_back({Kind::kWhole, rule.dimension, 0, whole_feature(rule.dimension, hashed({}))});
    }
    if (rule.dimension == Dimension::kAgent) agents = leads;
    if (rule.dimension == Dimension::kOperation) operations = leads;
  }
  const auto all_whole = [](const std::vector<PatternSet::Lead>& leads) {
    return !leads.empty() && std::all_of(leads.begin(), leads.end(), [](const auto& lead) { return lead.whole; });
  };
  if (all_whole(agents) && all_whole(operations) && agents.size() * operations.size() <= kMostPairs) {
    IndexEntry& entry = entries.emplace_back();
    for (const auto& agent : agents) {
      for (const auto& operation : operations) {
        entry.push_back({Kind::kPair, {}, 0, pair_feature(hashed(agent.text), hashed(operation.text))});
      }
    }
  }
  for (const AttributeCondition& condition : conditions.attributes) {
    const std::vector<PatternSet::Lead> leads = condition.patterns.leads();
    const bool listed = condition.rule->kind == AttributeRule::Kind::kAnyOf && all_whole(leads);
    if (conditions.missing_matches || !listed) continue;
    IndexEntry& entry = entries.emplace_back();
    for (const std::string& name : condition.rule->names) {
      for (const auto& lead : leads) {
        entry.push_back(
            {Kind::kAttribute, {}, 0, attribute_feature(hashed(name), hashed(lead.text)), base::hint_of(name)});
      }
    }
  }
  return entries;
}

void Rules::file(std::uint32_t policy, const IndexEntry& entry) {
  for (const Feature& feature : entry) {
    filed_[never_zero(feature.hash)].push_back(policy);
    switch (feature.kind) {
      case Feature::Kind::kEverything: break;
      case Feature::Kind::kWhole: indexed_dimensions_ |= 1U << static_cast<unsigned>(feature.dimension); break;
      case Feature::Kind::kPair: pairs_indexed_ = true; break;
      case Feature::Kind::kAttribute: attribute_hints_ |= feature.hint; break;
      case Feature::Kind::kPrefix: {
        auto& [letters, lengths] = prefixes_[static_cast<std::size_t>(feature.dimension)];
        prefixed_dimensions_ |= 1U << static_cast<unsigned>(feature.dimension);
        letters |= feature.hint;
        const auto at = std::lower_bound(lengths.begin(), lengths.end(), feature.length);
        if (at == lengths.end() || *at != feature.length) lengths.insert(at, feature.length);
        break;
      }
    }
  }
}

void Rules::build_index() {
  // How many policies could be filed under each feature; then each is filed where the worst crowd is least.
  std::unordered_map<std::uint64_t, std::uint32_t> crowd;
  std::vector<std::vector<IndexEntry>> entries;
  for (std::size_t i = 0; i < policies().size(); ++i) {
    entries.push_back(index_entries_of(i));
    for (const IndexEntry& entry : entries.back()) {
      for (const Feature& feature : entry) ++crowd[feature.hash];
    }
  }
  const IndexEntry anything{{Feature::Kind::kEverything, {}, 0, kEverything}};
  for (std::size_t i = 0; i < policies().size(); ++i) {
    if (policies()[i].mode == Mode::kOff) continue;
    const IndexEntry* best = &anything;
    std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
    for (const IndexEntry& entry : entries[i]) {
      std::uint32_t most = 0;
      for (const Feature& feature : entry) most = std::max(most, crowd[feature.hash]);
      if (most >= least) continue;
      least = most;
      best = &entry;
    }
    file(static_cast<std::uint32_t>(i), *best);
  }

  const auto post = [&](const std::vector<std::uint32_t>& filed) {
    const auto begin = static_cast<std::uint32_t>(postings_.size());
    postings_.insert(postings_.end(), filed.begin(), filed.end());
    return std::pair(begin, static_cast<std::uint32_t>(postings_.size()));
  };
  std::tie(everything_begin_, everything_end_) = post(filed_[kEverything]);
  filed_.erase(kEverything);
  slots_.resize(std::bit_ceil(std::max<std::size_t>(filed_.size() * 2, 2)));
  for (const auto& [feature, filed] : filed_) {
    std::size_t at = feature & (slots_.size() - 1);
    while (slots_[at].feature != 0) at = (at + 1) & (slots_.size() - 1);
    const auto [begin, end] = post(filed);
    slots_[at] = {feature, begin, end};
  }
  filed_ = {};
}

struct Rules::Lookup {
  const Fields& fields;
  const Surroundings& surroundings;
  Matched& matched;
};

inline void Rules::consider_all(std::uint32_t begin, std::uint32_t end, const Lookup& asked) const noexcept {
  for (std::uint32_t i = begin; i < end; ++i) {
    if (matches(postings_[i], asked.fields, asked.surroundings)) asked.matched.add(postings_[i]);
  }
}

[[gnu::always_inline]] inline void Rules::consider(std::uint64_t feature, const Lookup& asked) const noexcept {
  feature = never_zero(feature);
  for (std::size_t at = feature & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.feature == 0) return;
    if (slot.feature != feature) continue;
    consider_all(slot.begin, slot.end, asked);
    return;
  }
}

void Rules::match(Fields& fields, const Surroundings& surroundings, Matched& matched) const noexcept {
  const Lookup asked{fields, surroundings, matched};
  consider_all(everything_begin_, everything_end_, asked);
  if (pairs_indexed_) {
    consider(pair_feature(fields.hash(Dimension::kAgent).low, fields.hash(Dimension::kOperation).low), asked);
  }
  for (std::uint32_t rest = indexed_dimensions_; rest != 0; rest &= rest - 1) {
    const auto dimension = static_cast<Dimension>(std::countr_zero(rest));
    consider(whole_feature(dimension, fields.hash(dimension).low), asked);
  }
  for (std::uint32_t rest = prefixed_dimensions_; rest != 0; rest &= rest - 1) {
    const int d = std::countr_zero(rest);
    const auto dimension = static_cast<Dimension>(d);
    const std::string_view text = fields.text(dimension);
    const Prefixes& prefixes = prefixes_[static_cast<std::size_t>(d)];
    if (text.empty() || (prefixes.first_letters & letter_hint(text.front())) == 0) continue;
    for (const std::uint32_t length : prefixes.lengths) {
      if (length > text.size()) break;
      consider(prefix_feature(dimension, hashed(text.substr(0, length))), asked);
    }
  }
  if (attribute_hints_ == 0) return;
  for (const Attribute& attribute : fields.check().attributes) {
    if ((attribute_hints_ & base::hint_of(attribute.name)) == 0) continue;
    const std::uint64_t value = hashed(ValueText(attribute.value).view());
    consider(attribute_feature(hashed(attribute.name), value), asked);
  }
}

}  // namespace headgate::policy
