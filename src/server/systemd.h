// Talks to the service manager as systemd has it: says how the server is, and takes the sockets it was given.
//
// Done by hand, since it is a datagram and three variables. Not for several threads: these read and change the
// environment, so call them where the program starts and ends. (notify() alone only reads.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate::server {

// Sends to $NOTIFY_SOCKET, such as "READY=1\nSTATUS=Listening on 127.0.0.1:7070", "RELOADING=1" or "STOPPING=1". False:
// the variable is not set, or sending failed.
bool notify(std::string_view state) noexcept;

// A listening socket of the service manager's, now ours.
struct InheritedSocket {
  std::string name;     // "http", "resp" or "grpc": FileDescriptorName= of the socket unit
  int descriptor = -1;  // closed on exec
  std::string address;  // what it is bound to: "127.0.0.1:7070", "[::1]:7070", "unix:/run/headgate.sock"
};

inline constexpr int kFirstInherited = 3;
inline constexpr int kMostInherited = 16;

// Those that $LISTEN_FDS speaks of, if they are meant for this process; the variables are unset, so that no child
// thinks they are meant for it. An Error: one of them is no listening stream socket, or has no name we know, or one
// that another has too.
[[nodiscard]] Result<std::vector<InheritedSocket>> inherited_sockets(int first = kFirstInherited);

}  // namespace headgate::server
