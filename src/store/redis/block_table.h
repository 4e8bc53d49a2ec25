// The units that this node holds of cells kept elsewhere, and what was last heard about those cells.
//
// Safe for concurrent use: sharded by hash, each shard a spin lock and a map. take() is the way of every check and
// costs about as much as a check in memory; all else happens once per block. At most one errand is under way for a
// cell: begin() and due() start one, end() ends it. Cells without checks are dropped; at the cap, new cells are
// not taken in, so that they are asked for elsewhere, each time.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "store/charge.h"
#include "store/redis/lease_step.h"

namespace headgate::store::redis {

class BlockTable {
 public:
  // Blocks that were renewed less than `hurried` ago and run low already are told apart (Taken::hurry).
  BlockTable(std::size_t max_cells, Nanos hurried);

  enum class Verdict : std::uint8_t {
    kTaken,   // every cost came out of a block
    kDenied,  // at least one cost does not fit, as was heard not long ago; nothing was taken
    kAsk,     // some cells' blocks are short; nothing was taken
  };
  struct Taken {
    Verdict verdict = Verdict::kAsk;
    std::uint64_t low = 0;  // bit i: the i-th cell runs low, and it is the caller's errand to fetch more
    bool hurry = false;     // that cannot wait
  };
  // REQUIRES: as RemoteStore::apply() does; now is by the clock that all calls of this table go by.
  [[nodiscard]] Taken take(std::span<const Charge> charges, Nanos now, std::span<core::Outcome> outcomes) noexcept;

  // A limit as it was when last asked about, for errands that outlive the check they began with.
  using Limit = std::shared_ptr<const LiveLimit>;

  // What was heard of a cell that was asked elsewhere, at the cost of `charge`; null: nothing in time. True: it is
  // asked for so often that a block is worth fetching, and that is now the caller's errand.
  [[nodiscard]] bool heard(const Charge& charge, const LeaseTerms& terms, const core::Outcome* outcome, Nanos now);

  // An errand: what to do about one cell.
  struct Errand {
    base::Hash128 cell;
    Limit limit;  // nullptr: none was ever given, and there is nothing to do but end()
    LeaseTerms terms;
    Units left = 0;
    Units want = 0;
    Units least = 0;
    // Units that are no longer this node's, and when they were charged, by the store's clock.
    struct Back {
      Units units = 0;
      Nanos charged_at{0};
    };
    std::array<Back, 2> back{};
  };
  // Says what to do on an errand that take() or heard() has given. `limit` replaces the one known, if it is not null.
  [[nodiscard]] Errand begin(const base::Hash128& cell, Limit limit, const LeaseTerms& terms, Nanos now);
  // What the record says of this cell; what was held beyond that goes back.
  [[nodiscard]] std::array<Errand::Back, 2> renew(const base::Hash128& cell, Units held, Nanos until) noexcept;
  // A block was charged at `charged_at`, by the store's clock.
  void put(const base::Hash128& cell, Units units, Nanos charged_at, const core::Outcome& outcome, Nanos now) noexcept;
  // Ends the errand; the next one begins at `next` at the earliest.
  void end(const base::Hash128& cell, Nanos next) noexcept;

  // Looks at some shards, wherever the last call stopped, `calls` of which see all of them. Drops cells that are idle,
  // and gives the errands, up to `most`, for those whose blocks lie about or are about to lapse. One caller at a time.
  void due(Nanos now, std::size_t calls, std::size_t most, std::vector<Errand>& errands);
  // Takes every unit back, of all cells or of one, where no errand is under way.
  void empty(std::vector<Errand>& errands);
  [[nodiscard]] std::optional<Errand> empty(const base::Hash128& cell);

  struct Totals {
    std::size_t cells = 0;
    Units units = 0;   // that may be used
    Units lapsed = 0;  // that may not any more, and have yet to go back
  };
  [[nodiscard]] Totals totals(Nanos now) const noexcept;

 private:
  struct Block {
    // What take() looks at, in two cache lines at most.
    Units units = 0;
    Nanos until{0};  // none may be used from then on
    Units low = 0;   // with fewer, more are fetched, but not before `next`
    Units limit = 0;
    Units remaining = 0;
    Nanos reset_at{0};
    bool burst = false;
    bool errand = false;
    bool recorded = false;  // there may be a record of ours, though nothing is left of what it says
    Demand demand;
    Nanos next{0};
    // A denial: costs of `denied` and more do not fit before fits_at, and that is believed until dry_until.
    Units denied = 0;
    Nanos dry_until{0};
    Nanos fits_at{0};
    // The rest. Units are used oldest first: `newest` of them, or all if there are fewer, were charged at newest_at,
    // the others at older_at or later.
    Units newest = 0;
    Nanos newest_at{0};
    Nanos older_at{0};
    LeaseTerms terms;
    Limit live;
  };
  struct KeyHash {
    std::size_t operator()(const base::Hash128& key) const noexcept { return key.high; }  // low chooses the shard
  };
  struct alignas(64) Shard {
    mutable base::SpinLock lock;
    absl::flat_hash_map<base::Hash128, Block, KeyHash> blocks;
  };

  [[nodiscard]] Shard& shard_of(const base::Hash128& key) const noexcept { return shards_[key.low & mask_]; }
  [[nodiscard]] Taken take_locked(std::span<const Charge> charges, Nanos now,
                                  std::span<core::Outcome> outcomes) noexcept;
  [[nodiscard]] static std::array<Errand::Back, 2> take_back(Block& block, Units units) noexcept;
  [[nodiscard]] static bool is_idle(const Block& block, Nanos now) noexcept;
  [[nodiscard]] static Errand errand_for(const base::Hash128& cell, Block& block, bool idle, Nanos now);
  [[nodiscard]] static Errand take_all(const base::Hash128& cell, Block& block);
  static void note(Block& block, const core::Outcome& outcome, Nanos now) noexcept;

  Nanos hurried_;
  std::size_t mask_;
  std::size_t max_cells_per_shard_;
  std::unique_ptr<Shard[]> shards_;
  std::size_t cursor_ = 0;
};

}  // namespace headgate::store::redis
