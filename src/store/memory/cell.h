// One cell: the state of one limit for one key, in two or four words, and what turns words into a strategy's state.
#pragma once

#include <algorithm>

#include "base/hash.h"
#include "core/compiled_limit.h"
#include "headgate/limiter.h"

namespace headgate::store {

using Word = std::int64_t;

// 96 of the hash's 128 bits, 16 bits that say whose cell it is, and 16 bits about the cell. Word 0 of every strategy is
// the instant from which the cell equals a new one, so that expiry needs no limit.
template <int kWords>
struct Cell {
  std::uint64_t low;
  std::uint64_t high;  // 0: empty
  Word words[kWords];
};

// The low half of `high`. The 16 bits about a cell: occupied, ahead, strategy, generation, and whether it is of a limit
// that a caller has named. Above them the 16 bits of the owner: a hash of its name, or 0 for a cell without an owner.
struct Tag {
  static constexpr std::uint64_t kOccupied = 1;
  static constexpr std::uint64_t kAhead = 2;
  static constexpr int kStrategyShift = 2;
  static constexpr int kGenerationShift = 5;
  static constexpr std::uint64_t kGenerationMask = 0x3FF;
  static constexpr std::uint64_t kCallers = 1 << 15;
  static constexpr int kOwnerShift = 16;
  static constexpr std::size_t kOwners = 1 << 16;
  static constexpr std::uint64_t kOwner = std::uint64_t{kOwners - 1} << kOwnerShift;
  static constexpr int kHashShift = 32;  // a key's bits from here on tell cells apart
  static constexpr std::uint64_t kHash = ~std::uint64_t{0} << kHashShift;
  // What must agree for a cell to be the one looked for. A key under another strategy is another cell.
  static constexpr std::uint64_t kIdentity = kHash | (std::uint64_t{7} << kStrategyShift) | kOccupied;

  [[nodiscard]] static std::uint64_t identity(std::uint64_t hash_high, Strategy strategy) noexcept {
    return (hash_high & kHash) | (static_cast<std::uint64_t>(strategy) << kStrategyShift) | kOccupied;
  }
  [[nodiscard]] static Strategy strategy(std::uint64_t high) noexcept {
    return static_cast<Strategy>((high >> kStrategyShift) & 7);
  }
  [[nodiscard]] static std::size_t owner(std::uint64_t high) noexcept { return (high & kOwner) >> kOwnerShift; }
  [[nodiscard]] static std::uint32_t generation(std::uint64_t high) noexcept {
    return (high >> kGenerationShift) & kGenerationMask;
  }
  [[nodiscard]] static std::uint64_t with(std::uint64_t high, bool ahead, std::uint32_t generation) noexcept {
    return (high & (kIdentity | kCallers | kOwner)) | (ahead ? kAhead : 0) |
           ((generation & kGenerationMask) << kGenerationShift);
  }
};

[[nodiscard]] constexpr int words_of(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::kSlidingWindow:
    case Strategy::kSlidingWindowCounter:
    case Strategy::kConcurrency: return 4;
    default: return 2;
  }
}

[[nodiscard]] inline core::BucketState load_bucket(const Word* words) noexcept { return {Nanos{words[0]}, words[1]}; }
inline void save(core::BucketState state, Word* words) noexcept {
  words[0] = state.full_at.count();
  words[1] = state.carry;
}

// How word 2 of a sliding window holds the numbers of its ring.
struct RingWord {
  static constexpr std::uint32_t kIndexBits = 21;
  static constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kInstantsOnly = std::uint64_t{1} << (3 * kIndexBits);
  static_assert(core::kMaxRuns <= kIndexMask);

  [[nodiscard]] static std::uint32_t head(std::uint64_t packed) noexcept { return packed & kIndexMask; }
  [[nodiscard]] static std::uint32_t size(std::uint64_t packed) noexcept { return (packed >> kIndexBits) & kIndexMask; }
  [[nodiscard]] static std::uint32_t capacity(std::uint64_t packed) noexcept {
    return (packed >> (2 * kIndexBits)) & kIndexMask;
  }
};

