// Cells in memory: sharded by hash, each shard a lock of four bytes and two small tables.
//
// A charge list is judged and charged under the locks of all its shards: all of it or nothing. There are two ways. The
// optimistic one expects that every cell exists, is up to date and has room: it charges cell after cell, and takes all
// of it back at the first that does not fit. Then the general one judges all charges, decides (see store/verdict.h) and
// charges. The store knows no policies, no clock and, unless keys are tracked, no names.
//
// Limits that callers name themselves have a share of the cells. When that is full, at_cap says what becomes of their
// next one; all others may take the whole store, and at the cap the cells of callers make room for them.
//
// Ask::owner owns the cells that its charge lists make, and may be bounded in how many that are at a time. A cell keeps
// 16 bits of its owner, so that it is given back when the cell goes; owners whose names agree in these bits count
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

  // The optimistic way for one charge, without a list: the cell exists and is up to date. `done` is false where nothing
  // was done: apply() has to be called. `now` is by the clock that the limit follows. REQUIRES: keys are not tracked.
  [[nodiscard]] core::Outcome try_one(base::Hash128 key, const LiveLimit& live, Units cost, Nanos now, LeaseId lease,
                                      bool& done) noexcept;
  // The same for a strategy that is known at compile time; false: nothing was done. It is inlined and calls no
  // function, so that its caller saves few registers: it also gives up if the lock is taken, the cell is not in its
  // home bucket, or a sweep is due. REQUIRES: `live` is of this strategy.
  template <Strategy kStrategy>
  [[nodiscard]] bool try_one(base::Hash128 key, const LiveLimit& live, Units cost, Nanos now,
                             core::Outcome& outcome) noexcept;

  // All charges or none. REQUIRES: 1 <= charges.size() <= kMaxCharges, outcomes.size() >= charges.size(), costs >= 0.
  Applied apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes) noexcept;

  // Fetches the cells of several keys ahead of the calls that need them.
  void prefetch(std::span<const base::Hash128> keys, Strategy strategy) const noexcept;
  // The same for a key that is charged next: fetches its shard only.
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

  // Where a charge's cell is, or nullptr.
  struct Place {
    Word* words;
    std::uint64_t* high;
    [[nodiscard]] bool ahead() const noexcept { return (*high & Tag::kAhead) != 0; }
  };

  [[nodiscard]] Shard& shard_of(const base::Hash128& key) const noexcept { return shards_[key.low & shard_mask_]; }
  static void prefetch_cell(const Shard& shard, const base::Hash128& key, Strategy strategy) noexcept {
    if (words_of(strategy) == 2) {
      shard.small.prefetch(key.low);
    } else {
      shard.large.prefetch(key.low);
    }
  }
  // Locks each shard once. Returns how many there are: they come first then.
  static std::size_t lock_all(std::span<Shard*> shards) noexcept;
  [[nodiscard]] static bool is_current(const Place& place, std::uint32_t generation) noexcept {
    return place.words != nullptr && Tag::generation(*place.high) == (generation & Tag::kGenerationMask);
  }
  // After a list of one charge, now and then. REQUIRES: its shard is locked.
  void sweep_in_passing(std::span<const Charge> charges, const Ask& ask) noexcept {
    if (charges.size() != 1 || ask.effect == Effect::kNone) return;  // with kNone, `now` may be any instant
    Shard& shard = shard_of(charges[0].key);
    if ((shard.acquired + shard.throttled) % kCallsPerSweep == 0) sweep(shard, 1, std::min(ask.now, ask.wall));
  }

  // A cell as it was before one charge.
  struct Undo {
    Place place;
    const core::CompiledLimit* limit;
    std::uint64_t high;
    Word words[4];
    Nanos oldest;  // a ring of instants: the only entry that a charge of one unit may overwrite
    bool made;     // the charge has made the cell
  };
  static void remember(const Place& place, const core::CompiledLimit& limit, Undo& undo) noexcept;
  // Takes one charge back. REQUIRES: undo.place is still the cell's, and later charges of it were taken back before.
  void take_back(const Charge& charge, const Ask& ask, Nanos wait, const Undo& undo) noexcept;

  // The optimistic way. False: nothing was done. REQUIRES: the shards are locked, keys are not tracked, and something
  // is to be charged.
  [[nodiscard]] bool try_charges(std::span<const Charge> charges, const Ask& ask,
                                 std::span<core::Outcome> outcomes) noexcept;
  // The general way. REQUIRES: the shards are locked.
  Applied apply_locked(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes) noexcept;
  // Reads the limit as of `generation`: it may change meanwhile.
  [[nodiscard]] core::Outcome judge_cell(const Charge& charge, const Place& place, std::uint32_t generation,
                                         const Ask& ask, Units cost) noexcept;
  [[nodiscard]] bool charge_place(const Charge& charge, const Place& place, std::uint32_t generation, const Ask& ask,
                                  Nanos wait) noexcept;
  // What apply_locked() has found out about a charge list.
  struct Judged {
    std::array<std::uint32_t, kMaxCharges> generations;  // of the limits
    std::uint64_t skipped = 0;                           // bit i: the i-th charge is soft and does not fit
    std::uint64_t at_once = 0;                           // bit i: it is charged now, however long others have to wait
    bool share_full = false;                             // charge_all() failed because the owner has its share
    [[nodiscard]] Nanos wait_of(std::size_t i, Nanos wait) const noexcept {
      return (at_once >> i & 1) != 0 ? Nanos{0} : wait;
    }
  };
  // False: there was no room for a new cell or no memory, and everything is as it was (but for rounding in a sliding
  // window whose ring has grown).
  [[nodiscard]] bool charge_all(std::span<const Charge> charges, Judged& judged, const Ask& ask, Nanos wait) noexcept;
  void erase(Shard& shard, const Charge& charge) noexcept;
  [[nodiscard]] static Place find(Shard& shard, const base::Hash128& key, Strategy strategy) noexcept;
  [[nodiscard]] Place insert(Shard& shard, const Charge& charge, std::uint32_t generation, const Ask& ask) noexcept;
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

