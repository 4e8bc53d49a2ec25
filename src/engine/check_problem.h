// Why a check cannot be answered.
#pragma once

#include <string>

#include "headgate/check.h"

namespace headgate::engine {

// Empty: it can. Otherwise what must hold and what came, naming the field as JSON does.
[[nodiscard]] std::string problem_of(const Check& check);

}  // namespace headgate::engine
