// What was admitted while a remote store was away, and is yet to be charged to it.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shares.h"
#include "engine/ruleset.h"
#include "engine/state.h"

namespace headgate::engine {

struct Arrear {
  std::shared_ptr<LiveNumbers> numbers;
  Units units = 0;
  Nanos last{0};        // when some of it was last admitted, by the wall clock
  std::string owner{};  // whose share of the arrears it is
};

// How much of it still counts at `now`: what has left the window, or has been refilled since, is owed no more.
[[nodiscard]] Units still_owed(const core::CompiledLimit& limit, const Arrear& arrear, Nanos now) noexcept;

// Safe for concurrent use. At most kMost cells, and a tenth of them of one owner: has_room() is asked before a check is
// admitted. What is added past that is not made up for, and counted as lost.
class Arrears {
 public:
  static constexpr std::size_t kMost = 100'000;

  [[nodiscard]] bool has_room(const base::Hash128& cell, std::string_view owner) const;
  void add(const base::Hash128& cell, const Arrear& more);
  using Owed = std::pair<base::Hash128, Arrear>;
  // Some of them, at most so many.
  [[nodiscard]] std::vector<Owed> take(std::size_t most);
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] bool has_room_locked(const base::Hash128& cell, std::string_view owner) const;

  mutable std::mutex mutex_;
  base::Shares shares_;
  absl::flat_hash_map<base::Hash128, Arrear, HashOfHash> owed_;
  std::atomic<std::size_t> size_{0};
  std::atomic<std::uint64_t> lost_{0};
};

}  // namespace headgate::engine
