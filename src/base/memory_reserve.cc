#include "base/memory_reserve.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace headgate::base {
namespace {

std::atomic<void*> reserve{nullptr};
std::atomic<std::size_t> size{0};
std::atomic<std::uint64_t> shortages{0};

// Mapped directly: what malloc gives back need not return to where another thread's arena can use it.
bool put_aside() noexcept {
  const std::size_t bytes = size.load();
  void* made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, made)) ::munmap(made, bytes);
  return true;
}

void release() {
  void* held = reserve.exchange(nullptr);
  if (held == nullptr) throw std::bad_alloc();
  shortages.fetch_add(1, std::memory_order_relaxed);
  ::munmap(held, size.load());
}

}  // namespace

void keep_memory_reserve(std::size_t bytes) {
  std::size_t none = 0;
  if (!size.compare_exchange_strong(none, bytes)) return;
  if (put_aside()) std::set_new_handler(release);
}

void refill_memory_reserve() noexcept {
  if (memory_is_low()) (void)put_aside();
}

bool memory_is_low() noexcept {
  return reserve.load(std::memory_order_relaxed) == nullptr && size.load(std::memory_order_relaxed) != 0;
}
std::uint64_t memory_shortages() noexcept { return shortages.load(std::memory_order_relaxed); }

}  // namespace headgate::base
