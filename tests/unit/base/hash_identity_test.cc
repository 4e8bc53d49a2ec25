// Names that are made to collide, and the sanity tests that SMHasher runs: two names that differ are two keys, whatever
// their lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/hash.h"

namespace headgate::test {
namespace {

using base::Hash128;
using base::HashChain;
using base::Hasher;

struct IdentityHash {
  std::size_t operator()(const Hash128& hash) const noexcept { return hash.low ^ (hash.high >> 7); }
};
using IdentitySet = std::unordered_set<Hash128, IdentityHash>;

Hash128 chained(const Hasher& hasher, std::string_view text) {
  HashChain chain(hasher);
  chain.add(1, text);
  return {chain.all(), 0};
}

std::string random_bytes(std::size_t size, std::mt19937_64& random) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// The longer name that consists of the same words as the shorter one, where there is one: its first bytes and its last.
std::vector<std::string> same_words(const std::string& name, std::size_t size) {
  std::vector<std::string> twins;
  for (const std::size_t word : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{8}, std::size_t{16}}) {
    if (word > name.size()) break;
    std::string twin(size, '\0');
    const std::size_t head = std::min(word, size);
    std::memcpy(twin.data(), name.data(), std::min(head, name.size()));
    if (size >= word) std::memcpy(twin.data() + size - word, name.data() + name.size() - word, word);
    twins.push_back(twin);
    // Repeated, as a whole and from its end.
    std::string repeated;
    while (repeated.size() < size) repeated += name;
    twins.push_back(repeated.substr(0, size));
    twins.push_back(repeated.substr(repeated.size() - size));
  }
  std::string padded = name;
  padded.resize(size, '\0');
  twins.push_back(padded);
  twins.push_back(std::string(size - name.size(), '\0') + name);
  return twins;
}

TEST(HashIdentity, NamesOfDifferentLengthMadeOfTheSameWordsDiffer) {
  std::mt19937_64 random(11);
  std::vector<Hasher> hashers;
  for (int i = 0; i < 50; ++i) hashers.emplace_back(random());
  for (std::size_t m = 1; m < 40; ++m) {
    const std::string name = random_bytes(m, random);
    for (std::size_t n = m + 1; n <= 40; ++n) {
      for (std::string& twin : same_words(name, n)) {
        // A length that is added to, taken from or mixed into a byte of the words could be made up for there.
        for (const std::size_t at :
             {std::size_t{0}, std::size_t{2}, std::size_t{7}, n - 1, n - std::min<std::size_t>(n, 8)}) {
          if (at >= n) continue;
          const char before = twin[at];
          const auto difference = static_cast<char>(n - m);
          for (const char other :
               {before, static_cast<char>(before - difference), static_cast<char>(before + difference),
                static_cast<char>(before ^ static_cast<char>(m ^ n))}) {
            twin[at] = other;
            for (const Hasher& hasher : hashers) {
              ASSERT_NE(hasher(name), hasher(twin)) << m << " and " << n << " bytes";
              ASSERT_NE(chained(hasher, name).low, chained(hasher, twin).low) << m << " and " << n << " bytes";
            }
          }
          twin[at] = before;
        }
      }
    }
  }
}

TEST(HashIdentity, TheTwinsThatWereFoundDiffer) {
  constexpr std::pair<std::string_view, std::string_view> kTwins[] = {{"agent-42", "agent-42agent-4*"},
                                                                      {"tenant-007", "tenant-0nant-001"},
                                                                      {"alice@ex.com", "alice@exe@ex.coi"},
                                                                      {"premium-user-42", "premium--user-41"},
                                                                      {"monitoring", "monitorinitorina"}};
  std::mt19937_64 random(12);
  for (int i = 0; i < 10'000; ++i) {
    const Hasher hasher(random());
    for (const auto& [name, twin] : kTwins) ASSERT_NE(hasher(name), hasher(twin)) << name;
  }
}

// One that is charged for another would show as fewer hashes than names.
TEST(HashIdentity, NamesByTheMillionDiffer) {
  const Hasher hasher(0x1234567);
  IdentitySet seen;
  std::unordered_set<std::uint64_t> chains;
  std::size_t names = 0;
  const auto add = [&](const std::string& name) {
    ++names;
    seen.insert(hasher(name));
    chains.insert(chained(hasher, name).low);
  };
  for (int i = 0; i < 200'000; ++i) {
    const std::string digits = std::to_string(i);
    add("s" + digits);
    add("session-" + std::string(6 - digits.size(), '0') + digits);
    add("a-longer-prefix-of-a-name-" + digits);
  }
  for (const char letter : {'t', 'a', 'x', 'w'}) {
    std::string name(1, letter);
    for (int i = 0; i < 400; ++i) add(name += '1');  // one repeated character
  }
  EXPECT_EQ(seen.size(), names);
  EXPECT_EQ(chains.size(), names);
}

TEST(HashIdentity, ZeroesOfDifferentLengthDiffer) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 20; ++i) {
    const Hasher hasher(random());
    IdentitySet seen;
    for (std::size_t size = 0; size <= 512; ++size) seen.insert(hasher(std::string(size, '\0')));
    ASSERT_EQ(seen.size(), 513U);
  }
}

