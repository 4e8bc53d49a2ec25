// A 128-bit seeded hash stands for a key everywhere: cells keep no strings.
#pragma once

#include <cstdint>
#include <string_view>

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

[[nodiscard]] std::uint64_t random_seed() noexcept;

}  // namespace headgate::base
