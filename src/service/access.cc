#include "service/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <utility>

#include "base/ascii.h"
#include "base/text.h"
#include "base/utf8.h"
#include "headgate/limiter.h"
#include "service/origin.h"
#include "service/sign_in.h"

namespace headgate::service {
namespace {

constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;
constexpr int kTooMany = 429;

constexpr Units kFailuresPerMinute = 10;
constexpr std::size_t kMostFailingAddresses = 100'000;
constexpr std::string_view kCookie = "headgate_session";
constexpr Nanos kCodeLifetime = std::chrono::minutes{10};
constexpr Nanos kSessionLifetime = std::chrono::hours{12};

Admission refuse(int status, std::string_view code, std::string message) {
  Admission admission;
  admission.refusal = Refusal{status, code, std::move(message), Nanos{0}};
  return admission;
}

Admission unauthorized(std::string message) { return refuse(kUnauthorized, "unauthorized", std::move(message)); }

// What follows "Bearer ", or nothing if it is not exactly that.
std::optional<std::string_view> bearer(std::string_view value) noexcept {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() <= kScheme.size() || !base::equals_ignoring_case(value.substr(0, kScheme.size()), kScheme))
    return std::nullopt;
  const std::string_view secret = base::trimmed(value.substr(kScheme.size()));
  if (secret.empty() || secret.find_first_of(" \t,") != std::string_view::npos) return std::nullopt;
  return secret;
}

// Calls `visit` with every session cookie, until it says true.
template <class Visit>
bool any_session_cookie(const AccessRequest& request, Visit visit) {
  for (std::string_view rest : request.cookies()) {
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      const std::string_view pair = base::trimmed(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const std::size_t equals = pair.find('=');
      if (equals != std::string_view::npos && pair.substr(0, equals) == kCookie && visit(pair.substr(equals + 1))) {
        return true;
      }
    }
  }
  return false;
}

// The host of one IPv6 address mostly has its whole /64.
std::string limited_as(std::string_view ip) {
  std::string text(ip.substr(0, INET6_ADDRSTRLEN));
  in6_addr six{};
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1 || IN6_IS_ADDR_V4MAPPED(&six)) return text;
  std::fill(six.s6_addr + 8, six.s6_addr + 16, std::uint8_t{0});
  std::array<char, INET6_ADDRSTRLEN> network{};
  ::inet_ntop(AF_INET6, &six, network.data(), network.size());
  return network.data();
}

std::string_view ip_of(const AccessRequest& request) noexcept {
  return request.peer ? request.peer->ip : std::string_view();
}

std::unique_ptr<MemoryLimiter> make_limiter(Clock& clock) {
  auto limit = Limit::sliding_window({.limit = kFailuresPerMinute, .window = std::chrono::minutes{1}});
  assert(limit.has_value());
  auto made = MemoryLimiter::make(
      Options().limit(*limit).clock(clock).max_keys(kMostFailingAddresses, AtCap::kEvictOldest).own_thread(false));
  assert(made.has_value());
  return std::move(*made);
}

Caller caller_of(const state::Token& token) {
  Caller caller;
  caller.known = true;
  caller.role = token.role;
  caller.agent = token.agent;
  caller.user = token.user;
  caller.tenant = token.tenant;
  caller.plan = token.plan;
  caller.who = token.name.empty() ? token.id : token.name;
  caller.token = token.number;
  caller.expires = token.expires;
  if (caller.agent.empty() && !caller.speaks_for_others()) caller.owner = "token:" + token.id;
  return caller;
}

}  // namespace

struct Access::Impl {
  // Tells one Access from another that has taken its place.
  static inline std::atomic<std::uint64_t> last_number{0};
  const std::uint64_t number = ++last_number;

  Impl(state::Tokens& the_tokens, AccessOptions the_options, Clock& the_clock)
      : tokens(the_tokens),
        options(std::move(the_options)),
        clock(the_clock),
        subjects(the_tokens, the_clock),
        failures(make_limiter(the_clock)) {}

  [[nodiscard]] Nanos wall() const { return clock.wall(clock.now()); }

  [[nodiscard]] Admission by_token(std::string_view secret, std::string_view ip) const {
    const std::uint64_t version = tokens.token_version();  // before: a change meanwhile is noticed later
    if (const auto token = tokens.identify(secret, wall())) {
      Admission admission{caller_of(*token), std::nullopt};
      admission.caller.token_version = version;
      return admission;
    }
    return failed(ip, "the token is not known, has expired or was revoked");
  }

  // A check charges: where a token is required, a viewer's is refused.
  [[nodiscard]] Admission asking(Admission admission) const {
    const bool viewer = !admission.refusal && admission.caller.role == state::Role::kViewer;
    if (!viewer || options.auth != Auth::kRequired) return admission;
    return refuse(kForbidden, "forbidden",
                  "role viewer may look, but not ask; use a token of role agent, gateway or admin");
  }

