#include "store/redis/plan_queue.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "store/redis/plan_script.h"

namespace headgate::store::redis {

bool PlanQueue::enter(Plan& plan) {
  if (waiting() == kMaxQueued) return false;
  if (!plan.owner.empty()) {
    if (shares_.of(plan.owner) == kMaxOfOwner) return false;
    shares_.take(plan.owner);
  }
  (plan.ahead ? ahead_ : queued_).push_back(std::move(plan));
  return true;
}

void PlanQueue::ask(Plan plan) {
  std::unique_lock guard(mutex_);
  // While pump() sends, too: or this one would overtake what was asked before it.
  const bool queues = plan.slot == kAnySlot && (in_flight_ >= kMaxInFlight || waiting() > 0 || pumping_);
  const bool entered = queues && enter(plan);
  if (entered) {
    const bool send_now = may_send();
    guard.unlock();
    if (send_now) pump();
    return;
  }
  if (!queues) ++in_flight_;
  guard.unlock();
  if (queues) {
    (void)plan.done(
        Error{ErrorCode::kOverloaded, "redis: too many checks wait for it already, in all or of this agent", true});
    return;
  }
  const Nanos asked = plan.asked;
  Plans plans;
  plans.push_back(std::move(plan));
  send(std::move(plans), asked);
}

Nanos PlanQueue::take_turn(Plans& next, Plans& late) {
  const Nanos deadline = caller_.deadline();
  const Nanos longest = deadline - deadline / 4;
  const Nanos now = steady_now();
  Nanos oldest = now;
  for (std::deque<Plan>* const line : {&ahead_, &queued_}) {
    while (!line->empty()) {
      const bool is_late = now - line->front().asked >= longest;
      if (!is_late) oldest = std::min(oldest, line->front().asked);
      if (!is_late && next.size() == kMaxTogether) break;
      if (!line->front().owner.empty()) shares_.give_back(line->front().owner);
      (is_late ? late : next).push_back(std::move(line->front()));
      line->pop_front();
    }
  }
  return oldest;
}

void PlanQueue::pump() {
  std::unique_lock lock(mutex_);
  if (pumping_) return;
  pumping_ = true;
  while (may_send()) {
    Plans next;
    Plans late;
    const Nanos oldest = take_turn(next, late);
    if (!next.empty()) ++in_flight_;
    const ErrorCode why_late = in_time_ ? ErrorCode::kOverloaded : ErrorCode::kTimedOut;
    lock.unlock();
    if (!next.empty()) send(std::move(next), oldest);
    for (const Plan& plan : late) {
      (void)plan.done(Error{why_late, "redis: others were asked before, until too little time was left", true});
    }
    lock.lock();
  }
  pumping_ = false;
}

void PlanQueue::send(Plans plans, Nanos asked) {
  const Script& script = plan_script();
  std::vector<std::string_view> keys;
  const std::string until = std::to_string(until_(asked).count() / 1000);
  std::vector<std::string_view> arguments{until};
  for (const Plan& plan : plans) {
    keys.insert(keys.end(), plan.keys.begin(), plan.keys.end());
    arguments.emplace_back(plan.blob);
  }
  Command command;
  append_call(script, keys, arguments, command.wire);
  command.slot = plans[0].slot;
  command.script = &script;
  command.asked = asked;
  command.hear_late = true;
  auto sent = std::make_shared<Sent>(Sent{.plans = std::move(plans)});
  caller_.call(std::move(command), [this, sent](const Result<Reply>& reply) { answered(*sent, reply); });
}

void PlanQueue::answered(Sent& sent, const Result<Reply>& reply) {
  Plans& plans = sent.plans;
  // One text is about all of them, as is an Error.
  const bool for_all = plans.size() == 1 || !reply || reply->is_text();
  const auto part = [&](std::size_t i) -> Result<Reply> {
    if (for_all) return reply;
    if (reply->size() == plans.size()) return (*reply)[i];
    return Error{ErrorCode::kCorrupt, "redis: the script answered another number of plans than it was asked"};
  };
  if (std::exchange(sent.answered, true)) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].late) plans[i].late(part(i));
    }
    return;
  }
  {
    const std::lock_guard guard(mutex_);
    --in_flight_;
    in_time_ = reply || reply.error().code != ErrorCode::kTimedOut;
  }
  pump();  // the next go before anybody hears of these: Redis should not wait for that
  for (std::size_t i = 0; i < plans.size(); ++i) plans[i].late = plans[i].done(part(i));
}

}  // namespace headgate::store::redis
