// A 128-bit seeded hash stands for a key everywhere: cells keep no strings.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/wide.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace headgate::base {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// The seed is secret and random per store, so that nobody can choose keys that collide.
[[nodiscard]] inline Hash128 hash128(std::string_view text, std::uint64_t seed) noexcept {
  const XXH128_hash_t h = XXH3_128bits_withSeed(text.data(), text.size(), seed);
  return {h.low64, h.high64};
}

// Another key made from this one, for the n-th limit on it.
[[nodiscard]] inline Hash128 nth(Hash128 hash, std::uint64_t n) noexcept {
  if (n == 0) return hash;
  return {XXH64(&hash, sizeof(hash), n), XXH64(&hash, sizeof(hash), ~n)};
}

// The two halves of the product, folded: the cheapest thorough mix there is.
[[nodiscard]] inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  const auto product = static_cast<WideUnsigned>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// One hash from two that are random already; which is which matters.
[[nodiscard]] inline Hash128 mix(Hash128 a, Hash128 b) noexcept {
  return {fold(a.low ^ b.low ^ 0x9E3779B185EBCA87U, b.high ^ (a.high + 0xC2B2AE3D27D4EB4FU)),
          fold(a.high ^ (b.low + 0x165667B19E3779F9U), b.high ^ a.low ^ 0x85EBCA77C2B2AE63U)};
}

[[nodiscard]] std::uint64_t random_seed() noexcept;

}  // namespace headgate::base
