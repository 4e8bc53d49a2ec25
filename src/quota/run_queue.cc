#include "quota/run_queue.h"

#include <algorithm>
#include <cmath>

#include "quota/plan.h"

namespace headgate::quota {
namespace {

constexpr std::size_t kMostOwed = 10'000;  // users of one priority that wait no longer; beyond it the least are let off
constexpr Nanos kLongestInterval{std::chrono::hours{1}};
constexpr int kMeanOver = 8;             // starts, about
constexpr std::size_t kLeastShare = 10;  // of the places, for one owner

double sane_weight(double weight) noexcept {
  return weight > 0 ? std::clamp(weight, kLeastWeight, kMostWeight) : kLeastWeight;
}

}  // namespace

std::size_t RunQueue::slots(double factor) const noexcept {
  constexpr double kRounding = 1e-9;  // 100 x 0.29 is 29
  if (!(factor > 0)) return 0;
  if (options_.concurrent == 0) return SIZE_MAX;
  const double share = static_cast<double>(options_.concurrent) * std::min(factor, 1.0);
  return std::max<std::size_t>(1, static_cast<std::size_t>(share + kRounding));
}

Nanos RunQueue::interval(double factor) const noexcept {
  const Nanos by_length = mean_run_ / static_cast<std::int64_t>(std::clamp<std::size_t>(slots(factor), 1, 1'000'000));
  return std::max(mean_ > Nanos{0} ? mean_ : by_length, options_.release_every);
}

Nanos RunQueue::next_release() const noexcept { return last_start_ ? *last_start_ + options_.release_every : Nanos{0}; }

// What starts ---------------------------------------------------------------------------------------------------------

void RunQueue::forget_expired_runs(Nanos now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) end_run(expiries_.begin()->second);
}

void RunQueue::end_run(Sequence sequence) {
  const auto run = runs_.find(sequence);
  expiries_.erase({run->second.expires, sequence});
  ids_.erase(run->second.arrival.id);
  runs_.erase(run);
}

void RunQueue::run(Arrival arrival, Nanos now) {
  if (!runs_.empty() && runs_.size() >= options_.max_running) end_run(expiries_.begin()->second);
  const Sequence sequence = ++last_;
  ids_[arrival.id] = {sequence, true};
  const Nanos expires = now + options_.ttl;
  expiries_.emplace(expires, sequence);
  runs_.emplace_hint(runs_.end(), sequence, Run{std::move(arrival), now, expires});
  if (flowing_) {
    const Nanos took = std::min(now - *last_start_, kLongestInterval);
    mean_ = mean_ == Nanos{0} ? took : mean_ + (took - mean_) / kMeanOver;
  }
  last_start_ = now;
  flowing_ = !waiters_.empty();
}

RunQueue::Entered RunQueue::enter(Arrival arrival, double factor, Nanos now) {
  forget_expired_runs(now);
  if (!(factor > 0)) flowing_ = false;
  if (ids_.contains(arrival.id)) return Entered::kTwice;
  if (waiters_.empty() && runs_.size() < slots(factor)) {
    run(std::move(arrival), now);
    return Entered::kStarted;
  }
  if (arrival.until <= now) return Entered::kBlocked;
  const auto own = waiting_of_.find(arrival.user);
  const std::size_t has = own == waiting_of_.end() ? 0 : own->second;
  const std::size_t share = base::Shares::share_of(options_.max_waiting, kLeastShare);
  if (waiters_.size() >= options_.max_waiting || has >= options_.max_waiting_per_user) return Entered::kFull;
  if (!arrival.owner.empty() && shares_.of(arrival.owner) >= share) return Entered::kFull;
  wait(std::move(arrival), now);
  return Entered::kWaits;
}

RunQueue::Moved RunQueue::step(double factor, Nanos now) {
  forget_expired_runs(now);
  if (!(factor > 0)) flowing_ = false;
  Moved moved;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    moved.expired.push_back(leave(deadlines_.begin()->second));
  }
  const std::size_t most = slots(factor);
  while (!waiters_.empty() && runs_.size() < most && next_release() <= now) moved.started.push_back(start_next(now));
  return moved;
}

Nanos RunQueue::next_step(double factor, Nanos now) const {
  Nanos due = kMaxTime;
  if (!deadlines_.empty()) due = std::min(due, deadlines_.begin()->first);
  if (!expiries_.empty()) due = std::min(due, expiries_.begin()->first);
  if (!waiters_.empty() && runs_.size() < slots(factor)) due = std::min(due, next_release());
  return std::max(due, now);
}

