// Holds on cost and slots that are still open, and those that ended lately, so that ending one twice does nothing
// twice.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

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
};

// What came of settling.
struct Settled {
  std::vector<std::pair<std::string, double>> costs;  // by unit: what is charged now
  double overrun = 0;                                 // of the actual cost, what no limit had room for (the worst unit)
  bool again = false;                                 // it had ended before: nothing was done
};

struct Lease {
  std::string id;
  std::string agent;
  LeaseId slot = 0;  // under which concurrency limits know it
  std::vector<Held> held;
  std::vector<std::pair<std::string, double>> costs;
  Nanos ttl{0};
  Nanos expires{0};  // steady timeline
  bool ended = false;
  Settled settled;  // when ended
};

// Safe for concurrent use.
class Leases {
 public:
  explicit Leases(std::size_t most) : most_(most) {}

  // 128 random bits in hex; not to be guessed.
  [[nodiscard]] static std::string new_id();
  // The number under which concurrency limits know that lease.
  [[nodiscard]] static LeaseId slot_of(std::string_view id) noexcept;

  // False: as many are open as may be.
  [[nodiscard]] bool add(std::shared_ptr<Lease> lease);
  // nullptr: unknown, or forgotten. Its fields are guarded by whoever holds `guard`.
  [[nodiscard]] std::shared_ptr<Lease> find(std::string_view id, std::unique_lock<std::mutex>& guard);
  // Under the guard of find(): the lease has ended, and is remembered for as long as it would have lasted.
  void end(Lease& lease, Nanos now);
  void renew(Lease& lease, Nanos now);

  // Takes those whose time is over, one by one; nullptr: none is. Ended ones are forgotten on the way.
  [[nodiscard]] std::shared_ptr<Lease> expire_one(Nanos now);
  // kMaxTime: none is open. One relaxed load.
  [[nodiscard]] Nanos next_expiry() const noexcept { return Nanos{next_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] std::size_t open() const noexcept { return open_.load(); }
  [[nodiscard]] bool full() const noexcept { return open() >= most_; }

 private:
  using Due = std::pair<Nanos, std::string>;
  void reschedule(Lease& lease, Nanos expires);
  void set_next();

  std::size_t most_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Lease>> leases_;
  std::set<Due> due_;
  std::atomic<std::int64_t> next_{kMaxTime.count()};
  std::atomic<std::size_t> open_{0};
};

}  // namespace headgate::engine
