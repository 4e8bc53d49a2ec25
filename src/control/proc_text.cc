#include "control/proc_text.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace headgate::control {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// Takes the next word off the front; empty at the end.
std::string_view take_word(std::string_view& text) {
  const std::size_t start = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t end = std::min(text.find_first_of(kBlanks, start), text.size());
  const std::string_view word = text.substr(start, end - start);
  text.remove_prefix(end);
  return word;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

template <class T>
std::optional<T> to_number(std::string_view word) {
  T number{};
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  if (word.empty() || read.ec != std::errc() || read.ptr != word.data() + word.size()) return std::nullopt;
  return number;
}

bool is_one_cpu(std::string_view name) {
  return name.size() > 3 && name.starts_with("cpu") && to_number<std::uint32_t>(name.substr(3)).has_value();
}

std::optional<std::uint64_t> kibibytes(std::string_view text, std::string_view name) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() / 1024;
  const auto number = parse_field(text, name);
  return number && *number <= kMost ? std::optional(*number * 1024) : std::nullopt;
}

}  // namespace

std::optional<CpuTimes> parse_proc_stat(std::string_view text) {
  // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is already in user and nice.
  constexpr std::size_t kColumns = 8;
  constexpr std::uint64_t kMostTicks = std::uint64_t{1} << 59;  // so that eight of them do not overflow
  std::string_view line = take_line(text);
  if (take_word(line) != "cpu") return std::nullopt;
  CpuTimes times;
  for (std::size_t i = 0; i < kColumns; ++i) {
    const std::string_view word = take_word(line);
    const auto ticks = to_number<std::uint64_t>(word);
    if (i >= 4 && word.empty()) break;  // old kernels have fewer columns
    if (!ticks || *ticks > kMostTicks) return std::nullopt;
    times.total += *ticks;
    if (i == 3 || i == 4) times.idle += *ticks;
  }
  while (!text.empty()) {
    line = take_line(text);
    if (!is_one_cpu(take_word(line))) break;
    ++times.cpus;
  }
  return times;
}

std::optional<MemoryInfo> parse_meminfo(std::string_view text) {
  const auto total = kibibytes(text, "MemTotal:");
  const auto available = kibibytes(text, "MemAvailable:");
  if (!total || !available || *total == 0) return std::nullopt;
  return MemoryInfo{*total, std::min(*available, *total)};
}

std::optional<std::uint64_t> parse_field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (take_word(line) == name) return to_number<std::uint64_t>(take_word(line));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  const auto number = to_number<std::uint64_t>(take_word(text));
  return take_word(text).empty() ? number : std::nullopt;
}

std::optional<double> parse_cpu_max(std::string_view text) {
  const auto quota = to_number<std::uint64_t>(take_word(text));
  const auto period = to_number<std::uint64_t>(take_word(text));
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> parse_pressure(std::string_view text) {
  constexpr std::string_view kAverage = "avg10=";
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (take_word(line) != "some") continue;
    const std::string_view word = take_word(line);
    if (!word.starts_with(kAverage)) return std::nullopt;
    const auto percent = to_number<double>(word.substr(kAverage.size()));
    if (!percent || !(*percent >= 0 && *percent <= 100)) return std::nullopt;
    return *percent / 100;
  }
  return std::nullopt;
}

std::optional<std::string> parse_cgroup(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (!line.starts_with("0::/")) continue;
    line.remove_prefix(3);
    if (line.find("/..") != std::string_view::npos || line.find('\0') != std::string_view::npos) return std::nullopt;
    return std::string(line);
  }
  return std::nullopt;
}

}  // namespace headgate::control
