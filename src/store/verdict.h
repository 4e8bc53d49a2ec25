// What follows for a whole charge list from the outcomes of its charges: how long it has to wait, and whether it may.
// Shared by the stores, so that all of them decide alike.
#pragma once

#include <algorithm>
#include <span>

#include "store/charge.h"

namespace headgate::store {

// The longer of two waits.
[[nodiscard]] inline Nanos longer_wait(Nanos a, Nanos b) noexcept {
  return a == kNever || b == kNever ? kNever : std::max(a, b);
}

class ChargeVerdict {
 public:
  // With Effect::kReserve a charge may be waited for, up to `patience` and its own; with all else it may not.
  ChargeVerdict(Effect effect, Nanos patience) noexcept : reserves_(effect == Effect::kReserve), patience_(patience) {}

  // Takes in one charge's outcome. A soft charge refuses nothing. A hold begins now or not at all.
  void add(const Charge& charge, const core::Outcome& outcome) noexcept {
    if (outcome.fits() || charge.soft) return;
    wait_ = longer_wait(wait_, outcome.wait);
    in_time_ = in_time_ && reserves_ && outcome.wait != kNever && outcome.wait <= patience_ &&
               outcome.wait <= charge.patience && charge.limit->strategy() != Strategy::kConcurrency;
  }

  // Replaces the wait by the one for which the store has charged, which may be rounded up.
  void set_wait(Nanos wait) noexcept { wait_ = wait; }

  // With kReserve, after all charges were added: a leaky bucket's turn comes after the wait for the others. Writes it
  // to the outcomes, up to the first turn that comes too late: wait() then says when to ask again.
  // `judge_after(i, wait)` is the outcome of the i-th charge at the end of the wait.
  template <class JudgeAfter>
  void add_turns(std::span<const Charge> charges, std::span<core::Outcome> outcomes, JudgeAfter judge_after) noexcept {
    if (!in_time_ || !reserves_) return;
    for (std::size_t i = 0; i < charges.size(); ++i) {
      if (charges[i].limit->strategy() != Strategy::kLeakyBucket || charges[i].cost == 0 || charges[i].soft) continue;
      outcomes[i].delay = wait_ + judge_after(i, wait_).delay;
      if (outcomes[i].delay <= patience_) continue;
      wait_ = outcomes[i].delay - patience_;
      in_time_ = false;
      return;
    }
  }

  [[nodiscard]] Nanos wait() const noexcept { return wait_; }  // until everything fits; kNever: it never does
  [[nodiscard]] bool in_time() const noexcept { return in_time_; }
  [[nodiscard]] Applied applied(bool charged) const noexcept {
    return {.wait = wait_, .reserved = charged && reserves_ && wait_ > Nanos{0}};
  }

 private:
  const bool reserves_;
  const Nanos patience_;
  Nanos wait_{0};
  bool in_time_ = true;
};

}  // namespace headgate::store