// A sliding window's words as a log, and back. `window` is that of the limit that wrote them.
[[nodiscard]] inline core::RunLog unpack_log(const Word* words, bool ahead, Nanos window) noexcept {
  core::RunLog log;
  const auto packed = static_cast<std::uint64_t>(words[2]);
  if ((packed & RingWord::kInstantsOnly) != 0) {
    log.instants = reinterpret_cast<Nanos*>(words[1]);
  } else {
    log.runs = reinterpret_cast<core::Run*>(words[1]);
  }
  log.head = RingWord::head(packed);
  log.size = RingWord::size(packed);
  log.capacity = RingWord::capacity(packed);
  log.gone = words[3];
  log.ahead = ahead;
  // While a reservation lies ahead nothing is admitted before it, so no other instant needs to be remembered.
  log.seen = ahead || words[0] == 0 ? Nanos{0} : Nanos{words[0]} - window;
  return log;
}
inline void store_log(const core::RunLog& log, Nanos window, Word* words, bool& ahead) noexcept {
  const Nanos last = log.ahead ? log.newest().at : log.seen;
  words[0] = (last + window).count();
  words[1] = log.instants != nullptr ? reinterpret_cast<Word>(log.instants) : reinterpret_cast<Word>(log.runs);
  words[2] = static_cast<Word>((log.instants != nullptr ? RingWord::kInstantsOnly : 0) | std::uint64_t{log.head} |
                               (std::uint64_t{log.size} << RingWord::kIndexBits) |
                               (std::uint64_t{log.capacity} << (2 * RingWord::kIndexBits)));
  words[3] = log.gone;
  ahead = log.ahead;
}
// For a log whose words may have been written under another window: `seen` is never less than the newest instant.
[[nodiscard]] inline core::RunLog load_log(const Word* words, bool ahead, Nanos window) noexcept {
  core::RunLog log = unpack_log(words, ahead, window);
  if (!ahead && log.size > 0) log.seen = std::max(log.seen, log.newest().at);
  return log;
}

// Charges one unit by core::sliding_window_unit(). False: nothing was done, the general way has to be taken.
// REQUIRES: the cell is up to date.
[[nodiscard]] inline bool charge_unit(const core::LogNumbers& n, Word* words, bool ahead, Nanos now,
                                      core::Outcome& outcome) noexcept {
  if (ahead) return false;
  core::RunLog log = unpack_log(words, false, n.window);
  if (log.instants == nullptr || !core::sliding_window_unit(log, n, now, outcome)) [[unlikely]]
    return false;
  if (outcome.fits()) [[likely]]
    store_log(log, n.window, words, ahead);
  return true;
}

// No count of units that is carried over becomes larger.
inline constexpr Units kMostCounted = Units{1} << 53;

// Judges a cost against a cell's words. Nothing is written.
[[nodiscard]] core::Outcome judge(const core::CompiledLimit& limit, const Word* words, bool ahead, Units cost,
                                  Nanos now) noexcept;

// Moves the count of a window that a wrong clock began into the present one (see core/fixed_window.h). Other strategies
// have none.
void leave_future(const core::CompiledLimit& limit, Word* words, bool ahead, Nanos now) noexcept;

// Writes the charge. False: there was no memory for it, and nothing was written.
// REQUIRES: judge() said that it fits at `at`. `reserve` says that `at` may lie in the future.
[[nodiscard]] bool charge(const core::CompiledLimit& limit, Word* words, bool& ahead, Units cost, Nanos at,
                          bool reserve, LeaseId lease) noexcept;

// Both at once, for a cell that is charged alone and now. `no_memory` is set if it fits but could not be written.
// REQUIRES: 0 < cost <= most.
[[nodiscard]] core::Outcome charge_if_fits(const core::CompiledLimit& limit, Word* words, bool& ahead, Units cost,
                                           Nanos now, LeaseId lease, bool& no_memory) noexcept;

// Gives back what was charged at `charged_at` (a leaky bucket: whose turn was then), as far as it still counts at
// `now`.
void refund(const core::CompiledLimit& limit, Word* words, bool& ahead, Units units, Nanos charged_at,
            Nanos now) noexcept;

// Carries a cell over from one set of numbers to another of the same strategy.
void carry_over(const core::CompiledLimit& from, const core::CompiledLimit& to, OnChange how, Word* words, bool& ahead,
                Nanos now) noexcept;

// Frees what the words own, if anything, and makes them those of a new cell.
void reset_words(Strategy strategy, Word* words) noexcept;

[[nodiscard]] inline core::HoldTable* hold_table(const Word* words) noexcept {
  return reinterpret_cast<core::HoldTable*>(words[1]);
}
// Make room for at least `capacity` entries; false: no memory, and nothing has changed.
[[nodiscard]] bool grow_log(core::RunLog& log, std::uint32_t capacity) noexcept;
[[nodiscard]] bool grow_instants(core::RunLog& log,
                                 std::uint32_t capacity) noexcept;  // an empty log, of instants alone
[[nodiscard]] bool grow_holds(Word* words, std::uint32_t capacity) noexcept;

}  // namespace headgate::store
