#include <algorithm>
#include <array>
#include <map>
#include <unordered_set>

#include "policy/fields.h"
#include "policy/limit_reader.h"
#include "policy/shapes.h"

namespace headgate::policy {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxSiblings = 10'000;
constexpr std::size_t kMaxAllPatterns = 1'000'000;  // of one document, since every child repeats its parents'

// A key of a descriptor: a field of a check where it has the name of one, else an attribute.
struct Field {
  std::string_view name;
  Dimension dimension;
  Patterns Match::*patterns;
};
constexpr std::array<Field, 7> kFields{{
    {"agent", Dimension::kAgent, &Match::agents},
    {"operation", Dimension::kOperation, &Match::operations},
    {"session", Dimension::kSession, &Match::sessions},
    {"user", Dimension::kUser, &Match::users},
    {"tenant", Dimension::kTenant, &Match::tenants},
    {"context", Dimension::kContext, &Match::contexts},
    {"resource", Dimension::kResource, &Match::resources},
}};

const Field* field_of(std::string_view key) {
  const auto* found =
      std::find_if(kFields.begin(), kFields.end(), [&](const Field& field) { return field.name == key; });
  return found == kFields.end() ? nullptr : found;
}

// One descriptor among its siblings.
struct Descriptor {
  const Node* node = nullptr;
  std::string key;
  std::string value;  // empty: any
  [[nodiscard]] bool is_prefix() const { return value.ends_with('*'); }
  [[nodiscard]] std::string_view prefix() const { return std::string_view(value).substr(0, value.size() - 1); }
};

// What a check must have for one step of the path.
struct Step {
  std::string key;
  std::string value;
  Patterns patterns;
};

// Exactly this value; a slash at its end would else stand for all that lies below.
void admit(const std::string& value, Patterns& patterns) {
  patterns.push_back(value);
  if (value.ends_with('/')) patterns.push_back("!" + value + "?*");
}

class EnvoyReader {
 public:
  EnvoyReader(const Scope& scope, std::vector<Policy>& policies) : scope_(scope), policies_(policies) {}

  void read(const Node& document) {
    const MapFields fields(scope_, document, "a document with domain and descriptors", {"domain", "descriptors"});
    if (!read_value(fields.require("domain"), "domain", domain_)) return;
    if (const Node* list = fields.get("descriptors"); list != nullptr && !list->is_null()) read_level(*list);
  }

 private:
  // Text that is meant as it stands, so it must not look like a pattern; a `*` at the end is a prefix there as here.
  bool read_value(const Node* node, const char* field, std::string& out) {
    if (!read_string(scope_, node, field, kMaxNameBytes - 3, out)) return false;
    const std::string_view body = std::string_view(out).substr(0, out.size() - (out.ends_with('*') ? 1 : 0));
    if (!out.starts_with('!') && body.find_first_of("*?") == std::string_view::npos) return true;
    scope_.problem(
        *node,
        std::string(field) + " must not begin with \"!\" nor have \"?\", or \"*\" but at its end, got " + shown(*node));
    return false;
  }

  std::vector<Descriptor> read_siblings(const Node& list) {
    std::vector<Descriptor> siblings;
    if (!list.is_sequence() || list.items.size() > kMaxSiblings) {
      scope_.problem(list, "descriptors must be a list of at most " + std::to_string(kMaxSiblings) + ", got " +
                               (list.is_sequence() ? std::to_string(list.items.size()) : shown(list)));
      return siblings;
    }
    std::map<std::pair<std::string, std::string>, int> lines;
    for (const Node* item : list.items) {
      const MapFields fields(scope_, *item, "descriptor",
                             {"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric"});
      if (!fields.is_mapping()) continue;
      Descriptor descriptor{item, {}, {}};
      if (!read_value(fields.require("key"), "key", descriptor.key)) continue;
      const Node* value = fields.get("value");
      const bool any = value == nullptr || value->is_null() || (value->is_scalar() && value->text.empty());
      if (!any && !read_value(value, "value", descriptor.value)) continue;
      const auto [first, fresh] = lines.emplace(std::pair{descriptor.key, descriptor.value}, item->line);
      if (!fresh) {
        scope_.problem(*item, "descriptor must be given once, is also given on line " + std::to_string(first->second));
        continue;
      }
      siblings.push_back(std::move(descriptor));
    }
    return siblings;
  }

