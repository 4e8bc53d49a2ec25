#include "quota/socket_watch.h"

#include <sys/socket.h>

#include <utility>

namespace headgate::quota {

SocketWatch::~SocketWatch() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SocketWatch::set(int socket, Nanos patience) {
  const std::lock_guard guard(mutex_);
  socket_ = socket;
  until_ = std::chrono::steady_clock::now() + patience;
  // A wait for an earlier socket ends early or late without harm: run() looks again.
  if (socket >= 0) changed_.notify_one();
}

void SocketWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (socket_ < 0) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < until_) {
      changed_.wait_until(lock, until_);
    } else {
      ::shutdown(std::exchange(socket_, -1), SHUT_RDWR);
    }
  }
}

}  // namespace headgate::quota
