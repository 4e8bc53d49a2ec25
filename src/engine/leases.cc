#include "engine/leases.h"

#include <fmt/format.h>

#include <cassert>
#include <charconv>
#include <random>

namespace headgate::engine {
namespace {

// About what it takes, allocations and the tables' own nodes included.
std::size_t bytes_of(const Leases::Ended& ended) noexcept {
  std::size_t bytes = 256 + ended.agent.capacity();
  for (const auto& [unit, amount] : ended.settled.costs) bytes += sizeof(std::pair<std::string, double>) + unit.size();
  return bytes;
}

}  // namespace

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
  if (open_.load() >= most_ || shares_.of(lease->owner) >= share_) return false;
  shares_.take(lease->owner);
  due_.emplace(lease->expires, lease->id);
  leases_.emplace(lease->id, std::move(lease));
  ++open_;
  set_next();
  return true;
}

bool Leases::full(std::string_view owner) {
  const std::lock_guard guard(mutex_);
  return open_.load() >= most_ || shares_.of(owner) >= share_;
}

std::shared_ptr<Lease> Leases::find(std::string_view id, std::unique_lock<std::mutex>& guard) {
  guard = std::unique_lock(mutex_);
  const auto found = leases_.find(std::string(id));
  return found == leases_.end() ? nullptr : found->second;
}

const Leases::Ended* Leases::find_ended(std::string_view id, Nanos now) const {
  const auto found = ended_.find(std::string(id));
  return found == ended_.end() || found->second.until <= now ? nullptr : &found->second;
}

void Leases::end(const Lease& lease, const Settled& settled, Nanos now) {
  assert(leases_.contains(lease.id));
  due_.erase({lease.expires, lease.id});
  ended_ids_.push_back(lease.id);
  const auto [ended, added] = ended_.emplace(lease.id, Ended{lease.agent, settled, now + lease.ttl});
  ended_bytes_ += bytes_of(ended->second);
  shares_.give_back(lease.owner);
  leases_.erase(std::string(lease.id));
  --open_;
  set_next();
  // Those whose time is over need not wait for others to push them out.
  while (ended_ids_.size() > kMostEnded || ended_bytes_ > kMostEndedBytes ||
         (!ended_ids_.empty() && ended_.find(ended_ids_.front())->second.until <= now)) {
    forget_oldest();
  }
}

void Leases::forget_oldest() {
  const auto oldest = ended_.find(ended_ids_.front());
  ended_bytes_ -= bytes_of(oldest->second);
  ended_.erase(oldest);
  ended_ids_.pop_front();
}

std::size_t Leases::remembered() {
  const std::lock_guard guard(mutex_);
  return ended_.size();
}

void Leases::renew(Lease& lease, Nanos now) {
  assert(leases_.contains(lease.id));
  due_.erase({lease.expires, lease.id});
  lease.expires = now + lease.ttl;
  due_.emplace(lease.expires, lease.id);
  set_next();
}

std::shared_ptr<Lease> Leases::expire_one(Nanos now) {
  const std::lock_guard guard(mutex_);
  if (due_.empty() || due_.begin()->first > now) return nullptr;
  const auto found = leases_.find(due_.begin()->second);
  std::shared_ptr<Lease> expired = std::move(found->second);
  due_.erase(due_.begin());
  leases_.erase(found);
  shares_.give_back(expired->owner);
  --open_;
  set_next();
  return expired;
}

void Leases::set_next() { next_.store(due_.empty() ? kMaxTime.count() : due_.begin()->first.count()); }

}  // namespace headgate::engine
