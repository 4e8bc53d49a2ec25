// Who has passed a limit lately, and how often: what back-off, schedulers and the list of offenders read.
//
// Safe for concurrent use. While no agent is rate limited, a question costs one relaxed load; otherwise a hash and a
// shard's lock. record() allocates when it first sees an agent. A name is known by its 128-bit hash; its first
// 128 bytes are kept to be shown. An agent is not a user or an address of the same name.
//
// Holds at most max_agents. A new agent beyond that takes the place of the least recently violating one in its shard,
// so one that is quiet by now goes before any that is not; agents evicted while still rate limited are counted. As
// agents spread over shards by hash, a large table may begin to evict some percent before it is full.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "control/backoff.h"

namespace headgate::control {

// Sustained abuse: so many violations, the first of them less than the window ago.
inline constexpr std::size_t kSustainedCount = 10;
inline constexpr Nanos kSustainedWindow = std::chrono::minutes{5};

// Who is recorded: names of different kinds are different subjects.
struct Subject {
  enum class Kind : std::uint8_t { kAgent, kUser, kAddress, kUnidentified };
  std::string_view name;
  Kind kind = Kind::kAgent;

  Subject(std::string_view agent) noexcept : name(agent) {}
  Subject(const char* agent) noexcept : name(agent) {}
  Subject(const std::string& agent) noexcept : name(agent) {}
  Subject(std::string_view its_name, Kind its_kind) noexcept : name(its_name), kind(its_kind) {}
};

struct Offender {
  std::string agent;  // or whatever name its kind has
  std::uint32_t consecutive = 0;
  std::uint32_t recent = 0;  // in the last five minutes, counted up to kSustainedCount
  std::uint64_t total = 0;   // since it was last forgotten
  Nanos last{0};
  Subject::Kind kind = Subject::Kind::kAgent;
};

class Violations {
 public:
  struct Settings {
    BackoffSettings backoff{};
    std::size_t max_agents = 100'000;
    std::uint64_t seed = base::random_seed();
  };
  struct Recorded {
    Nanos retry_after{0};
    // True once per episode: with its tenth violation in five minutes. Again only after a quiet period and ten new
    // ones.
    bool sustained = false;
  };
  struct Totals {
    std::size_t agents = 0;
    std::uint64_t evicted = 0;  // while still rate limited, for want of room
  };

  explicit Violations(const Settings& settings);

  Recorded record(const Subject& subject, Nanos now);

  [[nodiscard]] bool rate_limited(const Subject& subject, Nanos now) const noexcept;
  // How long the agent's checks are still denied unseen; 0 unless back-off is enforced.
  [[nodiscard]] Nanos blocked_for(const Subject& subject, Nanos now) const noexcept;
  // The rate limited agents with the most violations, at most `count` of them, the worst first.
  [[nodiscard]] std::vector<Offender> top(std::size_t count, Nanos now) const;
  [[nodiscard]] Totals totals() const noexcept;

  // As if the agent had never violated anything. True: there was something to forget.
  bool forgive(const Subject& subject);
  // Forgets at most `most` agents whose last violation no longer counts for anything; returns how many. Meant to be
  // called every so often with a small `most`: no lock is held for longer than that.
  std::size_t forget_quiet(Nanos now, std::size_t most);
  // New steps and another quiet period, for what was recorded before as well. REQUIRES: validate(backoff).
  void configure(const BackoffSettings& backoff);

 private:
  struct Entry {
    base::Hash128 id;
    std::string name;
    Subject::Kind kind = Subject::Kind::kAgent;
    BackoffState backoff;
    std::uint64_t total = 0;
    std::array<Nanos, kSustainedCount> instants{};  // a ring of the latest, by total
    std::uint64_t notified_at = 0;                  // the total at the last notification; 0: none
    bool notified = false;                          // in this episode

    [[nodiscard]] std::uint32_t recent(Nanos now) const noexcept;
  };
  struct ById {
    std::size_t operator()(const base::Hash128& id) const noexcept { return id.high; }
  };
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::list<Entry> entries;  // the least recently violating first
    std::unordered_map<base::Hash128, std::list<Entry>::iterator, ById> index;
    BackoffSettings backoff{};
    Nanos latest{0};  // violation
  };

  [[nodiscard]] Shard& shard_of(const base::Hash128& id) const noexcept { return shards_[id.low & shard_mask_]; }
  [[nodiscard]] base::Hash128 id_of(const Subject& subject) const noexcept {
    return base::hash128(subject.name, seeds_[static_cast<std::size_t>(subject.kind)]);
  }
  Entry& place(Shard& shard, const base::Hash128& id, const Subject& subject, Nanos now);
  void erase_first(Shard& shard);
  void raise_active_until(Nanos instant) noexcept;
  // What `ask` says of the agent's entry, under its lock; `otherwise` if there is none.
  template <class Answer, class Ask>
  [[nodiscard]] Answer look(const Subject& subject, Nanos now, Answer otherwise, const Ask& ask) const noexcept;

  std::array<std::uint64_t, 4> seeds_;  // by kind
  std::size_t shard_mask_;
  std::size_t max_per_shard_;
  std::unique_ptr<Shard[]> shards_;
  std::atomic<std::int64_t> active_until_{0};  // no agent is rate limited at or after this instant
  std::atomic<std::size_t> agents_{0};
  std::atomic<std::uint64_t> evicted_{0};
  std::atomic<std::size_t> next_shard_{0};  // where forget_quiet() goes on
};

}  // namespace headgate::control
