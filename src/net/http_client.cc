#include "net/http_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>

#include "base/descriptor.h"
#include "net/http.h"
#include "net/http_answer_reader.h"
#include "net/tls.h"

namespace headgate::net {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = HttpClient::Outcome;

// OpenSSL writes to its socket without MSG_NOSIGNAL. While one of these lives, SIGPIPE is blocked on this thread.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now{};
    while (!was_pending_ && ::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

// The addresses of a host. The thread that resolves a name shares it, and may outlive the call that asked.
struct Lookup {
  std::string host;
  std::string port;
  base::Descriptor done{::eventfd(0, EFD_CLOEXEC)};
  addrinfo* found = nullptr;
  std::atomic<int> error{0};  // stored last

  Lookup(std::string host_name, std::string port_number) : host(std::move(host_name)), port(std::move(port_number)) {}
  ~Lookup() {
    if (found != nullptr) ::freeaddrinfo(found);
  }
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  void resolve(int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  }
};

std::string basic_authorization(const std::string& user) {
  std::string plain;
  if (!percent_decoded(user, false, plain)) plain = user;
  std::string encoded(4 * ((plain.size() + 2) / 3) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                      reinterpret_cast<const unsigned char*>(plain.data()), static_cast<int>(plain.size()));
  encoded.resize(static_cast<std::size_t>(size));
  return "Authorization: Basic " + encoded;
}

// One call: how long it may take, what is watched meanwhile, and how it ended. Steps return false if it is over.
struct Exchange {
  const HttpClient::Watch& watch;
  Clock::time_point until;
  HttpClient::Answer answer{};

  bool fail(std::string why, Outcome outcome = Outcome::kFailed) {
    answer.outcome = outcome;
    answer.why = std::move(why);
    return false;
  }

  // Until the descriptor is ready for these events.
  bool wait(int descriptor, short events, Clock::time_point most = Clock::time_point::max()) {
    std::vector<pollfd> all{{descriptor, events, 0}};
    for (const int watched : watch.descriptors) all.push_back({watched, POLLIN, 0});
    while (true) {
      constexpr std::int64_t kStepMs = 3'600'000;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(until, most) - Clock::now()).count();
      if (left <= 0) return fail("no answer in time");
      if (::poll(all.data(), all.size(), static_cast<int>(std::min(left, kStepMs))) < 0) {
        if (errno != EINTR) return fail(std::strerror(errno));
        continue;
      }
      const bool seen = std::any_of(all.begin() + 1, all.end(), [](const pollfd& one) { return one.revents != 0; });
      if (seen && !watch.ready()) return fail("given up", Outcome::kGivenUp);
      if (all.front().revents != 0) return true;
    }
  }
};

}  // namespace

Result<HttpUrl> parse_http_url(std::string_view text) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  const auto refused = [](const char* why) { return Error{ErrorCode::kInvalidArgument, why}; };
  HttpUrl url;
  url.tls = text.starts_with(kTls);
  if (!url.tls && !text.starts_with(kPlain)) return refused("must begin with http:// or https://");
  text.remove_prefix(url.tls ? kTls.size() : kPlain.size());
  text = text.substr(0, text.find('#'));
  if (std::any_of(text.begin(), text.end(), [](char c) { return c >= 0 && c <= ' '; })) {
    return refused("must not hold blanks or control characters");
  }
  const std::size_t end = std::min(text.find_first_of("/?"), text.size());
  url.target = text.substr(end);
  if (url.target.starts_with('?')) url.target = "/" + url.target;
  text = text.substr(0, end);
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    url.user = text.substr(0, at);
    text.remove_prefix(at + 1);
  }
  url.authority = text;
  url.port = url.tls ? "443" : "80";
  if (const std::size_t colon = text.rfind(':'); colon != std::string_view::npos && !text.ends_with(']')) {
    url.port = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  url.host = text;
  if (url.host.empty()) return refused("must name a host");
  std::uint16_t port = 0;
  const char* const last = url.port.data() + url.port.size();
  if (const auto read = std::from_chars(url.port.data(), last, port); read.ptr != last || port == 0) {
    return refused("must have a port between 1 and 65535");
  }
  return url;
}

