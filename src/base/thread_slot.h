// A small number for each thread, so that what threads count apart they need not fight over.
#pragma once

#include <cstddef>

namespace headgate::base {

// Slots below this are owned by one thread at a time, until it ends; when all are taken, further threads share the
// last.
inline constexpr std::size_t kOwnedSlots = 64;
inline constexpr std::size_t kThreadSlots = kOwnedSlots + 1;

namespace detail {
inline constexpr std::size_t kNoSlot = ~std::size_t{0};
inline thread_local constinit std::size_t slot = kNoSlot;
[[nodiscard]] std::size_t claim_slot() noexcept;
}  // namespace detail

[[nodiscard]] inline std::size_t thread_slot() noexcept {
  return detail::slot != detail::kNoSlot ? detail::slot : detail::claim_slot();
}

}  // namespace headgate::base
