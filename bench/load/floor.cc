// The floor for HTTP: one thread, raw epoll, a parser that looks for the end of a request and nothing else, and a fixed
// answer as long as a real one. No server that does anything can be much faster.
//
//   floor            listens on a free port of 127.0.0.1, and prints it
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

namespace {

// Made once, as long as what a check is answered with.
std::string make_answer() {
  const std::string body =
      "{\"allowed\":true,\"action\":\"allow\",\"reason\":\"All rate limit policies passed\",\"policy_ids\":[\"one\"],"
      "\"limit\":1000000,\"remaining\":999999,\"reset_time\":1700000000000,\"retry_after_ms\":0,\"delay_ms\":0,"
      "\"throttle_factor\":1,\"warnings\":[],\"lease\":null}";
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nRateLimit-Policy: \"one\";q=1000000;w=1\r\n"
         "RateLimit: \"one\";r=999999;t=1\r\nX-RateLimit-Limit: 1000000\r\nX-RateLimit-Remaining: 999999\r\n"
         "X-RateLimit-Reset: 1700000000\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct Connection {
  std::string in;
  std::string out;
};

// How many bytes the first request takes; 0: it is not all there.
std::size_t request_length(std::string_view in) {
  const std::size_t end = in.find("\r\n\r\n");
  if (end == std::string_view::npos) return 0;
  std::size_t length = end + 4;
  const std::size_t header = in.substr(0, end).find("Content-Length: ");
  if (header != std::string_view::npos) length += std::strtoul(in.data() + header + 16, nullptr, 10);
  return length <= in.size() ? length : 0;
}

}  // namespace

int main() {
  const std::string answer = make_answer();
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 512) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("floor");
    return 1;
  }
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);

  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
  std::unordered_map<int, Connection> connections;
  std::array<epoll_event, 128> events;
  std::array<char, 65536> buffer;
  for (;;) {
    const int ready = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == listener) {
        const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted < 0) continue;
        const int on = 1;
        ::setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        event.data.fd = accepted;
        ::epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &event);
        connections[accepted];
        continue;
      }
      Connection& connection = connections[fd];
      const ssize_t got = ::read(fd, buffer.data(), buffer.size());
      if (got <= 0) {
        ::close(fd);
        connections.erase(fd);
        continue;
      }
      connection.in.append(buffer.data(), static_cast<std::size_t>(got));
      std::string_view rest = connection.in;
      while (const std::size_t length = request_length(rest)) {
        connection.out += answer;
        rest.remove_prefix(length);
      }
      connection.in.erase(0, connection.in.size() - rest.size());
      // A client that reads too slowly is not what this measures.
      if (::send(fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL) <
          static_cast<ssize_t>(connection.out.size())) {
        std::fprintf(stderr, "floor: a short write\n");
      }
      connection.out.clear();
    }
  }
}
