// An open-addressing table of cells in buckets of four that lie on whole cache lines.
//
// A table is one shard's: small, so that growing it is a short pause for few. It grows by a fourteenth and stays
// between 79 and 85 per cent full, and gives memory back when it has emptied. Not safe for concurrent use; the shard's
// lock is.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "store/memory/cell.h"

namespace headgate::store {

// The cells whose `high` has this value under the mask.
struct CellsOf {
  std::uint64_t mask;
  std::uint64_t value;
};
inline constexpr CellsOf kAnyCell{0, 0};

template <int kWords>
class CellTable {
 public:
  using Entry = Cell<kWords>;
  static constexpr std::uint32_t kSlots = 4;
  struct Bucket {
    Entry cells[kSlots];
  };
  static_assert(sizeof(Bucket) % 64 == 0);

  CellTable() = default;
  CellTable(const CellTable&) = delete;
  CellTable& operator=(const CellTable&) = delete;
  ~CellTable() {
    for_each([](Entry& cell) { reset_words(Tag::strategy(cell.high), cell.words); });
    release(buckets(), bucket_count());
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t bucket_count() const noexcept { return count_.load(std::memory_order_relaxed); }

  // Where the buckets are and how many. May be read without the lock, but is then good only to fetch memory ahead, and
  // to be compared with what holds() under the lock.
  struct Extent {
    Bucket* buckets;
    std::uint32_t count;
    [[nodiscard]] Bucket* home_of(std::uint64_t low) const noexcept { return buckets + home(low, count); }
    void prefetch(std::uint64_t low) const noexcept {
      // As a number: there may be no buckets yet, and fetching ahead from nowhere does no harm.
      const auto bucket = reinterpret_cast<std::uintptr_t>(home_of(low));
      for (std::size_t line = 0; line < sizeof(Bucket); line += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(bucket + line), 1);
      }
    }
  };
  [[nodiscard]] Extent extent() const noexcept { return {buckets(), bucket_count()}; }
  [[nodiscard]] bool holds(const Extent& seen) const noexcept {
    return buckets() == seen.buckets && bucket_count() == seen.count && seen.count != 0;
  }
  void prefetch(std::uint64_t low) const noexcept { extent().prefetch(low); }

  [[nodiscard]] Entry* find(std::uint64_t low, std::uint64_t identity) const noexcept {
    const std::uint32_t count = bucket_count();
    if (count == 0) return nullptr;
    for (std::uint32_t b = home(low, count);; b = b + 1 == count ? 0 : b + 1) {
      Entry* cells = buckets()[b].cells;
      // Where in the bucket a cell stands is chance: compare all four, and branch once.
      static_assert(kSlots == 4);
      std::uint32_t matches = (cells[0].low == low ? 1U : 0U) | (cells[1].low == low ? 2U : 0U) |
                              (cells[2].low == low ? 4U : 0U) | (cells[3].low == low ? 8U : 0U);
      for (; matches != 0; matches &= matches - 1) {
        Entry* cell = cells + std::countr_zero(matches);
        if (((cell->high ^ identity) & Tag::kIdentity) == 0) return cell;
      }
      if (cells[kSlots - 1].high == 0) return nullptr;
    }
  }
  // Behind the last cell; nullptr: there is none.
  [[nodiscard]] const Entry* end() const noexcept { return reinterpret_cast<const Entry*>(buckets() + bucket_count()); }
  // The same without a loop, for a cell that stands in its first bucket: nullptr may also mean that it does not.
  [[nodiscard]] static Entry* find_at_home(Bucket& bucket, std::uint64_t low, std::uint64_t identity) noexcept {
    Entry* cell = bucket.cells;
    for (std::uint32_t slot = 1; slot < kSlots; ++slot) {
      if (bucket.cells[slot].low == low) cell = bucket.cells + slot;
    }
    return cell->low == low && ((cell->high ^ identity) & Tag::kIdentity) == 0 ? cell : nullptr;
  }

  // A new cell, all words zero. nullptr: no memory. REQUIRES: find() found none.
  // Before the table grows, what has become idle is dropped.
  template <class OnDrop>
  [[nodiscard]] Entry* insert(std::uint64_t low, std::uint64_t high, Nanos idle_before, OnDrop on_drop) noexcept {
    assert(find(low, high) == nullptr);
    if (over(size_ + 1, bucket_count(), kFullest) && !make_space(idle_before, on_drop)) return nullptr;
    ++size_;
    return place(buckets(), bucket_count(), low, high);
  }

