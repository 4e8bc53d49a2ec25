// Signals read from a descriptor, so that nothing happens in the middle of something else: those that a command started
// by us should get too, and the news of its end.
#pragma once

#include <sys/signalfd.h>

#include <csignal>
#include <optional>

#include "base/descriptor.h"

namespace headgate::cli {

// One at a time in a process. While it lives they are blocked, in threads begun meanwhile too.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] std::optional<signalfd_siginfo> take();
  // What was blocked before, for a command to begin with.
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return mask_before_; }
  [[nodiscard]] const struct sigaction& child_action_before() const noexcept { return child_before_; }

 private:
  base::Descriptor descriptor_;
  sigset_t mask_before_{};
  struct sigaction child_before_ {};
};

// Stops this process as that signal would, until it is continued; in a process group that nobody could continue, not at
// all.
void stop_by(int signal);

// Whether it asks a process to end.
[[nodiscard]] bool asks_to_end(int signal) noexcept;

// Ends this process as that signal would, without a core of its own, so that who waits for it sees what happened. A
// signal that cannot end it makes it exit with 128 + signal.
[[noreturn]] void end_by(int signal);

}  // namespace headgate::cli
