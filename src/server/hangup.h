// SIGHUP as a file descriptor.
#pragma once

#include <csignal>

#include "headgate/result.h"

namespace headgate::server {

// While one lives, SIGHUP makes its descriptor readable and does nothing else; then whatever was set before comes back.
// There is at most one at a time in a process. drain() and fd() are for one thread at a time.
class Hangup {
 public:
  static Result<Hangup> open();
  Hangup(Hangup&& other) noexcept;
  Hangup& operator=(Hangup&&) = delete;
  ~Hangup();

  [[nodiscard]] int fd() const noexcept;
  // True: the signal has come since the last call.
  bool drain() noexcept;

 private:
  explicit Hangup(const struct sigaction& before) noexcept : before_(before) {}

  struct sigaction before_;
  bool owner_ = true;
};

}  // namespace headgate::server
