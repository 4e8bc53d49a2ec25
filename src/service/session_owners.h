// Which agent a session belongs to: the one that first used it.
//
// Safe for concurrent use. Looking one up takes no lock; the first use of a session takes one. Holds the newest
// kBuckets * kWays sessions, spread by a secret hash: at the bound a new session takes the place of the oldest in its
// bucket, which then belongs to the next agent that uses it. Nothing is gained by crowding a session out: an agent that
// does so could have charged that session's limits by naming it as its own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace headgate::service {

class SessionOwners {
 public:
  static constexpr std::size_t kBuckets = 1 << 13;
  static constexpr std::size_t kWays = 8;

  // Whether the session belongs to that agent; it does from now on if it belonged to none. REQUIRES: neither is empty.
  bool belongs_to(std::string_view session, std::string_view agent);
  // Whether it belongs to that agent or to none. Changes nothing. REQUIRES: neither is empty.
  [[nodiscard]] bool may_belong_to(std::string_view session, std::string_view agent) const noexcept;
  // Whether it belongs to any. REQUIRES: it is not empty.
  [[nodiscard]] bool has_owner(std::string_view session) const noexcept;

 private:
  // 64 bits of a hash under a secret seed stand for a name: to meet another's takes 2^48 tries or more, each a check.
  struct Slot {
    std::atomic<std::uint64_t> session{0};  // 0: free
    std::atomic<std::uint64_t> owner{0};    // 0: being written
  };
  struct Bucket {
    std::array<Slot, kWays> slots;
    std::atomic<std::uint32_t> next{0};  // the slot that is replaced next
  };

  [[nodiscard]] std::uint64_t tag_of(std::string_view agent) const noexcept {
    return base::hash128(agent, ~seed_).low | 1;
  }
  [[nodiscard]] static std::uint64_t owner_in(const Bucket& bucket, std::uint64_t session) noexcept;

  const std::uint64_t seed_ = base::random_seed();
  std::vector<Bucket> buckets_{kBuckets};
  std::mutex mutex_;  // held by writers
};

}  // namespace headgate::service
