// Many changes in a row are one: due when they have been quiet for a while, or when the first has waited long enough.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "headgate/clock.h"

namespace headgate::server {

struct DebounceSettings {
  Nanos quiet{std::chrono::milliseconds{100}};
  Nanos most{std::chrono::seconds{2}};
};

// Pure but for its two instants. A change that seems to come before the last counts as coming with it.
class Debounce {
 public:
  explicit Debounce(DebounceSettings settings) noexcept : settings_(settings) {}

  void touch(Nanos now) noexcept {
    if (!first_) first_ = last_ = now;
    last_ = std::max(last_, now);
  }
  // The instant from which take() is true; none while nothing has changed.
  [[nodiscard]] std::optional<Nanos> due_at() const noexcept {
    if (!first_) return std::nullopt;
    return std::min(last_ + settings_.quiet, *first_ + settings_.most);
  }
  // True once for each run of changes.
  [[nodiscard]] bool take(Nanos now) noexcept {
    if (!first_ || now < *due_at()) return false;
    first_.reset();
    return true;
  }

 private:
  DebounceSettings settings_;
  std::optional<Nanos> first_;
  Nanos last_{0};
};

}  // namespace headgate::server