std::optional<std::string> RunQueue::only_id_ending(std::string_view end) const {
  const std::string* found = nullptr;
  for (const auto& [id, place] : ids_) {
    if (!id.ends_with(end)) continue;
    if (found != nullptr) return std::nullopt;
    found = &id;
  }
  return found == nullptr ? std::nullopt : std::optional(*found);
}

bool RunQueue::end(std::string_view id, std::string_view user, Nanos now) {
  forget_expired_runs(now);
  const auto at = ids_.find(id);
  if (at == ids_.end()) return false;
  const Place place = at->second;
  const Arrival& arrival = place.running ? runs_.at(place.sequence).arrival : waiters_.at(place.sequence).arrival;
  if (!user.empty() && arrival.user != user) return false;
  if (place.running) {
    const Nanos took = std::min(now - runs_.at(place.sequence).since, kLongestInterval);
    mean_run_ = mean_run_ == Nanos{0} ? took : mean_run_ + (took - mean_run_) / kMeanOver;
    end_run(place.sequence);
  } else {
    (void)leave(place.sequence);
  }
  return true;
}

bool RunQueue::renew(std::string_view id, std::string_view user, Nanos now) {
  forget_expired_runs(now);
  const auto at = ids_.find(id);
  if (at == ids_.end() || !at->second.running) return false;
  const Sequence sequence = at->second.sequence;
  Run& run = runs_.at(sequence);
  if (!user.empty() && run.arrival.user != user) return false;
  expiries_.erase({run.expires, sequence});
  run.expires = now + options_.ttl;
  expiries_.emplace(run.expires, sequence);
  return true;
}

// What waits ----------------------------------------------------------------------------------------------------------

void RunQueue::wait(Arrival arrival, Nanos now) {
  const Sequence sequence = ++last_;
  const double weight = sane_weight(arrival.weight);
  Level& level = levels_[arrival.priority];
  const auto [at, fresh] = level.lines.try_emplace(arrival.user);
  Line& line = at->second;
  if (fresh) {
    line.flow = sequence;
    level.flows[line.flow] = &*at;
    const auto owed = level.owed.find(arrival.user);
    double not_before = 0;
    if (owed != level.owed.end()) {
      not_before = owed->second;
      level.owed_order.erase({owed->second, owed->first});
      level.owed.erase(owed);
    }
    level.share.join(line.flow, weight, sequence, not_before);
  } else {
    level.share.set_weight(line.flow, weight);
  }
  line.waiting.insert(line.waiting.end(), sequence);
  ++level.waiting;
  ++waiting_of_[arrival.user];
  if (!arrival.owner.empty()) shares_.take(arrival.owner);
  ids_[arrival.id] = {sequence, false};
  deadlines_.emplace(arrival.until, sequence);
  waiters_.emplace(sequence, Waiter{std::move(arrival), now});
}

Arrival RunQueue::start_next(Nanos now) {
  const auto level = levels_.begin();
  const FairShare::Flow flow = level->second.share.next();
  const auto& [user, line] = *level->second.flows.at(flow);
  const Sequence first = *line.waiting.begin();
  std::optional<Sequence> second;
  if (line.waiting.size() > 1) second = *std::next(line.waiting.begin());
  const double again = level->second.share.served(flow, second);
  if (!second) owe(level->second, user, again);
  settle_owed(level->second);
  Arrival arrival = take(first, level);
  run(arrival, now);
  return arrival;
}

// One that waits goes without having started.
Arrival RunQueue::leave(Sequence sequence) {
  const Arrival& arrival = waiters_.at(sequence).arrival;
  const auto level = levels_.find(arrival.priority);
  const Line& line = level->second.lines.at(arrival.user);
  if (line.waiting.size() == 1) {
    owe(level->second, arrival.user, level->second.share.leave(line.flow));
  } else if (*line.waiting.begin() == sequence) {
    level->second.share.replace(line.flow, *std::next(line.waiting.begin()));
  }
  Arrival gone = take(sequence, level);
  if (waiters_.empty()) flowing_ = false;
  return gone;
}

// Out of all lists. Nothing that happened at a priority matters once no command waits there any more.
Arrival RunQueue::take(Sequence sequence, Levels::iterator level) {
  const auto waiter = waiters_.find(sequence);
  Arrival arrival = std::move(waiter->second.arrival);
  waiters_.erase(waiter);
  deadlines_.erase({arrival.until, sequence});
  ids_.erase(arrival.id);
  const auto own = waiting_of_.find(arrival.user);
  if (--own->second == 0) waiting_of_.erase(own);
  if (!arrival.owner.empty()) shares_.give_back(arrival.owner);
  const auto line = level->second.lines.find(arrival.user);
  line->second.waiting.erase(sequence);
  if (line->second.waiting.empty()) {
    level->second.flows.erase(line->second.flow);
    level->second.lines.erase(line);
  }
  if (--level->second.waiting == 0) levels_.erase(level);
  return arrival;
}

