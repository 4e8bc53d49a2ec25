// A real redis-server on a free port of this machine, with a folder of its own; gone when the test is over.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/redis/command.h"
#include "support/cells.h"

namespace headgate::test {

class RedisServer {
 public:
  explicit RedisServer(std::vector<std::string> extra_args = {}) : extra_args_(std::move(extra_args)) { start(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer() { kill(); }

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& folder() const { return folder_.path().native(); }

  // At once, without a word to anybody.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Keeps its connections and answers nothing until cont().
  void stop() const { ::kill(pid_, SIGSTOP); }
  void cont() const { ::kill(pid_, SIGCONT); }
  // With nothing in it, on the same port.
  void restart() {
    kill();
    launch();
    if (!await()) throw std::runtime_error("redis-server did not start again");
  }

 private:
  // A port may be taken between finding it free and using it: then another is tried.
  void start() {
    for (int attempt = 0; attempt < 5; ++attempt) {
      port_ = free_port();
      launch();
      if (await()) return;
      kill();
    }
    throw std::runtime_error("redis-server does not start");
  }

  static int free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    ::close(fd);
    if (!bound) throw std::runtime_error("no free port");
    return ntohs(address.sin_port);
  }

  void launch() {
    std::vector<std::string> args{"redis-server",
                                  "--port",
                                  std::to_string(port_),
                                  "--bind",
                                  "127.0.0.1",
                                  "--save",
                                  "",
                                  "--appendonly",
                                  "no",
                                  "--dir",
                                  folder(),
                                  "--daemonize",
                                  "no",
                                  "--logfile",
                                  folder() + "/log"};
    args.insert(args.end(), extra_args_.begin(), extra_args_.end());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("no process for redis-server");
    if (pid_ == 0) {
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
  }

  // False: it has ended, or takes too long.
  [[nodiscard]] bool await() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (std::chrono::steady_clock::now() < deadline) {
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        return false;
      }
      const std::unique_ptr<redisContext, void (*)(redisContext*)> context(::redisConnect("127.0.0.1", port_),
                                                                           ::redisFree);
      if (context != nullptr && context->err == 0) {
        // Any answer will do: it may want a password first.
        auto* reply = static_cast<redisReply*>(::redisCommand(context.get(), "PING"));
        if (reply != nullptr) {
          ::freeReplyObject(reply);
          return true;
        }
      }
      std::this_thread::yield();
    }
    return false;
  }

  std::vector<std::string> extra_args_;
  TempFolder folder_;
  int port_ = 0;
  pid_t pid_ = -1;
};

// Says a command and waits for the answer, one at a time: a Caller for tests that need no other.
class PlainCaller final : public store::redis::Caller {
 public:
  explicit PlainCaller(int port) : context_(::redisConnect("127.0.0.1", port), ::redisFree) {
    if (context_ == nullptr || context_->err != 0) throw std::runtime_error("no connection to redis-server");
  }

  void call(store::redis::Command command, Done done) override {
    ++calls;
    Reply reply = say(command.wire);
    if (command.script != nullptr && reply->type == REDIS_REPLY_ERROR &&
        std::string_view(reply->str).starts_with("NOSCRIPT")) {
      const std::string_view words[] = {"SCRIPT", "LOAD", command.script->text};
      std::string load;
      store::redis::append_words(words, load);
      if (const Reply loaded = say(load); std::string(loaded->str) != command.script->sha1) {
        throw std::runtime_error("SCRIPT LOAD: " + std::string(loaded->str));
      }
      reply = say(command.wire);
    }
    if (reply->type == REDIS_REPLY_ERROR) {
      done(Error{ErrorCode::kIo, std::string(reply->str, reply->len)});
    } else {
      done(store::redis::Reply(reply.get()));
    }
  }

  // A command and its answer as text or number, for what tests look at.
  std::string ask(const std::vector<std::string_view>& words) {
    std::string wire;
    store::redis::append_words(words, wire);
    const Reply reply = say(wire);
    if (reply->type == REDIS_REPLY_INTEGER) return std::to_string(reply->integer);
    return reply->str == nullptr ? std::string() : std::string(reply->str, reply->len);
  }

  int calls = 0;

 private:
  using Reply = std::unique_ptr<redisReply, void (*)(void*)>;
  Reply say(const std::string& wire) {
    void* reply = nullptr;
    if (::redisAppendFormattedCommand(context_.get(), wire.data(), wire.size()) != REDIS_OK ||
        ::redisGetReply(context_.get(), &reply) != REDIS_OK) {
      throw std::runtime_error(std::string("redis: ") + context_->errstr);
    }
    return {static_cast<redisReply*>(reply), ::freeReplyObject};
  }

  std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
};

}  // namespace headgate::test
