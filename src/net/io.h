// The io threads: they accept connections, and carry bytes between sockets and sessions.
//
// One event loop per thread, each with its own listening sockets (SO_REUSEPORT), so that a connection lives and dies on
// one thread. All answers to what one read brought leave in one write. Slow peers cost memory up to stated bounds and
// none of other peers' time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headgate/result.h"
#include "net/places.h"
#include "net/session.h"

namespace headgate::net {

struct TlsFiles {
  std::string cert;       // PEM, with its chain; empty: no TLS
  std::string key;        // PEM
  std::string client_ca;  // PEM; empty: clients need no certificate
  [[nodiscard]] bool enabled() const noexcept { return !cert.empty(); }
};

struct Listener {
  std::string name;     // "http": in messages and metrics
  std::string address;  // "127.0.0.1:7070", "[::1]:0", "unix:/run/headgate.sock"; port 0 picks one
  int inherited = -1;   // a listening socket given by the service manager, in place of `address`
  bool tls = false;     //
  std::string alpn;     // with TLS: "http/1.1" or "h2"
  SessionMaker make;    // called on the connection's thread
};

struct IoOptions {
  int threads = 1;
  TlsFiles tls;
  PlaceRules places;                               // over all listeners; those that get none are closed and counted
  std::size_t max_buffered = 128 << 20;            // over all connections; see BufferBudget
  Nanos request_within{std::chrono::seconds{10}};  // from its first byte to its last (a TLS handshake too)
  Nanos write_within{std::chrono::seconds{10}};    // a peer that takes nothing for so long is closed
  std::function<void(int thread)> on_thread_start;
};

struct IoCounts {
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;    // no place was left, or their address had as many as it may
  std::uint64_t evicted = 0;    // proved nothing, and made room for a newcomer
  std::uint64_t timed_out = 0;  // slow or idle
  std::uint64_t shed = 0;       // held too much while buffers or memory were short
  std::uint64_t open = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
};

class Io {
 public:
  // Binds every listener, or says which one could not be and why. Nothing is accepted before start().
  [[nodiscard]] static Result<std::unique_ptr<Io>> open(std::vector<Listener> listeners, const IoOptions& options);
  virtual ~Io() = default;

  // The address that a listener really has (its port, if 0 was asked for). Empty: there is none of that name.
  [[nodiscard]] virtual std::string address(std::string_view name) const = 0;
  virtual void start() = 0;
  // Stops accepting, lets sessions end by themselves, closes the rest at the deadline, and joins the threads.
  virtual void stop(Nanos drain_within) = 0;
  [[nodiscard]] virtual IoCounts counts(std::string_view listener) const = 0;
  // Reads the certificate again; connections that are open keep theirs.
  virtual Result<void> reload_tls() = 0;
};

// "host:port" taken apart and checked; an empty host is refused.
struct Address {
  std::string host;
  std::uint16_t port = 0;
  std::string path;  // of a unix socket
};
[[nodiscard]] Result<Address> parse_address(std::string_view text);
// Whether only this machine can reach it.
[[nodiscard]] bool is_loopback(const Address& address) noexcept;

}  // namespace headgate::net
