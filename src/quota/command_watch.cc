#include "quota/command_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>
#include <utility>

#include "base/by_text.h"

namespace headgate::quota {
namespace {

constexpr Nanos kMinute{std::chrono::minutes{1}};
constexpr std::int64_t kUsualOver = 60;  // minutes
constexpr std::int64_t kLeastKnown = 10;
constexpr std::size_t kThrottleSlots = 10;
constexpr std::size_t kMostTold = 3 * kMostTypes;  // quotas of one user; a plan and a rule could have twice that

std::string_view words_of(Period period) noexcept {
  switch (period) {
    case Period::kDay: return "today";
    case Period::kWeek: return "this week";
    case Period::kMonth: return "this month";
    case Period::kHour: return "this hour";
    case Period::kYear: return "this year";
  }
  return "";
}

std::string more_since(std::uint64_t held_back, std::string_view what) {
  return held_back == 0 ? "" : fmt::format("; {} more {} since the last alert", held_back, what);
}

}  // namespace

struct CommandWatch::Impl {
  // A kind of alert that is told at most once per cool-down, with the number of those that were not.
  struct CoolDown {
    bool told = false;
    Nanos at{0};
    std::uint64_t held_back = 0;

    bool tell(Nanos now, Nanos cool_down) noexcept {
      if (told && now - at < cool_down) {
        ++held_back;
        return false;
      }
      told = true;
      at = now;
      return true;
    }
    std::uint64_t take_held_back() noexcept { return std::exchange(held_back, 0); }
  };

  // Commands a minute: those of this one, and the mean of those before.
  class Pace {
   public:
    explicit Pace(Nanos now) noexcept : minute_(now / kMinute) {}
    void count(Nanos now) noexcept {
      const std::int64_t passed = now / kMinute - minute_;
      if (passed > 0) {
        finish_minute(static_cast<double>(current_));
        // Minutes without any; after many of them all is as quiet as after more.
        for (std::int64_t i = 1; i < std::min<std::int64_t>(passed, 10 * kUsualOver); ++i) finish_minute(0);
        minute_ += passed;
        current_ = 0;
      }
      ++current_;
    }
    [[nodiscard]] std::uint64_t current() const noexcept { return current_; }
    [[nodiscard]] double usual() const noexcept { return usual_; }
    [[nodiscard]] bool known() const noexcept { return known_ >= kLeastKnown; }

   private:
    void finish_minute(double commands) noexcept {
      known_ = std::min(known_ + 1, kUsualOver);
      usual_ += (commands - usual_) / static_cast<double>(known_);
    }
    std::int64_t minute_;
    std::int64_t known_ = 0;  // minutes that `usual_` is the mean of
    std::uint64_t current_ = 0;
    double usual_ = 0;
  };
  struct High {
    std::string type;
    Period period;
  };
  struct User {
    explicit User(Nanos now) : pace(now) {}
    Pace pace;
    std::vector<High> high;  // quotas whose alert was told, as long as they stay high
    CoolDown spike;
    CoolDown slow;
    CoolDown failed;
    std::list<const std::string*>::iterator quiet;
  };
  struct Slot {
    std::int64_t number = -1;
    std::uint64_t all = 0;
    std::uint64_t throttled = 0;
  };

  explicit Impl(const CommandWatchOptions& given) : options(given) {}
  User& user(std::string_view name, Nanos now);
  void high(const Command& command, const Standing& standing, User& user, std::vector<Alert>& alerts) const;
  void spike(const Command& command, User& user, std::vector<Alert>& alerts) const;
  void throttle(const Command& command, std::vector<Alert>& alerts);

