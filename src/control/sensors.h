// Sensors read how busy this machine, or the cgroup we are confined to, is.
//
//   CPU       use since the last sample: of the cgroup v2 quotas on us, the tightest; else of the whole machine
//   memory    what cannot be reclaimed: of the cgroup v2 limits on us, the tightest; else of the whole machine
//   pressure  PSI, the share of ten seconds in which some task waited: the worst of CPU, memory and I/O
//
// A limit on a parent cgroup counts as one on us, and what its other children use counts as used. A limit that is no
// tighter than the machine is none. cgroup v1 is not read: there, the whole machine is what counts.
//
// Not safe for concurrent use. A sample opens some ten small files; whatever cannot be read or makes no sense is
// absent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/load.h"
#include "control/proc_text.h"
#include "headgate/clock.h"

namespace headgate::control {

class Sensors {
 public:
  // Files are looked for under `root`, so that tests can lay out their own proc/ and sys/fs/cgroup/.
  explicit Sensors(std::string root = "/");

  // What is read now, unsmoothed; never a reported figure. CPU is absent until there is a sample to compare with, and
  // when no time has passed since.
  [[nodiscard]] LoadReading sample(Nanos now);

  // What this process itself has in memory, and the most it can have: of the cgroup v2 limits on it the tightest, else
  // the machine's memory. 0: cannot be read.
  struct OwnMemory {
    std::uint64_t used = 0;
    std::uint64_t limit = 0;
  };
  [[nodiscard]] OwnMemory own_memory() const;

 private:
  struct Usage {
    std::uint64_t micros = 0;
    Nanos at{0};
  };

  [[nodiscard]] std::string read(const std::string& path) const;
  [[nodiscard]] bool has(const std::string& path) const;
  [[nodiscard]] std::vector<std::string> cgroups() const;
  [[nodiscard]] std::optional<double> cpu_of_machine(const std::optional<CpuTimes>& times);
  [[nodiscard]] std::optional<double> cpu(const std::vector<std::string>& cgroups, Nanos now);
  [[nodiscard]] std::optional<double> memory(const std::vector<std::string>& cgroups) const;
  [[nodiscard]] std::optional<double> pressure(const std::vector<std::string>& cgroups) const;

  std::string root_;  // ends with a slash
  std::optional<CpuTimes> times_;
  std::map<std::string, Usage> usages_;  // of each cgroup with a quota at the last sample
};

}  // namespace headgate::control
