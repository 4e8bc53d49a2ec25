// Who may have a connection: how many there are, which of them are kept, and the share of one address.
//
// Safe for concurrent use. Entering and leaving take a lock, and happen once for each connection; everything else is a
// load.
//
// Most places are for all. At that number a newcomer is let in at the expense of a connection that has proven nothing,
// or, where there is none, into the kept places: their first half is for administrators and for the addresses that
// places are kept for, their second half for those addresses alone, and to stay in it takes an administrator.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headgate/result.h"
#include "net/session.h"

namespace headgate::net {

// An address as connections are counted by it: IPv4, or the /64 of IPv6. All zeros: a unix socket.
using CountedAddress = std::array<std::uint8_t, 16>;

// "127.0.0.0/8", "::1", "10.1.2.3".
struct Network {
  std::array<std::uint8_t, 16> prefix{};  // IPv4 as ::ffff:a.b.c.d
  int bits = 0;
};
[[nodiscard]] Result<Network> parse_network(std::string_view text);

struct PlaceRules {
  std::size_t most = 20'000;  // connections in all
  std::size_t kept = 128;     // of these; at most a quarter of them
  std::size_t per_address =
      2'000;                      // from one address or /64 that no places are kept for; 0: as many as there are places
  std::vector<Network> kept_for;  // unix sockets always are
};

class Places {
 public:
  explicit Places(PlaceRules rules);

  // One connection's claim on a place.
  struct Claim {
    CountedAddress address{};
    bool kept = false;  // places are kept for its address
  };
  [[nodiscard]] Claim claim_of(const sockaddr_storage& from) const noexcept;
  // Counts a newcomer. False: it is not counted, since its address has as many as it may.
  [[nodiscard]] bool enter(const Claim& claim);
  void leave(const Claim& claim) noexcept;

  // Whether those counted are more than the places for all.
  [[nodiscard]] bool crowded() const noexcept { return open() > general_; }
  // Whether a newcomer that was counted has a kept place for the time being.
  [[nodiscard]] bool has_kept_place(const Claim& claim) const noexcept {
    return open() <= (claim.kept ? rules_.most : rules_.most - last_);
  }
  // While crowded: whether a connection of that standing keeps its place after its answer.
  [[nodiscard]] bool may_stay(const Claim& claim, Standing standing) const noexcept {
    return standing == Standing::kAdmin || (claim.kept && open() <= rules_.most - last_);
  }
  [[nodiscard]] std::size_t open() const noexcept { return open_.load(std::memory_order_relaxed); }

 private:
  struct Hash {
    std::size_t operator()(const CountedAddress& address) const noexcept;
  };

  PlaceRules rules_;
  std::size_t general_;  // places for all
  std::size_t last_;     // of those kept: the second half
  std::atomic<std::size_t> open_{0};
  std::mutex mutex_;
  std::unordered_map<CountedAddress, std::size_t, Hash> by_address_;  // at most one entry for each connection
};

}  // namespace headgate::net
