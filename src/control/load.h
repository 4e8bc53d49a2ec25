// Temporary: replaced by the control branch.
#pragma once
#include <cstdint>
namespace headgate::control {
enum class LoadLevel : std::uint8_t { kLow, kNormal, kHigh, kCritical };
}  // namespace headgate::control
