// A limit at a fraction of its strength, always made from its base.
#pragma once

#include "headgate/limit.h"

namespace headgate::engine {

// Numbers and rates times the factor, rounded down, at least one unit. A factor of 1 gives the limit itself, and so
// does any factor for a quota: a budget that people were promised does not shrink because a machine is busy.
[[nodiscard]] Limit scaled(const Limit& base, double factor);

// The part of a limit that one of several nodes may admit alone: a quota's as well. At least one unit.
[[nodiscard]] Limit share_of(const Limit& limit, double share);

}  // namespace headgate::engine
