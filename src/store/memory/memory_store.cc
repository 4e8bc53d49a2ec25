#include "store/memory/memory_store.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <limits>
#include <mutex>
#include <new>

#include "store/verdict.h"

namespace headgate::store {
namespace {

using core::CompiledLimit;
using core::Outcome;

constexpr std::size_t kMaxShards = 4096;
constexpr std::size_t kCellsPerShard = 256;     // below this many cells per shard, at the cap, fewer shards do
constexpr std::uint32_t kBucketsPerInsert = 2;  // swept with each new key
constexpr std::uint32_t kBucketsAtCap = 16;     // searched for room at the cap
constexpr std::size_t kFewCells = 8192;         // with their shards, within most cores' own cache

// By the clock that this limit follows.
Nanos time_for(const CompiledLimit& limit, const Ask& ask) noexcept {
  return limit.follows_wall() ? ask.wall : ask.now;
}
Nanos idle_before(const Ask& ask) noexcept { return std::min(ask.now, ask.wall); }

bool has_instants(const Word* words) noexcept {
  return (static_cast<std::uint64_t>(words[2]) & RingWord::kInstantsOnly) != 0;
}
// Whether the ring of the words is still where and as large as it was.
bool same_ring(const Word* before, const Word* words) noexcept {
  const auto capacity = [](const Word* w) { return RingWord::capacity(static_cast<std::uint64_t>(w[2])); };
  return before[1] == words[1] && has_instants(words) && capacity(before) == capacity(words);
}
Nanos& oldest_instant(const Word* words) noexcept {
  return reinterpret_cast<Nanos*>(words[1])[RingWord::head(static_cast<std::uint64_t>(words[2]))];
}
// The address is a number: there may be no ring, and a prefetch from any address does no harm.
void prefetch_ring(const Word* words) noexcept {
  const auto ring = static_cast<std::uintptr_t>(words[1]);
  const std::uintptr_t oldest = ring + sizeof(Nanos) * RingWord::head(static_cast<std::uint64_t>(words[2]));
  __builtin_prefetch(reinterpret_cast<const void*>(oldest), 1);
}

}  // namespace

MemoryStore::MemoryStore(const MemoryStoreOptions& options)
    : hasher_(options.seed),
      max_cells_(options.max_cells),
      max_caller_cells_(options.max_caller_cells == 0 ? std::max<std::size_t>(options.max_cells / 2, 1)
                                                      : options.max_caller_cells),
      max_owner_cells_(options.max_owner_cells),
      at_cap_(options.at_cap) {
  const std::size_t shards = std::clamp<std::size_t>(std::bit_ceil(options.max_cells / kCellsPerShard), 1, kMaxShards);
  shard_mask_ = shards - 1;
  shards_ = std::make_unique<Shard[]>(shards);
  if (options.track_keys) records_ = std::make_unique<Records[]>(shards);
  if (max_owner_cells_ > 0 && max_owner_cells_ < max_cells_) {
    owners_ = std::make_unique<std::atomic<std::uint32_t>[]>(Tag::kOwners);
  }
}

MemoryStore::~MemoryStore() = default;

Applied MemoryStore::apply(std::span<const Charge> charges, const Ask& ask, std::span<Outcome> outcomes) noexcept {
  assert(!charges.empty() && charges.size() <= kMaxCharges && outcomes.size() >= charges.size());
  assert(std::ranges::all_of(charges, [](const Charge& charge) { return charge.cost >= 0; }));
  std::array<Shard*, kMaxCharges> shards;
  std::size_t count = 0;
  for (const Charge& charge : charges) {
    Shard* const shard = &shard_of(charge.key);
    prefetch_cell(*shard, charge.key, charge.limit->strategy());
    if (count == 0 || shard != shards[count - 1]) shards[count++] = shard;
  }
  count = lock_all({shards.data(), count});
  Applied applied;
  const bool optimistic = ask.effect != Effect::kNone && records_ == nullptr;
  if (!optimistic || !try_charges(charges, ask, outcomes)) applied = apply_locked(charges, ask, outcomes);
  sweep_in_passing(charges, ask);
  for (std::size_t i = 0; i < count; ++i) shards[i]->lock.unlock();
  return applied;
}

std::size_t MemoryStore::lock_all(std::span<Shard*> shards) noexcept {
  // In the order of the list while no lock is taken and no shard comes twice. A call that has to wait releases what it
  // has, and waits in the order of addresses, so that no two calls wait for one another.
  std::size_t locked = 0;
  while (locked < shards.size() && shards[locked]->lock.try_lock()) ++locked;
  if (locked == shards.size()) [[likely]]
    return locked;
  while (locked > 0) shards[--locked]->lock.unlock();
  std::sort(shards.begin(), shards.end());
  const auto end = std::unique(shards.begin(), shards.end());
  std::for_each(shards.begin(), end, [](Shard* shard) { shard->lock.lock(); });
  return static_cast<std::size_t>(end - shards.begin());
}

Outcome MemoryStore::try_one(base::Hash128 key, const LiveLimit& live, Units cost, Nanos now, LeaseId lease,
                             bool& done) noexcept {
  assert(records_ == nullptr);
  Shard& shard = shard_of(key);
  prefetch_cell(shard, key, live.strategy());
  done = false;
  const std::lock_guard guard(shard.lock);
  const std::uint32_t generation = live.generation();
  const CompiledLimit& limit = live.entry(generation).limit;
  const Place place = find(shard, key, limit.strategy);
  if (!is_current(place, generation) || cost <= 0 || cost > limit.most) return {};
  if ((shard.acquired + shard.throttled + 1) % kCallsPerSweep == 0) return {};
  const bool was_ahead = place.ahead();
  bool ahead = was_ahead;
  bool no_memory = false;
  Outcome outcome = charge_if_fits(limit, place.words, ahead, cost, now, lease, no_memory);
  done = !no_memory;
  if (ahead != was_ahead) *place.high = Tag::with(*place.high, ahead, generation);
  outcome.limit = limit.limit;
  if (done) ++(outcome.fits() ? shard.acquired : shard.throttled);
  return outcome;
}

bool MemoryStore::try_charges(std::span<const Charge> charges, const Ask& ask, std::span<Outcome> outcomes) noexcept {
  assert(ask.effect != Effect::kNone && records_ == nullptr);
  std::array<Undo, kMaxCharges> undo;
  // All cells are found first, so that their cache misses overlap.
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const Charge& charge = charges[i];
    const std::uint32_t generation = charge.limit->generation();
    const CompiledLimit& limit = charge.limit->entry(generation).limit;
    const Strategy strategy = limit.strategy;
    // Neither is taken back by its words alone: a hold lies elsewhere, and a turn has to be judged with the patience.
    if (strategy == Strategy::kConcurrency || strategy == Strategy::kLeakyBucket) return false;
    const Place place = find(shard_of(charge.key), charge.key, strategy);
    if (!is_current(place, generation) || charge.cost <= 0 || charge.cost > limit.most) return false;
    if (strategy == Strategy::kSlidingWindow) prefetch_ring(place.words);
    undo[i].place = place;
    undo[i].limit = &limit;
    undo[i].made = false;
  }
  std::uint64_t taken = 0;  // bit i: the i-th was charged
  std::size_t i = 0;
  for (; i < charges.size(); ++i) {
    const Charge& charge = charges[i];
    const Place& place = undo[i].place;
    const CompiledLimit& limit = *undo[i].limit;
    remember(place, limit, undo[i]);
    bool ahead = place.ahead();
    if (limit.strategy == Strategy::kSlidingWindow) {
      // The fast form alone: the general one may move the ring.
      if (charge.cost != 1 || !charge_unit(limit.numbers.log, place.words, ahead, ask.now, outcomes[i])) break;
    } else {
      bool no_memory = false;
      // Built in its place: copying the struct stalls store forwarding.
      new (&outcomes[i])
          Outcome(charge_if_fits(limit, place.words, ahead, charge.cost, time_for(limit, ask), ask.lease, no_memory));
      *place.high = Tag::with(*place.high, ahead, Tag::generation(*place.high));
    }
    outcomes[i].limit = limit.limit;
    if (outcomes[i].fits()) [[likely]] {
      taken |= std::uint64_t{1} << i;
    } else if (!charge.soft) {
      break;
    }
  }
  if (i == charges.size()) [[likely]] {
    for (const Charge& charge : charges) shard_of(charge.key).acquired += charge.counted ? 1 : 0;
    return true;
  }
  while (i-- > 0) {
    if ((taken >> i & 1) != 0) take_back(charges[i], ask, Nanos{0}, undo[i]);
  }
  return false;
}

