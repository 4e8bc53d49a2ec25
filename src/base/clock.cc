#include "headgate/clock.h"

#include <algorithm>

namespace headgate {
namespace {

Nanos steady() noexcept { return std::chrono::steady_clock::now().time_since_epoch(); }
Nanos calendar() noexcept { return std::chrono::system_clock::now().time_since_epoch(); }

constexpr Nanos kMeasureEvery = std::chrono::milliseconds{100};

}  // namespace

void Clock::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, Nanos until) const {
  // No wait is longer than an hour: callers loop, and an instant far ahead must not overflow.
  const Nanos left = std::min<Nanos>(until - now(), std::chrono::hours{1});
  if (left > Nanos{0}) wake.wait_for(lock, left);
}

SystemClock::SystemClock() noexcept : anchor_(calendar() - steady()) {}

Nanos SystemClock::now() const noexcept { return steady() + anchor_; }

Nanos SystemClock::wall(Nanos now) const noexcept {
  // A caller may ask about any instant, so it is the clock's own reading that is remembered: an instant far ahead must
  // not put the next measurement off for ever.
  const Nanos measured_at{measured_at_.load(std::memory_order_relaxed)};
  if (now - measured_at >= kMeasureEvery || measured_at - now >= kMeasureEvery) {
    const Nanos current = this->now();
    skew_.store((calendar() - current).count(), std::memory_order_relaxed);
    measured_at_.store(current.count(), std::memory_order_relaxed);
  }
  return now + Nanos{skew_.load(std::memory_order_relaxed)};
}

SystemClock& SystemClock::shared() noexcept {
  static SystemClock clock;
  return clock;
}

void ManualClock::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, Nanos until) const {
  if (now() < until) wake.wait(lock);
}

void ManualClock::subscribe(ClockListener* listener) {
  const std::lock_guard guard(mutex_);
  listeners_.push_back(listener);
}

void ManualClock::unsubscribe(ClockListener* listener) {
  const std::lock_guard guard(mutex_);
  std::erase(listeners_, listener);
}

void ManualClock::advance(Nanos by) {
  now_ += by.count();
  tell();
}

void ManualClock::set(Nanos now) {
  now_ = now.count();
  tell();
}

void ManualClock::step_wall(Nanos by) {
  skew_ += by.count();
  tell();
}

void ManualClock::tell() {
  const std::lock_guard guard(mutex_);
  for (ClockListener* listener : listeners_) listener->clock_moved();
}

}  // namespace headgate
