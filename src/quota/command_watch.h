// Watches commands for what a person should hear of: a quota nearly used up, commands throttled for long, spikes,
// commands that run for long, commands that fail.
//
// Safe for concurrent use; a lock for a moment, and no allocation but for new users and alerts. Each alert
// is raised once per crossing or once per cool-down, not once per command. Of users beyond the bound those that were
// quiet for longest are forgotten, and their alerts may be raised again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"
#include "quota/execution.h"
#include "quota/plan.h"

namespace headgate::quota {

struct CommandWatchOptions {
  double high = 0.8;             // of a quota
  double throttled_share = 0.5;  // of commands within `throttled_over`, if there were enough
  Nanos throttled_over{std::chrono::minutes{5}};
  std::size_t throttled_least = 20;
  // Times the user's usual rate: its mean over the last hour or so. Nothing is usual before ten minutes have passed.
  double spike_factor = 4;
  std::size_t spike_least = 30;  // commands in a minute
  Nanos long_run{std::chrono::minutes{5}};
  Nanos cool_down{std::chrono::minutes{15}};  // of one kind, for one user
  std::size_t max_users = 100'000;
};

struct Alert {
  std::string kind;  // "quota_high", "quota_throttled", "quota_spike", "command_long", "command_failed"
  std::string user;  // empty: all
  std::string type;
  std::string text;  // for people
  double value = 0;  // percent used, share throttled, commands a minute, minutes, exit code
};

// How a quota stood after a charge.
struct Standing {
  Period period = Period::kDay;
  Units used = 0;
  Amount limit{};
};

class CommandWatch {
 public:
  explicit CommandWatch(CommandWatchOptions options = {});
  ~CommandWatch();

  struct Command {
    std::string_view user;
    std::string_view type;
    double factor = 1;  // at which it runs
    Nanos now{0};       // steady
  };
  // After a command was admitted: what to report now.
  [[nodiscard]] std::vector<Alert> admitted(const Command& command, const std::array<Standing, 3>& standings);
  // How quotas stood when this began to watch: those that were high then have been reported before.
  void found(const Command& command, const std::array<Standing, 3>& standings);
  // After one was recorded.
  [[nodiscard]] std::vector<Alert> recorded(const Execution& execution, Nanos now);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether the user should know that so little is left of the limit: fewer than ten, or a fifth of it at most.
[[nodiscard]] bool few_left(Amount remaining, Amount limit) noexcept;

// One line for the user, or none: what is nearly used up ("Only 9 shell commands left today"), and at what pace
// commands run ("Throttled: the system is busy, running at 60 % speed"). See few_left(); of
// several periods the one with the least left is named. `remaining` by
// kPeriods; Amount::kUnlimited: no limit.
[[nodiscard]] std::string warning_text(std::string_view type, const std::array<Amount, 3>& remaining,
                                       const std::array<Amount, 3>& limits, double factor);

}  // namespace headgate::quota
