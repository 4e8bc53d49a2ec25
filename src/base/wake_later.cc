#include "base/wake_later.h"

#include <algorithm>
#include <cstdint>

namespace headgate::base {
namespace {

thread_local WakeLater* innermost = nullptr;

void write_now(const Descriptor& event) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

}  // namespace

WakeLater::WakeLater() noexcept : outer_(innermost) { innermost = this; }

WakeLater::~WakeLater() {
  innermost = outer_;
  for (const auto& event : events_) write_now(*event);
}

void write_wake(const std::shared_ptr<const Descriptor>& event) {
  if (innermost == nullptr) return write_now(*event);
  auto& events = innermost->events_;
  if (std::find(events.begin(), events.end(), event) == events.end()) events.push_back(event);
}

}  // namespace headgate::base
