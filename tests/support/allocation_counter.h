// Counts a thread's calls into the heap, from any library: malloc, new, calloc, realloc and the aligned forms alike.
#pragma once

#include <cstdint>

namespace headgate::test {

// How many allocations this thread has made since it began. Never decreases.
[[nodiscard]] std::uint64_t allocations() noexcept;

// Whether the aligned forms are counted: ThreadSanitizer does not tell of them.
[[nodiscard]] bool counts_aligned() noexcept;

// How many allocations `act` makes.
template <class Act>
[[nodiscard]] std::uint64_t allocations_in(Act act) {
  const std::uint64_t before = allocations();
  act();
  return allocations() - before;
}

}  // namespace headgate::test
