#include "net/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

namespace headgate::net {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
};

// strerror's words, in lower case, as part of a sentence.
std::string reason(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + ('a' - 'A'));
  return text;
}

Error failed(const Listener& listener, std::string_view what) {
  return {ErrorCode::kIo, fmt::format("listen.{} {}: {}", listener.name, listener.address, what), true};
}

std::string text_of(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address.storage.ss_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&address.storage);
    inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    return fmt::format("{}:{}", host, ntohs(in->sin_port));
  }
  if (address.storage.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, ntohs(in->sin6_port));
  }
  if (address.storage.ss_family == AF_UNIX) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&address.storage);
    return fmt::format("unix:{}", un->sun_path);
  }
  return {};
}

SocketAddress own_address(int fd) {
  SocketAddress address;
  getsockname(fd, address.get(), &address.size);
  return address;
}

// Bound and listening, or errno.
base::Descriptor listening(const SocketAddress& address, bool shared_port, int& error) {
  base::Descriptor fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const bool tcp = address.storage.ss_family != AF_UNIX;
  if (!fd || (tcp && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) ||
      (shared_port && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) ||
      ::bind(fd.get(), address.get(), address.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    error = errno;
    return {};
  }
  // Accepted sockets inherit it: answers are small and leave in one write.
  if (tcp) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

std::vector<base::Descriptor> shared_by(base::Descriptor fd, int threads) {
  std::vector<base::Descriptor> sockets;
  for (int i = 1; i < threads; ++i) sockets.emplace_back(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  sockets.push_back(std::move(fd));
  return sockets;
}

Result<Bound> bind_tcp(const Listener& listener, const Address& asked, int threads) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(asked.port);
  if (const int error = getaddrinfo(asked.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return failed(listener, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    addresses.push_back(address);
  }
  // "localhost" is usually both; clients that know only IPv4 are more common than those that know only IPv6.
  std::stable_sort(addresses.begin(), addresses.end(), [](const SocketAddress& a, const SocketAddress& b) {
    return a.storage.ss_family == AF_INET && b.storage.ss_family != AF_INET;
  });
  int error = 0;
  for (const SocketAddress& address : addresses) {
    // Bound alone first: with SO_REUSEPORT a second server of the same user would join instead of being told.
    base::Descriptor first = listening(address, false, error);
    if (!first) continue;
    Bound bound;
    SocketAddress actual = own_address(first.get());
    bound.address = text_of(actual);
    if (threads == 1) {
      bound.sockets.push_back(std::move(first));
      return bound;
    }
    first.reset();
    for (int i = 0; i < threads; ++i) {
      base::Descriptor fd = listening(actual, true, error);
      if (!fd) return failed(listener, reason(error));
      bound.sockets.push_back(std::move(fd));
    }
    return bound;
  }
  return failed(listener, reason(error));
}

Result<Bound> bind_unix(const Listener& listener, const Address& asked, int threads) {
  SocketAddress address;
  auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (asked.path.size() >= sizeof un->sun_path) {
    return failed(listener, fmt::format("a unix socket's path must be shorter than {} bytes", sizeof un->sun_path));
  }
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path, asked.path.c_str(), asked.path.size() + 1);
  address.size = sizeof(sockaddr_un);
  // A socket that refuses connections was left behind by a process that died.
  struct stat status {};
  if (::lstat(asked.path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
    const base::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), address.get(), address.size) != 0 && errno == ECONNREFUSED) {
      ::unlink(asked.path.c_str());
    }
  }
  int error = 0;
  base::Descriptor fd = listening(address, false, error);
  if (!fd) return failed(listener, reason(error));
  Bound bound;
  bound.address = "unix:" + asked.path;
  bound.unlink = asked.path;
  bound.sockets = shared_by(std::move(fd), threads);
  return bound;
}

Result<Bound> take_inherited(const Listener& listener, int threads) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (getsockopt(listener.inherited, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) {
    return failed(listener, fmt::format("descriptor {} must be a listening socket", listener.inherited));
  }
  fcntl(listener.inherited, F_SETFL, fcntl(listener.inherited, F_GETFL) | O_NONBLOCK);
  fcntl(listener.inherited, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  setsockopt(listener.inherited, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails for unix sockets, which need none
  Bound bound;
  bound.address = text_of(own_address(listener.inherited));
  bound.sockets = shared_by(base::Descriptor(listener.inherited), threads);
  return bound;
}

}  // namespace

Result<Bound> bind_listener(const Listener& listener, int threads) {
  if (listener.inherited >= 0) return take_inherited(listener, threads);
  Result<Address> address = parse_address(listener.address);
  if (!address) return failed(listener, address.error().message);
  return address->path.empty() ? bind_tcp(listener, *address, threads) : bind_unix(listener, *address, threads);
}

Peer peer_of(const sockaddr_storage& address) {
  Peer peer;
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&address);
    if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr)) {
      const unsigned char* bytes = in->sin6_addr.s6_addr + 12;
      inet_ntop(AF_INET, bytes, host, sizeof host);
      peer.loopback = bytes[0] == 127;
    } else {
      inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
      peer.loopback = IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    }
    peer.ip = host;
  } else if (address.ss_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    peer.loopback = (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    peer.ip = host;
  } else {
    peer.ip = "unix";
    peer.loopback = true;
  }
  return peer;
}

}  // namespace headgate::net
