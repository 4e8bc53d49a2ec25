// The caller of a request, and why a request is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headgate/clock.h"
#include "headgate/result.h"
#include "state/tokens.h"

namespace headgate::service {

// What a caller identified itself by, so that what outlasts its request can ask whether it is still good.
struct Credential {
  std::uint64_t token = 0;          // 0: none
  std::uint64_t token_version = 0;  // of all tokens, when this one was found
  Nanos expires{0};                 // of the token, by the wall clock; 0: never
  std::string session{};            // of a browser; empty: none

  // Whether it may stop being good: callers without a token and certificates stay what they are.
  [[nodiscard]] bool may_end() const noexcept { return token != 0 || !session.empty(); }
};

// Who speaks. What it binds are the only names that it may give; empty: it binds none of that kind.
struct Caller : Credential {
  bool known = false;  // by a token, a browser session or a client certificate
  state::Role role = state::Role::kAgent;
  std::string agent;
  std::string user;
  std::string tenant;
  std::string plan;
  std::string who;  // for the audit log: the token's name or id
  // Whose cells its checks make, where it may make up agents ("token:<id>"): role agent or viewer, and no agent bound.
  // Empty: the cells are those of the agent that a check names.
  std::string owner;

  // Believed in all it says: an admin, a gateway, and with auth: local anyone on this machine without a token.
  [[nodiscard]] bool speaks_for_others() const noexcept {
    return !known || role == state::Role::kAdmin || role == state::Role::kGateway;
  }
  // No limit holds for the dashboard: a signed-in browser, or a token that an admin has bound to the agent of that
  // name. The name alone exempts from nothing.
  [[nodiscard]] bool is_dashboard() const noexcept { return !session.empty() || (token != 0 && agent == "dashboard"); }
};

struct Refusal {
  int status = 401;       // of HTTP
  std::string_view code;  // a literal: "unauthorized", "wrong_agent", "bad_origin", "not_found"
  std::string message;
  Nanos retry_after{0};
};
// What an error of a lower layer is answered with.
[[nodiscard]] Refusal refusal_of(const Error& error);

}  // namespace headgate::service
