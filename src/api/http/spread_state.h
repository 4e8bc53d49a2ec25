// Whether other servers hear of what was just changed here.
//
// Internal to src/api.
#pragma once

#include <utility>

#include "api/http/call.h"

namespace headgate::api {

// Adds "spread": false while the shared store is away: what was set is in force here, and the other servers hear of it
// when the store is back. Nothing is added where they hear of it within a second, or where there are none.
[[nodiscard]] inline Json with_spread(const Call& call, Json answer) {
  const auto& shared = call.context.options.shared_store;
  if (shared && !shared().up) answer["spread"] = false;
  return answer;
}

}  // namespace headgate::api
