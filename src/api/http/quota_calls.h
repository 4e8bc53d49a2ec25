// What the handlers of /api/quotas have in common.
//
// Internal to src/api.
#pragma once

#include "api/http/call.h"
#include "service/quotas.h"

namespace headgate::api {

// nullptr: there are none, and the call has been answered so.
[[nodiscard]] service::Quotas* quotas_of(const Call& call);
// Whether the caller may speak for that user, which is filled in where none is given: the user that its token binds,
// or, for role agent, the user of its agent's name. A token of role agent or gateway that binds neither must name one;
// for role agent, one that no other token binds. False: it has been answered with 403.
[[nodiscard]] bool speaks_for_user(const Call& call, std::string& user);

}  // namespace headgate::api
