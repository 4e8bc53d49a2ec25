#include "policy/limit_reader.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "core/compiled_limit.h"
#include "core/limit_problems.h"
#include "policy/fields.h"
#include "policy/number.h"

namespace headgate::policy {
namespace {

constexpr Span kAnyDuration{-Nanos::max(), Nanos::max()};

// Reads the parameters of one limit; each says what is wrong with it where it stands.
class Parameters {
 public:
  Parameters(const Scope& scope, const Node& node, Units scale, std::span<const Spelling> spellings)
      : scope_(scope), node_(node), scale_(scale), spellings_(spellings) {}

  [[nodiscard]] std::string spelled(std::string_view ours) const {
    for (const Spelling& spelling : spellings_) {
      if (spelling.ours == ours) return std::string(spelling.theirs);
    }
    return std::string(ours);
  }
  [[nodiscard]] const Node* get(std::string_view name) const { return node_.find(spelled(name)); }

  Units units(std::string_view name, bool required = true) { return scaled(name, scale_, required); }
  Units slots(std::string_view name, bool required = true) { return scaled(name, 1, required); }

  Nanos duration(std::string_view name, Nanos otherwise = Nanos{0}, bool required = true) {
    const Node* node = find(name, required);
    Nanos out = otherwise;
    if (node != nullptr && !read_duration(scope_, node, spelled(name), kAnyDuration, out)) unread(name);
    return out;
  }

  Rate rate(std::string_view name) {
    const Node* node = find(name, true);
    if (node == nullptr) return {};
    const auto rate = node->is_scalar() ? parse_rate(node->text, scale_) : std::nullopt;
    if (!rate) fail(name, *node, spelled(name) + " must be a rate such as 10, 10/s or 0.5/min, got " + shown(*node));
    return rate.value_or(Rate{});
  }

  // The limit of these numbers, or all that is wrong with those that could be read.
  template <class Numbers>
  std::optional<Limit> made(const Numbers& numbers, Result<Limit> (*make)(const Numbers&)) {
    const std::vector<Error> problems = core::problems_of(numbers);
    for (const Error& problem : problems) tell(problem.message);
    if (!problems.empty() || !unread_.empty()) return std::nullopt;
    return *make(numbers);
  }

  // That this parameter is wrong has been told.
  void unread(std::string_view name) { unread_.push_back(name); }
  [[nodiscard]] const Scope& scope() const { return scope_; }

 private:
  void fail(std::string_view name, const Node& node, const std::string& message) {
    scope_.problem(node, message);
    unread(name);
  }

  // At the place of the field that it begins with.
  void tell(std::string message) {
    const std::string field = message.substr(0, message.find(' '));
    if (std::find(unread_.begin(), unread_.end(), field) != unread_.end()) return;
    const Node* at = get(field);
    for (const Spelling& spelling : spellings_) {
      for (std::size_t i = 0; (i = message.find(spelling.ours, i)) != std::string::npos; i += spelling.theirs.size()) {
        message.replace(i, spelling.ours.size(), spelling.theirs);
      }
    }
    scope_.problem(at == nullptr ? node_ : *at, message);
  }

  const Node* find(std::string_view name, bool required) {
    const Node* node = get(name);
    if (node == nullptr && required) fail(name, node_, "limit must have " + spelled(name));
    return node;
  }

  Units scaled(std::string_view name, Units scale, bool required) {
    const Node* node = find(name, required);
    if (node == nullptr) return 0;
    const auto number = node->is_scalar() ? parse_decimal(node->text) : std::nullopt;
    if (!number) {
      fail(name, *node, spelled(name) + " must be a number, got " + shown(*node));
      return 0;
    }
    const auto units = number->times(scale);
    if (!units) {
      fail(name, *node,
           spelled(name) + (scale == 1 ? " must be a whole number" : " must have at most 6 decimals") + ", got " +
               shown(*node));
    } else if (scale > 1 && (*units < 0 || *units > core::kMostUnits)) {
      fail(name, *node,
           spelled(name) + " must be between 0 and " + std::to_string(core::kMostUnits / scale) + ", got " +
               shown(*node));
    }
    return units.value_or(0);
  }

