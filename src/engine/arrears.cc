#include "engine/arrears.h"

#include <algorithm>

namespace headgate::engine {

Units still_owed(const core::CompiledLimit& limit, const Arrear& arrear, Nanos now) noexcept {
  const auto& n = limit.numbers;
  const Nanos since = std::max(now - arrear.last, Nanos{0});
  const auto unless_refilled = [&](std::int64_t nanos_per_unit) {
    return std::max<Units>(0, arrear.units - since.count() / std::max<std::int64_t>(nanos_per_unit, 1));
  };
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: return unless_refilled(n.bucket.whole);
    case Strategy::kGcra: return unless_refilled(n.gcra.interval.count());
    case Strategy::kFixedWindow:
    case Strategy::kQuota: return n.window.span_at(arrear.last).end > now ? arrear.units : 0;
    case Strategy::kSlidingWindow: return since < n.log.window ? arrear.units : 0;
    case Strategy::kSlidingWindowCounter: return since < n.counter.window ? arrear.units : 0;
    case Strategy::kConcurrency: return 0;  // what is held here ends here
  }
  return 0;
}

bool Arrears::has_room_locked(const base::Hash128& cell, std::string_view owner) const {
  if (owed_.contains(cell)) return true;
  return owed_.size() < kMost && shares_.of(owner) < base::Shares::share_of(kMost, 1);
}

bool Arrears::has_room(const base::Hash128& cell, std::string_view owner) const {
  const std::lock_guard guard(mutex_);
  return has_room_locked(cell, owner);
}

void Arrears::add(const base::Hash128& cell, const Arrear& more) {
  const std::lock_guard guard(mutex_);
  if (!has_room_locked(cell, more.owner)) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const auto [found, is_new] = owed_.try_emplace(cell, more);
  if (is_new) {
    shares_.take(more.owner);
    size_.store(owed_.size(), std::memory_order_relaxed);
    return;
  }
  constexpr Units kMostOwed = Units{1} << 60;
  Arrear& arrear = found->second;
  arrear.numbers = more.numbers;
  arrear.units = std::min(kMostOwed, arrear.units + std::min(more.units, kMostOwed));
  arrear.last = std::max(arrear.last, more.last);
}

std::vector<Arrears::Owed> Arrears::take(std::size_t most) {
  const std::lock_guard guard(mutex_);
  std::vector<Owed> taken;
  while (taken.size() < most && !owed_.empty()) {
    const auto first = owed_.begin();
    shares_.give_back(first->second.owner);
    taken.emplace_back(first->first, std::move(first->second));
    owed_.erase(first);
  }
  size_.store(owed_.size(), std::memory_order_relaxed);
  return taken;
}

}  // namespace headgate::engine
