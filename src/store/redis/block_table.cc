#include "store/redis/block_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <mutex>

namespace headgate::store::redis {
namespace {

constexpr std::size_t kCellsPerShard = 256;
constexpr std::size_t kMaxShards = 4096;
static_assert(kMaxCharges <= 64);

}  // namespace

BlockTable::BlockTable(std::size_t max_cells, Nanos hurried) : hurried_(hurried) {
  const std::size_t shards = std::clamp<std::size_t>(std::bit_ceil(max_cells / kCellsPerShard), 1, kMaxShards);
  mask_ = shards - 1;
  max_cells_per_shard_ = std::max<std::size_t>(max_cells / shards, 1);
  shards_ = std::make_unique<Shard[]>(shards);
}

BlockTable::Taken BlockTable::take(std::span<const Charge> charges, Nanos now,
                                   std::span<core::Outcome> outcomes) noexcept {
  assert(!charges.empty() && charges.size() <= kMaxCharges);
  assert(std::ranges::all_of(charges, [](const Charge& charge) { return charge.cost >= 0; }));
  if (charges.size() == 1) {
    const std::lock_guard guard(shard_of(charges[0].key).lock);
    return take_locked(charges, now, outcomes);
  }
  // Locked in the order of their addresses, each once, so that no two charge lists wait for one another.
  std::array<Shard*, kMaxCharges> shards;
  std::size_t count = 0;
  for (const Charge& charge : charges) {
    Shard* shard = &shard_of(charge.key);
    __builtin_prefetch(shard, 1);
    std::size_t at = count;
    while (at > 0 && shards[at - 1] >= shard) --at;
    if (at < count && shards[at] == shard) continue;
    for (std::size_t i = count++; i > at; --i) shards[i] = shards[i - 1];
    shards[at] = shard;
  }
  for (std::size_t i = 0; i < count; ++i) shards[i]->lock.lock();
  for (const Charge& charge : charges) shard_of(charge.key).blocks.prefetch(charge.key);
  const Taken taken = take_locked(charges, now, outcomes);
  for (std::size_t i = 0; i < count; ++i) shards[i]->lock.unlock();
  return taken;
}

BlockTable::Taken BlockTable::take_locked(std::span<const Charge> charges, Nanos now,
                                          std::span<core::Outcome> outcomes) noexcept {
  std::array<Block*, kMaxCharges> blocks;
  std::uint64_t dry = 0;  // bit i: the i-th cost does not fit
  bool denied = false;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const Charge& charge = charges[i];
    Shard& shard = shard_of(charge.key);
    const auto found = shard.blocks.find(charge.key);
    if (found == shard.blocks.end()) return {};
    blocks[i] = &found->second;
    const Block& block = found->second;
    if (block.units >= charge.cost && now < block.until) continue;
    if (charge.cost < block.denied || now >= block.dry_until) return {};
    dry |= std::uint64_t{1} << i;
    denied = denied || !charge.soft;
  }

  Taken taken{.verdict = denied ? Verdict::kDenied : Verdict::kTaken};
  for (std::size_t i = 0; i < charges.size(); ++i) {
    Block& block = *blocks[i];
    const Units cost = charges[i].cost;
    core::Outcome& outcome = outcomes[i];
    const bool fits = (dry >> i & 1) == 0;
    block.demand.asked += cost;
    if (fits && !denied) {
      block.units -= cost;
      block.remaining = block.remaining > cost ? block.remaining - cost : 0;
      if (block.units < block.low && !block.errand && now >= block.next) {
        block.errand = true;
        taken.low |= std::uint64_t{1} << i;
        taken.hurry = taken.hurry || now < block.until - block.terms.ttl + hurried_;
      }
    }
    outcome.wait = fits ? Nanos{0} : std::max(block.fits_at - now, Nanos{1});
    outcome.delay = Nanos{0};
    outcome.reset_after = std::max(block.reset_at - now, outcome.wait);
    outcome.limit = block.limit;
    outcome.remaining = block.remaining;
    outcome.burst = block.burst && fits;
  }
  return taken;
}

// What is heard of a cell already leaves out what this node has in stock; that is this node's to promise.
void BlockTable::note(Block& block, const core::Outcome& outcome, Nanos now) noexcept {
  block.limit = outcome.limit;
  block.remaining = outcome.remaining + (now < block.until ? block.units : 0);
  block.reset_at = now + outcome.reset_after;
  block.burst = outcome.burst;
}

bool BlockTable::heard(const Charge& charge, const LeaseTerms& terms, const core::Outcome* outcome, Nanos now) {
  if (!terms.leased()) return false;
  Shard& shard = shard_of(charge.key);
  const std::lock_guard guard(shard.lock);
  auto found = shard.blocks.find(charge.key);
  if (found == shard.blocks.end()) {
    if (shard.blocks.size() >= max_cells_per_shard_) return false;
    found = shard.blocks.try_emplace(charge.key).first;
    found->second.demand.since = now;
  }
  Block& block = found->second;
  block.terms = terms;
  block.demand.asked += charge.cost;
  if (outcome != nullptr) note(block, *outcome, now);
  if (outcome != nullptr && !outcome->fits() && outcome->wait != kNever && charge.cost > 0) {
    block.denied = charge.cost;
    block.fits_at = now + outcome->wait;
    block.dry_until = now + pause_after_denial(outcome->wait, terms);
    return false;
  }
  block.demand = measured(block.demand, terms, now);
  if (block.errand || now < block.next || !worth_leasing(block.demand, terms, charge.cost)) return false;
  return block.errand = true;
}

