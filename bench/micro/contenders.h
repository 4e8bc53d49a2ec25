// What is compared: the floor, Headgate, and the rivals, each asked "may this key proceed at this instant?".
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "headgate/limiter.h"
#include "rivals/mutex_map.h"
#include "rivals/sharded_map.h"

namespace headgate::bench {

// 2026-01-01T00:00:00Z. Windows and periods have just begun, so that none ends during a run.
inline constexpr Nanos kStart{1'767'225'600'000'000'000};

// Room for everything, and so slow a refill that a primed bucket stays in use: a cell that is full again may be
// dropped, and a dropped cell would have to be made anew.
inline constexpr Units kCapacity = 1'000'000'000;
inline constexpr Units kRefillPerSecond = 1'000;

[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

inline Limit checked(Result<Limit> limit) {
  if (!limit) die(limit.error().message);
  return *limit;
}
inline Limit roomy_token_bucket() {
  return checked(Limit::token_bucket({kCapacity, {kRefillPerSecond, std::chrono::seconds{1}}}));
}

inline std::unique_ptr<MemoryLimiter> make_limiter(const Options& options) {
  auto limiter = MemoryLimiter::make(options);
  if (!limiter) die(limiter.error().message);
  return std::move(*limiter);
}

// The least that any keyed limiter does: find the key, and look at nothing else.
struct Floor {
  absl::flat_hash_map<std::string, std::int64_t> map;

  void prime(std::string_view key) { map.emplace(std::string(key), 1); }
  bool ask(Nanos, std::string_view key) const {
    return map.find(absl::string_view(key.data(), key.size())) != map.end();
  }
};

// Headgate with the time passed in.
class Headgate {
 public:
  // Priming charges so many permits to each key.
  explicit Headgate(const Limit& limit, Units prime_permits = 0)
      : limiter_(make_limiter(Options().limit(limit).clock(*clock_))), prime_permits_(prime_permits) {}

  void prime(std::string_view key) {
    if (!limiter_->try_acquire_at(kStart, key, prime_permits_)) die("priming was denied");
  }
  bool ask(Nanos now, std::string_view key) { return limiter_->try_acquire_at(now, key).allowed(); }

  [[nodiscard]] MemoryLimiter& limiter() noexcept { return *limiter_; }

 private:
  std::unique_ptr<ManualClock> clock_ = std::make_unique<ManualClock>(kStart);  // for the calendar's reading
  std::unique_ptr<MemoryLimiter> limiter_;
  Units prime_permits_;
};

inline Headgate roomy_headgate() { return Headgate(roomy_token_bucket(), kCapacity / 2); }

// Headgate reading the machine's clock itself.
class HeadgateWithClock {
 public:
  void prime(std::string_view key) {
    if (!limiter_->try_acquire(key, kCapacity / 2)) die("priming was denied");
  }
  bool ask(Nanos, std::string_view key) { return limiter_->try_acquire(key).allowed(); }

 private:
  std::unique_ptr<MemoryLimiter> limiter_ = make_limiter(Options().limit(roomy_token_bucket()));
};

// Takes a slot and gives it back, beside one slot that stays held.
class HeadgateHolds {
 public:
  explicit HeadgateHolds(const Limit& limit) : headgate_(limit, 1) {}

  void prime(std::string_view key) { headgate_.prime(key); }
  bool ask(Nanos now, std::string_view key) {
    const Decision decision = headgate_.limiter().try_acquire_at(now, key);
    return decision.allowed() && headgate_.limiter().release(key, decision.lease);
  }

 private:
  Headgate headgate_;
};

template <class Limiter>
class Rival {
 public:
  explicit Rival(double capacity = kCapacity) : limiter_(std::make_unique<Limiter>(capacity, kRefillPerSecond)) {}

  void prime(std::string_view key) { (void)limiter_->try_acquire(kStart, key); }
  bool ask(Nanos now, std::string_view key) { return limiter_->try_acquire(now, key); }

 private:
  std::unique_ptr<Limiter> limiter_;
};
using MutexMapRival = Rival<rivals::MutexMap>;
using ShardedMapRival = Rival<rivals::ShardedMap>;

}  // namespace headgate::bench
