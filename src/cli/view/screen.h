// The terminal as a full-screen program holds it: raw keys, the alternate screen, no cursor. Whatever ends the
// program's hold gives the terminal back as it was.
//
// One at a time in a process. SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT and SIGWINCH are read from a descriptor while
// it lives, so that nothing happens in the middle of a line.
#pragma once

#include <termios.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "cli/view/top_frame.h"
#include "headgate/result.h"

namespace headgate::cli {

class Screen {
 public:
  // Fails if standard input or output is no terminal.
  [[nodiscard]] static Result<std::unique_ptr<Screen>> open();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // What to wait on before take().
  [[nodiscard]] std::vector<int> descriptors() const;
  // What was pressed since; `over` is set by a signal that ends the program or a terminal that is gone, `changed` when
  // the picture must be drawn again.
  struct Input {
    std::string keys;
    bool over = false;
    bool changed = false;
  };
  [[nodiscard]] Input take();
  void draw(const std::vector<std::string>& lines);
  [[nodiscard]] TopSize size() const;

 private:
  Screen() = default;
  void enter();
  void leave();
  void suspend();

  termios before_{};
  sigset_t mask_before_{};
  int signals_ = -1;
  bool entered_ = false;
};

}  // namespace headgate::cli