void MemoryStore::remember(const Place& place, const CompiledLimit& limit, Undo& undo) noexcept {
  undo.place = place;
  undo.limit = &limit;
  undo.high = *place.high;
  undo.words[0] = place.words[0];
  undo.words[1] = place.words[1];
  if (words_of(limit.strategy) == 2) return;
  undo.words[2] = place.words[2];
  undo.words[3] = place.words[3];
  if (limit.strategy == Strategy::kSlidingWindow && has_instants(place.words)) {
    undo.oldest = oldest_instant(place.words);
  }
}

void MemoryStore::take_back(const Charge& charge, const Ask& ask, Nanos wait, const Undo& undo) noexcept {
  if (undo.made) return erase(shard_of(charge.key), charge);
  const CompiledLimit& limit = *undo.limit;
  Word* const words = undo.place.words;
  const Nanos now = time_for(limit, ask);
  if (limit.strategy == Strategy::kConcurrency) {
    core::concurrency_release(*hold_table(words), ask.lease, now);
    return;
  }
  if (limit.strategy == Strategy::kSlidingWindow) {
    if (!has_instants(undo.words) || !same_ring(undo.words, words)) {
      bool ahead = undo.place.ahead();
      store::refund(limit, words, ahead, charge.cost, now + wait, now);
      *undo.place.high = Tag::with(*undo.place.high, ahead, Tag::generation(*undo.place.high));
      return;
    }
    oldest_instant(undo.words) = undo.oldest;
  }
  *undo.place.high = undo.high;
  std::copy_n(undo.words, words_of(limit.strategy), words);
}