  // What a failed attempt is answered.
  [[nodiscard]] Admission failed(std::string_view ip, std::string message) const {
    const Decision decision = failures->try_acquire(limited_as(ip));
    if (decision.allowed()) return unauthorized(std::move(message));
    Admission admission =
        refuse(kTooMany, "too_many_attempts",
               fmt::format("too many bad tokens or codes from {}, at most {} a minute", ip, kFailuresPerMinute));
    admission.refusal->retry_after = std::max(decision.retry_after, Nanos{0});
    return admission;
  }

  // The token of a request, if it has one. False: go on without.
  [[nodiscard]] bool by_header(const AccessRequest& request, Admission& admission) const {
    const AccessRequest::Header& header = request.authorization;
    if (header.count == 0) return false;
    const auto secret = bearer(header.value);
    if (header.count > 1 || !secret) {
      admission = failed(ip_of(request), "Authorization must be given once, as: Bearer hg_...");
    } else {
      admission = by_token(*secret, ip_of(request));
    }
    return true;
  }

  [[nodiscard]] std::optional<Refusal> wrong_origin(const AccessRequest& request) const {
    const AccessRequest::Header& origin = request.origin;
    if (origin.count == 0) return std::nullopt;
    const AccessRequest::Header& host = request.host;
    if (origin.count == 1 && host.count <= 1 && is_trusted_origin(origin.value, host.value, options.hosts)) {
      return std::nullopt;
    }
    return Refusal{kForbidden, "bad_origin",
                   fmt::format("pages of {} may not ask here; list that host under hosts if they should",
                               base::is_plain_text(origin.value) ? base::shortened(origin.value, 100) : "that origin"),
                   Nanos{0}};
  }

  [[nodiscard]] std::optional<Refusal> wrong_host(const AccessRequest& request) const {
    const AccessRequest::Header& host = request.host;
    if (host.count == 0) return std::nullopt;  // no browser leaves it out
    // Most callers name the same host again and again.
    struct Last {
      std::uint64_t access = 0;
      std::string host;
    };
    thread_local Last last;
    if (host.count == 1 && last.access == number && last.host == host.value) return std::nullopt;
    if (host.count == 1 && is_trusted_host(host.value, options.hosts)) {
      last.access = number;
      last.host = host.value;
      return std::nullopt;
    }
    return Refusal{kForbidden, "bad_host",
                   fmt::format("Host must be localhost, an IP address or one that is listed under hosts, got \"{}\"",
                               base::is_plain_text(host.value) ? base::shortened(host.value, 100) : "no text"),
                   Nanos{0}};
  }

  // A browser's session. False: there is none.
  [[nodiscard]] bool by_session(const AccessRequest& request, Admission& admission) const {
    std::string session;
    const bool holds = any_session_cookie(request, [&](std::string_view id) {
      if (!sessions.holds(id, clock.now())) return false;
      session = id;
      return true;
    });
    if (!holds) return false;
    admission.caller.known = true;
    admission.caller.role = state::Role::kAdmin;
    admission.caller.who = "browser";
    admission.caller.session = std::move(session);
    return true;
  }

  [[nodiscard]] bool by_certificate(const std::optional<PeerView>& peer, Admission& admission) const {
    if (!peer || peer->certificate.empty()) return false;
    admission.caller.known = true;
    admission.caller.role = state::Role::kAgent;
    admission.caller.agent = peer->certificate;
    admission.caller.who = fmt::format("certificate {}", peer->certificate);
    return true;
  }

  [[nodiscard]] Admission without_token(const std::optional<PeerView>& peer) const {
    Admission admission;
    if (options.auth == Auth::kLocal || by_certificate(peer, admission)) return admission;
    return unauthorized("a token is needed (Authorization: Bearer hg_..., AUTH, identify)");
  }

