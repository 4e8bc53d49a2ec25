// What is believed of a check: the one decision for HTTP, batch, gate, WebSocket, RESP, gRPC and quotas.
//
// What a token binds (agent, user, tenant, plan) is filled in where the check leaves it out, and no other may be named.
// A token that binds none of a kind may name any but those that another token binds. A plan, a priority above 0 and
// another's parent may be named by roles admin and gateway only. Callers without a token, which only auth: local
// admits, are believed.
//
// Safe for concurrent use; takes no lock but where an agent first uses a session. While no token binds a name of a
// kind, looking for one costs a relaxed load.
#pragma once

#include <optional>
#include <string_view>

#include "headgate/check.h"
#include "service/caller.h"
#include "service/session_owners.h"

namespace headgate::service {

class Subjects {
 public:
  Subjects(const state::Tokens& tokens, const Clock& clock) : tokens_(tokens), clock_(clock) {}

  // Fills in what the caller's token binds. A refusal: the check names what its caller may not.
  [[nodiscard]] std::optional<Refusal> prove(const Caller& caller, Check& check);
  // May the caller name that agent, user or tenant? REQUIRES: the name is not empty.
  [[nodiscard]] std::optional<Refusal> may_name(const Caller& caller, state::Bound kind, std::string_view name) const;

 private:
  [[nodiscard]] std::optional<Refusal> prove_token(const Caller& caller, Check& check) const;
  [[nodiscard]] std::optional<Refusal> prove_parent(const Caller& caller, const Check& check);

  const state::Tokens& tokens_;
  const Clock& clock_;
  SessionOwners owners_;
};

}  // namespace headgate::service
