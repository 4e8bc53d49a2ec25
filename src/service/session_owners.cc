#include "service/session_owners.h"

#include <cassert>

namespace headgate::service {

std::uint64_t SessionOwners::owner_in(const Bucket& bucket, std::uint64_t session) noexcept {
  for (const Slot& slot : bucket.slots) {
    if (slot.session.load() != session) continue;
    const std::uint64_t owner = slot.owner.load();
    // Replaced meanwhile: the owner may be that of another session.
    if (slot.session.load() == session) return owner;
  }
  return 0;
}

bool SessionOwners::belongs_to(std::string_view session, std::string_view agent) {
  assert(!session.empty() && !agent.empty());
  const base::Hash128 hash = base::hash128(session, seed_);
  const std::uint64_t tag = hash.low | 1;
  const std::uint64_t owner = tag_of(agent);
  Bucket& bucket = buckets_[hash.high % kBuckets];
  if (const std::uint64_t known = owner_in(bucket, tag); known != 0) return known == owner;
  const std::lock_guard guard(mutex_);
  if (const std::uint64_t known = owner_in(bucket, tag); known != 0) return known == owner;
  Slot& slot = bucket.slots[bucket.next.fetch_add(1) % kWays];
  slot.owner.store(0);
  slot.session.store(tag);
  slot.owner.store(owner);
  return true;
}

bool SessionOwners::may_belong_to(std::string_view session, std::string_view agent) const noexcept {
  assert(!session.empty() && !agent.empty());
  const base::Hash128 hash = base::hash128(session, seed_);
  const std::uint64_t known = owner_in(buckets_[hash.high % kBuckets], hash.low | 1);
  return known == 0 || known == tag_of(agent);
}

bool SessionOwners::has_owner(std::string_view session) const noexcept {
  assert(!session.empty());
  const base::Hash128 hash = base::hash128(session, seed_);
  return owner_in(buckets_[hash.high % kBuckets], hash.low | 1) != 0;
}

}  // namespace headgate::service
