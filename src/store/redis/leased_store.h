// A remote store that answers checks from units that it has leased before (see lease_step.h for what that can cost).
//
// It decides which checks those are: the ones that charge now and whose charges are all marked as leased. All others
// are strict: they go to the shared store. try_now() answers most leased checks at the speed of a store in memory. What
// it cannot answer goes through apply() to the shared store, for this check alone, in one round trip: a cell that is
// rarely charged costs what it costs without leases, and is exact. For a cell that is charged often a block of units is
// fetched besides, for the checks to come. Blocks are renewed before they run out, and go back when they lie unused.
//
// Safe for concurrent use. The store, the caller and the clock must outlive it and every answer that is still due.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headgate/clock.h"
#include "store/redis/block_table.h"
#include "store/redis/lease_script.h"
#include "store/remote_store.h"

namespace headgate::store::redis {

class LeasedStore final : public RemoteStore {
 public:
  struct Options {
    std::string prefix;                 // of all keys
    std::string node;                   // unique among the nodes, and another one after a restart
    std::size_t max_cells = 1'000'000;  // beyond these, cells are strict
    std::size_t max_errands = 10'000;   // under way at a time; beyond these, blocks are fetched later
    const Clock* clock = nullptr;       // the node's own; not owned
    LeaseSettings settings{};
  };
  LeasedStore(RemoteStore& store, Caller& caller, Options options);
  ~LeasedStore() override;
  LeasedStore(const LeasedStore&) = delete;
  LeasedStore& operator=(const LeasedStore&) = delete;

  // `ask.now` is by the clock of the options. Does no I/O, but may start some.
  std::optional<Applied> try_now(std::span<const Charge> charges, const Ask& ask,
                                 std::span<core::Outcome> outcomes) override;
  void apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes, Done done) override;
  void refund(const Charge& charge, Nanos charged_at, Told told) override;
  void release(const Charge& charge, LeaseId lease, Told told) override;
  void renew(const Charge& charge, LeaseId lease, Told told) override;
  [[nodiscard]] Nanos now_approx() const noexcept override;

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
    std::uint64_t strict = 0;  // leased checks that went to the shared store
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