std::array<BlockTable::Errand::Back, 2> BlockTable::take_back(Block& block, Units units) noexcept {
  // The newest first: the longer ago a charge was, the less of it counts any more.
  const Units newest = std::min(units, std::min(block.newest, block.units));
  block.newest = std::min(block.newest, block.units) - newest;
  block.units -= units;
  return {{{newest, block.newest_at}, {units - newest, block.older_at}}};
}

// Nothing was asked for a while: what is held lies about.
bool BlockTable::is_idle(const Block& block, Nanos now) noexcept {
  return block.demand.asked == 0 && now >= block.demand.since + block.terms.ttl / 4;
}

// REQUIRES: the shard is locked, and block.errand is set.
BlockTable::Errand BlockTable::errand_for(const base::Hash128& cell, Block& block, bool idle, Nanos now) {
  assert(block.errand);
  const Units wanted = idle ? 0 : target(block.demand, block.terms);
  const LeaseStep step = lease_step(block.units, wanted, now >= block.until);
  Errand errand;
  errand.cell = cell;
  errand.limit = block.live;
  errand.terms = block.terms;
  errand.left = step.keep;
  errand.want = step.want;
  errand.least = step.least;
  errand.back = take_back(block, step.give_back);
  block.recorded = block.recorded || step.keep + step.want > 0;
  return errand;
}

BlockTable::Errand BlockTable::begin(const base::Hash128& cell, Limit limit, const LeaseTerms& terms, Nanos now) {
  Shard& shard = shard_of(cell);
  const std::lock_guard guard(shard.lock);
  Block& block = shard.blocks.find(cell)->second;  // it is not dropped while an errand is under way
  assert(block.errand);
  if (limit != nullptr) {
    block.live = std::move(limit);
    block.terms = terms;
  }
  block.demand = measured(block.demand, block.terms, now);
  return errand_for(cell, block, false, now);
}

std::array<BlockTable::Errand::Back, 2> BlockTable::renew(const base::Hash128& cell, Units held, Nanos until) noexcept {
  Shard& shard = shard_of(cell);
  const std::lock_guard guard(shard.lock);
  Block& block = shard.blocks.find(cell)->second;
  block.until = until;
  block.recorded = held > 0;
  return take_back(block, std::max<Units>(block.units - held, 0));
}

void BlockTable::put(const base::Hash128& cell, Units units, Nanos charged_at, const core::Outcome& outcome,
                     Nanos now) noexcept {
  Shard& shard = shard_of(cell);
  const std::lock_guard guard(shard.lock);
  Block& block = shard.blocks.find(cell)->second;
  if (block.units <= block.newest) block.older_at = block.newest_at;
  block.newest = units;
  block.newest_at = charged_at;
  block.units += units;
  block.low = low_mark(block.units);
  block.denied = 0;
  block.dry_until = Nanos{0};
  note(block, outcome, now);
}

void BlockTable::end(const base::Hash128& cell, Nanos next) noexcept {
  Shard& shard = shard_of(cell);
  const std::lock_guard guard(shard.lock);
  Block& block = shard.blocks.find(cell)->second;
  block.errand = false;
  block.next = next;
}

void BlockTable::due(Nanos now, std::size_t calls, std::size_t most, std::vector<Errand>& errands) {
  const std::size_t shards = mask_ + 1;
  const std::size_t step = (shards + calls - 1) / calls;
  for (std::size_t i = 0; i < step; ++i) {
    Shard& shard = shards_[cursor_++ & mask_];
    const std::lock_guard guard(shard.lock);
    for (auto it = shard.blocks.begin(); it != shard.blocks.end();) {
      const auto here = it++;
      Block& block = here->second;
      if (block.errand) continue;
      const bool idle = is_idle(block, now);
      block.demand = measured(block.demand, block.terms, now);
      if (block.units == 0 && !(idle && block.recorded && now < block.until)) {
        if (idle && now >= block.until && now >= block.dry_until) shard.blocks.erase(here);
        continue;
      }
      if ((!idle && now < block.until - block.terms.ttl / 2) || errands.size() >= most) continue;
      block.errand = true;
      errands.push_back(errand_for(here->first, block, idle, now));
    }
  }
}

BlockTable::Errand BlockTable::take_all(const base::Hash128& cell, Block& block) {
  block.errand = true;
  Errand errand = errand_for(cell, block, true, Nanos{0});
  block.recorded = false;  // said once: what is not heard then lapses
  return errand;
}

void BlockTable::empty(std::vector<Errand>& errands) {
  for (std::size_t i = 0; i <= mask_; ++i) {
    const std::lock_guard guard(shards_[i].lock);
    for (auto& [cell, block] : shards_[i].blocks) {
      if (!block.errand && (block.units > 0 || block.recorded)) errands.push_back(take_all(cell, block));
    }
  }
}

std::optional<BlockTable::Errand> BlockTable::empty(const base::Hash128& cell) {
  Shard& shard = shard_of(cell);
  const std::lock_guard guard(shard.lock);
  const auto found = shard.blocks.find(cell);
  if (found == shard.blocks.end()) return std::nullopt;
  Block& block = found->second;
  if (block.errand || (block.units == 0 && !block.recorded)) return std::nullopt;
  return take_all(cell, block);
}

BlockTable::Totals BlockTable::totals(Nanos now) const noexcept {
  Totals totals;
  for (std::size_t i = 0; i <= mask_; ++i) {
    const std::lock_guard guard(shards_[i].lock);
    totals.cells += shards_[i].blocks.size();
    for (const auto& [cell, block] : shards_[i].blocks) {
      (now < block.until ? totals.units : totals.lapsed) += block.units;
    }
  }
  return totals;
}

}  // namespace headgate::store::redis
