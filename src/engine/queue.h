// The Queue: checks that wait for room until their policy's max_wait is over, retried in order (see WaitingRoom).
//
// Safe for concurrent use, but for serve(), which one thread calls at a time.
#pragma once

#include <absl/functional/function_ref.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "engine/aftermath.h"
#include "engine/charge_list.h"
#include "engine/request.h"
#include "engine/waiting_room.h"

namespace headgate::engine {

class Queue {
 public:
  // Set in what names a check that a remote store is being asked about, and that does not wait in line yet.
  static constexpr std::uint64_t kInFlight = std::uint64_t{1} << 63;

  // `remote`: cells are shared with other nodes. `wake` has serve() called, from any thread.
  Queue(Clock& clock, Aftermath& aftermath, bool remote, std::function<void()> wake)
      : clock_(clock), aftermath_(aftermath), remote_(remote), wake_(std::move(wake)) {}

  [[nodiscard]] bool empty() const noexcept { return room_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return room_.size(); }
  [[nodiscard]] WaitingRoom& room() noexcept { return room_; }

  // Whether the check has to stand behind others; says in the list where.
  [[nodiscard]] bool has_line_before(const Check& check, const CheckDecision& decision, ChargeList& list) const;
  // Has a check that was denied for now wait in line. 0: it is denied for good.
  struct Arrival {
    std::uint64_t kicks = 0;  // before it was judged
    std::uint64_t id = 0;     // 0: it has none yet
  };
  std::uint64_t join(const Arrival& arrival, const Request& request, CheckDecision& decision,
                     absl::FunctionRef<Done()> make_done);

  // Ends a wait; its `done` is called with kCancelled. False: it has been answered, or is just being tried and will be
  // answered either way.
  bool cancel(std::uint64_t waiting) { return take_off(waiting, Why::kCancelled); }
  // Ends the waits of callers that are not valid any more (see Done) with kRevoked, and returns how many. Call it every
  // second or so: serve() admits none of them either, but looks at the first of each line only.
  std::size_t revoke_invalid();
  void cancel_all();

  // Tries those that are due, and answers those whose time is over: some of them, so that a long queue delays no other
  // work of the thread (next_due() says whether there are more). `judge` decides a check: at once (true), or later by
  // what the function makes, from any thread. What is judged later is bounded as well.
  using Judge = absl::FunctionRef<bool(const Request&, CheckDecision&, absl::FunctionRef<Done()>)>;
  void serve(Nanos now, Judge judge);
  // kMaxTime: nothing is due, or it is once an answer has come.
  [[nodiscard]] Nanos next_due() const {
    return room_.empty() || judged_later_.load() >= kMostJudgedLater ? kMaxTime : room_.next_due();
  }

 private:
  using Waiting = std::shared_ptr<WaitingRoom::Waiting>;
  static constexpr int kPerPass = 64;
  static constexpr int kMostJudgedLater = 64;  // at a time

  // Has `judge` decide the check, and `then` go on with the decision, now or later.
  template <class Then>
  void try_one(Judge judge, const Request& request, const Then& then);
  void tried(const Waiting& waiting, std::uint64_t kicks, CheckDecision& decision);
  void timed_out(const Waiting& waiting, CheckDecision& decision);
  bool take_off(std::uint64_t waiting, Why why);
  void answer_uncharged(const WaitingRoom::Waiting& waiting, Why why, Nanos now) const;
  [[nodiscard]] Nanos retry_in(const CheckDecision& decision) const noexcept;

  Clock& clock_;
  Aftermath& aftermath_;
  const bool remote_;
  const std::function<void()> wake_;
  WaitingRoom room_;
  std::atomic<int> judged_later_{0};
};

}  // namespace headgate::engine
