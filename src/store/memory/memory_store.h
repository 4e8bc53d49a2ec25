// Cells in memory: sharded by hash, each shard a lock of four bytes and two small tables.
//
// A plan is judged and charged under the locks of all its shards, taken in order: all of it or nothing. The store knows
// no policies, no clock and no names (unless it is asked to keep them).
//
// Limits that callers name themselves have a share of the cells. When that is full, at_cap says what becomes of their
// next one; all others may take the whole store, and at the cap the cells of callers make room for them.
//
// The asker (Ask::owner) owns the cells that its plans make, and may be bounded in how many that are at a time. A cell
// keeps 16 bits of its owner, so that it is given back when the cell goes; owners whose names agree in these bits count
// together (one pair in 65,535). Only making and dropping cells costs anything. Threads that make cells at the same
// moment may exceed the bound by one each.
#pragma once

#include <array>
#include <cassert>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/spin_lock.h"
#include "headgate/limiter.h"
#include "store/charge.h"
#include "store/memory/cell_table.h"

namespace headgate::store {

struct MemoryStoreOptions {
  std::size_t max_cells = 10'000'000;
  std::size_t max_caller_cells = 0;  // of those, of limits that callers name; 0: half
  std::size_t max_owner_cells = 0;   // of those, made by one owner (see Ask::owner); 0: as many as there may be
  AtCap at_cap = AtCap::kRefuseNew;
  bool track_keys = false;
  std::uint64_t seed = 0;
};

// A tracked key's name and what it was answered.
struct KeyRecord {
  std::string name;
  std::uint64_t acquired = 0;
  std::uint64_t throttled = 0;
};

class MemoryStore {
 public:
  explicit MemoryStore(const MemoryStoreOptions& options);
  ~MemoryStore();
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  [[nodiscard]] base::Hash128 hash(std::string_view key) const noexcept { return hasher_(key); }
  [[nodiscard]] const base::Hasher& hasher() const noexcept { return hasher_; }

  // The cases that must be fast, without building a plan: a single token bucket or sliding window that exists and is up
  // to date. False: nothing was done, go the usual way. kHasty also gives up where the lock is taken or the cell not in
  // its first bucket: it calls nothing, so that its caller has few registers to save.
  // REQUIRES: `live` is of this strategy, and keys are not tracked.
  enum class Pace : std::uint8_t { kHasty, kPatient };
  template <Strategy kStrategy, Pace kPace>
  [[nodiscard]] bool try_short(base::Hash128 key, const LiveLimit& live, Units cost, Nanos now,
                               ShortAnswer& answer) noexcept;

  // The same for any strategy, a little slower. `now` is by the clock that the limit follows.
  // `done` is false where nothing was done: go the usual way. REQUIRES: keys are not tracked.
  [[nodiscard]] core::Outcome try_one(base::Hash128 key, const LiveLimit& live, Units cost, Nanos now, LeaseId lease,
                                      bool& done) noexcept;

  // All charges or none. REQUIRES: 1 <= charges.size() <= kMaxCharges, outcomes.size() >= charges.size(), costs >= 0.
  Applied apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes) noexcept;

  // Fetches the cells of several keys ahead of the calls that need them.
  void prefetch(std::span<const base::Hash128> keys, Strategy strategy) const noexcept;
  // The same for a key whose turn comes very soon: of the way there, what comes first.
  void prefetch_way(const base::Hash128& key) const noexcept { __builtin_prefetch(&shard_of(key), 1); }

