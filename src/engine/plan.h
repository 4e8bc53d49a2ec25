// What one check would charge, in the order of the policies that ask for it.
#pragma once

#include <absl/container/inlined_vector.h>

#include "engine/engine.h"

namespace headgate::engine {

struct Engine::Plan {
  absl::InlinedVector<store::Charge, 8> charges;
  absl::InlinedVector<const WorkingLimit*, 8> limits;  // beside charges
  Nanos patience{0};                                   // the most that any charge may be waited for
  bool holds_slots = false;
};

}  // namespace headgate::engine
