// What was admitted while a remote store was away, and is yet to be charged to it.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/ruleset.h"
#include "engine/state.h"

namespace headgate::engine {

struct Arrear {
  std::shared_ptr<LiveNumbers> numbers;
  Units units = 0;
  Nanos last{0};  // when some of it was last admitted, by the wall clock
};

// How much of it still counts at `now`: what has left the window, or has been refilled since, is owed no more.
[[nodiscard]] Units still_owed(const core::CompiledLimit& limit, const Arrear& arrear, Nanos now) noexcept;

// Safe for concurrent use. At most kMost cells: those that come later are not made up for, and counted as lost.
class Arrears {
 public:
  static constexpr std::size_t kMost = 100'000;

  void add(const base::Hash128& cell, const std::shared_ptr<LiveNumbers>& numbers, Units units, Nanos wall);
  using Owed = std::pair<base::Hash128, Arrear>;
  [[nodiscard]] std::vector<Owed> take_all();
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  absl::flat_hash_map<base::Hash128, Arrear, HashOfHash> owed_;
  std::atomic<std::size_t> size_{0};
  std::atomic<std::uint64_t> lost_{0};
};

}  // namespace headgate::engine
