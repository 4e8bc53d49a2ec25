#include "server/systemd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/descriptor.h"
#include "base/utf8.h"

namespace headgate::server {
namespace {

constexpr std::array<std::string_view, 3> kNames{"http", "resp", "grpc"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<int> whole(std::string_view text) noexcept {
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Error wrong(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

int option_of(int descriptor, int option) noexcept {
  int value = 0;
  socklen_t length = sizeof(value);
  return ::getsockopt(descriptor, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

// What the socket is bound to, as the configuration would spell it.
std::string address_of(int descriptor) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "";
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &storage, sizeof(four));
    ::inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(four.sin_port));
  }
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, &storage, sizeof(six));
    ::inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), ntohs(six.sin6_port));
  }
  if (storage.ss_family == AF_UNIX) {
    sockaddr_un local{};
    std::memcpy(&local, &storage, sizeof(local));
    const std::size_t named = length - std::min<std::size_t>(length, offsetof(sockaddr_un, sun_path));
    std::string path(local.sun_path, std::min(named, sizeof(local.sun_path)));
    if (!path.empty() && path.front() == '\0') return "unix:@" + path.substr(1);
    return "unix:" + path.substr(0, path.find('\0'));
  }
  return "";
}

Result<InheritedSocket> take(int descriptor, const std::string& name) {
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    return wrong(
        fmt::format("a socket of the service manager must be named http, resp or grpc (FileDescriptorName= of "
                    "its unit), got \"{}\"",
                    base::shortened(name, 64)));
  }
  if (option_of(descriptor, SO_TYPE) != SOCK_STREAM || option_of(descriptor, SO_ACCEPTCONN) != 1) {
    return wrong(
        fmt::format("the socket named {} that the service manager gives must be a listening stream socket "
                    "(ListenStream=, Accept=no)",
                    name));
  }
  if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) {
    return Error{ErrorCode::kIo, fmt::format("the socket named {}: {}", name, std::strerror(errno))};
  }
  InheritedSocket taken;
  taken.name = name;
  taken.descriptor = descriptor;
  taken.address = address_of(descriptor);
  return taken;
}

// The n-th of the names that are separated by colons.
std::string nth_name(std::string_view names, int n) {
  for (; n > 0; --n) {
    const std::size_t colon = names.find(':');
    names = colon == std::string_view::npos ? std::string_view() : names.substr(colon + 1);
  }
  return std::string(names.substr(0, names.find(':')));
}

}  // namespace

bool notify(std::string_view state) noexcept {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // a name that is in no folder

  const base::Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return false;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  const ssize_t sent = ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                                reinterpret_cast<const sockaddr*>(&address), size);
  return sent == static_cast<ssize_t>(state.size());
}

Result<std::vector<InheritedSocket>> inherited_sockets(int first) {
  const std::string pid = variable("LISTEN_PID");
  const std::string count_text = variable("LISTEN_FDS");
  const std::string names = variable("LISTEN_FDNAMES");
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);

  std::vector<InheritedSocket> sockets;
  if (count_text.empty() || whole(pid) != ::getpid()) return sockets;
  const auto count = whole(count_text);
  if (!count || *count < 0 || *count > kMostInherited) {
    return wrong(fmt::format("LISTEN_FDS must be a number from 0 to {}, got \"{}\"", kMostInherited,
                             base::shortened(count_text, 64)));
  }
  for (int i = 0; i < *count; ++i) {
    auto socket = take(first + i, nth_name(names, i));
    if (!socket) return socket.error();
    for (const InheritedSocket& other : sockets) {
      if (other.name == socket->name) {
        return wrong(fmt::format("the service manager gives two sockets named {}; one is enough", other.name));
      }
    }
    sockets.push_back(std::move(*socket));
  }
  return sockets;
}

}  // namespace headgate::server
