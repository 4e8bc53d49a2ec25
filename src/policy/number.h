// Numbers, durations and rates as people write them, read exactly: 0.1s is a hundred million nanoseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/wide.h"
#include "headgate/limit.h"

namespace headgate::policy {

// digits * 10^exponent.
struct Decimal {
  std::int64_t digits = 0;
  int exponent = 0;
  [[nodiscard]] double value() const noexcept;
  // Multiplied by `scale`, if that is whole and fits; a multiple too large reads as the largest there is.
  [[nodiscard]] std::optional<std::int64_t> times(std::int64_t scale) const noexcept;
  [[nodiscard]] bool is_whole() const noexcept { return exponent >= 0; }
};

// -12, 2.50, 1e6: at most 18 digits that matter and an exponent of at most 30. Trailing zeros are taken off, so a whole
// number has an exponent of 0 or more. Spaces around it do not matter.
[[nodiscard]] std::optional<Decimal> parse_decimal(std::string_view text) noexcept;

// 500ms, 1.5h, 7d, or a bare number of seconds. One too long to count reads as the longest there is.
[[nodiscard]] std::optional<Nanos> parse_duration(std::string_view text) noexcept;

// What may follow the slash of 10/min: a unit, or a duration.
[[nodiscard]] std::optional<Nanos> parse_per(std::string_view text) noexcept;

// 10, 10/s, 0.5/s, 10/min, in lowest terms and multiplied by `scale`. A rate too large or too slow to count reads as
// zero, which no limit takes.
[[nodiscard]] std::optional<Rate> parse_rate(std::string_view text, std::int64_t scale) noexcept;

// 10% or 0.1.
[[nodiscard]] std::optional<double> parse_fraction(std::string_view text) noexcept;

}  // namespace headgate::policy
