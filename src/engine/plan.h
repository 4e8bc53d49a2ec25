// What one check would charge, in the order of the policies that ask for it.
#pragma once

#include "base/bounded_array.h"
#include "engine/engine.h"

namespace headgate::engine {

struct Engine::Plan {
  base::BoundedArray<store::Charge, store::kMaxCharges> charges;
  base::BoundedArray<const WorkingLimit*, store::kMaxCharges> limits;  // beside charges
  Nanos patience{0};                                                   // the most that any charge may be waited for
  bool holds_slots = false;
};

}  // namespace headgate::engine
