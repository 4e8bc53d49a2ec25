// What a careful user builds: 64 mutexes, each over an absl::flat_hash_map of token buckets. A bucket is one double,
// the instant at which it was empty, as in folly::TokenBucket.
//
// A key is hashed once, for the shard and for the map. It answers a bare yes or no, and never forgets a key.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

namespace headgate::rivals {

class ShardedMap {
 public:
  ShardedMap(double capacity, double refill_per_second)
      : refill_per_second_(refill_per_second), fill_seconds_(capacity / refill_per_second) {}

  bool try_acquire(std::chrono::nanoseconds now, std::string_view key, double permits = 1) {
    const absl::string_view name(key.data(), key.size());
    const std::size_t hash = shards_[0].buckets.hash_function()(name);
    // The map tells its slots apart by the low bits, so the shard is chosen by the high ones.
    Shard& shard = shards_[hash >> (64 - kShardBits)];
    const double seconds = std::chrono::duration<double>(now).count();
    const std::lock_guard guard(shard.mutex);
    auto found = shard.buckets.find(name, hash);
    if (found == shard.buckets.end()) found = shard.buckets.emplace(std::string(key), seconds - fill_seconds_).first;
    double& empty_at = found->second;
    const double from = std::max(empty_at, seconds - fill_seconds_);
    if ((seconds - from) * refill_per_second_ < permits) return false;
    empty_at = from + permits / refill_per_second_;
    return true;
  }

 private:
  static constexpr int kShardBits = 6;
  struct alignas(64) Shard {
    std::mutex mutex;
    absl::flat_hash_map<std::string, double> buckets;
  };

  const double refill_per_second_;
  const double fill_seconds_;
  std::array<Shard, std::size_t{1} << kShardBits> shards_;
};

}  // namespace headgate::rivals
