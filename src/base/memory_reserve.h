// Memory put aside, so that a failed allocation can be answered instead of ending the process.
//
// The first allocation that fails on any thread releases the reserve and is tried again; until it has been put aside
// again, is_low() says that memory is short, and those who hold buffers for strangers let go of them. An allocation
// that fails while the reserve is out throws std::bad_alloc as usual. Safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headgate::base {

// Once, on start. The reserve is address space of that size; nothing is written to it.
void keep_memory_reserve(std::size_t bytes);
// Puts the reserve aside again if it is out and there is room; about once a second.
void refill_memory_reserve() noexcept;
[[nodiscard]] bool memory_is_low() noexcept;              // one load
[[nodiscard]] std::uint64_t memory_shortages() noexcept;  // how often the reserve was released

}  // namespace headgate::base
