#include "cli/view/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace headgate::cli {
namespace {

constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[2J";
constexpr std::string_view kLeave = "\033[?25h\033[?1049l";

// All of it, unless the terminal is gone.
void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

bool readable(int descriptor) {
  pollfd wait{descriptor, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH}) sigaddset(&set, signal);
  return set;
}

}  // namespace

Result<std::unique_ptr<Screen>> Screen::open() {
  std::unique_ptr<Screen> screen(new Screen);
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 || tcgetattr(STDIN_FILENO, &screen->before_) != 0) {
    return Error{ErrorCode::kIo, "a terminal is needed; --once prints one picture anywhere"};
  }
  const sigset_t set = watched_signals();
  sigprocmask(SIG_BLOCK, &set, &screen->mask_before_);
  screen->signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (screen->signals_ < 0) {
    sigprocmask(SIG_SETMASK, &screen->mask_before_, nullptr);
    return Error{ErrorCode::kIo, "signals cannot be watched: signalfd failed"};
  }
  screen->enter();
  return screen;
}

Screen::~Screen() {
  if (entered_) leave();
  if (signals_ >= 0) {
    ::close(signals_);
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
}

void Screen::enter() {
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  put(kEnter);
  entered_ = true;
}

void Screen::leave() {
  put(kLeave);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  entered_ = false;
}

void Screen::suspend() {
  leave();
  ::raise(SIGSTOP);  // until SIGCONT
  enter();
}

std::vector<int> Screen::descriptors() const { return {STDIN_FILENO, signals_}; }

Screen::Input Screen::take() {
  Input input;
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) input.over = true;
    if (signal == SIGTSTP) suspend();
    if (signal == SIGWINCH) put("\033[2J");
    input.changed = true;
  }
  if (!readable(STDIN_FILENO)) return input;
  std::array<char, 256> keys{};
  const ssize_t count = ::read(STDIN_FILENO, keys.data(), keys.size());
  if (count > 0) input.keys.assign(keys.data(), static_cast<std::size_t>(count));
  // Readable without any bytes: the terminal has been closed.
  if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) input.over = true;
  return input;
}

void Screen::draw(const std::vector<std::string>& lines) {
  std::string text = "\033[H";
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + "\033[K";
  put(text + "\033[J");
}

TopSize Screen::size() const {
  winsize size{};
  TopSize out;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    out.columns = size.ws_col;
    out.rows = size.ws_row;
  }
  return out;
}

}  // namespace headgate::cli
