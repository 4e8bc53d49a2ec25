// A command that runs under our eyes: started at a pace, given the signals that we get, measured with all that comes
// from it, until it ends.
//
// The command stays in our process group, so the terminal, Ctrl-C, Ctrl-Z and pipelines work as if it had been started
// without us. What the terminal sends reaches both of us and is not passed on a second time; what another process sends
// us is passed on. When the terminal stops the command, we stop with it.
//
// One at a time in a process; not for sharing between threads.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/run/control_group.h"
#include "cli/run/pacer.h"
#include "cli/run/process_tree.h"
#include "cli/run/signals.h"
#include "headgate/clock.h"
#include "headgate/result.h"

namespace headgate::cli {

struct Launch {
  char** command = nullptr;    // ends with a null pointer
  double factor = 1;           // of the CPU time that it would take
  std::string control_group;   // a folder to make one in; empty: that of our own group
  std::vector<int> inherited;  // the files that the command gets: those we were given, and none that we opened
};

// What a command did.
struct Execution {
  int exit_code = 0;
  int signal = 0;  // that ended it; 0: it exited
  std::int64_t started_ms = 0;
  Nanos duration{0};
  Nanos cpu{0};
  std::uint64_t peak_bytes = 0;  // 0: it was over before it could be seen
};

// Something to do once while the command runs.
struct Chore {
  std::chrono::steady_clock::time_point due = std::chrono::steady_clock::time_point::max();
  std::function<void()> act;
};

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Supervisor(Signals& signals) : signals_(signals) {}

  // The error of exec, 0 if it runs. A pace that cannot be kept is an error before anything is started.
  [[nodiscard]] Result<int> start(const Launch& launch);
  // Until the command itself ends. What it left running goes on at full speed.
  [[nodiscard]] Execution wait(Chore chore);

 private:
  void look(Clock::time_point now);
  void handle(const signalfd_siginfo& info);
  void reap();
  void stop_with_command(int signal);
  [[nodiscard]] std::vector<Process> tree() const;
  void finish();

  Signals& signals_;
  double factor_ = 1;
  int cores_ = 1;
  std::optional<ControlGroup> group_;
  std::unique_ptr<Pacer> pacer_;
  pid_t child_ = -1;
  Clock::time_point started_{};
  Clock::time_point look_due_{};
  Nanos look_every_{0};
  std::uint64_t own_peak_ = 0;  // of this process, which exec counts as the command's
  bool ended_ = false;
  Execution execution_;
};

// Whether exec would find it: 0, ENOENT or EACCES.
[[nodiscard]] int find_command(const std::string& name, std::string_view path);

}  // namespace headgate::cli
