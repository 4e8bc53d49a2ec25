// One-time sign-in codes and the browser sessions they become, in memory.
//
// Safe for concurrent use. Only hashes are kept, so that neither can be read out of a core dump.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/clock.h"
#include "state/secret.h"

namespace headgate::service {

// Secrets that are good until an instant; at the bound the oldest goes.
class ExpiringSecrets {
 public:
  ExpiringSecrets(std::size_t most, Nanos lifetime) : most_(most), lifetime_(lifetime) {}

  [[nodiscard]] std::string make(Nanos now);
  [[nodiscard]] bool holds(std::string_view secret, Nanos now) const;
  // True: it was good, and is no longer.
  bool take(std::string_view secret, Nanos now);

 private:
  struct Order {
    state::Sha256 hash;
    Nanos until{0};
  };
  std::size_t most_;
  Nanos lifetime_;
  mutable std::mutex mutex_;
  std::map<state::Sha256, Nanos> until_;
  std::deque<Order> order_;  // oldest first; may name what has been taken
};

}  // namespace headgate::service
