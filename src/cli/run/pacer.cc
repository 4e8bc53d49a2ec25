#include "cli/run/pacer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <thread>

namespace headgate::cli {

// Shared with the watchdog. A process is noted before it is stopped, and forgotten after it goes on.
struct Pacer::Table {
  std::atomic<std::uint32_t> count{0};
  std::array<pid_t, kMostProcesses> pids{};

  // Children first.
  void continue_all() noexcept {
    for (std::uint32_t i = count.load(std::memory_order_acquire); i > 0; --i) ::kill(pids[i - 1], SIGCONT);
  }
};

namespace {

// Waits until the other end is closed. Keeps no file open but its own, so that no pipe waits for it to end.
[[noreturn]] void watch(int lifeline, const auto& when_lost) {
  ::setsid();
  ::prctl(PR_SET_NAME, "headgate-watch");
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  constexpr int kMine = 0;
  if (lifeline != kMine) ::dup2(lifeline, kMine);
  ::close_range(kMine + 1, ~0U, 0);
  char byte = 0;
  while (::read(kMine, &byte, 1) < 0 && errno == EINTR) {
  }
  when_lost();
  ::_exit(0);
}

// Whether it does before long: mostly it has by the time it is looked at. On a busy machine it first must get its turn;
// what sleeps uninterruptibly is not waited for.
bool is_stopped_soon(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  constexpr std::chrono::milliseconds kStopWithin{50};
  constexpr std::chrono::milliseconds kSleepAtMost{5};
  constexpr std::chrono::microseconds kBetweenLooks{100};
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const std::optional<Process> now = parse_stat(read_small(AT_FDCWD, path.c_str()));
    if (!now || now->is_stopped() || now->has_ended()) return true;
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= kStopWithin || (now->state == 'D' && waited >= kSleepAtMost)) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

Error no_pace(const char* what) {
  return {ErrorCode::kIo, fmt::format("{}: {}", what, std::generic_category().message(errno)), true};
}

}  // namespace

Result<std::unique_ptr<Pacer>> Pacer::start(double factor) {
  std::unique_ptr<Pacer> pacer(new Pacer);
  pacer->duty_ = duty(factor);
  void* shared = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return no_pace("no memory to share");
  pacer->table_ = new (shared) Table;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return no_pace("no pipe");
  const base::Descriptor other(pipe[0]);
  pacer->lifeline_ = base::Descriptor(pipe[1]);
  pacer->watchdog_ = ::fork();
  if (pacer->watchdog_ < 0) return no_pace("no further process");
  if (pacer->watchdog_ == 0) {
    watch(other.get(), [table = pacer->table_] { table->continue_all(); });
  }
  pacer->due_ = Clock::now() + pacer->duty_.run;
  return pacer;
}

Pacer::~Pacer() {
  if (table_ == nullptr) return;
  continue_all();
  lifeline_.reset();
  if (watchdog_ > 0) ::waitpid(watchdog_, nullptr, 0);
  ::munmap(table_, sizeof(Table));
}

void Pacer::step(Clock::time_point now) {
  if (!over_ && now >= mend_due_) mend();
  if (over_ || now < due_) return;
  if (stopped_) {
    release(now);
  } else {
    stop_all();
    due_ = Clock::now() + duty_.stop;  // it may have had to wait
  }
}

void Pacer::release(Clock::time_point now) {
  held_.assign(table_->pids.begin(), table_->pids.begin() + table_->count.load(std::memory_order_relaxed));
  continue_all();
  due_ = now + duty_.run;
  mend_due_ = now + kMendAfter;
}

void Pacer::give_up() {
  continue_all();
  over_ = true;
  watchdog_ = -1;
  due_ = mend_due_ = Clock::time_point::max();
}

void Pacer::stop_all() {
  std::uint32_t count = 0;
  const std::vector<Process> all = descendants(all_processes(), ::getpid());
  const auto has_children = [&](pid_t pid) {
    return std::any_of(all.begin(), all.end(), [&](const Process& each) { return each.parent == pid; });
  };
  std::vector<pid_t> awake;  // what comes from them runs freely this time
  const auto is_awake = [&](pid_t pid) { return std::find(awake.begin(), awake.end(), pid) != awake.end(); };
  for (const Process& process : all) {
    if (count == kMostProcesses) break;
    if (process.pid == watchdog_ || process.has_ended()) continue;
    if (is_awake(process.parent)) {
      awake.push_back(process.pid);
      continue;
    }
    if (process.is_stopped() && !stopped_itself(process, all)) continue;
    table_->pids[count] = process.pid;
    table_->count.store(++count, std::memory_order_release);
    ::kill(process.pid, SIGSTOP);
    // A process that waits for its children must not see that they have stopped.
    if (has_children(process.pid) && !is_stopped_soon(process.pid)) awake.push_back(process.pid);
  }
  mend_due_ = Clock::time_point::max();
  stopped_ = true;
}

bool Pacer::stopped_itself(const Process& process, const std::vector<Process>& all) const {
  if (std::find(held_.begin(), held_.end(), process.pid) == held_.end()) return false;
  return std::any_of(all.begin(), all.end(),
                     [&](const Process& each) { return each.parent == process.pid && !each.is_stopped(); });
}

void Pacer::mend() {
  mend_due_ = Clock::time_point::max();
  const std::vector<Process> all = descendants(all_processes(), ::getpid());
  for (const Process& process : all) {
    if (process.is_stopped() && stopped_itself(process, all)) ::kill(process.pid, SIGCONT);
  }
}

void Pacer::continue_all() {
  table_->continue_all();
  table_->count.store(0, std::memory_order_release);
  stopped_ = false;
}

}  // namespace headgate::cli