  const CommandWatchOptions options;
  std::mutex mutex;
  base::ByText<User> users;
  std::list<const std::string*> quiet;  // the longest quiet first
  std::array<Slot, kThrottleSlots> slots;
  CoolDown throttled;
};

CommandWatch::Impl::User& CommandWatch::Impl::user(std::string_view name, Nanos now) {
  const auto at = users.find(name);
  if (at != users.end()) {
    quiet.splice(quiet.end(), quiet, at->second.quiet);
    return at->second;
  }
  if (!users.empty() && users.size() >= options.max_users) {
    users.erase(users.find(*quiet.front()));
    quiet.pop_front();
  }
  const auto added = users.emplace(name, now).first;
  added->second.quiet = quiet.insert(quiet.end(), &added->first);
  return added->second;
}

void CommandWatch::Impl::high(const Command& command, const Standing& standing, User& user,
                              std::vector<Alert>& alerts) const {
  if (standing.limit.unlimited() || standing.limit.value == 0) return;
  const double share = static_cast<double>(standing.used) / static_cast<double>(standing.limit.value);
  const auto told = std::find_if(user.high.begin(), user.high.end(), [&](const High& one) {
    return one.period == standing.period && one.type == command.type;
  });
  if (share < options.high) {
    if (told != user.high.end()) user.high.erase(told);
    return;
  }
  if (told != user.high.end() || user.high.size() >= kMostTold) return;
  user.high.push_back({std::string(command.type), standing.period});
  alerts.push_back({"quota_high", std::string(command.user), std::string(command.type),
                    fmt::format("\"{}\" has used {} of {} {} commands {} ({:.0f} %)", command.user, standing.used,
                                standing.limit.value, command.type, words_of(standing.period), std::floor(share * 100)),
                    share * 100});
}

void CommandWatch::Impl::spike(const Command& command, User& user, std::vector<Alert>& alerts) const {
  user.pace.count(command.now);
  const auto count = static_cast<double>(user.pace.current());
  if (user.pace.current() < options.spike_least || !user.pace.known()) return;
  if (count <= options.spike_factor * user.pace.usual()) return;
  if (!user.spike.tell(command.now, options.cool_down)) return;
  alerts.push_back({"quota_spike", std::string(command.user), std::string(command.type),
                    fmt::format("\"{}\" runs {} commands within a minute, usually {:.1f}", command.user,
                                user.pace.current(), user.pace.usual()),
                    count});
}

void CommandWatch::Impl::throttle(const Command& command, std::vector<Alert>& alerts) {
  const Nanos width = std::max(Nanos{1}, options.throttled_over / std::int64_t{kThrottleSlots});
  const std::int64_t number = command.now / width;
  Slot& slot = slots[static_cast<std::size_t>(number) % kThrottleSlots];
  if (slot.number != number) slot = {number, 0, 0};
  ++slot.all;
  if (!(command.factor < 1)) return;
  ++slot.throttled;
  std::uint64_t all = 0;
  std::uint64_t slowed = 0;
  for (const Slot& one : slots) {
    if (one.number <= number - static_cast<std::int64_t>(kThrottleSlots) || one.number > number) continue;
    all += one.all;
    slowed += one.throttled;
  }
  const double share = static_cast<double>(slowed) / static_cast<double>(all);
  if (all < options.throttled_least || share <= options.throttled_share) return;
  if (!throttled.tell(command.now, options.cool_down)) return;
  const double minutes = std::chrono::duration<double, std::ratio<60>>(options.throttled_over).count();
  alerts.push_back({"quota_throttled", "", "",
                    fmt::format("{} of {} commands of the last {:.3g} minutes were throttled ({:.0f} %)", slowed, all,
                                minutes, share * 100),
                    share});
}

CommandWatch::CommandWatch(CommandWatchOptions options) : impl_(std::make_unique<Impl>(options)) {}
CommandWatch::~CommandWatch() = default;

std::vector<Alert> CommandWatch::admitted(const Command& command, const std::array<Standing, 3>& standings) {
  std::vector<Alert> alerts;
  const std::scoped_lock lock(impl_->mutex);
  Impl::User& user = impl_->user(command.user, command.now);
  for (const Standing& standing : standings) impl_->high(command, standing, user, alerts);
  impl_->spike(command, user, alerts);
  impl_->throttle(command, alerts);
  return alerts;
}

void CommandWatch::found(const Command& command, const std::array<Standing, 3>& standings) {
  std::vector<Alert> told_before;
  const std::scoped_lock lock(impl_->mutex);
  Impl::User& user = impl_->user(command.user, command.now);
  for (const Standing& standing : standings) impl_->high(command, standing, user, told_before);
}

std::vector<Alert> CommandWatch::recorded(const Execution& execution, Nanos now) {
  std::vector<Alert> alerts;
  const bool slow = std::chrono::milliseconds{execution.duration_ms} > impl_->options.long_run;
  if (!slow && execution.exit_code == 0) return alerts;
  const std::scoped_lock lock(impl_->mutex);
  Impl::User& user = impl_->user(execution.user, now);
  if (slow && user.slow.tell(now, impl_->options.cool_down)) {
    const double minutes = static_cast<double>(execution.duration_ms) / 60'000;
    alerts.push_back({"command_long", execution.user, execution.type,
                      fmt::format("a {} command of \"{}\" ran for {:.1f} minutes{}", execution.type, execution.user,
                                  minutes, more_since(user.slow.take_held_back(), "ran for long")),
                      minutes});
  }
  if (execution.exit_code != 0 && user.failed.tell(now, impl_->options.cool_down)) {
    alerts.push_back({"command_failed", execution.user, execution.type,
                      fmt::format("a {} command of \"{}\" failed with exit code {}{}", execution.type, execution.user,
                                  execution.exit_code, more_since(user.failed.take_held_back(), "failed")),
                      static_cast<double>(execution.exit_code)});
  }
  return alerts;
}

bool few_left(Amount remaining, Amount limit) noexcept {
  constexpr Units kFew = 10;
  constexpr Units kFifth = 5;  // a fifth left is 80 % used
  if (remaining.unlimited() || limit.unlimited()) return false;
  return remaining.value < kFew || remaining.value <= limit.value / kFifth;
}

std::string warning_text(std::string_view type, const std::array<Amount, 3>& remaining,
                         const std::array<Amount, 3>& limits, double factor) {
  std::string text;
  std::size_t least = kPeriods.size();
  for (std::size_t i = 0; i < kPeriods.size(); ++i) {
    if (!few_left(remaining[i], limits[i])) continue;
    // Of equals the longest, since that is how long there will be no more.
    if (least == kPeriods.size() || remaining[i].value <= remaining[least].value) least = i;
  }
  if (least < kPeriods.size()) {
    const Units left = std::max<Units>(0, remaining[least].value);
    text = left == 0 ? fmt::format("No {} commands left {}", type, words_of(kPeriods[least]))
                     : fmt::format("Only {} {} command{} left {}", left, type, left == 1 ? "" : "s",
                                   words_of(kPeriods[least]));
  }
  if (!(factor < 1)) return text;
  if (!text.empty()) text += ". ";
  if (!(factor > 0)) return text + "Throttled: the system is too busy to start commands now";
  const double percent = std::clamp(std::round(factor * 100), 1.0, 99.0);
  return text + fmt::format("Throttled: the system is busy, running at {:.0f} % speed", percent);
}

}  // namespace headgate::quota
