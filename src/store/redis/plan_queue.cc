#include "store/redis/plan_queue.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "store/redis/plan_script.h"

namespace headgate::store::redis {

void PlanQueue::ask(Plan plan) {
  bool full = false;
  {
    const std::lock_guard guard(mutex_);
    if (in_flight_ == kMaxInFlight || waiting() > 0) {
      full = waiting() == kMaxQueued;
      if (!full) {
        (plan.ahead ? ahead_ : queued_).push_back(std::move(plan));
        return;
      }
    } else {
      ++in_flight_;
    }
  }
  if (full) {
    plan.done(Error{ErrorCode::kIo,
                    "redis: " + std::to_string(kMaxQueued) + " checks wait for it already, which is as many as may",
                    true});
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
  while (in_flight_ < kMaxInFlight && waiting() > 0) {
    Plans next;
    Plans late;
    const Nanos oldest = take_turn(next, late);
    if (!next.empty()) ++in_flight_;
    lock.unlock();
    if (!next.empty()) send(std::move(next), oldest);
    for (const Plan& plan : late) {
      plan.done(Error{ErrorCode::kIo, "redis: others were asked before, until too little time was left", true});
    }
    lock.lock();
  }
  pumping_ = false;
}

void PlanQueue::send(Plans plans, Nanos asked) {
  const Script& script = plan_script();
  std::vector<std::string_view> keys;
  std::vector<std::string_view> blobs;
  for (const Plan& plan : plans) {
    keys.insert(keys.end(), plan.keys.begin(), plan.keys.end());
    blobs.emplace_back(plan.blob);
  }
  Command command;
  append_call(script, keys, blobs, command.wire);
  command.script = &script;
  command.asked = asked;
  auto sent = std::make_shared<Plans>(std::move(plans));
  caller_.call(std::move(command), [this, sent](const Result<Reply>& reply) { answered(*sent, reply); });
}

void PlanQueue::answered(Plans& plans, const Result<Reply>& reply) {
  {
    const std::lock_guard guard(mutex_);
    --in_flight_;
  }
  pump();  // the next go before anybody hears of these: Redis should not wait for that

  if (plans.size() == 1 || !reply) {
    for (const Plan& plan : plans) plan.done(reply);
    return;
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (reply->size() == plans.size()) {
      plans[i].done((*reply)[i]);
    } else {
      plans[i].done(Error{ErrorCode::kCorrupt, "redis: the script answered another number of plans than it was asked"});
    }
  }
}

}  // namespace headgate::store::redis
