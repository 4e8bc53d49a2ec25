// Why a check cannot be answered.
#pragma once

#include <string>

#include "headgate/check.h"

namespace headgate::engine {

inline constexpr std::size_t kShown = 60;  // bytes of what came, in a message

// The quick question.
[[nodiscard]] bool is_fine(const Check& check) noexcept;
// What is wrong with a check that is not fine: what must hold and what came, naming the field as JSON does.
[[nodiscard]] std::string problem_of(const Check& check);

}  // namespace headgate::engine
