#include "observe/agent_table.h"

#include <algorithm>

namespace headgate::observe {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kFirstSlots = 64;
constexpr Nanos kForgottenAfter = 24h;
// A full table is tidied at most so often, since that looks at all of it.
constexpr Nanos kTidiedEvery = 1min;

}  // namespace

std::size_t AgentTable::slot_of(const base::Hash128& hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  const auto another = [&](std::uint64_t slot) {
    return ((slot ^ hash.high) >> 32) != 0 || !(counts_[place_in(slot)].hash == hash);
  };
  std::size_t slot = hash.low & mask;
  while (slots_[slot] != 0 && another(slots_[slot])) slot = (slot + 1) & mask;
  return slot;
}

const AgentCounts* AgentTable::find(base::Hash128 hash) const noexcept {
  if (slots_.empty()) return nullptr;
  const std::uint64_t slot = slots_[slot_of(hash)];
  return slot == 0 ? nullptr : &counts_[place_in(slot)];
}

bool AgentTable::add(base::Hash128 hash, std::string_view name, bool allowed, Nanos wall) {
  if (slots_.empty()) rebuild(kFirstSlots);
  std::size_t slot = slot_of(hash);
  if (slots_[slot] == 0) {
    if (counts_.size() >= most_ && !make_room(wall)) return false;
    if ((counts_.size() + 1) * 2 > slots_.size()) rebuild(slots_.size() * 2);
    names_.emplace_back(name);
    try {
      counts_.push_back({hash, 0, 0, Nanos{0}});
    } catch (...) {
      names_.pop_back();
      throw;
    }
    slot = slot_of(hash);
    slots_[slot] = slot_for(counts_.size() - 1, hash);
  }
  AgentCounts& counts = counts_[place_in(slots_[slot])];
  ++(allowed ? counts.allowed : counts.denied);
  counts.last_seen = wall;
  return true;
}

void AgentTable::rebuild(std::size_t slots) {
  std::vector<std::uint64_t> fresh(slots, 0);
  slots_.swap(fresh);
  for (std::size_t place = 0; place < counts_.size(); ++place) {
    slots_[slot_of(counts_[place].hash)] = slot_for(place, counts_[place].hash);
  }
}

// Agents not seen for a day go, and those seen only once a while ago: a flood of made-up names must not keep out the
// agents that stay.
bool AgentTable::make_room(Nanos wall) {
  if (wall - tidied_ < kTidiedEvery) return false;
  tidied_ = wall;
  std::size_t kept = 0;
  for (std::size_t place = 0; place < counts_.size(); ++place) {
    const AgentCounts& counts = counts_[place];
    const Nanos age = wall - counts.last_seen;
    if (age >= kForgottenAfter || (age >= kTidiedEvery && counts.allowed + counts.denied <= 1)) continue;
    if (kept != place) {
      counts_[kept] = counts;
      names_[kept] = std::move(names_[place]);
    }
    ++kept;
  }
  if (kept == counts_.size()) return false;
  counts_.resize(kept);
  names_.resize(kept);
  ++generation_;
  rebuild(slots_.size());
  return true;
}

}  // namespace headgate::observe