void MemoryStore::prefetch(std::span<const base::Hash128> keys, Strategy strategy) const noexcept {
  // What few cells there are is in the cache already.
  if (cells_.load(std::memory_order_relaxed) < kFewCells) return;
  for (const base::Hash128& key : keys) __builtin_prefetch(&shard_of(key), 1);
  for (const base::Hash128& key : keys) prefetch_cell(shard_of(key), key, strategy);
}

Applied MemoryStore::apply_locked(std::span<const Charge> charges, const Ask& ask,
                                  std::span<Outcome> outcomes) noexcept {
  const bool charging = ask.effect != Effect::kNone;
  ChargeVerdict verdict(ask.effect, ask.patience);
  Judged judged;
  std::array<Place, kMaxCharges> places;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const Charge& charge = charges[i];
    // Read once: a limit may change meanwhile, and what was judged by one set of numbers must be charged by it.
    judged.generations[i] = charge.limit->generation();
    places[i] = find(shard_of(charge.key), charge.key, charge.limit->strategy());
    // A cell named twice must have room for both.
    Units cost = charge.cost;
    for (std::size_t j = 0; j < i; ++j) {
      if (charges[j].key != charge.key || charges[j].limit != charge.limit) continue;
      if (__builtin_add_overflow(cost, charges[j].cost, &cost)) cost = std::numeric_limits<Units>::max();
    }
    outcomes[i] = judge_cell(charge, places[i], judged.generations[i], ask, cost);
    verdict.add(charge, outcomes[i]);
    const std::uint64_t bit = std::uint64_t{1} << i;
    if (!outcomes[i].fits()) {
      if (charge.soft) judged.skipped |= bit;
    } else if (ask.apart && charge.limit->strategy() != Strategy::kLeakyBucket) {
      judged.at_once |= bit;
    }
  }
  verdict.add_turns(charges, outcomes, [&](std::size_t i, Nanos wait) {
    Ask then = ask;
    then.now += wait;
    return judge_cell(charges[i], places[i], judged.generations[i], then, charges[i].cost);
  });

  const bool taken = verdict.in_time() && (!charging || charge_all(charges, judged, ask, verdict.wait()));
  Applied applied = verdict.applied(taken);
  applied.store_full = verdict.in_time() && !taken;
  applied.share_full = judged.share_full;
  if (charging && (taken || ask.count_denial)) {
    for (const Charge& charge : charges) count(shard_of(charge.key), charge, taken);
  }
  return applied;
}

