// Decides checks out of units that were leased before, and fetches more (see lease_step.h for what that can cost).
//
// A check first goes to try_local(), which answers most at the speed of a store in memory. What it cannot answer goes
// to fetch(): that asks the shared store strictly, for this check alone, in one round trip; so a cell that is asked for
// now and then costs what it costs without leases, and is exact. Where a cell is asked for often, a block of units is
// fetched besides, for the checks to come; blocks are renewed before they run out, and go back when they lie about.
//
// Safe for concurrent use. The store, the caller and the clock must outlive it and every answer that is still due.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headgate/clock.h"
#include "store/redis/block_table.h"
#include "store/redis/lease_script.h"
#include "store/remote_store.h"

namespace headgate::store::redis {

class LeasedStore {
 public:
  struct Options {
    std::string prefix;                 // of all keys
    std::string node;                   // nobody else's, and another one after a restart
    std::size_t max_cells = 1'000'000;  // beyond these, cells are asked for strictly
    std::size_t max_errands = 10'000;   // under way at a time; beyond these, blocks are fetched later
    const Clock* clock = nullptr;       // the node's own; not owned
    LeaseSettings settings{};
  };
  LeasedStore(RemoteStore& store, Caller& caller, Options options);
  ~LeasedStore();
  LeasedStore(const LeasedStore&) = delete;
  LeasedStore& operator=(const LeasedStore&) = delete;

  using Verdict = BlockTable::Verdict;
  // Of a check that charges (Effect::kCharge), all of whose policies are leased. `now` is by the clock of the options.
  // Does no I/O, but may have some begun. kAsk: go to fetch().
  [[nodiscard]] Verdict try_local(std::span<const Charge> charges, Nanos now, std::span<core::Outcome> outcomes) {
    const BlockTable::Taken taken = table_.take(charges, now, outcomes);
    if (taken.low != 0) fetch_ahead(charges, taken, now);
    return taken.verdict;
  }

  // As RemoteStore::apply(), of which it is one call.
  void fetch(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes,
             RemoteStore::Done done);

  // Fetches, renews and gives back what is due: to be called kRounds times per ttl, by one thread at a time.
  static constexpr std::size_t kRounds = 16;
  void maintain();

  // Gives everything back and fetches no more; `done` is called once, when all of it has been answered.
  void close(std::function<void()> done);

  struct Totals {
    std::size_t cells = 0;
    Units units = 0;           // held here, unused
    Units lapsed = 0;          // no longer usable, and yet to go back
    std::uint64_t blocks = 0;  // fetched so far
    Units fetched = 0;         // units in them
    Units given_back = 0;      // of those
    std::uint64_t strict = 0;  // checks that asked the shared store
    std::uint64_t failed = 0;  // errands that ended without an answer: each may have stranded one block
  };
  [[nodiscard]] Totals totals() const noexcept;

 private:
  // What errands under way share with this: they may end after it.
  struct Shared;
  void fetch_ahead(std::span<const Charge> charges, const BlockTable::Taken& taken, Nanos now);

  std::shared_ptr<Shared> shared_;
  BlockTable& table_;  // the shared one
};

}  // namespace headgate::store::redis
