#include "api/http/keeping.h"

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace headgate::api {

struct Keeping::State {
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

Keeping::Keeping(const Call& call) : call_(&call), state_(std::make_shared<State>(std::make_shared<Handoff>(call))) {}
Keeping::Keeping(Handoff& handoff) : state_(std::make_shared<State>(handoff.shared_from_this())) {}

state::Database::Kept Keeping::kept() const {
  return [state = state_](const Result<void>& kept) { state->kept_is(kept); };
}

void Keeping::answer(Json body) const {
  state_->body_is(std::move(body));
  if (call_ != nullptr) state_->handoff->give(call_->reply);
}

Json with_spread(const Call& call, Json answer) {
  const auto& shared = call.context.options.shared_store;
  if (shared && !shared().up) answer["spread"] = false;
  return answer;
}

}  // namespace headgate::api
