// Readers of the text in which Linux tells its state, under /proc and in cgroup v2.
//
// Pure. Text that makes no sense, or numbers out of range, read as nothing; none of these throws but for want of
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headgate::control {

// The first line of /proc/stat, in ticks since boot, and how many CPUs it lists.
struct CpuTimes {
  std::uint64_t total = 0;
  std::uint64_t idle = 0;  // waiting for I/O included; time stolen by other machines is not
  std::uint32_t cpus = 0;
};
[[nodiscard]] std::optional<CpuTimes> parse_proc_stat(std::string_view text);

// /proc/meminfo, in bytes.
struct MemoryInfo {
  std::uint64_t total = 0;
  std::uint64_t available = 0;
};
[[nodiscard]] std::optional<MemoryInfo> parse_meminfo(std::string_view text);

// The number after `name` in a file of "name number" lines, such as cpu.stat and memory.stat.
[[nodiscard]] std::optional<std::uint64_t> parse_field(std::string_view text, std::string_view name);

// A file with one number in it; "max" and junk are none.
[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view text);

// cpu.max as a number of CPUs: "50000 100000" is 0.5; "max 100000" is none.
[[nodiscard]] std::optional<double> parse_cpu_max(std::string_view text);

// The share of the last ten seconds in which some task waited, 0 to 1, from a PSI file.
[[nodiscard]] std::optional<double> parse_pressure(std::string_view text);

// Where this process stands in the cgroup v2 tree, from /proc/self/cgroup: "/" or "/a/b". None when there is no such
// line or it leads out of the tree.
[[nodiscard]] std::optional<std::string> parse_cgroup(std::string_view text);

}  // namespace headgate::control
