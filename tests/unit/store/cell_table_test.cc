// The table is compared with a std::map that gets the same calls. Hashes are chosen for the worst case: many cells of
// one home, homes at the very end so that chains wrap around, and equal halves of hashes.
#include "store/memory/cell_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace headgate::store {
namespace {

using Key = std::pair<std::uint64_t, std::uint64_t>;
constexpr auto kIgnoreDrops = [](const auto&) {};

// Strategies whose words own no memory, so that a test may write any number there.
template <int kWords>
constexpr Strategy kPlain = kWords == 2 ? Strategy::kTokenBucket : Strategy::kSlidingWindowCounter;

template <int kWords>
Key key_of(std::uint64_t low, std::uint64_t high) {
  return {low, Tag::identity(high << 16, kPlain<kWords>)};
}

// The upper half of `low` decides the home bucket.
template <int kWords>
rc::Gen<Key> any_key() {
  const auto home = rc::gen::weightedOneOf<std::uint64_t>({
      {3, rc::gen::element<std::uint64_t>(0xFFFFFFFF, 0xFFFFFFFE, 0xF0000000)},
      {2, rc::gen::element<std::uint64_t>(0, 1)},
      {2, rc::gen::element<std::uint64_t>(0x80000000, 0x90000000)},
      {2, rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 32)},
  });
  return rc::gen::apply(
      [](std::uint64_t h, std::uint64_t low, std::uint64_t high) { return key_of<kWords>((h << 32) | low, high); },
      home, rc::gen::inRange<std::uint64_t>(0, 40), rc::gen::inRange<std::uint64_t>(1, 3));
}

// A table and the map that says what must be in it: a cell's key and from when on it is idle.
template <int kWords>
class Mirrored {
 public:
  void insert(const Key& key, Word idle_at, Nanos idle_before) {
    if (model_.contains(key)) return;
    auto* cell =
        table_.insert(key.first, key.second, idle_before, [&](const auto& dropped) { drop(dropped, idle_before); });
    RC_ASSERT((cell != nullptr));
    for (const Word word : cell->words) RC_ASSERT(word == 0);
    cell->words[0] = idle_at;
    cell->words[kWords - 1] = kWords == 2 ? idle_at * 2 : idle_at * 4;
    model_[key] = idle_at;
  }

  void erase(const Key& key) {
    auto* cell = table_.find(key.first, key.second);
    RC_ASSERT((cell != nullptr) == model_.contains(key));
    if (cell == nullptr) return;
    table_.erase(cell);
    model_.erase(key);
  }

  void sweep(std::uint32_t steps, Nanos idle_before) {
    table_.sweep(cursor_, steps, idle_before, [&](const auto& dropped) { drop(dropped, idle_before); });
  }

  void sweep_all(Nanos idle_before) {
    cursor_ = 0;
    sweep(table_.bucket_count(), idle_before);
    for (const auto& [key, idle_at] : model_) RC_ASSERT(idle_at >= idle_before.count());
  }

  void check() const {
    RC_ASSERT(table_.size() == model_.size());
    for (const auto& [key, idle_at] : model_) {
      const auto* cell = table_.find(key.first, key.second);
      RC_ASSERT((cell != nullptr));
      RC_ASSERT(cell->words[0] == idle_at);
      RC_ASSERT(cell->words[kWords - 1] == idle_at * kWords);
    }
    std::set<Key> visited;
    table_.for_each([&](const auto& cell) { RC_ASSERT(visited.emplace(cell.low, cell.high).second); });
    RC_ASSERT(visited.size() == model_.size());
    // Never fuller than it says.
    RC_ASSERT(table_.size() * 100 <= std::uint64_t{table_.bucket_count()} * CellTable<kWords>::kSlots * 85);
  }

  [[nodiscard]] std::vector<Key> keys() const {
    std::vector<Key> keys;
    for (const auto& entry : model_) keys.push_back(entry.first);
    return keys;
  }
  [[nodiscard]] const CellTable<kWords>& table() const { return table_; }

 private:
  void drop(const Cell<kWords>& cell, Nanos idle_before) {
    RC_ASSERT(cell.words[0] < idle_before.count());
    RC_ASSERT(model_.erase({cell.low, cell.high}) == 1U);
  }

  CellTable<kWords> table_;
  std::uint32_t cursor_ = 0;
  std::map<Key, Word> model_;
};

