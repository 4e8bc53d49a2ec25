// The embeddable limiter: may this key have so many permits now?
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"
#include "headgate/decision.h"
#include "headgate/limit.h"
#include "headgate/result.h"

namespace headgate {

// What is known about one key. A bucket refills continuously, so it was last refilled just now; a window, when it
// began. Of several limits, available and capacity are those of the tightest; the rest is the first limit's.
struct Statistics {
  Units available = 0;
  Units capacity = 0;
  double rate = 0;  // units per second, of refill or of the window; 0: concurrency
  Nanos last_refill{0};
  std::uint64_t total_acquired = 0;  // calls, not units
  std::uint64_t total_throttled = 0;
  bool per_key = false;  // the totals are this key's (see Options::track_keys); else the whole limiter's
};

// Orders and bounds a wait.
struct AcquireOptions {
  Units permits = 1;
  Nanos max_wait{0};  // 0: do not wait
  int priority = 0;   // higher goes first; equals go in order of arrival
};

// What any limiter can do; implement it to put your own behind the decorator, or a fake into a test.
//
// Implementations are safe for concurrent use.
class Limiter {
 public:
  virtual ~Limiter() = default;

  // Takes the permits or nothing, at once.
  [[nodiscard]] virtual Decision try_acquire(std::string_view key, Units permits = 1) noexcept = 0;
  // Waits for the permits, at most options.max_wait.
  [[nodiscard]] virtual Decision acquire(std::string_view key, const AcquireOptions& options) = 0;
  // What try_acquire would answer; charges nothing.
  [[nodiscard]] virtual Decision peek(std::string_view key, Units permits = 1) const noexcept = 0;
  [[nodiscard]] virtual Statistics statistics(std::string_view key) const = 0;
  // Makes the key as if it had never been seen.
  virtual void clear(std::string_view key) noexcept = 0;
  // Ends the hold that Decision::lease names. False: it had ended, or the limiter holds nothing.
  virtual bool release(std::string_view /*key*/, LeaseId /*lease*/) noexcept { return false; }

  [[nodiscard]] Units remaining(std::string_view key) const noexcept { return peek(key, 0).remaining; }
};

// What becomes of the units in use when a limit is changed.
enum class OnChange : std::uint8_t {
  kKeepFraction,  // half used stays half used
  kKeepUnits,     // 50 used stay 50 used
  kReset,         // as if never seen
};

// What happens to a new key when `max_keys` cells exist and none of those looked at is idle. Counted either way.
enum class AtCap : std::uint8_t {
  kRefuseNew,    // the new key is denied with kTooManyKeys; what is known stays known
  kEvictOldest,  // of some cells near by, the one that would be idle first is forgotten
};

// One key's part of a call that takes several.
struct Request {
  std::string_view key;
  Units permits = 1;
};
// A call with more keys times limits than this is refused with kInvalidCost.
inline constexpr std::size_t kMaxKeysPerCall = 64;

class MemoryLimiter;

// Permits taken now for an act that may have to wait. Move-only; letting it go keeps the permits, cancel() returns
// them. Must not outlive its limiter.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() = default;

  [[nodiscard]] const Decision& decision() const noexcept { return decision_; }
  [[nodiscard]] bool ok() const noexcept { return decision_.allowed(); }
  // How long to wait before acting.
  [[nodiscard]] Nanos delay() const noexcept { return decision_.delay; }
  // Gives the permits back, as far as they still count. Does nothing the second time, or if the reservation failed.
  void cancel() noexcept;

 private:
  friend class MemoryLimiter;
  Decision decision_;
  MemoryLimiter* limiter_ = nullptr;
  std::uint64_t low_ = 0;  // the key's hash
  std::uint64_t high_ = 0;
  Units permits_ = 0;
  Nanos at_{0};       // when it was charged for
  Nanos wall_at_{0};  // the same by the wall clock
  Nanos turn_{0};     // when its turn comes
};

// A wait under way; see MemoryLimiter::acquire_async.
using WaitId = std::uint64_t;

// Everything a MemoryLimiter can be told. Build one in a sentence:
//   MemoryLimiter::make(Options().limit(l).max_keys(100'000).track_keys())
class Options {
 public:
  // Several limits all apply to each key, taken together or not at all. At least one, at most eight.
  Options& limit(Limit limit) {
    limits_.push_back(std::move(limit));
    return *this;
  }
  // Default: SystemClock::shared(). Not owned.
  Options& clock(Clock& clock) noexcept {
    clock_ = &clock;
    return *this;
  }
  // A cap on cells (keys times limits). Default ten million.
  Options& max_keys(std::size_t cells, AtCap at_cap = AtCap::kRefuseNew) noexcept {
    max_cells_ = cells;
    at_cap_ = at_cap;
    return *this;
  }
  // How many callers may wait at a time, over all keys. Default 10,000.
  Options& max_waiters(std::size_t waiters) noexcept {
    max_waiters_ = waiters;
    return *this;
  }
  // Keeps each key's name and totals, for statistics(key) and for_each_key: about 100 bytes and 50 ns more per key.
  Options& track_keys(bool track = true) noexcept {
    track_keys_ = track;
    return *this;
  }
  // Waits are served by a thread that starts with the first one. Without it, the owner calls poll().
  Options& own_thread(bool own) noexcept {
    own_thread_ = own;
    return *this;
  }
  // Default: random. A fixed seed makes shards, and so evictions, repeatable.
  Options& seed(std::uint64_t seed) noexcept {
    seed_ = seed;
    return *this;
  }

