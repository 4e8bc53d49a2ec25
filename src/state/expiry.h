// Judges whether tokens have expired, and does not take it back when the clock is set back.
//
// Safe for concurrent use. Costs one relaxed load; writes only when a token is first found to have expired.
#pragma once

#include <algorithm>
#include <atomic>

#include "headgate/clock.h"

namespace headgate::state {

class Expiry {
 public:
  // `expires`: wall clock; 0 for a token that never does.
  [[nodiscard]] bool is_over(Nanos expires, Nanos now) noexcept {
    if (expires == Nanos{0}) return false;
    Nanos::rep latest = latest_.load(std::memory_order_relaxed);
    if (expires.count() <= latest) return true;
    if (expires > now) return false;
    while (latest < expires.count() &&
           !latest_.compare_exchange_weak(latest, expires.count(), std::memory_order_relaxed)) {
    }
    return true;
  }

  // Tokens that expire until then have expired.
  [[nodiscard]] Nanos horizon(Nanos now) const noexcept {
    return std::max(now, Nanos{latest_.load(std::memory_order_relaxed)});
  }

 private:
  std::atomic<Nanos::rep> latest_{0};  // the latest expiry that was found to be over
};

}  // namespace headgate::state
