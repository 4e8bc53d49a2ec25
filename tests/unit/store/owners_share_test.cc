// Cells that one owner makes are bounded, and leave room for others.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/compiled_limit.h"
#include "store/memory/memory_store.h"

namespace headgate::test {
namespace {

using store::Ask;
using store::MemoryStore;

constexpr Nanos kOwnersNow = std::chrono::seconds{1'700'000'000};
constexpr Nanos kOwnersHour = std::chrono::hours{1};

class OwnersShare : public testing::Test {
 protected:
  static constexpr store::MemoryStoreOptions kRefusing{.max_cells = 1000, .max_owner_cells = 100, .seed = 1};

  static base::Hash128 key_of(std::uint64_t n) { return {n * 0x9E3779B97F4A7C15U, n * 0xC2B2AE3D27D4EB4FU}; }
  store::Applied ask(MemoryStore& store, std::uint64_t n, std::string_view owner, Nanos now = kOwnersNow) {
    store::Charge charge;
    charge.key = key_of(n);
    charge.limit = &live_;
    charge.cost = 1;
    core::Outcome outcome;
    Ask asked{.now = now, .wall = now};
    asked.owner = owner;
    return store.apply({&charge, 1}, asked, {&outcome, 1});
  }
  // How many of these keys are refused.
  int refused(MemoryStore& store, std::uint64_t from, std::uint64_t to, std::string_view owner,
              Nanos now = kOwnersNow) {
    int count = 0;
    for (std::uint64_t n = from; n < to; ++n) {
      const store::Applied applied = ask(store, n, owner, now);
      EXPECT_EQ(applied.store_full, applied.share_full) << n;
      count += applied.store_full ? 1 : 0;
    }
    return count;
  }
  store::LiveLimit live_{core::compile(*Limit::gcra({.max_burst = 1, .count = 1, .period = kOwnersHour}))};
};

TEST_F(OwnersShare, IsAllThatOneOwnerGets) {
  MemoryStore store(kRefusing);
  EXPECT_EQ(refused(store, 1, 301, "a"), 200);
  EXPECT_EQ(refused(store, 1001, 1101, "b"), 0) << "others have shares of their own";
  EXPECT_EQ(refused(store, 2001, 2301, ""), 0) << "without an owner there is no share";
  EXPECT_EQ(store.cells(), 500U);
  EXPECT_EQ(store.totals().refused, 200U);
}

TEST_F(OwnersShare, CountsCellsThatAreNewOnly) {
  MemoryStore store(kRefusing);
  EXPECT_EQ(refused(store, 1, 101, "a"), 0);
  EXPECT_EQ(refused(store, 1, 101, "a"), 0) << "they exist";
  EXPECT_EQ(refused(store, 1, 101, "b"), 0) << "for other owners, too";
  EXPECT_EQ(refused(store, 101, 201, "b"), 0) << "which took nothing of its share";
}

TEST_F(OwnersShare, IsGivenBackByCellsThatGo) {
  MemoryStore store(kRefusing);
  EXPECT_EQ(refused(store, 1, 201, "a"), 100);
  const Nanos later = kOwnersNow + 3 * kOwnersHour;
  store.maintain(100'000, later);
  EXPECT_EQ(store.cells(), 0U);
  EXPECT_EQ(refused(store, 201, 401, "a", later), 100);
}

TEST_F(OwnersShare, FindsRoomAmongIdleCellsWithoutUpkeep) {
  MemoryStore store({.max_cells = 200, .max_owner_cells = 100, .seed = 1});
  EXPECT_EQ(refused(store, 1, 101, "a"), 0);
  EXPECT_EQ(refused(store, 101, 201, "a", kOwnersNow + 3 * kOwnersHour), 0);
}

TEST_F(OwnersShare, IsGivenBackByAPlanThatIsTakenBack) {
  MemoryStore store(kRefusing);
  EXPECT_EQ(refused(store, 1, 100, "a"), 0);
  std::array<store::Charge, 2> two;
  for (std::size_t i = 0; i < two.size(); ++i) {
    two[i].key = key_of(500 + i);
    two[i].limit = &live_;
    two[i].cost = 1;
  }
  std::array<core::Outcome, 2> outcomes;
  Ask asked{.now = kOwnersNow, .wall = kOwnersNow};
  asked.owner = "a";
  EXPECT_TRUE(store.apply(two, asked, outcomes).share_full) << "there is room for one of them";
  EXPECT_EQ(store.cells(), 99U);
  EXPECT_EQ(refused(store, 600, 601, "a"), 0);
}

TEST_F(OwnersShare, MakesRoomAmongItsOwnWhereTheOldestAreForgotten) {
  MemoryStore store({.max_cells = 250, .max_owner_cells = 100, .at_cap = AtCap::kEvictOldest, .seed = 1});
  EXPECT_EQ(refused(store, 1001, 1051, "b"), 0);
  EXPECT_EQ(refused(store, 1, 201, "a"), 0);
  EXPECT_EQ(store.cells(), 150U);
  for (std::uint64_t n = 1001; n < 1051; ++n) (void)ask(store, n, "b");
  EXPECT_EQ(store.cells(), 150U) << "those of b are still there";
  EXPECT_EQ(store.totals().evicted, 100U);
}

TEST_F(OwnersShare, OutlivesARestart) {
  const std::string path = testing::TempDir() + "owners_share.snapshot";
  {
    MemoryStore store(kRefusing);
    EXPECT_EQ(refused(store, 1, 101, "a"), 0);
    ASSERT_TRUE(store.save(path, "", kOwnersNow));
  }
  MemoryStore store(kRefusing);
  ASSERT_TRUE(store.restore(path, kOwnersNow, [](std::string_view) -> Result<void> { return {}; }));
  EXPECT_EQ(refused(store, 101, 201, "a"), 100);
  EXPECT_EQ(refused(store, 1, 101, "a"), 0) << "they exist";
  EXPECT_EQ(refused(store, 1001, 1101, "b"), 0);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace headgate::test
