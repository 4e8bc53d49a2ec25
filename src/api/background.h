// One thread for what would hold up those that serve connections: reading the ledger, mostly.
//
// Safe for concurrent use. In order of arrival; at the bound nothing more is taken.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace headgate::api {

class Background {
 public:
  static constexpr std::size_t kMostQueued = 64;
  Background() : thread_([this] { serve(); }) {}
  ~Background() {  // what has not begun is dropped
    {
      const std::lock_guard guard(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // False: too much waits already. The work must not throw.
  [[nodiscard]] bool run(std::function<void()> work) {
    {
      const std::lock_guard guard(mutex_);
      if (queue_.size() >= kMostQueued) return false;
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
    return true;
  }

 private:
  void serve() {
    std::unique_lock guard(mutex_);
    for (;;) {
      wake_.wait(guard, [this] { return ending_ || !queue_.empty(); });
      if (ending_) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      guard.unlock();
      work();
      guard.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace headgate::api
