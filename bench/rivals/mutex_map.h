// The limiter that people write by hand: one mutex, one std::unordered_map, a token bucket in doubles.
//
// It is given every help that costs its author nothing: look-ups by string_view build no string, and the clock is read
// outside. It answers a bare yes or no, and never forgets a key.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace headgate::rivals {

class MutexMap {
 public:
  MutexMap(double capacity, double refill_per_second) : capacity_(capacity), refill_per_second_(refill_per_second) {}

  bool try_acquire(std::chrono::nanoseconds now, std::string_view key, double permits = 1) {
    const std::lock_guard guard(mutex_);
    auto found = buckets_.find(key);
    if (found == buckets_.end()) found = buckets_.emplace(std::string(key), Bucket{capacity_, now}).first;
    Bucket& bucket = found->second;
    const std::chrono::duration<double> elapsed = now - bucket.refilled_at;
    bucket.tokens = std::min(capacity_, bucket.tokens + elapsed.count() * refill_per_second_);
    bucket.refilled_at = now;
    if (bucket.tokens < permits) return false;
    bucket.tokens -= permits;
    return true;
  }

 private:
  struct Bucket {
    double tokens;
    std::chrono::nanoseconds refilled_at;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const noexcept { return std::hash<std::string_view>()(key); }
  };

  const double capacity_;
  const double refill_per_second_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket, Hash, std::equal_to<>> buckets_;
};

}  // namespace headgate::rivals