bool MemoryStore::charge_all(std::span<const Charge> charges, Judged& judged, const Ask& ask, Nanos wait) noexcept {
  static_assert(kMaxCharges <= 64);
  std::array<Undo, kMaxCharges> undo;
  std::uint64_t charged = 0;
  // New cells first: if there is no room for one, the cells that exist have not been touched. Making one may move or
  // drop others, so each is looked up again.
  for (const bool make : {true, false}) {
    for (std::size_t i = 0; i < charges.size(); ++i) {
      const Charge& charge = charges[i];
      const std::uint64_t bit = std::uint64_t{1} << i;
      if (charge.cost == 0 || ((charged | judged.skipped) & bit) != 0) continue;
      Shard& shard = shard_of(charge.key);
      Place place = find(shard, charge.key, charge.limit->strategy());
      const bool exists = place.words != nullptr;
      if (make && exists) continue;
      if (!exists) place = insert(shard, charge, judged.generations[i], ask);
      if (place.words != nullptr) {
        remember(place, charge.limit->entry(judged.generations[i]).limit, undo[i]);
        undo[i].made = !exists;
        if (charge_place(charge, place, judged.generations[i], ask, judged.wait_of(i, wait))) {
          charged |= bit;
          continue;
        }
        if (!exists) erase(shard, charge);
      }
      if (charge.soft) continue;
      judged.share_full = has_share(owner_bits(ask.owner));
      for (std::size_t j = charges.size(); j-- > 0;) {
        if ((charged >> j & 1) == 0) continue;
        undo[j].place = find(shard_of(charges[j].key), charges[j].key, charges[j].limit->strategy());
        if (undo[j].place.words != nullptr) take_back(charges[j], ask, judged.wait_of(j, wait), undo[j]);
      }
      return false;
    }
  }
  return true;
}

void MemoryStore::count(Shard& shard, const Charge& charge, bool admitted) noexcept {
  if (!charge.counted) return;
  if (admitted) {
    ++shard.acquired;
  } else {
    ++shard.throttled;
  }
  if (records_ == nullptr) return;
  Records& records = records_of(shard);
  auto found = records.find(record_key(charge.key));
  if (found == records.end()) {
    // A record lives as long as its cell: keys that were never admitted cannot fill the memory.
    if (find(shard, charge.key, charge.limit->strategy()).words == nullptr) return;
    try {
      found = records.try_emplace(record_key(charge.key), KeyRecord{std::string(charge.name), 0, 0}).first;
    } catch (const std::bad_alloc&) {
      return;  // the key is limited all the same; only its name is not known
    }
  }
  ++(admitted ? found->second.acquired : found->second.throttled);
}

void MemoryStore::count_denial(const Charge& charge) noexcept {
  Shard& shard = shard_of(charge.key);
  const std::lock_guard guard(shard.lock);
  count(shard, charge, false);
}

