// Names what is wrong when it begins, not each time it is met.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "headgate/clock.h"

namespace headgate::store::redis {

// A function of what it is told; on one thread.
class Problems {
 public:
  static constexpr Nanos kQuiet = std::chrono::seconds{10};  // not met for so long, a problem is over
  static constexpr std::size_t kMaxKinds = 64;               // further ones are all "OTHER"

  // True: it has just begun. `kind` is what it is to be called.
  bool begins(std::string_view& kind, Nanos now) {
    auto found = met_.find(kind);
    if (found == met_.end() && met_.size() >= kMaxKinds) {
      kind = "OTHER";
      found = met_.find(kind);
    }
    if (found == met_.end()) {
      met_.emplace(kind, now);
      return true;
    }
    const bool begins = now - found->second >= kQuiet;
    found->second = now;
    return begins;
  }

 private:
  std::map<std::string, Nanos, std::less<>> met_;
};

}  // namespace headgate::store::redis
