#include "base/hash.h"

#include <sys/random.h>

#include <chrono>

namespace headgate::base {

std::uint64_t random_seed() noexcept {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(seed))) return seed;
  // Before the kernel's pool is ready: better a seed that is hard to guess than none.
  seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return XXH64(&seed, sizeof(seed), reinterpret_cast<std::uintptr_t>(&seed));
}

}  // namespace headgate::base