  // Gives back what was charged at charged_at (by the steady timeline, or the wall clock for limits that follow it; for
  // a leaky bucket, the instant of its turn).
  void refund(const Charge& charge, Nanos charged_at, Nanos now) noexcept;
  // Counts a denial that was decided elsewhere, or was asked not to be counted when it was.
  void count_denial(const Charge& charge) noexcept;
  bool release(const Charge& charge, LeaseId lease, Nanos now) noexcept;
  bool renew(const Charge& charge, LeaseId lease, Nanos now) noexcept;
  void clear(const Charge& charge) noexcept;
  // All cells of limits that callers have named; returns how many that were.
  std::size_t clear_callers() noexcept;
  [[nodiscard]] std::size_t cells() const noexcept { return cells_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t caller_cells() const noexcept { return callers_.load(std::memory_order_relaxed); }

  // From the next call on, cells of this limit are judged by the new numbers. REQUIRES: the strategy is the same.
  void change(LiveLimit& live, const core::CompiledLimit& limit, OnChange how);
  // The same for many at once, for little more than the price of one. REQUIRES: no limit is named twice.
  struct Change {
    LiveLimit* live;
    core::CompiledLimit limit;
    OnChange how;
  };
  void change(std::span<const Change> changes);

  // Looks at up to `cells` cells, wherever the last call stopped, and drops the idle ones.
  void maintain(std::size_t cells, Nanos idle_before) noexcept;

  [[nodiscard]] LimiterTotals totals() const noexcept;
  [[nodiscard]] std::optional<KeyRecord> record(base::Hash128 key) const;
  void for_each_record(const std::function<void(const KeyRecord&)>& visit) const;

  // `meta` is the caller's, given back by restore(). See snapshot.cc for the format.
  Result<void> save(const std::string& path, std::string_view meta, Nanos now) const;
  // Sees the meta data before any cell is put in place; an Error refuses the file.
  using AcceptMeta = std::function<Result<void>(std::string_view meta)>;
  // Takes over the file's seed. An Error where the store is not empty.
  Result<std::size_t> restore(const std::string& path, Nanos now, const AcceptMeta& accept);

 private:
  struct KeyHasher {
    std::size_t operator()(const base::Hash128& hash) const noexcept { return hash.low; }
  };
  using Records = std::unordered_map<base::Hash128, KeyRecord, KeyHasher>;

  struct alignas(64) Shard {
    mutable base::SpinLock lock;
    std::uint32_t small_cursor = 0;  // where sweeping goes on
    CellTable<2> small;
    CellTable<4> large;
    std::uint32_t large_cursor = 0;
    std::uint64_t acquired = 0;
    std::uint64_t throttled = 0;
  };
  static_assert(sizeof(Shard) == 64);

  static constexpr std::uint64_t kCallsPerSweep = 64;
  using Generations = std::array<std::uint32_t, kMaxCharges>;  // of the limits of a plan

  // Where a charge's cell is, or nullptr.
  struct Place {
    Word* words;
    std::uint64_t* high;
    [[nodiscard]] bool ahead() const noexcept { return (*high & Tag::kAhead) != 0; }
  };

  // Plans of up to so many charges, which are to be charged now, may pass quickly where keys are not tracked.
  static constexpr std::size_t kMostQuick = 8;

  [[nodiscard]] Shard& shard_of(const base::Hash128& key) const noexcept { return shards_[key.low & shard_mask_]; }
  static void prefetch_cell(const Shard& shard, const base::Hash128& key, Strategy strategy) noexcept {
    if (words_of(strategy) == 2) {
      shard.small.prefetch(key.low);
    } else {
      shard.large.prefetch(key.low);
    }
  }
  [[nodiscard]] core::Outcome charge_one(Shard& shard, const Place& place, const core::CompiledLimit& limit, Units cost,
                                         Nanos now, LeaseId lease, bool& done) noexcept;
  // Locks each of them once, and says how many that are: they come first then. In the order of their addresses, so that
  // no two plans wait for one another.
  static std::size_t lock_in_order(std::span<Shard*> shards) noexcept;
  // Tries the quick pass first. REQUIRES: the plan may pass quickly (see kMostQuick).
  Applied apply_quickly(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes) noexcept;
  Applied apply_locked(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes) noexcept;
  // After a plan of one charge, now and then. REQUIRES: its shard is locked.
  void sweep_in_passing(std::span<const Charge> charges, const Ask& ask) noexcept {
    if (charges.size() != 1 || ask.effect == Effect::kNone) return;  // when only looking, `now` may be any instant
    Shard& shard = shard_of(charges[0].key);
    if ((shard.acquired + shard.throttled) % kCallsPerSweep == 0) sweep(shard, 1, std::min(ask.now, ask.wall));
  }
  // The usual case: every cell exists, is up to date, and has room. Charges one after the other, and takes all of it
  // back if one does not fit. False: nothing was done, go the long way.
  // REQUIRES: the shards are locked; see kMostQuick.
  [[nodiscard]] bool try_plan(std::span<const Charge> charges, const Ask& ask,
                              std::span<core::Outcome> outcomes) const noexcept;
  // How to take one charge back.
  struct Undo {
    // What was changed; kInstant: all but the second word, and the ring.
    enum class Kind : std::uint8_t { kFirstWord, kSecondWord, kInstant, kAll };
    const core::CompiledLimit* limit;
    Place place;
    Word first;   // the cell as it was
    Word second;  // kInstant: the ring's oldest instant
    Word third;
    Word fourth;
    std::uint64_t high;
    Kind kind;
  };
  // False: nothing was done. All but the limit is said in the outcome. REQUIRES: undo.place is the charge's cell, which
  // is up to date, and 0 < cost <= most.
  [[nodiscard]] static bool charge_quickly(const Charge& charge, const core::CompiledLimit& limit, const Ask& ask,
                                           core::Outcome& outcome, Undo& undo) noexcept;
  [[nodiscard]] static bool quick_bucket(const Charge& charge, const core::CompiledLimit& limit, const Ask& ask,
                                         core::Outcome& outcome, Undo& undo) noexcept;
  [[nodiscard]] static bool quick_instant(const Charge& charge, const core::CompiledLimit& limit, const Ask& ask,
                                          core::Outcome& outcome, Undo& undo) noexcept;
  [[nodiscard]] static bool quick_window(const Charge& charge, const core::CompiledLimit& limit, const Ask& ask,
                                         core::Outcome& outcome, Undo& undo) noexcept;
  [[nodiscard]] static bool quick_any(const Charge& charge, const core::CompiledLimit& limit, const Ask& ask,
                                      core::Outcome& outcome, Undo& undo) noexcept;
  static void take_back(const Undo& undo) noexcept;
  // Quotas whose period has begun and has room, all of them or none: false. REQUIRES: as for try_plan().
  [[nodiscard]] bool quick_quotas(std::span<const Charge> charges, const Ask& ask,
                                  core::Outcome* outcomes) const noexcept;
  template <int kWords>
  [[nodiscard]] static Place find_soon(const CellTable<kWords>& table, const Charge& charge,
                                       Strategy strategy) noexcept;
  [[nodiscard]] static bool may_pass(const Charge& charge, const Place& place, Undo& undo) noexcept;
  [[nodiscard]] core::Outcome judge_cell(const Charge& charge, const Place& place, std::uint32_t generation,
                                         const Ask& ask, Units cost) noexcept;
  [[nodiscard]] bool charge_cell(const Charge& charge, std::uint32_t generation, const Ask& ask, Nanos wait) noexcept;
  [[nodiscard]] bool charge_place(const Charge& charge, const Place& place, std::uint32_t generation, const Ask& ask,
                                  Nanos wait) noexcept;
  // What apply_locked() finds out while it judges.
  struct Plan {
    Generations generations;
    std::array<Place, kMaxCharges> places;
    std::uint64_t skipped = 0;  // bit i: the i-th charge is soft and does not fit
    std::uint64_t at_once = 0;  // bit i: it is charged now, however long others have to wait
    bool all_exist = true;
    bool share_full = false;  // charge_all() failed because the owner has its share
    [[nodiscard]] Nanos wait_of(std::size_t i, Nanos wait) const noexcept {
      return (at_once >> i & 1) != 0 ? Nanos{0} : wait;
    }
  };
  // Whether every leaky bucket's turn comes within the caller's patience; says in the outcomes when it does.
  [[nodiscard]] bool turns_in_time(std::span<const Charge> charges, const Plan& plan, const Ask& ask, Applied& applied,
                                   std::span<core::Outcome> outcomes) noexcept;
  // False: there was no room for a new cell, and everything is as it was (but for rounding, where memory ran out).
  [[nodiscard]] bool charge_all(std::span<const Charge> charges, Plan& plan, const Ask& ask, Nanos wait) noexcept;
  // Bit i: the i-th charge made its cell, was written.
  struct Progress {
    std::uint64_t made = 0;
    std::uint64_t charged = 0;
  };
  void take_back(std::span<const Charge> charges, const Plan& plan, const Ask& ask, Nanos wait,
                 Progress progress) noexcept;
  void erase(Shard& shard, const Charge& charge) noexcept;
  [[nodiscard]] static Place find(Shard& shard, const base::Hash128& key, Strategy strategy) noexcept;
  [[nodiscard]] Place insert(Shard& shard, const Charge& charge, Strategy strategy, const Ask& ask) noexcept;
  void bring_up_to_date(const LiveLimit& live, std::uint32_t generation, std::uint32_t own, Word* words, bool& ahead,
                        Nanos now) const noexcept;
  enum class For : std::uint8_t { kCallers, kOthers };
  [[nodiscard]] bool make_room(Shard& shard, Nanos idle_before, For whom) noexcept;
  [[nodiscard]] bool evict(Shard& shard, std::uint32_t steps, const CellsOf& which) noexcept;
  // The owner as a cell's `high` has it; 0: there is none, or owners are not bounded.
  [[nodiscard]] std::uint64_t owner_bits(std::string_view owner) const noexcept;
  [[nodiscard]] bool has_share(std::uint64_t owner) const noexcept {
    return owner != 0 && owners_[Tag::owner(owner)].load(std::memory_order_relaxed) >= max_owner_cells_;
  }
  std::size_t sweep(Shard& shard, std::uint32_t steps, Nanos idle_before) noexcept;  // how many it dropped
  // Accounts for a cell that is about to go.
  void forget(Shard& shard, std::uint64_t low, std::uint64_t high) noexcept;
  // Adds a cell with no words set, or an empty Place where there is no room for it.
  [[nodiscard]] Place place_new(Shard& shard, std::uint64_t low, std::uint64_t high, Nanos idle_before) noexcept;
  // Under the shard's lock, on the cell brought up to date. False: there is none, or `act` said so.
  template <class Act>
  bool on_cell(const Charge& charge, Nanos now, Act act) noexcept;
  [[nodiscard]] Records& records_of(const Shard& shard) const noexcept { return records_[&shard - shards_.get()]; }
  // As much of the hash as a cell keeps.
  [[nodiscard]] static base::Hash128 record_key(const base::Hash128& key) noexcept {
    return {key.low, key.high & Tag::kHash};
  }
  void count(Shard& shard, const Charge& charge, bool admitted) noexcept;
  template <class Act>
  void each_shard(Act act) const {
    for (std::size_t i = 0; i <= shard_mask_; ++i) {
      const std::lock_guard guard(shards_[i].lock);
      act(shards_[i]);
    }
  }
  // Waits until every call that may have read something before has left the store.
  void quiesce() const noexcept;

  base::Hasher hasher_;
  std::size_t max_cells_;
  std::size_t max_caller_cells_;
  std::size_t max_owner_cells_;
  AtCap at_cap_;
  std::uint64_t shard_mask_;
  std::unique_ptr<Shard[]> shards_;
  std::unique_ptr<Records[]> records_;  // one per shard, if keys are tracked
  std::atomic<std::size_t> cells_{0};
  std::atomic<std::size_t> callers_{0};                   // of those, of limits that callers have named
  std::unique_ptr<std::atomic<std::uint32_t>[]> owners_;  // cells by owner; nullptr: owners are not bounded
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<std::uint64_t> evicted_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::size_t> maintained_{0};  // the shard where maintain() goes on
};

inline MemoryStore::Place MemoryStore::find(Shard& shard, const base::Hash128& key, Strategy strategy) noexcept {
  const std::uint64_t identity = Tag::identity(key.high, strategy);
  if (words_of(strategy) == 2) {
    auto* cell = shard.small.find(key.low, identity);
    return cell == nullptr ? Place{} : Place{cell->words, &cell->high};
  }
  auto* cell = shard.large.find(key.low, identity);
  return cell == nullptr ? Place{} : Place{cell->words, &cell->high};
}

template <Strategy kStrategy, MemoryStore::Pace kPace>
[[gnu::always_inline]] inline bool MemoryStore::try_short(base::Hash128 key, const LiveLimit& live, Units cost,
                                                          Nanos now, ShortAnswer& answer) noexcept {
  assert(live.strategy() == kStrategy);
  assert(records_ == nullptr);
  using Table = CellTable<words_of(kStrategy)>;
  Shard& shard = shard_of(key);
  const Table& table = [&]() -> const Table& {
    if constexpr (words_of(kStrategy) == 2) {
      return shard.small;
    } else {
      return shard.large;
    }
  }();
  // Taking the lock waits for all earlier stores: find and fetch the bucket meanwhile.
  const auto seen = table.extent();
  seen.prefetch(key.low);
  if constexpr (kPace == Pace::kPatient) {
    shard.lock.lock();
  } else if (!shard.lock.try_lock()) [[unlikely]] {
    return false;
  }
  const std::lock_guard guard(shard.lock, std::adopt_lock);
  const std::uint32_t generation = live.generation();
  const core::CompiledLimit& limit = live.entry(generation).limit;
  const std::uint64_t identity = Tag::identity(key.high, kStrategy);
  auto* cell = table.holds(seen) ? Table::find_at_home(*seen.home_of(key.low), key.low, identity) : nullptr;
  if (kPace == Pace::kPatient && cell == nullptr) [[unlikely]]
    cell = table.find(key.low, identity);
  if (cell == nullptr || Tag::generation(cell->high) != (generation & Tag::kGenerationMask)) [[unlikely]]
    return false;
  const bool passing = (shard.acquired + shard.throttled) % kCallsPerSweep == kCallsPerSweep - 1;
  if (kPace == Pace::kHasty && passing) [[unlikely]]
    return false;

  if constexpr (kStrategy == Strategy::kTokenBucket) {
    const bool fits_ever = static_cast<std::uint64_t>(cost) - 1 < static_cast<std::uint64_t>(limit.most);
    if (!fits_ever || limit.numbers.bucket.den != 1) [[unlikely]]
      return false;
    const auto step = core::token_bucket_whole(load_bucket(cell->words), limit.numbers.bucket, cost, now);
    if (step.outcome.fits()) [[likely]]
      cell->words[0] = step.next.full_at.count();
    answer.remaining = step.outcome.remaining;
    answer.wait = step.outcome.wait;
    answer.reset_after = step.outcome.reset_after;
    answer.burst = step.outcome.burst;
  } else {
    static_assert(kStrategy == Strategy::kSlidingWindow);
    if (cost != 1 || (cell->high & Tag::kAhead) != 0) [[unlikely]]
      return false;
    if (!charge_instant(limit.numbers.log, cell->words, now, answer)) [[unlikely]]
      return false;
  }
  answer.limit = limit.limit;
  if (answer.wait == Nanos{0}) [[likely]] {
    ++shard.acquired;
  } else {
    ++shard.throttled;
  }
  if (kPace == Pace::kPatient && passing) sweep(shard, 1, now);
  return true;
}

}  // namespace headgate::store
