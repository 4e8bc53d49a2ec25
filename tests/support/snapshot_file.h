// Snapshot files that are corrupted on purpose, with a valid checksum.
#pragma once

#include <cstring>
#include <random>
#include <string>

#include "base/hash.h"

namespace headgate::test {

inline constexpr std::size_t kSumSize = 16;

// Replaces the last sixteen bytes by the sum of the rest.
inline std::string sign(std::string bytes) {
  if (bytes.size() < kSumSize) return bytes;
  const std::size_t size = bytes.size() - kSumSize;
  const XXH128_hash_t sum = XXH3_128bits(bytes.data(), size);
  std::memcpy(bytes.data() + size, &sum.low64, 8);
  std::memcpy(bytes.data() + size + 8, &sum.high64, 8);
  return bytes;
}

// The file with one to four changes in the middle of it: a bit, a byte, a word that is likely to hurt, a piece more or
// a piece less. The first twelve bytes stay, since without them nothing is read.
inline std::string mutated(std::string bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  static constexpr std::int64_t kWords[] = {0,
                                            1,
                                            -1,
                                            1 << 20,
                                            std::int64_t{1} << 31,
                                            std::int64_t{1} << 53,
                                            std::int64_t{1} << 61,
                                            std::int64_t{1} << 62,
                                            (std::int64_t{1} << 62) + 1,
                                            INT64_MAX,
                                            INT64_MIN};
  constexpr std::size_t kFirst = 12;
  const std::size_t changes = 1 + below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    if (bytes.size() < kFirst + kSumSize + 16) break;
    const std::size_t at = kFirst + below(bytes.size() - kFirst - kSumSize - 8);
    switch (below(6)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
      case 1: bytes[at] = static_cast<char>(random()); break;
      case 2: std::memcpy(&bytes[at - at % 4], &kWords[below(std::size(kWords))], 8); break;
      case 3: std::memmove(&bytes[at - at % 4], &bytes[kFirst + below(bytes.size() - kFirst - 24)], 8); break;
      case 4: bytes.insert(at, bytes.substr(at, 1 + below(40))); break;
      default: bytes.erase(at, 1 + below(std::min<std::size_t>(40, bytes.size() - kSumSize - at))); break;
    }
  }
  return sign(std::move(bytes));
}

}  // namespace headgate::test
