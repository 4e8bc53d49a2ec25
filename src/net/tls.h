// TLS 1.2 and later, over non-blocking sockets.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "headgate/result.h"
#include "net/io.h"

namespace headgate::net {

// Certificates and rules of a listener or of a client. Shared by its connections; immutable.
class TlsContext {
 public:
  // For a client: trusts the system's certificate authorities and those of a PEM file (empty: none).
  [[nodiscard]] static Result<std::shared_ptr<TlsContext>> for_client(const std::string& ca_file);
  // Reads the files, or says which of them is wrong. `alpn`: the one protocol that is spoken; empty: not asked.
  [[nodiscard]] static Result<std::shared_ptr<TlsContext>> read(const TlsFiles& files, const std::string& alpn);
  [[nodiscard]] SSL_CTX* get() const noexcept { return context_.get(); }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  };
  TlsContext() = default;
  static int select_alpn(SSL* ssl, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                         unsigned int in_size, void* self);

  std::unique_ptr<SSL_CTX, Free> context_;
  std::string alpn_;  // as on the wire: a length, then the name
};

// How a step went. kMore: bytes moved (or the handshake is done).
enum class Moved : std::uint8_t { kMore, kWantRead, kWantWrite, kEnded, kFailed };

// One connection's TLS, on one thread. Idle ones hold no record buffers.
class TlsStream {
 public:
  TlsStream(std::shared_ptr<TlsContext> context, int fd);
  // As a client; the server's certificate must be for that name or IP address.
  TlsStream(std::shared_ptr<TlsContext> context, int fd, const std::string& server);
  [[nodiscard]] Moved handshake() noexcept;
  [[nodiscard]] Moved read(char* data, std::size_t size, std::size_t& count) noexcept;
  [[nodiscard]] Moved write(const char* data, std::size_t size, std::size_t& count) noexcept;
  // Bytes that were received and can be read without the socket becoming readable.
  [[nodiscard]] bool pending() const noexcept { return SSL_pending(ssl_.get()) > 0; }
  void shut_down() noexcept;  // says goodbye, without waiting for the answer
  // After a handshake that failed: what is wrong with the peer's certificate; empty: nothing.
  [[nodiscard]] std::string distrust() const;
  // The common name of the client's certificate, which was verified; empty: it has none.
  [[nodiscard]] std::string common_name() const;

 private:
  struct Free {
    void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
  };
  [[nodiscard]] Moved outcome(int result) noexcept;

  std::shared_ptr<TlsContext> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace headgate::net