 private:
  friend class MemoryLimiter;
  std::vector<Limit> limits_;
  Clock* clock_ = nullptr;
  std::size_t max_cells_ = 10'000'000;
  AtCap at_cap_ = AtCap::kRefuseNew;
  std::size_t max_waiters_ = 10'000;
  bool track_keys_ = false;
  bool own_thread_ = true;
  std::optional<std::uint64_t> seed_;
};

// What a limiter as a whole has seen.
struct LimiterTotals {
  std::uint64_t acquired = 0;
  std::uint64_t throttled = 0;
  std::uint64_t cells = 0;
  std::uint64_t dropped_idle = 0;  // cells that had become equal to new ones
  std::uint64_t evicted = 0;       // cells forgotten at the cap
  std::uint64_t refused = 0;       // new keys denied at the cap
  std::uint64_t waiting = 0;
};

// Limits kept in memory, one or several per key.
//
// Safe for concurrent use; keys in different shards do not meet. try_acquire allocates only when it first sees a key
// (and, for sliding windows and concurrency, when a key's record grows). Cells that have become idle are dropped in
// small steps by the calls that pass by. Every call that depends on time has a twin that takes it; instants outside
// [0, kMaxTime] are clamped into it. If time goes backwards, a cell grants nothing twice; one that was idle at the
// later instant may be gone.
//
// Permits: 0 charges nothing and is allowed; more than the limit could ever hold is kNever; negative is kInvalidCost.
class MemoryLimiter final : public Limiter {
 public:
  [[nodiscard]] static Result<std::unique_ptr<MemoryLimiter>> make(const Options& options);
  ~MemoryLimiter() override;  // waits under way end as kCancelled
  MemoryLimiter(const MemoryLimiter&) = delete;
  MemoryLimiter& operator=(const MemoryLimiter&) = delete;

  [[nodiscard]] Decision try_acquire(std::string_view key, Units permits = 1) noexcept override;
  [[nodiscard]] Decision try_acquire_at(Nanos now, std::string_view key, Units permits = 1) noexcept;

  // Several keys, all or nothing. A key named twice is charged twice.
  [[nodiscard]] Decision try_acquire_all(std::span<const Request> requests) noexcept;
  [[nodiscard]] Decision try_acquire_all_at(Nanos now, std::span<const Request> requests) noexcept;

  // Several keys, each on its own, in order: faster than one by one, since memory is fetched ahead.
  // REQUIRES: decisions.size() >= requests.size().
  void try_acquire_many(std::span<const Request> requests, std::span<Decision> decisions) noexcept;
  void try_acquire_many_at(Nanos now, std::span<const Request> requests, std::span<Decision> decisions) noexcept;

  // Blocks. Nobody who waits on a key is overtaken on it, except by a higher priority.
  [[nodiscard]] Decision acquire(std::string_view key, const AcquireOptions& options) override;
  // Calls back exactly once, from this call if no wait is needed, else from the waiting thread or poll(). Returns 0 if
  // it has called back already. The callback may call the limiter; it must not throw or destroy it.
  WaitId acquire_async(std::string_view key, const AcquireOptions& options, std::function<void(const Decision&)> done);
  // Ends a wait with kCancelled. False: it had ended.
  bool cancel(WaitId wait);
  // Serves the waits that are due; returns the instant of the next one. Only needed with own_thread(false).
  Nanos poll();

  // Takes the permits for an act that happens within max_wait, at delay() from now. Later callers queue behind it.
  // A concurrency limit cannot be reserved ahead, since its slots come free when holders choose: one is held from now
  // on.
  [[nodiscard]] Reservation reserve(std::string_view key, Units permits = 1, Nanos max_wait = Nanos{0}) noexcept;
  [[nodiscard]] Reservation reserve_at(Nanos now, std::string_view key, Units permits, Nanos max_wait) noexcept;

  // Concurrency: ends or prolongs the hold that Decision::lease names. False: it had ended.
  bool release(std::string_view key, LeaseId lease) noexcept override;
  bool renew(std::string_view key, LeaseId lease) noexcept;

  [[nodiscard]] Decision peek(std::string_view key, Units permits = 1) const noexcept override;
  [[nodiscard]] Decision peek_at(Nanos now, std::string_view key, Units permits = 1) const noexcept;
  [[nodiscard]] Statistics statistics(std::string_view key) const override;
  [[nodiscard]] Statistics statistics_at(Nanos now, std::string_view key) const;
  [[nodiscard]] Units remaining_at(Nanos now, std::string_view key) const noexcept {
    return peek_at(now, key, 0).remaining;
  }
  // The wall-clock instant at which the key is whole again.
  [[nodiscard]] Nanos reset_time(std::string_view key) const noexcept;
  void clear(std::string_view key) noexcept override;

  // Changes the index-th limit for all keys from the next call on. The strategy must stay the same.
  Result<void> set_limit(const Limit& limit, OnChange how = OnChange::kKeepFraction, std::size_t index = 0);

  [[nodiscard]] LimiterTotals totals() const noexcept;
  // Visits none without Options::track_keys. Called under a shard's lock: be quick, and do not call the limiter.
  void for_each_key(
      const std::function<void(std::string_view key, std::uint64_t acquired, std::uint64_t throttled)>& visit) const;
  // Drops idle cells where nobody passes by, looking at up to `cells` of them.
  void maintain(std::size_t cells) noexcept;

  // Writes every cell to a file, whole or not at all. Each shard is held for microseconds.
  Result<void> save(const std::string& path) const;
  // Reads what save() wrote; returns how many cells came back. A torn or foreign file is refused and changes nothing.
  // So is any file once a key has been seen.
  Result<std::size_t> restore(const std::string& path);

 private:
  friend class Reservation;
  struct Impl;
  explicit MemoryLimiter(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headgate
