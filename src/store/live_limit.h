// A limit that may be changed while cells use it. Each change is a generation; a cell remembers under which one it was
// last written and is carried over when it is next touched, so a change costs nothing at once, however many cells there
// are.
#pragma once

#include <array>
#include <atomic>
#include <span>

#include "core/compiled_limit.h"
#include "headgate/limiter.h"

namespace headgate::store {

// Read under a shard's lock, changed by MemoryStore::change(). A cell that has slept through more than kGenerations
// changes is taken as it stands.
class LiveLimit {
 public:
  static constexpr std::uint32_t kGenerations = 8;

  explicit LiveLimit(const core::CompiledLimit& limit) noexcept : strategy_(limit.strategy) {
    entries_[0].limit = limit;
  }
  LiveLimit(const LiveLimit&) = delete;
  LiveLimit& operator=(const LiveLimit&) = delete;

  struct Entry {
    core::CompiledLimit limit;
    OnChange carried = OnChange::kKeepFraction;  // how cells of the generation before come over
  };

  // Never changes, so it may be read anywhere.
  [[nodiscard]] Strategy strategy() const noexcept { return strategy_; }

  // Starts with the generations of a snapshot. REQUIRES: no cell of this limit exists, and nobody else uses it.
  void take_over(std::uint32_t oldest, std::span<const Entry> entries) noexcept {
    for (std::size_t i = 0; i < entries.size(); ++i) entries_[(oldest + i) % kGenerations] = entries[i];
    oldest_.store(oldest);
    generation_.store(static_cast<std::uint32_t>(oldest + entries.size() - 1));
  }

  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
  [[nodiscard]] const Entry& entry(std::uint32_t generation) const noexcept {
    return entries_[generation % kGenerations];
  }
  [[nodiscard]] const core::CompiledLimit& current() const noexcept { return entry(generation()).limit; }
  // Whether the entry of that earlier generation may still be read.
  [[nodiscard]] bool remembers(std::uint32_t generation) const noexcept {
    return generation >= oldest_.load(std::memory_order_acquire) && generation <= this->generation();
  }

 private:
  friend class MemoryStore;
  const Strategy strategy_;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> oldest_{0};
  std::array<Entry, kGenerations> entries_{};
};

}  // namespace headgate::store
