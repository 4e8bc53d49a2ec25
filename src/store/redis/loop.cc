#include "store/redis/loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/wake_later.h"

namespace headgate::store::redis {

Loop::Loop()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      waker_(std::make_shared<Waker>()),
      buffer_(std::make_unique<char[]>(kBufferBytes)),
      now_(steady_now()) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // the waker alone has none
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, waker_->fd(), &event);
}

bool Loop::watch(int fd, std::uint32_t events, Watcher& watcher) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watcher;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return true;
  return errno == ENOENT && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Loop::forget(int fd, const Watcher& watcher) noexcept {
  if (fd >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::replace_if(
      given_.begin(), given_.end(), [&](const Watcher* each) { return each == &watcher; }, nullptr);
}

bool Loop::wait(Nanos at_most) {
  // Rounded up, or the thread would spin through the last millisecond before a deadline.
  const auto wait =
      std::chrono::ceil<std::chrono::milliseconds>(std::clamp(at_most, Nanos{0}, Nanos{3600'000'000'000}));
  std::array<epoll_event, kMaxEvents> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, static_cast<int>(wait.count()));
  look_at_clock();
  bool woken = false;
  for (std::size_t i = 0; i < kMaxEvents; ++i) {
    const bool is_event = count > 0 && i < static_cast<std::size_t>(count);
    given_[i] = is_event ? static_cast<Watcher*>(events[i].data.ptr) : nullptr;
    if (is_event && given_[i] == nullptr) woken = true;
  }
  if (woken) waker_->clear();
  const base::WakeLater together;
  for (std::size_t i = 0; i < kMaxEvents; ++i) {
    if (Watcher* const watcher = given_[i]; watcher != nullptr) watcher->on_events(events[i].events);
  }
  given_.fill(nullptr);
  return woken;
}

}  // namespace headgate::store::redis
