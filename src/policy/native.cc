#include <algorithm>

#include "core/compiled_limit.h"
#include "policy/fields.h"
#include "policy/limit_reader.h"
#include "policy/number.h"
#include "policy/shapes.h"

namespace headgate::policy {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxIdBytes = 128;
constexpr std::size_t kMaxVariants = 16;
constexpr Span kEscalationSpan{0s, 24h * 3650};
constexpr Span kWaitSpan{1ms, 24h};

bool is_id_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.' || c == ':';
}

// Reads one policy; what it needs of itself stays at hand.
class PolicyReader {
 public:
  PolicyReader(const Scope& scope, const Node& node, const Scales& scales)
      : scope_(scope),
        node_(node),
        scales_(scales),
        fields_(scope, node, "policy",
                {"id",
                 "name",
                 "mode",
                 "priority",
                 "match",
                 "missing",
                 "key",
                 "unit",
                 "limit",
                 "least_cost",
                 "holds",
                 "action",
                 "behavior",
                 "max_wait",
                 "warn_at",
                 "message",
                 "adaptive",
                 "rollout",
                 "on_store_failure",
                 "consistency",
                 "escalation",
                 "repeat",
                 "variants"}) {}

  Policy read() {
    policy_.place = scope_.place(node_);
    if (!fields_.is_mapping()) return std::move(policy_);
    read_id(scope_, fields_.require("id"), policy_.id);
    read_words();
    read_numbers();
    if (const Node* match = get("match"); match != nullptr) read_match(scope_, *match, scales_, policy_.match);
    if (const Node* key = get("key"); key != nullptr) read_key(scope_, *key, policy_.key);
    if (const Node* escalation = get("escalation"); escalation != nullptr) {
      read_escalation(scope_, *escalation, "time_window", policy_.escalation.emplace());
    }
    read_what_is_limited();
    read_bool(scope_, get("holds"), "holds", policy_.holds);
    read_least_cost();
    refuse_contradictions();
    return std::move(policy_);
  }

 private:
  [[nodiscard]] const Node* get(const char* key) const { return fields_.get(key); }

  void read_words() {
    read_string(scope_, get("name"), "name", kMaxNameBytes, policy_.name);
    read_string(scope_, get("message"), "message", kMaxMessageBytes, policy_.message);
    read_enum<Mode, 3>(scope_, get("mode"), "mode", policy_.mode);
    read_enum<Missing, 2>(scope_, get("missing"), "missing", policy_.missing);
    read_enum<Action, 4>(scope_, get("action"), "action", policy_.action);
    read_enum<Behavior, 2>(scope_, get("behavior"), "behavior", policy_.behavior);
    read_enum<OnStoreFailure, 3>(scope_, get("on_store_failure"), "on_store_failure", policy_.on_store_failure);
    read_enum<Consistency, 2>(scope_, get("consistency"), "consistency", policy_.consistency);
    read_adaptive();
    const Node* unit = get("unit");
    if (unit == nullptr) return;
    if (unit->is_scalar() && is_id(unit->text) && unit->text.size() <= 64) {
      policy_.unit = unit->text;
    } else {
      scope_.problem(*unit, "unit must be 1 to 64 letters, digits, - _ . and :, got " + shown(*unit));
    }
  }

  // true, false, or a mapping that says what it follows.
  void read_adaptive() {
    const Node* adaptive = get("adaptive");
    if (adaptive == nullptr || !adaptive->is_mapping()) {
      read_bool(scope_, adaptive, "adaptive", policy_.adaptive);
      return;
    }
    const MapFields fields(scope_, *adaptive, "adaptive", {"sensors"});
    bool sensors = false;
    if (read_bool(scope_, fields.require("sensors"), "sensors", sensors)) policy_.sensors = sensors;
  }

  void read_numbers() {
    std::int64_t priority = 0;
    if (read_whole(scope_, get("priority"), "priority", {-1'000'000'000, 1'000'000'000}, priority)) {
      policy_.priority = static_cast<int>(priority);
    }
    read_duration(scope_, get("max_wait"), "max_wait", kWaitSpan, policy_.max_wait);
    read_fraction(scope_, get("warn_at"), "warn_at", {0, 1, true}, policy_.warn_at);
    read_fraction(scope_, get("rollout"), "rollout", {0, 1}, policy_.rollout);
  }

