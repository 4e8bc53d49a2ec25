// Which policies match a check and which cells it charges, remembered for whoever asks the same again: most agents do.
//
// What is remembered is found by one hash of all that matching looks at. The engine's state is part of it: once that
// has been replaced, nothing is found any more. Each thread remembers for itself.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <new>
#include <span>

#include "base/bounded_array.h"
#include "base/hash.h"
#include "base/thread_slot.h"
#include "policy/limit_reader.h"
#include "policy/reader.h"
#include "policy/rules.h"

namespace headgate::engine {

// A policy that matches, and on which side of its variants and its rollout the check falls.
struct Leg {
  std::uint32_t policy : 23;
  std::uint32_t strand : 8;
  std::uint32_t enforced : 1;
};
static_assert(policy::kMaxPolicies < (1U << 22));

// The legs in the order in which they are judged, and the cells of all their limits, whether or not the check has a
// cost for them.
struct Route {
  base::BoundedArray<Leg, policy::Matched::kMost> legs;
  base::BoundedArray<base::Hash128, policy::Matched::kMost * policy::kMaxLimits> cells;
};

class Recall {
 public:
  // One thread's: for some thousand checks, in half a megabyte.
  class alignas(64) Memory {
   public:
    struct Known {
      std::span<const Leg> legs;  // from nullptr: nothing is known
      std::span<const base::Hash128> cells;
    };
    // Remembering costs more than it saves where checks hardly ever come again: then only now and then one is looked
    // for, until those are found.
    [[nodiscard]] bool is_worth_it() noexcept { return credit_ > 0 || ++passed_ % kOneIn == 0; }

    [[nodiscard]] Known find(std::uint64_t check) noexcept {
      check |= kTaken;
      const std::array<std::uint64_t, kWays>& set = checks_[check % kSets];
      // Which way it is kept is chance: compare all four, and branch once.
      static_assert(kWays == 4);
      const std::uint32_t matches = (set[0] == check ? 1U : 0U) | (set[1] == check ? 2U : 0U) |
                                    (set[2] == check ? 4U : 0U) | (set[3] == check ? 8U : 0U);
      if (matches == 0) {
        credit_ = std::max(credit_ - kMissed, 0);
        return {};
      }
      credit_ = std::min(credit_ + 1, kMostCredit);
      const Entry& entry = entries_[check % kSets][static_cast<std::size_t>(std::countr_zero(matches))];
      return {{entry.legs.data(), entry.leg_count}, {entry.cells.data(), entry.cell_count}};
    }

    // In place of whatever is there. What is too long is not kept.
    void keep(std::uint64_t check, const Route& route) noexcept {
      if (route.legs.size() > kMost || route.cells.size() > kMost) return;
      check |= kTaken;
      const std::size_t set = check % kSets;
      const std::size_t way = next_++ % kWays;
      checks_[set][way] = check;
      Entry& entry = entries_[set][way];
      entry.leg_count = static_cast<std::uint32_t>(route.legs.size());
      entry.cell_count = static_cast<std::uint32_t>(route.cells.size());
      std::copy(route.legs.begin(), route.legs.end(), entry.legs.begin());
      std::copy(route.cells.begin(), route.cells.end(), entry.cells.begin());
    }

   private:
    static constexpr std::size_t kSets = 1024;
    static constexpr std::size_t kWays = 4;
    static constexpr std::size_t kMost = 6;
    static constexpr std::uint64_t kTaken = std::uint64_t{1} << 63;  // 0 is a place where nothing is
    struct Entry {
      std::uint32_t leg_count;
      std::uint32_t cell_count;
      std::array<Leg, kMost> legs;
      std::array<base::Hash128, kMost> cells;
    };
    static_assert(sizeof(Entry) == 128);
    static constexpr std::int32_t kMissed = 2;  // hits that make up for a miss
    static constexpr std::int32_t kMostCredit = 2 * kMissed * static_cast<std::int32_t>(kSets * kWays);
    static constexpr std::uint32_t kOneIn = 16;

    std::array<std::array<std::uint64_t, kWays>, kSets> checks_{};
    std::array<std::array<Entry, kWays>, kSets> entries_{};
    std::size_t next_ = 0;
    std::int32_t credit_ = kMostCredit;  // enough to get to know as many as there is room for, twice
    std::uint32_t passed_ = 0;
  };

  // The calling thread's; nullptr: it is not worth it, or there are too many threads, or no memory.
  [[nodiscard]] Memory* mine() noexcept {
    const std::size_t slot = base::thread_slot();
    if (slot >= base::kOwnedSlots) return nullptr;
    std::unique_ptr<Memory>& memory = memories_[slot];
    if (memory == nullptr) [[unlikely]]
      memory.reset(new (std::nothrow) Memory());
    return memory != nullptr && memory->is_worth_it() ? memory.get() : nullptr;
  }

 private:
  std::array<std::unique_ptr<Memory>, base::kOwnedSlots> memories_;
};

}  // namespace headgate::engine
