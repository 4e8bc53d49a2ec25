// Listening sockets, and who is at the other end of accepted ones.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/descriptor.h"
#include "headgate/result.h"
#include "net/io.h"

namespace headgate::net {

struct Bound {
  std::vector<base::Descriptor> sockets;  // one for each thread
  std::string address;                    // what it came to: "127.0.0.1:40123"
  std::string unlink;                     // the path of a unix socket that is ours to remove
};

// Listening sockets for one listener; errors begin with its name and address. TCP sockets share a port by SO_REUSEPORT,
// so that the kernel spreads connections over the threads; unix and inherited sockets are one socket, which all threads
// accept from.
[[nodiscard]] Result<Bound> bind_listener(const Listener& listener, int threads);

[[nodiscard]] Peer peer_of(const sockaddr_storage& address);

}  // namespace headgate::net
