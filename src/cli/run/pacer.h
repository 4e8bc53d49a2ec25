// Slows a process and all that come from it down by stopping them for a part of each period, where no control group can
// be had. A process that was stopped otherwise (Ctrl-Z in a shell below) stays stopped.
//
// Parents are stopped before and continued after their children, so that a shell does not see its jobs stop; what
// stops itself because of that all the same is continued where it is noticed. Children of a parent that does not stop
// in time run freely for that period, and so does all beyond kMostProcesses. However this process ends, also by
// SIGKILL, nothing stays stopped: a watchdog, a process in a session of its own, holds the other end of a pipe and
// continues what is noted in memory that both share. Only killing the watchdog together with this process, within one
// period, could prevent that. If the watchdog alone is lost, nothing is stopped from then on.
//
// Not for sharing between threads.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "cli/run/pace.h"
#include "cli/run/process_tree.h"
#include "headgate/result.h"

namespace headgate::cli {

class Pacer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostProcesses = 4096;

  // REQUIRES: this process has one thread, since it is forked.
  [[nodiscard]] static Result<std::unique_ptr<Pacer>> start(double factor);
  ~Pacer();
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  [[nodiscard]] pid_t watchdog() const noexcept { return watchdog_; }
  // When step() has something to do.
  [[nodiscard]] Clock::time_point due() const noexcept { return std::min(due_, mend_due_); }
  // Stops or continues what comes from this process, if it is time.
  void step(Clock::time_point now);
  // Everything goes on, until the next period has run.
  void release(Clock::time_point now);
  [[nodiscard]] bool holds() const noexcept { return stopped_; }
  // The watchdog is gone: everything goes on for good.
  void give_up();

 private:
  struct Table;
  Pacer() = default;
  // After so long whoever stopped itself on our account has done so.
  static constexpr std::chrono::milliseconds kMendAfter{2};
  void stop_all();
  void continue_all();
  // Some are told of a child that stops all the same, and stop until somebody lets both go on: script is one. They ran
  // when we stopped them, and what they wait for is not stopped: so nobody else has stopped them.
  [[nodiscard]] bool stopped_itself(const Process& process, const std::vector<Process>& all) const;
  void mend();

  Duty duty_{};
  Table* table_ = nullptr;
  base::Descriptor lifeline_;  // the watchdog reads the other end
  pid_t watchdog_ = -1;
  Clock::time_point due_{};
  Clock::time_point mend_due_ = Clock::time_point::max();
  std::vector<pid_t> held_;  // when it was last stopped
  bool stopped_ = false;
  bool over_ = false;
};

}  // namespace headgate::cli
