// The quick pass through a plan: see MemoryStore::try_plan().
//
// The ways of the strategies stand apart, each a call of its own: in one function they would take each other's
// registers.
#include <cassert>

#include "store/memory/memory_store.h"

namespace headgate::store {

using core::CompiledLimit;
using core::Outcome;

namespace {

// As a number: there may be no ring, and fetching ahead from nowhere does no harm.
void prefetch_ring(const Word* words) noexcept {
  const auto ring = static_cast<std::uintptr_t>(words[1]);
  const std::uintptr_t oldest = ring + sizeof(Nanos) * RingWord::head(static_cast<std::uint64_t>(words[2]));
  __builtin_prefetch(reinterpret_cast<const void*>(oldest), 1);
}

}  // namespace

[[gnu::noinline]] bool MemoryStore::quick_bucket(const Charge& charge, const CompiledLimit& limit, const Ask& ask,
                                                 Outcome& outcome, Undo& undo) noexcept {
  if (limit.numbers.bucket.den != 1) return quick_any(charge, limit, ask, outcome, undo);
  Word* const words = undo.place.words;
  undo.first = words[0];
  undo.kind = Undo::Kind::kFirstWord;
  const auto step = core::token_bucket_whole(load_bucket(words), limit.numbers.bucket, charge.cost, ask.now);
  if (step.outcome.fits()) [[likely]]
    words[0] = step.next.full_at.count();
  write_short(step.outcome, outcome);
  return true;
}

[[gnu::noinline]] bool MemoryStore::quick_instant(const Charge& charge, const CompiledLimit& limit, const Ask& ask,
                                                  Outcome& outcome, Undo& undo) noexcept {
  Word* const words = undo.place.words;
  const bool of_instants = (static_cast<std::uint64_t>(words[2]) & RingWord::kInstantsOnly) != 0;
  if (charge.cost != 1 || undo.place.ahead() || !of_instants) [[unlikely]]
    return false;
  undo.first = words[0];
  undo.second = oldest_instant(words).count();
  undo.third = words[2];
  undo.fourth = words[3];
  undo.kind = Undo::Kind::kInstant;
  ShortAnswer answer;
  if (!charge_instant(limit.numbers.log, words, ask.now, answer)) [[unlikely]]
    return false;
  write_short(answer, outcome);
  return true;
}

// A window that has begun and has room.
[[gnu::noinline]] bool MemoryStore::quick_window(const Charge& charge, const CompiledLimit& limit, const Ask& ask,
                                                 Outcome& outcome, Undo& undo) noexcept {
  const core::WindowNumbers& numbers = limit.numbers.window;
  Word* const words = undo.place.words;
  const Word used = words[1] + charge.cost;
  const Nanos left = Nanos{words[0]} - ask.wall;
  if (undo.place.ahead() || left <= Nanos{0} || left > numbers.longest() || used > numbers.most) [[unlikely]]
    return quick_any(charge, limit, ask, outcome, undo);
  undo.second = words[1];
  undo.kind = Undo::Kind::kSecondWord;
  words[1] = used;
  outcome.wait = Nanos{0};
  outcome.delay = Nanos{0};
  outcome.reset_after = left;
  core::read_room(outcome, numbers.most - used, numbers.burst, charge.cost);
  return true;
}

bool MemoryStore::quick_any(const Charge& charge, const CompiledLimit& limit, const Ask& ask, Outcome& outcome,
                            Undo& undo) noexcept {
  const Place& place = undo.place;
  Word* const words = place.words;
  undo.kind = Undo::Kind::kAll;
  undo.high = *place.high;
  undo.first = words[0];
  undo.second = words[1];
  if (words_of(limit.strategy) == 4) {
    undo.third = words[2];
    undo.fourth = words[3];
  }
  bool ahead = place.ahead();
  bool no_memory = false;
  const Nanos now = limit.follows_wall() ? ask.wall : ask.now;
  outcome = charge_if_fits(limit, words, ahead, charge.cost, now, ask.lease, no_memory);
  *place.high = Tag::with(*place.high, ahead, Tag::generation(*place.high));
  return true;
}

inline bool MemoryStore::charge_quickly(const Charge& charge, const CompiledLimit& limit, const Ask& ask,
                                        Outcome& outcome, Undo& undo) noexcept {
  assert(undo.place.words != nullptr);
  assert(charge.cost > 0 && charge.cost <= limit.most);
  // The usual ones first, and no jump table: where speculation is guarded against, a jump to who knows where costs more
  // than what comes after it.
  const Strategy strategy = limit.strategy;
  if (strategy == Strategy::kTokenBucket) return quick_bucket(charge, limit, ask, outcome, undo);
  if (strategy == Strategy::kSlidingWindow) return quick_instant(charge, limit, ask, outcome, undo);
  if (limit.follows_wall()) return quick_window(charge, limit, ask, outcome, undo);
  if (strategy == Strategy::kConcurrency || strategy == Strategy::kLeakyBucket) return false;
  return quick_any(charge, limit, ask, outcome, undo);
}

template <int kWords>
inline MemoryStore::Place MemoryStore::find_soon(const CellTable<kWords>& table, const Charge& charge,
                                                 Strategy strategy) noexcept {
  using Table = CellTable<kWords>;
  const std::uint64_t identity = Tag::identity(charge.key.high, strategy);
  const auto extent = table.extent();
  if (extent.count == 0) return {};
  auto* cell = Table::find_at_home(*extent.home_of(charge.key.low), charge.key.low, identity);
  if (cell == nullptr) [[unlikely]]
    cell = table.find(charge.key.low, identity);
  return cell == nullptr ? Place{} : Place{cell->words, &cell->high};
}

// Whether the cell may be charged as it stands; the rest of what has to be known to do it.
inline bool MemoryStore::may_pass(const Charge& charge, const Place& place, Undo& undo) noexcept {
  const std::uint32_t generation = charge.limit->generation();
  const CompiledLimit& limit = charge.limit->entry(generation).limit;
  undo.limit = &limit;
  undo.place = place;
  return place.words != nullptr && Tag::generation(*place.high) == (generation & Tag::kGenerationMask) &&
         static_cast<std::uint64_t>(charge.cost) - 1 < static_cast<std::uint64_t>(limit.most);
}

bool MemoryStore::quick_quotas(std::span<const Charge> charges, const Ask& ask, Outcome* outcomes) const noexcept {
  assert(charges.size() <= kMostQuick && ask.effect != Effect::kNone && records_ == nullptr);
  const Nanos wall = ask.wall;
  CellTable<2>::Entry* cell = nullptr;
  const CellTable<2>::Entry* end = nullptr;
  const Charge* charge = charges.data();
  for (const Charge* const behind = charge + charges.size(); charge != behind; ++charge, ++outcomes) {
    const LiveLimit& live = *charge->limit;
    const std::uint32_t generation = live.generation();
    const CompiledLimit& limit = live.entry(generation).limit;
    // Just so: up to date, and nothing reserved ahead. The owner does not matter.
    const std::uint64_t identity = Tag::identity(charge->key.high, Strategy::kQuota);
    const std::uint64_t high = Tag::with(identity, false, generation);
    // Those of one user mostly lie side by side.
    if (cell == nullptr || ++cell == end || cell->low != charge->key.low || (cell->high & ~Tag::kOwner) != high) {
      const CellTable<2>& table = shard_of(charge->key).small;
      end = table.end();
      cell = table.find(charge->key.low, identity);
      if (cell == nullptr || (cell->high & ~Tag::kOwner) != high) break;
    }
    const Units room = limit.numbers.window.most - cell->words[1];
    const Nanos left = Nanos{cell->words[0]} - wall;
    if (charge->cost <= 0 || charge->cost > room || left <= Nanos{0}) break;
    if (left > limit.numbers.window.calendar.longest()) [[unlikely]]
      break;
    cell->words[1] += charge->cost;
    outcomes->wait = Nanos{0};
    outcomes->delay = Nanos{0};
    outcomes->reset_after = left;
    outcomes->limit = limit.limit;
    core::read_room(*outcomes, room - charge->cost, limit.numbers.window.burst, charge->cost);
  }
  if (charge == charges.data() + charges.size()) [[likely]]
    return true;
  while (charge-- != charges.data()) {
    const Place place = find(shard_of(charge->key), charge->key, Strategy::kQuota);
    if (place.words != nullptr) place.words[1] -= charge->cost;
  }
  return false;
}

bool MemoryStore::try_plan(std::span<const Charge> charges, const Ask& ask,
                           std::span<Outcome> outcomes) const noexcept {
  assert(charges.size() <= kMostQuick && ask.effect != Effect::kNone && records_ == nullptr);
  // Quotas that come last, as a command's do, go a way of their own.
  std::size_t count = charges.size();
  while (count > 0 && charges[count - 1].limit->strategy() == Strategy::kQuota) --count;
  // First find all of them, so that what one cell waits for in memory the others wait for, too.
  std::array<Undo, kMostQuick> undo;
  for (std::size_t i = 0; i < count; ++i) {
    const Charge& charge = charges[i];
    const Strategy strategy = charge.limit->strategy();
    const Shard& shard = shard_of(charge.key);
    const Place place =
        words_of(strategy) == 2 ? find_soon(shard.small, charge, strategy) : find_soon(shard.large, charge, strategy);
    if (!may_pass(charge, place, undo[i])) return false;
    if (strategy == Strategy::kSlidingWindow) prefetch_ring(place.words);
  }
  std::size_t done = 0;
  std::uint32_t taken = 0;  // bit i: the i-th was charged
  for (; done < count; ++done) {
    const Charge& charge = charges[done];
    Outcome& outcome = outcomes[done];
    const CompiledLimit& limit = *undo[done].limit;
    if (!charge_quickly(charge, limit, ask, outcome, undo[done])) break;
    outcome.limit = limit.limit;
    if (outcome.fits()) [[likely]] {
      taken |= 1U << done;
    } else if (!charge.soft) {
      break;
    }
  }
  if (done == count && (count == charges.size() || quick_quotas(charges.subspan(count), ask, &outcomes[count])))
      [[likely]] {
    if (charges[0].counted) ++shard_of(charges[0].key).acquired;
    return true;
  }
  while (done-- > 0) {
    if ((taken >> done & 1) != 0) take_back(undo[done]);
  }
  return false;
}

Applied MemoryStore::apply_quickly(std::span<const Charge> charges, const Ask& ask,
                                   std::span<Outcome> outcomes) noexcept {
  assert(charges.size() <= kMostQuick && ask.effect != Effect::kNone && records_ == nullptr);
  std::array<Shard*, kMostQuick> shards;
  std::size_t count = 0;
  for (const Charge& charge : charges) {
    Shard* const shard = &shard_of(charge.key);
    if (count > 0 && shard == shards[count - 1]) continue;  // side by side, as a command's quotas are
    prefetch_cell(*shard, charge.key, charge.limit->strategy());
    shards[count++] = shard;
  }
  // As they come, while nobody else has one of them and none comes twice; whoever would have to wait lets go first.
  std::size_t locked = 0;
  while (locked < count && shards[locked]->lock.try_lock()) ++locked;
  if (locked < count) [[unlikely]] {
    while (locked > 0) shards[--locked]->lock.unlock();
    count = lock_in_order({shards.data(), count});
  }
  Applied applied;
  if (!try_plan(charges, ask, outcomes)) applied = apply_locked(charges, ask, outcomes);
  sweep_in_passing(charges, ask);
  for (std::size_t i = 0; i < count; ++i) shards[i]->lock.unlock();
  return applied;
}

void MemoryStore::take_back(const Undo& undo) noexcept {
  Word* const words = undo.place.words;
  switch (undo.kind) {
    case Undo::Kind::kFirstWord: words[0] = undo.first; return;
    case Undo::Kind::kSecondWord: words[1] = undo.second; return;
    case Undo::Kind::kInstant:
      words[0] = undo.first;
      words[2] = undo.third;
      words[3] = undo.fourth;
      oldest_instant(words) = Nanos{undo.second};
      return;
    case Undo::Kind::kAll: break;
  }
  *undo.place.high = undo.high;
  words[0] = undo.first;
  words[1] = undo.second;
  if (words_of(undo.limit->strategy) == 4) {
    words[2] = undo.third;
    words[3] = undo.fourth;
  }
}

}  // namespace headgate::store
