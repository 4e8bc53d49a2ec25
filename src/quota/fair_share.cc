#include "quota/fair_share.h"

#include <algorithm>
#include <cassert>

namespace headgate::quota {

void FairShare::erase(Flow flow, const Turn& turn) {
  if (ready_.erase({turn.finish, turn.arrival, flow}) == 0) later_.erase({turn.start, turn.arrival, flow});
}

// Moves what has begun to ready_. While no turn has begun, time moves on to the next that will.
void FairShare::settle() {
  constexpr double kRounding = 1e-9;
  if (ready_.empty() && !later_.empty()) clock_ = std::max(clock_, std::get<0>(*later_.begin()));
  const double begun = clock_ + std::max(1.0, clock_) * kRounding;
  while (!later_.empty() && std::get<0>(*later_.begin()) <= begun) {
    const Flow flow = std::get<2>(*later_.begin());
    const Turn& turn = turns_.at(flow);
    ready_.emplace(turn.finish, turn.arrival, flow);
    later_.erase(later_.begin());
  }
}

void FairShare::join(Flow flow, double weight, std::uint64_t arrival, double not_before) {
  assert(weight > 0);
  settle();
  Turn& turn = turns_[flow];
  turn.start = std::max(clock_, not_before);
  turn.finish = turn.start + 1 / weight;
  turn.weight = weight;
  turn.arrival = arrival;
  weight_ += weight;
  insert(flow, turn);
}

FairShare::Flow FairShare::next() {
  assert(!empty());
  settle();
  return std::get<2>(*ready_.begin());
}

double FairShare::served(Flow flow, std::optional<std::uint64_t> arrival) {
  Turn& turn = turns_.at(flow);
  erase(flow, turn);
  clock_ += 1 / std::max(weight_, turn.weight);
  turn.start = turn.finish;
  if (!arrival) {
    const double again = turn.start;
    weight_ -= turn.weight;
    turns_.erase(flow);
    return again;
  }
  turn.finish = turn.start + 1 / turn.weight;
  turn.arrival = *arrival;
  insert(flow, turn);
  return turn.start;
}

void FairShare::replace(Flow flow, std::uint64_t arrival) {
  Turn& turn = turns_.at(flow);
  erase(flow, turn);
  turn.arrival = arrival;
  insert(flow, turn);
}

double FairShare::leave(Flow flow) {
  const Turn turn = turns_.at(flow);
  erase(flow, turn);
  weight_ -= turn.weight;
  turns_.erase(flow);
  return turn.start;
}

void FairShare::set_weight(Flow flow, double weight) {
  Turn& turn = turns_.at(flow);
  weight_ += weight - turn.weight;
  turn.weight = weight;
}

}  // namespace headgate::quota
