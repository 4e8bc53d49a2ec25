// Gathers plans that are asked at the same time into one call of the script, which costs Redis less than half. Nobody
// waits for company: as long as few calls are on their way a plan goes at once and alone; what comes while more are
// goes together with the next.
#pragma once

#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "store/redis/command.h"

namespace headgate::store::redis {

// Safe for concurrent use.
class PlanQueue {
 public:
  static constexpr std::size_t kMaxInFlight = 4;
  static constexpr std::size_t kMaxTogether = 16;  // so that one call keeps Redis from others for a tenth of a ms
  static constexpr std::size_t kMaxQueued = 8192;  // beyond, a plan is answered with an Error at once

  explicit PlanQueue(Caller& caller) : caller_(caller) {}
  PlanQueue(const PlanQueue&) = delete;
  PlanQueue& operator=(const PlanQueue&) = delete;

  struct Plan {
    std::span<const std::string> keys;  // must live until `done` is called
    std::string blob;
    Caller::Done done;  // with the answer to this plan alone
  };
  // A plan that had to wait for a call that failed shares its Error: what it waited for is as long as it may take.
  void ask(Plan plan);

 private:
  using Plans = std::vector<Plan>;
  void send(Plans plans);
  void answered(Plans& plans, const Result<Reply>& reply);

  Caller& caller_;
  std::mutex mutex_;
  std::deque<Plan> queued_;
  std::size_t in_flight_ = 0;
};

}  // namespace headgate::store::redis
