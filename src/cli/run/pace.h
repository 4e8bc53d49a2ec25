// How a throttle factor becomes a pace: the arithmetic alone (see pacer.h and control_group.h for who applies it).
//
// A factor of 0.4 means that a command gets two fifths of the CPU time that it would take for itself.
#pragma once

#include <chrono>
#include <string>

#include "headgate/clock.h"

namespace headgate::cli {

inline constexpr Nanos kPacePeriod = std::chrono::milliseconds(100);
// Slower would not be told from stopped.
inline constexpr double kLeastFactor = 0.01;

// What a server answered, as a factor to run at: between kLeastFactor and 1. What is no number reads as 1.
[[nodiscard]] double usable_factor(double told) noexcept;

// What is added to a command's niceness: 10 up to a factor of 0.6, 5 below 1.
[[nodiscard]] int niceness(double factor) noexcept;

// Of each period, how long it runs and how long it is stopped.
struct Duty {
  Nanos run;
  Nanos stop;
};
[[nodiscard]] Duty duty(double factor) noexcept;

// The line of cpu.max for a command that could use `wanted` of `cores` at this moment: "quota period" in microseconds.
// Only what it could use is cut, or else one thread among many cores would not notice.
[[nodiscard]] std::string cpu_max(double factor, int wanted, int cores);

}  // namespace headgate::cli
