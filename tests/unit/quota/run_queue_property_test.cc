// The queue against a slow and obvious one, and what must hold of shares whatever happens.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "quota/run_queue.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;
using Entered = RunQueue::Entered;

// Everything in plain lists that are searched from end to end.
class SlowQueue {
 public:
  explicit SlowQueue(const RunQueueOptions& options) : options_(options) {}

  Entered enter(const Arrival& arrival, double factor, Nanos now) {
    expire_runs(now);
    for (const auto& one : line_) {
      if (one.id == arrival.id) return Entered::kTwice;
    }
    for (const auto& one : runs_) {
      if (one.arrival.id == arrival.id) return Entered::kTwice;
    }
    if (line_.empty() && runs_.size() < slots(factor)) {
      start(arrival, now);
      return Entered::kStarted;
    }
    if (arrival.until <= now) return Entered::kBlocked;
    const auto own = std::count_if(line_.begin(), line_.end(), [&](auto& one) { return one.user == arrival.user; });
    if (line_.size() >= options_.max_waiting || own >= static_cast<long>(options_.max_waiting_per_user)) {
      return Entered::kFull;
    }
    Level& level = levels_[arrival.priority];
    if (first(arrival.priority, arrival.user) == line_.end()) {
      settle(arrival.priority);
      level.start[arrival.user] = std::max(level.clock, level.start[arrival.user]);
    }
    line_.push_back(arrival);
    return Entered::kWaits;
  }

  RunQueue::Moved step(double factor, Nanos now) {
    expire_runs(now);
    RunQueue::Moved moved;
    while (true) {
      const auto due = std::min_element(line_.begin(), line_.end(), [](auto& a, auto& b) { return a.until < b.until; });
      if (due == line_.end() || due->until > now) break;
      moved.expired.push_back(*due);
      remove(due);
    }
    while (!line_.empty() && runs_.size() < slots(factor) && release() <= now) {
      moved.started.push_back(take_next());
      start(moved.started.back(), now);
    }
    return moved;
  }

  Nanos next_step(double factor, Nanos now) const {
    Nanos due = kMaxTime;
    for (const auto& one : line_) due = std::min(due, one.until);
    for (const auto& one : runs_) due = std::min(due, one.expires);
    if (!line_.empty() && runs_.size() < slots(factor)) due = std::min(due, release());
    return std::max(due, now);
  }

  bool end(const std::string& id, Nanos now) {
    expire_runs(now);
    for (auto one = line_.begin(); one != line_.end(); ++one) {
      if (one->id != id) continue;
      remove(one);
      return true;
    }
    return std::erase_if(runs_, [&](auto& one) { return one.arrival.id == id; }) > 0;
  }
  bool renew(const std::string& id, Nanos now) {
    expire_runs(now);
    for (auto& one : runs_) {
      if (one.arrival.id == id) return one.expires = now + options_.ttl, true;
    }
    return false;
  }

  std::string order() const {
    SlowQueue copy = *this;
    std::string text;
    while (!copy.line_.empty()) text += copy.take_next().id + " ";
    return text;
  }
  std::string running() const {
    std::string text;
    for (const auto& one : runs_) text += one.arrival.id + " ";
    return text;
  }

 private:
  struct SlowRun {
    Arrival arrival;
    Nanos expires;
  };
  struct Level {
    double clock = 0;
    std::map<std::string, double> start;  // of the turn of each user seen
  };
  using Place = std::vector<Arrival>::iterator;

