// A control group (cgroup v2) of a command's own: the kernel paces and measures all that runs in it.
//
// It can be had where the group it is made in may be written to and hands the cpu controller down
// (cgroup.subtree_control has "cpu"). That group's own settings are never changed. Not for sharing between threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::cli {

// The folder of this process's own group, from what /proc/self/cgroup and /proc/self/mountinfo say; empty if version 2
// is not there.
[[nodiscard]] std::string own_control_group(std::string_view cgroup, std::string_view mountinfo);

class ControlGroup {
 public:
  // In the folder `parent`, or in this process's own group if that is empty.
  [[nodiscard]] static Result<ControlGroup> make(const std::string& parent, const std::string& name);
  // One that is there already, and stays.
  [[nodiscard]] static Result<ControlGroup> open(const std::string& folder);
  ControlGroup(ControlGroup&& other) noexcept;
  ControlGroup& operator=(ControlGroup&&) = delete;
  // Removes it, unless something still runs in it: that goes on at full speed.
  ~ControlGroup();

  // A process that writes "0" to this is in it.
  [[nodiscard]] int door() const noexcept { return door_.get(); }
  // Paces it for as many threads as could run now; to be called from time to time. False if the kernel would not.
  bool pace(double factor, int cores);
  // How many of its threads run or could, counted up to `most`.
  [[nodiscard]] int runnable(int most) const;
  [[nodiscard]] std::optional<Nanos> cpu_time() const;
  [[nodiscard]] std::optional<std::uint64_t> peak_bytes() const;

 private:
  ControlGroup() = default;
  [[nodiscard]] std::string read(const char* file, std::size_t most = 4096) const;
  bool write(const char* file, std::string_view text) const;

  std::string folder_;
  base::Descriptor at_;
  base::Descriptor door_;
  std::string paced_;  // what cpu.max was last told
  bool made_ = false;
};

}  // namespace headgate::cli
