// How a setting out of its range is refused: the field, the range and what came.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "base/text.h"
#include "headgate/result.h"

namespace headgate::control {

// The shortest text that reads back as this number: "0.8", "nan".
[[nodiscard]] inline std::string format_number(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), end.ptr};
}

// A load as people read it, three digits of it: "0.861".
[[nodiscard]] inline std::string format_load(double load) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), load, std::chars_format::general, 3);
  return {text.data(), end.ptr};
}

template <class T>
struct Range {
  T least;
  T most;
  // False for NaN.
  [[nodiscard]] bool holds(T value) const noexcept { return value >= least && value <= most; }
};

[[nodiscard]] inline Error out_of_range(std::string_view field, Range<double> range, double got) {
  return {ErrorCode::kInvalidArgument, std::string(field) + " must be between " + format_number(range.least) + " and " +
                                           format_number(range.most) + ", got " + format_number(got)};
}

[[nodiscard]] inline Error out_of_range(std::string_view field, Range<Nanos> range, Nanos got) {
  return {ErrorCode::kInvalidArgument, std::string(field) + " must be between " + base::format_duration(range.least) +
                                           " and " + base::format_duration(range.most) + ", got " +
                                           base::format_duration(got)};
}

}  // namespace headgate::control