Outcome MemoryStore::judge_cell(const Charge& charge, const Place& place, std::uint32_t generation, const Ask& ask,
                                Units cost) noexcept {
  const CompiledLimit& limit = charge.limit->entry(generation).limit;
  const Nanos now = time_for(limit, ask);
  // What can never fit is read as things stand.
  const Units judged = cost > limit.most ? 0 : cost;
  static constexpr std::array<Word, 4> kNew{};
  Outcome outcome;
  const bool idle = place.words != nullptr && place.words[0] < now.count();
  if (place.words == nullptr || (idle && ask.effect == Effect::kNone)) {
    outcome = judge(limit, kNew.data(), false, judged, now);
  } else if (is_current(place, generation)) {
    if (ask.effect != Effect::kNone && (judged == cost || charge.soft)) {
      leave_future(limit, place.words, place.ahead(), now);
    }
    outcome = judge(limit, place.words, place.ahead(), judged, now);
  } else {
    // In place, so that waiting as long as told is enough; but on a copy when only looking, since `now` may be anything
    // then. Strategies that own memory carry over the same at any time.
    bool ahead = place.ahead();
    std::array<Word, 4> copy{};
    Word* words = place.words;
    const bool in_place = ask.effect != Effect::kNone || limit.strategy == Strategy::kSlidingWindow ||
                          limit.strategy == Strategy::kConcurrency;
    if (!in_place) {
      std::copy_n(place.words, words_of(limit.strategy), copy.begin());
      words = copy.data();
    }
    bring_up_to_date(*charge.limit, generation, Tag::generation(*place.high), words, ahead, now);
    if (in_place) *place.high = Tag::with(*place.high, ahead, generation);
    outcome = judge(limit, words, ahead, judged, now);
  }
  if (cost > limit.most) outcome.wait = kNever;
  outcome.limit = limit.limit;
  return outcome;
}

bool MemoryStore::charge_place(const Charge& charge, const Place& place, std::uint32_t generation, const Ask& ask,
                               Nanos wait) noexcept {
  const CompiledLimit& limit = charge.limit->entry(generation).limit;
  const Nanos now = time_for(limit, ask);
  if (limit.strategy == Strategy::kConcurrency) wait = Nanos{0};
  bool ahead = place.ahead();
  if (!is_current(place, generation)) {
    bring_up_to_date(*charge.limit, generation, Tag::generation(*place.high), place.words, ahead, now);
  }
  const bool charged = store::charge(limit, place.words, ahead, charge.cost, now + wait, wait > Nanos{0}, ask.lease);
  *place.high = Tag::with(*place.high, ahead, generation);
  return charged;
}

std::uint64_t MemoryStore::owner_bits(std::string_view owner) const noexcept {
  if (owners_ == nullptr || owner.empty()) return 0;
  return (1 + hasher_(owner).low % (Tag::kOwners - 1)) << Tag::kOwnerShift;
}

MemoryStore::Place MemoryStore::insert(Shard& shard, const Charge& charge, std::uint32_t generation,
                                       const Ask& ask) noexcept {
  const Nanos idle = idle_before(ask);
  sweep(shard, kBucketsPerInsert, idle);
  const std::uint64_t owner = owner_bits(ask.owner);
  if (has_share(owner)) [[unlikely]] {
    sweep(shard, kBucketsAtCap, idle);
    const std::uint32_t all = std::max(shard.small.bucket_count(), shard.large.bucket_count());
    const bool evicts = at_cap_ != AtCap::kRefuseNew;
    if (has_share(owner) && !(evicts && evict(shard, all, {Tag::kOwner, owner}))) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return {};
    }
  }
  const std::uint64_t identity = Tag::identity(charge.key.high, charge.limit->strategy());
  const std::uint64_t high = Tag::with(identity | (charge.callers ? Tag::kCallers : 0) | owner, false, generation);
  return place_new(shard, charge.key.low, high, idle);
}

