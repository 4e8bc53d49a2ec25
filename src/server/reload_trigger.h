// A ReloadTrigger says when policies should be read again: their files have changed, or SIGHUP has come.
//
// Its core is a descriptor for an event loop; ReloadThread is a loop of its own. Bursts are one
// trigger: after 100 ms of quiet, or 2 s after the first change. Neither reads a clock or the files themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "headgate/clock.h"
#include "headgate/result.h"
#include "server/debounce.h"
#include "server/hangup.h"
#include "server/watch_list.h"

namespace headgate::server {

enum class ReloadCause : std::uint8_t { kFiles, kSignal };

// "files", "signal".
[[nodiscard]] const char* to_string(ReloadCause cause) noexcept;

// Not safe for concurrent use.
class ReloadTrigger {
 public:
  struct Options {
    std::vector<std::string> paths;  // files, and folders of *.yaml, *.yml and *.json; they need not exist yet
    bool hangup = true;              // listen for SIGHUP; one trigger in a process can
    DebounceSettings debounce;
  };
  static Result<ReloadTrigger> open(const Options& options);

  // Readable when drain() should be called. Stays the same for life; for reading and polling only.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
  // Takes in what has happened, without waiting. Gives a cause, the signal before the files, when it is time to reload.
  [[nodiscard]] std::optional<ReloadCause> drain(Nanos now);
  // False: the kernel gave too few watches, so a change of files may go unseen. SIGHUP still works.
  [[nodiscard]] bool watches_all() const noexcept { return files_.complete(); }

 private:
  ReloadTrigger(WatchList files, std::optional<Hangup> hangup, DebounceSettings debounce)
      : files_(std::move(files)), hangup_(std::move(hangup)), debounce_(debounce) {}

  void set_timer(Nanos now) noexcept;

  WatchList files_;
  std::optional<Hangup> hangup_;
  Debounce debounce_;
  bool signalled_ = false;
  base::Descriptor timer_;
  base::Descriptor epoll_;
};

// Calls back from a thread of its own whenever the trigger fires. The callback must not destroy it.
class ReloadThread {
 public:
  using Callback = std::function<void(ReloadCause)>;

  static Result<std::unique_ptr<ReloadThread>> start(const ReloadTrigger::Options& options, Callback callback,
                                                     const Clock& clock = SystemClock::shared());
  ReloadThread(const ReloadThread&) = delete;
  ReloadThread& operator=(const ReloadThread&) = delete;
  // Waits for a callback that is under way; none follows.
  ~ReloadThread();

 private:
  ReloadThread(ReloadTrigger trigger, base::Descriptor stop, Callback callback, const Clock& clock);
  void run();

  ReloadTrigger trigger_;
  base::Descriptor stop_;
  Callback callback_;
  const Clock& clock_;
  std::thread thread_;
};

}  // namespace headgate::server