  std::size_t slots(double factor) const {
    if (factor <= 0) return 0;
    if (options_.concurrent == 0) return 1'000'000;
    return std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(options_.concurrent) * factor + 1e-9));
  }
  Nanos release() const { return started_ ? last_start_ + options_.release_every : 0s; }
  void expire_runs(Nanos now) {
    std::erase_if(runs_, [&](auto& one) { return one.expires <= now; });
  }
  void start(const Arrival& arrival, Nanos now) {
    runs_.push_back({arrival, now + options_.ttl});
    last_start_ = now;
    started_ = true;
  }
  Place first(int priority, const std::string& user) {
    return std::find_if(line_.begin(), line_.end(),
                        [&](auto& one) { return one.priority == priority && one.user == user; });
  }
  void remove(Place one) {
    const int priority = one->priority;
    line_.erase(one);
    const bool any = std::any_of(line_.begin(), line_.end(), [&](auto& other) { return other.priority == priority; });
    if (!any) levels_.erase(priority);
  }
  // The first of each user at a priority.
  std::vector<Place> heads(int priority) {
    std::vector<Place> all;
    for (auto one = line_.begin(); one != line_.end(); ++one) {
      if (one->priority == priority && first(priority, one->user) == one) all.push_back(one);
    }
    return all;
  }
  bool begun(const Level& level, const std::string& user) {
    return level.start.at(user) <= level.clock + std::max(1.0, level.clock) * 1e-9;
  }
  void settle(int priority) {
    Level& level = levels_[priority];
    const auto all = heads(priority);
    if (all.empty()) return;
    double least = INFINITY;
    for (const auto& head : all) least = std::min(least, level.start.at(head->user));
    if (std::none_of(all.begin(), all.end(), [&](auto& head) { return begun(level, head->user); })) level.clock = least;
  }
  Arrival take_next() {
    const int priority = std::max_element(line_.begin(), line_.end(), [](auto& a, auto& b) {
                           return a.priority < b.priority;
                         })->priority;
    settle(priority);
    Level& level = levels_[priority];
    Place best = line_.end();
    double ends = INFINITY;
    double weight = 0;
    for (const Place head : heads(priority)) {
      weight += head->weight;
      const double finish = level.start.at(head->user) + 1 / head->weight;
      if (!begun(level, head->user) || finish >= ends) continue;  // equal ones by arrival
      best = head;
      ends = finish;
    }
    Arrival arrival = *best;
    level.clock += 1 / weight;
    level.start[arrival.user] = ends;
    remove(best);
    return arrival;
  }

  RunQueueOptions options_;
  std::vector<Arrival> line_;  // by arrival
  std::vector<SlowRun> runs_;
  std::map<int, Level> levels_;
  Nanos last_start_{0};
  bool started_ = false;
};

std::string sorted_ids(const std::vector<Arrival>& arrivals) {
  std::vector<std::string> all;
  for (const Arrival& arrival : arrivals) all.push_back(arrival.id);
  std::sort(all.begin(), all.end());
  std::string text;
  for (const std::string& id : all) text += id + " ";
  return text;
}
std::string ids_of(const std::vector<Arrival>& arrivals) {
  std::string text;
  for (const Arrival& arrival : arrivals) text += arrival.id + " ";
  return text;
}

// Weights whose sums and inverses are exact, so that no order hangs on how a sum was rounded.
double weight_of(int user) { return std::array{1.0, 4.0, 0.5, 16.0, 1.0}[static_cast<std::size_t>(user)]; }

