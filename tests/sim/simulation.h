// Many nodes that lease units from one store, in virtual time: real leases, a store in memory, and a network between
// them that delays and loses messages, while nodes crash and come back. A seed determines everything that happens.
#pragma once

#include <cstdint>

#include "headgate/limit.h"
#include "store/redis/lease_step.h"

namespace headgate::sim {

enum class Skew : std::uint8_t { kUniform, kZipf };

struct Scenario {
  std::uint64_t seed = 1;
  int nodes = 10;
  Skew skew = Skew::kUniform;  // of the nodes' demand
  Strategy strategy = Strategy::kTokenBucket;
  Units limit = 4000;
  Nanos span{std::chrono::seconds{2}};  // the limit's window, or what its bucket takes to fill
  store::redis::LeaseSettings settings;
  double demand = 1;      // of what the limit allows, on average
  double crashes = 0;     // per second, over all nodes
  double lost = 0;        // part of the messages
  double delay_ms = 0.5;  // a message takes on average, one way
  Nanos length{std::chrono::seconds{6}};
  double share_in_truth = 0;  // not 0: what nodes go by instead of the settings, to see that the bounds break then
};

struct Findings {
  std::uint64_t asked = 0;     // units
  std::uint64_t admitted = 0;  //
  std::uint64_t ideal = 0;     // that one store in the middle, without delay, would have admitted
  std::uint64_t local = 0;     // checks answered without asking
  std::uint64_t checks = 0;
  std::uint64_t commands = 0;  // to the store
  std::uint64_t losses = 0;    // crashes with a block, and errands without an answer
  Units over = 0;              // the most admitted beyond the limit, in any interval it speaks of
  Units over_bound = 0;
  Units stranded = 0;  // the most that was charged in blocks, and neither used nor refunded
  Units stranded_bound = 0;
  Units usable = 0;  // the most that all nodes could use at one instant: never more than over_bound
};

[[nodiscard]] Findings run(const Scenario& scenario);

}  // namespace headgate::sim
