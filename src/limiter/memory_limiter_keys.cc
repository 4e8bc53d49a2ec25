// Calls of a MemoryLimiter that do not take: reservations, leases, peeking, clearing; and those about all keys.
#include "limiter/memory_limiter_impl.h"

namespace headgate {
namespace {

using base::Hash128;
using store::Charge;
using store::Effect;

}  // namespace

Reservation MemoryLimiter::reserve(std::string_view key, Units permits, Nanos max_wait) noexcept {
  return reserve_at(impl_->clock.now(), key, permits, max_wait);
}

Reservation MemoryLimiter::reserve_at(Nanos now, std::string_view key, Units permits, Nanos max_wait) noexcept {
  now = Impl::clamp(now);
  const Hash128 hash = impl_->store.hash(key);
  Reservation reservation;
  const Nanos patience = std::clamp(max_wait, Nanos{0}, core::kLongestSpan);
  Nanos ahead{0};
  reservation.decision_ = impl_->take(now, hash, key, permits, {Effect::kReserve, patience, &ahead});
  if (reservation.ok() && permits > 0) {
    reservation.limiter_ = this;
    reservation.low_ = hash.low;
    reservation.high_ = hash.high;
    reservation.permits_ = permits;
    reservation.at_ = now + ahead;
    reservation.turn_ = now + reservation.decision_.delay;
    reservation.wall_at_ = impl_->wall(now) + ahead;
  }
  return reservation;
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  decision_ = other.decision_;
  limiter_ = std::exchange(other.limiter_, nullptr);
  low_ = other.low_;
  high_ = other.high_;
  permits_ = other.permits_;
  at_ = other.at_;
  turn_ = other.turn_;
  wall_at_ = other.wall_at_;
  return *this;
}

void Reservation::cancel() noexcept {
  MemoryLimiter* limiter = std::exchange(limiter_, nullptr);
  if (limiter == nullptr) return;
  MemoryLimiter::Impl& impl = *limiter->impl_;
  const Nanos now = impl.clamp(impl.clock.now());
  const Hash128 key{low_, high_};
  std::array<Charge, kMaxLimits> charges;
  const std::size_t count = impl.write_charges(key, {}, permits_, charges.data());
  for (std::size_t i = 0; i < count; ++i) {
    switch (charges[i].limit->strategy()) {
      case Strategy::kConcurrency: impl.store.release(charges[i], decision_.lease, now); break;
      case Strategy::kFixedWindow:
      case Strategy::kQuota: impl.store.refund(charges[i], wall_at_, impl.wall(now)); break;
      case Strategy::kLeakyBucket: impl.store.refund(charges[i], turn_, now); break;
      default: impl.store.refund(charges[i], at_, now);
    }
  }
  impl.queue.kick(key);
}

bool MemoryLimiter::release(std::string_view key, LeaseId lease) noexcept {
  if (!impl_->holds || lease == 0) return false;
  const Hash128 hash = impl_->store.hash(key);
  std::array<Charge, kMaxLimits> charges;
  const std::size_t count = impl_->write_charges(hash, key, 0, charges.data());
  bool released = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (charges[i].limit->strategy() != Strategy::kConcurrency) continue;
    released = impl_->store.release(charges[i], lease, Impl::clamp(impl_->clock.now())) || released;
  }
  if (released && !impl_->queue.empty_approx()) impl_->queue.kick(hash);
  return released;
}

bool MemoryLimiter::renew(std::string_view key, LeaseId lease) noexcept {
  if (!impl_->holds || lease == 0) return false;
  std::array<Charge, kMaxLimits> charges;
  const std::size_t count = impl_->write_charges(impl_->store.hash(key), key, 0, charges.data());
  bool renewed = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (charges[i].limit->strategy() != Strategy::kConcurrency) continue;
    renewed = impl_->store.renew(charges[i], lease, Impl::clamp(impl_->clock.now())) || renewed;
  }
  return renewed;
}

Decision MemoryLimiter::peek(std::string_view key, Units permits) const noexcept {
  return peek_at(impl_->clock.now(), key, permits);
}