void RunQueue::owe(Level& level, const std::string& user, double not_before) const {
  if (not_before <= level.share.clock()) return;
  level.owed[user] = not_before;
  level.owed_order.emplace(not_before, user);
}

void RunQueue::settle_owed(Level& level) const {
  while (!level.owed_order.empty()) {
    const auto least = level.owed_order.begin();
    if (least->first > level.share.clock() && level.owed_order.size() <= kMostOwed) return;
    level.owed.erase(least->second);
    level.owed_order.erase(least);
  }
}

// What is told --------------------------------------------------------------------------------------------------------

std::optional<Nanos> RunQueue::estimate_of(std::size_t position, double factor, Nanos now) const {
  if (!(factor > 0)) return std::nullopt;
  Nanos first = std::max(Nanos{0}, next_release() - now);
  if (runs_.size() >= slots(factor)) first = std::max(options_.release_every, next_end(now));
  return first + static_cast<std::int64_t>(position - 1) * interval(factor);
}

// Of the run that began first: where it takes longer than they usually do, or it is not known how long that is, it is
// about in the middle of its time.
Nanos RunQueue::next_end(Nanos now) const {
  if (mean_ > Nanos{0}) return *last_start_ + mean_ - now;
  const Nanos lasts = now - runs_.begin()->second.since;
  return lasts < mean_run_ ? mean_run_ - lasts : lasts;
}

std::vector<RunQueue::Waiting> RunQueue::waiting(double factor, Nanos now, std::size_t limit,
                                                 std::string_view user) const {
  std::vector<Waiting> list;
  if (user.empty()) list.reserve(std::min(limit, waiters_.size()));
  std::size_t position = 0;
  for (const auto& [priority, level] : levels_) {
    FairShare share = level.share;
    std::unordered_map<FairShare::Flow, std::set<Sequence>::const_iterator> heads;
    for (const auto& [flow, own] : level.flows) heads[flow] = own->second.waiting.begin();
    while (!share.empty() && list.size() < limit) {
      const FairShare::Flow flow = share.next();
      const auto& [name, line] = *level.flows.at(flow);
      auto& head = heads.at(flow);
      const Waiter& waiter = waiters_.at(*head);
      ++position;
      if (user.empty() || user == name) {
        list.push_back({waiter.arrival, position, now - waiter.since, estimate_of(position, factor, now)});
      }
      const bool more = ++head != line.waiting.end();
      (void)share.served(flow, more ? std::optional(*head) : std::nullopt);
    }
  }
  return list;
}

std::vector<RunQueue::Running> RunQueue::running(std::size_t limit) const {
  std::vector<Running> list;
  for (auto at = runs_.begin(); at != runs_.end() && list.size() < limit; ++at) {
    list.push_back({at->second.arrival, at->second.since});
  }
  return list;
}

std::optional<Nanos> RunQueue::estimate(std::string_view user, int priority, double weight, double factor,
                                        Nanos now) const {
  if (!(factor > 0)) return std::nullopt;
  if (waiters_.empty() && runs_.size() < slots(factor)) return Nanos{0};
  std::size_t ahead = 0;
  for (auto level = levels_.begin(); level != levels_.end() && level->first >= priority; ++level) {
    if (level->first > priority) {
      ahead += level->second.waiting;
      continue;
    }
    // How far virtual time must run until its turn ends, and how many others start meanwhile.
    const FairShare& share = level->second.share;
    const double turn = 1 / sane_weight(weight);
    const auto line = level->second.lines.find(user);
    const auto owed = level->second.owed.find(user);
    double begins = share.clock();
    double others = share.weight();
    std::size_t own = 0;
    if (line != level->second.lines.end()) {
      own = line->second.waiting.size();
      begins = std::max(begins, share.start_of(line->second.flow)) + static_cast<double>(own) * turn;
      others -= sane_weight(weight);
    } else if (owed != level->second.owed.end()) {
      begins = std::max(begins, owed->second);
    }
    const double meanwhile = std::max(0.0, (begins + turn - share.clock()) * others);
    const auto most = static_cast<double>(level->second.waiting - own);
    ahead += own + static_cast<std::size_t>(std::min(most, std::round(meanwhile)));
  }
  return estimate_of(ahead + 1, factor, now);
}

}  // namespace headgate::quota
