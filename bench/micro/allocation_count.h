// How often this program has asked the allocator for memory, by any way into it.
#pragma once

#include <cstdint>

namespace headgate::bench {

[[nodiscard]] std::uint64_t allocations() noexcept;

}  // namespace headgate::bench
