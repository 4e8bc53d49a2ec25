#include "server/hangup.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace headgate::server {
namespace {

std::atomic<bool> in_use{false};
// Made once and never closed: a handler in another thread may be about to write to it at any time.
std::atomic<int> signalled{-1};

void on_hangup(int) {
  const int kept = errno;
  const std::uint64_t one = 1;
  // It can fail only when the counter is full, and then it is readable anyway.
  [[maybe_unused]] const ssize_t ignored = ::write(signalled.load(), &one, sizeof(one));
  errno = kept;
}

}  // namespace

Result<Hangup> Hangup::open() {
  if (in_use.exchange(true)) {
    return Error{ErrorCode::kInvalidArgument, "SIGHUP must have one listener in a process, got a second"};
  }
  const auto give_up = [](const char* what) {
    Error error{ErrorCode::kIo, std::string(what) + ": " + std::strerror(errno), true};
    in_use = false;
    return error;
  };
  if (signalled.load() < 0) signalled = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (signalled.load() < 0) return give_up("SIGHUP cannot be listened for");
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = on_hangup;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGHUP, &action, &before) != 0) return give_up("SIGHUP cannot be listened for");
  Hangup hangup(before);
  hangup.drain();  // what came for one before
  return hangup;
}

Hangup::Hangup(Hangup&& other) noexcept : before_(other.before_), owner_(std::exchange(other.owner_, false)) {}

Hangup::~Hangup() {
  if (!owner_) return;
  ::sigaction(SIGHUP, &before_, nullptr);
  in_use = false;
}

int Hangup::fd() const noexcept { return signalled.load(); }

bool Hangup::drain() noexcept {
  std::uint64_t count = 0;
  return ::read(fd(), &count, sizeof(count)) == sizeof(count);
}

}  // namespace headgate::server
