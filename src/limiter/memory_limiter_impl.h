// What a MemoryLimiter is made of, and what all of its calls end in.
#pragma once

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "headgate/limiter.h"
#include "limiter/saved_limits.h"
#include "limiter/wait_queue.h"
#include "store/memory/memory_store.h"

namespace headgate {

inline constexpr std::size_t kMaxLimits = 8;  // of one key

struct MemoryLimiter::Impl {
  Impl(const Options& options, const store::MemoryStoreOptions& store_options);

  // By value: std::clamp chooses between addresses, and so sends the instant through memory.
  [[nodiscard]] static Nanos clamp(Nanos now) noexcept {
    if (now < Nanos{0}) return Nanos{0};
    return now > kMaxTime ? kMaxTime : now;
  }
  [[nodiscard]] Nanos wall(Nanos now) const noexcept { return follows_wall ? clamp(clock.wall(now)) : now; }

  // Writes the charges of one key, one per limit.
  std::size_t plan(base::Hash128 key, std::string_view name, Units permits, store::Charge* charges) const noexcept {
    for (std::size_t i = 0; i < limits.size(); ++i) {
      charges[i] = {base::nth(key, i), &limits.live(i), permits, name, i == 0};
    }
    return limits.size();
  }

  struct How {
    store::Effect effect = store::Effect::kCharge;
    Nanos patience{0};
    Nanos* charged_after = nullptr;  // where to say how far ahead a reservation was charged
    bool count_denial = true;
  };
  // Where every call about one key ends.
  Decision run(Nanos now, base::Hash128 key, std::string_view name, Units permits, How how) noexcept;

  // A caller who will not wait must not overtake those who do.
  [[nodiscard]] bool would_overtake(base::Hash128 key) const noexcept {
    return !queue.empty_approx() && queue.has_waiters(key);
  }
  Decision behind_the_queue(Nanos now, base::Hash128 key, std::string_view name, Units permits) noexcept;
  void count_denial(base::Hash128 key, std::string_view name) noexcept {
    store.count_denial({key, &limits.live(0), 0, name, true});
  }

  // The common case is written out so that the answer is built once, in its place: copying it would cost more than the
  // bucket's arithmetic. All else starts again from the key: with nothing kept for a call that almost never comes, few
  // registers must be saved.
  Decision take(Nanos now, base::Hash128 hash, std::string_view key, Units permits) noexcept;
  Decision take_long(Nanos now, std::string_view key, Units permits) noexcept;
  // Any single limit on a cell that exists; all else is a plan.
  Decision take_one(Nanos now, std::string_view key, Units permits) noexcept;
  Decision take_any(Nanos now, std::string_view key, Units permits) noexcept;

  Clock& clock;
  store::MemoryStore store;
  SavedLimits limits;
  WaitQueue queue;
  bool follows_wall;
  bool holds;
  const store::LiveLimit* only_limit;   // the limit if it is alone and keys are not tracked
  const store::LiveLimit* only_bucket;  // the same, if it is a token bucket
  const store::LiveLimit* only_window;  // the same, if it is a sliding window
  std::atomic<LeaseId> next_lease;
};

}  // namespace headgate