template <int kWords>
void tell_a_story() {
  Mirrored<kWords> mirrored;
  Word now = 0;
  // Stories of different sizes: tables of one bucket need few cells, growing needs many.
  const int steps = *rc::gen::element(10, 60, 400);
  const int inserts_in_ten = *rc::gen::inRange(2, 9);
  for (int i = 0; i < steps; ++i) {
    now += *rc::gen::inRange(0, 4);
    const int what = *rc::gen::inRange(0, 10);
    if (what < inserts_in_ten) {
      mirrored.insert(*any_key<kWords>(), now + *rc::gen::inRange(0, 300), Nanos{now});
    } else if (what < 9) {
      const auto keys = mirrored.keys();
      mirrored.erase(keys.empty() || *rc::gen::inRange(0, 5) == 0 ? *any_key<kWords>() : *rc::gen::elementOf(keys));
    } else {
      mirrored.sweep(*rc::gen::inRange<std::uint32_t>(1, 6), Nanos{now});
    }
    if (steps < 100 || i % 8 == 0) mirrored.check();
  }
  mirrored.check();
  mirrored.sweep_all(Nanos{now});
  mirrored.check();
  mirrored.sweep_all(Nanos{now + 1000});
  mirrored.sweep(1, Nanos{0});
  mirrored.check();
  RC_ASSERT(mirrored.table().size() == 0U);
  RC_ASSERT(mirrored.table().bucket_count() == 0U);
}

RC_GTEST_PROP(CellTable, AgreesWithAMapHoweverItIsUsedWithSmallCells, ()) { tell_a_story<2>(); }
RC_GTEST_PROP(CellTable, AgreesWithAMapHoweverItIsUsedWithLargeCells, ()) { tell_a_story<4>(); }

// Many cells of one home, taken out in any order: the chain must be closed up each time.
template <int kWords>
void erase_a_chain(std::uint64_t home) {
  Mirrored<kWords> mirrored;
  const auto count = *rc::gen::inRange<std::uint64_t>(1, 40);
  std::vector<Key> keys;
  for (std::uint64_t i = 0; i < count; ++i) {
    // Every third lives next door, so that chains run into each other.
    const std::uint64_t own = i % 3 == 2 ? home ^ 0x18000000 : home;
    keys.push_back(key_of<kWords>((own << 32) | i, 1));
    mirrored.insert(keys.back(), 7, Nanos{0});
  }
  mirrored.check();
  while (!keys.empty()) {
    const auto at = *rc::gen::inRange<std::size_t>(0, keys.size());
    mirrored.erase(keys[at]);
    keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(at));
    mirrored.check();
  }
}

RC_GTEST_PROP(CellTable, LosesNoCellOfAChainThatIsTakenApart, ()) {
  const auto home = *rc::gen::element<std::uint64_t>(0, 0x7FFFFFFF, 0xFFFFFFFF);
  erase_a_chain<2>(home);
  erase_a_chain<4>(home);
}

RC_GTEST_PROP(CellTable, OneRoundOfSweepingDropsExactlyTheIdleCells, ()) {
  CellTable<2> table;
  std::set<Key> idle;
  std::set<Key> busy;
  for (const Key& key : *rc::gen::container<std::set<Key>>(any_key<2>())) {
    const bool is_idle = *rc::gen::arbitrary<bool>();
    (is_idle ? idle : busy).insert(key);
    auto* cell = table.insert(key.first, key.second, Nanos{0}, kIgnoreDrops);
    RC_ASSERT((cell != nullptr));
    cell->words[0] = is_idle ? 99 : 100;
  }
  std::set<Key> dropped;
  std::uint32_t cursor = 0;
  table.sweep(cursor, table.bucket_count(), Nanos{100},
              [&](const auto& cell) { RC_ASSERT(dropped.emplace(cell.low, cell.high).second); });
  RC_ASSERT(dropped == idle);
  RC_ASSERT(table.size() == busy.size());
  for (const Key& key : busy) RC_ASSERT((table.find(key.first, key.second) != nullptr));
}

TEST(CellTable, EmptyTableFindsNothingAndHoldsNoMemory) {
  const CellTable<2> table;
  EXPECT_EQ(table.find(0, Tag::identity(0, Strategy::kTokenBucket)), nullptr);
  EXPECT_EQ(table.oldest_near(0, 16, kAnyCell), nullptr);
  EXPECT_EQ(table.bucket_count(), 0U);
  table.prefetch(0);
}

TEST(CellTable, OneHashUnderTwoStrategiesIsTwoCells) {
  CellTable<2> table;
  const std::uint64_t bucket = Tag::identity(std::uint64_t{5} << 16, Strategy::kTokenBucket);
  const std::uint64_t gcra = Tag::identity(std::uint64_t{5} << 16, Strategy::kGcra);
  table.insert(1, bucket, Nanos{0}, kIgnoreDrops)->words[0] = 10;
  EXPECT_EQ(table.find(1, gcra), nullptr);
  table.insert(1, gcra, Nanos{0}, kIgnoreDrops)->words[0] = 20;
  EXPECT_EQ(table.find(1, bucket)->words[0], 10);
  EXPECT_EQ(table.find(1, gcra)->words[0], 20);
}

