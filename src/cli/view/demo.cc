#include "cli/view/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <vector>

#include "base/suggest.h"
#include "base/text.h"
#include "cli/view/timeline.h"
#include "headgate/limiter.h"

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

// The pattern, in slots: two bursts that lie on either side of a window's end, then a steady trickle.
constexpr int kSlots = 60;
constexpr int kCallsPerBurstSlot = 4;
constexpr std::array kBurstSlots{5, 6, 7, 11, 12, 13};
constexpr int kSteadyFrom = 20;
constexpr int kSteadyEvery = 2;

constexpr std::string_view kKey = "agent";

// Calls that occupy a concurrency slot do so for this long; the very first caller is lost and never gives it back.
constexpr int kHeldSlots = 4;

constexpr Nanos kSlot = 200ms;
constexpr Nanos kStart = 1'000'000'002s;          // halfway through a window of 4 s
constexpr Nanos kCalendarSlot = 48min;            // the whole pattern takes two days
constexpr Nanos kCalendarStart = 1'774'710'000s;  // Saturday, 28 March 2026, 16:00 in Berlin

struct Scenario {
  Result<Limit> limit;
  const char* meaning;
  bool has_boundaries = false;  // its windows begin at fixed instants
  bool calendar = false;        // slowed down from seconds to days
};

std::vector<Scenario> scenarios() {
  return {
      {Limit::token_bucket({8, {2, 1s}}),
       "A bucket of tokens that refills all the time. A full bucket lets a burst through at once; then calls pass as "
       "fast as tokens come back."},
      {Limit::gcra({3, 2, 1s}),
       "A token bucket in redis-cell's words, to the nanosecond: max_burst 3, count 2, period 1s. The smaller the "
       "burst, the more evenly calls are spaced."},
      {Limit::sliding_window({8, 4s}),
       "Never more than 8 in any 4 seconds, exactly. Who spent it all in a burst waits until that burst is 4 seconds "
       "old."},
      {Limit::sliding_window_counter({8, 4s}),
       "Nearly that with two counters: what the window before admitted counts in proportion to how much of it still "
       "lies within the last 4 seconds.",
       true},
      {Limit::fixed_window({8, 4s}),
       "A count that starts again with each window. Cheap and easy to explain, but two bursts around a window's end "
       "both pass.",
       true},
      {Limit::leaky_bucket({{2, 1s}, 6}),
       "Evenly spaced output: calls are admitted with a delay and act one by one; 6 may wait their turn, the others "
       "are "
       "refused."},
      {Limit::concurrency({4, 4s}),
       "How many at the same time, not how often. Each call here takes 800ms; the first caller is lost, and its slot "
       "comes back when the lease expires."},
      {Limit::quota({8, Period::kDay, "Europe/Berlin", 2}),
       "So many per calendar day in a time zone, and here 2 more flagged as burst. The pattern is slowed down to two "
       "days; this Sunday has 23 hours, since the clocks go forward.",
       true, true},
  };
}

struct Call {
  Nanos at{0};  // from the start
  Decision decision;
};

struct Run {
  std::vector<Call> calls;
  std::vector<Units> remaining;  // at the end of each slot
};

std::vector<Nanos> arrivals(Nanos slot) {
  std::vector<Nanos> at;
  for (const int burst : kBurstSlots) {
    for (int i = 0; i < kCallsPerBurstSlot; ++i) at.push_back(slot * burst + slot * i / kCallsPerBurstSlot);
  }
  for (int steady = kSteadyFrom; steady < kSlots; steady += kSteadyEvery) at.push_back(slot * steady);
  return at;
}

// Plays the pattern on a clock moved by hand: two days pass in no time.
class Player {
 public:
  Player(MemoryLimiter& limiter, ManualClock& clock, Nanos slot)
      : limiter_(limiter), clock_(clock), start_(clock.now()), slot_(slot) {}

  Run play() {
    const std::vector<Nanos> calls = arrivals(slot_);
    auto next = calls.begin();
    for (int slot = 0; slot < kSlots; ++slot) {
      const Nanos end = slot_ * (slot + 1);
      for (; next != calls.end() && *next < end; ++next) call(*next);
      move_to(end - 1ns);
      run_.remaining.push_back(limiter_.remaining(kKey));
    }
    return std::move(run_);
  }

 private:
  struct Hold {
    Nanos until{0};
    LeaseId lease = 0;
  };

