// Decides which requests may check and which may manage: tokens, sign-in codes, browser sessions, Host and Origin.
//
// Safe for concurrent use. Judging a request takes a hash of its token and no lock; only browser sessions take one.
//
// Where no token is needed, a page of another site may send requests to this machine. So a request with an Origin must
// come from the site that its Host names, or from one of AccessOptions::hosts. Without a good token its Host must be
// localhost, an IP address or one of those, since any other name may have been pointed here by a foreign DNS server.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"
#include "service/access_request.h"
#include "service/caller.h"
#include "service/subjects.h"
#include "state/database.h"

namespace headgate::service {

enum class Auth : std::uint8_t { kLocal, kRequired };

struct Admission {
  Caller caller;
  std::optional<Refusal> refusal;  // set: answer with it, and do nothing else
};

struct AccessOptions {
  Auth auth = Auth::kLocal;
  std::vector<std::string> hosts;  // that browsers may name besides localhost and IP addresses; with or without a port
  bool metrics_open = true;        // on loopback
};

class Access {
 public:
  Access(state::Tokens& tokens, AccessOptions options, Clock& clock);
  ~Access();

  // May this request check (/v1/*)? With kLocal every request may; a token that is given must be good all the same.
  // With kRequired it takes a token, a browser session or a client certificate, whose common name is the agent. A
  // viewer's token is refused, since a check charges.
  [[nodiscard]] Admission asks(const AccessRequest& request) const;
  // May this proxy check (/v1/gate)? As asks(), but Origin and Cookie are its client's and are not read.
  [[nodiscard]] Admission gates(const AccessRequest& request) const;
  // May it manage (/api/*)? `change`: it wants to change something, which takes an admin; else a viewer will do.
  [[nodiscard]] Admission manages(const AccessRequest& request, bool change) const;
  // May it use quotas (/api/quotas/*)? As manages(), but an agent's or a gateway's token is enough, even to change
  // something. The handler checks which user it may name.
  [[nodiscard]] Admission uses_quotas(const AccessRequest& request, bool change) const;
  // May it read /metrics? Open to loopback if so set; else as for managing.
  [[nodiscard]] Admission reads_metrics(const AccessRequest& request) const;
  // May the holder of this token check, over RESP, WebSocket or gRPC? Bad tokens are limited by ip (a whole /64 of
  // IPv6): ten a minute, then the answer is 429. A good one always passes, so that no caller can lock out others behind
  // the same address.
  [[nodiscard]] Admission by_token(std::string_view secret, std::string_view ip) const;
  // The admission of a connection without a token, on a protocol that has none in its first message.
  // A client certificate of the peer counts.
  [[nodiscard]] Admission without_token(const std::optional<PeerView>& peer = {}) const;
  [[nodiscard]] bool required() const noexcept;

  // What is believed of a check: see Subjects. The address is the peer's, unless the caller may name another: roles
  // admin and gateway, and callers without a token on this machine. No peer: the address is left as it is.
  [[nodiscard]] std::optional<Refusal> believe(const Caller& caller, const std::optional<PeerView>& peer,
                                               Check& check) const;
  [[nodiscard]] const Subjects& subjects() const noexcept;
  // Whether the token or browser session of an open connection is still good. A relaxed load and a comparison; only
  // once tokens have changed is this one looked for again. `now` is steady.
  [[nodiscard]] bool still_good(Credential& credential, Nanos now) const;
  // The same for a check that waits: it may be called from several threads at once, and lives no longer than this.
  // Empty: the credential never ends.
  [[nodiscard]] std::function<bool()> validity_of(const Credential& credential) const;

  // Browsers. A code is good once, for ten minutes; a session for twelve hours, in an HttpOnly, SameSite=Strict cookie.
  // Both are kept in memory, and stand for an admin. Of codes the newest 100 count, of sessions the newest 1,000.
  [[nodiscard]] std::string new_code();
  // The Set-Cookie line ("Set-Cookie: ...\r\n") for a good code.
  [[nodiscard]] std::optional<std::string> sign_in(std::string_view code, const AccessRequest& request);
  void sign_out(const AccessRequest& request);

 private:
  [[nodiscard]] Admission identified(const AccessRequest& request, bool change, bool agents) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes <data>/admin.token (mode 0600) unless it holds an admin's token that the database knows; returns its path. The
// token of a file that was lost is revoked. REQUIRES: the folder exists.
[[nodiscard]] Result<std::string> ensure_admin_token(state::Database& database, const std::string& data, Nanos now);

}  // namespace headgate::service