  // The most specific descriptor alone counts: a value, then the first prefix that fits, then any value.
  Step step_of(const Descriptor& descriptor, std::span<const Descriptor> siblings) {
    Step step{descriptor.key, descriptor.value, {}};
    admit(descriptor.value.empty() ? "*" : descriptor.value, step.patterns);
    if (!descriptor.value.empty() && !descriptor.is_prefix()) return step;
    bool before = true;
    for (const Descriptor& other : siblings) {
      if (&other == &descriptor) {
        before = false;
        continue;
      }
      if (other.key != descriptor.key || other.value.empty()) continue;
      const bool wins = descriptor.value.empty() ||
                        (other.is_prefix() ? before : std::string_view(other.value).starts_with(descriptor.prefix()));
      if (!wins) continue;
      if (other.value.ends_with('/')) {
        scope_.note(*other.node,
                    "value \"" + other.value + "\" also keeps what lies below it from the other descriptors");
      }
      step.patterns.push_back("!" + other.value);
    }
    return step;
  }

  void read_level(const Node& list) {
    const std::vector<Descriptor> siblings = read_siblings(list);
    for (const Descriptor& descriptor : siblings) {
      const bool twice = descriptor.key == "domain" || std::any_of(path_.begin(), path_.end(), [&](const Step& s) {
                           return s.key == descriptor.key;
                         });
      if (twice) {
        scope_.problem(*descriptor.node,
                       "key must be given once on the way to a limit, got \"" + descriptor.key + "\" again");
        continue;
      }
      path_.push_back(step_of(descriptor, siblings));
      read_descriptor(*descriptor.node);
      path_.pop_back();
    }
  }

  void read_descriptor(const Node& node) {
    const Node* children = node.find("descriptors");
    bool shadow = false;
    read_bool(scope_, node.find("shadow_mode"), "shadow_mode", shadow);
    if (const Node* metric = node.find("detailed_metric"); metric != nullptr) {
      scope_.note(*metric, "detailed_metric is not read: every policy has metrics of its own");
    }
    if (const Node* limit = node.find("rate_limit"); limit != nullptr && !limit->is_null()) {
      Policy policy = matching();
      policy.place = scope_.place(node);
      policy.mode = shadow ? Mode::kMonitor : Mode::kEnforce;
      leave_to_children(node, children, policy.match);
      read_rate_limit(*limit, policy);
      policies_.push_back(std::move(policy));
    }
    if (children != nullptr && !children->is_null()) read_level(*children);
  }

  Policy matching() {
    Policy policy;
    policy.id = unique_id();
    policy.key = {{Dimension::kAttribute, "domain"}};
    AttributeRule domain;
    domain.names = {"domain"};
    admit(domain_, domain.patterns);
    policy.match.attributes.push_back(std::move(domain));
    for (const Step& step : path_) {
      patterns_ += step.patterns.size();
      if (patterns_ > kMaxAllPatterns) {
        if (!told_)
          scope_.problem(Place{}, "descriptors must need at most " + std::to_string(kMaxAllPatterns) + " patterns");
        told_ = true;
        return policy;
      }
      if (const Field* field = field_of(step.key); field != nullptr) {
        policy.match.*field->patterns = step.patterns;
        policy.key.push_back({field->dimension, {}});
        continue;
      }
      AttributeRule rule;
      rule.names = {step.key};
      rule.patterns = step.patterns;
      policy.match.attributes.push_back(std::move(rule));
      policy.key.push_back({Dimension::kAttribute, step.key});
    }
    return policy;
  }

