#include "policy/fields.h"
#include "policy/limit_reader.h"
#include "policy/shapes.h"

namespace headgate::policy {
namespace {

// Who a limit counts is told by its name alone.
std::vector<KeyPart> key_of(std::string_view name) {
  if (name.starts_with("user_")) return {{Dimension::kUser, {}}};
  if (name.starts_with("agent_")) return {{Dimension::kAgent, {}}};
  return {{Dimension::kAgent, {}}, {Dimension::kUser, {}}, {Dimension::kIp, {}}};
}

}  // namespace

void read_s3(const Scope& scope, const Node& settings, std::vector<Policy>& policies) {
  const MapFields fields(scope, settings, "rate_limiting", {"enabled", "storage", "redis_url", "default_limits"});
  bool enabled = true;
  read_bool(scope, fields.get("enabled"), "enabled", enabled);
  for (const char* name : {"storage", "redis_url"}) {
    const Node* value = fields.get(name);
    if (value != nullptr)
      scope.note(*value, std::string(name) + " is not read: the server's own configuration decides");
  }
  const Node* limits = fields.get("default_limits");
  if (limits == nullptr) return;
  if (!limits->is_mapping()) {
    scope.problem(*limits, "default_limits must be a mapping, got " + shown(*limits));
    return;
  }
  for (const Entry& entry : limits->entries) {
    const Scope here = scope.of(is_id(entry.key) ? "policy \"" + entry.key + "\"" : "");
    if (!is_id(entry.key)) {
      here.problem(entry, "a name in default_limits must be 1 to 128 letters, digits, - _ . and :");
      continue;
    }
    const MapFields numbers(here, *entry.value, "default_limits." + entry.key, {"max_requests", "window_seconds"});
    if (!numbers.is_mapping()) continue;
    Policy policy;
    policy.id = entry.key;
    policy.place = scope.place(entry);
    policy.mode = enabled ? Mode::kEnforce : Mode::kOff;
    policy.match.operations = {entry.key};
    policy.key = key_of(entry.key);
    const Spelling spellings[] = {{"limit", "max_requests"}, {"window", "window_seconds"}};
    const auto limit = read_parameters(here, *entry.value, Strategy::kSlidingWindow, 1, spellings);
    if (limit) policy.limits = {*limit};
    policies.push_back(std::move(policy));
  }
}

}  // namespace headgate::policy
