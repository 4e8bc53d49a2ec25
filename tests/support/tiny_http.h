// A tiny HTTP server over plain sockets: gives the answers that were set, in order, and records the requests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace headgate::test {

class TinyHttp {
 public:
  struct Request {
    std::string head;
    std::string body;
    // The value of a header, given as it is sent.
    [[nodiscard]] std::string header(const std::string& name) const {
      const std::size_t at = head.find("\r\n" + name + ": ");
      if (at == std::string::npos) return "";
      const std::size_t begin = at + name.size() + 4;
      return head.substr(begin, head.find("\r\n", begin) - begin);
    }
  };

  // One status for each request; the last one for all that follow. 0: takes the request and never answers.
  explicit TinyHttp(std::vector<int> statuses) : statuses_(std::move(statuses)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, plain, length) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, plain, &length) != 0 || ::pipe(wake_) != 0) {
      throw std::runtime_error("no socket");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  TinyHttp(const TinyHttp&) = delete;
  TinyHttp& operator=(const TinyHttp&) = delete;
  ~TinyHttp() {
    (void)!::write(wake_[1], "x", 1);
    thread_.join();
    for (const int descriptor : {listener_, wake_[0], wake_[1]}) ::close(descriptor);
  }

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/hook"; }

  // Waits until so many requests have come.
  std::vector<Request> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::seconds{20}, [&] { return requests_.size() >= count; })) {
      throw std::runtime_error("no request came");
    }
    return requests_;
  }

 private:
  // False: the server ends.
  bool readable(int descriptor) {
    pollfd both[2] = {{descriptor, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    return ::poll(both, 2, -1) >= 0 && both[1].revents == 0;
  }

  void run() {
    while (readable(listener_)) {
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      const bool go_on = serve(connection);
      ::close(connection);
      if (!go_on) return;
    }
  }

  bool serve(int connection) {
    std::string bytes;
    while (readable(connection)) {
      char buffer[4096];
      const ssize_t got = ::read(connection, buffer, sizeof(buffer));
      if (got <= 0) return true;
      bytes.append(buffer, static_cast<std::size_t>(got));
      while (answer_one(connection, bytes)) {
      }
    }
    return false;
  }

  bool answer_one(int connection, std::string& bytes) {
    const std::size_t end = bytes.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    Request request{bytes.substr(0, end + 2), ""};
    const std::size_t length = std::stoul("0" + request.header("Content-Length"));
    if (bytes.size() < end + 4 + length) return false;
    request.body = bytes.substr(end + 4, length);
    bytes.erase(0, end + 4 + length);
    const int status = statuses_[std::min(answered_++, statuses_.size() - 1)];
    {
      const std::lock_guard guard(mutex_);
      requests_.push_back(std::move(request));
    }
    came_.notify_all();
    if (status != 0) {
      const std::string answer = "HTTP/1.1 " + std::to_string(status) + " x\r\nContent-Length: 2\r\n\r\nok";
      (void)!::write(connection, answer.data(), answer.size());
    }
    return true;
  }

  std::vector<int> statuses_;
  std::size_t answered_ = 0;
  int listener_ = -1;
  int wake_[2] = {-1, -1};
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Request> requests_;
  std::thread thread_;
};

}  // namespace headgate::test
