// A store on other machines: the same charge lists, answered later.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "headgate/result.h"
#include "store/charge.h"

namespace headgate::store {

// Safe for concurrent use. Nothing is answered later than the store's deadline.
class RemoteStore {
 public:
  struct Answer {
    Applied applied;
    Nanos at{0};  // when, by the store's own clock, which is what a refund is told
  };
  // Called exactly once: from a thread of the store, or before the call returns where the store is unreachable. An
  // Error: the store could not be asked, or did not answer in time; then it may have charged all the same.
  using Done = std::function<void(const Result<Answer>&)>;
  using Told = std::function<void(const Result<bool>&)>;  // what release() and renew() of a memory store return

  virtual ~RemoteStore() = default;

  // All charges or none, by the store's own clock: of `ask`, the times are not looked at. `charges`, their limits,
  // `outcomes` and the text of `ask.owner` must live until `done` is called. Outcomes are written only before an answer
  // that is no Error. kOverloaded: too many checks wait on this side, in all or of this owner; nothing was charged.
  // REQUIRES: 1 <= charges.size() <= kMaxCharges, costs >= 0, and no cell is named twice.
  virtual void apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes, Done done) = 0;

  // What its clock says, as far as is known here.
  [[nodiscard]] virtual Nanos now_approx() const noexcept = 0;

  // Answers at once where that needs no round trip. nullopt: nothing was done.
  virtual std::optional<Applied> try_now(std::span<const Charge> charges, const Ask& ask,
                                         std::span<core::Outcome> outcomes) {
    (void)charges, (void)ask, (void)outcomes;
    return std::nullopt;
  }

  // As in a memory store, but `charged_at` is by the store's clock: Answer::at and what was waited for. The charge and
  // its limit must live until the call returns. `told` may be empty.
  virtual void refund(const Charge& charge, Nanos charged_at, Told told) = 0;
  virtual void release(const Charge& charge, LeaseId lease, Told told) = 0;
  virtual void renew(const Charge& charge, LeaseId lease, Told told) = 0;
};

}  // namespace headgate::store
