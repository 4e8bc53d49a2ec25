#include "policy/settings.h"

#include <array>

#include "policy/fields.h"
#include "policy/match_reader.h"

namespace headgate::policy {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMostTokens = 1'000'000'000;
constexpr std::size_t kMaxExempt = 100'000;

void read_tier_limit(const Scope& scope, const Node* node, const std::string& name, TierLimit& limit) {
  if (node == nullptr) return;
  const Scope here = scope.of("tiers." + name);
  const MapFields fields(here, *node, name, {"capacity", "refill_per_minute"});
  read_whole(here, fields.get("capacity"), "capacity", {1, kMostTokens}, limit.capacity);
  read_whole(here, fields.get("refill_per_minute"), "refill_per_minute", {1, kMostTokens}, limit.refill_per_minute);
  const auto made = Limit::token_bucket({limit.capacity, {limit.refill_per_minute, 1min}, 0});
  if (!made) here.problem(*node, made.error().message);
}

void read_tiers(const Scope& scope, const Node& node, Tiers& tiers) {
  const MapFields fields(scope, node, "tiers",
                         {"light", "normal", "heavy", "unidentified", "registration", "operations"});
  const std::array<std::string, kTierCount> names{"light", "normal", "heavy"};
  for (int i = 0; i < kTierCount; ++i) read_tier_limit(scope, fields.get(names.at(i)), names.at(i), tiers.limits.at(i));
  read_tier_limit(scope, fields.get("unidentified"), "unidentified", tiers.unidentified);
  read_tier_limit(scope, fields.get("registration"), "registration", tiers.registration);
  const Node* operations = fields.get("operations");
  if (operations == nullptr) return;
  const MapFields lists(scope, *operations, "operations", {"light", "normal", "heavy"});
  for (int i = 0; i < kTierCount; ++i) {
    const Node* list = lists.get(names.at(i));
    if (list != nullptr && list->is_sequence() && list->items.empty()) {
      tiers.operations.at(i).clear();  // none is of that tier
    } else {
      read_patterns(scope, list, names.at(i), tiers.operations.at(i));
    }
  }
}

void read_backoff(const Scope& scope, const Node& node, control::BackoffSettings& backoff) {
  constexpr std::size_t kMaxSteps = control::kMaxBackoffSteps;
  const MapFields fields(scope, node, "backoff", {"steps", "quiet", "enforced"});
  const auto steps = read_list(scope, fields.get("steps"), "steps");
  if (steps && (steps->empty() || steps->size() > kMaxSteps)) {
    scope.problem(*fields.get("steps"), "steps must be a list of 1 to " + std::to_string(kMaxSteps) + ", got " +
                                            std::to_string(steps->size()));
  } else if (steps) {
    backoff.steps.clear();
    for (const Node* item : *steps) {
      Nanos step{0};
      if (!read_duration(scope, item, "each of steps", {1ms, 24h}, step)) continue;
      if (!backoff.steps.empty() && step < backoff.steps.back()) {
        scope.problem(*item, "each of steps must be at least the one before, got " + item->text);
      }
      backoff.steps.push_back(step);
    }
  }
  read_duration(scope, fields.get("quiet"), "quiet", {1s, 24h * 7}, backoff.quiet);
  read_bool(scope, fields.get("enforced"), "enforced", backoff.enforced);
}

void read_adaptive(const Scope& scope, const Node& node, control::AdaptiveSettings& adaptive) {
  const MapFields fields(scope, node, "adaptive",
                         {"enabled", "sensors", "high", "low", "high_factor", "low_factor", "margin", "dwell",
                          "emergency_at", "emergency_factor", "emergency_margin", "auto_emergency"});
  const auto fraction = [&](const char* name, Range range, double& out) {
    read_fraction(scope, fields.get(name), name, range, out);
  };
  read_bool(scope, fields.get("enabled"), "enabled", adaptive.enabled);
  read_bool(scope, fields.get("sensors"), "sensors", adaptive.sensors);
  read_bool(scope, fields.get("auto_emergency"), "auto_emergency", adaptive.auto_emergency);
  fraction("high", {0.01, 1}, adaptive.high);
  fraction("low", {0, 1}, adaptive.low);
  fraction("high_factor", {0.01, 1}, adaptive.high_factor);
  fraction("low_factor", {1, 10}, adaptive.low_factor);
  fraction("margin", {0, 1}, adaptive.margin);
  fraction("emergency_at", {0.01, 1}, adaptive.emergency_at);
  fraction("emergency_factor", {0.01, 1}, adaptive.emergency_factor);
  fraction("emergency_margin", {0, 1}, adaptive.emergency_margin);
  read_duration(scope, fields.get("dwell"), "dwell", {0s, 1h}, adaptive.dwell);
  // What the numbers must be to one another.
  if (const auto valid = control::validate(adaptive); !valid) {
    const std::string& message = valid.error().message;
    const Node* at = fields.get(message.substr(0, message.find(' ')));
    scope.problem(at == nullptr ? node : *at, message);
  }
}

// The section of this name in the shape with rateLimitPolicies. A throttle that turns itself on needs a load to go by,
// so autoThrottle also has limits follow this machine's sensors.
void read_emergency(const Scope& scope, const Node& node, control::AdaptiveSettings& adaptive) {
  const MapFields fields(scope, node, "emergency", {"autoThrottle", "loadThreshold", "throttleFactor"});
  if (read_bool(scope, fields.get("autoThrottle"), "autoThrottle", adaptive.auto_emergency)) {
    adaptive.sensors = adaptive.auto_emergency;
  }
  read_fraction(scope, fields.get("loadThreshold"), "loadThreshold", {0.01, 1}, adaptive.emergency_at);
  read_fraction(scope, fields.get("throttleFactor"), "throttleFactor", {0.01, 1}, adaptive.emergency_factor);
}

void read_exempt(const Scope& scope, const Node& node, std::vector<std::string>& exempt) {
  const auto items = read_list(scope, &node, "exempt");
  if (!items) return;
  if (items->size() > kMaxExempt) {
    scope.problem(node, "exempt must have at most " + std::to_string(kMaxExempt) + " agents, got " +
                            std::to_string(items->size()));
    return;
  }
  exempt.clear();
  for (const Node* item : *items) {
    std::string agent;
    if (read_string(scope, item, "each of exempt", kMaxNameBytes, agent)) exempt.push_back(std::move(agent));
  }
}

void read_version(const Scope& scope, const Node& node) {
  if (node.is_scalar() && node.text == "1") return;
  scope.problem(node, "version must be 1, got " + shown(node));
}

}  // namespace

