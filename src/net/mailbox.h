// Work for an io thread, from any thread.
//
// Outlives its thread: what is put in after close() is dropped. Its length is bounded by those who use it, each of whom
// has a stated number of posts outstanding.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/descriptor.h"

namespace headgate::net {

class Mailbox {
 public:
  Mailbox();  // its descriptor is invalid if there are none left

  void put(std::function<void()> work);

  // For the thread that owns it.
  [[nodiscard]] int fd() const noexcept { return wake_->get(); }
  void own() noexcept;                 // puts from this thread need not wake it from now on
  [[nodiscard]] bool waiting() const;  // whether there is anything in it
  void run();                          // everything that is in it now
  void clear_wake() noexcept;          // after fd() became readable
  void close();

 private:
  const std::shared_ptr<const base::Descriptor> wake_;
  mutable std::mutex mutex_;
  std::vector<std::function<void()>> letters_;
  bool closed_ = false;
};

}  // namespace headgate::net
