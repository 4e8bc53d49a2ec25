// Bytes to and from one server, over TCP or a unix socket, with TLS or without; never waiting.
#pragma once

#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "headgate/result.h"
#include "store/redis/options.h"

namespace headgate::store::redis {

// Wakes a thread that waits in epoll, from any thread, also when the client is gone.
class Waker {
 public:
  Waker();
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  void wake() noexcept;
  void clear() noexcept;

 private:
  base::Descriptor event_;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// The addresses of an endpoint, looked up on a thread of its own unless they are numbers: resolvers take seconds when
// they are ill. The thread is detached, so nothing has to wait for it.
class Lookup {
 public:
  // `waker` is told when it is done.
  static std::shared_ptr<Lookup> start(const Endpoint& endpoint, std::shared_ptr<Waker> waker);

  [[nodiscard]] bool done() const;
  [[nodiscard]] std::vector<SocketAddress> addresses() const;
  [[nodiscard]] std::string why() const;  // there are none

 private:
  bool resolve(const Endpoint& endpoint, int flags);
  void finish(std::vector<SocketAddress> addresses, std::string why);

  mutable std::mutex mutex_;
  bool done_ = false;
  std::vector<SocketAddress> addresses_;
  std::string why_;
};

// What a client shows and believes. Shared by its connections; immutable.
class TlsRules {
 public:
  // Reads the files, or says which of them is wrong.
  [[nodiscard]] static Result<std::shared_ptr<const TlsRules>> read(const TlsOptions& options);
  [[nodiscard]] SSL_CTX* get() const noexcept { return context_.get(); }
  [[nodiscard]] const std::string& server_name() const noexcept { return server_name_; }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  };
  std::unique_ptr<SSL_CTX, Free> context_;
  std::string server_name_;
};

class Stream {
 public:
  enum class Moved : std::uint8_t { kSome, kWantRead, kWantWrite, kEnded, kFailed };

  // Begins to connect; false: why() says why not.
  [[nodiscard]] bool connect(const SocketAddress& address);
  // When the socket has become writable: whether it is connected.
  [[nodiscard]] bool connected();
  // Then, for TLS: begin once, shake until it is kSome.
  void begin_tls(const TlsRules& rules, const std::string& host);
  [[nodiscard]] Moved shake() noexcept;

  [[nodiscard]] Moved read(char* data, std::size_t size, std::size_t& count) noexcept;
  [[nodiscard]] Moved write(const char* data, std::size_t size, std::size_t& count) noexcept;
  void close() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] std::string why() const;  // what failed last
  [[nodiscard]] bool failed_in_tls() const noexcept { return tls_error_ != 0; }

 private:
  struct Free {
    void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
  };
  [[nodiscard]] Moved outcome(int result) noexcept;
  [[nodiscard]] Moved outcome_of_socket(ssize_t result) noexcept;
  void hear_why() noexcept;

  base::Descriptor socket_;
  std::unique_ptr<SSL, Free> ssl_;
  int error_ = 0;                // errno
  unsigned long tls_error_ = 0;  // of OpenSSL; 0: errno tells
};

}  // namespace headgate::store::redis
