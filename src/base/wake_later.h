// Puts off waking other threads: a thread that answers many of them at a time wakes each once, with all its answers,
// instead of waking it for the first one alone.
//
// While one lives on a thread, write_wake() of that thread notes the eventfds; they are written to when it goes.
#pragma once

#include <memory>
#include <vector>

#include "base/descriptor.h"

namespace headgate::base {

class WakeLater {
 public:
  WakeLater() noexcept;
  ~WakeLater();
  WakeLater(const WakeLater&) = delete;
  WakeLater& operator=(const WakeLater&) = delete;

 private:
  friend void write_wake(const std::shared_ptr<const Descriptor>& event);
  WakeLater* const outer_;
  std::vector<std::shared_ptr<const Descriptor>> events_;
};

// Makes an eventfd readable, now or when the WakeLater of this thread goes.
void write_wake(const std::shared_ptr<const Descriptor>& event);

}  // namespace headgate::base
