// How much more than a limit was admitted, over every interval of its window.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>

#include "headgate/limit.h"

namespace headgate::sim {

// Told of every unit in the order of time. Knows nothing of how limits are computed elsewhere.
class Meter {
 public:
  Meter(Strategy strategy, Units limit, Nanos span) : strategy_(strategy), limit_(limit), span_(span) {}

  void admitted(Units units, Nanos now) {
    switch (strategy_) {
      case Strategy::kSlidingWindow: return in_any_window(units, now);
      case Strategy::kFixedWindow: return in_aligned_window(units, now);
      default: return in_any_interval(units, now);
    }
  }
  [[nodiscard]] Units over() const noexcept { return over_; }

 private:
  void in_any_window(Units units, Nanos now) {
    while (!events_.empty() && events_.front().at + span_ <= now) {
      inside_ -= events_.front().units;
      events_.pop_front();
    }
    events_.push_back({now, units});
    inside_ += units;
    over_ = std::max(over_, inside_ - limit_);
  }
  void in_aligned_window(Units units, Nanos now) {
    const std::int64_t window = now / span_;
    if (window != window_) inside_ = 0;
    window_ = window;
    inside_ += units;
    over_ = std::max(over_, inside_ - limit_);
  }
  // A bucket that lets everything pass: how far below empty it gets is what the worst interval had too many.
  void in_any_interval(Units units, Nanos now) {
    const double rate = static_cast<double>(limit_) / static_cast<double>(span_.count());
    level_ = std::min(static_cast<double>(limit_), level_ + rate * static_cast<double>((now - last_).count()));
    last_ = now;
    level_ -= static_cast<double>(units);
    over_ = std::max(over_, static_cast<Units>(std::ceil(-level_ - 1e-6)));
  }

  struct Event {
    Nanos at;
    Units units;
  };
  Strategy strategy_;
  Units limit_;
  Nanos span_;
  Units over_ = 0;
  Units inside_ = 0;
  std::deque<Event> events_;
  std::int64_t window_ = -1;
  double level_ = static_cast<double>(limit_);
  Nanos last_{0};
};

}  // namespace headgate::sim
