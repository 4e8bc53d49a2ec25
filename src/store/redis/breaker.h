// Whether a server is worth asking: after several failures in a row, over some time, calls fail at once, until a probe
// is answered. A moment in which either side had no turn is no sign that the server is away.
#pragma once

#include <algorithm>
#include <chrono>

#include "headgate/clock.h"

namespace headgate::store::redis {

// A function of what it is told; on one thread.
class Breaker {
 public:
  static constexpr int kFailures = 5;                             // in a row,
  static constexpr Nanos kOver = std::chrono::milliseconds{500};  // and this long after the first of them
  static constexpr Nanos kFirstProbe = std::chrono::milliseconds{100};
  static constexpr Nanos kLastProbe = std::chrono::seconds{1};
  static constexpr Nanos kRelapse = std::chrono::seconds{10};  // opened again within this, it is probed less often

  [[nodiscard]] bool is_open() const noexcept { return open_; }

  // A call was not answered in time, or the server said that it cannot work now. True: that opened it.
  bool failed(Nanos now) noexcept {
    if (failures_++ == 0) first_failure_ = now;
    return failures_ >= kFailures && now - first_failure_ >= kOver && open(now);
  }
  void answered() noexcept { failures_ = 0; }
  // Nothing was answered for long. True: that opened it.
  bool open(Nanos now) noexcept {
    if (open_) return false;
    open_ = true;
    const bool relapsed = closed_once_ && now - closed_at_ < kRelapse;
    interval_ = relapsed ? std::min(interval_ * 2, kLastProbe) : kFirstProbe;
    probe_at_ = now + interval_;
    return true;
  }

  // While it is open: when to ask the server for a sign of life.
  [[nodiscard]] Nanos probe_at() const noexcept { return probe_at_; }
  void probing(Nanos now) noexcept {
    interval_ = std::min(interval_ * 2, kLastProbe);
    probe_at_ = now + interval_;
  }
  // The probe was answered in time, or the server was reached anew. True: that closed it.
  bool close(Nanos now) noexcept {
    failures_ = 0;
    if (!open_) return false;
    open_ = false;
    closed_once_ = true;
    closed_at_ = now;
    return true;
  }

 private:
  bool open_ = false;
  bool closed_once_ = false;
  int failures_ = 0;
  Nanos first_failure_{0};
  Nanos interval_ = kFirstProbe;
  Nanos probe_at_{0};
  Nanos closed_at_{0};
};

// Waits between attempts to connect: longer each time, and never the same for two clients.
class Pause {
 public:
  static constexpr Nanos kFirst = std::chrono::milliseconds{10};
  static constexpr Nanos kLast = std::chrono::seconds{1};

  // `dice` is evenly spread from 0 to 1. The pause is between half of what is due and all of it.
  [[nodiscard]] Nanos next(double dice) noexcept {
    const Nanos most = span_;
    span_ = std::min(span_ * 2, kLast);
    return most / 2 + Nanos(static_cast<Nanos::rep>(static_cast<double>(most.count()) / 2 * dice));
  }
  void reset() noexcept { span_ = kFirst; }

 private:
  Nanos span_ = kFirst;
};

}  // namespace headgate::store::redis