template <Strategy kStrategy>
[[gnu::always_inline]] inline bool MemoryStore::try_one(base::Hash128 key, const LiveLimit& live, Units cost, Nanos now,
                                                        core::Outcome& outcome) noexcept {
  static_assert(kStrategy == Strategy::kTokenBucket || kStrategy == Strategy::kSlidingWindow);
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
  if (!shard.lock.try_lock()) [[unlikely]]
    return false;
  const std::lock_guard guard(shard.lock, std::adopt_lock);
  const std::uint32_t generation = live.generation();
  const core::CompiledLimit& limit = live.entry(generation).limit;
  const std::uint64_t identity = Tag::identity(key.high, kStrategy);
  auto* cell = table.holds(seen) ? Table::find_at_home(*seen.home_of(key.low), key.low, identity) : nullptr;
  if (cell == nullptr || Tag::generation(cell->high) != (generation & Tag::kGenerationMask)) [[unlikely]]
    return false;
  if ((shard.acquired + shard.throttled) % kCallsPerSweep == kCallsPerSweep - 1) [[unlikely]]
    return false;

  if constexpr (kStrategy == Strategy::kTokenBucket) {
    const bool fits_ever = static_cast<std::uint64_t>(cost) - 1 < static_cast<std::uint64_t>(limit.most);
    if (!fits_ever || limit.numbers.bucket.den != 1) [[unlikely]]
      return false;
    const auto step = core::token_bucket_whole(load_bucket(cell->words), limit.numbers.bucket, cost, now);
    if (step.outcome.fits()) [[likely]]
      cell->words[0] = step.next.full_at.count();
    // Field by field: copying the struct stalls store forwarding.
    outcome.wait = step.outcome.wait;
    outcome.reset_after = step.outcome.reset_after;
    outcome.remaining = step.outcome.remaining;
    outcome.burst = step.outcome.burst;
  } else {
    if (cost != 1 || (cell->high & Tag::kAhead) != 0) [[unlikely]]
      return false;
    if (!charge_unit(limit.numbers.log, cell->words, false, now, outcome)) [[unlikely]]
      return false;
  }
  outcome.limit = limit.limit;
  if (outcome.fits()) [[likely]] {
    ++shard.acquired;
  } else {
    ++shard.throttled;
  }
  return true;
}

}  // namespace headgate::store
