// Policies at work: compiled rules, and for each of their limits the live numbers that cells are judged by.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/counters.h"
#include "policy/rules.h"
#include "store/live_limit.h"

namespace headgate::store {
class MemoryStore;
}

namespace headgate::engine {

// Whether load and emergencies change its numbers. A policy that is there for emergencies alone means what it says.
[[nodiscard]] inline bool scales(const policy::Policy& policy) noexcept {
  return policy.adaptive && !policy.match.emergency.value_or(false);
}

// What adaptive limits are multiplied by: where only reported load counts, and where this machine's sensors do as well.
struct Factors {
  double reported = 1;
  double sensed = 1;
  bool sensors = false;  // which of the two the document means

  [[nodiscard]] double document() const noexcept { return sensors ? sensed : reported; }
  [[nodiscard]] double of(const policy::Policy& policy) const noexcept {
    if (!scales(policy)) return 1;
    return policy.sensors.value_or(sensors) ? sensed : reported;
  }
  friend bool operator==(const Factors&, const Factors&) = default;
};

// The numbers that cells are judged by, and the limit that they come from.
struct LiveNumbers {
  explicit LiveNumbers(const Limit& limit) : live(core::compile(limit)), stands(limit) {}
  store::LiveLimit live;
  Limit stands;  // read and written by the book only
};

// One limit and where its cells are: a cell's key is the salt mixed with the check's key.
struct WorkingLimit {
  std::shared_ptr<LiveNumbers> numbers;
  base::Hash128 salt;
  double unit = 1;  // of cost: what one unit of a cell stands for; a slot is a slot whatever the policy counts
  std::shared_ptr<LiveNumbers> local;  // this node's share, while the store is away; nullptr: cells are in this process
  Limit base;                          // before any scaling
};

// The limits of a policy, or of one of its variants.
struct Strand {
  std::string variant;          // empty: the policy has none
  std::uint32_t share_end = 0;  // of all weights so far: keys below it take this strand
  std::vector<WorkingLimit> limits;
  Counters::Id counter = 0;
};

// What a check reads of a policy comes first and lies together.
struct WorkingPolicy {
  const policy::Policy* policy = nullptr;
  std::uint64_t key = 0;    // its dimensions, four bits each and one more than they count, while `attributes` is false
  std::uint16_t unit = 0;   // index into Ruleset::units
  double scale = 1;         // units of a cell per unit of cost
  Units least = 0;          // a check is charged at least this much; 0: what it costs
  double warn_at = 1;       // of the limit
  bool soft = false;        // exceeding it only warns or logs
  bool split = false;       // into variants, or into those enforced and those monitored
  bool attributes = false;  // are part of the key
  bool enforced = true;     // by its mode
  bool leased = false;      // may be answered from units taken ahead
  bool tiered = false;      // a built-in limit of a tier, which an agent's own may stand in for
  Nanos patience{0};        // how long it may be waited for
  std::uint32_t enforced_share = 0;  // of 1,000,000
  std::vector<Strand> strands;

  // How much of a limit must be used for its nearing end to be told; rounding does not count.
  [[nodiscard]] static double warns_from(double warn_at, double limit) noexcept { return warn_at * limit - 1e-9; }
};

// More units than this in one set of policies are refused.
inline constexpr std::size_t kMaxUnits = 32;

struct Ruleset {
  Ruleset(policy::Document document, std::uint64_t seed) : rules(std::move(document), seed) {}
  policy::Rules rules;
  std::vector<WorkingPolicy> policies;  // as in rules.policies()
  std::vector<std::string> units;       // that any policy counts
};

// Hands out live limits, the same one again for as long as a limit keeps its identity: its policy, variant, strategy,
// key and unit. So cells live on when a document is loaded anew, and when only numbers changed, windows go on from what
// they have counted and buckets are as full as they were, in proportion.
//
// Not safe for concurrent use: Controls calls it under its lock.
class LimitBook {
 public:
  // `share`: what this node admits of a limit while a remote store is away; 0: there is none.
  LimitBook(store::MemoryStore& store, Counters& counters, double share)
      : store_(store), counters_(counters), share_(share) {}

  // Numbers that are to change, gathered so that they change together.
  using Changes = std::vector<std::pair<LiveNumbers*, Limit>>;

  // Gives the rules their limits. Nothing changes for those who use some of them already before apply().
  void equip(Ruleset& rules, std::uint64_t seed, const Factors& factors, Changes& changes);
  [[nodiscard]] WorkingLimit limit(const std::string& identity, const Limit& base, std::uint64_t seed, double factor,
                                   Changes& changes);
  void scale(const Ruleset& rules, const Factors& factors, Changes& changes) const;
  void scale(const WorkingLimit& limit, double factor, Changes& changes) const;
  // `how` cells are carried over, if not as their strategy suggests.
  void apply(const Changes& changes, std::optional<OnChange> how = {});
  // From the next scale() on.
  void set_share(double share) noexcept { share_ = share; }

 private:
  [[nodiscard]] std::shared_ptr<LiveNumbers> numbers(const std::string& identity, const Limit& limit);

  store::MemoryStore& store_;
  Counters& counters_;
  double share_;
  std::unordered_map<std::string, std::weak_ptr<LiveNumbers>> limits_;
};

}  // namespace headgate::engine