  const Scope& scope_;
  const Node& node_;
  Units scale_;
  std::span<const Spelling> spellings_;
  std::vector<std::string_view> unread_;  // parameters that are missing or no numbers at all
};

std::optional<Limit> make_quota(Parameters& p) {
  Quota quota;
  quota.limit = p.units("limit");
  quota.burst_allowance = p.units("burst_allowance", false);
  const Node* period = p.get("period");
  if (period != nullptr && !read_enum<Period, 5>(p.scope(), period, p.spelled("period"), quota.period)) {
    p.unread("period");
  }
  const Node* zone = p.get("timezone");
  if (zone != nullptr && !read_string(p.scope(), zone, p.spelled("timezone"), 64, quota.timezone)) {
    p.unread("timezone");
  }
  return p.made(quota, Limit::quota);
}

std::optional<Limit> make(Parameters& p, Strategy strategy) {
  switch (strategy) {
    case Strategy::kTokenBucket: {
      const Units capacity = p.units("capacity");
      const Rate rate = p.rate("refill_rate");
      return p.made(TokenBucket{capacity, rate, p.units("burst_allowance", false)}, Limit::token_bucket);
    }
    case Strategy::kGcra: {
      const Units max_burst = p.units("max_burst");
      const Units count = p.units("count");
      const Nanos period = p.duration("period");
      return p.made(Gcra{max_burst, count, period, p.units("burst_allowance", false)}, Limit::gcra);
    }
    case Strategy::kLeakyBucket: {
      const Rate rate = p.rate("rate");
      return p.made(LeakyBucket{rate, p.units("queue")}, Limit::leaky_bucket);
    }
    case Strategy::kConcurrency: {
      const Units max = p.slots("max");
      const Nanos ttl = p.duration("lease_ttl", Concurrency{}.lease_ttl, false);
      return p.made(Concurrency{max, ttl, p.slots("burst_allowance", false)}, Limit::concurrency);
    }
    case Strategy::kQuota: return make_quota(p);
    default: break;
  }
  const Units limit = p.units("limit");
  const Nanos window = p.duration("window");
  const Window numbers{limit, window, p.units("burst_allowance", false)};
  if (strategy == Strategy::kSlidingWindow) return p.made(numbers, Limit::sliding_window);
  if (strategy == Strategy::kFixedWindow) return p.made(numbers, Limit::fixed_window);
  return p.made(numbers, Limit::sliding_window_counter);
}

constexpr std::string_view kForms =
    "limit must be a mapping with a strategy, a short form such as 50/60s, a list of these, or unlimited, got ";

// 50/60s, 10/min.
std::optional<Limit> read_short(const Scope& scope, const Node& node, Units scale) {
  const std::size_t slash = node.text.find('/');
  const auto number = parse_decimal(node.text.substr(0, slash));
  const auto window = slash == std::string::npos ? std::nullopt : parse_per(node.text.substr(slash + 1));
  if (!number || !window) {
    scope.problem(node, std::string(kForms) + shown(node));
    return std::nullopt;
  }
  const auto limit = number->times(scale);
  if (!limit) {
    scope.problem(node,
                  (scale == 1 ? "limit must be a whole number, got " : "limit must have at most 6 decimals, got ") +
                      base::shortened(node.text.substr(0, slash), 64));
    return std::nullopt;
  }
  const Window numbers{*limit, *window, 0};
  const std::vector<Error> problems = core::problems_of(numbers);
  for (const Error& problem : problems) scope.problem(node, problem.message);
  if (!problems.empty()) return std::nullopt;
  return *Limit::sliding_window(numbers);
}

std::optional<Limit> read_one(const Scope& scope, const Node& node, Units scale) {
  if (node.is_scalar()) return read_short(scope, node, scale);
  if (!node.is_mapping()) {
    scope.problem(node, std::string(kForms) + shown(node));
    return std::nullopt;
  }
  Strategy strategy{};
  const Node* name = node.find("strategy");
  if (name == nullptr) scope.problem(node, "limit must have strategy");
  const bool named = read_enum<Strategy, kStrategyCount>(scope, name, "strategy", strategy);
  std::vector<std::string> allowed = named ? parameters_of(strategy) : parameters_of_any();
  allowed.insert(allowed.begin(), "strategy");
  bool known = true;
  for (const Entry& entry : node.entries) {
    if (std::find(allowed.begin(), allowed.end(), entry.key) != allowed.end()) continue;
    unknown_key(scope, entry, named ? std::string("a ") + to_string(strategy) + " limit" : "any limit", allowed);
    known = false;
  }
  if (!named) return std::nullopt;
  const auto limit = read_parameters(scope, node, strategy, scale, {});
  return known ? limit : std::nullopt;
}

}  // namespace

std::vector<std::string> parameters_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kTokenBucket: return {"capacity", "refill_rate", "burst_allowance"};
    case Strategy::kGcra: return {"max_burst", "count", "period", "burst_allowance"};
    case Strategy::kLeakyBucket: return {"rate", "queue"};
    case Strategy::kConcurrency: return {"max", "lease_ttl", "burst_allowance"};
    case Strategy::kQuota: return {"limit", "period", "timezone", "burst_allowance"};
    default: return {"limit", "window", "burst_allowance"};
  }
}

std::vector<std::string> parameters_of_any() {
  std::vector<std::string> all;
  for (int i = 0; i < kStrategyCount; ++i) {
    for (std::string& name : parameters_of(static_cast<Strategy>(i))) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(std::move(name));
    }
  }
  return all;
}

std::optional<Limit> read_parameters(const Scope& scope, const Node& node, Strategy strategy, Units scale,
                                     std::span<const Spelling> spellings) {
  Parameters parameters(scope, node, scale, spellings);
  return make(parameters, strategy);
}

std::optional<std::vector<Limit>> read_limits(const Scope& scope, const Node& node, Units scale) {
  if (node.is_scalar() && node.text == "unlimited") return std::vector<Limit>{};
  if (!node.is_sequence()) {
    const auto limit = read_one(scope, node, scale);
    if (!limit) return std::nullopt;
    return std::vector<Limit>{*limit};
  }
  if (node.items.empty() || node.items.size() > kMaxLimits) {
    scope.problem(node, "limit must be a list of 1 to " + std::to_string(kMaxLimits) + ", got " +
                            std::to_string(node.items.size()));
    return std::nullopt;
  }
  std::vector<Limit> limits;
  for (const Node* item : node.items) {
    const auto limit = read_one(scope, *item, scale);
    if (limit) limits.push_back(*limit);
  }
  if (limits.size() < node.items.size()) return std::nullopt;
  return limits;
}

}  // namespace headgate::policy
