// What is done with cells besides checks: given back, held on to, carried over to other numbers, swept and counted.
#include <algorithm>
#include <cassert>
#include <mutex>

#include "store/memory/memory_store.h"

namespace headgate::store {

using core::CompiledLimit;

void MemoryStore::bring_up_to_date(const LiveLimit& live, std::uint32_t generation, std::uint32_t own, Word* words,
                                   bool& ahead, Nanos now) const noexcept {
  // What was idle by the numbers it was written by may have been dropped at any time: so it is forgotten in any case.
  if (words[0] < now.count()) {
    reset_words(live.strategy(), words);
    ahead = false;
    return;
  }
  const std::uint32_t behind = (generation - own) & Tag::kGenerationMask;
  if (behind > generation || !live.remembers(generation - behind)) {
    // Taken as it stands. But by a longer window the newest instant leaves later.
    if (live.strategy() == Strategy::kSlidingWindow) {
      const Nanos window = live.entry(generation).limit.numbers.log.window;
      store_log(load_log(words, ahead, window), window, words, ahead);
    }
    return;
  }
  const std::uint32_t first = generation - behind;
  // A fraction that slept through several changes is carried over at once: each step on its own would round it up.
  bool fractions = true;
  for (std::uint32_t g = first + 1; g <= generation; ++g) {
    fractions = fractions && live.entry(g).carried == OnChange::kKeepFraction;
  }
  if (fractions) {
    carry_over(live.entry(first).limit, live.entry(generation).limit, OnChange::kKeepFraction, words, ahead, now);
    return;
  }
  for (std::uint32_t g = first + 1; g <= generation; ++g) {
    carry_over(live.entry(g - 1).limit, live.entry(g).limit, live.entry(g).carried, words, ahead, now);
  }
}

template <class Act>
bool MemoryStore::on_cell(const Charge& charge, Nanos now, Act act) noexcept {
  Shard& shard = shard_of(charge.key);
  const std::lock_guard guard(shard.lock);
  const std::uint32_t generation = charge.limit->generation();
  const CompiledLimit& limit = charge.limit->entry(generation).limit;
  const Place place = find(shard, charge.key, limit.strategy);
  if (place.words == nullptr) return false;
  bool ahead = place.ahead();
  if (!is_current(place, generation)) {
    bring_up_to_date(*charge.limit, generation, Tag::generation(*place.high), place.words, ahead, now);
  }
  const bool done = act(limit, place.words, ahead);
  *place.high = Tag::with(*place.high, ahead, generation);
  return done;
}

void MemoryStore::refund(const Charge& charge, Nanos charged_at, Nanos now) noexcept {
  on_cell(charge, now, [&](const CompiledLimit& limit, Word* words, bool& ahead) {
    store::refund(limit, words, ahead, charge.cost, charged_at, now);
    return true;
  });
}

bool MemoryStore::release(const Charge& charge, LeaseId lease, Nanos now) noexcept {
  return on_cell(charge, now, [&](const CompiledLimit& limit, Word* words, bool&) {
    if (limit.strategy != Strategy::kConcurrency || hold_table(words) == nullptr) return false;
    const bool released = core::concurrency_release(*hold_table(words), lease, now);
    if (hold_table(words)->size == 0) words[0] = 0;
    return released;
  });
}

bool MemoryStore::renew(const Charge& charge, LeaseId lease, Nanos now) noexcept {
  return on_cell(charge, now, [&](const CompiledLimit& limit, Word* words, bool&) {
    if (limit.strategy != Strategy::kConcurrency || hold_table(words) == nullptr) return false;
    const Nanos ttl = limit.numbers.concurrency.ttl;
    const bool renewed = core::concurrency_renew(*hold_table(words), lease, ttl, now);
    if (renewed) words[0] = std::max(words[0], (now + ttl).count());
    return renewed;
  });
}

void MemoryStore::clear(const Charge& charge) noexcept {
  Shard& shard = shard_of(charge.key);
  const std::lock_guard guard(shard.lock);
  erase(shard, charge);
}

std::size_t MemoryStore::clear_callers() noexcept {
  std::size_t cleared = 0;
  each_shard([&](Shard& shard) {
    const auto is_one = [](const auto& cell) { return (cell.high & Tag::kCallers) != 0; };
    const auto on_drop = [&](const auto& cell) {
      forget(shard, cell.low, cell.high);
      ++cleared;
    };
    shard.small.erase_if(is_one, on_drop);
    shard.large.erase_if(is_one, on_drop);
  });
  return cleared;
}

void MemoryStore::change(LiveLimit& live, const CompiledLimit& limit, OnChange how) {
  assert(live.strategy() == limit.strategy);
  const Change change_one{&live, limit, how};
  change({&change_one, 1});
}

void MemoryStore::change(std::span<const Change> changes) {
  bool reused = false;
  for (const Change& each : changes) {
    const std::uint32_t next = each.live->generation() + 1;
    if (next < LiveLimit::kGenerations) continue;
    each.live->oldest_.store(next - LiveLimit::kGenerations + 1, std::memory_order_release);
    reused = true;
  }
  if (reused) quiesce();  // no call reads the entries that are about to be reused
  for (const Change& each : changes) {
    assert(each.live->strategy() == each.limit.strategy);
    each.live->add(each.limit, each.how);
  }
}

void MemoryStore::quiesce() const noexcept {
  each_shard([](Shard&) {});
}

void MemoryStore::maintain(std::size_t cells, Nanos idle_before) noexcept {
  std::size_t looked_at = 0;
  for (std::size_t visited = 0; visited <= shard_mask_ && looked_at < cells; ++visited) {
    Shard& shard = shards_[maintained_.fetch_add(1, std::memory_order_relaxed) & shard_mask_];
    const std::lock_guard guard(shard.lock);
    const std::uint32_t buckets = std::max(shard.small.bucket_count(), shard.large.bucket_count());
    sweep(shard, buckets + 1, idle_before);
    looked_at += (std::size_t{shard.small.bucket_count()} + shard.large.bucket_count()) * CellTable<2>::kSlots;
  }
}

LimiterTotals MemoryStore::totals() const noexcept {
  LimiterTotals totals;
  each_shard([&](const Shard& shard) {
    totals.acquired += shard.acquired;
    totals.throttled += shard.throttled;
  });
  totals.cells = cells_.load();
  totals.dropped_idle = dropped_.load();
  totals.evicted = evicted_.load();
  totals.refused = refused_.load();
  return totals;
}

std::optional<KeyRecord> MemoryStore::record(base::Hash128 key) const {
  if (records_ == nullptr) return std::nullopt;
  Shard& shard = shard_of(key);
  const std::lock_guard guard(shard.lock);
  const auto found = records_of(shard).find(record_key(key));
  if (found == records_of(shard).end()) return KeyRecord{};
  return found->second;
}

void MemoryStore::for_each_record(const std::function<void(const KeyRecord&)>& visit) const {
  if (records_ == nullptr) return;
  each_shard([&](Shard& shard) {
    for (const auto& [key, record] : records_of(shard)) visit(record);
  });
}

}  // namespace headgate::store
