#include <algorithm>

#include "policy/fields.h"
#include "policy/limit_reader.h"
#include "policy/shapes.h"

namespace headgate::policy {
namespace {

std::string upper_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return out;
}

// An enumeration by its names in upper case.
template <class Enum, int kCount>
bool read_upper_enum(const Scope& scope, const Node* node, std::string_view field, Enum& out) {
  std::vector<std::string> words;
  words.reserve(kCount);
  for (int i = 0; i < kCount; ++i) words.push_back(upper_case(to_string(static_cast<Enum>(i))));
  const auto index = read_choice(scope, node, field, words);
  if (index) out = static_cast<Enum>(*index);
  return index.has_value();
}

// How this shape spells parameters.
struct Spellings {
  std::vector<std::string> ours;
  std::vector<std::string> theirs;
  std::vector<Spelling> pairs;
};

Spellings spellings_of(std::vector<std::string> parameters) {
  Spellings s;
  s.ours = std::move(parameters);
  for (const std::string& name : s.ours) {
    if (name == "limit") {
      s.theirs.emplace_back("maxRequests");
    } else if (name == "window") {
      s.theirs.emplace_back("timeWindow");
    } else {
      s.theirs.push_back(camel_case(name));
    }
  }
  for (std::size_t i = 0; i < s.ours.size(); ++i) s.pairs.push_back({s.ours[i], s.theirs[i]});
  return s;
}

// The attribute that `fooTypes` speaks of: fooType, or the plural itself.
std::vector<std::string> singular_and_plural(const std::string& name) {
  std::vector<std::string> names;
  if (name.size() > 3 && name.ends_with("ies")) {
    names.push_back(name.substr(0, name.size() - 3) + "y");
  } else if (name.size() > 1 && name.ends_with("s") && !name.ends_with("ss")) {
    names.push_back(name.substr(0, name.size() - 1));
  }
  names.push_back(name);
  return names;
}

void read_system_load(const Scope& scope, const Node& node, Match& match) {
  const std::vector<std::string> levels{"low", "normal", "high", "critical"};
  const auto level = read_choice(scope, &node, "systemLoad", levels);
  if (!level) return;
  // "high" is the load from which the policy applies, so a critical one is meant as well.
  for (std::size_t i = *level; i < levels.size(); ++i) {
    match.system_load.push_back(static_cast<control::LoadLevel>(i));
  }
}

// A policy of one agent may name it again, or all, but no other.
void read_agents(const Scope& scope, const Node& node, Match& match) {
  Patterns agents;
  if (!read_patterns(scope, &node, "agents", agents)) return;
  const auto has = [&](const std::string& word) {
    return std::find(agents.begin(), agents.end(), word) != agents.end();
  };
  if (match.agents.empty()) {
    match.agents = std::move(agents);
  } else if (!has("*") && !has(match.agents.front())) {
    scope.problem(node, "agents must be \"*\" or have the policy's own agent, \"" + match.agents.front() + "\"");
  }
}

void read_condition(const Scope& scope, const Entry& entry, const Scales& scales, Match& match) {
  const std::string& name = entry.key;
  const Node& value = *entry.value;
  if (name == "contexts") {
    read_patterns(scope, &value, name, match.contexts);
  } else if (name == "agents") {
    read_agents(scope, value, match);
  } else if (name == "systemLoad") {
    read_system_load(scope, value, match);
  } else if (name == "emergency") {
    bool emergency = false;
    if (read_bool(scope, &value, name, emergency)) match.emergency = emergency;
  } else if (name.size() > 3 && (name.starts_with("max") || name.starts_with("min")) && name[3] >= 'A' &&
             name[3] <= 'Z' && value.is_scalar() && !value.is_boolean()) {
    std::string attribute = name.substr(3);
    attribute[0] = static_cast<char>(attribute[0] - 'A' + 'a');
    std::vector<std::string> names{attribute};
    if (snake_case(attribute) != attribute) names.push_back(snake_case(attribute));
    read_bound(scope, entry, std::move(names), name[1] == 'a' ? Bound::kAtMost : Bound::kAtLeast, scales,
               match.attributes);
  } else if (name.empty() || name.size() > kMaxNameBytes) {
    scope.problem(entry, "a condition's name must be 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  } else {
    read_attribute(scope, value, singular_and_plural(name), match.attributes);
  }
}

void read_consequences(const Scope& scope, const Node& node, Policy& policy) {
  const MapFields fields(scope, node, "consequences", {"action", "message", "escalation"});
  read_upper_enum<Action, 4>(scope, fields.get("action"), "action", policy.action);
  read_string(scope, fields.get("message"), "message", kMaxMessageBytes, policy.message);
  if (const Node* escalation = fields.get("escalation"); escalation != nullptr && !escalation->is_null()) {
    read_escalation(scope, *escalation, "timeWindow", policy.escalation.emplace());
  }
}

void read_limit(const Scope& scope, const Node& node, Strategy strategy, Policy& policy) {
  std::vector<std::string> allowed{"id",         "name",       "enabled",      "strategy",
                                   "operations", "conditions", "consequences", "priority"};
  const Node* name = node.find("strategy");
  const bool named = name == nullptr || read_upper_enum<Strategy, kStrategyCount>(scope, name, "strategy", strategy);
  const Spellings spellings = spellings_of(named ? parameters_of(strategy) : parameters_of_any());
  const std::vector<std::string>& parameters = spellings.theirs;
  allowed.insert(allowed.end(), parameters.begin(), parameters.end());
  for (const Entry& entry : node.entries) {
    if (std::find(allowed.begin(), allowed.end(), entry.key) == allowed.end()) {
      unknown_key(scope, entry, named ? "a " + upper_case(to_string(strategy)) + " policy" : "any policy", allowed);
    }
  }
  if (!named) return;
  const auto limit = read_parameters(scope, node, strategy, 1, spellings.pairs);
  if (limit) policy.limits = {*limit};
}

Policy read_policy(const Scope& scope, const Node& node, const S1Defaults& defaults, const std::string& agent) {
  Policy policy;
  policy.place = scope.place(node);
  policy.missing = Missing::kMatch;
  if (!agent.empty()) policy.match.agents = {agent};
  if (!node.is_mapping()) {
    scope.problem(node, "policy must be a mapping, got " + shown(node));
    return policy;
  }
  if (node.find("id") == nullptr) scope.problem(node, "policy must have id");
  read_id(scope, node.find("id"), policy.id);
  read_string(scope, node.find("name"), "name", kMaxNameBytes, policy.name);
  bool enabled = true;
  read_bool(scope, node.find("enabled"), "enabled", enabled);
  if (!enabled) policy.mode = Mode::kOff;
  std::int64_t priority = 0;
  read_whole(scope, node.find("priority"), "priority", {-1'000'000'000, 1'000'000'000}, priority);
  policy.priority = static_cast<int>(priority);
  read_patterns(scope, node.find("operations"), "operations", policy.match.operations);
  if (const Node* conditions = node.find("conditions"); conditions != nullptr) {
    if (!conditions->is_mapping()) {
      scope.problem(*conditions, "conditions must be a mapping, got " + shown(*conditions));
    } else if (conditions->entries.size() > kMaxAttributes) {
      scope.problem(*conditions, "conditions must be at most " + std::to_string(kMaxAttributes) + ", got " +
                                     std::to_string(conditions->entries.size()));
    } else {
      for (const Entry& entry : conditions->entries) read_condition(scope, entry, defaults.scales, policy.match);
    }
  }
  if (const Node* then = node.find("consequences"); then != nullptr) read_consequences(scope, *then, policy);
  read_limit(scope, node, defaults.strategy, policy);
  return policy;
}

// What a list of policies has in common.
struct Common {
  std::string agent;
  std::vector<KeyPart> key;
};

void read_list_of(const Scope& scope, const Node& list, const std::string& field, const S1Defaults& defaults,
                  const Common& common, std::vector<Policy>& policies) {
  if (!list.is_sequence()) {
    scope.problem(list, field + " must be a list, got " + shown(list));
    return;
  }
  int number = 0;
  for (const Node* item : list.items) {
    ++number;
    const Node* id = item->is_mapping() ? item->find("id") : nullptr;
    const bool named = id != nullptr && id->is_scalar() && is_id(id->text);
    const Scope here = scope.of(named ? "policy \"" + id->text + "\"" : field + " " + std::to_string(number));
    Policy policy = read_policy(here, *item, defaults, common.agent);
    policy.key = common.key;
    policies.push_back(std::move(policy));
  }
}

}  // namespace

void read_s1_strategy(const Scope& scope, const Node& node, Strategy& strategy) {
  read_upper_enum<Strategy, kStrategyCount>(scope, &node, "defaultStrategy", strategy);
}

void read_s1_agents(const Scope& scope, const Node& agents, const S1Defaults& defaults, std::vector<Policy>& policies) {
  if (!agents.is_mapping()) {
    scope.problem(agents, "rateLimitPolicies must be a mapping, got " + shown(agents));
    return;
  }
  for (const Entry& entry : agents.entries) {
    const MapFields fields(scope, *entry.value, "an agent of rateLimitPolicies", {"agentId", "policies"});
    if (!fields.is_mapping()) continue;
    Common common{"",
                  {{Dimension::kAgent, {}},
                   {Dimension::kSession, {}},
                   {Dimension::kOperation, {}},
                   {Dimension::kContext, {}},
                   {Dimension::kResource, {}}}};
    read_string(scope, fields.require("agentId"), "agentId", kMaxNameBytes, common.agent);
    const Node* list = fields.require("policies");
    if (list != nullptr) read_list_of(scope, *list, "policies", defaults, common, policies);
  }
}

void read_s1_globals(const Scope& scope, const Node& list, const S1Defaults& defaults, std::vector<Policy>& policies) {
  read_list_of(scope, list, "globalPolicies", defaults, {}, policies);
}

}  // namespace headgate::policy
