// How many bytes all connections together may hold for requests that are not complete and answers that are not taken.
//
// Safe for concurrent use. A connection's first few bytes are not counted, so most never touch it.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/memory_reserve.h"
#include "net/session.h"

namespace headgate::net {

class BufferBudget {
 public:
  // Bytes of one connection that are not counted; what lies above is, in full.
  static constexpr std::size_t kFree = 2 << 10;

  explicit BufferBudget(std::size_t most) noexcept : most_(most) {}

  void change(std::size_t from, std::size_t to) noexcept { used_.fetch_add(to - from, std::memory_order_relaxed); }
  // Whether a connection of that standing holds too much for the moment. Peers that are not known have half of it;
  // while memory is short, none has any.
  [[nodiscard]] bool exceeded(Standing standing) const noexcept {
    if (base::memory_is_low()) return true;
    return used() > (standing >= Standing::kKnown ? most_ : most_ / 2);
  }
  [[nodiscard]] std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  const std::size_t most_;
  std::atomic<std::size_t> used_{0};
};

}  // namespace headgate::net
