#include "observe/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>

#include "base/rfc3339.h"
#include "observe/one_line.h"

namespace headgate::observe {
namespace {

std::atomic<LogLevel> least{LogLevel::kInfo};
std::atomic<LogFormat> chosen_format{LogFormat::kText};
std::atomic<bool> coloured{false};

// Never destroyed: other objects may still log while the program ends.
spdlog::logger& logger() {
  static spdlog::logger* const kLogger = [] {
    auto* log = new spdlog::logger("headgate", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    log->set_pattern("%v");  // lines come whole, see format_line()
    log->set_level(spdlog::level::trace);
    log->flush_on(spdlog::level::trace);
    return log;
  }();
  return *kLogger;
}

// Always with milliseconds, so that columns stay columns.
std::string instant(Nanos time) {
  using std::chrono::seconds;
  const seconds whole = std::chrono::floor<seconds>(time);
  std::string text = base::format_rfc3339(whole);
  text.pop_back();  // Z
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time - whole).count();
  return fmt::format("{}.{:03}Z", text, millis);
}

const char* colour_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug: return "\033[2m";
    case LogLevel::kInfo: return "\033[32m";
    case LogLevel::kWarn: return "\033[33m";
    default: return "\033[31m";
  }
}

void append_number(double number, LogFormat format, std::string& out) {
  if (std::isfinite(number) || format == LogFormat::kText) {
    fmt::format_to(std::back_inserter(out), "{}", number);
  } else {
    out += "null";
  }
}

void append_value(const Field& field, LogFormat format, std::string& out) {
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    format == LogFormat::kJson ? append_quoted(*text, out) : append_word(*text, out);
  } else if (const auto* whole = std::get_if<std::int64_t>(&field.value)) {
    fmt::format_to(std::back_inserter(out), "{}", *whole);
  } else if (const auto* number = std::get_if<double>(&field.value)) {
    append_number(*number, format, out);
  } else {
    out += std::get<bool>(field.value) ? "true" : "false";
  }
}

// An event is several words, so that only what could forge something has it quoted.
void append_event(std::string_view event, std::string& out) {
  std::string quoted;
  append_quoted(event, quoted);
  const bool as_it_is = quoted.size() == event.size() + 2;
  out += as_it_is ? event : std::string_view(quoted);
}

std::string json_line(const LogLine& line) {
  std::string out = fmt::format(R"({{"time":"{}","level":"{}","event":)", instant(line.time), to_string(line.level));
  append_quoted(line.event, out);
  for (const Field& field : line.fields) {
    out += ',';
    append_quoted(field.name, out);
    out += ':';
    append_value(field, LogFormat::kJson, out);
  }
  out += '}';
  return out;
}

std::string text_line(const LogLine& line, bool colour) {
  const char* begin = colour ? colour_of(line.level) : "";
  std::string out =
      fmt::format("{} {}{:<5}{} ", instant(line.time), begin, to_string(line.level), colour ? "\033[0m" : "");
  append_event(line.event, out);
  for (const Field& field : line.fields) {
    out += ' ';
    append_word(field.name, out);
    out += '=';
    append_value(field, LogFormat::kText, out);
  }
  return out;
}

}  // namespace

const char* to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kError: return "error";
    case LogLevel::kOff: return "off";
  }
  return "unknown";
}

const char* to_string(LogFormat format) noexcept { return format == LogFormat::kJson ? "json" : "text"; }

std::optional<LogLevel> log_level_of(std::string_view text) noexcept {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError, LogLevel::kOff}) {
    if (text == to_string(level)) return level;
  }
  return std::nullopt;
}

std::optional<LogFormat> log_format_of(std::string_view text) noexcept {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    if (text == to_string(format)) return format;
  }
  return std::nullopt;
}

void set_up_log(const LogOptions& options) {
  chosen_format.store(options.format, std::memory_order_relaxed);
  coloured.store(options.colour, std::memory_order_relaxed);
  least.store(options.level, std::memory_order_relaxed);
}

bool logs(LogLevel level) noexcept { return level >= least.load(std::memory_order_relaxed) && level != LogLevel::kOff; }

void log(LogLevel level, std::string_view event, std::initializer_list<Field> fields) noexcept {
  if (!logs(level)) return;
  try {
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    const LogLine line{
        .time = std::chrono::duration_cast<Nanos>(wall), .level = level, .event = event, .fields = fields};
    const std::string text =
        format_line(line, chosen_format.load(std::memory_order_relaxed), coloured.load(std::memory_order_relaxed));
    logger().log(spdlog::level::info, spdlog::string_view_t(text.data(), text.size()));
  } catch (...) {  // no memory for a line: the line is lost, nothing else
  }
}

std::string format_line(const LogLine& line, LogFormat format, bool colour) {
  return format == LogFormat::kJson ? json_line(line) : text_line(line, colour);
}

}  // namespace headgate::observe
