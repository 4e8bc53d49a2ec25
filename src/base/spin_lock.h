// A lock of four bytes for critical sections of a few nanoseconds: one atomic exchange to take, one store to release.
#pragma once

#include <atomic>
#include <thread>

namespace headgate::base {

class SpinLock {
 public:
  void lock() noexcept {
    if (!taken_.exchange(true, std::memory_order_acquire)) return;
    lock_contended();
  }
  [[nodiscard]] bool try_lock() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  // The holder may have lost its core: after a short spin, let it run.
  void lock_contended() noexcept {
    for (;;) {
      for (int spin = 0; spin < 128; ++spin) {
        if (!taken_.load(std::memory_order_relaxed) && try_lock()) return;
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
      }
      std::this_thread::yield();
    }
  }

  std::atomic<bool> taken_{false};
};

}  // namespace headgate::base
