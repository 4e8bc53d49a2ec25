#include "limiter/wait_queue.h"

#include <system_error>

namespace headgate {
namespace {

Decision ended(Decision decision, Reason reason) {
  decision.verdict = Verdict::kNotYet;
  decision.reason = reason;
  return decision;
}

}  // namespace

WaitQueue::WaitQueue(Config config) : config_(std::move(config)) { config_.clock->subscribe(this); }

WaitQueue::~WaitQueue() {
  config_.clock->unsubscribe(this);
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (auto& [id, entry] : entries_) entry->waiter.done(ended({}, Reason::kCancelled));
}

bool WaitQueue::has_waiters(const base::Hash128& key) const {
  const std::lock_guard guard(mutex_);
  return lines_.contains(key);
}

WaitId WaitQueue::add(Waiter waiter) {
  std::unique_lock lock(mutex_);
  const Nanos now = config_.clock->now();
  auto line = lines_.find(waiter.key);
  const bool goes_first = line == lines_.end() || (*line->second.entries.begin())->waiter.priority < waiter.priority;
  Decision decision;
  if (goes_first) {
    decision = config_.attempt(waiter, now);
    const bool hopeless = decision.verdict == Verdict::kNever ||
                          (!config_.room_may_come_early && now + decision.retry_after > waiter.deadline) ||
                          waiter.deadline <= now;
    if (decision.allowed() || hopeless) {
      lock.unlock();
      waiter.done(decision);
      return 0;
    }
  }
  if (entries_.size() >= config_.max_waiters || waiter.deadline <= now) {
    lock.unlock();
    waiter.done(ended(decision, waiter.deadline <= now ? Reason::kLimited : Reason::kQueueFull));
    return 0;
  }
  try {
    start_thread();
  } catch (const std::system_error&) {  // no thread to serve the wait: as good as a full queue
    lock.unlock();
    waiter.done(ended(decision, Reason::kQueueFull));
    return 0;
  }
  const WaitId id = ++last_id_;
  auto owned = std::make_unique<Entry>(Entry{std::move(waiter), id});
  Entry* entry = owned.get();
  entries_.emplace(id, std::move(owned));
  deadlines_.emplace(entry->waiter.deadline, id);
  line = lines_.try_emplace(entry->waiter.key).first;
  line->second.entries.insert(entry);
  waiting_.fetch_add(1);
  if (goes_first) set_retry(line, now + decision.retry_after);
  lock.unlock();
  wake_.notify_all();
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
    const Nanos now = config_.clock->now();
    while (!retries_.empty() && retries_.begin()->at <= now) {
      serve(lines_.find(retries_.begin()->key), now, finished);
    }
    expire(now, finished);
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
    const Nanos due = next_due();
    if (due <= config_.clock->now()) {
      lock.unlock();
      poll();
      lock.lock();
    } else {
      config_.clock->wait(lock, wake_, due);
    }
  }
}

void WaitQueue::serve(Lines::iterator line, Nanos now, std::vector<Finished>& finished) {
  for (;;) {
    Entry* first = *line->second.entries.begin();
    const Decision decision = config_.attempt(first->waiter, now);
    if (decision.verdict == Verdict::kNotYet && first->waiter.deadline > now) {
      // A retry at this very instant would spin.
      set_retry(line, now + std::max(decision.retry_after, Nanos{1}));
      return;
    }
    const bool last = line->second.entries.size() == 1;
    finished.push_back({std::move(first->waiter.done),
                        decision.verdict == Verdict::kNotYet ? ended(decision, Reason::kTimedOut) : decision});
    remove(first);
    if (last) return;
  }
}

void WaitQueue::expire(Nanos now, std::vector<Finished>& finished) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Entry* entry = entries_.at(deadlines_.begin()->second).get();
    finished.push_back({std::move(entry->waiter.done), ended({}, Reason::kTimedOut)});
    remove(entry);
  }
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
}

Nanos WaitQueue::next_due() const {
  Nanos next = kMaxTime;
  if (!retries_.empty()) next = retries_.begin()->at;
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  return next;
}

}  // namespace headgate
