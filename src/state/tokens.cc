#include "state/tokens.h"

#include <future>

namespace headgate::state {

const char* to_string(Role role) noexcept {
  switch (role) {
    case Role::kAgent: return "agent";
    case Role::kGateway: return "gateway";
    case Role::kViewer: return "viewer";
    case Role::kAdmin: return "admin";
  }
  return "unknown";
}

std::optional<Role> role_of(std::string_view text) noexcept {
  for (const Role role : {Role::kAgent, Role::kGateway, Role::kViewer, Role::kAdmin}) {
    if (text == to_string(role)) return role;
  }
  return std::nullopt;
}

// Here and in database.cc the callback shares ownership of the promise: it may still be in use when the caller goes on.
Result<NewToken> Tokens::create_token(const TokenRequest& request, const std::string& by, Nanos now) {
  const auto promise = std::make_shared<std::promise<Result<NewToken>>>();
  create_token(request, by, now, [promise](const Result<NewToken>& made) { promise->set_value(made); });
  return promise->get_future().get();
}

Result<bool> Tokens::revoke_token(const std::string& id, const std::string& by, Nanos now) {
  const auto promise = std::make_shared<std::promise<Result<void>>>();
  if (!revoke_token(id, by, now, [promise](const Result<void>& kept) { promise->set_value(kept); })) return false;
  if (const Result<void> kept = promise->get_future().get(); !kept) return kept.error();
  return true;
}

}  // namespace headgate::state
