// The log: one line an event, as text for people or JSON for programs, to standard error.
//
//   2026-11-16T04:05:06.789Z info  policies reloaded version=3 policies=12
//   {"time":"2026-11-16T04:05:06.789Z","level":"info","event":"policies reloaded","version":3,"policies":12}
//
// Safe for concurrent use; a line is one write, and waits only for the reader of standard error. Fields
// are values, never secrets: of a token the id is logged. Whatever a value holds, it cannot begin a line.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "headgate/clock.h"

namespace headgate::observe {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };
enum class LogFormat : std::uint8_t { kText, kJson };
[[nodiscard]] const char* to_string(LogLevel level) noexcept;  // "debug", "info", "warn", "error", "off"
[[nodiscard]] const char* to_string(LogFormat format) noexcept;
[[nodiscard]] std::optional<LogLevel> log_level_of(std::string_view text) noexcept;
[[nodiscard]] std::optional<LogFormat> log_format_of(std::string_view text) noexcept;

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  bool colour = false;
};
// At any time; until then the log is as the defaults have it.
void set_up_log(const LogOptions& options);

struct Field {
  std::string_view name;
  std::variant<std::string_view, std::int64_t, double, bool> value;
};

[[nodiscard]] bool logs(LogLevel level) noexcept;  // one load
// `event` is what happened in a few words, the same each time: "policies reloaded".
void log(LogLevel level, std::string_view event, std::initializer_list<Field> fields = {}) noexcept;

// The line that log() writes, without its end.
struct LogLine {
  Nanos time{0};  // wall clock
  LogLevel level = LogLevel::kInfo;
  std::string_view event{};
  std::initializer_list<Field> fields{};
};
[[nodiscard]] std::string format_line(const LogLine& line, LogFormat format, bool colour);

}  // namespace headgate::observe