  void call(Nanos at) {
    move_to(at);
    const Decision decision = limiter_.try_acquire(kKey);
    run_.calls.push_back({at, decision});
    if (decision.lease == 0) return;
    if (first_is_lost_) holds_.push_back({at + slot_ * kHeldSlots, decision.lease});
    first_is_lost_ = true;
  }

  // All calls take equally long, so they end in the order in which they began.
  void move_to(Nanos at) {
    while (!holds_.empty() && holds_.front().until <= at) {
      clock_.set(start_ + holds_.front().until);
      limiter_.release(kKey, holds_.front().lease);
      holds_.pop_front();
    }
    clock_.set(start_ + at);
  }

  MemoryLimiter& limiter_;
  ManualClock& clock_;
  Nanos start_;
  Nanos slot_;
  bool first_is_lost_ = false;
  std::deque<Hold> holds_;
  Run run_;
};

// Asks the limiter itself: a window that has begun says when it ends.
std::vector<Nanos> boundaries(const Limit& limit, Nanos start, Nanos span) {
  std::vector<Nanos> found;
  const auto window = Limit::fixed_window({limit.limit(), limit.window()});
  ManualClock clock;
  const auto probe =
      MemoryLimiter::make(Options().limit(limit.strategy() == Strategy::kQuota ? limit : *window).clock(clock));
  for (Nanos at = start;;) {
    at += (*probe)->try_acquire_at(at, kKey).reset_after;
    if (at - start >= span) return found;
    found.push_back(at - start);
  }
}

std::vector<TimelineTick> ticks(const Scenario& scenario, const Timeline& timeline) {
  if (scenario.calendar) {
    static constexpr std::array<const char*, 2> kDays{"Sun 00:00", "Mon 00:00"};
    std::vector<TimelineTick> days{{0s, "Sat 16:00"}};
    for (std::size_t i = 0; i < timeline.boundaries.size() && i < kDays.size(); ++i) {
      days.push_back({timeline.boundaries[i], kDays[i]});
    }
    return days;
  }
  std::vector<TimelineTick> seconds;
  for (Nanos at{0}; at <= timeline.slot * timeline.slots; at += 2s) seconds.push_back({at, base::format_duration(at)});
  return seconds;
}

Mark mark_of(const Decision& decision) {
  if (!decision.allowed()) return Mark::kRefused;
  if (decision.burst) return Mark::kBurst;
  return decision.delay > Nanos{0} ? Mark::kDelayed : Mark::kAdmitted;
}

