// Cells that several servers share, in Redis: the client, the store over it and the leases over that, as one.
//
// Raises notices when Redis stops or begins to answer, has a problem, or has a clock that is far from ours. Safe for
// concurrent use.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/repeating.h"
#include "cluster/store_config.h"
#include "observe/notices.h"
#include "store/redis/client.h"
#include "store/redis/leased_store.h"
#include "store/redis/problems.h"
#include "store/redis/redis_store.h"

namespace headgate::cluster {

// Under which the seed of all hashes lies in Redis.
[[nodiscard]] std::string seed_key(const std::string& prefix);

class SharedStore final : public store::RemoteStore, private store::redis::Observer {
 public:
  // Connects, and returns without waiting for that. `notices` and `clock` outlive it.
  [[nodiscard]] static Result<std::unique_ptr<SharedStore>> open(const StoreConfig& config, observe::Notices& notices,
                                                                 const Clock& clock);
  ~SharedStore() override;

  // What every server's hashes begin with: the first to come makes it up, or brings the one it has `kept` (0: none).
  // Waits until Redis answers, at most so long.
  [[nodiscard]] Result<std::uint64_t> seed(std::uint64_t kept, Nanos at_most);
  // Keeps leases going and calls `tick` besides, from a thread of its own, until end_ticks().
  void start(std::function<void()> tick);
  void end_ticks() { ticking_.reset(); }
  // Gives leased units back and answers what is under way with an Error. Nothing may be asked afterwards.
  void stop();

  void apply(std::span<const store::Charge> charges, const store::Ask& ask, std::span<core::Outcome> outcomes,
             Done done) override;
  std::optional<store::Applied> try_now(std::span<const store::Charge> charges, const store::Ask& ask,
                                        std::span<core::Outcome> outcomes) override;
  void refund(const store::Charge& charge, Nanos charged_at, Told told) override;
  void release(const store::Charge& charge, LeaseId lease, Told told) override;
  void renew(const store::Charge& charge, LeaseId lease, Told told) override;
  [[nodiscard]] Nanos now_approx() const noexcept override { return store_->now_approx(); }

  [[nodiscard]] store::redis::Caller& caller() noexcept { return *client_; }
  [[nodiscard]] const std::string& node() const noexcept { return node_; }
  [[nodiscard]] bool is_up() const noexcept { return client_->state() == store::redis::State::kUp; }
  // An Error: it is not, and why.
  [[nodiscard]] Result<void> ready() const;
  // For how long it has been; 0: it is not.
  [[nodiscard]] Nanos up_for() const noexcept;
  // From now on there is a notice when Redis goes and comes; at once, if it is away. Before, no sink would get it.
  void announce();
  // So many checks were judged without it, since the start. Told as a notice when the first of an outage was.
  void stood_in(std::uint64_t checks);
  [[nodiscard]] store::redis::LeasedStore::Totals leases() const noexcept { return leases_->totals(); }
  [[nodiscard]] Nanos clock_offset() const noexcept { return store_->clock_offset(); }

 private:
  SharedStore(const StoreConfig& config, observe::Notices& notices, const Clock& clock);

  void on_down(const std::string& why) override;
  void on_up(Nanos after) override;
  void on_problem(std::string_view kind, const std::string& text) override;
  void on_clock(Nanos offset) override;
  void on_fault(const Error& error);
  void tell(std::string kind, std::string text, double value);

  const StoreConfig config_;
  const std::string node_;
  observe::Notices& notices_;
  const Clock& clock_;
  const store::redis::LeaseSettings lease_settings_;
  std::atomic<Nanos> up_since_{Nanos{0}};
  std::mutex announcing_;
  bool announced_ = false;           // guarded by it, as the next
  std::optional<std::string> away_;  // why
  std::atomic<bool> skewed_{false};
  std::uint64_t stand_ins_ = 0;  // as of the last time; on the ticking thread, as the next
  bool standing_in_ = false;
  std::mutex faults_mutex_;
  store::redis::Problems faults_;  // guarded by it
  std::unique_ptr<store::redis::Client> client_;
  std::unique_ptr<store::redis::RedisStore> store_;
  std::unique_ptr<store::redis::LeasedStore> leases_;
  std::unique_ptr<base::Repeating> ticking_;
};

}  // namespace headgate::cluster
