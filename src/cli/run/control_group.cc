#include "cli/run/control_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <system_error>

#include "cli/run/pace.h"
#include "cli/run/process_tree.h"

namespace headgate::cli {
namespace {

Error no_group(const std::string& what) {
  return {ErrorCode::kIo, fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

// Calls `each` for every line, until it returns false.
void for_lines(std::string_view text, const auto& each) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (!each(text.substr(0, end))) return;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

std::string_view blank_field(std::string_view line, int index) {
  for (; index > 0; --index) line.remove_prefix(std::min(line.find(' ') + 1, line.size()));
  return line.substr(0, line.find(' '));
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

bool has_word(std::string_view text, std::string_view wanted) {
  while (!text.empty()) {
    const std::size_t end = text.find_first_of(" \n");
    if (text.substr(0, end) == wanted) return true;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return false;
}

// Whether a process may go in depends on the groups above both: it is found out by one that does nothing else.
int error_of_entering(int door) {
  volatile int error = 0;
  const pid_t pid = ::vfork();
  if (pid == 0) {
    if (::write(door, "0", 1) != 1) error = errno;
    ::_exit(0);
  }
  if (pid < 0) return errno;
  ::waitpid(pid, nullptr, 0);
  return error;
}

}  // namespace

std::string own_control_group(std::string_view cgroup, std::string_view mountinfo) {
  std::string_view own;
  for_lines(cgroup, [&](std::string_view line) {
    if (line.starts_with("0::/")) own = line.substr(3);
    return own.empty();
  });
  if (own.empty()) return {};
  std::string folder;
  for_lines(mountinfo, [&](std::string_view line) {
    // "31 24 0:26 ROOT POINT rw,... - cgroup2 ...": the mount shows what is below ROOT.
    if (line.find(" - cgroup2 ") == std::string_view::npos) return true;
    std::string_view root = blank_field(line, 3);
    const std::string_view point = blank_field(line, 4);
    if (root == "/") root = "";
    if (!own.starts_with(root)) return true;
    const std::string_view below = own.substr(root.size());
    if (!below.empty() && below.front() != '/') return true;
    folder = std::string(point) + (below == "/" ? "" : std::string(below));
    return false;
  });
  return folder;
}

Result<ControlGroup> ControlGroup::make(const std::string& parent, const std::string& name) {
  constexpr std::size_t kMostMounts = 1 << 20;
  const std::string where = !parent.empty()
                                ? parent
                                : own_control_group(read_small(AT_FDCWD, "/proc/self/cgroup"),
                                                    read_small(AT_FDCWD, "/proc/self/mountinfo", kMostMounts));
  if (where.empty()) return Error{ErrorCode::kNotFound, "there are no control groups of version 2"};
  const std::string handed_down = where + "/cgroup.subtree_control";
  if (!has_word(read_small(AT_FDCWD, handed_down.c_str()), "cpu")) {
    return Error{ErrorCode::kNotFound, fmt::format("{} does not hand the cpu controller down", where)};
  }
  const std::string folder = where + "/" + name;
  ::rmdir(folder.c_str());  // left by one of the same name that was killed
  if (::mkdir(folder.c_str(), 0755) != 0) return no_group(fmt::format("{} cannot be made", folder));
  Result<ControlGroup> group = open(folder);
  if (!group) {
    ::rmdir(folder.c_str());
    return group;
  }
  group->made_ = true;
  if (const int error = error_of_entering(group->door())) {
    errno = error;
    return no_group(fmt::format("{} cannot be entered", folder));
  }
  return group;
}

Result<ControlGroup> ControlGroup::open(const std::string& folder) {
  ControlGroup group;
  group.folder_ = folder;
  group.at_ = base::Descriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!group.at_) return no_group(fmt::format("{} cannot be opened", folder));
  group.door_ = base::Descriptor(::openat(group.at_.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
  if (!group.door_) return no_group(fmt::format("{}/cgroup.procs cannot be written", folder));
  return group;
}

ControlGroup::ControlGroup(ControlGroup&& other) noexcept
    : folder_(std::move(other.folder_)),
      at_(std::move(other.at_)),
      door_(std::move(other.door_)),
      paced_(std::move(other.paced_)),
      made_(std::exchange(other.made_, false)) {}

ControlGroup::~ControlGroup() {
  if (!made_) return;
  if (::rmdir(folder_.c_str()) != 0) pace(1, 1);
}

bool ControlGroup::pace(double factor, int cores) {
  const std::string wanted = cpu_max(factor, factor < 1 ? runnable(cores) : 1, cores);
  if (wanted == paced_) return true;
  if (!write("cpu.max", wanted)) return false;
  paced_ = wanted;
  return true;
}

int ControlGroup::runnable(int most) const {
  constexpr std::size_t kMostBytes = 64 << 10;
  int count = 0;
  for_lines(read("cgroup.threads", kMostBytes), [&](std::string_view thread) {
    const auto state = parse_stat(read_small(AT_FDCWD, fmt::format("/proc/{}/stat", thread).c_str()));
    if (state && state->state == 'R') ++count;
    return count < most;
  });
  return count;
}

std::optional<Nanos> ControlGroup::cpu_time() const {
  std::optional<Nanos> found;
  const std::string text = read("cpu.stat");
  for_lines(text, [&](std::string_view line) {
    if (!line.starts_with("usage_usec ")) return true;
    if (const auto microseconds = leading_number(blank_field(line, 1))) {
      found = std::chrono::microseconds(static_cast<std::int64_t>(*microseconds));
    }
    return false;
  });
  return found;
}

std::optional<std::uint64_t> ControlGroup::peak_bytes() const { return leading_number(read("memory.peak")); }

std::string ControlGroup::read(const char* file, std::size_t most) const { return read_small(at_.get(), file, most); }

bool ControlGroup::write(const char* file, std::string_view text) const {
  const base::Descriptor opened(::openat(at_.get(), file, O_WRONLY | O_TRUNC | O_CLOEXEC));
  return opened && ::write(opened.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace headgate::cli
