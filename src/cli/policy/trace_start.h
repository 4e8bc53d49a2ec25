// What is said of --start, by the commands that replay traces.
#pragma once

#include <fmt/format.h>

#include <string>

namespace headgate::cli {

inline constexpr const char* kStartWithTime =
    "--start must go with a trace whose lines have t, milliseconds from the start; the lines of this one have time";

[[nodiscard]] inline std::string not_a_start(const std::string& came) {
  return fmt::format("--start must be an instant such as 2026-03-28T15:00:00Z, or epoch milliseconds, got \"{}\"",
                     came);
}

}  // namespace headgate::cli
