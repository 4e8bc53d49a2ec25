#include "engine/counters.h"

#include <new>

namespace headgate::engine {

Counters::Counters() { (void)id_of("(other)"); }

Counters::~Counters() {
  for (auto& of_slot : chunks_) {
    for (auto& chunk : of_slot) delete chunk.load();
  }
}

Counters::Id Counters::id_of(const std::string& name) {
  const std::lock_guard guard(mutex_);
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  if (names_.size() > kMost) return kOther;
  const auto id = static_cast<Id>(names_.size());
  names_.push_back(name);
  ids_.emplace(name, id);
  return id;
}

Counters::Chunk* Counters::make_chunk(std::size_t slot, Id id) noexcept {
  auto* fresh = new (std::nothrow) Chunk;
  if (fresh == nullptr) return &lost_;
  Chunk* expected = nullptr;
  auto& place = chunks_[slot][id / kPerChunk];
  if (place.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return expected;
}

Counts Counters::of(Id id) const noexcept {
  Counts sum;
  for (const auto& of_slot : chunks_) {
    const Chunk* chunk = of_slot[id / kPerChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) continue;
    const auto& cells = chunk->cells[id % kPerChunk];
    sum.admitted += cells[kAdmitted].load(std::memory_order_relaxed);
    sum.denied += cells[kDenied].load(std::memory_order_relaxed);
    sum.exceeded += cells[kExceeded].load(std::memory_order_relaxed);
    sum.monitored += cells[kMonitored].load(std::memory_order_relaxed);
  }
  return sum;
}

std::vector<std::pair<std::string, Counts>> Counters::all() const {
  const std::lock_guard guard(mutex_);
  std::vector<std::pair<std::string, Counts>> result;
  for (std::size_t id = 1; id < names_.size(); ++id) result.emplace_back(names_[id], of(static_cast<Id>(id)));
  return result;
}

}  // namespace headgate::engine
