// Does something every so often, and once more at the end.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "headgate/clock.h"

namespace headgate::base {

class Repeating {
 public:
  Repeating(Nanos every, std::function<void()> work);  // every 0: only at the end
  ~Repeating();
  Repeating(const Repeating&) = delete;
  Repeating& operator=(const Repeating&) = delete;

 private:
  void run();

  Nanos every_;
  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace headgate::base