  void read_what_is_limited() {
    const Node* limit = get("limit");
    const Node* variants = get("variants");
    const Node* repeat = get("repeat");
    const int given = (limit != nullptr ? 1 : 0) + (variants != nullptr ? 1 : 0) + (repeat != nullptr ? 1 : 0);
    if (given == 0) scope_.problem(node_, "policy must have limit, variants or repeat");
    if (given > 1) scope_.problem(node_, "policy must have only one of limit, variants and repeat");
    const Units scale = unit_scale(policy_.unit);
    if (limit != nullptr) policy_.limits = read_limits(scope_, *limit, scale).value_or(std::vector<Limit>{});
    if (variants != nullptr) read_variants(*variants, scale);
    if (repeat != nullptr) read_repeat(*repeat, scale);
  }

  void read_variants(const Node& node, Units scale) {
    if (!node.is_sequence() || node.items.empty() || node.items.size() > kMaxVariants) {
      scope_.problem(node, "variants must be a list of 1 to " + std::to_string(kMaxVariants) + ", got " +
                               (node.is_sequence() ? std::to_string(node.items.size()) : shown(node)));
      return;
    }
    for (const Node* item : node.items) {
      Variant variant;
      const MapFields fields(scope_, *item, "variant", {"name", "weight", "limit"});
      if (!fields.is_mapping()) continue;
      if (read_string(scope_, fields.require("name"), "name", 128, variant.name)) {
        const bool twice = std::any_of(policy_.variants.begin(), policy_.variants.end(),
                                       [&](const Variant& other) { return other.name == variant.name; });
        if (twice)
          scope_.problem(*fields.get("name"),
                         "each variant must have a name of its own, got \"" + variant.name + "\" again");
      }
      std::int64_t weight = 1;
      read_whole(scope_, fields.get("weight"), "weight", {1, 1'000'000}, weight);
      variant.weight = static_cast<std::uint32_t>(weight);
      const Node* limit = fields.require("limit");
      if (limit != nullptr) variant.limits = read_limits(scope_, *limit, scale).value_or(std::vector<Limit>{});
      policy_.variants.push_back(std::move(variant));
    }
  }

  void read_repeat(const Node& node, Units scale) {
    for (const char* other : {"key", "missing"}) {
      const Entry* entry = fields_.entry(other);
      if (entry != nullptr)
        scope_.problem(*entry, std::string(other) + " must not be given with repeat, which sets it");
    }
    const MapFields fields(scope_, node, "repeat", {"fingerprint", "max", "window"});
    if (!fields.is_mapping()) return;
    Repeat& repeat = policy_.repeat.emplace();
    policy_.missing = Missing::kSkip;
    policy_.key = {{Dimension::kAgent, {}}, {Dimension::kSession, {}}, {Dimension::kOperation, {}}};
    const Node* fingerprint = fields.require("fingerprint");
    const auto names = read_list(scope_, fingerprint, "fingerprint");
    if (names && (names->empty() || names->size() > 8)) {
      scope_.problem(*fingerprint, "fingerprint must be 1 to 8 attributes, got " + std::to_string(names->size()));
    }
    for (const Node* item : names.value_or(std::vector<const Node*>{})) {
      std::string name;
      if (!read_string(scope_, item, "each of fingerprint", kMaxNameBytes, name)) continue;
      KeyPart part{Dimension::kAttribute, name};
      if (std::find(policy_.key.begin(), policy_.key.end(), part) != policy_.key.end()) {
        scope_.problem(*item, "each of fingerprint must be given once, got \"" + name + "\" again");
        continue;
      }
      policy_.key.push_back(std::move(part));
      AttributeRule present;
      present.names = {name};
      present.patterns = {"*"};
      policy_.match.attributes.push_back(std::move(present));
      repeat.fingerprint.push_back(std::move(name));
    }
    const Spelling as_max[] = {{"limit", "max"}};
    const auto limit = read_parameters(scope_, node, Strategy::kSlidingWindow, scale, as_max);
    if (limit) policy_.limits = {*limit};
  }

  // The most that all its limits could ever admit at once, in units of cells.
  [[nodiscard]] Units most_at_once() const {
    Units most = core::kMostUnits;
    const auto look_at = [&](const std::vector<Limit>& limits) {
      for (const Limit& limit : limits) {
        // Where other limits count millionths, a check takes one slot whatever its cost.
        if (limit.strategy() == Strategy::kConcurrency && cell_scale(policy_) != 1) continue;
        most = std::min(most, core::compile(limit).most);
      }
    };
    look_at(policy_.limits);
    for (const Variant& variant : policy_.variants) look_at(variant.limits);
    return most;
  }

