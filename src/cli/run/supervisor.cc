#include "cli/run/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kFirstLook = 5ms;
constexpr Nanos kLongestLook = 500ms;
constexpr std::uint64_t kPeakSlack = 1 << 20;

Nanos nanos_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

std::uint64_t bytes_of(long kilobytes) { return static_cast<std::uint64_t>(std::max(kilobytes, 0L)) * 1024; }

// What the server or its clients are given in secret: a command under quotas must not lift them with it.
constexpr std::array<std::string_view, 6> kSecretVariables{
    "HEADGATE_TOKEN",       "HEADGATE_STORE_URL",      "HEADGATE_STORE_SENTINEL_PASSWORD",
    "HEADGATE_WEBHOOK_URL", "HEADGATE_WEBHOOK_SECRET", "HEADGATE_DATABASE"};

// Our environment without them; ends with a null pointer.
std::vector<char*> environment_of_command() {
  std::vector<char*> kept;
  for (char** next = environ; *next != nullptr; ++next) {
    const std::string_view variable(*next);
    const std::string_view name = variable.substr(0, variable.find('='));
    if (std::find(kSecretVariables.begin(), kSecretVariables.end(), name) == kSecretVariables.end()) {
      kept.push_back(*next);
    }
  }
  kept.push_back(nullptr);
  return kept;
}

struct Start {
  char** command;
  char** environment;
  int niceness;
  int door;  // of a control group; -1: none
  const Signals* signals;
};

// Between vfork and exec the child has our memory: nothing here may allocate, throw or lock.
pid_t start_process(const Start& start, volatile int& error) noexcept {
  const pid_t pid = ::vfork();
  if (pid != 0) return pid;
  const bool entered = start.door < 0 || ::write(start.door, "0", 1) == 1;
  if (entered) {
    if (start.niceness > 0) {
      const int now = ::getpriority(PRIO_PROCESS, 0);
      ::setpriority(PRIO_PROCESS, 0, now + start.niceness);
    }
    ::sigaction(SIGCHLD, &start.signals->child_action_before(), nullptr);
    ::sigprocmask(SIG_SETMASK, &start.signals->mask_before(), nullptr);
    ::execvpe(start.command[0], start.command, start.environment);
  }
  error = errno;
  ::_exit(127);
}

// Libraries open files without saying that they are not for others.
void keep_others(const std::vector<int>& inherited) {
  for (const int descriptor : open_descriptors()) {
    if (std::find(inherited.begin(), inherited.end(), descriptor) == inherited.end()) {
      ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    }
  }
}

int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(CPU_COUNT(&set), 1);
}

}  // namespace

Result<int> Supervisor::start(const Launch& launch) {
  factor_ = launch.factor;
  cores_ = usable_cores();
  if (factor_ < 1) {
    Result<ControlGroup> group = ControlGroup::make(launch.control_group, fmt::format("headgate-run-{}", ::getpid()));
    if (group && group->pace(factor_, cores_)) {
      group_.emplace(std::move(*group));
    } else if (!launch.control_group.empty()) {
      // It was asked for by name, so to do without would hide a mistake.
      return Error{ErrorCode::kIo,
                   group ? launch.control_group + ": cpu.max cannot be written" : group.error().message};
    } else {
      Result<std::unique_ptr<Pacer>> pacer = Pacer::start(factor_);
      if (!pacer) return std::move(pacer).error();
      pacer_ = std::move(*pacer);
    }
  }
  // What loses its parent becomes ours, so that it can be found, paced and counted.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  keep_others(launch.inherited);
  execution_.started_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  started_ = Clock::now();
  volatile int error = 0;
  std::vector<char*> environment = environment_of_command();
  child_ = start_process(
      {launch.command, environment.data(), niceness(factor_), group_ ? group_->door() : -1, &signals_}, error);
  if (child_ < 0) return Error{ErrorCode::kIo, fmt::format("no further process: {}", std::strerror(errno)), true};
  if (error != 0) ::waitpid(child_, nullptr, 0);
  rusage own{};
  ::getrusage(RUSAGE_SELF, &own);
  own_peak_ = bytes_of(own.ru_maxrss);
  look_every_ = kFirstLook;
  look_due_ = started_ + look_every_;
  return static_cast<int>(error);
}