  // A check that has a child's key is the child's.
  void leave_to_children(const Node& node, const Node* children, Match& match) {
    if (children == nullptr || !children->is_sequence()) return;
    std::vector<std::string> seen;
    for (const Node* child : children->items) {
      const Node* key = child->is_mapping() ? child->find("key") : nullptr;
      if (key == nullptr || !key->is_scalar() || seen.size() >= kMaxAttributes) continue;
      if (std::find(seen.begin(), seen.end(), key->text) != seen.end()) continue;
      seen.push_back(key->text);
      const Field* field = field_of(key->text);
      if (field == nullptr) {
        AttributeRule absent;
        absent.names = {key->text};
        absent.kind = AttributeRule::Kind::kAbsent;
        match.attributes.push_back(std::move(absent));
      } else if (field->dimension == Dimension::kAgent) {
        match.unidentified = true;
      } else {
        scope_.note(node, "its own limit also counts checks with " + key->text +
                              ", which its descriptors name: only attributes and the agent can be asked to be absent");
      }
    }
  }

  void read_rate_limit(const Node& node, Policy& policy) {
    const MapFields fields(scope_, node, "rate_limit", {"unit", "requests_per_unit", "unlimited", "name"});
    if (!fields.is_mapping()) return;
    read_string(scope_, fields.get("name"), "name", kMaxNameBytes, policy.name);
    bool unlimited = false;
    read_bool(scope_, fields.get("unlimited"), "unlimited", unlimited);
    if (unlimited) {
      for (const char* other : {"unit", "requests_per_unit"}) {
        const Entry* entry = fields.entry(other);
        if (entry != nullptr) scope_.problem(*entry, std::string(other) + " must not be given with unlimited");
      }
      return;
    }
    const Node* unit_node = fields.require("unit");
    const Node* count = fields.require("requests_per_unit");
    const std::vector<std::string> units{"second", "minute", "hour", "day", "week", "month", "year"};
    Node lower;
    if (unit_node != nullptr) {
      lower = *unit_node;
      for (char& c : lower.text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    const auto unit = read_choice(scope_, unit_node == nullptr ? nullptr : &lower, "unit", units);
    std::int64_t requests = 0;
    if (!read_whole(scope_, count, "requests_per_unit", {1, 4'294'967'295}, requests) || !unit) return;
    constexpr std::array<Nanos, 4> kWindows{1s, 60s, 3600s, 86400s};
    constexpr std::array<Period, 3> kPeriods{Period::kWeek, Period::kMonth, Period::kYear};
    const auto limit = *unit < kWindows.size()
                           ? Limit::fixed_window({requests, kWindows.at(*unit), 0})
                           : Limit::quota({requests, kPeriods.at(*unit - kWindows.size()), "UTC", 0});
    if (limit) {
      policy.limits = {*limit};
    } else {
      scope_.problem(node, limit.error().message);
    }
  }

  std::string unique_id() {
    constexpr std::size_t kMostBytes = 120;  // leaves room for a number
    std::string id = domain_;
    for (const Step& step : path_) id += "." + step.key + (step.value.empty() ? "" : "=" + step.value);
    for (char& c : id) {
      if (!is_id(std::string_view(&c, 1))) c = '_';
    }
    id.resize(std::min(id.size(), kMostBytes));
    std::string unique = id;
    for (int& number = last_[id]; !ids_.insert(unique).second;) unique = id + "-" + std::to_string(++number + 1);
    return unique;
  }

  const Scope& scope_;
  std::vector<Policy>& policies_;
  std::string domain_;
  std::vector<Step> path_;
  std::unordered_set<std::string> ids_;
  std::map<std::string, int> last_;
  std::size_t patterns_ = 0;
  bool told_ = false;
};

}  // namespace

void read_envoy(const Scope& scope, const Node& document, std::vector<Policy>& policies) {
  EnvoyReader(scope, policies).read(document);
}

}  // namespace headgate::policy
