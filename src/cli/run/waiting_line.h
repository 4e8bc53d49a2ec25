// While the server lets a run wait in line: where it stands, told on standard error; and the signals that end the
// waiting. Not for sharing between threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "cli/client.h"
#include "cli/run/signals.h"

namespace headgate::cli {

class WaitingLine {
 public:
  // kLive: one line, written anew every second. kOnce: that it waits, once.
  enum class Show { kNothing, kOnce, kLive };
  // `options` say whom to ask about the line, over a connection of its own.
  WaitingLine(const ClientOptions& options, Signals& signals, std::string run, Show show);
  ~WaitingLine();
  WaitingLine(const WaitingLine&) = delete;
  WaitingLine& operator=(const WaitingLine&) = delete;

  // What to wait on, and what to do then; false: give up, since a signal asked for it.
  [[nodiscard]] std::vector<int> descriptors() const;
  bool react();
  // The signal that ended the waiting; 0: none.
  [[nodiscard]] int signal() const noexcept { return signal_; }

 private:
  void tell();
  void draw(std::string_view text);
  void clear();

  const ClientOptions& options_;
  Signals& signals_;
  std::string run_;
  Show show_;
  base::Descriptor timer_;
  std::optional<Client> asker_;
  int signal_ = 0;
  bool drawn_ = false;
};

}  // namespace headgate::cli
