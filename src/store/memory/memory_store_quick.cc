// The quick pass through a plan: see MemoryStore::try_plan().
//
// The ways of the strategies stand apart, each a call of its own: in one function they would take each other's
// registers.
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
  if (undo.place.ahead() || ask.wall.count() >= words[0] || used > numbers.most) [[unlikely]]
    return quick_any(charge, limit, ask, outcome, undo);
  undo.second = words[1];
  undo.kind = Undo::Kind::kSecondWord;
  words[1] = used;
  outcome.wait = Nanos{0};
  outcome.delay = Nanos{0};
  outcome.reset_after = Nanos{words[0]} - ask.wall;
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
  switch (limit.strategy) {
    case Strategy::kTokenBucket: return quick_bucket(charge, limit, ask, outcome, undo);
    case Strategy::kSlidingWindow: return quick_instant(charge, limit, ask, outcome, undo);
    case Strategy::kFixedWindow:
    case Strategy::kQuota: return quick_window(charge, limit, ask, outcome, undo);
    case Strategy::kConcurrency:
    case Strategy::kLeakyBucket: return false;
    default: return quick_any(charge, limit, ask, outcome, undo);
  }
}

template <int kWords>
inline MemoryStore::Place MemoryStore::place_on(const Way& way, const CellTable<kWords>& table, const Charge& charge,
                                                std::uint64_t identity) noexcept {
  using Table = CellTable<kWords>;
  const typename Table::Extent seen{static_cast<typename Table::Bucket*>(way.buckets), way.count};
  typename Table::Entry* cell = nullptr;
  if (table.holds(seen)) [[likely]]
    cell = Table::find_at_home(*static_cast<typename Table::Bucket*>(way.home), charge.key.low, identity);
  if (cell == nullptr) [[unlikely]]
    cell = table.find(charge.key.low, identity);
  return cell == nullptr ? Place{} : Place{cell->words, &cell->high};
}

inline MemoryStore::Place MemoryStore::place_beside(const Way& way, const Undo& before, const Charge& charge) noexcept {
  const Strategy strategy = charge.limit->strategy();
  if (words_of(strategy) == 2 && words_of(before.limit->strategy) == 2) {
    const std::uint64_t identity = Tag::identity(charge.key.high, strategy);
    auto* const cell = way.shard->small.find_after(before.place.words, charge.key.low, identity);
    if (cell != nullptr) [[likely]]
      return {cell->words, &cell->high};
  }
  return find(*way.shard, charge.key, strategy);
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

bool MemoryStore::try_plan(std::span<const Charge> charges, const Way* ways, const Ask& ask,
                           std::span<Outcome> outcomes) noexcept {
  // First find all of them, so that what one cell waits for in memory the others wait for, too. But for those that lie
  // beside the one before: they are there once that is.
  std::array<Undo, kMostQuick> undo;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const Charge& charge = charges[i];
    if (i > 0 && charge.key.low == charges[i - 1].key.low) continue;
    const Strategy strategy = charge.limit->strategy();
    const std::uint64_t identity = Tag::identity(charge.key.high, strategy);
    const Place place = words_of(strategy) == 2 ? place_on(ways[i], ways[i].shard->small, charge, identity)
                                                : place_on(ways[i], ways[i].shard->large, charge, identity);
    if (!may_pass(charge, place, undo[i])) return false;
    if (strategy == Strategy::kSlidingWindow) prefetch_ring(place.words);
  }
  std::size_t done = 0;
  std::uint32_t taken = 0;  // bit i: the i-th was charged
  const Way* way = ways;
  for (; done < charges.size(); ++done) {
    const Charge& charge = charges[done];
    if (done > 0 && charge.key.low == charges[done - 1].key.low) {
      if (!may_pass(charge, place_beside(*way, undo[done - 1], charge), undo[done])) break;
    } else {
      way = ways + done;
    }
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
  if (done == charges.size()) [[likely]] {
    if (charges[0].counted) ++ways[0].shard->acquired;
    return true;
  }
  while (done-- > 0) {
    if ((taken >> done & 1) != 0) take_back(undo[done]);
  }
  return false;
}

Applied MemoryStore::apply_quickly(std::span<const Charge> charges, const Ask& ask,
                                   std::span<Outcome> outcomes) noexcept {
  std::array<Way, kMostQuick> ways;
  std::array<Shard*, kMostQuick> shards;  // in the order of the charges
  std::size_t count = 0;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (i > 0 && charges[i].key.low == charges[i - 1].key.low) continue;  // side by side, as a command's quotas are
    ways[i] = way_to(charges[i]);
    shards[count++] = ways[i].shard;
  }
  // Locked in the order of their addresses, so that no two plans wait for one another. Each goes where as many are
  // before it: which ones are is chance, and no branch depends on it.
  std::array<std::uint32_t, kMostQuick> before{};
  for (std::size_t i = 1; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const std::uint32_t later = shards[j] > shards[i] ? 1 : 0;
      before[j] += later;
      before[i] += 1 - later;
    }
  }
  std::array<Shard*, kMostQuick + 1> ordered;
  for (std::size_t i = 0; i < count; ++i) ordered[before[i]] = shards[i];
  ordered[count] = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    if (ordered[i] != ordered[i + 1]) ordered[i]->lock.lock();
  }
  Applied applied;
  if (!try_plan(charges, ways.data(), ask, outcomes)) applied = apply_locked(charges, ask, outcomes);
  sweep_in_passing(charges, ask);
  for (std::size_t i = 0; i < count; ++i) {
    if (ordered[i] != ordered[i + 1]) ordered[i]->lock.unlock();
  }
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
