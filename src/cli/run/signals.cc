#include "cli/run/signals.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace headgate::cli {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP, SIGCHLD, SIGALRM}) {
    sigaddset(&set, signal);
  }
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, &mask_before_);
  // The parent may have set SIGCHLD to be ignored, and then no child could be waited for.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &child_before_);
  descriptor_ = base::Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Signals::~Signals() {
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<signalfd_siginfo> Signals::take() {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return info;
}

void stop_by(int signal) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::raise(signal);
  ::sigprocmask(SIG_UNBLOCK, &set, &before);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

bool asks_to_end(int signal) noexcept {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT || signal == SIGALRM;
}

void end_by(int signal) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace headgate::cli