  // Makes space for so many cells at once. Without memory the table stays as it is and grows as cells come.
  void reserve(std::uint64_t cells) noexcept {
    const std::uint64_t wanted = cells * 100 / (kSlots * kFullest) + 1;
    constexpr std::uint64_t kMostBuckets = std::uint64_t{1} << 31;
    if (cells > 0 && wanted > bucket_count()) (void)rebuild(static_cast<std::uint32_t>(std::min(wanted, kMostBuckets)));
  }

  void erase(Entry* cell) noexcept {
    reset_words(Tag::strategy(cell->high), cell->words);
    remove(static_cast<std::uint32_t>((cell - buckets()->cells) / kSlots), cell);
    --size_;
  }

  // Drops the idle cells of up to `steps` buckets, going round, and shows each to `on_drop` before.
  template <class OnDrop>
  void sweep(std::uint32_t& cursor, std::uint32_t steps, Nanos idle_before, OnDrop on_drop) noexcept {
    for (; steps > 0 && bucket_count() > 0; --steps) {
      if (cursor >= bucket_count()) {
        cursor = 0;
        shrink();
        if (bucket_count() == 0) break;
      }
      Bucket& bucket = buckets()[cursor++];
      for (std::uint32_t slot = 0; slot < kSlots && bucket.cells[slot].high != 0;) {
        Entry& cell = bucket.cells[slot];
        if (cell.words[0] < idle_before.count()) {
          on_drop(cell);
          erase(&cell);  // another cell may have come to stand here
        } else {
          ++slot;
        }
      }
    }
  }

  // Drops all cells that `is_one`, and shows each to `on_drop` before.
  template <class IsOne, class OnDrop>
  void erase_if(IsOne is_one, OnDrop on_drop) noexcept {
    for (std::uint32_t b = 0; b < bucket_count(); ++b) {
      for (std::uint32_t slot = 0; slot < kSlots && buckets()[b].cells[slot].high != 0;) {
        Entry& cell = buckets()[b].cells[slot];
        if (is_one(cell)) {
          on_drop(cell);
          erase(&cell);  // another cell may have come to stand here
        } else {
          ++slot;
        }
      }
    }
  }

  // The cell that becomes idle first among those of up to `steps` buckets from the cursor on that have all of these
  // bits. nullptr: none there.
  [[nodiscard]] Entry* oldest_near(std::uint32_t cursor, std::uint32_t steps, const CellsOf& which) const noexcept {
    Entry* oldest = nullptr;
    const std::uint32_t count = bucket_count();
    for (std::uint32_t i = 0; i < std::min(steps, count); ++i) {
      for (Entry& cell : buckets()[(cursor + i) % count].cells) {
        if (cell.high == 0) break;
        if ((cell.high & which.mask) != which.value) continue;
        if (oldest == nullptr || cell.words[0] < oldest->words[0]) oldest = &cell;
      }
    }
    return oldest;
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t b = 0; b < bucket_count(); ++b) {
      for (Entry& cell : buckets()[b].cells) {
        if (cell.high == 0) break;
        visit(cell);
      }
    }
  }

 private:
  // In percent of the slots.
  static constexpr std::uint64_t kFullest = 85;
  static constexpr std::uint64_t kEmptiest = 30;

  [[nodiscard]] Bucket* buckets() const noexcept { return buckets_.load(std::memory_order_relaxed); }
  [[nodiscard]] static bool over(std::uint64_t cells, std::uint64_t buckets, std::uint64_t percent) noexcept {
    return cells * 100 > buckets * kSlots * percent;
  }
  [[nodiscard]] static std::uint32_t home(std::uint64_t low, std::uint32_t count) noexcept {
    return static_cast<std::uint32_t>(((low >> 32) * count) >> 32);
  }

  static Entry* place(Bucket* buckets, std::uint32_t count, std::uint64_t low, std::uint64_t high) noexcept {
    for (std::uint32_t b = home(low, count);; b = b + 1 == count ? 0 : b + 1) {
      for (Entry& cell : buckets[b].cells) {
        if (cell.high != 0) continue;
        cell.low = low;
        cell.high = high;
        return &cell;
      }
    }
  }

