// Answers that every part of the HTTP API gives in the same way, and what they read of a request.
//
// Internal to src/api.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "api/access_request.h"
#include "net/http_error.h"
#include "service/caller.h"

namespace headgate::api {

// What a connection's place and buffers go by.
[[nodiscard]] inline net::Standing standing_of(const service::Caller& caller) noexcept {
  if (!caller.known) return net::Standing::kAnonymous;
  net::Standing standing = caller.role == state::Role::kAdmin ? net::Standing::kAdmin : net::Standing::kKnown;
  standing.caller = caller.token != 0 ? caller.token : std::hash<std::string>{}(caller.who);
  return standing;
}

// Whether the caller has proven to be an agent, and no more than that.
[[nodiscard]] inline bool is_agent(const service::Caller& caller) noexcept {
  return caller.known && caller.role == state::Role::kAgent;
}

inline constexpr std::string_view kBearerChallenge = "WWW-Authenticate: Bearer realm=\"headgate\"\r\n";  // with 401
// Sends the error in the form that the request asks for.
void send_error(const net::HttpRequest& request, net::HttpReply& reply, const net::HttpError& error,
                std::string_view headers = {});
// The same for a refused caller, with the headers that go with it.
void refuse(const net::HttpRequest& request, net::HttpReply& reply, const service::Refusal& refusal,
            std::string_view headers = {});
[[nodiscard]] bool is_json_type(std::string_view content_type) noexcept;
[[nodiscard]] bool is_yaml_type(std::string_view content_type) noexcept;
// The X-Request-Id that came, if it is fit to be repeated.
[[nodiscard]] std::string_view sane_request_id(const net::HttpRequest& request) noexcept;

}  // namespace headgate::api
