#include "store/redis/stream.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/eventfd.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>

namespace headgate::store::redis {
namespace {

constexpr std::size_t kMaxAddresses = 16;  // of one name; more are not tried

std::string errno_text(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + ('a' - 'A'));
  return text;
}

std::string tls_text(unsigned long error, std::string_view otherwise) {
  if (ERR_SYSTEM_ERROR(error)) return errno_text(ERR_GET_REASON(error));
  const char* reason = ERR_reason_error_string(error);
  return std::string(reason != nullptr ? reason : otherwise);
}

// The first of OpenSSL's errors is the cause; the others tell which function passed it on.
Error tls_file_error(std::string_view what, const std::string& file) {
  Error error{ErrorCode::kIo, fmt::format("redis tls: {} {}: {}", what, file, tls_text(ERR_peek_error(), "unusable"))};
  ERR_clear_error();
  return error;
}

bool is_ip_address(const std::string& host) noexcept {
  in6_addr parsed{};
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 || ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

int clamped(std::size_t size) noexcept {
  return static_cast<int>(std::min(size, static_cast<std::size_t>(std::numeric_limits<int>::max())));
}

}  // namespace

Waker::Waker() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Waker::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

void Waker::clear() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
}

std::shared_ptr<Lookup> Lookup::start(const Endpoint& endpoint, std::shared_ptr<Waker> waker) {
  auto lookup = std::make_shared<Lookup>();
  if (!endpoint.path.empty()) {
    SocketAddress address;
    auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
    un->sun_family = AF_UNIX;
    endpoint.path.copy(un->sun_path, sizeof un->sun_path - 1);
    address.size = sizeof(sockaddr_un);
    lookup->finish({address}, {});
    return lookup;
  }
  if (lookup->resolve(endpoint, AI_NUMERICHOST)) return lookup;
  try {
    std::thread([lookup, endpoint, waker = std::move(waker)] {
      lookup->resolve(endpoint, 0);
      waker->wake();
    }).detach();
  } catch (const std::system_error& error) {
    lookup->finish({}, fmt::format("no thread to look up {}: {}", endpoint.host, error.what()));
  }
  return lookup;
}

// False: it is no number, if only those were asked for.
bool Lookup::resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    if ((flags & AI_NUMERICHOST) != 0) return false;
    finish({}, fmt::format("cannot look up {}: {}", endpoint.host, ::gai_strerror(error)));
    return true;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr && addresses.size() < kMaxAddresses; each = each->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    addresses.push_back(address);
  }
  finish(std::move(addresses), {});
  return true;
}

void Lookup::finish(std::vector<SocketAddress> addresses, std::string why) {
  const std::lock_guard lock(mutex_);
  addresses_ = std::move(addresses);
  why_ = std::move(why);
  done_ = true;
}

bool Lookup::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::vector<SocketAddress> Lookup::addresses() const {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

std::string Lookup::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

Result<std::shared_ptr<const TlsRules>> TlsRules::read(const TlsOptions& options) {
  ERR_clear_error();
  auto rules = std::make_shared<TlsRules>();
  rules->server_name_ = options.server_name;
  rules->context_.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = rules->context_.get();
  if (context == nullptr) return tls_file_error("OpenSSL", "");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  // A key with a passphrase is refused; a server has no terminal to type one into.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });
  if (options.ca_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(context) != 1) return tls_file_error("the system's authorities", "");
  } else if (SSL_CTX_load_verify_locations(context, options.ca_file.c_str(), nullptr) != 1) {
    return tls_file_error("ca_file", options.ca_file);
  }
  if (options.cert_file.empty() != options.key_file.empty()) {
    return Error{ErrorCode::kInvalidArgument, "redis tls: cert_file and key_file must be given together"};
  }
  if (!options.cert_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context, options.cert_file.c_str()) != 1) {
      return tls_file_error("cert_file", options.cert_file);
    }
    if (SSL_CTX_use_PrivateKey_file(context, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
      return tls_file_error("key_file", options.key_file);
    }
  }
  return std::shared_ptr<const TlsRules>(std::move(rules));
}

