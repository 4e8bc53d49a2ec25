// Stands in front of the C library's allocator, or listens to a sanitizer's, which must stay in front itself.
#include "support/allocation_counter.h"

#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_THREAD__)
#define HEADGATE_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define HEADGATE_SANITIZER_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEADGATE_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define HEADGATE_SANITIZER_ALLOCATOR 1
#endif
#endif
#ifdef HEADGATE_THREAD_SANITIZER
#define HEADGATE_SANITIZER_ALLOCATOR 1
#endif

namespace {

thread_local constinit std::uint64_t counted = 0;

}  // namespace

#ifdef HEADGATE_SANITIZER_ALLOCATOR

// As sanitizer/allocator_interface.h declares it; that header comes with clang, but g++'s runtime has the function too.
// NOLINTNEXTLINE: a reserved name is the point.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));

namespace {

void on_malloc(const volatile void*, std::size_t) { ++counted; }
void on_free(const volatile void*) {}
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);

}  // namespace

#else

// The names under which the C library keeps its own allocator for those who stand in front of it.
// NOLINTBEGIN: reserved names and C signatures are the point.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* block);

void* malloc(std::size_t size) noexcept {
  ++counted;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  ++counted;
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) noexcept {
  ++counted;
  return __libc_realloc(block, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  ++counted;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++counted;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  ++counted;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) noexcept { __libc_free(block); }
}
// NOLINTEND

#endif

namespace headgate::test {

std::uint64_t allocations() noexcept { return counted; }

bool counts_aligned() noexcept {
#ifdef HEADGATE_THREAD_SANITIZER
  return false;
#else
  return true;
#endif
}

}  // namespace headgate::test
