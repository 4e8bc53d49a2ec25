// How often each policy (and each of its variants) was passed or exceeded, counted apart by each thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/thread_slot.h"

namespace headgate::engine {

struct Counts {
  std::uint64_t admitted = 0;   // checks it was part of that were admitted
  std::uint64_t denied = 0;     // checks that it denied
  std::uint64_t exceeded = 0;   // times it was exceeded, whatever came of it
  std::uint64_t monitored = 0;  // times it would have denied, had it been enforced
};

// Safe for concurrent use. Adding costs a load and a store; names are kept for good, up to kMost of them.
class Counters {
 public:
  using Id = std::uint32_t;
  static constexpr std::size_t kPerChunk = 1024;
  static constexpr std::size_t kChunks = 256;
  static constexpr std::size_t kMost = kPerChunk * kChunks - 1;
  static constexpr Id kOther = 0;  // counts for all names past kMost

  Counters();
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  [[nodiscard]] Id id_of(const std::string& name);

  enum Which : std::uint8_t { kAdmitted, kDenied, kExceeded, kMonitored };
  void add(Id id, Which which) noexcept { add(base::thread_slot(), id, which); }
  void add(std::size_t slot, Id id, Which which) noexcept {
    std::atomic<std::uint64_t>& count = chunk(slot, id)->cells[id % kPerChunk][which];
    if (slot < base::kOwnedSlots) {
      count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } else {
      count.fetch_add(1, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] Counts of(Id id) const noexcept;
  [[nodiscard]] std::vector<std::pair<std::string, Counts>> all() const;

 private:
  struct Chunk {
    std::array<std::array<std::atomic<std::uint64_t>, 4>, kPerChunk> cells{};
  };
  // Made when a thread first counts in it; if there is no memory, in a chunk that is never read.
  [[nodiscard]] Chunk* chunk(std::size_t slot, Id id) noexcept {
    Chunk* found = chunks_[slot][id / kPerChunk].load(std::memory_order_acquire);
    return found != nullptr ? found : make_chunk(slot, id);
  }
  Chunk* make_chunk(std::size_t slot, Id id) noexcept;

  std::array<std::array<std::atomic<Chunk*>, kChunks>, base::kThreadSlots> chunks_{};
  Chunk lost_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Id> ids_;
  std::vector<std::string> names_;
};

}  // namespace headgate::engine
