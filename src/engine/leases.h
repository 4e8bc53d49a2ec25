// Holds on cost and slots that are still open, and what came of those that ended lately, so that ending one twice does
// nothing twice.
//
// At most so many are open as may be, and of one owner a tenth of them (1,000 at the least); one more is refused. Of
// ended ones the latest 65,536 are remembered, and no more than fit in 32 MB, each for as long as it would have lasted:
// what is forgotten is not found any more.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/shares.h"
#include "engine/ruleset.h"
#include "store/charge.h"

namespace headgate::engine {

// What one limit has been charged under a lease.
struct Held {
  store::Charge charge;  // its limit is kept alive by `numbers`
  std::shared_ptr<LiveNumbers> numbers;
  Nanos charged_at{0};           // by the clock that the limit follows
  Nanos reset_after{0};          // from then on; zero where it was charged ahead
  std::uint32_t generation = 0;  // of the limit, by which it was charged
  std::string unit;
  std::string policy_id;
  double scale = 1;
  bool remote = false;  // charged_at is by the remote store's clock then
  bool final = false;   // its policy says holds: false, so the end of the lease gives nothing back
  Units least = 0;      // settling charges at least this much
};

// What came of settling.
struct Settled {
  std::vector<std::pair<std::string, double>> costs;  // by unit: the most that any policy is charged now
  double overrun = 0;                                 // of the actual cost, what no limit had room for (the worst unit)
  bool again = false;                                 // it had ended before: nothing was done
};

struct Lease {
  std::string id;
  std::string agent;
  std::string owner;  // whose share it is of
  LeaseId slot = 0;   // under which concurrency limits know it
  std::vector<Held> held;
  std::vector<std::pair<std::string, double>> costs;
  Nanos ttl{0};
  Nanos expires{0};  // steady timeline
};

// Safe for concurrent use.
class Leases {
 public:
  static constexpr std::size_t kMostEnded = 65'536;
  static constexpr std::size_t kMostEndedBytes = 32 << 20;
  static constexpr std::size_t kLeastShare = 1'000;

  explicit Leases(std::size_t most) : most_(most), share_(base::Shares::share_of(most, kLeastShare)) {}

  // 128 random bits in hex; not to be guessed.
  [[nodiscard]] static std::string new_id();
  // The number under which concurrency limits know that lease.
  [[nodiscard]] static LeaseId slot_of(std::string_view id) noexcept;

  // False: as many are open as may be, in all or of its owner.
  [[nodiscard]] bool add(std::shared_ptr<Lease> lease);
  // nullptr: none that is open. Its fields are guarded by `guard`.
  [[nodiscard]] std::shared_ptr<Lease> find(std::string_view id, std::unique_lock<std::mutex>& guard);
  // All below under the guard of find().
  struct Ended {
    std::string agent;
    Settled settled;
    Nanos until{0};  // when it is forgotten
  };
  // nullptr: unknown, or forgotten.
  [[nodiscard]] const Ended* find_ended(std::string_view id, Nanos now) const;
  // REQUIRES: find() has found it.
  void end(const Lease& lease, const Settled& settled, Nanos now);
  void renew(Lease& lease, Nanos now);

  // Takes those whose time is over, one by one; nullptr: none is.
  [[nodiscard]] std::shared_ptr<Lease> expire_one(Nanos now);
  // kMaxTime: none is open. One relaxed load.
  [[nodiscard]] Nanos next_expiry() const noexcept { return Nanos{next_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] std::size_t open() const noexcept { return open_.load(); }
  [[nodiscard]] bool full(std::string_view owner);
  [[nodiscard]] std::size_t remembered();  // of those that ended

 private:
  using Due = std::pair<Nanos, std::string>;
  void set_next();
  void forget_oldest();

  std::size_t most_;
  std::size_t share_;  // of one owner
  std::mutex mutex_;
  base::Shares shares_;
  std::unordered_map<std::string, std::shared_ptr<Lease>> leases_;
  std::set<Due> due_;
  std::unordered_map<std::string, Ended> ended_;
  std::deque<std::string> ended_ids_;  // the oldest first
  std::size_t ended_bytes_ = 0;
  std::atomic<std::int64_t> next_{kMaxTime.count()};
  std::atomic<std::size_t> open_{0};
};

}  // namespace headgate::engine
