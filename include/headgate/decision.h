// A Decision is the answer to "may this proceed now?".
#pragma once

#include "headgate/limit.h"

namespace headgate {

enum class Verdict : std::uint8_t {
  kAllowed,
  kNotYet,  // retry_after says when to ask again
  kNever,   // no wait could help
};

enum class Reason : std::uint8_t {
  kOk,
  kLimited,           // the limit is exceeded
  kCostExceedsLimit,  // more permits than the limit could ever hold
  kInvalidCost,       // negative permits, or more keys in one call than kMaxKeysPerCall
  kTooManyKeys,       // a new key, and the store is at its cap
  kQueueFull,         // as many callers wait as may wait
  kTimedOut,          // waited as long as it was told to
  kCancelled,
};
[[nodiscard]] const char* to_string(Reason reason) noexcept;

// Names a hold on concurrency slots until it is released or expires. 0: none.
using LeaseId = std::uint64_t;

// No wait could help.
inline constexpr Nanos kNever{-1};

// Small, trivially copyable, and complete: nothing in it refers to the limiter.
struct Decision {
  Verdict verdict = Verdict::kNever;
  Reason reason = Reason::kOk;
  bool burst = false;    // admitted past the limit, within its burst allowance
  Units limit = 0;       // of the limit with the least remaining
  Units remaining = 0;   // units left after this; of several limits the least
  Nanos retry_after{0};  // when denied: how long until it could fit, or kNever
  Nanos delay{0};        // when allowed: act this much later (leaky buckets, reservations)
  Nanos reset_after{0};  // how long until the limit is whole again; of several limits the longest
  LeaseId lease = 0;     // set when a concurrency limit was charged

  [[nodiscard]] bool allowed() const noexcept { return verdict == Verdict::kAllowed; }
  explicit operator bool() const noexcept { return allowed(); }
};

}  // namespace headgate
