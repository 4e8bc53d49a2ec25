#include "server/keeper.h"

#include <algorithm>
#include <utility>

namespace headgate::server {

namespace {
constexpr Nanos kSecond = std::chrono::seconds{1};
}  // namespace

Keeper::Keeper(engine::Engine& engine, KeeperOptions options) : engine_(engine), options_(std::move(options)) {}

Keeper::~Keeper() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Keeper::start() {
  thread_ = std::thread([this] { run(); });
}

void Keeper::wake() {
  {
    const std::lock_guard guard(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

void Keeper::run() {
  Nanos next_second = engine_.clock().now();
  for (;;) {
    Nanos due = engine_.poll();
    const Nanos now = engine_.clock().now();
    if (now >= next_second) {
      // Seconds that were slept through are not made up for.
      next_second = std::max(next_second + kSecond, now);
      if (options_.sensors) engine_.controls().observe_load(sensors_.sample(now));
      watch_memory();
      engine_.maintain();
      if (options_.every_second) options_.every_second(engine_.clock().wall(now));
    }
    due = std::min(due, next_second);
    std::unique_lock guard(mutex_);
    changed_.wait_for(guard, std::max(due - now, Nanos{0}), [this] { return woken_ || ending_; });
    if (ending_) return;
    woken_ = false;
  }
}

void Keeper::watch_memory() {
  if (!options_.memory_high) return;
  control::Sensors::OwnMemory memory = sensors_.own_memory();
  if (options_.memory_limit > 0) memory.limit = options_.memory_limit;
  if (memory.used == 0 || memory.limit == 0) return;
  const double share = static_cast<double>(memory.used) / static_cast<double>(memory.limit);
  if (share <= kMemoryHigh) {
    memory_is_high_ = memory_is_high_ && share >= kMemoryCalm;
  } else if (!std::exchange(memory_is_high_, true)) {
    options_.memory_high(memory);
  }
}

}  // namespace headgate::server