bool is_loopback(const HttpUrl& url) noexcept {
  if (url.host == "localhost" || url.host == "::1") return true;
  // Digits and dots only: 127.example.com may be any machine.
  return url.host.starts_with("127.") && url.host.find_first_not_of("0123456789.") == std::string::npos;
}

struct HttpClient::Impl {
  Options options;
  std::shared_ptr<TlsContext> context;  // null: no TLS
  base::Descriptor socket;
  std::optional<TlsStream> tls;
  HttpAnswerReader reader{0};

  void close() {
    tls.reset();
    socket.reset();
  }

  [[nodiscard]] Moved receive(char* data, std::size_t size, std::size_t& count) {
    if (tls) return tls->read(data, size, count);
    const ssize_t got = ::recv(socket.get(), data, size, 0);
    count = got > 0 ? static_cast<std::size_t>(got) : 0;
    if (got > 0) return Moved::kMore;
    if (got == 0) return Moved::kEnded;
    return errno == EAGAIN || errno == EINTR ? Moved::kWantRead : Moved::kFailed;
  }
  [[nodiscard]] Moved send(const char* data, std::size_t size, std::size_t& count) {
    if (tls) return tls->write(data, size, count);
    const ssize_t sent = ::send(socket.get(), data, size, MSG_NOSIGNAL);
    count = sent > 0 ? static_cast<std::size_t>(sent) : 0;
    if (sent >= 0) return Moved::kMore;
    return errno == EAGAIN || errno == EINTR ? Moved::kWantWrite : Moved::kFailed;
  }

  // False: it cannot be connected to; the exchange says why.
  bool connect_to(const addrinfo& address, Exchange& exchange, Clock::time_point most) {
    socket = base::Descriptor(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return exchange.fail(std::strerror(errno));
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int error = ::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      if (!exchange.wait(socket.get(), POLLOUT, most)) return false;
      socklen_t size = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == ECONNREFUSED) return exchange.fail("connection refused", Outcome::kRefused);
    return error == 0 || exchange.fail(std::strerror(error));
  }

  // Tries the addresses of the host in turn, each within its share of the time.
  bool connect(Exchange& exchange, Nanos within) {
    const auto until = Clock::now() + within;
    std::vector<std::string> hosts{options.address.empty() ? options.url.host : options.address};
    if (hosts.front() == "localhost") hosts = {"127.0.0.1", "::1"};
    bool refused = false;  // reported rather than that ::1 does not exist
    for (const std::string& host : hosts) {
      auto lookup = std::make_shared<Lookup>(host, options.url.port);
      lookup->resolve(AI_NUMERICHOST);
      if (lookup->error == EAI_NONAME) {
        try {
          std::thread([lookup] {
            lookup->resolve(AI_ADDRCONFIG);
            ::eventfd_write(lookup->done.get(), 1);
          }).detach();
        } catch (const std::system_error& error) {
          return exchange.fail(error.what());
        }
        if (!exchange.wait(lookup->done.get(), POLLIN, until)) return false;
      }
      if (lookup->error != 0) return exchange.fail(fmt::format("{}: {}", host, ::gai_strerror(lookup->error)));
      int left = 0;
      for (const addrinfo* one = lookup->found; one != nullptr; one = one->ai_next) ++left;
      for (const addrinfo* one = lookup->found; one != nullptr; one = one->ai_next, --left) {
        if (connect_to(*one, exchange, Clock::now() + (until - Clock::now()) / left)) return true;
        if (exchange.answer.outcome == Outcome::kGivenUp) return false;
        refused = refused || exchange.answer.outcome == Outcome::kRefused;
      }
    }
    return refused && exchange.fail("connection refused", Outcome::kRefused);
  }

  bool shake_hands(Exchange& exchange) {
    tls.emplace(context, socket.get(), options.url.host);
    while (true) {
      switch (tls->handshake()) {
        case Moved::kMore: return true;
        case Moved::kWantRead:
          if (!exchange.wait(socket.get(), POLLIN)) return false;
          break;
        case Moved::kWantWrite:
          if (!exchange.wait(socket.get(), POLLOUT)) return false;
          break;
        default:
          if (!tls->distrust().empty()) return exchange.fail(tls->distrust(), Outcome::kUntrusted);
          return exchange.fail("the TLS handshake failed");
      }
    }
  }

