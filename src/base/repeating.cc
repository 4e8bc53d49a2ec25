#include "base/repeating.h"

#include <utility>

namespace headgate::base {

Repeating::Repeating(Nanos every, std::function<void()> work)
    : every_(every), work_(std::move(work)), thread_([this] { run(); }) {}

Repeating::~Repeating() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Repeating::run() {
  for (;;) {
    {
      std::unique_lock guard(mutex_);
      if (every_ > Nanos{0}) {
        ended_.wait_for(guard, every_, [this] { return ending_; });
      } else {
        ended_.wait(guard, [this] { return ending_; });
      }
    }
    work_();
    const std::lock_guard guard(mutex_);
    if (ending_) return;
  }
}

}  // namespace headgate::base
