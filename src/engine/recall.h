// Which policies match a check and which cells it charges, remembered for checks that come again: most do.
//
// What is remembered is looked for by one hash of all that matching looks at, and then compared in full: whose cells
// are charged never hangs on a hash of 64 bits. The engine's state is part of it: once that has been replaced, nothing
// is found any more. Each thread remembers for itself.
//
// Checks that the same policies match differ in their cells alone, so what they charge is drafted once for all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "base/bounded_array.h"
#include "base/hash.h"
#include "base/thread_slot.h"
#include "engine/check_decision.h"
#include "policy/limit_reader.h"
#include "policy/reader.h"
#include "policy/rules.h"
#include "store/charge.h"

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
  static constexpr std::size_t kMost = 6;         // legs of a check, and cells; what has more is not remembered
  static constexpr std::size_t kMostNames = 182;  // bytes of what is looked at; what has more is not remembered

  // What a check of one request charges, but for the keys.
  struct Draft {
    base::BoundedArray<Leg, kMost> legs;  // whose it is
    base::BoundedArray<store::Charge, kMost> charges;
    base::BoundedArray<std::uint8_t, kMost> cells;          // of the charges, among the route's
    base::BoundedArray<const WorkingLimit*, kMost> limits;  // beside charges
    base::BoundedArray<Judged, kMost> judged;
    Nanos patience{0};
    bool holds_slots = false;
    bool tiered = false;  // an agent may have numbers of its own for some of it
  };

  // One thread's: for some thousand checks, in a megabyte and a half.
  class alignas(64) Memory {
   public:
    struct Known {
      std::span<const Leg> legs;  // from nullptr: nothing is known
      std::span<const base::Hash128> cells;
      const Draft* draft = nullptr;  // nullptr: there is none

      Known() = default;
      Known(const Route& route) noexcept
          : legs(route.legs.data(), route.legs.size()), cells(route.cells.data(), route.cells.size()) {}
    };
    // Remembering costs more than it saves where checks hardly ever come again: then only now and then one is looked
    // for, until those are found.
    [[nodiscard]] bool is_worth_it() noexcept { return credit_ > 0 || ++passed_ % kOneIn == 0; }

    // `state`: the number of the engine's. `is_same` says whether these bytes are what is looked at in the check.
    template <class IsSame>
    [[nodiscard]] Known find(std::uint64_t check, std::uint64_t state, const IsSame& is_same) noexcept {
      check |= kTaken;
      const std::array<std::uint64_t, kWays>& set = checks_[check % kSets];
      // All that it may be, since it would take as long again to fetch it once it is known which.
      for (const Entry& entry : entries_[check % kSets]) {
        __builtin_prefetch(&entry);
        __builtin_prefetch(&entry.state);
      }
      // Which way it is kept is chance: compare them all, and branch once.
      static_assert(kWays == 4);
      const std::size_t way =
          (set[1] == check ? 1U : 0U) + 2 * (set[2] == check ? 1U : 0U) + 3 * (set[3] == check ? 1U : 0U);
      const Entry& entry = entries_[check % kSets][way];
      if (set[way] != check || entry.state != state ||
          !is_same(std::string_view(entry.names.data(), entry.name_bytes))) {
        credit_ = std::max(credit_ - kMissed, 0);
        return {};
      }
      credit_ = std::min(credit_ + 1, kMostCredit);
      Known known;
      known.legs = {entry.legs.data(), entry.leg_count};
      known.cells = {entry.cells.data(), entry.cell_count};
      if (entry.draft != kNoDraft && state == drafted_in_) known.draft = &drafts_[entry.draft];
      return known;
    }

    // In place of whatever is there. What is too long is not kept.
    void keep(std::uint64_t check, std::uint64_t state, std::string_view names, const Route& route,
              const Draft* draft) noexcept {
      if (route.legs.size() > kMost || route.cells.size() > kMost || names.size() > kMostNames) return;
      check |= kTaken;
      const std::size_t set = check % kSets;
      const std::size_t way = next_++ % kWays;
      checks_[set][way] = check;
      Entry& entry = entries_[set][way];
      entry.leg_count = static_cast<std::uint16_t>(route.legs.size());
      entry.cell_count = static_cast<std::uint16_t>(route.cells.size());
      entry.draft = draft == nullptr ? kNoDraft : static_cast<std::uint32_t>(draft - drafts_.data());
      entry.state = state;
      entry.name_bytes = static_cast<std::uint16_t>(names.size());
      std::copy(names.begin(), names.end(), entry.names.begin());
      std::copy(route.legs.begin(), route.legs.end(), entry.legs.begin());
      std::copy(route.cells.begin(), route.cells.end(), entry.cells.begin());
    }

    // The draft of these legs in that state of the engine, or a new one for the caller to fill in; nullptr: there is
    // none, and no room for it.
    [[nodiscard]] Draft* draft(std::uint64_t state, const Route& route, bool& is_new) noexcept {
      is_new = false;
      if (route.legs.size() > kMost || route.cells.size() > kMost || state < drafted_in_) return nullptr;
      if (state > drafted_in_) {
        drafted_in_ = state;
        draft_count_ = 0;
      }
      const auto same = [](const Leg& a, const Leg& b) {
        return a.policy == b.policy && a.strand == b.strand && a.enforced == b.enforced;
      };
      for (std::size_t i = 0; i < draft_count_; ++i) {
        const auto& legs = drafts_[i].legs;
        if (std::equal(legs.begin(), legs.end(), route.legs.begin(), route.legs.end(), same)) return &drafts_[i];
      }
      if (draft_count_ == kDrafts) return nullptr;
      Draft& made = *new (&drafts_[draft_count_++]) Draft();
      for (const Leg& leg : route.legs) made.legs.append(leg);
      is_new = true;
      return &made;
    }

   private:
    static constexpr std::size_t kSets = 1024;
    static constexpr std::size_t kWays = 4;
    static constexpr std::size_t kDrafts = 64;
    static constexpr std::uint32_t kNoDraft = ~std::uint32_t{0};
    static constexpr std::uint64_t kTaken = std::uint64_t{1} << 63;  // 0 is a place where nothing is
    struct Entry {
      std::uint16_t leg_count;
      std::uint16_t cell_count;
      std::uint32_t draft;
      std::array<base::Hash128, kMost> cells;  // those of most checks lie on one cache line with what is above
      std::array<Leg, kMost> legs;
      std::uint64_t state;
      std::uint16_t name_bytes;
      std::array<char, kMostNames> names;
    };
    static_assert(sizeof(Entry) == 320 && offsetof(Entry, state) == 128);
    static constexpr std::int32_t kMissed = 2;  // hits that make up for a miss
    static constexpr std::int32_t kMostCredit = 2 * kMissed * static_cast<std::int32_t>(kSets * kWays);
    static constexpr std::uint32_t kOneIn = 16;

    std::array<std::array<std::uint64_t, kWays>, kSets> checks_{};
    std::array<std::array<Entry, kWays>, kSets> entries_{};
    std::array<Draft, kDrafts> drafts_;
    std::size_t draft_count_ = 0;
    std::uint64_t drafted_in_ = 0;  // the number of the state that they are of
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
