// A key is known by 112 bits of its hash and nothing else: they must tell keys apart.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <set>
#include <string>

namespace headgate::test {
namespace {

using base::Hash128;
using base::Hasher;

TEST(Hash, EveryBitOfTheKeyMovesHalfOfTheBits) {
  std::mt19937_64 random(7);
  for (std::size_t size = 1; size <= 40; ++size) {
    int flipped = 0;
    int cases = 0;
    int least = 128;
    for (int round = 0; round < 20; ++round) {
      const Hasher hasher(random());
      std::string key(size, ' ');
      for (char& c : key) c = static_cast<char>(random());
      const Hash128 before = hasher(key);
      for (std::size_t bit = 0; bit < 8 * size; ++bit) {
        std::string other = key;
        other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
        const Hash128 after = hasher(other);
        const int moved = std::popcount(before.low ^ after.low) + std::popcount(before.high ^ after.high);
        least = std::min(least, moved);
        flipped += moved;
        ++cases;
      }
    }
    EXPECT_NEAR(static_cast<double>(flipped) / cases, 64, 1.5) << size;
    EXPECT_GT(least, 25) << size;
  }
}

TEST(Hash, KeysAsPeopleWriteThemSpreadEvenly) {
  const Hasher hasher(7);
  constexpr int kKeys = 200'000;
  constexpr std::size_t kPlaces = 256;
  for (const std::string& ending : {std::string(), std::string("-and-a-common-end")}) {
    std::set<std::uint64_t> low;
    std::set<std::uint64_t> high;
    std::array<std::array<int, kPlaces>, 3> counts{};
    for (int i = 0; i < kKeys; ++i) {
      std::string digits = std::to_string(i);
      const Hash128 hash =
          hasher("agent-" + std::string(15 - digits.size() - ending.size() / 2, '0') + digits + ending);
      low.insert(hash.low);
      high.insert(hash.high & ~std::uint64_t{0xFFFF});
      ++counts[0][hash.low % kPlaces];  // the shard
      ++counts[1][hash.low >> 56];      // the bucket
      ++counts[2][(hash.high >> 16) % kPlaces];
    }
    EXPECT_EQ(low.size(), static_cast<std::size_t>(kKeys));
    EXPECT_EQ(high.size(), static_cast<std::size_t>(kKeys));
    for (const auto& of_bits : counts) {
      for (const int count : of_bits) EXPECT_NEAR(count, kKeys / kPlaces, 160);  // nearly six standard deviations
    }
  }
}

TEST(Hash, LengthsAndSeedsMakeOtherKeys) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::size_t size = 0; size < 200; ++size) seen.insert(Hasher(seed)(std::string(size, 'a')).low);
  }
  EXPECT_EQ(seen.size(), 2000U);
}

TEST(Hash, TheShortWayIsForSeventeenToThirtyTwoBytes) {
  EXPECT_FALSE(Hasher::is_short({}));
  EXPECT_FALSE(Hasher::is_short(std::string(16, 'a')));
  EXPECT_TRUE(Hasher::is_short(std::string(17, 'a')));
  EXPECT_TRUE(Hasher::is_short(std::string(32, 'a')));
  EXPECT_FALSE(Hasher::is_short(std::string(33, 'a')));
}

}  // namespace
}  // namespace headgate::test
