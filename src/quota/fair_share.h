// Whose turn it is among flows of different weight, so that each gets its share at any time, not only on average.
//
// Worst-case fair weighted fair queueing (WF2Q+), with a start as the unit of service. Virtual time runs by 1/W a
// start, where W is the weight of all flows that wait. A flow's turn begins where its last one ended, or now if that is
// past, so that no flow saves up turns while it does not wait; it ends 1/weight later. Of the turns that have begun,
// the one that ends first is next. A value, and copies tell what would come; O(log n) for each call.
#pragma once

#include <absl/container/btree_set.h>
#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace headgate::quota {

class FairShare {
 public:
  using Flow = std::uint64_t;

  // A flow begins to wait; its first came as number `arrival`, which decides between equals. `not_before`: what leave()
  // or served() said of it last, or 0. REQUIRES: weight > 0.
  void join(Flow flow, double weight, std::uint64_t arrival, double not_before);
  // The one whose turn it is. REQUIRES: !empty().
  [[nodiscard]] Flow next();
  // next() was served, and waits on with another first, or with none. Gives when its turn may begin again.
  double served(Flow flow, std::optional<std::uint64_t> arrival);
  // The first of a flow went away, and another is first now; or none, which gives when its turn may begin again.
  void replace(Flow flow, std::uint64_t arrival);
  double leave(Flow flow);
  void set_weight(Flow flow, double weight);  // from its next turn on

  [[nodiscard]] bool empty() const noexcept { return turns_.empty(); }
  [[nodiscard]] double clock() const noexcept { return clock_; }
  [[nodiscard]] double weight() const noexcept { return weight_; }  // of all
  [[nodiscard]] double start_of(Flow flow) const { return turns_.at(flow).start; }

 private:
  struct Turn {
    double start = 0;
    double finish = 0;
    double weight = 1;
    std::uint64_t arrival = 0;
  };
  void insert(Flow flow, const Turn& turn) { later_.emplace(turn.start, turn.arrival, flow); }
  void erase(Flow flow, const Turn& turn);
  void settle();

  absl::flat_hash_map<Flow, Turn> turns_;
  absl::btree_set<std::tuple<double, std::uint64_t, Flow>> ready_;  // have begun, by their end
  absl::btree_set<std::tuple<double, std::uint64_t, Flow>> later_;  // may not have begun, by their start
  double clock_ = 0;
  double weight_ = 0;
};

}  // namespace headgate::quota
