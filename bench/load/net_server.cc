// What the network core costs by itself: answers every HTTP request and every Redis command with a fixed text.
//
//   headgate_bench_net_server io|floor [HTTP_PORT RESP_PORT]
//
// `io` is our core on one thread; `floor` is a bare epoll loop that does not look at what it reads, and answers each
// read with one fixed text: what the system calls cost. To compare, pin either to one core and the client to another:
//
//   taskset -c 0 build/bench/bench/headgate_bench_net_server io &
//   taskset -c 1 wrk -t1 -c32 -d5 -s bench/load/check.lua http://127.0.0.1:7170/v1/check
//   taskset -c 1 redis-benchmark -p 7179 -c 50 -n 500000 CL.THROTTLE key 15 30 60 1
//
// (redis-benchmark asks two things at once when it begins, which the floor does not notice: compare RESP with
// redis-server instead) and divide the server's CPU time, which it prints when it is told to end (SIGINT), by the
// requests answered.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <csignal>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "net/http.h"
#include "net/io.h"
#include "net/resp.h"

namespace headgate::bench {
namespace {

constexpr std::string_view kDecision =
    R"({"allowed": true, "action": "allow", "reason": "All rate limit policies passed", "policy_ids": ["a"], )"
    R"("limit": 50, "remaining": 49})";
constexpr std::string_view kThrottled = "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";

class FixedHttp final : public net::HttpHandler {
 public:
  void handle(const net::HttpRequest& /*request*/, net::HttpReply& reply) noexcept override {
    net::HttpAnswer answer;
    answer.body = kDecision;
    answer.headers = "X-RateLimit-Limit: 50\r\nX-RateLimit-Remaining: 49\r\nX-RateLimit-Reset: 60\r\n";
    reply.send(answer);
  }
};

class FixedResp final : public net::RespCommands {
 public:
  void command(std::span<const std::string_view> /*args*/, net::RespWriter& reply,
               net::RespContext& /*context*/) noexcept override {
    reply.array(5);
    reply.integer(0);
    reply.integer(16);
    reply.integer(15);
    reply.integer(-1);
    reply.integer(2);
  }
};

void serve_floor(int port, std::string answer) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 1024) != 0) {
    std::perror("bind");
    std::exit(1);
  }
  const int epoll = ::epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
  static char buffer[64 << 10];
  epoll_event events[256];
  while (true) {
    const int count = ::epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener) {
        event.data.fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
        ::epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
      } else if (::recv(fd, buffer, sizeof buffer, 0) <= 0 ||
                 ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) <= 0) {
        ::close(fd);
      }
    }
  }
}

int run(bool floor, int http_port, int resp_port) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  FixedHttp http;
  std::unique_ptr<net::Io> io;
  if (floor) {
    std::string text =
        "HTTP/1.1 200 OK\r\nDate: Mon, 16 Nov 2026 04:15:52 GMT\r\nContent-Type: application/json\r\n"
        "X-RateLimit-Limit: 50\r\nX-RateLimit-Remaining: 49\r\nX-RateLimit-Reset: 60\r\nContent-Length: ";
    text += std::to_string(kDecision.size()) + "\r\n\r\n";
    text += kDecision;
    std::thread(serve_floor, http_port, text).detach();
    std::thread(serve_floor, resp_port, std::string(kThrottled)).detach();
  } else {
    std::vector<net::Listener> listeners(2);
    listeners[0].name = "http";
    listeners[0].address = "127.0.0.1:" + std::to_string(http_port);
    listeners[0].make = [&http](const net::Peer& peer) { return net::make_http_session(http, peer); };
    listeners[1].name = "resp";
    listeners[1].address = "127.0.0.1:" + std::to_string(resp_port);
    listeners[1].make = [](const net::Peer&) { return net::make_resp_session(std::make_unique<FixedResp>()); };
    Result<std::unique_ptr<net::Io>> opened = net::Io::open(std::move(listeners), {});
    if (!opened) {
      std::fprintf(stderr, "%s\n", opened.error().message.c_str());
      return 1;
    }
    io = std::move(*opened);
    io->start();
  }
  int signal = 0;
  sigwait(&signals, &signal);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto us = [](const timeval& time) { return static_cast<long long>(time.tv_sec) * 1'000'000 + time.tv_usec; };
  std::printf("%lld us of CPU (%lld user, %lld system), at most %ld kB\n", us(used.ru_utime) + us(used.ru_stime),
              us(used.ru_utime), us(used.ru_stime), used.ru_maxrss);
  std::fflush(stdout);
  if (floor) std::_Exit(0);
  return 0;
}

}  // namespace
}  // namespace headgate::bench

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "io" && mode != "floor") {
    std::fprintf(stderr, "usage: %s io|floor [HTTP_PORT RESP_PORT]\n", argv[0]);
    return 2;
  }
  return headgate::bench::run(mode == "floor", argc > 2 ? std::atoi(argv[2]) : 7170,
                              argc > 3 ? std::atoi(argv[3]) : 7179);
}