TEST(CellTable, GenerationAndAheadAreNoPartOfACellsIdentity) {
  CellTable<2> table;
  const std::uint64_t identity = Tag::identity(std::uint64_t{5} << 16, Strategy::kFixedWindow);
  auto* cell = table.insert(1, identity, Nanos{0}, kIgnoreDrops);
  cell->high = Tag::with(cell->high, true, 1023);
  EXPECT_EQ(table.find(1, identity), cell);
  EXPECT_EQ(Tag::generation(cell->high), 1023U);
  EXPECT_EQ(Tag::strategy(cell->high), Strategy::kFixedWindow);
}

TEST(CellTable, TakesItsMemoryOnceForAFewCellsAndKeepsIt) {
  CellTable<2> table;
  auto* cell = table.insert(1, key_of<2>(1, 1).second, Nanos{0}, kIgnoreDrops);
  cell->words[0] = 1000;
  std::uint32_t cursor = 0;
  for (int i = 0; i < 100; ++i) {
    table.sweep(cursor, 1, Nanos{500}, kIgnoreDrops);
    // A cell that is moved without need would cost an allocation in the middle of a check.
    ASSERT_EQ(table.find(1, key_of<2>(1, 1).second), cell);
  }
}

TEST(CellTable, GivesMemoryBackAsItEmpties) {
  CellTable<2> table;
  constexpr std::uint64_t kCells = 10'000;
  for (std::uint64_t i = 0; i < kCells; ++i) {
    const Key key = key_of<2>(i * 0x9E3779B97F4A7C15U, i + 1);
    table.insert(key.first, key.second, Nanos{0}, kIgnoreDrops)->words[0] = i < kCells / 100 ? 200 : 100;
  }
  const std::uint32_t full = table.bucket_count();
  EXPECT_GT(full * 4 * 85, kCells * 100 - 1);
  EXPECT_LT(full * 4 * 70, kCells * 100);
  std::uint32_t cursor = 0;
  table.sweep(cursor, 2 * full, Nanos{150}, kIgnoreDrops);
  EXPECT_EQ(table.size(), kCells / 100);
  EXPECT_LT(table.bucket_count(), full / 50);
  table.sweep(cursor, 2 * full, Nanos{300}, kIgnoreDrops);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.bucket_count(), 0U);
}

TEST(CellTable, DropsWhatIsIdleBeforeItGrows) {
  CellTable<2> table;
  const auto add = [&](std::uint64_t i, Word idle_at) {
    const Key key = key_of<2>(i * 0x9E3779B97F4A7C15U, i + 1);
    table.insert(key.first, key.second, Nanos{100}, kIgnoreDrops)->words[0] = idle_at;
  };
  for (std::uint64_t i = 0; i < 100; ++i) add(i, 200);
  const std::uint32_t buckets = table.bucket_count();
  for (std::uint64_t i = 100; i < 100'000; ++i) add(i, 50);  // idle as soon as they are there
  EXPECT_LE(table.bucket_count(), buckets * 2);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Key key = key_of<2>(i * 0x9E3779B97F4A7C15U, i + 1);
    EXPECT_NE(table.find(key.first, key.second), nullptr) << i;
  }
}

RC_GTEST_PROP(CellTable, TheOldestNearByIsTheOneThatBecomesIdleFirst, ()) {
  CellTable<4> table;
  Word least = 1'000'000;
  for (const Key& key : *rc::gen::nonEmpty(rc::gen::container<std::set<Key>>(any_key<4>()))) {
    const Word idle_at = *rc::gen::inRange(1, 1000);
    least = std::min(least, idle_at);
    table.insert(key.first, key.second, Nanos{0}, kIgnoreDrops)->words[0] = idle_at;
  }
  const auto cursor = *rc::gen::inRange<std::uint32_t>(0, 1000);
  const auto* oldest = table.oldest_near(cursor, table.bucket_count() + 5, kAnyCell);
  RC_ASSERT((oldest != nullptr));
  RC_ASSERT(oldest->words[0] == least);
}

TEST(CellTable, FreesWhatItsCellsOwn) {
  // AddressSanitizer tells if it does not.
  CellTable<4> table;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::uint64_t high = Tag::identity(i << 16, Strategy::kSlidingWindow);
    auto* cell = table.insert(i << 58, high, Nanos{0}, kIgnoreDrops);
    core::RunLog log;
    ASSERT_TRUE(grow_log(log, 4));
    bool ahead = false;
    store_log(log, Nanos{static_cast<Word>(i)}, cell->words, ahead);
  }
  std::uint32_t cursor = 0;
  table.sweep(cursor, table.bucket_count(), Nanos{25}, kIgnoreDrops);
  table.erase(table.find(std::uint64_t{30} << 58, Tag::identity(std::uint64_t{30} << 16, Strategy::kSlidingWindow)));
  EXPECT_EQ(table.size(), 24U);
}

}  // namespace
}  // namespace headgate::store
