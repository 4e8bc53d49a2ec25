// Who may start a command next, when not everybody may at once.
//
// Higher priority first; among equals the user with the fewest starts for its weight, so that one who asks a thousand
// times does not starve one who asks once; then arrival. At most `concurrent` commands run at a time, times the
// throttle factor (at least one, while that is over 0), and nobody starts while the factor is 0. A pure structure: no
// clock, no lock, no thread; times are of the steady timeline.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "headgate/clock.h"

namespace headgate::quota {

struct RunQueueOptions {
  std::size_t concurrent = 0;  // 0: no bound but the factor's
  std::size_t max_waiting = 10'000;
  std::size_t max_waiting_per_user = 1'000;
  std::size_t max_running = 100'000;                   // known at a time; the one that would expire first is forgotten
  Nanos ttl{std::chrono::seconds{60}};                 // a run that nobody renews or ends is taken to be over
  Nanos release_every{std::chrono::milliseconds{50}};  // while somebody waits: the least time between two starts
};

struct Arrival {
  std::string id{};  // unique among those that wait and run
  std::string user{};
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
  // kFull: no room to wait. kTwice: that id is here already.
  [[nodiscard]] Entered enter(Arrival arrival, double factor, Nanos now);

  struct Moved {
    std::vector<Arrival> started;  // they run now
    std::vector<Arrival> expired;  // waited as long as they were ready to
  };
  // Call it at next_step(), and whenever something ended or the factor changed.
  [[nodiscard]] Moved step(double factor, Nanos now);
  [[nodiscard]] Nanos next_step(double factor, Nanos now) const;  // kMaxTime: nothing is due

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
  // In the order in which they would start.
  [[nodiscard]] std::vector<Waiting> waiting(double factor, Nanos now, std::size_t limit) const;
  struct Running {
    Arrival arrival;
    Nanos since{0};
  };
  [[nodiscard]] std::vector<Running> running(std::size_t limit) const;
  [[nodiscard]] std::size_t waiting_count() const noexcept;
  [[nodiscard]] std::size_t running_count() const noexcept;
  // What a newcomer of that user and priority would have to wait; zero: it could start now.
  [[nodiscard]] std::optional<Nanos> estimate(std::string_view user, int priority, double weight, double factor,
                                              Nanos now) const;

 private:
  const RunQueueOptions options_;
};

}  // namespace headgate::quota
