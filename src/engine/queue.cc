#include "engine/queue.h"

#include <algorithm>
#include <memory>

#include "engine/decide.h"

namespace headgate::engine {

bool Queue::has_line_before(const Check& check, const CheckDecision& decision, ChargeList& list) const {
  for (std::size_t j = 0; j < decision.judged.size(); ++j) {
    const Judged& judged = decision.judged[j];
    if (decision.policy(judged).behavior != policy::Behavior::kQueue || judged.soft) continue;
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      if (!room_.has_line(list.charges[i].key, check.priority)) continue;
      list.line_judged = static_cast<std::int32_t>(j);
      list.line_charge = static_cast<std::int32_t>(i);
      return true;
    }
  }
  return false;
}

std::uint64_t Queue::join(const Arrival& arrival, const Request& request, CheckDecision& decision,
                          absl::FunctionRef<Done()> make_done) {
  const Check& check = request.check;
  Nanos patience = decision.patience;
  if (check.max_wait > Nanos{0}) patience = std::min(patience, check.max_wait);
  // A wait that cannot end in time is over at once; but a slot may come free at any moment.
  const Judged& judged = decision.judged[static_cast<std::size_t>(decision.decider)];
  bool may_come_early = !room_.empty();
  for (const WorkingLimit& limit : decision.working(judged).strands[judged.strand].limits) {
    may_come_early = may_come_early || limit.base.strategy() == Strategy::kConcurrency;
  }
  const bool hopeless = decision.retry_after > patience && !may_come_early;
  const std::size_t most = decision.state().rules->rules.document().queue.max_waiting;
  WaitingRoom::Place place;
  if (!hopeless) place = room_.take_place(most, request.owner());
  if (place) {
    auto waiting = std::make_shared<WaitingRoom::Waiting>();
    const std::uint64_t id = arrival.id != 0 ? arrival.id : room_.new_id();
    waiting->id = id;
    waiting->line = decision.line;
    waiting->check = OwnedCheck(check, request.account);
    waiting->done = make_done();  // answers the check from here on, so nothing after this may refuse it
    waiting->since = request.now;
    waiting->deadline = request.now + patience;
    waiting->retry_at = request.now + retry_in(decision);
    waiting->priority = check.priority;
    room_.add(std::move(place), std::move(waiting), arrival.kicks);
    return id;
  }
  if (!hopeless) decision.why = Why::kQueueFull;
  aftermath_.denied(request, decision);
  return 0;
}

Nanos Queue::retry_in(const CheckDecision& decision) const noexcept {
  // What is given back here kicks the line. Other nodes give back without a word.
  constexpr Nanos kRemoteRetry = std::chrono::seconds{1};
  return std::clamp(decision.retry_after, Nanos{1}, remote_ ? kRemoteRetry : kMaxTime);
}

bool Queue::take_off(std::uint64_t waiting, Why why) {
  const std::shared_ptr<WaitingRoom::Waiting> taken = room_.take(waiting & ~kInFlight);
  if (taken == nullptr) return false;
  answer_uncharged(*taken, why, clock_.now());
  return true;
}

void Queue::answer_uncharged(const WaitingRoom::Waiting& waiting, Why why, Nanos now) const {
  CheckDecision decision;
  decision.wall = clock_.wall(now);
  decision.why = why;
  decision.waited = now - waiting.since;
  waiting.done(decision);
}

std::size_t Queue::revoke_invalid() {
  if (room_.empty()) return 0;
  std::size_t revoked = 0;
  for (const std::shared_ptr<const WaitingRoom::Waiting>& waiting : room_.revocable()) {
    if (!waiting->done.is_valid() && take_off(waiting->id, Why::kRevoked)) ++revoked;
  }
  return revoked;
}

void Queue::cancel_all() {
  while (const std::shared_ptr<WaitingRoom::Waiting> waiting = room_.take_any()) {
    answer_uncharged(*waiting, Why::kCancelled, clock_.now());
  }
}

void Queue::serve(Nanos now, Judge judge) {
  const auto may_judge = [this] { return judged_later_.load() < kMostJudgedLater; };
  const auto is_valid = [&](const Waiting& waiting) {
    const bool valid = waiting->done.is_valid();
    if (!valid) answer_uncharged(*waiting, Why::kRevoked, now);
    return valid;
  };
  for (int n = 0; n < kPerPass && may_judge(); ++n) {
    const std::uint64_t kicks = room_.kicks();
    const Waiting waiting = room_.take_first_due(now);
    if (waiting == nullptr) break;
    if (is_valid(waiting)) {
      try_one(judge, {now, waiting->check.get(), waiting->check.account(), OnDenial::kRetry},
              [this, waiting, kicks](CheckDecision& decision) { tried(waiting, kicks, decision); });
    } else {
      room_.answered(*waiting);
    }
  }
  for (int n = 0; n < kPerPass; ++n) {
    const Waiting waiting = room_.take_overdue(now);
    if (waiting == nullptr) break;
    if (!is_valid(waiting)) continue;
    Check peek = waiting->check.get();
    peek.peek = true;
    if (may_judge()) {
      try_one(judge, {now, peek, waiting->check.account(), OnDenial::kRetry},
              [this, waiting](CheckDecision& decision) { timed_out(waiting, decision); });
    } else {
      answer_uncharged(*waiting, Why::kTimedOut, now);
    }
  }
}

template <class Then>
void Queue::try_one(Judge judge, const Request& request, const Then& then) {
  CheckDecision decision;
  const bool now = judge(request, decision, [&]() -> Done {
    ++judged_later_;
    return [this, then](CheckDecision& later) {
      then(later);
      --judged_later_;
      if (wake_) wake_();
    };
  });
  if (now) then(decision);
}

void Queue::tried(const Waiting& waiting, std::uint64_t kicks, CheckDecision& decision) {
  const Nanos now = clock_.now();
  if (decision.waits && waiting->deadline > now) {
    waiting->retry_at = now + retry_in(decision);
    // The line of the cell that it waits for now: at the head of another it would keep others from room that is there.
    if (!(waiting->line == decision.line)) waiting->round = 0;
    waiting->line = decision.line;
    if (room_.put_back(waiting, kicks)) return;
    deny(decision, Why::kCancelled);
  } else if (decision.waits) {
    decision.why = Why::kTimedOut;
    aftermath_.denied({now, waiting->check.get(), waiting->check.account(), OnDenial::kRetry}, decision);
  }
  room_.answered(*waiting);
  decision.waited = now - waiting->since;
  waiting->done(decision);
}

void Queue::timed_out(const Waiting& waiting, CheckDecision& decision) {
  const Nanos now = clock_.now();
  deny(decision, Why::kTimedOut);
  aftermath_.denied({now, waiting->check.get(), waiting->check.account(), OnDenial::kRetry}, decision);
  decision.waited = now - waiting->since;
  waiting->done(decision);
}

}  // namespace headgate::engine
