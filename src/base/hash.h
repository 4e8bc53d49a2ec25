// A 128-bit seeded hash stands for a key everywhere: cells keep no strings.
#pragma once

#include <array>
#include <cassert>
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
inline constexpr std::uint64_t kScatter = 0x9E3779B97F4A7C15U;  // odd: no two lengths become one

template <class Word>
[[nodiscard]] inline std::uint64_t word(const char* bytes) noexcept {
  Word word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

struct TwoWords {
  std::uint64_t a;
  std::uint64_t b;
};
// All of a text of 1 to 16 bytes. The words overlap where there are not enough; only the length tells such texts apart.
[[nodiscard]] inline TwoWords two_words(std::string_view text) noexcept {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (text.size() >= 8) return {word<std::uint64_t>(begin), word<std::uint64_t>(end - 8)};
  if (text.size() >= 4) return {word<std::uint32_t>(begin), word<std::uint32_t>(end - 4)};
  return {word<std::uint8_t>(begin), word<std::uint8_t>(begin + text.size() / 2) << 8 | word<std::uint8_t>(end - 1)};
}
}  // namespace detail

// The hash of a store's keys. The seed is secret and random per store, so that nobody can choose keys that collide.
//
// Names of 1 to 16 and of 17 to 32 bytes, which most are, have ways of their own: two or four words, each under a
// secret of its own, multiplied twice over. The length is part of the second multiplication, not of the words: all bits
// of a word may be the name's own, and two names of different length may consist of the same words. XXH3 takes all
// others. Changing any of it makes old snapshots useless: see kVersion there.
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
    assert(is_short(text));
    const char* end = text.data() + text.size();
    const std::uint64_t a = detail::word<std::uint64_t>(text.data());
    const std::uint64_t b = detail::word<std::uint64_t>(text.data() + 8);
    const std::uint64_t c = detail::word<std::uint64_t>(end - 16);
    const std::uint64_t d = detail::word<std::uint64_t>(end - 8);
    // Each sum keeps what folding the other product loses.
    const std::uint64_t x = fold(a ^ secrets_[0], b ^ secrets_[1]) ^ (c + d);
    const std::uint64_t y = fold(c ^ secrets_[2], d ^ secrets_[3]) ^ (a + b);
    return finish(x, y, text.size());
  }

  // REQUIRES: 1 to 16 bytes.
  [[nodiscard]] Hash128 hash_tiny(std::string_view text) const noexcept {
    assert(!text.empty() && text.size() <= 16);
    const auto [a, b] = detail::two_words(text);
    const std::uint64_t x = fold(a ^ secrets_[0], b ^ secrets_[1]) ^ a;
    const std::uint64_t y = fold(a ^ secrets_[2], b ^ secrets_[3]) ^ b;
    return finish(x, y, text.size());
  }

 private:
  friend class HashChain;
  // Of equal words, another length makes another factor. The lengths are scattered before, off the path of the words.
  [[nodiscard]] Hash128 finish(std::uint64_t x, std::uint64_t y, std::uint64_t size) const noexcept {
    const std::uint64_t length = size * detail::kScatter;
    return {fold(x ^ secrets_[1], y ^ (secrets_[2] + length)), fold(x ^ (secrets_[3] + length), y ^ secrets_[0])};
  }

  std::uint64_t seed_;
  std::array<std::uint64_t, 4> secrets_;
};

// One hash of several things in a row, faster than the hash of each. 64 bits: it says where to look for something that
// is then compared in full.
class HashChain {
 public:
  explicit HashChain(const Hasher& hasher) noexcept
      : x_(hasher.secrets_[0]), y_(hasher.secrets_[1]), secret_(hasher.secrets_[2]), last_(hasher.secrets_[3]) {}

  // `what` says what the words are: the same ones elsewhere are not the same. Two by two, they are taken in at once.
  void add(std::uint64_t what, std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t& lane = (what & 1) != 0 ? x_ : y_;
    lane = fold(lane ^ a, (secret_ + what) ^ b);
  }
  // An empty text is the same as none.
  void add(std::uint64_t what, std::string_view text) noexcept {
    std::uint64_t& lane = (what & 1) != 0 ? x_ : y_;
    lane += text.size() * detail::kScatter;  // apart from the words, which may be the same for another length
    for (; text.size() > 16; text.remove_prefix(16)) {
      add(what, detail::word<std::uint64_t>(text.data()), detail::word<std::uint64_t>(text.data() + 8));
    }
    if (text.empty()) return;
    const auto [a, b] = detail::two_words(text);
    add(what, a, b);
  }
  [[nodiscard]] std::uint64_t all() const noexcept { return fold(x_ ^ secret_, y_ ^ last_); }

 private:
  std::uint64_t x_;
  std::uint64_t y_;
  std::uint64_t secret_;
  std::uint64_t last_;
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
