// Processes as /proc shows them, and which of them come from one.
//
// A look at all processes costs a few microseconds for each. What ends while it is looked at is left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"

namespace headgate::cli {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';         // R running, S sleeping, T stopped, Z ended but not yet waited for, ...
  std::uint64_t ticks = 0;  // of CPU, with those of the children that it has waited for

  [[nodiscard]] bool is_stopped() const noexcept { return state == 'T' || state == 't'; }
  [[nodiscard]] bool has_ended() const noexcept { return state == 'Z' || state == 'X'; }
};

// A line of /proc/PID/stat. The name in it may hold anything, also blanks and brackets.
[[nodiscard]] std::optional<Process> parse_stat(std::string_view line) noexcept;

// Pages of memory, as /proc/PID/statm counts them.
struct Pages {
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;  // of those: files and memory that others may have too
};
[[nodiscard]] std::optional<Pages> parse_statm(std::string_view line) noexcept;

// Those that come from `root`, without itself; parents stand before their children.
[[nodiscard]] std::vector<Process> descendants(const std::vector<Process>& all, pid_t root);

// All processes there are; empty if /proc cannot be read.
[[nodiscard]] std::vector<Process> all_processes();

// What they hold together: what each has for itself, and the largest shared part once.
[[nodiscard]] std::uint64_t memory_bytes(const std::vector<Process>& processes);
[[nodiscard]] std::uint64_t memory_bytes_of(const std::vector<Pages>& pages, std::uint64_t page_size) noexcept;

// The CPU time of those that still live.
[[nodiscard]] Nanos cpu_time(const std::vector<Process>& processes) noexcept;

// The files that this process has open.
[[nodiscard]] std::vector<int> open_descriptors();

// A small file whole, at most `most` bytes of it; empty if it cannot be read.
[[nodiscard]] std::string read_small(int folder, const char* path, std::size_t most = 4096);

}  // namespace headgate::cli