MemoryStore::Place MemoryStore::place_new(Shard& shard, std::uint64_t low, std::uint64_t high,
                                          Nanos idle_before) noexcept {
  const auto on_drop = [&](const auto& cell) {
    forget(shard, cell.low, cell.high);
    dropped_.fetch_add(1, std::memory_order_relaxed);
  };
  const bool callers = (high & Tag::kCallers) != 0;
  const For whom = callers ? For::kCallers : For::kOthers;
  const bool in_share = !callers || callers_.fetch_add(1, std::memory_order_relaxed) < max_caller_cells_ ||
                        make_room(shard, idle_before, whom);
  if (in_share &&
      (cells_.fetch_add(1, std::memory_order_relaxed) < max_cells_ || make_room(shard, idle_before, whom))) {
    const auto placed = [&](auto* cell) {
      if (owners_ != nullptr) owners_[Tag::owner(high)].fetch_add(1, std::memory_order_relaxed);
      return Place{cell->words, &cell->high};
    };
    if (words_of(Tag::strategy(high)) == 2) {
      if (auto* cell = shard.small.insert(low, high, idle_before, on_drop)) return placed(cell);
    } else {
      if (auto* cell = shard.large.insert(low, high, idle_before, on_drop)) return placed(cell);
    }
  }
  if (callers) callers_.fetch_sub(1, std::memory_order_relaxed);
  if (in_share) cells_.fetch_sub(1, std::memory_order_relaxed);
  refused_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

void MemoryStore::forget(Shard& shard, std::uint64_t low, std::uint64_t high) noexcept {
  cells_.fetch_sub(1, std::memory_order_relaxed);
  if ((high & Tag::kCallers) != 0) callers_.fetch_sub(1, std::memory_order_relaxed);
  if (owners_ != nullptr) owners_[Tag::owner(high)].fetch_sub(1, std::memory_order_relaxed);
  if (records_ != nullptr) records_of(shard).erase(record_key({low, high}));
}

std::size_t MemoryStore::sweep(Shard& shard, std::uint32_t steps, Nanos idle_before) noexcept {
  std::size_t dropped = 0;
  const auto on_drop = [&](const auto& cell) {
    forget(shard, cell.low, cell.high);
    ++dropped;
  };
  shard.small.sweep(shard.small_cursor, steps, idle_before, on_drop);
  shard.large.sweep(shard.large_cursor, steps, idle_before, on_drop);
  if (dropped > 0) dropped_.fetch_add(dropped, std::memory_order_relaxed);
  return dropped;
}

bool MemoryStore::make_room(Shard& shard, Nanos idle_before, For whom) noexcept {
  const std::size_t callers = callers_.load(std::memory_order_relaxed);
  const bool dropped = sweep(shard, kBucketsAtCap, idle_before) > 0;
  if (whom == For::kOthers) {
    if (dropped) return true;
    // Anywhere in the shard: callers that may name keys could otherwise keep others out.
    const std::uint32_t all = std::max(shard.small.bucket_count(), shard.large.bucket_count());
    if (callers > 0 && evict(shard, all, {Tag::kCallers, Tag::kCallers})) return true;
    return at_cap_ != AtCap::kRefuseNew && evict(shard, kBucketsAtCap, kAnyCell);
  }
  if (dropped && callers_.load(std::memory_order_relaxed) < callers) return true;
  return at_cap_ != AtCap::kRefuseNew && evict(shard, kBucketsAtCap, {Tag::kCallers, Tag::kCallers});
}

bool MemoryStore::evict(Shard& shard, std::uint32_t steps, const CellsOf& which) noexcept {
  const auto evict_from = [&](auto& table, auto* cell) {
    forget(shard, cell->low, cell->high);
    table.erase(cell);
    evicted_.fetch_add(1, std::memory_order_relaxed);
    return true;
  };
  auto* small = shard.small.oldest_near(shard.small_cursor, steps, which);
  auto* large = shard.large.oldest_near(shard.large_cursor, steps, which);
  if (small != nullptr && (large == nullptr || small->words[0] <= large->words[0])) {
    return evict_from(shard.small, small);
  }
  return large != nullptr && evict_from(shard.large, large);
}

void MemoryStore::erase(Shard& shard, const Charge& charge) noexcept {
  const auto erase_from = [&](auto& table) {
    auto* cell = table.find(charge.key.low, Tag::identity(charge.key.high, charge.limit->strategy()));
    if (cell == nullptr) return;
    forget(shard, cell->low, cell->high);
    table.erase(cell);
  };
  if (words_of(charge.limit->strategy()) == 2) {
    erase_from(shard.small);
  } else {
    erase_from(shard.large);
  }
}

}  // namespace headgate::store
