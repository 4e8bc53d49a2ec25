// Deduplicates notices: one condition is reported once, and then counted until its cool-down is over.
//
// condition_of() says what a condition is. Not safe for concurrent use: its owner locks. Keeps the kMost conditions
// that came last; one that was evicted is reported as if it were new.
#pragma once

#include <cstdint>
#include <string>

#include "observe/notices.h"
#include "observe/recent.h"

namespace headgate::observe {

class Repeats {
 public:
  static constexpr std::size_t kMost = 10'000;

  // Counts it in. False: one of its condition is on its way already, and will be told with this one counted.
  [[nodiscard]] bool arrives(const Notice& notice);

  struct Turn {
    std::uint64_t count = 1;  // since the condition began, or was quiet for a whole cool-down
    bool again = false;       // it was told within the cool-down
  };
  // When it is told.
  [[nodiscard]] Turn leaves(const Notice& notice);

 private:
  struct Condition {
    std::uint64_t count = 0;
    Nanos last{0};     // when it last arrived
    Nanos told_at{0};  // 0: not yet
    bool queued = false;
  };
  Recent<Condition> conditions_{kMost};
};

}  // namespace headgate::observe