TEST(HashIdentity, AppendedZeroesMakeAnotherName) {
  std::mt19937_64 random(14);
  const Hasher hasher(random());
  for (std::size_t size = 1; size <= 64; ++size) {
    std::string name = random_bytes(size, random);
    IdentitySet seen{hasher(name)};
    for (std::size_t zeroes = 1; zeroes <= 32; ++zeroes) seen.insert(hasher(name += '\0'));
    ASSERT_EQ(seen.size(), 33U) << size;
  }
}

TEST(HashIdentity, WhereANameLiesInMemoryDoesNotMatter) {
  std::mt19937_64 random(15);
  const Hasher hasher(random());
  for (std::size_t size = 0; size <= 80; ++size) {
    const std::string name = random_bytes(size, random);
    const Hash128 expected = hasher(name);
    for (std::size_t offset = 0; offset < 16; ++offset) {
      std::string around = random_bytes(size + 48, random);
      around.replace(offset + 8, size, name);
      ASSERT_EQ(hasher(std::string_view(around).substr(offset + 8, size)), expected) << size << " at " << offset;
    }
  }
}

TEST(HashIdentity, SparseNamesDiffer) {
  const Hasher hasher(99);
  for (const std::size_t size : {2U, 4U, 7U, 8U, 12U, 15U, 16U, 17U, 24U, 32U, 33U, 48U}) {
    IdentitySet seen;
    std::size_t names = 0;
    std::string name(size, '\0');
    const auto flip = [&](std::size_t bit) { name[bit / 8] = static_cast<char>(name[bit / 8] ^ (1 << bit % 8)); };
    const std::size_t bits = size * 8;
    const auto add = [&] {
      seen.insert(hasher(name));
      ++names;
    };
    add();
    for (std::size_t i = 0; i < bits; ++i) {
      flip(i);
      add();
      for (std::size_t j = i + 1; j < bits; ++j) {
        flip(j);
        add();
        flip(j);
      }
      flip(i);
    }
    ASSERT_EQ(seen.size(), names) << size;
  }
}

TEST(HashIdentity, CyclicNamesDiffer) {
  std::mt19937_64 random(16);
  const Hasher hasher(random());
  for (const std::size_t cycle : {1U, 2U, 3U, 4U, 5U, 8U, 16U}) {
    IdentitySet seen;
    std::unordered_set<std::string> names;
    for (int i = 0; i < 2'000; ++i) {
      const std::string part = random_bytes(cycle, random);
      std::string name;
      for (std::size_t repeats = 1; repeats <= 8 && name.size() < 64; ++repeats) {
        name += part;
        names.insert(name);
        seen.insert(hasher(name));
      }
    }
    ASSERT_EQ(seen.size(), names.size()) << cycle;
  }
}

TEST(HashIdentity, EachSeedGivesOtherHashes) {
  IdentitySet seen;
  std::size_t hashes = 0;
  for (const char* name : {"a", "s0001", "agent-42", "premium-user-42", "a-name-of-20-bytes-..",
                           "one of more than thirty-two bytes, which most are not"}) {
    for (std::uint64_t bit = 0; bit < 64; ++bit) {
      seen.insert(Hasher(std::uint64_t{1} << bit)(name));
      ++hashes;
    }
    for (std::uint64_t seed = 5000; seed < 7000; ++seed) {
      seen.insert(Hasher(seed)(name));
      ++hashes;
    }
  }
  EXPECT_EQ(seen.size(), hashes);
}

// Each bit of the hash changes with half of the names when a bit of the name does, and no two bits change together.
TEST(HashIdentity, BitsChangeIndependently) {
  std::mt19937_64 random(17);
  constexpr int kRounds = 2'000;
  for (const std::size_t size : {3U, 7U, 8U, 13U, 16U, 17U, 31U, 40U}) {
    const Hasher hasher(random());
    for (const std::size_t bit : {std::size_t{0}, size * 4, size * 8 - 1}) {
      std::array<int, 64> low{};
      std::array<int, 64> high{};
      std::array<int, 63> together{};
      for (int round = 0; round < kRounds; ++round) {
        std::string name = random_bytes(size, random);
        const Hash128 before = hasher(name);
        name[bit / 8] = static_cast<char>(name[bit / 8] ^ (1 << bit % 8));
        const Hash128 after = hasher(name);
        const std::uint64_t changed = before.low ^ after.low;
        const std::uint64_t others = before.high ^ after.high;
        for (std::size_t i = 0; i < 64; ++i) {
          low[i] += static_cast<int>(changed >> i & 1);
          high[i] += static_cast<int>(others >> i & 1);
          if (i < 63) together[i] += static_cast<int>((changed >> i ^ changed >> (i + 1)) & 1);
        }
      }
      const double bound = 7 * std::sqrt(kRounds) / 2;  // seven standard deviations
      for (std::size_t i = 0; i < 64; ++i) {
        ASSERT_NEAR(low[i], kRounds / 2, bound) << size << " bytes, bit " << bit << " and " << i;
        ASSERT_NEAR(high[i], kRounds / 2, bound) << size << " bytes, bit " << bit << " and " << i;
        if (i == 63) continue;
        ASSERT_NEAR(together[i], kRounds / 2, bound) << size << " bytes, bit " << bit << " and " << i;
      }
    }
  }
}

}  // namespace
}  // namespace headgate::test
