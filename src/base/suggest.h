// "Did you mean ...?" for mistyped names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headgate::base {

// The candidate that was probably meant, or nullptr if none is near.
[[nodiscard]] const std::string* nearest(std::string_view typed, std::span<const std::string> candidates);

// `, did you mean "demo"?` for the nearest candidate, or nothing if none is near.
[[nodiscard]] std::string did_you_mean(std::string_view typed, std::span<const std::string> candidates);

}  // namespace headgate::base
