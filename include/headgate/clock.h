// Where time comes from. Everything in Headgate that depends on time takes it from a Clock, so that tests and
// simulations never wait.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace headgate {

using Nanos = std::chrono::nanoseconds;

// Instants are accepted in [0, kMaxTime], about the years 1970 to 2116, and clamped into it, so that no sum of an
// instant and a span of a valid limit overflows.
inline constexpr Nanos kMaxTime{std::int64_t{1} << 62};

// Told when a clock that does not run by itself has moved.
class ClockListener {
 public:
  virtual void clock_moved() noexcept = 0;

 protected:
  ~ClockListener() = default;
};

// One timeline: nanoseconds since the Unix epoch that never run backwards. Limits measure elapsed time on it.
//
// Safe for concurrent use. A clock must outlive every limiter that uses it.
class Clock {
 public:
  virtual ~Clock() = default;

  [[nodiscard]] virtual Nanos now() const noexcept = 0;

  // The calendar's reading at `now`, which may step when somebody sets the clock. Windows aligned to the epoch and
  // calendar periods follow it; nothing else does.
  [[nodiscard]] virtual Nanos wall(Nanos now) const noexcept { return now; }

  // Waits until `until`, a notification, or for no reason at all: callers loop.
  virtual void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, Nanos until) const;

  // Clocks that are moved by hand tell their listeners; others ignore this.
  virtual void subscribe(ClockListener*) {}
  virtual void unsubscribe(ClockListener*) {}
};

// The machine's clock: the wall clock at first use, carried on by the monotonic clock. One read costs one
// clock_gettime; the step between the two is measured again at most ten times a second.
class SystemClock final : public Clock {
 public:
  SystemClock() noexcept;
  [[nodiscard]] Nanos now() const noexcept override;
  [[nodiscard]] Nanos wall(Nanos now) const noexcept override;

  // The one that limiters use when they are given none.
  static SystemClock& shared() noexcept;

 private:
  Nanos anchor_;  // wall minus monotonic time when the clock was made
  mutable std::atomic<std::int64_t> measured_at_{0};
  mutable std::atomic<std::int64_t> skew_{0};  // how far the wall clock has been stepped since
};

// A clock that stands still until it is told. Moving it wakes whoever waits on it.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Nanos start = Nanos{0}) noexcept : now_(start.count()) {}
  [[nodiscard]] Nanos now() const noexcept override { return Nanos{now_.load()}; }
  [[nodiscard]] Nanos wall(Nanos now) const noexcept override { return now + Nanos{skew_.load()}; }
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, Nanos until) const override;
  void subscribe(ClockListener* listener) override;
  void unsubscribe(ClockListener* listener) override;

  void advance(Nanos by);
  void set(Nanos now);       // may go backwards, to show that nothing breaks
  void step_wall(Nanos by);  // as if somebody had set the wall clock

 private:
  void tell();

  std::atomic<std::int64_t> now_;
  std::atomic<std::int64_t> skew_{0};
  std::mutex mutex_;  // guards listeners_, and holds them alive while they are told
  std::vector<ClockListener*> listeners_;
};

}  // namespace headgate
