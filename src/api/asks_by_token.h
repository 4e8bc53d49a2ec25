// Who may ask by a token alone, on protocols that have no headers.
#pragma once

#include <string_view>

#include "api/access.h"

namespace headgate::api {

// As Access::asks() judges the token of a request: where one is required, a viewer's will not do.
[[nodiscard]] inline Admission asks_by_token(const Access& access, std::string_view secret, std::string_view ip) {
  Admission admission = access.by_token(secret, ip);
  if (!admission.refusal && access.required() && admission.caller.role == state::Role::kViewer) {
    admission.refusal =
        Refusal{403, "forbidden", "role viewer may look, but not ask; use a token of role agent or admin", Nanos{0}};
  }
  return admission;
}

}  // namespace headgate::api