  void read_least_cost() {
    const Node* node = get("least_cost");
    if (node == nullptr) return;
    const auto number = node->is_scalar() ? parse_decimal(node->text) : std::nullopt;
    if (!number) return scope_.problem(*node, "least_cost must be a number, got " + shown(*node));
    const Units scale = cell_scale(policy_);
    const auto units = number->times(scale);
    if (!units) {
      const char* must = scale == 1 ? "least_cost must be a whole number" : "least_cost must have at most 6 decimals";
      return scope_.problem(*node, std::string(must) + ", got " + shown(*node));
    }
    const Units most = most_at_once();
    if (*units <= 0 || *units > most) {
      scope_.problem(*node, "least_cost must be above 0 and at most " + describe(policy_, most) +
                                ", the most that its limits admit at once, got " + shown(*node));
      return;
    }
    policy_.least_cost = *units;
  }

  void refuse_contradictions() {
    const auto has_cost = [](const std::vector<Limit>& limits) {
      return std::any_of(limits.begin(), limits.end(),
                         [](const Limit& limit) { return limit.strategy() != Strategy::kConcurrency; });
    };
    const bool counts =
        has_cost(policy_.limits) || std::any_of(policy_.variants.begin(), policy_.variants.end(),
                                                [&](const Variant& variant) { return has_cost(variant.limits); });
    const bool limited = !policy_.limits.empty() || !policy_.variants.empty();
    if (!policy_.holds && limited && !counts) {
      scope_.problem(*get("holds"),
                     "holds: false must go with a limit other than concurrency, whose slots are always given back");
    }
    if (policy_.behavior == Behavior::kQueue && policy_.action != Action::kBlock) {
      scope_.problem(*get("behavior"), std::string("behavior: queue must go with action: block, got action: ") +
                                           to_string(policy_.action));
    }
  }

  const Scope& scope_;
  const Node& node_;
  const Scales& scales_;
  MapFields fields_;
  Policy policy_;
};

}  // namespace

bool is_id(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kMaxIdBytes && std::all_of(text.begin(), text.end(), is_id_character);
}

bool read_id(const Scope& scope, const Node* node, std::string& id) {
  if (node == nullptr) return false;
  if (!node->is_scalar() || !is_id(node->text)) {
    scope.problem(
        *node, "id must be 1 to " + std::to_string(kMaxIdBytes) + " letters, digits, - _ . and :, got " + shown(*node));
    return false;
  }
  id = node->text;
  return true;
}

void read_escalation(const Scope& scope, const Node& node, std::string_view window, Escalation& escalation) {
  const MapFields fields(scope, node, "escalation", {"to", "threshold", window});
  if (!fields.is_mapping()) return;
  read_string(scope, fields.require("to"), "to", kMaxNameBytes, escalation.to);
  std::int64_t threshold = escalation.threshold;
  read_whole(scope, fields.get("threshold"), "threshold", {1, 1'000'000}, threshold);
  escalation.threshold = static_cast<std::uint32_t>(threshold);
  read_duration(scope, fields.get(window), window, kEscalationSpan, escalation.time_window);
}

void read_native(const Scope& scope, const Node& list, const Scales& scales, std::vector<Policy>& policies) {
  if (!list.is_sequence()) {
    // Nothing is no list: a file that was cut off after this key must not drop all policies.
    scope.problem(list, "policies must be a list ([] where there are none), got " + shown(list));
    return;
  }
  if (list.items.size() > kMaxPolicies) {
    scope.problem(list, "policies must be at most " + std::to_string(kMaxPolicies) + ", got " +
                            std::to_string(list.items.size()));
    return;
  }
  int number = 0;
  for (const Node* item : list.items) {
    ++number;
    const Node* id = item->is_mapping() ? item->find("id") : nullptr;
    const bool named = id != nullptr && id->is_scalar() && is_id(id->text);
    const Scope here = scope.of(named ? "policy \"" + id->text + "\"" : "policy " + std::to_string(number));
    policies.push_back(PolicyReader(here, *item, scales).read());
  }
}

}  // namespace headgate::policy
