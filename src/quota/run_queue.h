// Which command may start next, when not all may at once.
//
// Higher priority first; among equals each user gets its share of starts by weight, so that a thousand commands of one
// user do not starve the one of another, and no user saves up turns while it has none waiting; a user's own go by
// arrival. At most `concurrent` commands run at a time, times the throttle factor (at least one, while that is over 0),
// and none starts while the factor is 0. A pure structure: no clock, no lock, no thread; times are of the steady
// timeline. O(log n) for each call, but for the two that list.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/by_text.h"
#include "base/shares.h"
#include "headgate/clock.h"
#include "quota/fair_share.h"

namespace headgate::quota {

struct RunQueueOptions {
  std::size_t concurrent = 0;  // 0: no bound but the factor's
  std::size_t max_waiting = 10'000;
  std::size_t max_waiting_per_user = 1'000;
  std::size_t max_running = 100'000;                   // known at a time; the one that would expire first is forgotten
  Nanos ttl{std::chrono::seconds{60}};                 // a run that is neither renewed nor ended is taken to be over
  Nanos release_every{std::chrono::milliseconds{50}};  // while a command waits: the least time between two starts
};

struct Arrival {
  std::string id{};  // unique among those that wait and run
  std::string user{};
  std::string owner{};  // who may make up users, and has one share of the places for all; empty: one who may not
  std::string type{};
  std::string session{};
  int priority = 0;
  double weight = 1;
  Nanos until{0};  // how long it is ready to wait
};

class RunQueue {
 public:
  explicit RunQueue(RunQueueOptions options = {}) : options_(options) {}

  enum class Entered : std::uint8_t { kStarted, kWaits, kBlocked, kFull, kTwice };
  // kStarted: it runs. kWaits: step() will say. kBlocked: it may not start now, and `until` leaves no time to wait.
  // kFull: no room to wait, in all, for that user or for that owner. kTwice: that id is here already.
  [[nodiscard]] Entered enter(Arrival arrival, double factor, Nanos now);

  struct Moved {
    std::vector<Arrival> started;  // they run now
    std::vector<Arrival> expired;  // waited as long as they were ready to
  };
  // Call it at next_step(), and whenever something ended or the factor changed.
  [[nodiscard]] Moved step(double factor, Nanos now);
  [[nodiscard]] Nanos next_step(double factor, Nanos now) const;  // kMaxTime: nothing is due

  // Ends runs that were not renewed. Every call that takes the time does so first; call it to know of them sooner.
  void forget_expired_runs(Nanos now);
  [[nodiscard]] bool knows(std::string_view id) const { return ids_.contains(id); }
  // The id that ends so, if it is the only one; looks at all.
  [[nodiscard]] std::optional<std::string> only_id_ending(std::string_view end) const;
  // Ends a run, or a wait; false: there is none of that id. `user` must be its own, unless empty.
  bool end(std::string_view id, std::string_view user, Nanos now);
  // Keeps a run from expiring; false: it is not running.
  bool renew(std::string_view id, std::string_view user, Nanos now);

  struct Waiting {
    Arrival arrival;
    std::size_t position = 0;  // 1: next
    Nanos waited{0};
    std::optional<Nanos> estimate{};  // until it starts; nullopt: nothing to go by (the factor is 0)
  };
  // In the order in which they would start if no other came; of one user only, unless that is empty. Positions are
  // always those of the whole line.
  [[nodiscard]] std::vector<Waiting> waiting(double factor, Nanos now, std::size_t limit,
                                             std::string_view user = {}) const;
  struct Running {
    Arrival arrival;
    Nanos since{0};
  };
  // The longest running first.
  [[nodiscard]] std::vector<Running> running(std::size_t limit) const;
  [[nodiscard]] std::size_t waiting_count() const noexcept { return waiters_.size(); }
  [[nodiscard]] std::size_t running_count() const noexcept { return runs_.size(); }
  // What a newcomer of that user and priority would have to wait, about; zero: it could start now.
  [[nodiscard]] std::optional<Nanos> estimate(std::string_view user, int priority, double weight, double factor,
                                              Nanos now) const;

 private:
  using Sequence = std::uint64_t;  // in which all came
  struct Waiter {
    Arrival arrival;
    Nanos since{0};
  };
  struct Run {
    Arrival arrival;
    Nanos since{0};
    Nanos expires{0};
  };
  struct Place {
    Sequence sequence = 0;
    bool running = false;
  };
  // All that one user has waiting at one priority.
  struct Line {
    FairShare::Flow flow = 0;
    std::set<Sequence> waiting;
  };
  // One priority, while a command waits at it.
  struct Level {
    FairShare share;
    base::ByText<Line> lines;  // by user
    std::unordered_map<FairShare::Flow, const base::ByText<Line>::value_type*> flows;
    // Users that wait no longer, and when their next turn may begin: who comes back at once is no newcomer.
    base::ByText<double> owed;
    std::set<std::pair<double, std::string>> owed_order;
    std::size_t waiting = 0;
  };
  using Levels = std::map<int, Level, std::greater<>>;

  [[nodiscard]] std::size_t slots(double factor) const noexcept;
  [[nodiscard]] Nanos interval(double factor) const noexcept;
  [[nodiscard]] Nanos next_end(Nanos now) const;
  [[nodiscard]] std::optional<Nanos> estimate_of(std::size_t position, double factor, Nanos now) const;
  [[nodiscard]] Nanos next_release() const noexcept;
  void run(Arrival arrival, Nanos now);
  void end_run(Sequence sequence);
  void wait(Arrival arrival, Nanos now);
  Arrival start_next(Nanos now);
  Arrival leave(Sequence sequence);
  Arrival take(Sequence sequence, Levels::iterator level);
  void owe(Level& level, const std::string& user, double not_before) const;
  void settle_owed(Level& level) const;

  const RunQueueOptions options_;
  Sequence last_ = 0;
  base::ByText<Place> ids_;
  std::unordered_map<Sequence, Waiter> waiters_;
  std::set<std::pair<Nanos, Sequence>> deadlines_;  // of those that wait
  base::ByText<std::size_t> waiting_of_;            // by user
  base::Shares shares_;                             // of the places, by owner
  Levels levels_;
  std::map<Sequence, Run> runs_;
  std::set<std::pair<Nanos, Sequence>> expiries_;  // of runs
  std::optional<Nanos> last_start_;
  bool flowing_ = false;  // a command has waited ever since the last start, and the factor was never 0
  Nanos mean_{0};         // between two starts while it flowed; 0: not known yet
  Nanos mean_run_{0};     // how long runs took that were ended, not those that lapsed; 0: not known yet
};

}  // namespace headgate::quota
