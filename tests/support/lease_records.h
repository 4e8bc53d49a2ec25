// The lease script in C++: for simulations, and to compare the script with.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "store/redis/lease_script.h"

namespace headgate::test {

// The records of one cell. Times are the store's, in whole microseconds.
class LeaseRecord {
 public:
  std::optional<store::redis::Held> hold(const std::string& node, const store::redis::Hold& hold, std::int64_t now) {
    const std::int64_t ttl = std::chrono::ceil<std::chrono::microseconds>(hold.ttl).count();
    if (now >= expires_) *this = {};
    if (nodes_.empty()) look_ = now + ttl;
    auto found = nodes_.find(node);
    if (found != nodes_.end() && hold.number <= found->second.number) return std::nullopt;
    if (now >= look_) look_ = reclaim(now, ttl);

    found = nodes_.find(node);
    const Units own = found == nodes_.end() ? 0 : found->second.units;
    const Units room = std::max<Units>(0, hold.cap - (out_ - own));
    Units held = std::min(hold.left, room);
    const Units grant = std::min(hold.want, (room - held + 1) / 2);
    if (grant >= hold.least) held += grant;
    out_ += held - own;
    if (held > 0) {
      nodes_[node] = {held, now + ttl, hold.number};
    } else {
      nodes_.erase(node);
    }
    expires_ = now + (ttl + 499) / 500 * 1000;
    return store::redis::Held{held, out_};
  }

  [[nodiscard]] Units out() const noexcept { return out_; }

 private:
  struct Node {
    Units units = 0;
    std::int64_t until = 0;
    std::uint64_t number = 0;
  };

  std::int64_t reclaim(std::int64_t now, std::int64_t ttl) {
    std::int64_t first = now + ttl;
    for (auto it = nodes_.begin(); it != nodes_.end();) {
      if (it->second.until <= now) {
        out_ -= it->second.units;
        it = nodes_.erase(it);
      } else {
        first = std::min(first, it->second.until);
        ++it;
      }
    }
    return std::max(first, now + ttl / 4);
  }

  std::map<std::string, Node> nodes_;
  Units out_ = 0;
  std::int64_t look_ = 0;
  std::int64_t expires_ = 0;
};

}  // namespace headgate::test
