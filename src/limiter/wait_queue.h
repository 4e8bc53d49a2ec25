// Calls that wait for permits: per key in order of priority, then arrival.
//
// Only the first of a key is ever tried; the others wait for it. A call for no permits takes nothing from
// those that wait, and is not delayed by them. Safe for concurrent use. Callbacks run without the lock, from add(), the
// serving thread, poll(), cancel() or the destructor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "headgate/limiter.h"

namespace headgate {

class WaitQueue final : private ClockListener {
 public:
  using Done = std::function<void(const Decision&)>;
  struct Waiter {
    base::Hash128 key;
    std::string name;
    Units permits = 1;
    int priority = 0;
    Nanos deadline{0};
    Done done;
  };
  // Tries to take what the waiter wants. Called under the queue's lock; must not call the queue.
  using Attempt = std::function<Decision(const Waiter&, Nanos now)>;
  struct Config {
    Clock* clock = nullptr;
    std::size_t max_waiters = 0;
    bool own_thread = true;
    bool room_may_come_early = false;  // concurrency: a release is not announced by retry_after
    Attempt attempt;
  };

  explicit WaitQueue(Config config);
  ~WaitQueue();
  WaitQueue(const WaitQueue&) = delete;
  WaitQueue& operator=(const WaitQueue&) = delete;

  // Whether a call waits, or is about to: one relaxed load, since the queue is almost always empty. A thread that made
  // room under a lock that the attempt takes too, and then finds the queue empty, has been seen by every later attempt.
  [[nodiscard]] bool empty_approx() const noexcept { return present_.load(std::memory_order_relaxed) == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.load(); }
  // Whether a call that does not wait would overtake another on this key.
  [[nodiscard]] bool has_waiters(const base::Hash128& key) const;

  // Answers at once if it can be answered, and returns 0; else queues. `done` is called exactly once.
  WaitId add(Waiter waiter);
  bool cancel(WaitId id);
  // Serves what is due; returns when to come again (kMaxTime: the queue is empty).
  Nanos poll();
  // Room may have come for this key, or for all.
  void kick(const base::Hash128& key);
  void kick_all();

 private:
  struct Entry {
    Waiter waiter;
    WaitId id = 0;
  };
  struct First {  // highest priority, then earliest
    bool operator()(const Entry* a, const Entry* b) const noexcept {
      return a->waiter.priority != b->waiter.priority ? a->waiter.priority > b->waiter.priority : a->id < b->id;
    }
  };
  struct KeyLess {
    bool operator()(const base::Hash128& a, const base::Hash128& b) const noexcept {
      return a.low != b.low ? a.low < b.low : a.high < b.high;
    }
  };
  struct Retry {
    Nanos at{0};
    base::Hash128 key;
  };
  struct RetryLess {
    bool operator()(const Retry& a, const Retry& b) const noexcept {
      return a.at != b.at ? a.at < b.at : KeyLess{}(a.key, b.key);
    }
  };
  struct Line {
    std::set<Entry*, First> entries;
    Nanos retry_at{0};
  };
  using Lines = std::map<base::Hash128, Line, KeyLess>;
  struct Finished {
    Done done;
    Decision decision;
  };

  void clock_moved() noexcept override;
  void run();
  void start_thread();
  // All below: under the lock.
  [[nodiscard]] Nanos now() const noexcept;
  void serve(Lines::iterator line, Nanos now, std::vector<Finished>& finished);
  void expire_first(Nanos now, std::vector<Finished>& finished);
  void notice_wall_step(Nanos now);
  void set_retry(Lines::iterator line, Nanos at);
  void remove(Entry* entry);
  [[nodiscard]] Nanos next_due() const;

  const Config config_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Lines lines_;
  std::map<WaitId, std::unique_ptr<Entry>> entries_;
  std::set<Retry, RetryLess> retries_;  // when the first of each line is to be tried again
  std::set<std::pair<Nanos, WaitId>> deadlines_;
  WaitId last_id_ = 0;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<std::size_t> present_{0};  // waiting_, and the calls that are being tried for the first time
  Nanos wall_skew_{0};                   // between the clock's two readings when waits were last tried
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace headgate
