// What makes this server one node of several: the store that they share, the control state that reaches all of them,
// and the recovery of quotas that Redis has lost.
//
// For the thread that starts and stops the server; nodes() and unsent() are safe for concurrent use.
#pragma once

#include <memory>

#include "base/repeating.h"
#include "cluster/quota_recovery.h"
#include "cluster/shared_store.h"
#include "cluster/spread.h"

namespace headgate::cluster {

class Membership {
 public:
  // Connects to Redis and agrees on the seed of all hashes, which is kept in the database. Waits five seconds for
  // Redis; where a seed is kept, one second, and then goes on without it. All of these outlive it.
  [[nodiscard]] static Result<std::unique_ptr<Membership>> open(const StoreConfig& config, state::Database& database,
                                                                observe::Notices& notices);
  ~Membership() { leave(); }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  [[nodiscard]] SharedStore& store() noexcept { return *store_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

  // From now on control state is exchanged with the other nodes, and quotas are recovered. Once. All of these outlive
  // leave().
  void join(service::Service& service, service::Policies& policies, service::Quotas& quotas);
  // Once; further calls do nothing. The engine must ask the store nothing afterwards.
  void leave();

  // REQUIRES for both: join().
  [[nodiscard]] std::size_t nodes() const noexcept { return spread_->nodes(); }
  [[nodiscard]] std::size_t unsent() const { return spread_->unsent(); }

 private:
  explicit Membership(const StoreConfig& config) : config_(config) {}
  [[nodiscard]] Result<void> agree_on_seed(state::Database& database);
  void tick(engine::Engine& engine);

  const StoreConfig config_;
  std::uint64_t seed_ = 0;
  std::unique_ptr<SharedStore> store_;
  std::unique_ptr<Spread> spread_;
  std::unique_ptr<QuotaRecovery> recovery_;
  std::unique_ptr<base::Repeating> recovering_;
  double local_share_ = 1;  // of the store's ticking thread
  bool left_ = false;
};

}  // namespace headgate::cluster