Execution Supervisor::wait(Chore chore) {
  while (!ended_) {
    Clock::time_point next = std::min(look_due_, chore.due);
    if (pacer_) next = std::min(next, pacer_->due());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    pollfd news{signals_.descriptor(), POLLIN, 0};
    if (::poll(&news, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000))) > 0) {
      while (const auto info = signals_.take()) handle(*info);
      if (ended_) break;
    }
    const Clock::time_point now = Clock::now();
    if (pacer_) pacer_->step(now);
    if (now >= look_due_) look(now);
    if (now >= chore.due) {
      chore.due = Clock::time_point::max();
      chore.act();
    }
  }
  finish();
  return execution_;
}

std::vector<Process> Supervisor::tree() const {
  std::vector<Process> all = descendants(all_processes(), ::getpid());
  if (pacer_) std::erase_if(all, [&](const Process& process) { return process.pid == pacer_->watchdog(); });
  return all;
}

// Often at first, since most commands are short; less and less often then.
void Supervisor::look(Clock::time_point now) {
  execution_.peak_bytes = std::max(execution_.peak_bytes, memory_bytes(tree()));
  if (group_) group_->pace(factor_, cores_);
  look_every_ = std::min(look_every_ * 2, kLongestLook);
  look_due_ = now + look_every_;
}

void Supervisor::handle(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) return reap();
  const bool from_us = info.ssi_code == SI_USER && info.ssi_pid == static_cast<std::uint32_t>(::getpid());
  if (from_us || ended_) return;
  const bool has_it = info.ssi_code == SI_KERNEL && ::getpgid(child_) == ::getpgrp();
  if (!has_it) {
    ::kill(child_, signal);
    // A stopped process sees no signal, and one stopped by us must not wait for it.
    if (pacer_ && pacer_->holds()) pacer_->release(Clock::now());
  } else if (signal == SIGTSTP && pacer_ && pacer_->holds()) {
    // Continuing takes back a stop that is still pending, so it is sent once more.
    pacer_->release(Clock::now());
    ::kill(0, SIGTSTP);
  }
}

void Supervisor::reap() {
  int status = 0;
  rusage used{};
  for (pid_t pid = 0; !ended_ && (pid = ::wait4(-1, &status, WNOHANG | WUNTRACED, &used)) > 0;) {
    if (WIFSTOPPED(status)) {
      const int signal = WSTOPSIG(status);
      const bool by_terminal = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
      if (pid == child_ && by_terminal) stop_with_command(signal);
      continue;
    }
    if (pacer_ && pid == pacer_->watchdog()) {
      pacer_->give_up();
      continue;
    }
    execution_.cpu += nanos_of(used.ru_utime) + nanos_of(used.ru_stime);
    // Until exec the child had our memory, which counts as its own: only what is more tells something, and the kernel
    // does not count to the page.
    const std::uint64_t peak = bytes_of(used.ru_maxrss);
    if (peak > own_peak_ + kPeakSlack) execution_.peak_bytes = std::max(execution_.peak_bytes, peak);
    if (pid != child_) continue;
    ended_ = true;
    execution_.duration = Clock::now() - started_;
    execution_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    execution_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
}

// So that the shell that started us sees its job stopped; it continues the whole group.
void Supervisor::stop_with_command(int signal) {
  if (pacer_) pacer_->release(Clock::now());
  stop_by(signal);
  if (pacer_) pacer_->release(Clock::now());
}

void Supervisor::finish() {
  // All orphans are ours: without a child no process is left.
  siginfo_t any{};
  if (::waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0) execution_.cpu += cpu_time(tree());
  if (group_) {
    if (const auto cpu = group_->cpu_time()) execution_.cpu = *cpu;
    if (const auto peak = group_->peak_bytes()) execution_.peak_bytes = *peak;
    group_.reset();
  }
  pacer_.reset();
}

int find_command(const std::string& name, std::string_view path) {
  const auto error_of = [](const std::string& file) {
    struct stat about {};
    if (::stat(file.c_str(), &about) != 0) return errno == EACCES ? EACCES : ENOENT;
    return S_ISREG(about.st_mode) && ::access(file.c_str(), X_OK) == 0 ? 0 : EACCES;
  };
  if (name.find('/') != std::string::npos) return error_of(name);
  if (name.empty()) return ENOENT;
  int worst = ENOENT;
  while (true) {
    const std::size_t end = path.find(':');
    const std::string folder(path.substr(0, end));
    const int error = error_of((folder.empty() ? "." : folder) + "/" + name);
    if (error == 0) return 0;
    // A folder of that name is none, as for exec.
    if (error == EACCES) worst = EACCES;
    if (end == std::string_view::npos) return worst;
    path.remove_prefix(end + 1);
  }
}

}  // namespace headgate::cli
