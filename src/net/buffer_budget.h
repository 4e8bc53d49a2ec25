// How many bytes all connections together may hold for requests that are not complete and answers that are not taken.
//
// Safe for concurrent use. A connection's first few bytes are not counted, so most never touch it. One caller may hold
// a quarter, over all its connections. Callers are counted in a table of fixed size, where a few may share an entry.
#pragma once

#include <algorithm>
#include <array>
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

  // A connection of that standing holds `to` bytes instead of `from`.
  void change(const Standing& standing, std::size_t from, std::size_t to) noexcept {
    used_.fetch_add(to - from, std::memory_order_relaxed);
    if (standing.caller != 0) of(standing.caller).fetch_add(to - from, std::memory_order_relaxed);
  }
  // Whether all connections together hold too much for one of that standing. Peers that are not known have half of the
  // budget; administrators are not bound by it. While memory is short, there is none for any.
  [[nodiscard]] bool exceeded(const Standing& standing) const noexcept {
    if (base::memory_is_low()) return true;
    if (standing == Standing::kAdmin) return false;
    return used() > (standing >= Standing::kKnown ? most_ : most_ / 2);
  }
  // Whether the caller of that standing holds more than its share, and not in one connection, which has `held`, alone.
  [[nodiscard]] bool share_exceeded(const Standing& standing, std::size_t held) const noexcept {
    if (standing.caller == 0 || standing == Standing::kAdmin) return false;
    return of(standing.caller).load(std::memory_order_relaxed) > std::max(most_ / 4, held);
  }
  [[nodiscard]] std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  using Bytes = std::atomic<std::size_t>;
  [[nodiscard]] Bytes& of(std::uint64_t caller) noexcept { return of_callers_[caller % of_callers_.size()]; }
  [[nodiscard]] const Bytes& of(std::uint64_t caller) const noexcept {
    return of_callers_[caller % of_callers_.size()];
  }

  const std::size_t most_;
  Bytes used_{0};
  std::array<Bytes, 1021> of_callers_{};
};

}  // namespace headgate::net
