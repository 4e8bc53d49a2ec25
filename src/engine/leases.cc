#include "engine/leases.h"

#include <fmt/format.h>

#include <charconv>
#include <random>

namespace headgate::engine {

std::string Leases::new_id() {
  // Straight from the operating system: an id is all that is needed to end a lease.
  thread_local std::random_device random;
  const auto word = [] { return std::uint64_t{random()} << 32 | random(); };
  const std::uint64_t high = word();
  return fmt::format("{:016x}{:016x}", high, word());
}

LeaseId Leases::slot_of(std::string_view id) noexcept {
  LeaseId slot = 0;
  std::from_chars(id.data(), id.data() + std::min<std::size_t>(id.size(), 16), slot, 16);
  return slot == 0 ? 1 : slot;
}

bool Leases::add(std::shared_ptr<Lease> lease) {
  const std::lock_guard guard(mutex_);
  if (open_.load() >= most_) return false;
  due_.emplace(lease->expires, lease->id);
  leases_.emplace(lease->id, std::move(lease));
  ++open_;
  set_next();
  return true;
}

std::shared_ptr<Lease> Leases::find(std::string_view id, std::unique_lock<std::mutex>& guard) {
  guard = std::unique_lock(mutex_);
  const auto found = leases_.find(std::string(id));
  return found == leases_.end() ? nullptr : found->second;
}

void Leases::reschedule(Lease& lease, Nanos expires) {
  due_.erase({lease.expires, lease.id});
  lease.expires = expires;
  due_.emplace(lease.expires, lease.id);
  set_next();
}

void Leases::end(Lease& lease, Nanos now) {
  if (!lease.ended) --open_;
  lease.ended = true;
  lease.held.clear();
  reschedule(lease, now + lease.ttl);
}

void Leases::renew(Lease& lease, Nanos now) { reschedule(lease, now + lease.ttl); }

std::shared_ptr<Lease> Leases::expire_one(Nanos now) {
  const std::lock_guard guard(mutex_);
  std::shared_ptr<Lease> expired;
  while (!due_.empty() && due_.begin()->first <= now && expired == nullptr) {
    const auto found = leases_.find(due_.begin()->second);
    if (!found->second->ended) {
      expired = found->second;
      --open_;
    }
    due_.erase(due_.begin());
    leases_.erase(found);
  }
  set_next();
  return expired;
}

void Leases::set_next() { next_.store(due_.empty() ? kMaxTime.count() : due_.begin()->first.count()); }

}  // namespace headgate::engine