bool Stream::connect(const SocketAddress& address) {
  close();
  socket_ = base::Descriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  error_ = errno;
  tls_error_ = 0;
  if (!socket_) return false;
  const int on = 1;
  if (address.storage.ss_family != AF_UNIX) ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return true;
  error_ = errno;
  return error_ == EINPROGRESS;
}

bool Stream::connected() {
  socklen_t size = sizeof error_;
  if (::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error_, &size) != 0) error_ = errno;
  return error_ == 0;
}

void Stream::begin_tls(const TlsRules& rules, const std::string& host) {
  const std::string& name = rules.server_name().empty() ? host : rules.server_name();
  ssl_.reset(SSL_new(rules.get()));
  if (ssl_ == nullptr) return;
  SSL_set_fd(ssl_.get(), fd());
  SSL_set_connect_state(ssl_.get());
  if (is_ip_address(name)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), name.c_str());
  } else {
    // What SSL_set_tlsext_host_name is, without its cast.
    SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(name.c_str()));
    SSL_set1_host(ssl_.get(), name.c_str());
  }
}

Stream::Moved Stream::shake() noexcept {
  if (ssl_ == nullptr) return Moved::kFailed;
  ERR_clear_error();
  return outcome(SSL_do_handshake(ssl_.get()));
}

Stream::Moved Stream::outcome(int result) noexcept {
  if (result > 0) return Moved::kSome;
  error_ = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ: return Moved::kWantRead;
    case SSL_ERROR_WANT_WRITE: return Moved::kWantWrite;
    case SSL_ERROR_ZERO_RETURN: return Moved::kEnded;
    default: tls_error_ = ERR_peek_last_error(); return Moved::kFailed;
  }
}

Stream::Moved Stream::outcome_of_socket(ssize_t result) noexcept {
  if (result > 0) return Moved::kSome;
  if (result == 0) return Moved::kEnded;
  error_ = errno;
  return error_ == EAGAIN || error_ == EINTR ? Moved::kWantRead : Moved::kFailed;
}

Stream::Moved Stream::read(char* data, std::size_t size, std::size_t& count) noexcept {
  ssize_t result = 0;
  Moved moved{};
  if (ssl_ != nullptr) {
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), data, clamped(size));
    result = got;
    moved = outcome(got);
  } else {
    result = ::recv(fd(), data, size, 0);
    moved = outcome_of_socket(result);
  }
  count = result > 0 ? static_cast<std::size_t>(result) : 0;
  return moved;
}

Stream::Moved Stream::write(const char* data, std::size_t size, std::size_t& count) noexcept {
  ssize_t result = 0;
  Moved moved{};
  if (ssl_ != nullptr) {
    ERR_clear_error();
    const int sent = SSL_write(ssl_.get(), data, clamped(size));
    result = sent;
    moved = outcome(sent);
    if (moved == Moved::kFailed) hear_why();
  } else {
    result = ::send(fd(), data, size, MSG_NOSIGNAL);
    moved = outcome_of_socket(result);
    if (moved == Moved::kWantRead) moved = Moved::kWantWrite;
  }
  count = result > 0 ? static_cast<std::size_t>(result) : 0;
  return moved;
}

// Who refuses our certificate says so and hangs up, with TLS 1.3 when the handshake is done for us: the next write
// fails, and what was said is still to be read.
void Stream::hear_why() noexcept {
  if (tls_error_ != 0) return;
  const int error = error_;
  char ignored = 0;
  ERR_clear_error();
  static_cast<void>(outcome(SSL_read(ssl_.get(), &ignored, 1)));
  if (tls_error_ == 0) error_ = error;
}

void Stream::close() noexcept {
  ssl_.reset();
  socket_ = base::Descriptor();
}

std::string Stream::why() const {
  if (tls_error_ == 0) return error_ != 0 ? errno_text(error_) : "the connection ended";
  std::string text = "TLS: " + tls_text(tls_error_, "handshake failed");
  if (ssl_ != nullptr) {
    if (const long verdict = SSL_get_verify_result(ssl_.get()); verdict != X509_V_OK) {
      text += fmt::format(" ({})", X509_verify_cert_error_string(verdict));
    }
  }
  return text;
}

}  // namespace headgate::store::redis
