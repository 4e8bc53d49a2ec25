// Hangs up on a peer that has not answered in time, for libraries that would wait for ever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "headgate/clock.h"

namespace headgate::quota {

class SocketWatch {
 public:
  SocketWatch() : thread_([this] { run(); }) {}
  ~SocketWatch();

  // While one lives the socket has that long; then both directions are shut down, and a call that waits on it finds
  // that the peer is gone. One at a time. The socket must stay open meanwhile.
  class Guard {
   public:
    Guard(SocketWatch& watch, int socket, Nanos patience) : watch_(watch) { watch_.set(socket, patience); }
    ~Guard() { watch_.set(-1, Nanos{0}); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    SocketWatch& watch_;
  };

 private:
  void set(int socket, Nanos patience);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  int socket_ = -1;
  std::chrono::steady_clock::time_point until_{};
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace headgate::quota
