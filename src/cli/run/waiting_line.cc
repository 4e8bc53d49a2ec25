#include "cli/run/waiting_line.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/run/run_texts.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

// Most are admitted at once, and then nothing is printed.
constexpr std::chrono::milliseconds kFirst = 300ms;
constexpr std::chrono::milliseconds kThen = 1s;

timespec timespec_of(std::chrono::milliseconds span) { return {span.count() / 1000, span.count() % 1000 * 1'000'000}; }

std::size_t columns() {
  winsize size{};
  constexpr std::size_t kUsual = 80;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kUsual;
}

}  // namespace

WaitingLine::WaitingLine(const ClientOptions& options, Signals& signals, std::string run, Show show)
    : options_(options), signals_(signals), run_(std::move(run)), show_(show) {
  if (show_ == Show::kNothing) return;
  timer_ = base::Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  const itimerspec ticks{timespec_of(kThen), timespec_of(kFirst)};
  if (timer_) ::timerfd_settime(timer_.get(), 0, &ticks, nullptr);
}

WaitingLine::~WaitingLine() { clear(); }

std::vector<int> WaitingLine::descriptors() const {
  std::vector<int> all{signals_.descriptor()};
  if (timer_) all.push_back(timer_.get());
  return all;
}

bool WaitingLine::react() {
  while (const auto info = signals_.take()) {
    const int signal = static_cast<int>(info->ssi_signo);
    if (signal == SIGTSTP) {
      clear();
      stop_by(signal);
    } else if (asks_to_end(signal)) {
      signal_ = signal;
      return false;
    }
  }
  std::uint64_t ticks = 0;
  if (timer_ && ::read(timer_.get(), &ticks, sizeof ticks) > 0) tell();
  return true;
}

void WaitingLine::tell() {
  if (show_ == Show::kOnce) {
    fmt::print(stderr, "headgate: waiting in line\n");
    const itimerspec never{};
    ::timerfd_settime(timer_.get(), 0, &never, nullptr);
    return;
  }
  if (!asker_) {
    Result<Client> client = Client::open(options_, Client::Purpose::kManage);
    if (!client) return draw("waiting in line");
    asker_.emplace(std::move(*client));
    asker_->answer_within(2s);
    // Signals are read by the thread that waits for the check.
    asker_->watch({signals_.descriptor()}, [] { return false; });
  }
  const auto queue = asker_->json("GET", "/api/quotas/queue");
  draw(line_text(queue ? *queue : nlohmann::ordered_json(), run_));
}

void WaitingLine::draw(std::string_view text) {
  const std::string line = fmt::format("headgate: {}", text);
  fmt::print(stderr, "\r\033[K{}", std::string_view(line).substr(0, columns() - 1));
  drawn_ = true;
}

void WaitingLine::clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace headgate::cli
