#include "cli/run/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <unordered_map>

#include "base/descriptor.h"

namespace headgate::cli {
namespace {

// Takes one word off the front.
std::string_view take_word(std::string_view& text) noexcept {
  const std::size_t begin = std::min(text.find_first_not_of(" \n"), text.size());
  text.remove_prefix(begin);
  const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

template <class Number>
bool read_number(std::string_view text, Number& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

struct FolderCloser {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

std::optional<Process> parse_stat(std::string_view line) noexcept {
  // "12 (a name) S 1 ...": the name ends at the last bracket.
  const std::size_t open = line.find(" (");
  const std::size_t close = line.rfind(") ");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  Process process;
  if (!read_number(line.substr(0, open), process.pid)) return std::nullopt;
  std::string_view rest = line.substr(close + 2);
  const std::string_view state = take_word(rest);
  if (state.size() != 1) return std::nullopt;
  process.state = state.front();
  if (!read_number(take_word(rest), process.parent)) return std::nullopt;
  constexpr int kBetween = 9;  // pgrp to cmajflt
  for (int i = 0; i < kBetween; ++i) take_word(rest);
  constexpr int kTimes = 4;  // its own and its children's, as a user and in the kernel
  for (int i = 0; i < kTimes; ++i) {
    std::int64_t ticks = 0;
    if (!read_number(take_word(rest), ticks)) return std::nullopt;
    process.ticks += static_cast<std::uint64_t>(std::max<std::int64_t>(ticks, 0));
  }
  return process;
}

std::optional<Pages> parse_statm(std::string_view line) noexcept {
  Pages pages;
  take_word(line);  // the size of the address space
  if (!read_number(take_word(line), pages.resident) || !read_number(take_word(line), pages.shared)) return std::nullopt;
  return pages;
}

std::vector<Process> descendants(const std::vector<Process>& all, pid_t root) {
  std::unordered_multimap<pid_t, const Process*> children;
  for (const Process& process : all) children.emplace(process.parent, &process);
  std::vector<Process> found;
  std::vector<pid_t> parents{root};
  // Each has one parent, so no process is found twice; a table read while it changed could still hold a ring.
  for (std::size_t next = 0; next < parents.size() && found.size() <= all.size(); ++next) {
    const auto [begin, end] = children.equal_range(parents[next]);
    for (auto at = begin; at != end; ++at) {
      if (at->second->pid == root) continue;
      found.push_back(*at->second);
      parents.push_back(at->second->pid);
    }
  }
  return found;
}

std::string read_small(int folder, const char* path, std::size_t most) {
  const base::Descriptor file(::openat(folder, path, O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!file) return text;
  text.resize(most);
  std::size_t filled = 0;
  while (filled < most) {
    const ssize_t count = ::read(file.get(), text.data() + filled, most - filled);
    if (count <= 0) break;
    filled += static_cast<std::size_t>(count);
  }
  text.resize(filled);
  return text;
}

std::vector<Process> all_processes() {
  std::vector<Process> all;
  const std::unique_ptr<DIR, FolderCloser> proc(::opendir("/proc"));
  if (!proc) return all;
  while (const dirent* entry = ::readdir(proc.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const std::string path = fmt::format("{}/stat", entry->d_name);
    if (const auto process = parse_stat(read_small(::dirfd(proc.get()), path.c_str()))) all.push_back(*process);
  }
  return all;
}

std::vector<int> open_descriptors() {
  std::vector<int> all;
  const std::unique_ptr<DIR, FolderCloser> folder(::opendir("/proc/self/fd"));
  if (!folder) return all;
  while (const dirent* entry = ::readdir(folder.get())) {
    int descriptor = -1;
    if (read_number(std::string_view(entry->d_name), descriptor) && descriptor != ::dirfd(folder.get())) {
      all.push_back(descriptor);
    }
  }
  return all;
}

std::uint64_t memory_bytes(const std::vector<Process>& processes) {
  std::vector<Pages> pages;
  for (const Process& process : processes) {
    const std::string path = fmt::format("/proc/{}/statm", process.pid);
    if (const auto held = parse_statm(read_small(AT_FDCWD, path.c_str()))) pages.push_back(*held);
  }
  return memory_bytes_of(pages, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

std::uint64_t memory_bytes_of(const std::vector<Pages>& pages, std::uint64_t page_size) noexcept {
  std::uint64_t own = 0;
  std::uint64_t shared = 0;
  for (const Pages& held : pages) {
    own += held.resident - std::min(held.shared, held.resident);
    shared = std::max(shared, std::min(held.shared, held.resident));
  }
  return (own + shared) * page_size;
}

Nanos cpu_time(const std::vector<Process>& processes) noexcept {
  std::uint64_t ticks = 0;
  for (const Process& process : processes) ticks += process.ticks;
  const auto per_second = static_cast<std::uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  return Nanos{static_cast<std::int64_t>(ticks * (1'000'000'000 / per_second))};
}

}  // namespace headgate::cli
