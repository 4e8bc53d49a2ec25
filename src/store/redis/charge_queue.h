// Gathers charge lists that arrive at the same time into one call of the script, which costs Redis less than half.
// No list waits to be joined: as long as few calls are in flight it is sent at once and alone. Lists that arrive while
// more are in flight are sent together with the next call. Lists of one thread reach Redis in the order of its calls,
// unless one must be sent again because a cell was written under other numbers.
//
// Every list is answered within the caller's deadline, counted from when it was asked. A call in flight has no more
// time than its oldest list had left when it was sent, and the lists that still wait are younger. Redis gets that
// deadline with the call, and does nothing after it.
#pragma once

#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/shares.h"
#include "store/redis/command.h"

namespace headgate::store::redis {

// Safe for concurrent use.
class ChargeQueue {
 public:
  static constexpr std::size_t kMaxInFlight = 8;    // calls on their way, until a whole call's worth waits
  static constexpr std::size_t kMostInFlight = 64;  // and with such: a large batch needs one round trip, not ten
  static constexpr std::size_t kMaxTogether = 16;   // so that one call keeps Redis from others for a tenth of a ms
  static constexpr std::size_t kMaxQueued = 8192;   // beyond, a list is answered with kOverloaded at once
  static constexpr std::size_t kMaxOfOwner = base::Shares::share_of(kMaxQueued, 64);  // the same, of one owner's

  // By the clock of Redis, when the deadline is over of what was asked then (by steady_now()).
  using Until = std::function<Nanos(Nanos asked)>;
  ChargeQueue(Caller& caller, Until until) : caller_(caller), until_(std::move(until)) {}
  ChargeQueue(const ChargeQueue&) = delete;
  ChargeQueue& operator=(const ChargeQueue&) = delete;

  struct List {
    std::span<const std::string> keys;  // must live until `done` is called
    std::string blob;
    Nanos asked{0};      // by steady_now()
    bool ahead = false;  // of all that wait
    std::string owner;   // whose share of the queue it takes; empty: of no share
    // Hears the answer to this list alone. Returns, after an Error, who is to hear an answer that comes all the same.
    std::function<Caller::Done(const Result<Reply>&)> done;
    std::uint16_t slot = kAnySlot;  // in a cluster: it goes at once and alone, since a script reaches one slot only
    Caller::Done late{};            // what `done` returned
  };
  // Lists that go together have the time that is left to the first of them. A list that has less than a quarter of it
  // left when its turn comes fails instead: a call begun so late would make the server look slow. The error is
  // kOverloaded while Redis answers in time, since then the queue was too long, and kTimedOut otherwise.
  void ask(List list);

 private:
  using Lists = std::vector<List>;
  [[nodiscard]] std::size_t waiting() const noexcept { return ahead_.size() + queued_.size(); }  // under the mutex
  // Under the mutex: whether something waits that need not wait for the next answer.
  [[nodiscard]] bool may_send() const noexcept {
    return waiting() > 0 && (in_flight_ < kMaxInFlight || (waiting() >= kMaxTogether && in_flight_ < kMostInFlight));
  }
  // Sends what waits, as far as it may.
  void pump();
  // Under the mutex: takes a place in the queue; false: there is none left for it.
  [[nodiscard]] bool enter(List& list);
  [[nodiscard]] Nanos take_turn(Lists& next, Lists& late);  // under the mutex; when the oldest was asked
  void send(Lists lists, Nanos asked);
  struct Sent {
    Lists lists;
    bool answered = false;
  };
  void answered(Sent& sent, const Result<Reply>& reply);

  Caller& caller_;
  const Until until_;
  std::mutex mutex_;
  std::deque<List> ahead_;
  std::deque<List> queued_;  // sent when ahead_ is empty
  base::Shares shares_;      // of both
  std::size_t in_flight_ = 0;
  bool in_time_ = true;   // the last call was answered before its deadline
  bool pumping_ = false;  // a call that is answered before it returns must not start another pump()
};

}  // namespace headgate::store::redis
