// The shares that one owner may have of the engine's bounded tables.
#pragma once

#include "base/shares.h"

namespace headgate::engine {

using base::Shares;

}  // namespace headgate::engine
