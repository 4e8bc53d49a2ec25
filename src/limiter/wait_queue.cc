#include "limiter/wait_queue.h"

#include <algorithm>
#include <system_error>

namespace headgate {
namespace {

// The machine's two clocks are read one after the other, so they differ a little each time.
constexpr Nanos kWallNoise = std::chrono::milliseconds{1};

Decision ended(Decision decision, Reason reason) {
  decision.verdict = Verdict::kNotYet;
  decision.reason = reason;
  return decision;
}

// Whether waiting would not change the answer, or it is not known when. Where the store has no room for a new key,
// no instant is known at which to try again.
bool is_final(const Decision& decision) {
  return decision.verdict != Verdict::kNotYet || decision.reason == Reason::kTooManyKeys;
}

// A retry at this very instant would spin.
Nanos retry_at(Nanos now, const Decision& decision) { return now + std::max(decision.retry_after, Nanos{1}); }

}  // namespace

WaitQueue::WaitQueue(Config config) : config_(std::move(config)) {
  const Nanos at = now();
  wall_skew_ = config_.clock->wall(at) - at;
  config_.clock->subscribe(this);
}

WaitQueue::~WaitQueue() {
  config_.clock->unsubscribe(this);
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Callbacks may call the queue, so they find it empty already.
  std::vector<Finished> finished;
  {
    const std::lock_guard guard(mutex_);
    for (auto& [id, entry] : entries_)
      finished.push_back({std::move(entry->waiter.done), ended({}, Reason::kCancelled)});
    entries_.clear();
    lines_.clear();
    retries_.clear();
    deadlines_.clear();
    waiting_ = 0;
    present_ = 0;
  }
  for (const Finished& each : finished) each.done(each.decision);
}

bool WaitQueue::has_waiters(const base::Hash128& key) const {
  const std::lock_guard guard(mutex_);
  return lines_.contains(key);
}

WaitId WaitQueue::add(Waiter waiter) {
  std::unique_lock lock(mutex_);
  // Counted before it is tried: room that comes right after the attempt failed is then announced by kick(), which waits
  // for this lock.
  present_.fetch_add(1);
  const auto answer = [&](const Decision& decision) {
    present_.fetch_sub(1);
    lock.unlock();
    waiter.done(decision);
    return WaitId{0};
  };
  if (stopping_) return answer(ended({}, Reason::kCancelled));

  const Nanos now = this->now();
  waiter.deadline = std::min(waiter.deadline, kMaxTime);
  auto line = lines_.find(waiter.key);
  const bool goes_first = line == lines_.end() || (*line->second.entries.begin())->waiter.priority < waiter.priority;
  Decision decision;
  if (goes_first || waiter.permits == 0) {
    decision = config_.attempt(waiter, now);
    const bool too_late = !config_.room_may_come_early && now + decision.retry_after > waiter.deadline;
    if (is_final(decision) || too_late || waiter.deadline <= now) return answer(decision);
  }
  if (waiter.deadline <= now) return answer(ended(decision, Reason::kLimited));
  if (entries_.size() >= config_.max_waiters) return answer(ended(decision, Reason::kQueueFull));
  try {
    start_thread();
  } catch (const std::system_error&) {  // no thread to serve the wait: as good as a full queue
    return answer(ended(decision, Reason::kQueueFull));
  }

  const WaitId id = ++last_id_;
  auto owned = std::make_unique<Entry>(Entry{std::move(waiter), id});
  Entry* entry = owned.get();
  entries_.emplace(id, std::move(owned));
  deadlines_.emplace(entry->waiter.deadline, id);
  line = lines_.try_emplace(entry->waiter.key).first;
  line->second.entries.insert(entry);
  waiting_.fetch_add(1);
  if (goes_first) set_retry(line, retry_at(now, decision));
  wake_.notify_all();  // under the lock: a thread that sees this wait may end the queue as soon as the lock is released
  return id;
}

bool WaitQueue::cancel(WaitId id) {
  Done done;
  {
    const std::lock_guard guard(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return false;
    done = std::move(found->second->waiter.done);
    remove(found->second.get());
  }
  wake_.notify_all();
  done(ended({}, Reason::kCancelled));
  return true;
}

Nanos WaitQueue::poll() {
  std::vector<Finished> finished;
  Nanos next;
  {
    const std::lock_guard guard(mutex_);
    const Nanos now = this->now();
    notice_wall_step(now);
    for (;;) {
      while (!retries_.empty() && retries_.begin()->at <= now) {
        serve(lines_.find(retries_.begin()->key), now, finished);
      }
      if (deadlines_.empty() || deadlines_.begin()->first > now) break;
      expire_first(now, finished);  // the next waiter may have its turn at this very instant
    }
    next = next_due();
  }
  for (const Finished& each : finished) each.done(each.decision);
  return next;
}

void WaitQueue::kick(const base::Hash128& key) {
  {
    const std::lock_guard guard(mutex_);
    const auto line = lines_.find(key);
    if (line == lines_.end()) return;
    set_retry(line, Nanos{0});
  }
  wake_.notify_all();
}

void WaitQueue::kick_all() {
  {
    const std::lock_guard guard(mutex_);
    for (auto line = lines_.begin(); line != lines_.end(); ++line) set_retry(line, Nanos{0});
  }
  wake_.notify_all();
}

void WaitQueue::clock_moved() noexcept {
  { const std::lock_guard guard(mutex_); }
  wake_.notify_all();
}

void WaitQueue::start_thread() {
  if (config_.own_thread && !thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void WaitQueue::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const Nanos now = this->now();
    notice_wall_step(now);
    const Nanos due = next_due();
    if (due <= now) {
      lock.unlock();
      poll();
      lock.lock();
    } else {
      config_.clock->wait(lock, wake_, due);
    }
  }
}

Nanos WaitQueue::now() const noexcept { return std::clamp(config_.clock->now(), Nanos{0}, kMaxTime); }

void WaitQueue::serve(Lines::iterator line, Nanos now, std::vector<Finished>& finished) {
  for (;;) {
    Entry* first = *line->second.entries.begin();
    const Decision decision = config_.attempt(first->waiter, now);
    const bool final = is_final(decision);
    if (!final && first->waiter.deadline > now) {
      set_retry(line, retry_at(now, decision));
      return;
    }
    const bool last = line->second.entries.size() == 1;
    finished.push_back({std::move(first->waiter.done), final ? decision : ended(decision, Reason::kTimedOut)});
    remove(first);
    if (last) return;
  }
}

// The first of a line is tried once more, at its deadline; it is the only one for whom there could be room. Where its
// time is up as well, it leaves before those behind it, for whom there may be room then.
void WaitQueue::expire_first(Nanos now, std::vector<Finished>& finished) {
  Entry* entry = entries_.at(deadlines_.begin()->second).get();
  const auto line = lines_.find(entry->waiter.key);
  if ((*line->second.entries.begin())->waiter.deadline <= now) {
    set_retry(line, Nanos{0});
    return;
  }
  finished.push_back({std::move(entry->waiter.done), ended({}, Reason::kTimedOut)});
  remove(entry);
}

// Limits that follow the calendar have room sooner or later than they said once the wall clock has been set.
void WaitQueue::notice_wall_step(Nanos now) {
  const Nanos skew = config_.clock->wall(now) - now;
  if (std::chrono::abs(skew - wall_skew_) <= kWallNoise) return;
  wall_skew_ = skew;
  for (auto line = lines_.begin(); line != lines_.end(); ++line) set_retry(line, Nanos{0});
}

void WaitQueue::set_retry(Lines::iterator line, Nanos at) {
  retries_.erase({line->second.retry_at, line->first});
  line->second.retry_at = at;
  retries_.insert({at, line->first});
}

void WaitQueue::remove(Entry* entry) {
  const auto line = lines_.find(entry->waiter.key);
  const bool was_first = *line->second.entries.begin() == entry;
  line->second.entries.erase(entry);
  if (line->second.entries.empty()) {
    retries_.erase({line->second.retry_at, line->first});
    lines_.erase(line);
  } else if (was_first) {
    set_retry(line, Nanos{0});  // the next may need less
  }
  deadlines_.erase({entry->waiter.deadline, entry->id});
  entries_.erase(entry->id);
  waiting_.fetch_sub(1);
  present_.fetch_sub(1);
}

Nanos WaitQueue::next_due() const {
  Nanos next = kMaxTime;
  if (!retries_.empty()) next = std::min(next, retries_.begin()->at);
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  return next;
}

}  // namespace headgate
