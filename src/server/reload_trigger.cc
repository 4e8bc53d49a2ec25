#include "server/reload_trigger.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace headgate::server {
namespace {

Error io_error(const char* what) { return {ErrorCode::kIo, std::string(what) + ": " + std::strerror(errno), true}; }

bool add(const base::Descriptor& epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

const char* to_string(ReloadCause cause) noexcept { return cause == ReloadCause::kSignal ? "signal" : "files"; }

Result<ReloadTrigger> ReloadTrigger::open(const Options& options) {
  auto files = WatchList::open(options.paths);
  if (!files) return std::move(files).error();
  std::optional<Hangup> hangup;
  if (options.hangup) {
    auto opened = Hangup::open();
    if (!opened) return std::move(opened).error();
    hangup.emplace(std::move(*opened));
  }
  ReloadTrigger trigger(std::move(*files), std::move(hangup), options.debounce);
  trigger.timer_ = base::Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!trigger.timer_) return io_error("no timer for reloading");
  trigger.epoll_ = base::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!trigger.epoll_ || !add(trigger.epoll_, trigger.files_.fd()) || !add(trigger.epoll_, trigger.timer_.get()) ||
      (trigger.hangup_ && !add(trigger.epoll_, trigger.hangup_->fd()))) {
    return io_error("no descriptor for reloading");
  }
  return trigger;
}

std::optional<ReloadCause> ReloadTrigger::drain(Nanos now) {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(timer_.get(), &expirations, sizeof(expirations));
  const bool hung_up = hangup_ && hangup_->drain();
  const bool changed = files_.drain();
  signalled_ = signalled_ || hung_up;
  if (hung_up || changed) debounce_.touch(now);
  const bool due = debounce_.take(now);
  set_timer(now);
  if (!due) return std::nullopt;
  return std::exchange(signalled_, false) ? ReloadCause::kSignal : ReloadCause::kFiles;
}

// Makes the descriptor readable again when the trigger is due, or not at all.
void ReloadTrigger::set_timer(Nanos now) noexcept {
  itimerspec when{};
  if (const auto due_at = debounce_.due_at()) {
    const Nanos left = std::max<Nanos>(*due_at - now, Nanos{1});  // zero would disarm it
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    when.it_value.tv_sec = static_cast<time_t>(seconds.count());
    when.it_value.tv_nsec = static_cast<long>((left - seconds).count());
  }
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

Result<std::unique_ptr<ReloadThread>> ReloadThread::start(const ReloadTrigger::Options& options, Callback callback,
                                                          const Clock& clock) {
  auto trigger = ReloadTrigger::open(options);
  if (!trigger) return std::move(trigger).error();
  base::Descriptor stop(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!stop) return io_error("no descriptor for reloading");
  return std::unique_ptr<ReloadThread>(
      new ReloadThread(std::move(*trigger), std::move(stop), std::move(callback), clock));
}

ReloadThread::ReloadThread(ReloadTrigger trigger, base::Descriptor stop, Callback callback, const Clock& clock)
    : trigger_(std::move(trigger)),
      stop_(std::move(stop)),
      callback_(std::move(callback)),
      clock_(clock),
      thread_([this] { run(); }) {}

ReloadThread::~ReloadThread() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void ReloadThread::run() {
  for (;;) {
    std::array<pollfd, 2> ready{pollfd{stop_.get(), POLLIN, 0}, pollfd{trigger_.fd(), POLLIN, 0}};
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[0].revents != 0) return;
    if (ready[1].revents == 0) continue;
    if (const auto cause = trigger_.drain(clock_.now())) callback_(*cause);
  }
}

}  // namespace headgate::server
