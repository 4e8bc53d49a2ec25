// What a MemoryLimiter is made of, and the functions in which all of its calls end.
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

  // By value: std::clamp returns a reference, which sends the instant through memory.
  [[nodiscard]] static Nanos clamp(Nanos now) noexcept {
    if (now < Nanos{0}) return Nanos{0};
    return now > kMaxTime ? kMaxTime : now;
  }
  [[nodiscard]] Nanos wall(Nanos now) const noexcept { return follows_wall ? clamp(clock.wall(now)) : now; }

  // Writes the charges of one key, one per limit. Returns how many.
  std::size_t write_charges(base::Hash128 key, std::string_view name, Units permits,
                            store::Charge* charges) const noexcept {
    for (std::size_t i = 0; i < limits.size(); ++i) {
      charges[i] = {base::nth(key, i), &limits.live(i), permits, name, i == 0};
    }
    return limits.size();
  }

  struct How {
    store::Effect effect = store::Effect::kCharge;
    Nanos patience{0};
    Nanos* charged_after = nullptr;  // receives how far ahead a reservation was charged
    bool count_denial = true;
  };
  // Where every call that takes, reserves or looks ends: has the store judge and charge the list.
  Decision run(Nanos now, std::span<const store::Charge> charges, std::span<core::Outcome> outcomes, How how) noexcept;
  // One key, whether or not others wait for it.
  Decision run(Nanos now, base::Hash128 key, std::string_view name, Units permits, How how) noexcept;
  // One key. A call that does not wait must not overtake those that do: while there are any it is denied.
  Decision take(Nanos now, base::Hash128 key, std::string_view name, Units permits, How how) noexcept;
  // The fast form of take(): a single token bucket or sliding window. The answer is built once, in its place: copying
  // it would cost more than the bucket's arithmetic. All else starts again from the key, in take_slowly(): with nothing
  // kept for a rare call, few registers must be saved.
  Decision take_fast(Nanos now, base::Hash128 hash, std::string_view key, Units permits) noexcept;
  Decision take_slowly(Nanos now, std::string_view key, Units permits) noexcept;
  Decision take_other(Nanos now, std::string_view key, Units permits) noexcept;  // of a key of another length

  [[nodiscard]] bool would_overtake(base::Hash128 key) const noexcept {
    return !queue.empty_approx() && queue.has_waiters(key);
  }
  // Denies a call that would overtake.
  Decision behind_the_queue(Nanos now, base::Hash128 key, std::string_view name, Units permits,
                            store::Effect effect) noexcept;
  void count_denial(base::Hash128 key, std::string_view name) noexcept {
    store.count_denial({key, &limits.live(0), 0, name, true});
  }

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
