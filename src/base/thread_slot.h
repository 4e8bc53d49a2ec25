// A small number for each thread, so that what threads count apart they need not fight over.
#pragma once

#include <cstddef>

namespace headgate::base {

// Slots below this are owned by one thread at a time, until it ends; when all are taken, further threads share the
// last.
inline constexpr std::size_t kOwnedSlots = 64;
inline constexpr std::size_t kThreadSlots = kOwnedSlots + 1;

[[nodiscard]] std::size_t thread_slot() noexcept;

}  // namespace headgate::base
