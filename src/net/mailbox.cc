#include "net/mailbox.h"

#include <sys/eventfd.h>

#include <cstdint>

#include "base/wake_later.h"

namespace headgate::net {
namespace {

thread_local const Mailbox* owned = nullptr;

}  // namespace

Mailbox::Mailbox() : wake_(std::make_shared<base::Descriptor>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {}

void Mailbox::own() noexcept { owned = this; }

void Mailbox::put(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;  // `work` is destroyed after the lock is given back
    letters_.push_back(std::move(work));
    if (letters_.size() > 1 || owned == this) return;  // the first letter has woken the thread
  }
  base::write_wake(wake_);
}

bool Mailbox::waiting() const {
  const std::lock_guard lock(mutex_);
  return !letters_.empty();
}

void Mailbox::run() {
  std::vector<std::function<void()>> letters;
  {
    const std::lock_guard lock(mutex_);
    letters.swap(letters_);
  }
  for (std::function<void()>& letter : letters) {
    letter();
    letter = nullptr;
  }
}

void Mailbox::clear_wake() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd(), &count, sizeof count);
}

void Mailbox::close() {
  // Declared before the lock, so destroyed after it: letters may put further ones while they go.
  std::vector<std::function<void()>> letters;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  letters.swap(letters_);
}

}  // namespace headgate::net
