// The log: one line an event, as text for people or JSON for programs, to standard error.
//
// Safe for concurrent use. Fields are values, never secrets: whoever logs a token logs its id.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace headgate::observe {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };
enum class LogFormat : std::uint8_t { kText, kJson };
[[nodiscard]] std::optional<LogLevel> log_level_of(std::string_view text) noexcept;

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  bool colour = false;
};
void set_up_log(const LogOptions& options);

struct Field {
  std::string_view name;
  std::variant<std::string_view, std::int64_t, double, bool> value;
};

[[nodiscard]] bool logs(LogLevel level) noexcept;  // one load
// `event` is what happened in a few words, the same each time: "policies reloaded".
void log(LogLevel level, std::string_view event, std::initializer_list<Field> fields = {}) noexcept;

}  // namespace headgate::observe