RC_GTEST_PROP(RunQueue, DoesWhatTheSlowAndObviousOneDoes, ()) {
  RunQueueOptions options;
  options.concurrent = *rc::gen::inRange<std::size_t>(0, 4);
  options.max_waiting = *rc::gen::inRange<std::size_t>(1, 30);
  options.max_waiting_per_user = *rc::gen::inRange<std::size_t>(1, 15);
  options.ttl = std::chrono::seconds{*rc::gen::inRange(2, 30)};
  options.release_every = std::chrono::milliseconds{*rc::gen::element(0, 700, 2'000)};
  RunQueue queue(options);
  SlowQueue slow(options);
  Nanos now{0};
  double factor = 1;
  const int steps = *rc::gen::inRange(1, 120);
  for (int i = 0; i < steps; ++i) {
    const std::string some_id = std::to_string(*rc::gen::inRange(0, i + 1));
    switch (*rc::gen::inRange(0, 10)) {
      case 0: factor = *rc::gen::element(0.0, 0.3, 0.6, 1.0, 1.0); break;
      case 1: now = queue.next_step(factor, now) == kMaxTime ? now : queue.next_step(factor, now); break;
      case 2: now += std::chrono::milliseconds{*rc::gen::inRange(0, 3'000)}; break;
      case 3: RC_ASSERT(queue.end(some_id, "", now) == slow.end(some_id, now)); break;
      case 4: RC_ASSERT(queue.renew(some_id, "", now) == slow.renew(some_id, now)); break;
      case 5:
      case 6: {
        const auto moved = queue.step(factor, now);
        const auto expected = slow.step(factor, now);
        RC_ASSERT(ids_of(moved.started) == ids_of(expected.started));
        RC_ASSERT(sorted_ids(moved.expired) == sorted_ids(expected.expired));
        break;
      }
      default: {
        const int user = *rc::gen::inRange(0, 5);
        Arrival arrival;
        arrival.id = *rc::gen::weightedElement<std::string>({{9, std::to_string(i)}, {1, some_id}});
        arrival.user = std::to_string(user);
        arrival.priority = *rc::gen::weightedElement<int>({{6, 0}, {1, 1}, {1, -1}});
        arrival.weight = weight_of(user);
        // No two time out at one instant, since their order is not specified.
        arrival.until = now + std::chrono::seconds{*rc::gen::inRange(0, 60)} + Nanos{i};
        RC_ASSERT(queue.enter(arrival, factor, now) == slow.enter(arrival, factor, now));
      }
    }
    RC_ASSERT(queue.next_step(factor, now) == slow.next_step(factor, now));
    std::string order;
    for (const auto& one : queue.waiting(factor, now, 1'000)) order += one.arrival.id + " ";
    RC_ASSERT(order == slow.order());
    std::string running;
    for (const auto& one : queue.running(1'000)) running += one.arrival.id + " ";
    RC_ASSERT(running == slow.running());
  }
}

// Keeps so many users waiting for ever and counts who starts.
struct Crowd {
  RunQueue queue{
      RunQueueOptions{.concurrent = 1, .max_waiting = 100'000, .max_waiting_per_user = 100'000, .release_every = 0ns}};
  std::vector<double> weights;
  std::vector<int> starts;
  int arrivals = 0;

  explicit Crowd(std::vector<double> of) : weights(std::move(of)), starts(weights.size()) {
    RC_ASSERT(queue.enter({.id = "first", .user = "nobody", .until = kMaxTime}, 1, 0s) == Entered::kStarted);
    for (std::size_t user = 0; user < weights.size(); ++user) {
      for (int i = 0; i < 2; ++i) arrive(user);
    }
  }
  void arrive(std::size_t user) {
    Arrival arrival;
    arrival.id = std::to_string(arrivals++);
    arrival.user = std::to_string(user);
    arrival.weight = weights[user];
    arrival.until = kMaxTime;
    RC_ASSERT(queue.enter(arrival, 1, 0s) == Entered::kWaits);
  }
  std::size_t start_one() {
    for (const auto& run : queue.running(10)) RC_ASSERT(queue.end(run.arrival.id, "", 0s));
    const auto moved = queue.step(1, 0s);
    RC_ASSERT(moved.started.size() == 1);
    const auto user = static_cast<std::size_t>(std::stoi(moved.started[0].user));
    ++starts[user];
    arrive(user);
    return user;
  }
};

RC_GTEST_PROP(RunQueue, TwoUsersThatAlwaysWaitStartInTheRatioOfTheirWeightsWithinOneStart, ()) {
  const auto weight = [] { return *rc::gen::inRange(1, 100'001) * 0.01; };
  Crowd crowd({weight(), weight()});
  const double share = crowd.weights[0] / (crowd.weights[0] + crowd.weights[1]);
  for (int n = 1; n <= 300; ++n) {
    (void)crowd.start_one();
    RC_ASSERT(std::abs(crowd.starts[0] - n * share) <= 1 + 1e-6);
  }
}

RC_GTEST_PROP(RunQueue, ManyUsersThatAlwaysWaitNeverFallBehindTheirShareByMoreThanOneStart, ()) {
  std::vector<double> weights;
  for (int users = *rc::gen::inRange(1, 12); users > 0; --users)
    weights.push_back(*rc::gen::element(0.5, 1.0, 4.0, 16.0));
  double all = 0;
  for (const double weight : weights) all += weight;
  Crowd crowd(weights);
  for (int n = 1; n <= 300; ++n) {
    (void)crowd.start_one();
    for (std::size_t user = 0; user < weights.size(); ++user) {
      RC_ASSERT(crowd.starts[user] >= n * weights[user] / all - 1 - 1e-6);
    }
  }
}

RC_GTEST_PROP(RunQueue, WhoeverWaitsStartsInTheEnd, ()) {
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const auto below = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most - 1)(random); };
  std::vector<double> weights;
  for (int users = *rc::gen::inRange(2, 8); users > 0; --users) weights.push_back(*rc::gen::element(0.1, 1.0, 10.0));
  Crowd crowd(weights);
  const std::size_t most = weights.size() * 100 + 200;
  std::size_t since = 0;  // the last start of user 0
  for (int n = 0; n < 1'000; ++n) {
    // The others come and go as they like.
    if (below(4) == 0) crowd.arrive(1 + below(weights.size() - 1));
    const std::string user = std::to_string(1 + below(weights.size() - 1));
    if (below(4) == 0) {
      for (const auto& one : crowd.queue.waiting(1, 0s, 1, user)) (void)crowd.queue.end(one.arrival.id, user, 0s);
    }
    since = crowd.start_one() == 0 ? 0 : since + 1;
    RC_ASSERT(since <= most);
  }
}

}  // namespace
}  // namespace headgate::quota
