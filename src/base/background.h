// Threads for work that would hold up the io threads: reading the disk, judging large batches, reading policies.
//
// Safe for concurrent use. Work begins in order of arrival; at the bounds nothing more is taken.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace headgate::base {

class Background {
 public:
  static constexpr std::size_t kMostQueued = 64;
  struct Bounds {
    std::size_t threads = 1;
    std::size_t queued = kMostQueued;                             // that have not begun
    std::size_t bytes = std::numeric_limits<std::size_t>::max();  // of those; one alone may be larger
  };

  Background() : Background(Bounds{}) {}
  explicit Background(const Bounds& bounds) : bounds_(bounds) {
    for (std::size_t i = 0; i < bounds.threads; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Background() {  // work that has not begun is dropped
    {
      const std::lock_guard guard(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // False: the queue is full. `bytes` is the memory that the work holds while it is queued.
  [[nodiscard]] bool run(std::function<void()> work, std::size_t bytes = 0) {
    {
      const std::lock_guard guard(mutex_);
      if (queue_.size() >= bounds_.queued) return false;
      if (!queue_.empty() && (bytes > bounds_.bytes || bytes_ > bounds_.bytes - bytes)) return false;
      queue_.push_back({std::move(work), bytes});
      bytes_ += bytes;
    }
    wake_.notify_one();
    return true;
  }

 private:
  struct Queued {
    std::function<void()> work;
    std::size_t bytes = 0;
  };

  void serve() {
    std::unique_lock guard(mutex_);
    for (;;) {
      wake_.wait(guard, [this] { return ending_ || !queue_.empty(); });
      if (ending_) return;
      std::function<void()> work = std::move(queue_.front().work);
      bytes_ -= queue_.front().bytes;
      queue_.pop_front();
      guard.unlock();
      try {
        work();
      } catch (...) {  // no memory is left to report it; a reply that is dropped answers 503
      }
      work = nullptr;
      guard.lock();
    }
  }

  const Bounds bounds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Queued> queue_;
  std::size_t bytes_ = 0;  // of the queue
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace headgate::base
