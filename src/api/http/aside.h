// Answers that may have to wait for a remote store.
//
// Internal to src/api.
#pragma once

#include <functional>
#include <memory>

#include "api/http/handoff.h"
#include "base/background.h"

namespace headgate::api {

// Does the work at once where all cells are in this process; else on the background thread, since a thread that serves
// connections may not block. At the bound of that one the call is answered with 503. Of the call only what the work
// has copied may be used in it.
inline void answer_aside(Call& call, const std::function<void(Handoff&)>& work) {
  const auto handoff = std::make_shared<Handoff>(call);
  const auto run = [handoff, work] {
    try {
      work(*handoff);
    } catch (const std::exception& error) {
      handoff->fail(500, "internal", error.what());
    }
  };
  if (!call.service().engine->cells().has_remote()) {
    run();
  } else if (!call.context.background->run(run)) {
    handoff->fail(503, "busy", "too many look at what is in the store already; ask again in a moment",
                  "Retry-After: 1\r\n");
  }
  handoff->give(call.reply);
}

}  // namespace headgate::api
