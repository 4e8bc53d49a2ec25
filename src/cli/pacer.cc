#include "cli/pacer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "cli/process_tree.h"

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

// Waits until nobody holds the other end. Keeps no file open but its own, so that no pipe waits for it to end.
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
  if (over_ || now < due_) return;
  if (stopped_) {
    release(now);
  } else {
    stop_all();
    due_ = now + duty_.stop;
  }
}

void Pacer::release(Clock::time_point now) {
  continue_all();
  due_ = now + duty_.run;
}

void Pacer::give_up() {
  continue_all();
  over_ = true;
  watchdog_ = -1;
  due_ = Clock::time_point::max();
}

void Pacer::stop_all() {
  std::uint32_t count = 0;
  for (const Process& process : descendants(all_processes(), ::getpid())) {
    if (count == kMostProcesses) break;
    if (process.pid == watchdog_ || process.is_stopped() || process.has_ended()) continue;
    table_->pids[count] = process.pid;
    table_->count.store(++count, std::memory_order_release);
    ::kill(process.pid, SIGSTOP);
  }
  stopped_ = true;
}

void Pacer::continue_all() {
  table_->continue_all();
  table_->count.store(0, std::memory_order_release);
  stopped_ = false;
}

}  // namespace headgate::cli
