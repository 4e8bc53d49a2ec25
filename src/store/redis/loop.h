// The client's thread waits here for sockets.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "store/redis/request.h"
#include "store/redis/stream.h"

namespace headgate::store::redis {

class Watcher {
 public:
  virtual void on_events(std::uint32_t events) = 0;

 protected:
  ~Watcher() = default;
};

// On one thread, but for waker(). A watcher that goes must be forgotten first; it may be forgotten while events are
// given out.
class Loop {
 public:
  Loop();

  [[nodiscard]] bool works() const noexcept { return epoll_ && waker_->fd() >= 0; }
  [[nodiscard]] const std::shared_ptr<Waker>& waker() const noexcept { return waker_; }
  // Replaces what was watched for at this descriptor.
  [[nodiscard]] bool watch(int fd, std::uint32_t events, Watcher& watcher) noexcept;
  void forget(int fd, const Watcher& watcher) noexcept;

  // Waits for at most that long. True: it was woken.
  bool wait(Nanos at_most);

  // When the last wait ended, or later.
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  void look_at_clock() noexcept { now_ = steady_now(); }

  // A buffer for reading a socket, valid until the reader returns.
  static constexpr std::size_t kBufferBytes = 65536;
  [[nodiscard]] char* buffer() noexcept { return buffer_.get(); }

 private:
  static constexpr std::size_t kMaxEvents = 64;

  base::Descriptor epoll_;
  std::shared_ptr<Waker> waker_;
  std::unique_ptr<char[]> buffer_;
  std::array<Watcher*, kMaxEvents> given_{};  // whom the events at hand are for; null: forgotten meanwhile
  Nanos now_{0};
};

}  // namespace headgate::store::redis
