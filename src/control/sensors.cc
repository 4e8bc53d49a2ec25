#include "control/sensors.h"

#include <algorithm>
#include <utility>

#include "base/small_file.h"

namespace headgate::control {
namespace {

constexpr std::size_t kMaxProcFile = 65'536;  // /proc/stat of a large machine begins with what we need
constexpr std::size_t kMaxDepth = 32;         // of cgroups looked at, from ours upwards

void take_worst(std::optional<double>& worst, std::optional<double> figure) {
  if (figure && (!worst || *figure > *worst)) worst = figure;
}

}  // namespace

Sensors::Sensors(std::string root) : root_(std::move(root)) {
  if (!root_.ends_with('/')) root_ += '/';
}

LoadReading Sensors::sample(Nanos now) {
  const std::vector<std::string> ours = cgroups();
  LoadReading reading;
  reading.cpu = cpu(ours, now);
  reading.memory = memory(ours);
  reading.pressure = pressure(ours);
  return reading;
}

std::string Sensors::read(const std::string& path) const {
  auto bytes = base::read_start(root_ + path, kMaxProcFile);
  return bytes && *bytes ? std::move(**bytes) : std::string();
}

bool Sensors::has(const std::string& path) const {
  const auto bytes = base::read_start(root_ + path, 0);
  return bytes && bytes->has_value();
}

// The folders of our cgroup and of its parents, ours first. None where cgroup v2 is not mounted on its own.
std::vector<std::string> Sensors::cgroups() const {
  constexpr const char* kMount = "sys/fs/cgroup";
  const auto place = parse_cgroup(read("proc/self/cgroup"));
  if (!place || !has(std::string(kMount) + "/cgroup.controllers")) return {};
  // A container may see its own tree, but its place in the host's.
  std::string path = *place == "/" ? "" : *place;
  if (!has(kMount + path + "/cgroup.controllers")) path.clear();
  std::vector<std::string> folders;
  while (folders.size() < kMaxDepth) {
    folders.push_back(kMount + path);
    if (path.empty()) break;
    path.resize(path.rfind('/'));
  }
  return folders;
}

std::optional<double> Sensors::cpu_of_machine(const std::optional<CpuTimes>& times) {
  const std::optional<CpuTimes> before = std::exchange(times_, times);
  if (!before || !times || times->total <= before->total) return std::nullopt;
  const double total = static_cast<double>(times->total - before->total);
  // The kernel lets the time spent waiting for I/O go backwards now and then.
  const double idle = times->idle > before->idle ? static_cast<double>(times->idle - before->idle) : 0;
  return std::clamp(1 - idle / total, 0.0, 1.0);
}

std::optional<double> Sensors::cpu(const std::vector<std::string>& cgroups, Nanos now) {
  const auto times = parse_proc_stat(read("proc/stat"));
  const std::optional<double> whole = cpu_of_machine(times);
  std::map<std::string, Usage> usages;
  std::optional<double> worst;
  for (const std::string& folder : cgroups) {
    const auto quota = parse_cpu_max(read(folder + "/cpu.max"));
    const auto micros = parse_field(read(folder + "/cpu.stat"), "usage_usec");
    if (!quota || !micros || (times && times->cpus > 0 && *quota >= times->cpus)) continue;
    usages[folder] = {*micros, now};
    const auto before = usages_.find(folder);
    if (before == usages_.end() || now <= before->second.at || *micros < before->second.micros) continue;
    const double elapsed = std::chrono::duration<double, std::micro>(now - before->second.at).count();
    take_worst(worst, std::min(static_cast<double>(*micros - before->second.micros) / (elapsed * *quota), 1.0));
  }
  usages_ = std::move(usages);
  return usages_.empty() ? whole : worst;
}

std::optional<double> Sensors::memory(const std::vector<std::string>& cgroups) const {
  const auto machine = parse_meminfo(read("proc/meminfo"));
  std::optional<double> worst;
  for (const std::string& folder : cgroups) {
    const auto limit = parse_number(read(folder + "/memory.max"));
    const auto current = parse_number(read(folder + "/memory.current"));
    if (!limit || !current || (machine && *limit >= machine->total)) continue;
    const std::uint64_t reclaimable = parse_field(read(folder + "/memory.stat"), "inactive_file").value_or(0);
    const std::uint64_t used = *current > reclaimable ? *current - reclaimable : 0;
    take_worst(worst, used >= *limit ? 1.0 : static_cast<double>(used) / static_cast<double>(*limit));
  }
  if (worst || !machine) return worst;
  return 1 - static_cast<double>(machine->available) / static_cast<double>(machine->total);
}

Sensors::OwnMemory Sensors::own_memory() const {
  OwnMemory memory;
  // In kB; VmRSS is what is resident, whatever it is for.
  if (const auto resident = parse_field(read("proc/self/status"), "VmRSS:")) memory.used = *resident * 1024;
  if (const auto machine = parse_meminfo(read("proc/meminfo"))) memory.limit = machine->total;
  for (const std::string& folder : cgroups()) {
    const auto limit = parse_number(read(folder + "/memory.max"));
    if (limit && *limit > 0 && (memory.limit == 0 || *limit < memory.limit)) memory.limit = *limit;
  }
  return memory;
}

std::optional<double> Sensors::pressure(const std::vector<std::string>& cgroups) const {
  std::optional<double> worst;
  for (const char* kind : {"cpu", "memory", "io"}) {
    std::optional<double> figure;
    if (!cgroups.empty()) figure = parse_pressure(read(cgroups.front() + "/" + kind + ".pressure"));
    take_worst(worst, figure ? figure : parse_pressure(read(std::string("proc/pressure/") + kind)));
  }
  return worst;
}

}  // namespace headgate::control
