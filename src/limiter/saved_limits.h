// A limiter's limits: as described, as live numbers, and with enough of their past that a snapshot can be read back by
// a limiter whose limits have changed meanwhile.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/limiter.h"
#include "store/live_limit.h"
#include "store/memory/memory_store.h"

namespace headgate {

// Changing and writing are safe for concurrent use; live() and has() need no lock.
class SavedLimits {
 public:
  explicit SavedLimits(const std::vector<Limit>& limits);

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] const store::LiveLimit& live(std::size_t index) const noexcept { return *entries_[index].live; }
  [[nodiscard]] bool has(Strategy strategy) const noexcept;
  [[nodiscard]] Limit description(std::size_t index) const;

  Result<void> change(store::MemoryStore& store, const Limit& limit, OnChange how, std::size_t index);

  // The text that a snapshot carries: one line per limit and generation that cells may still be of.
  [[nodiscard]] std::string write() const;
  // Takes over the past of a snapshot, then changes to the limits that were here, keeping the fraction used.
  // Refuses a snapshot of other strategies. REQUIRES: no cell exists.
  Result<void> read(store::MemoryStore& store, std::string_view text);

 private:
  struct Version {
    Limit limit;
    OnChange how = OnChange::kKeepFraction;
  };
  struct Entry {
    std::deque<Version> versions;  // the newest last; as many as the live limit remembers
    std::uint32_t generation = 0;  // of the newest
    std::unique_ptr<store::LiveLimit> live;
  };
  void change_locked(store::MemoryStore& store, Entry& entry, const Limit& limit, OnChange how);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace headgate
