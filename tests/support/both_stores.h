// The memory store and a store in Redis with the same charges at the same instants.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/redis/redis_store.h"
#include "support/cells.h"
#include "support/plain_caller.h"
#include "support/redis_server.h"

namespace headgate::test {

// One server for all tests of a file: it is emptied for each.
inline RedisServer& shared_redis() {
  static RedisServer server;
  return server;
}

// A RemoteStore with a Caller that waits, seen as a store that answers at once.
class RedisCells {
 public:
  explicit RedisCells(store::redis::RedisStore::Options options = {})
      : caller(shared_redis().port()), store(caller, std::move(options)) {
    caller.ask({"FLUSHALL"});
  }

  store::Applied apply(std::span<const store::Charge> charges, const store::Ask& ask,
                       std::span<core::Outcome> outcomes) {
    const auto answer = try_apply(charges, ask, outcomes);
    if (!answer) throw std::runtime_error(answer.error().message);
    return answer->applied;
  }
  Result<store::RemoteStore::Answer> try_apply(std::span<const store::Charge> charges, const store::Ask& ask,
                                               std::span<core::Outcome> outcomes) {
    std::optional<Result<store::RemoteStore::Answer>> told;
    store.apply_at(ask.now, charges, ask, outcomes, [&](const auto& answer) { told = answer; });
    return told.value();
  }
  void refund(const store::Charge& charge, Nanos charged_at, Nanos now) {
    store.refund_at(now, charge, charged_at, [](const Result<bool>& done) { must(done); });
  }
  bool release(const store::Charge& charge, LeaseId lease, Nanos now) {
    bool released = false;
    store.release_at(now, charge, lease, [&](const Result<bool>& done) { released = must(done); });
    return released;
  }
  bool renew(const store::Charge& charge, LeaseId lease, Nanos now) {
    bool renewed = false;
    store.renew_at(now, charge, lease, [&](const Result<bool>& done) { renewed = must(done); });
    return renewed;
  }

  PlainCaller caller;
  store::redis::RedisStore store;
};

inline std::string describe(const core::Outcome& o) {
  return "wait " + std::to_string(o.wait.count()) + " delay " + std::to_string(o.delay.count()) + " reset " +
         std::to_string(o.reset_after.count()) + " limit " + std::to_string(o.limit) + " remaining " +
         std::to_string(o.remaining) + (o.burst ? " burst" : "");
}

}  // namespace headgate::test