  bool send_all(std::string_view bytes, Exchange& exchange) {
    while (!bytes.empty()) {
      std::size_t count = 0;
      const Moved moved = send(bytes.data(), bytes.size(), count);
      bytes.remove_prefix(count);
      if (moved == Moved::kMore) continue;
      if (moved != Moved::kWantRead && moved != Moved::kWantWrite) {
        return exchange.fail(tls ? "the TLS connection was lost" : std::strerror(errno));
      }
      if (!exchange.wait(socket.get(), moved == Moved::kWantRead ? POLLIN : POLLOUT)) return false;
    }
    return true;
  }

  bool read_answer(Exchange& exchange) {
    using State = HttpAnswerReader::State;
    State state = State::kMore;
    while (state == State::kMore) {
      std::array<char, 16384> buffer;
      std::size_t count = 0;
      switch (receive(buffer.data(), buffer.size(), count)) {
        case Moved::kMore: state = reader.feed({buffer.data(), count}); break;
        case Moved::kWantRead:
          if (!exchange.wait(socket.get(), POLLIN)) return false;
          break;
        case Moved::kWantWrite:
          if (!exchange.wait(socket.get(), POLLOUT)) return false;
          break;
        case Moved::kEnded: state = reader.end(); break;
        case Moved::kFailed: state = State::kBroken; break;
      }
    }
    if (state == State::kBroken) {
      return reader.begun() ? exchange.fail("the answer is not HTTP, or incomplete")
                            : exchange.fail("closed the connection without an answer", Outcome::kClosed);
    }
    exchange.answer.why.clear();
    exchange.answer.outcome = state == State::kWhole ? Outcome::kAnswered : Outcome::kTooLong;
    exchange.answer.status = reader.status();
    if (state == State::kWhole) exchange.answer.body = std::move(reader.body());
    return reader.reusable();
  }

  [[nodiscard]] std::string text_of(const Request& request) const {
    const std::string_view slash = options.url.target.empty() && request.path.empty() ? "/" : "";
    std::string text = fmt::format("{} {}{}{} HTTP/1.1\r\nHost: {}\r\n", request.method, options.url.target,
                                   request.path, slash, options.url.authority);
    for (const std::string& header : request.headers) text += header + "\r\n";
    if (!options.url.user.empty()) text += basic_authorization(options.url.user) + "\r\n";
    if (!request.body.empty() || request.method == "POST") {
      text += fmt::format("Content-Length: {}\r\n", request.body.size());
    }
    text += "\r\n";
    return text.append(request.body);
  }
};

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::open(Options options) {
  auto impl = std::make_unique<Impl>();
  if (options.url.tls) {
    auto context = TlsContext::for_client(options.ca_file);
    if (!context) return std::move(context).error();
    impl->context = std::move(*context);
  }
  impl->options = std::move(options);
  return HttpClient(std::move(impl));
}

HttpClient::Answer HttpClient::call(const Request& request, const Bounds& bounds, const Watch& watch) {
  const NoSigpipe no_sigpipe;
  Exchange exchange{watch, Clock::now() + bounds.answer};
  impl_->reader = HttpAnswerReader(bounds.body);
  // An idle connection that can be read has been closed by the peer.
  pollfd idle{impl_->socket.get(), POLLIN, 0};
  if (impl_->socket && ::poll(&idle, 1, 0) != 0) impl_->close();
  const bool connected = impl_->socket || (impl_->connect(exchange, std::min(bounds.connect, bounds.answer)) &&
                                           (impl_->context == nullptr || impl_->shake_hands(exchange)));
  const bool reusable = connected && impl_->send_all(impl_->text_of(request), exchange) && impl_->read_answer(exchange);
  if (!reusable) impl_->close();
  return std::move(exchange.answer);
}

std::string HttpClient::header(std::string_view name) const { return impl_->reader.header(name); }

}  // namespace headgate::net
