// Calls on their way, and the one place that answers them.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>

#include "headgate/clock.h"
#include "store/redis/command.h"

namespace headgate::store::redis {

struct Request;

// Where a request was handed to.
class Carrier {
 public:
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;  // the server's address
  virtual void on_late() = 0;                                          // a request of its was not answered in time

 protected:
  ~Carrier() = default;
};

// What a connection keeps for one command, in the order of replies.
struct Owed {
  Request* request = nullptr;  // null: it has expired (or it is housekeeping of the connection itself)
  Nanos since{0};
  Caller::Done late{};  // called with a reply that comes after it has expired; may be empty
};

struct Request {
  Command command;
  Caller::Done done;
  Nanos asked{0};
  Nanos deadline{0};
  std::list<Request>::iterator place;  // in the list that owns it
  std::list<Request>* owner = nullptr;
  Owed* owed = nullptr;        // at a connection; null: at none
  Carrier* carrier = nullptr;  // that connection's server
  std::uint64_t sent_as = 0;   // its number on that connection
  std::uint8_t hops = 0;       // how often it was sent elsewhere
  bool script_told = false;    // to this server, after NOSCRIPT; not a second time
  bool tell_script = false;    // to be sent after its script
  bool asking = false;         // to be introduced with ASKING
};

// All calls without an answer. Each is answered exactly once: by answer(), by expire(), or when it is destroyed. One
// that expires leaves behind the callback for a reply that comes all the same, if it has one.
//
// Requests have stable addresses from submit() until they are answered. submit() may be called from any thread, the
// rest from the client's.
class Requests {
 public:
  struct Bounds {
    Nanos deadline;
    std::size_t max_outstanding;
  };
  explicit Requests(const Bounds& bounds) noexcept : bounds_(bounds) {}
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  enum class Taken : std::uint8_t { kYes, kYesAndWake, kFull };
  // kFull: `done` was left as it is. kYesAndWake: the client's thread sleeps, or is about to.
  [[nodiscard]] Taken submit(Command& command, Caller::Done& done);

  // What has come since the last time, for the client's thread; empty: it may sleep until it is woken.
  [[nodiscard]] std::list<Request> take_or_sleep();
  void accept(std::list<Request>& fresh) noexcept;

  // A command of the client's own. REQUIRES: all have the same `patience`.
  [[nodiscard]] Request& add_own(Command command, Caller::Done done, Nanos patience);

  // The request is gone after this.
  void answer(Request& request, const Result<Reply>& result);
  // Answers what is too late; returns when the next one will be.
  Nanos expire(Nanos now);
  [[nodiscard]] Nanos next_due() const noexcept;

 private:
  void expire(std::list<Request>& requests, Nanos now);

  const Bounds bounds_;
  std::mutex mutex_;
  std::list<Request> inbox_;  // under the mutex
  bool asleep_ = false;       // under the mutex
  std::atomic<std::size_t> outstanding_{0};
  std::list<Request> calls_;  // by deadline
  std::list<Request> own_;    // by deadline
};

inline constexpr Nanos kNotDue = Nanos::max();

}  // namespace headgate::store::redis
