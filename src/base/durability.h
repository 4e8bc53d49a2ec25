// When a change is safe on disk.
#pragma once

#include <cstdint>

namespace headgate::base {

enum class Durability : std::uint8_t {
  kAsync,  // some time after it was answered
  kSync,   // before it is answered
};

}  // namespace headgate::base
