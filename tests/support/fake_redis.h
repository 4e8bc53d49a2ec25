// A listener in place of a Redis, which gives the answers that a test sets.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace headgate::test {

class FakeRedis {
 public:
  // Bytes to be sent for one command; called from the server's thread.
  using Answer = std::function<std::string(const std::vector<std::string>& words)>;

  explicit FakeRedis(Answer answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_, 16);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~FakeRedis() {
    stopping_ = true;
    thread_.join();
    for (const auto& [fd, ignored] : received_) ::close(fd);
    ::close(listener_);
  }
  FakeRedis(const FakeRedis&) = delete;
  FakeRedis& operator=(const FakeRedis&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int accepted() const noexcept { return accepted_; }

  // What a master answers to the greeting; empty: that was not part of it.
  static std::string greeted(const std::vector<std::string>& words) {
    if (words.at(0) == "CLIENT") return "+OK\r\n";
    if (words.at(0) == "ROLE") return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n";
    return {};
  }

 private:
  void run() {
    while (!stopping_) {
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const auto& [fd, ignored] : received_) fds.push_back({fd, POLLIN, 0});
      ::poll(fds.data(), fds.size(), 10);
      for (std::size_t i = 1; i < fds.size(); ++i) {
        if (fds[i].revents != 0) receive(fds[i].fd);
      }
      if ((fds[0].revents & POLLIN) != 0) {
        received_[::accept(listener_, nullptr, nullptr)];
        ++accepted_;
      }
    }
  }

  void receive(int fd) {
    char buffer[65536];
    const ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
    if (count <= 0) {
      ::close(fd);
      received_.erase(fd);
      return;
    }
    std::string& bytes = received_[fd];
    bytes.append(buffer, static_cast<std::size_t>(count));
    std::vector<std::string> words;
    while (take(bytes, words)) {
      const std::string reply = answer_(words);
      [[maybe_unused]] const ssize_t sent = ::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }

  // One command off the front.
  static bool take(std::string& bytes, std::vector<std::string>& words) {
    words.clear();
    std::size_t at = 0;
    const auto number = [&](std::size_t& value) {
      const std::size_t end = bytes.find("\r\n", at);
      if (end == std::string::npos) return false;
      value = std::stoul(bytes.substr(at + 1, end - at - 1));
      at = end + 2;
      return true;
    };
    std::size_t count = 0;
    if (!number(count)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t size = 0;
      if (!number(size) || bytes.size() < at + size + 2) return false;
      words.push_back(bytes.substr(at, size));
      at += size + 2;
    }
    bytes.erase(0, at);
    return true;
  }

  const Answer answer_;
  int listener_ = -1;
  int port_ = 0;
  std::map<int, std::string> received_;
  std::atomic<int> accepted_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace headgate::test
