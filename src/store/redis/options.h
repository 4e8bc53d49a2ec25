// How a client reaches Redis, and whom it tells how that goes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/clock.h"
#include "store/redis/url.h"

namespace headgate::store::redis {

struct TlsOptions {
  std::string ca_file;      // PEM; empty: the system's authorities
  std::string cert_file;    // PEM; empty: no certificate is shown
  std::string key_file;     // of that certificate
  std::string server_name;  // what certificates must be for; empty: the host that is connected to
};

struct Options {
  Url url;
  TlsOptions tls;
  Nanos deadline = std::chrono::milliseconds{250};      // of every call
  Nanos connect_timeout = std::chrono::seconds{1};      // until a connection is greeted
  std::size_t max_outstanding = 65'536;                 // calls without an answer; more are refused
  unsigned connections = 1;                             // to each server
  std::size_t max_reply_bytes = std::size_t{16} << 20;  // a longer reply ends the connection
  std::string sentinel_user;                            // with a password; empty: the default user
  std::optional<std::string> sentinel_password;         // empty: none; nothing: as the URL says, if a sentinel wants it
};

enum class State : std::uint8_t {
  kStarting,  // nothing has been reached or missed yet
  kUp,
  kDegraded,  // some servers of a cluster cannot be asked; calls for the others are
  kDown,      // calls fail at once
};

// Told from the client's thread; must not block, and must outlive the client.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_down(const std::string& why) = 0;  // was up (or starting); now degraded or down
  virtual void on_up(Nanos after) = 0;               // how long it was not
  // Something that the operator of Redis should know, when it begins: not again while it goes on. `kind` is the word
  // that Redis itself has for it, such as OOM, or one of ours in capitals.
  virtual void on_problem(std::string_view kind, const std::string& text) = 0;
  virtual void on_clock(Nanos offset) = 0;  // a server's wall clock minus ours, about once a second for each server
};

}  // namespace headgate::store::redis
