// A 128-bit seeded hash stands for a key everywhere: cells keep no strings.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/wide.h"

namespace headgate::base {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// The two halves of the product, folded: the cheapest thorough mix there is.
[[nodiscard]] inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  const auto product = static_cast<WideUnsigned>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// The seed is secret and random, so that nobody can choose names that collide.
[[nodiscard]] inline Hash128 hash128(std::string_view text, std::uint64_t seed) noexcept {
  const XXH128_hash_t h = XXH3_128bits_withSeed(text.data(), text.size(), seed);
  return {h.low64, h.high64};
}

namespace detail {
template <class Word>
[[nodiscard]] inline std::uint64_t word(const char* bytes) noexcept {
  Word word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
}  // namespace detail

// The hash of a store's keys. The seed is secret and random per store, so that nobody can choose keys that collide.
//
// Names of 1 to 16 and of 17 to 32 bytes, which most are, have ways of their own: two or four words, each under a
// secret of its own, multiplied twice over. XXH3 takes all others. Changing any of it makes old snapshots useless: see
// kVersion there.
class Hasher {
 public:
  explicit Hasher(std::uint64_t seed) noexcept : seed_(seed) {
    for (std::size_t i = 0; i < 4; ++i) secrets_[i] = XXH64(&seed, sizeof(seed), i);
  }

  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

  [[nodiscard]] static bool is_short(std::string_view text) noexcept { return text.size() - 17 < 16; }
  [[nodiscard]] Hash128 operator()(std::string_view text) const noexcept {
    if (is_short(text)) return hash_short(text);
    if (text.size() - 1 < 16) return hash_tiny(text);
    return hash128(text, seed_);
  }
  // REQUIRES: is_short(text).
  [[nodiscard]] Hash128 hash_short(std::string_view text) const noexcept {
    const char* end = text.data() + text.size();
    const std::uint64_t a = detail::word<std::uint64_t>(text.data());
    const std::uint64_t b = detail::word<std::uint64_t>(text.data() + 8);
    const std::uint64_t c = detail::word<std::uint64_t>(end - 16);
    const std::uint64_t d = detail::word<std::uint64_t>(end - 8);
    // Each sum keeps what folding the other product loses.
    const std::uint64_t x = fold(a ^ secrets_[0], b ^ secrets_[1]) ^ (c + d);
    const std::uint64_t y = fold(c ^ secrets_[2], d ^ secrets_[3]) ^ (a + b + text.size());
    return {fold(x ^ secrets_[1], y ^ secrets_[2]), fold(x ^ secrets_[3], y ^ secrets_[0])};
  }

  // REQUIRES: 1 to 16 bytes. The words overlap where there are not enough bytes; the length tells such texts apart.
  [[nodiscard]] Hash128 hash_tiny(std::string_view text) const noexcept {
    const char* begin = text.data();
    const char* end = begin + text.size();
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    if (text.size() >= 8) {
      a = detail::word<std::uint64_t>(begin);
      b = detail::word<std::uint64_t>(end - 8);
    } else if (text.size() >= 4) {
      a = detail::word<std::uint32_t>(begin);
      b = detail::word<std::uint32_t>(end - 4);
    } else {
      a = detail::word<std::uint8_t>(begin);
      b = detail::word<std::uint8_t>(begin + text.size() / 2) << 8 | detail::word<std::uint8_t>(end - 1);
    }
    b += text.size() << 56;
    const std::uint64_t x = fold(a ^ secrets_[0], b ^ secrets_[1]) ^ a;
    const std::uint64_t y = fold(a ^ secrets_[2], b ^ secrets_[3]) ^ b;
    return {fold(x ^ secrets_[1], y ^ secrets_[2]), fold(x ^ secrets_[3], y ^ secrets_[0])};
  }

 private:
  std::uint64_t seed_;
  std::array<std::uint64_t, 4> secrets_;
};

// Another key made from this one, for the n-th limit on it.
[[nodiscard]] inline Hash128 nth(Hash128 hash, std::uint64_t n) noexcept {
  if (n == 0) return hash;
  return {XXH64(&hash, sizeof(hash), n), XXH64(&hash, sizeof(hash), ~n)};
}

// One hash from two that are random already; which is which matters.
[[nodiscard]] inline Hash128 mix(Hash128 a, Hash128 b) noexcept {
  return {fold(a.low ^ b.low ^ 0x9E3779B185EBCA87U, b.high ^ (a.high + 0xC2B2AE3D27D4EB4FU)),
          fold(a.high ^ (b.low + 0x165667B19E3779F9U), b.high ^ a.low ^ 0x85EBCA77C2B2AE63U)};
}

[[nodiscard]] std::uint64_t random_seed() noexcept;

}  // namespace headgate::base
