// The agents that one thread has seen, with what they were answered.
//
// Not safe for concurrent use: its owner locks. Adding to an agent that is known costs one look-up and no string
// compare, since the 128-bit hash stands for the name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "headgate/clock.h"

namespace headgate::observe {

struct AgentCounts {
  base::Hash128 hash;
  std::uint64_t allowed = 0;
  std::uint64_t denied = 0;
  Nanos last_seen{0};
};

class AgentTable {
 public:
  explicit AgentTable(std::size_t most) : most_(most) {}

  // False: the table is full of others, and this one is not counted by name.
  bool add(base::Hash128 hash, std::string_view name, bool allowed, Nanos wall);
  [[nodiscard]] const AgentCounts* find(base::Hash128 hash) const noexcept;

  // In the order they came. Places stay the same until generation() changes.
  [[nodiscard]] std::size_t size() const noexcept { return counts_.size(); }
  [[nodiscard]] const AgentCounts& counts(std::size_t place) const noexcept { return counts_[place]; }
  [[nodiscard]] const std::string& name(std::size_t place) const noexcept { return names_[place]; }
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

 private:
  [[nodiscard]] static std::size_t place_in(std::uint64_t slot) noexcept { return (slot & 0xFFFF'FFFFU) - 1; }
  [[nodiscard]] static std::uint64_t slot_for(std::size_t place, const base::Hash128& hash) noexcept {
    return (hash.high & ~std::uint64_t{0xFFFF'FFFFU}) | (place + 1);
  }
  [[nodiscard]] std::size_t slot_of(const base::Hash128& hash) const noexcept;  // where it is, or would be
  void rebuild(std::size_t slots);
  bool make_room(Nanos wall);

  std::size_t most_;
  // A place + 1, and above it a part of the hash, so that most others are told apart without looking there. 0: free. A
  // power of two of them, at most half full.
  std::vector<std::uint64_t> slots_;
  std::vector<AgentCounts> counts_;
  std::vector<std::string> names_;
  std::uint64_t generation_ = 0;
  Nanos tidied_{0};
};

}  // namespace headgate::observe
