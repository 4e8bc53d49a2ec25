// Who may ask and who may manage: tokens, sign-in codes, browser sessions, Host and Origin.
//
// Safe for concurrent use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"
#include "net/http.h"
#include "state/database.h"

namespace headgate::api {

enum class Auth : std::uint8_t { kLocal, kRequired };

// Who speaks. An empty agent may speak for any.
struct Caller {
  bool known = false;  // by a token, a browser session or a client certificate
  state::Role role = state::Role::kAgent;
  std::string agent;  // with kAgent: the only one it speaks for
  std::string who;    // for the audit log: the token's name or id
};

struct Refusal {
  int status = 401;
  std::string_view code;  // "unauthorized", "forbidden", "wrong_agent", "bad_host", "bad_origin", "too_many_attempts"
  std::string message;
  Nanos retry_after{0};
};

struct Admission {
  Caller caller;
  std::optional<Refusal> refusal;  // set: answer with it, and do nothing else
};

struct AccessOptions {
  Auth auth = Auth::kLocal;
  std::vector<std::string> hosts;  // that browsers may name besides loopback names and the addresses listened on
  bool metrics_open = true;        // on loopback
};

class Access {
 public:
  Access(state::Database& database, AccessOptions options, Clock& clock);
  ~Access();

  // May this request ask (/v1/*)? With kLocal everybody may; a token that is given must be good all the same.
  [[nodiscard]] Admission asks(const net::HttpRequest& request) const;
  // May it manage (/api/*)? `change`: it wants to change something, which takes an admin; else a viewer will do.
  [[nodiscard]] Admission manages(const net::HttpRequest& request, bool change) const;
  // A token from RESP, WebSocket or gRPC. Failures are limited by ip: ten a minute, then none is even looked at.
  [[nodiscard]] Admission by_token(std::string_view secret, std::string_view ip) const;
  // What somebody without a token is, on a protocol that has none in its first message.
  [[nodiscard]] Admission without_token() const;
  [[nodiscard]] bool required() const noexcept;

  // May the caller speak for that agent? Sets nothing but the refusal.
  [[nodiscard]] static std::optional<Refusal> speaks_for(const Caller& caller, std::string_view agent);

  // Browsers. A code is good once, for ten minutes; a session for twelve hours, in an HttpOnly, SameSite=Strict cookie.
  [[nodiscard]] std::string new_code();
  // The Set-Cookie line ("Set-Cookie: ...\r\n") for a good code.
  [[nodiscard]] std::optional<std::string> sign_in(std::string_view code, const net::HttpRequest& request);
  void sign_out(const net::HttpRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes <data>/admin.token (mode 0600) if the database has no token for it yet, or the file has been lost; returns its
// path.
[[nodiscard]] Result<std::string> ensure_admin_token(state::Database& database, const std::string& data, Nanos now);

}  // namespace headgate::api
