// A limit that may be changed while cells use it. Each change is a generation; a cell remembers under which one it was
// last written and is carried over when it is next touched, so a change costs nothing at once, however many cells there
// are.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <span>

#include "core/compiled_limit.h"
#include "headgate/limiter.h"

namespace headgate::store {

// Changed by MemoryStore::change(). Its entries are read under a shard's lock; without a lock, take a copy, of what
// it is now or of all of it. A cell that has slept through more than kGenerations changes is taken as it stands.
class LiveLimit {
 public:
  static constexpr std::uint32_t kGenerations = 8;

  explicit LiveLimit(const core::CompiledLimit& limit) noexcept : strategy_(limit.strategy) {
    entries_[0].limit = limit;
  }
  // As it stands, with the generations that are remembered. Never by accident: the copy does not change with it.
  explicit LiveLimit(const LiveLimit& other) noexcept : strategy_(other.strategy_) {
    const std::lock_guard guard(other.mutex_);
    entries_ = other.entries_;
    oldest_.store(other.oldest_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    generation_.store(other.generation_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  LiveLimit& operator=(const LiveLimit&) = delete;

  struct Entry {
    core::CompiledLimit limit;
    OnChange carried = OnChange::kKeepFraction;  // how cells of the generation before come over
  };

  // Never changes, so it may be read anywhere.
  [[nodiscard]] Strategy strategy() const noexcept { return strategy_; }

  // Starts with the generations of a snapshot. REQUIRES: no cell of this limit exists, and it is not in use.
  void take_over(std::uint32_t oldest, std::span<const Entry> entries) noexcept {
    for (std::size_t i = 0; i < entries.size(); ++i) entries_[(oldest + i) % kGenerations] = entries[i];
    oldest_.store(oldest);
    generation_.store(static_cast<std::uint32_t>(oldest + entries.size() - 1));
  }

  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
  // REQUIRES: a shard's lock, or that it is not being changed.
  [[nodiscard]] const Entry& entry(std::uint32_t generation) const noexcept {
    return entries_[generation % kGenerations];
  }
  // May be asked anywhere.
  [[nodiscard]] core::CompiledLimit current() const noexcept {
    const std::lock_guard guard(mutex_);
    return entry(generation()).limit;
  }
  // Whether the entry of that earlier generation may still be read.
  [[nodiscard]] bool remembers(std::uint32_t generation) const noexcept {
    return generation >= oldest_.load(std::memory_order_acquire) && generation <= this->generation();
  }

 private:
  friend class MemoryStore;
  // Of a new generation. REQUIRES: the entry that is reused is read under the mutex only.
  void add(const core::CompiledLimit& limit, OnChange how) noexcept {
    const std::uint32_t next = generation() + 1;
    const std::lock_guard guard(mutex_);
    entries_[next % kGenerations] = {limit, how};
    generation_.store(next, std::memory_order_release);
  }

  const Strategy strategy_;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> oldest_{0};
  std::array<Entry, kGenerations> entries_{};
  mutable std::mutex mutex_;  // of changes, and of reads without a shard's lock
};

}  // namespace headgate::store
