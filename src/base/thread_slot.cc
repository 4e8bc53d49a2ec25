#include "base/thread_slot.h"

#include <atomic>
#include <bit>
#include <cstdint>

namespace headgate::base {
namespace {

std::atomic<std::uint64_t> taken{0};  // bits

class Owner {
 public:
  Owner() noexcept {
    std::uint64_t seen = taken.load(std::memory_order_relaxed);
    while (seen != ~std::uint64_t{0}) {
      const auto free = static_cast<std::size_t>(std::countr_one(seen));
      // What the slot's last owner wrote must be seen by its next.
      if (!taken.compare_exchange_weak(seen, seen | std::uint64_t{1} << free, std::memory_order_acquire)) continue;
      slot_ = free;
      return;
    }
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    detail::slot = kOwnedSlots;  // what else this thread does while it ends, it does in the shared slot
    if (slot_ < kOwnedSlots) taken.fetch_and(~(std::uint64_t{1} << slot_), std::memory_order_release);
  }
  [[nodiscard]] std::size_t slot() const noexcept { return slot_; }

 private:
  std::size_t slot_ = kOwnedSlots;
};

}  // namespace

std::size_t detail::claim_slot() noexcept {
  thread_local Owner owner;
  return slot = owner.slot();
}

}  // namespace headgate::base
