// A real redis-server on a free port, in a directory of its own, which ends with the test.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace headgate::test {

// Waits for a condition, looking often; false: it did not come true in time.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds at_most = std::chrono::seconds{60}) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

// Below the ports that the system gives to clients, so that no client that waits for a server ends up
// connected with itself; and a server of a cluster also takes the port 10000 above.
inline int free_port() {
  static std::minstd_rand random(std::random_device{}());
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(12000 + random() % 10000));
    const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (free) return ntohs(address.sin_port);
  }
  throw std::runtime_error("no free port");
}

class RedisServer {
 public:
  enum class Kind { kServer, kSentinel };

  // `arguments` as on redis-server's command line. For a sentinel they are lines of its configuration.
  explicit RedisServer(std::vector<std::string> arguments = {}, Kind kind = Kind::kServer)
      : arguments_(std::move(arguments)), kind_(kind), directory_(make_directory()) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      port_ = free_port();
      if (start()) return;
    }
    throw std::runtime_error("redis-server does not start; see " + directory_.string());
  }
  ~RedisServer() {
    kill();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::string url() const { return "redis://" + address(); }
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    connection_.reset();
  }
  void restart() {
    kill();
    if (!eventually([this] { return start(); })) throw std::runtime_error("redis-server does not start again");
  }
  void stop() const { ::kill(pid_, SIGSTOP); }
  void cont() const { ::kill(pid_, SIGCONT); }

  // The reply as text: an array's elements with blanks between them, an error as it came. Empty: there was none.
  std::string ask(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    const int count = static_cast<int>(words.size());
    // Twice, because a server that changes its role closes all connections.
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (connection_ == nullptr || connection_->err != 0) connection_.reset(connect());
      if (connection_ == nullptr || connection_->err != 0) return {};
      void* const reply = redisCommandArgv(connection_.get(), count, texts.data(), sizes.data());
      if (reply == nullptr) continue;
      std::string text = text_of(*static_cast<redisReply*>(reply));
      freeReplyObject(reply);
      return text;
    }
    return {};
  }

 private:
  struct Free {
    void operator()(redisContext* context) const noexcept { redisFree(context); }
  };

  static std::filesystem::path make_directory() {
    std::string path = (std::filesystem::temp_directory_path() / "headgate-redis-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary directory");
    return path;
  }

  static std::string text_of(const redisReply& reply) {
    if (reply.type == REDIS_REPLY_INTEGER) return std::to_string(reply.integer);
    if (reply.type == REDIS_REPLY_NIL) return "(nil)";
    if (reply.type != REDIS_REPLY_ARRAY) return {reply.str, reply.len};
    std::string text;
    for (std::size_t i = 0; i < reply.elements; ++i) text += (i == 0 ? "" : " ") + text_of(*reply.element[i]);
    return text;
  }

  [[nodiscard]] redisContext* connect() const {
    const timeval patience{5, 0};
    redisContext* context = redisConnectWithTimeout("127.0.0.1", port_, patience);
    if (context != nullptr && context->err == 0) redisSetTimeout(context, patience);
    return context;
  }

  [[nodiscard]] std::vector<std::string> command_line() const {
    if (kind_ == Kind::kSentinel) {
      const std::filesystem::path file = directory_ / "sentinel.conf";
      if (!std::filesystem::exists(file)) {  // it writes what it learns into it
        std::ofstream out(file);
        out << "port " << port_ << "\nbind 127.0.0.1\n";
        for (const std::string& line : arguments_) out << line << "\n";
      }
      return {"redis-server", file.string(), "--sentinel"};
    }
    std::vector<std::string> line = {"redis-server", "--port", std::to_string(port_), "--bind", "127.0.0.1",
                                     "--save",       "",       "--appendonly",        "no"};
    line.insert(line.end(), arguments_.begin(), arguments_.end());
    return line;
  }

  // Another process may have taken the port first. One with a password does not say.
  [[nodiscard]] bool is_ours(const std::string& info) const {
    return info.find("process_id:" + std::to_string(pid_) + "\r") != std::string::npos || info.starts_with("NOAUTH");
  }

  // False: it ended at once, as when another process took the port.
  bool start() {
    const std::vector<std::string> line = command_line();
    std::vector<char*> argv;
    for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const std::string where = directory_.string();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::chdir(where.c_str()) != 0) ::_exit(127);
      if (::dup2(::open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDOUT_FILENO) < 0) ::_exit(127);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    bool ended = false;
    const bool answers = eventually([&] {
      ended = ::waitpid(pid_, nullptr, WNOHANG) == pid_;
      return ended || is_ours(ask({"INFO", "server"}));
    });
    if (ended) pid_ = -1;
    return answers && !ended;
  }

  const std::vector<std::string> arguments_;
  const Kind kind_;
  const std::filesystem::path directory_;
  int port_ = 0;
  pid_t pid_ = -1;
  std::unique_ptr<redisContext, Free> connection_;
};

}  // namespace headgate::test