  // Takes a cell out of bucket `at` and closes the gap: first within the bucket, then with cells further on that had
  // found their home full.
  void remove(std::uint32_t at, Entry* cell) noexcept {
    const std::uint32_t count = bucket_count();
    for (;;) {
      Bucket& bucket = buckets()[at];
      const bool was_full = bucket.cells[kSlots - 1].high != 0;
      Entry* last = cell;
      while (last != &bucket.cells[kSlots - 1] && (last + 1)->high != 0) ++last;
      *cell = *last;
      std::memset(static_cast<void*>(last), 0, sizeof(Entry));
      if (!was_full) return;
      // Look for a cell to move up into `last`.
      Entry* mover = nullptr;
      std::uint32_t from = at;
      for (std::uint32_t distance = 1; distance < count && mover == nullptr; ++distance) {
        from = from + 1 == count ? 0 : from + 1;
        Bucket& further = buckets()[from];
        for (Entry& candidate : further.cells) {
          if (candidate.high == 0) break;
          const std::uint32_t own = home(candidate.low, count);
          const std::uint32_t strayed = from >= own ? from - own : from + count - own;
          if (strayed >= distance) mover = &candidate;
        }
        if (further.cells[kSlots - 1].high == 0) break;  // this chain ends here
      }
      if (mover == nullptr) return;
      *last = *mover;
      cell = mover;
      at = from;
    }
  }

  template <class OnDrop>
  [[nodiscard]] bool make_space(Nanos idle_before, OnDrop on_drop) noexcept {
    std::uint32_t cursor = 0;
    sweep(cursor, bucket_count(), idle_before, on_drop);
    if (bucket_count() > 0 && !over(size_ + 1, bucket_count(), 75)) return true;
    return rebuild(bucket_count() + bucket_count() / 14 + 1);
  }

  void shrink() noexcept {
    if (size_ == 0) {
      release(buckets(), bucket_count());
      buckets_.store(nullptr, std::memory_order_relaxed);
      count_.store(0, std::memory_order_relaxed);
    } else if (const std::uint32_t fewer = size_ / 3 + 1;
               fewer < bucket_count() && !over(size_, bucket_count(), kEmptiest)) {
      (void)rebuild(fewer);
    }
  }

  // Tables from this size on are whole pages of their own. All shards grow at about the same time, and the heap would
  // keep the holes that the old tables leave: each is just too small for the next table.
  static constexpr std::size_t kPageSize = 4096;
  static constexpr std::size_t kOwnPages = 8 * kPageSize;

  // Zeroed. May make `count` larger, to fill its last page.
  [[nodiscard]] static Bucket* allocate(std::uint32_t& count) noexcept {
    const std::size_t bytes = sizeof(Bucket) * count;
    if (bytes < kOwnPages) {
      void* memory = std::aligned_alloc(64, bytes);
      if (memory != nullptr) std::memset(memory, 0, bytes);
      return static_cast<Bucket*>(memory);
    }
    const std::size_t pages = pages_for(bytes);
    void* memory = ::mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    count = static_cast<std::uint32_t>(pages / sizeof(Bucket));
    return static_cast<Bucket*>(memory);
  }
  static void release(Bucket* memory, std::uint32_t count) noexcept {
    const std::size_t bytes = sizeof(Bucket) * count;
    if (bytes < kOwnPages) {
      std::free(memory);
    } else {
      ::munmap(memory, pages_for(bytes));
    }
  }
  [[nodiscard]] static std::size_t pages_for(std::size_t bytes) noexcept {
    return (bytes + kPageSize - 1) / kPageSize * kPageSize;
  }

  // Without memory the old table stays. REQUIRES: what is there fits.
  [[nodiscard]] bool rebuild(std::uint32_t count) noexcept {
    assert(size_ < std::uint64_t{count} * kSlots);
    Bucket* fresh = allocate(count);
    if (fresh == nullptr) return !over(size_ + 1, bucket_count(), 99);
    for_each([&](Entry& cell) { *place(fresh, count, cell.low, cell.high) = cell; });
    release(buckets(), bucket_count());
    buckets_.store(fresh, std::memory_order_relaxed);
    count_.store(count, std::memory_order_relaxed);
    return true;
  }

  // Atomic only for prefetch().
  std::atomic<Bucket*> buckets_{nullptr};
  std::atomic<std::uint32_t> count_{0};
  std::uint32_t size_ = 0;
};

}  // namespace headgate::store
