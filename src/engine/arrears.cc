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

void Arrears::add(const base::Hash128& cell, const std::shared_ptr<LiveNumbers>& numbers, Units units, Nanos wall) {
  const std::lock_guard guard(mutex_);
  const auto found = owed_.find(cell);
  if (found == owed_.end() && owed_.size() >= kMost) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Arrear& arrear = found != owed_.end() ? found->second : owed_[cell];
  arrear.numbers = numbers;
  constexpr Units kMostOwed = Units{1} << 60;
  arrear.units = std::min(kMostOwed, arrear.units + std::min(units, kMostOwed));
  arrear.last = std::max(arrear.last, wall);
  size_.store(owed_.size(), std::memory_order_relaxed);
}

std::vector<Arrears::Owed> Arrears::take_all() {
  const std::lock_guard guard(mutex_);
  std::vector<Owed> all(std::make_move_iterator(owed_.begin()), std::make_move_iterator(owed_.end()));
  owed_.clear();
  size_.store(0, std::memory_order_relaxed);
  return all;
}

}  // namespace headgate::engine
