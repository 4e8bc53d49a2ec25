#include "policy/fields.h"
#include "policy/limit_reader.h"
#include "policy/shapes.h"

namespace headgate::policy {
namespace {

constexpr std::size_t kMaxUrlBytes = 4'096;

// Who a limit counts is told by its name alone.
std::vector<KeyPart> key_of(std::string_view name) {
  if (name.starts_with("user_")) return {{Dimension::kUser, {}}};
  if (name.starts_with("agent_")) return {{Dimension::kAgent, {}}};
  return {{Dimension::kAgent, {}}, {Dimension::kUser, {}}, {Dimension::kIp, {}}};
}

void read_store(const Scope& scope, const MapFields& fields, Document& document) {
  const Node* storage = fields.get("storage");
  const Node* url = fields.get("redis_url");
  if (storage == nullptr) {
    if (url != nullptr) scope.note(*url, "redis_url is not read without storage: redis");
    return;
  }
  const std::vector<std::string> kinds{"memory", "redis"};
  const auto kind = read_choice(scope, storage, "storage", kinds);
  StoreWish wish;
  wish.redis = kind == 1U;
  wish.place = scope.place(*storage);
  read_string(scope, url, "redis_url", kMaxUrlBytes, wish.redis_url);
  if (wish.redis && url == nullptr) scope.problem(*storage, "storage: redis needs redis_url: redis://host:6379");
  if (document.store && (document.store->redis != wish.redis || document.store->redis_url != wish.redis_url)) {
    scope.problem(*storage, "storage must be given once, is also given at " + text(document.store->place));
    return;
  }
  document.store = std::move(wish);
}

}  // namespace

void read_s3(const Scope& scope, const Node& settings, Document& document) {
  std::vector<Policy>& policies = document.policies;
  const MapFields fields(scope, settings, "rate_limiting", {"enabled", "storage", "redis_url", "default_limits"});
  bool enabled = true;
  read_bool(scope, fields.get("enabled"), "enabled", enabled);
  read_store(scope, fields, document);
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
