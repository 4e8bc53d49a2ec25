// What every policy makes of one check, and why: the answer of Engine::explain().
#pragma once

#include <string>
#include <vector>

#include "engine/check_decision.h"
#include "headgate/check.h"

namespace headgate::engine {

// One policy, as explain() sees it.
struct Explained {
  const policy::Policy* policy = nullptr;
  std::string why_not;  // empty: it matches
  std::string key;      // "agent=A session=s1"
  bool enforced = true;
  std::string variant;
  struct Cell {
    std::string limit;  // "sliding_window 50/60s"
    double capacity = 0;
    double remaining = 0;
    Nanos reset_after{0};
    bool fits = true;
  };
  std::vector<Cell> cells;
};

// Why a policy has no part in the decision: it does not match, or counts a unit that the check has no cost in. Empty:
// it has one.
[[nodiscard]] std::string why_not(const Explained& about, const Check& check);

struct Explanation {
  CheckDecision decision;  // as a peek
  std::vector<Explained> policies;
};

}  // namespace headgate::engine