std::span<const std::string> setting_names() noexcept {
  static const std::array<std::string, 12> kNames{"enforcement", "mode",    "tiers",     "backoff",
                                                  "adaptive",    "leases",  "queue",     "exempt",
                                                  "levels",      "version", "emergency", "defaultStrategy"};
  return kNames;
}

void read_setting(const Scope& scope, const Entry& entry, Document& document) {
  const Node& node = *entry.value;
  const Scope here = node.is_mapping() ? scope.of(entry.key) : scope;
  if (entry.key == "enforcement") {
    read_enum<Enforcement, 2>(scope, &node, "enforcement", document.enforcement);
  } else if (entry.key == "mode") {
    read_enum<Mode, 3>(scope, &node, "mode", document.mode);
  } else if (entry.key == "tiers") {
    document.has_tiers = true;
    if (!node.is_null()) read_tiers(here, node, document.tiers);
  } else if (entry.key == "backoff") {
    read_backoff(here, node, document.backoff);
  } else if (entry.key == "adaptive") {
    read_adaptive(here, node, document.adaptive);
  } else if (entry.key == "emergency") {
    read_emergency(here, node, document.adaptive);
  } else if (entry.key == "leases") {
    const MapFields fields(here, node, "leases", {"ttl"});
    read_duration(here, fields.get("ttl"), "ttl", {1ms, 24h * 3650}, document.leases.ttl);
  } else if (entry.key == "queue") {
    const MapFields fields(here, node, "queue", {"max_waiting"});
    auto most = static_cast<std::int64_t>(document.queue.max_waiting);
    read_whole(here, fields.get("max_waiting"), "max_waiting", {1, 10'000'000}, most);
    document.queue.max_waiting = static_cast<std::size_t>(most);
  } else if (entry.key == "exempt") {
    read_exempt(scope, node, document.exempt);
  } else if (entry.key == "version") {
    read_version(scope, node);
  }
}

}  // namespace headgate::policy