// To the millisecond, as people want it: "450ms", "1.25s", "14h 12m".
std::string readable(Nanos span) {
  const auto millis = std::chrono::ceil<std::chrono::milliseconds>(span).count();
  if (millis < 1000) return fmt::format("{}ms", millis);
  if (millis < 60'000) return fmt::format("{:g}s", static_cast<double>(millis) / 1000);
  const auto minutes = (millis + 59'999) / 60'000;
  if (minutes % 60 == 0) return fmt::format("{}h", minutes / 60);
  return minutes < 60 ? fmt::format("{}m", minutes) : fmt::format("{}h {}m", minutes / 60, minutes % 60);
}

std::string totals_text(const Run& run, Strategy strategy) {
  std::array<int, 4> counts{};
  const Call* first_refused = nullptr;
  for (const Call& call : run.calls) {
    ++counts[static_cast<std::size_t>(mark_of(call.decision))];
    if (first_refused == nullptr && !call.decision.allowed()) first_refused = &call;
  }
  const auto count = [&](Mark mark) { return counts[static_cast<std::size_t>(mark)]; };
  const int refused = count(Mark::kRefused);
  std::string text =
      fmt::format("{} of {} admitted", run.calls.size() - static_cast<std::size_t>(refused), run.calls.size());
  if (count(Mark::kDelayed) > 0) text += fmt::format(" ({} to act later)", count(Mark::kDelayed));
  if (count(Mark::kBurst) > 0) text += fmt::format(" ({} as burst)", count(Mark::kBurst));
  text += fmt::format(", {} refused", refused);
  if (first_refused != nullptr) {
    text += fmt::format(", first retry_after {}", readable(first_refused->decision.retry_after));
    // A concurrency limit knows when leases expire, not when their holders are done.
    if (strategy == Strategy::kConcurrency) text += " at the latest";
  }
  return text;
}

std::string picture(const Scenario& scenario, const Run& run, const Terminal& terminal) {
  Timeline timeline;
  timeline.slot = scenario.calendar ? kCalendarSlot : kSlot;
  timeline.slots = kSlots;
  timeline.remaining = run.remaining;
  timeline.limit = scenario.limit->limit();
  for (const Call& call : run.calls) {
    timeline.calls.push_back({call.at, mark_of(call.decision)});
    if (call.decision.allowed()) timeline.acts.push_back(call.at + call.decision.delay);
  }
  if (scenario.has_boundaries) {
    timeline.boundaries =
        boundaries(*scenario.limit, scenario.calendar ? kCalendarStart : kStart, timeline.slot * kSlots);
  }
  timeline.ticks = ticks(scenario, timeline);

  const std::string name = to_string(scenario.limit->strategy());  // with which its description begins
  std::string text;
  for (const std::string& line : wrap(scenario.limit->describe(), terminal.width, 0)) {
    text += (text.empty() ? terminal.paint(name, Ink::kBold) + line.substr(name.size()) : line) + "\n";
  }
  for (const std::string& line : wrap(scenario.meaning, terminal.width, 2)) text += line + "\n";
  text += "\n";
  for (const std::string& line : draw(timeline, terminal)) text += line + "\n";
  text += "\n";
  for (const std::string& line : wrap(totals_text(run, scenario.limit->strategy()), terminal.width, 2))
    text += line + "\n";
  return text;
}

// Milliseconds with all their nanoseconds, without trailing zeros.
std::string json_ms(Nanos span) {
  if (span < Nanos{0}) return "-1";
  std::string text = fmt::format("{}.{:06}", span.count() / 1'000'000, span.count() % 1'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string json_lines(const Scenario& scenario, const Run& run) {
  std::string text;
  int number = 0;
  for (const Call& call : run.calls) {
    const Decision& d = call.decision;
    text += fmt::format(
        R"({{"strategy":"{}","call":{},"at_ms":{},"allowed":{},"reason":"{}","burst":{},"limit":{},"remaining":{},)"
        R"("retry_after_ms":{},"delay_ms":{},"reset_after_ms":{}}})"
        "\n",
        to_string(scenario.limit->strategy()), ++number, json_ms(call.at), d.allowed(), to_string(d.reason), d.burst,
        d.limit, d.remaining, json_ms(d.retry_after), json_ms(d.delay), json_ms(d.reset_after));
  }
  return text;
}

std::string introduction(const Terminal& terminal) {
  std::string text = terminal.paint("headgate demo", Ink::kBold) + "\n";
  const int slots = slots_per_column(kSlots, terminal);
  const std::string words = fmt::format(
      "The same {} calls for each strategy: two short bursts, then a steady 2.5 a second. Virtual time, real limiter. "
      "A column is {} ({} for the quota), a mark is a call, the earliest at the bottom:",
      arrivals(kSlot).size(), base::format_duration(kSlot * slots), base::format_duration(kCalendarSlot * slots));
  for (const std::string& line : wrap(words, terminal.width, 2)) text += line + "\n";
  text += "\n";
  for (const std::string& line : legend(terminal)) text += line + "\n";
  return text;
}

}  // namespace

Result<std::string> demo(const DemoOptions& options, const Terminal& terminal) {
  std::string text = options.json ? "" : introduction(terminal);
  std::vector<std::string> names;
  for (const Scenario& scenario : scenarios()) {
    if (!scenario.limit) return scenario.limit.error();
    names.emplace_back(to_string(scenario.limit->strategy()));
    if (!options.strategy.empty() && options.strategy != names.back()) continue;

    ManualClock clock(scenario.calendar ? kCalendarStart : kStart);
    auto limiter = MemoryLimiter::make(Options().limit(*scenario.limit).clock(clock));
    if (!limiter) return limiter.error();
    const Run run = Player(**limiter, clock, scenario.calendar ? kCalendarSlot : kSlot).play();
    text += options.json ? json_lines(scenario, run) : "\n" + picture(scenario, run, terminal);
  }
  if (!options.strategy.empty() && std::find(names.begin(), names.end(), options.strategy) == names.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--strategy must be one of {}, got \"{}\"{}", fmt::join(names, ", "), options.strategy,
                             base::did_you_mean(options.strategy, names))};
  }
  return text;
}

}  // namespace headgate::cli
