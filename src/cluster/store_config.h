// Where cells are, if other servers share them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "headgate/clock.h"

namespace headgate::cluster {

enum class StoreKind : std::uint8_t { kMemory, kRedis };

struct StoreConfig {
  StoreKind kind = StoreKind::kMemory;
  std::string url;                // of Redis; may hold a password
  std::string ca;                 // PEM; empty: the system's authorities
  std::string cert;               // PEM; empty: no certificate is shown
  std::string key;                // of that certificate
  std::string server_name;        // what Redis's certificate must be for; empty: the host that is connected to
  std::string sentinel_user;      // empty: the default user
  std::string sentinel_password;  // empty: as the URL says, if a sentinel wants it
  std::string prefix = "headgate:";
  std::string node;  // empty: made up on start
  Nanos deadline{std::chrono::milliseconds{250}};
  int local_percent = 0;    // of each limit, while Redis is away; 0: shared evenly among the nodes known
  int leased_percent = 10;  // of a limit, that may be out in leases over all nodes
};

}  // namespace headgate::cluster
