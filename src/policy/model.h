// What a policy document says, as plain values. Readers make it, compile() turns it into Rules.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/adaptive.h"
#include "control/backoff.h"
#include "control/load.h"
#include "headgate/check.h"
#include "headgate/limit.h"

namespace headgate::policy {

enum class Mode : std::uint8_t { kEnforce, kMonitor, kOff };
enum class Enforcement : std::uint8_t { kGraded, kStrict };
enum class Action : std::uint8_t { kBlock, kThrottle, kWarn, kLog };
enum class Behavior : std::uint8_t { kReject, kQueue };
enum class Missing : std::uint8_t { kSkip, kMatch };
enum class OnStoreFailure : std::uint8_t { kLocal, kOpen, kClosed };
enum class Consistency : std::uint8_t { kStrict, kLeased };
enum class Tier : std::uint8_t { kLight, kNormal, kHeavy };
inline constexpr int kTierCount = 3;

// The fields of a check that policies match on and build keys from. kAttribute needs a name.
enum class Dimension : std::uint8_t {
  kAgent,
  kSession,
  kUser,
  kTenant,
  kPlan,
  kOperation,
  kTier,
  kChannel,
  kContext,
  kResource,
  kIp,
  kAttribute,
};
inline constexpr int kDimensionCount = 12;

[[nodiscard]] const char* to_string(Mode mode) noexcept;
[[nodiscard]] const char* to_string(Enforcement enforcement) noexcept;
[[nodiscard]] const char* to_string(Action action) noexcept;
[[nodiscard]] const char* to_string(Behavior behavior) noexcept;
[[nodiscard]] const char* to_string(Missing missing) noexcept;
[[nodiscard]] const char* to_string(OnStoreFailure on_store_failure) noexcept;
[[nodiscard]] const char* to_string(Consistency consistency) noexcept;
[[nodiscard]] const char* to_string(Tier tier) noexcept;
[[nodiscard]] const char* to_string(Dimension dimension) noexcept;  // "agent"; kAttribute: "attr"

// Where something was written, for messages. Line and column count from 1; 0: not from a file.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

// Matches any of the patterns and none of those that begin with '!'. Only '!' patterns: anything else. A pattern is
// exact, a glob (`ui.*`, `*`, `?` for one character), or a path prefix (`tokens/`, ends in a slash). No patterns at
// all: the field does not matter.
using Patterns = std::vector<std::string>;

// What an attribute of a check must be.
struct AttributeRule {
  enum class Kind : std::uint8_t {
    kAnyOf,    // patterns; a number or boolean is compared by how it reads
    kRange,    // a number within [min, max]
    kAtMost,   // at most `level` on one of the ordered scales; `patterns` holds the admitted levels
    kBoolean,  // `boolean`
    kAbsent,   // the check does not have it
  };
  std::vector<std::string> names;  // the first of these that the check has is looked at
  Kind kind = Kind::kAnyOf;
  Patterns patterns;
  std::optional<double> min;
  std::optional<double> max;
  bool boolean = false;
  friend bool operator==(const AttributeRule&, const AttributeRule&) = default;
};

// Everything is optional; what is absent matches all.
struct Match {
  Patterns agents;
  Patterns operations;
  Patterns contexts;
  Patterns users;
  Patterns tenants;
  Patterns plans;
  Patterns channels;
  Patterns tiers;
  Patterns resources;
  Patterns sessions;
  Patterns ips;
  std::vector<AttributeRule> attributes;
  std::vector<control::LoadLevel> system_load;  // any of these levels; empty: does not matter
  std::optional<bool> emergency;
  bool unidentified = false;  // only checks without an agent (the built-in limits by ip)
  friend bool operator==(const Match&, const Match&) = default;
};

struct KeyPart {
  Dimension dimension = Dimension::kAgent;
  std::string attribute;  // with kAttribute
  friend bool operator==(const KeyPart&, const KeyPart&) = default;
};

struct Escalation {
  std::string to;
  std::uint32_t threshold = 1;
  Nanos time_window{0};  // 0: at once
  friend bool operator==(const Escalation&, const Escalation&) = default;
};

// Loop detection: the same agent doing the same operation with the same fingerprint in one session.
struct Repeat {
  std::vector<std::string> fingerprint;  // attributes
  friend bool operator==(const Repeat&, const Repeat&) = default;
};

// Numbers of their own for a stable share of the keys.
struct Variant {
  std::string name;
  std::uint32_t weight = 1;
  std::vector<Limit> limits;
  friend bool operator==(const Variant&, const Variant&) = default;
};

struct Policy {
  std::string id;
  std::string name;
  Mode mode = Mode::kEnforce;
  int priority = 0;  // lower is judged first
  Match match;
  Missing missing = Missing::kSkip;
  std::vector<KeyPart> key{{Dimension::kAgent, {}}};  // empty: one key for all
  std::string unit = "requests";
  std::vector<Limit> limits;  // counted in unit / unit_scale(unit); empty: unlimited (counted, never exceeded)
  Units least_cost = 0;       // a check is charged at least this much, counted as its limits are; 0: what it costs
  bool holds = true;          // false: the end of a hold gives nothing back
  Action action = Action::kBlock;
  Behavior behavior = Behavior::kReject;
  Nanos max_wait{std::chrono::seconds{5}};  // of throttle and queue
  double warn_at = 0.8;                     // fraction used; 1 or more: never
  std::string message;
  std::optional<Escalation> escalation;
  bool adaptive = true;
  std::optional<bool> sensors;  // whether its limits follow this machine's sensors; none: as the document says
  double rollout = 1.0;         // the fraction of keys for which it is enforced; the rest are monitored
  std::vector<Variant> variants;
  std::optional<Repeat> repeat;
  OnStoreFailure on_store_failure = OnStoreFailure::kLocal;
  Consistency consistency = Consistency::kStrict;
  std::optional<Tier> tier;  // set on the built-in tier limits, which overrides apply to
  bool built_in = false;     // one of those, or of the limits by ip: a denial's retry_after is in whole seconds
  Place place;
  friend bool operator==(const Policy&, const Policy&) = default;
};

// Requests, tokens and what else comes in whole numbers are counted one by one; all other units (usd) in millionths.
[[nodiscard]] Units unit_scale(std::string_view unit) noexcept;
// How many units of its cells one unit of a policy's cost is: unit_scale(), or 1 where all its limits count slots.
[[nodiscard]] Units cell_scale(const Policy& policy) noexcept;
// Its least_cost in its own unit; 0: it has none.
[[nodiscard]] double least_cost(const Policy& policy) noexcept;

struct TierLimit {
  Units capacity = 0;
  Units refill_per_minute = 0;
  friend bool operator==(const TierLimit&, const TierLimit&) = default;
};

// Which operations are light and heavy (patterns; all others are normal), and what each tier's agents may do.
struct Tiers {
  std::array<TierLimit, kTierCount> limits{TierLimit{120, 120}, TierLimit{60, 60}, TierLimit{10, 10}};
  std::array<Patterns, kTierCount> operations;  // filled with the built-in lists by default_tiers()
  TierLimit unidentified{60, 60};               // by ip
  TierLimit registration{5, 5};                 // by ip
};
[[nodiscard]] Tiers default_tiers();

struct LeaseSettings {
  Nanos ttl{std::chrono::seconds{60}};  // of holds on cost; a concurrency limit has a ttl of its own
};

struct QueueSettings {
  std::size_t max_waiting = 10'000;
};

// Which store a document asks for. It counts when the server starts, unless the server's configuration names one.
struct StoreWish {
  bool redis = false;
  std::string redis_url;  // empty: none is given
  Place place;
};

struct Document {
  Enforcement enforcement = Enforcement::kGraded;
  Mode mode = Mode::kEnforce;  // kMonitor: every policy is only monitored; kOff: none is evaluated
  std::vector<Policy> policies;
  // The tier limits are in force when no document has `policies:`, or when one has `tiers:`.
  bool has_policies = false;
  bool has_tiers = false;
  Tiers tiers = default_tiers();
  control::BackoffSettings backoff;
  control::AdaptiveSettings adaptive;
  LeaseSettings leases;
  QueueSettings queue;
  std::vector<std::string> exempt;
  std::optional<StoreWish> store;  // where cells are to be, by the shape with rate_limiting

  [[nodiscard]] bool tier_limits_apply() const noexcept { return has_tiers || !has_policies; }
};

// The built-in policies that `tiers` stands for: tier-light, tier-normal, tier-heavy, unidentified, registration.
// REQUIRES: every capacity and refill_per_minute is at least 1 and fits a token bucket, as readers have checked.
[[nodiscard]] std::vector<Policy> tier_policies(const Tiers& tiers);
// There are two buckets a tier, and a channel of one's own making is no third.
[[nodiscard]] constexpr std::string_view bucket_channel(std::string_view channel) noexcept {
  return channel == "ws" ? "ws" : "http";
}

// For people: units of its cells in the policy's own unit ("2.5"), and a limit in it ("sliding_window 50/60s").
[[nodiscard]] std::string describe(const Policy& policy, Units amount);
[[nodiscard]] std::string describe(const Policy& policy, const Limit& limit);

}  // namespace headgate::policy
