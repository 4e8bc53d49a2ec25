// The answer to a change that is in force. One that is not on disk yet says so: "kept": false, "not_kept": why.
//
// Make one, hand kept() to the database, then answer() once with the body. The answer goes out when both are there,
// from whichever thread comes last; a call that is refused in between is answered without it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "api/http/handoff.h"

namespace headgate::api {

class Keeping {
 public:
  explicit Keeping(const Call& call) : call_(&call), state_(std::make_shared<State>(std::make_shared<Handoff>(call))) {}
  // For work in the background, which has left its call.
  explicit Keeping(Handoff& handoff) : state_(std::make_shared<State>(handoff.shared_from_this())) {}

  [[nodiscard]] state::Database::Kept kept() const {
    return [state = state_](const Result<void>& kept) { state->kept_is(kept); };
  }
  void answer(Json body) const {
    state_->body_is(std::move(body));
    if (call_ != nullptr) state_->handoff->give(call_->reply);
  }

 private:
  struct State {
    explicit State(std::shared_ptr<Handoff> to) : handoff(std::move(to)) {}
    void kept_is(const Result<void>& result) {
      {
        const std::lock_guard guard(mutex);
        kept = result ? std::string() : result.error().message;
        if (!body) return;
      }
      send();
    }
    void body_is(Json given) {
      {
        const std::lock_guard guard(mutex);
        body = std::move(given);
        if (!kept) return;
      }
      send();
    }
    void send() {
      if (!kept->empty()) body->update({{"kept", false}, {"not_kept", *kept}});
      handoff->send(*body);
    }

    const std::shared_ptr<Handoff> handoff;
    std::mutex mutex;
    std::optional<Json> body;
    std::optional<std::string> kept;  // empty: it is on disk; else why not
  };

  const Call* call_ = nullptr;
  std::shared_ptr<State> state_;
};

}  // namespace headgate::api
