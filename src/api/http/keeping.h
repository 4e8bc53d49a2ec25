// The answer to a change that is in force. One that is not on disk yet says so: "kept": false, "not_kept": why.
//
// Make one, hand kept() to the database, then answer() once with the body. The answer goes out when both are there,
// from whichever thread comes last; a call that is refused in between is answered without it.
#pragma once

#include <memory>

#include "api/http/handoff.h"

namespace headgate::api {

class Keeping {
 public:
  explicit Keeping(const Call& call);
  // For work in the background, which has left its call.
  explicit Keeping(Handoff& handoff);

  [[nodiscard]] state::Database::Kept kept() const;
  // The same with the caller's name, for a change of what operators have set. REQUIRES: made of a call.
  [[nodiscard]] service::OperatorSettings::Change change() const { return {call_->who(), kept()}; }
  void answer(Json body) const;

 private:
  struct State;

  const Call* call_ = nullptr;
  std::shared_ptr<State> state_;
};

// Adds "spread": false while the shared store is unreachable: the change is in force here, and reaches the other
// servers when the store is back. Nothing is added where it reaches them within a second, or where there are none.
[[nodiscard]] Json with_spread(const Call& call, Json answer);

}  // namespace headgate::api