Decision MemoryLimiter::peek_at(Nanos now, std::string_view key, Units permits) const noexcept {
  now = Impl::clamp(now);
  return impl_->take(now, impl_->store.hash(key), key, permits, {.effect = Effect::kNone});
}

Nanos MemoryLimiter::reset_time(std::string_view key) const noexcept {
  const Nanos now = Impl::clamp(impl_->clock.now());
  return impl_->clock.wall(now) + peek_at(now, key, 0).reset_after;
}

Statistics MemoryLimiter::statistics(std::string_view key) const { return statistics_at(impl_->clock.now(), key); }

Statistics MemoryLimiter::statistics_at(Nanos now, std::string_view key) const {
  now = Impl::clamp(now);
  const Decision decision = peek_at(now, key, 0);
  const Limit limit = impl_->limits.description(0);
  Statistics statistics;
  statistics.available = decision.remaining;
  statistics.capacity = decision.limit;
  Nanos per = limit.rate().per;
  switch (limit.strategy()) {
    case Strategy::kTokenBucket:
    case Strategy::kGcra:
    case Strategy::kLeakyBucket: statistics.last_refill = now; break;
    case Strategy::kSlidingWindow:
    case Strategy::kSlidingWindowCounter: statistics.last_refill = now - std::min(now, per); break;
    case Strategy::kFixedWindow:
    case Strategy::kQuota: {
      const core::Span span = core::compile(limit).numbers.window.span_at(impl_->wall(now));
      statistics.last_refill = span.start;
      per = span.end - span.start;
      break;
    }
    case Strategy::kConcurrency: per = Nanos{0}; break;
  }
  if (per > Nanos{0}) {
    statistics.rate = static_cast<double>(limit.rate().units) / std::chrono::duration<double>(per).count();
  }
  if (const auto record = impl_->store.record(impl_->store.hash(key))) {
    statistics.total_acquired = record->acquired;
    statistics.total_throttled = record->throttled;
    statistics.per_key = true;
  } else {
    const LimiterTotals all = impl_->store.totals();
    statistics.total_acquired = all.acquired;
    statistics.total_throttled = all.throttled;
  }
  return statistics;
}

void MemoryLimiter::clear(std::string_view key) noexcept {
  const Hash128 hash = impl_->store.hash(key);
  std::array<Charge, kMaxLimits> charges;
  const std::size_t count = impl_->write_charges(hash, key, 0, charges.data());
  for (std::size_t i = 0; i < count; ++i) impl_->store.clear(charges[i]);
  if (!impl_->queue.empty_approx()) impl_->queue.kick(hash);
}

Result<void> MemoryLimiter::set_limit(const Limit& limit, OnChange how, std::size_t index) {
  auto changed = impl_->limits.change(impl_->store, limit, how, index);
  if (changed) impl_->queue.kick_all();
  return changed;
}

LimiterTotals MemoryLimiter::totals() const noexcept {
  LimiterTotals totals = impl_->store.totals();
  totals.waiting = impl_->queue.size();
  return totals;
}

void MemoryLimiter::for_each_key(
    const std::function<void(std::string_view key, std::uint64_t acquired, std::uint64_t throttled)>& visit) const {
  impl_->store.for_each_record(
      [&](const store::KeyRecord& record) { visit(record.name, record.acquired, record.throttled); });
}

void MemoryLimiter::maintain(std::size_t cells) noexcept {
  const Nanos now = Impl::clamp(impl_->clock.now());
  impl_->store.maintain(cells, std::min(now, impl_->wall(now)));
}

Result<void> MemoryLimiter::save(const std::string& path) const {
  return impl_->store.save(path, impl_->limits.write(), Impl::clamp(impl_->clock.now()));
}

Result<std::size_t> MemoryLimiter::restore(const std::string& path) {
  return impl_->store.restore(path, Impl::clamp(impl_->clock.now()),
                              [&](std::string_view meta) { return impl_->limits.read(impl_->store, meta); });
}

}  // namespace headgate
