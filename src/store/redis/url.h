// A Redis URL: the address and the user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate::store::redis {

// A host and a port, or a unix socket's path.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  std::string path;

  bool operator==(const Endpoint&) const = default;
};
[[nodiscard]] std::string text_of(const Endpoint& endpoint);  // host:port, [::1]:port, unix:/path

struct Url {
  enum class Kind : std::uint8_t { kStandalone, kSentinel, kCluster };

  Kind kind = Kind::kStandalone;
  bool tls = false;
  std::string user;  // empty: the default user
  std::string password;
  std::vector<Endpoint> endpoints;  // one; or the sentinels; or servers of the cluster to begin with
  std::string master;               // what the sentinels call it
  unsigned database = 0;
};

inline constexpr std::size_t kMaxUrlBytes = 4096;
inline constexpr std::size_t kMaxUrlEndpoints = 64;

// One of
//   redis://[[user]:password@]host[:port][/database]
//   redis+sentinel://[auth@]host[:port][,host[:port]...]/master[/database]
//   redis+cluster://[auth@]host[:port][,host[:port]...]
//   unix://[auth@]/path
// where rediss is redis over TLS. User and password are percent-decoded; IPv6 addresses stand in brackets. No error
// shows any of the password.
[[nodiscard]] Result<Url> parse_url(std::string_view text);

}  // namespace headgate::store::redis