  state::Tokens& tokens;
  const AccessOptions options;
  Clock& clock;
  mutable Subjects subjects;
  std::unique_ptr<MemoryLimiter> failures;
  ExpiringSecrets codes{100, kCodeLifetime};
  ExpiringSecrets sessions{1'000, kSessionLifetime};
};

Access::Access(state::Tokens& tokens, AccessOptions options, Clock& clock)
    : impl_(std::make_unique<Impl>(tokens, std::move(options), clock)) {}
Access::~Access() = default;

bool Access::required() const noexcept { return impl_->options.auth == Auth::kRequired; }

Admission Access::by_token(std::string_view secret, std::string_view ip) const {
  return impl_->asking(impl_->by_token(secret, ip));
}
Admission Access::without_token(const std::optional<PeerView>& peer) const { return impl_->without_token(peer); }

Admission Access::asks(const AccessRequest& request) const {
  Admission admission;
  if (admission.refusal = impl_->wrong_origin(request); admission.refusal) return admission;
  if (impl_->by_header(request, admission)) {
    return impl_->asking(std::move(admission));
  }
  if (admission.refusal = impl_->wrong_host(request); admission.refusal) return admission;
  if (impl_->by_session(request, admission)) return admission;
  return impl_->without_token(request.peer);
}

Admission Access::gates(const AccessRequest& request) const {
  Admission admission;
  if (impl_->by_header(request, admission)) return impl_->asking(std::move(admission));
  if (admission.refusal = impl_->wrong_host(request); admission.refusal) return admission;
  return impl_->without_token(request.peer);
}

Admission Access::manages(const AccessRequest& request, bool change) const {
  return identified(request, change, false);
}

Admission Access::uses_quotas(const AccessRequest& request, bool change) const {
  return identified(request, change, true);
}

Admission Access::identified(const AccessRequest& request, bool change, bool agents) const {
  Admission admission;
  if (admission.refusal = impl_->wrong_origin(request); admission.refusal) return admission;
  if (!impl_->by_header(request, admission)) {
    if (admission.refusal = impl_->wrong_host(request); admission.refusal) return admission;
    if (impl_->by_session(request, admission)) {
      // Browsers send Origin with every request that may change something; without it, the page is not known.
      if (change && request.origin.count == 0) {
        return refuse(kForbidden, "bad_origin", "a browser session may change something only with an Origin header");
      }
    } else if (!impl_->by_certificate(request.peer, admission)) {
      return unauthorized("managing needs a token (Authorization: Bearer hg_...) or a signed-in browser");
    }
  }
  if (admission.refusal) return admission;
  const state::Role role = admission.caller.role;
  if (role == state::Role::kAdmin || (role == state::Role::kViewer && !change)) return admission;
  if ((role == state::Role::kAgent || role == state::Role::kGateway) && agents) return admission;
  return refuse(kForbidden, "forbidden",
                fmt::format("this takes role {}, and {} is {}", change ? "admin" : "viewer or admin",
                            admission.caller.who, to_string(role)));
}

Admission Access::reads_metrics(const AccessRequest& request) const {
  const bool open = impl_->options.metrics_open && request.peer && request.peer->loopback;
  if (!open || request.authorization.count != 0) return manages(request, false);
  Admission admission;
  admission.refusal = impl_->wrong_origin(request);
  if (!admission.refusal) admission.refusal = impl_->wrong_host(request);
  return admission;
}

std::optional<Refusal> Access::believe(const Caller& caller, const std::optional<PeerView>& peer, Check& check) const {
  if (peer) {
    if (check.ip.empty()) {
      check.ip = peer->ip;
    } else if (check.ip != peer->ip) {
      // A caller that chose its address would have as many limits as there are addresses.
      const bool trusted = caller.known ? caller.speaks_for_others() : peer->loopback;
      if (!trusted) {
        return Refusal{kForbidden, "forbidden",
                       fmt::format("ip may be given by roles admin and gateway, or without a token on this machine; "
                                   "leave it out, and it is yours ({})",
                                   peer->ip),
                       Nanos{0}};
      }
    }
  }
  return impl_->subjects.prove(caller, check);
}

const Subjects& Access::subjects() const noexcept { return impl_->subjects; }

bool Access::still_good(Credential& credential, Nanos now) const {
  if (credential.token == 0) return credential.session.empty() || impl_->sessions.holds(credential.session, now);
  if (impl_->tokens.has_expired(credential.expires, impl_->clock.wall(now))) return false;
  const std::uint64_t version = impl_->tokens.token_version();
  if (version == credential.token_version) return true;
  if (!impl_->tokens.has_token(credential.token)) return false;
  credential.token_version = version;
  return true;
}

std::function<bool()> Access::validity_of(const Credential& credential) const {
  if (!credential.may_end()) return {};
  return [this, credential] {
    Credential own = credential;
    return still_good(own, impl_->clock.now());
  };
}

std::string Access::new_code() { return impl_->codes.make(impl_->clock.now()); }

std::optional<std::string> Access::sign_in(std::string_view code, const AccessRequest& request) {
  if (impl_->wrong_origin(request) || impl_->wrong_host(request)) return std::nullopt;
  const Nanos now = impl_->clock.now();
  if (!impl_->codes.take(code, now)) {
    // Counted with the bad tokens; the browser gets no reason.
    (void)impl_->failed(ip_of(request), {});
    return std::nullopt;
  }
  const bool secure = request.peer && request.peer->tls;
  return fmt::format(
      "Set-Cookie: {}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{}\r\n", kCookie, impl_->sessions.make(now),
      std::chrono::duration_cast<std::chrono::seconds>(kSessionLifetime).count(), secure ? "; Secure" : "");
}

void Access::sign_out(const AccessRequest& request) {
  const Nanos now = impl_->clock.now();
  any_session_cookie(request, [&](std::string_view id) {
    impl_->sessions.take(id, now);
    return false;
  });
}

}  // namespace headgate::service
