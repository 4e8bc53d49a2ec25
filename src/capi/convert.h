// Between the structs of the C ABI and the library's own types. What comes from C is checked here, before anything
// reads it as an enum or a view.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "headgate/headgate.h"
#include "headgate/limiter.h"

namespace headgate::capi {

inline bool valid_key(const char* key, size_t size) noexcept {
  return size <= HG_MAX_KEY_SIZE && (key != nullptr || size == 0);
}

inline std::string_view view(const char* key, size_t size) noexcept {
  return size == 0 ? std::string_view{} : std::string_view{key, size};
}

inline int to_c(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kAllowed: return HG_ALLOWED;
    case Verdict::kNotYet: return HG_NOT_YET;
    case Verdict::kNever: break;
  }
  return HG_NEVER;
}

inline hg_decision to_c(const Decision& decision) noexcept {
  return {to_c(decision.verdict),
          static_cast<int32_t>(decision.reason),
          decision.burst ? 1 : 0,
          0,
          decision.limit,
          decision.remaining,
          decision.retry_after.count(),
          decision.delay.count(),
          decision.reset_after.count(),
          decision.lease};
}

static_assert(static_cast<int>(Reason::kCancelled) == HG_REASON_CANCELLED);
static_assert(static_cast<int>(Strategy::kQuota) == HG_QUOTA);
static_assert(static_cast<int>(Period::kYear) == HG_PER_YEAR);
static_assert(static_cast<int>(AtCap::kEvictOldest) == HG_EVICT_OLDEST);
static_assert(static_cast<int>(OnChange::kReset) == HG_RESET);
static_assert(kMaxTime.count() == HG_MAX_TIME);
static_assert(kNever.count() == -1);

inline Error bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

inline Error out_of_range(const char* field, const char* range, int64_t got) {
  return bad(std::string(field) + " must be " + range + ", got " + std::to_string(got));
}

inline Rate to_rate(const hg_rate& rate) noexcept { return {rate.units, Nanos{rate.per_ns}}; }

inline Result<Limit> to_quota(const hg_quota& quota) {
  if (quota.period < HG_PER_HOUR || quota.period > HG_PER_YEAR) {
    return out_of_range("period", "between 0 (hour) and 4 (year)", quota.period);
  }
  return Limit::quota({quota.limit, static_cast<Period>(quota.period),
                       quota.timezone == nullptr ? "UTC" : quota.timezone, quota.burst_allowance});
}

inline Result<Limit> to_limit(const hg_limit& limit) {
  const Window window{limit.as.window.limit, Nanos{limit.as.window.window_ns}, limit.as.window.burst_allowance};
  if (limit.reserved != 0) return out_of_range("reserved", "0", limit.reserved);
  switch (limit.strategy) {
    case HG_TOKEN_BUCKET: {
      const hg_token_bucket& p = limit.as.token_bucket;
      return Limit::token_bucket({p.capacity, to_rate(p.refill_rate), p.burst_allowance});
    }
    case HG_GCRA: {
      const hg_gcra& p = limit.as.gcra;
      return Limit::gcra({p.max_burst, p.count, Nanos{p.period_ns}, p.burst_allowance});
    }
    case HG_SLIDING_WINDOW: return Limit::sliding_window(window);
    case HG_SLIDING_WINDOW_COUNTER: return Limit::sliding_window_counter(window);
    case HG_FIXED_WINDOW: return Limit::fixed_window(window);
    case HG_LEAKY_BUCKET:
      return Limit::leaky_bucket({to_rate(limit.as.leaky_bucket.rate), limit.as.leaky_bucket.queue});
    case HG_CONCURRENCY: {
      const hg_concurrency& p = limit.as.concurrency;
      return Limit::concurrency({p.max, Nanos{p.lease_ttl_ns}, p.burst_allowance});
    }
    case HG_QUOTA: return to_quota(limit.as.quota);
    default: return out_of_range("strategy", "between 0 (token_bucket) and 7 (quota)", limit.strategy);
  }
}

// Copies as many bytes as both sides know, so that an older or newer caller and this library understand each other.
// REQUIRES: T begins with struct_size, which the caller has set in *to.
template <class T>
int write_sized(T from, T* to) noexcept {
  static_assert(offsetof(T, struct_size) == 0);
  const size_t size = to->struct_size;
  if (size < sizeof(size_t)) return HG_ERROR_INVALID_ARGUMENT;
  from.struct_size = size;
  std::memcpy(to, &from, std::min(size, sizeof(T)));
  return HG_OK;
}

inline void write_text(std::string_view text, char* to, size_t size) noexcept {
  if (to == nullptr || size == 0) return;
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

inline int to_c(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return HG_ERROR_INVALID_ARGUMENT;
    case ErrorCode::kCorrupt: return HG_ERROR_CORRUPT;
    case ErrorCode::kTimedOut:
    case ErrorCode::kOverloaded:
    case ErrorCode::kIo: return HG_ERROR_IO;
    case ErrorCode::kNotFound: return HG_ERROR_NOT_FOUND;
    case ErrorCode::kForbidden: return HG_ERROR_INVALID_ARGUMENT;  // nothing here has an owner
  }
  return HG_ERROR_INTERNAL;
}

}  // namespace headgate::capi
