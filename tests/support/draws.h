// What property tests draw.
#pragma once

#include <rapidcheck.h>

#include "headgate/clock.h"

namespace headgate::test {

inline Nanos up_to(Nanos most) { return Nanos{*rc::gen::inRange<std::int64_t>(0, most.count() + 1)}; }

}  // namespace headgate::test
