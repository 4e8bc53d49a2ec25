#include "policy/match_reader.h"

#include <algorithm>
#include <array>

#include "base/suggest.h"
#include "base/utf8.h"
#include "policy/fields.h"
#include "policy/number.h"
#include "policy/pattern.h"

namespace headgate::policy {
namespace {

constexpr std::size_t kMaxScales = 32;
constexpr std::size_t kMaxKeyParts = 16;
constexpr std::size_t kMaxPatterns = 10'000;

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

bool is_pattern(const Scope& scope, const Node& node, std::string_view field) {
  std::string text;
  const std::string what = "each of " + std::string(field);
  if (!read_string(scope, &node, what, kMaxNameBytes, text)) return false;
  if (text != "!") return true;
  scope.problem(node, what + " must have something after the \"!\"");
  return false;
}

std::string listed(const Scales& scales) {
  std::string text;
  for (const auto& scale : scales) {
    text += text.empty() ? "[" : ", [";
    for (std::size_t i = 0; i < scale.size(); ++i) text += (i == 0 ? "" : ", ") + scale[i];
    text += "]";
  }
  return text;
}

// The levels admitted on every scale that has the word.
Patterns admitted(std::string_view word, Bound bound, const Scales& scales) {
  Patterns levels;
  for (const auto& scale : scales) {
    const auto at = std::find(scale.begin(), scale.end(), word);
    if (at == scale.end()) continue;
    const auto from = bound == Bound::kAtMost ? scale.begin() : at;
    const auto to = bound == Bound::kAtMost ? at + 1 : scale.end();
    for (auto level = from; level != to; ++level) {
      if (std::find(levels.begin(), levels.end(), *level) == levels.end()) levels.push_back(*level);
    }
  }
  return levels;
}

void read_range(const Scope& scope, const Node& node, const std::string& name, AttributeRule& rule) {
  const MapFields fields(scope, node, "the range of " + name, {"min", "max"});
  const auto number = [&](const char* key) -> std::optional<double> {
    const Node* value = fields.get(key);
    if (value == nullptr) return std::nullopt;
    const auto decimal = value->is_scalar() ? parse_decimal(value->text) : std::nullopt;
    if (decimal) return decimal->value();
    scope.problem(*value, name + "." + key + " must be a number, got " + shown(*value));
    return std::nullopt;
  };
  rule.kind = AttributeRule::Kind::kRange;
  rule.min = number("min");
  rule.max = number("max");
  if (fields.get("min") == nullptr && fields.get("max") == nullptr) {
    scope.problem(node, "the range of " + name + " must have min or max");
  } else if (rule.min && rule.max && *rule.min > *rule.max) {
    scope.problem(node, "the range of " + name + " must have min at most max, got " + fields.get("min")->text +
                            " and " + fields.get("max")->text);
  }
}

bool is_attribute_name(const Scope& scope, const Entry& entry) {
  if (!entry.key.empty() && entry.key.size() <= kMaxNameBytes && base::find_not_text(entry.key) == std::string::npos) {
    return true;
  }
  scope.problem(entry, "an attribute's name must be text of 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  return false;
}

void read_attributes(const Scope& scope, const Node& node, const Scales& scales, std::vector<AttributeRule>& rules) {
  if (!node.is_mapping()) {
    scope.problem(node, "attributes must be a mapping, got " + shown(node));
    return;
  }
  if (node.entries.size() > kMaxAttributes) {
    scope.problem(node, "attributes must be at most " + std::to_string(kMaxAttributes) + ", got " +
                            std::to_string(node.entries.size()));
    return;
  }
  for (const Entry& entry : node.entries) {
    if (!is_attribute_name(scope, entry)) continue;
    const bool at_most = entry.key.starts_with("max_");
    const bool bounds = (at_most || entry.key.starts_with("min_")) && entry.key.size() > 4;
    if (bounds && entry.value->is_scalar() && !entry.value->is_boolean()) {
      const std::string name = entry.key.substr(4);
      std::vector<std::string> names{name};
      if (camel_case(name) != name) names.push_back(camel_case(name));
      read_bound(scope, entry, std::move(names), at_most ? Bound::kAtMost : Bound::kAtLeast, scales, rules);
    } else {
      read_attribute(scope, *entry.value, {entry.key}, rules);
    }
  }
}

std::optional<KeyPart> read_part(const Scope& scope, const Node& node) {
  std::vector<std::string> words;
  words.reserve(kDimensionCount);
  for (int i = 0; i < kDimensionCount - 1; ++i) words.emplace_back(to_string(static_cast<Dimension>(i)));
  if (node.is_scalar()) {
    for (int i = 0; i < kDimensionCount - 1; ++i) {
      if (words[i] == node.text) return KeyPart{static_cast<Dimension>(i), {}};
    }
    const std::string_view text = node.text;
    if (text.starts_with("attr:") && text.size() > 5 && text.size() <= 5 + kMaxNameBytes) {
      return KeyPart{Dimension::kAttribute, std::string(text.substr(5))};
    }
  }
  const std::string near = node.is_scalar() ? base::did_you_mean(node.text, words) : "";
  words.emplace_back("attr:<name>");
  scope.problem(node, "each part of key must be " + one_of(words) + ", got " + shown(node) + near);
  return std::nullopt;
}

// There are only these few tiers, so a pattern that none of them matches is a mistake.
void refuse_unknown_tiers(const Scope& scope, const Node& node) {
  std::vector<std::string> tiers;
  tiers.reserve(kTierCount);
  for (int t = 0; t < kTierCount; ++t) tiers.emplace_back(to_string(static_cast<Tier>(t)));
  for (const Node* item : node.is_sequence() ? node.items : std::vector<const Node*>{&node}) {
    const std::string pattern = item->text.substr(item->text.starts_with('!') ? 1 : 0);
    const PatternSet matching({pattern});
    if (std::any_of(tiers.begin(), tiers.end(), [&](const std::string& tier) { return matching.matches(tier); })) {
      continue;
    }
    scope.problem(*item, "each of tiers must match " + one_of(tiers) + ", got " + shown(*item) +
                             base::did_you_mean(pattern, tiers));
  }
}

}  // namespace

std::string camel_case(std::string_view name) {
  std::string out;
  bool upper = false;
  for (const char c : name) {
    if (c == '_' && !out.empty()) {
      upper = true;
      continue;
    }
    out += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = false;
  }
  return out;
}

std::string snake_case(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !out.empty()) out += '_';
    out += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

Scales default_scales() {
  return {{"low", "medium", "high", "critical"}, {"small", "medium", "large", "huge"}, {"simple", "medium", "complex"}};
}

void read_scales(const Scope& scope, const Node& node, Scales& scales) {
  if (!node.is_sequence() || node.items.size() > kMaxScales) {
    scope.problem(node, "levels must be a list of at most " + std::to_string(kMaxScales) + " lists, got " +
                            (node.is_sequence() ? std::to_string(node.items.size()) : shown(node)));
    return;
  }
  for (const Node* item : node.items) {
    std::vector<std::string> scale;
    if (!item->is_sequence() || item->items.size() < 2 || item->items.size() > 64) {
      scope.problem(*item, "each of levels must be a list of 2 to 64 words from low to high, got " +
                               (item->is_sequence() ? std::to_string(item->items.size()) : shown(*item)));
      continue;
    }
    for (const Node* level : item->items) {
      if (!level->is_scalar() || !is_word(level->text)) {
        scope.problem(*level, "a level must be a word of letters, digits, - _ and ., got " + shown(*level));
      } else if (std::find(scale.begin(), scale.end(), level->text) != scale.end()) {
        scope.problem(*level, "a level must be given once, got \"" + level->text + "\" again");
      } else {
        scale.push_back(level->text);
      }
    }
    scales.push_back(std::move(scale));
  }
}

bool read_patterns(const Scope& scope, const Node* node, std::string_view field, Patterns& out) {
  const auto items = read_list(scope, node, field);
  if (!items) return false;
  if (items->empty() || items->size() > kMaxPatterns) {
    scope.problem(*node, std::string(field) + " must have 1 to " + std::to_string(kMaxPatterns) + " patterns, got " +
                             std::to_string(items->size()) + (items->empty() ? "; leave it out to match all" : ""));
    return false;
  }
  out.clear();
  for (const Node* item : *items) {
    if (is_pattern(scope, *item, field)) out.push_back(item->text);
  }
  return out.size() == items->size();
}

void read_attribute(const Scope& scope, const Node& node, std::vector<std::string> names,
                    std::vector<AttributeRule>& rules) {
  AttributeRule rule;
  const std::string name = names.front();
  rule.names = std::move(names);
  if (node.is_null()) {
    rule.kind = AttributeRule::Kind::kAbsent;
  } else if (node.is_boolean()) {
    rule.kind = AttributeRule::Kind::kBoolean;
    rule.boolean = node.is_true();
  } else if (node.is_mapping()) {
    read_range(scope, node, name, rule);
  } else if (!read_patterns(scope, &node, name, rule.patterns)) {
    return;
  }
  rules.push_back(std::move(rule));
}

void read_bound(const Scope& scope, const Entry& entry, std::vector<std::string> names, Bound bound,
                const Scales& scales, std::vector<AttributeRule>& rules) {
  AttributeRule rule;
  rule.names = std::move(names);
  const Node& node = *entry.value;
  const auto number = node.is_scalar() && !node.quoted ? parse_decimal(node.text) : std::nullopt;
  if (number) {
    rule.kind = AttributeRule::Kind::kRange;
    (bound == Bound::kAtMost ? rule.max : rule.min) = number->value();
  } else {
    rule.kind = AttributeRule::Kind::kAtMost;
    if (node.is_scalar()) rule.patterns = admitted(node.text, bound, scales);
    if (rule.patterns.empty()) {
      scope.problem(node, entry.key + " must be a number or a level of " + listed(scales) + ", got " + shown(node));
      return;
    }
  }
  rules.push_back(std::move(rule));
}

void read_match(const Scope& scope, const Node& node, const Scales& scales, Match& match) {
  struct List {
    const char* name;
    Patterns* out;
  };
  const std::array lists{List{"agents", &match.agents},
                         List{"operations", &match.operations},
                         List{"contexts", &match.contexts},
                         List{"users", &match.users},
                         List{"tenants", &match.tenants},
                         List{"plans", &match.plans},
                         List{"channels", &match.channels},
                         List{"tiers", &match.tiers},
                         List{"resources", &match.resources},
                         List{"sessions", &match.sessions},
                         List{"ips", &match.ips}};
  const MapFields fields(scope, node, "match",
                         {"agents", "operations", "contexts", "users", "tenants", "plans", "channels", "tiers",
                          "resources", "sessions", "ips", "attributes", "system_load", "emergency"});
  for (const List& list : lists) {
    const bool read = read_patterns(scope, fields.get(list.name), list.name, *list.out);
    if (read && list.out == &match.tiers) refuse_unknown_tiers(scope, *fields.get(list.name));
  }
  if (const Node* attributes = fields.get("attributes"); attributes != nullptr) {
    read_attributes(scope, *attributes, scales, match.attributes);
  }
  const std::vector<std::string> levels{"low", "normal", "high", "critical"};
  const auto load = read_list(scope, fields.get("system_load"), "system_load");
  for (const Node* item : load.value_or(std::vector<const Node*>{})) {
    const auto level = read_choice(scope, item, "system_load", levels);
    if (level) match.system_load.push_back(static_cast<control::LoadLevel>(*level));
  }
  bool emergency = false;
  if (read_bool(scope, fields.get("emergency"), "emergency", emergency)) match.emergency = emergency;
}

void read_key(const Scope& scope, const Node& node, std::vector<KeyPart>& key) {
  key.clear();
  if (node.is_scalar() && node.text == "global") return;
  const auto items = read_list(scope, &node, "key");
  if (!items) return;
  if (items->size() > kMaxKeyParts) {
    scope.problem(
        node, "key must have at most " + std::to_string(kMaxKeyParts) + " parts, got " + std::to_string(items->size()));
    return;
  }
  for (const Node* item : *items) {
    auto part = read_part(scope, *item);
    if (!part) continue;
    if (std::find(key.begin(), key.end(), *part) != key.end()) {
      scope.problem(*item, "each part of key must be given once, got " + shown(*item) + " again");
    } else {
      key.push_back(std::move(*part));
    }
  }
}

}  // namespace headgate::policy
