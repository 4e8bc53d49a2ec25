// "Did you mean ...?" for mistyped names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headgate::cli {

// `, did you mean "demo"?` for the nearest candidate, or nothing if none is near.
[[nodiscard]] std::string did_you_mean(std::string_view typed, std::span<const std::string> candidates);

}  // namespace headgate::cli
