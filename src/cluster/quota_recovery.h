// Puts back into Redis what the ledger knows to have been charged to quotas and Redis does not: because it was emptied,
// or started anew without its data, or because a node ended before it had made up for an outage.
//
// One node at a time: it holds a key in Redis that lapses if the node is lost. Another key says that the counters are
// whole; when that is gone, so are they.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "service/quotas.h"
#include "store/redis/command.h"

namespace headgate::cluster {

class QuotaRecovery {
 public:
  struct Options {
    std::string prefix = "headgate:";
    std::string node;  // unlike any other's
  };
  // How long others wait for a node that is lost in the middle of it; longer than it takes to read the ledger.
  static constexpr Nanos kTurn = std::chrono::minutes{1};

  // Both outlive it.
  QuotaRecovery(store::redis::Caller& redis, service::Quotas& quotas, const Options& options);

  // Looks whether the counters are whole, and makes them so; the first time whether or not they seem to be. What fails,
  // or is another node's turn, is for the next time. By one thread at a time, which waits for Redis and the ledger.
  void step();
  // Ends a step that is under way in another thread, and all later ones. May be called from any thread.
  void end() noexcept { ending_ = true; }

 private:
  // nullopt: Redis does not answer.
  [[nodiscard]] std::optional<bool> is_whole();
  [[nodiscard]] bool take_turn();
  // Of the turn that was taken: goes on with it, or ends it. False: it was over.
  [[nodiscard]] bool keep_turn(Nanos for_this_long);
  [[nodiscard]] bool may_go_on();

  store::redis::Caller& redis_;
  service::Quotas& quotas_;
  const std::string whole_key_;
  const std::string turn_key_;
  const std::string node_;
  Nanos turn_kept_{0};  // by steady_now()
  bool done_once_ = false;
  bool failed_ = false;  // and told so
  std::atomic<bool> ending_{false};
};

}  // namespace headgate::cluster
