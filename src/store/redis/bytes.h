// Numbers as the scripts pack and unpack them: little-endian, times in whole microseconds, whatever this machine does.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "headgate/clock.h"

namespace headgate::store::redis {

inline void put_bytes(std::uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}
inline void put_number(std::int64_t value, std::string& out) {
  put_bytes(std::bit_cast<std::uint64_t>(static_cast<double>(value)), 8, out);
}
inline void put_micros(Nanos value, std::string& out) { put_number(value.count() / 1000, out); }

[[nodiscard]] inline std::uint64_t get_bytes(std::string_view from, std::size_t at, int bytes) noexcept {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(from[at + static_cast<std::size_t>(i)])} << (8 * i);
  }
  return value;
}
// Whatever the bytes say, within +-2^53.
[[nodiscard]] inline std::int64_t get_number(std::string_view from, std::size_t at) noexcept {
  constexpr double kMost = 9007199254740992.0;
  const auto value = std::bit_cast<double>(get_bytes(from, at, 8));
  if (!(value > -kMost)) return -static_cast<std::int64_t>(kMost);
  return static_cast<std::int64_t>(value < kMost ? value : kMost);
}
// Whatever the bytes say, an instant that can be reckoned with.
[[nodiscard]] inline Nanos get_micros(std::string_view from, std::size_t at) noexcept {
  const std::int64_t value = get_number(from, at);
  const std::int64_t most = kMaxTime.count() / 1000;
  return Nanos{(value < 0 ? 0 : value > most ? most : value) * 1000};
}

}  // namespace headgate::store::redis
