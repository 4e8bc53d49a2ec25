#include "store/redis/charge_queue.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "store/redis/charge_script.h"

namespace headgate::store::redis {

bool ChargeQueue::enter(List& list) {
  if (waiting() == kMaxQueued) return false;
  if (!list.owner.empty()) {
    if (shares_.of(list.owner) == kMaxOfOwner) return false;
    shares_.take(list.owner);
  }
  (list.ahead ? ahead_ : queued_).push_back(std::move(list));
  return true;
}

void ChargeQueue::ask(List list) {
  std::unique_lock guard(mutex_);
  // While pump() sends, too: or this one would overtake what was asked before it.
  const bool queues = list.slot == kAnySlot && (in_flight_ >= kMaxInFlight || waiting() > 0 || pumping_);
  const bool entered = queues && enter(list);
  if (entered) {
    const bool send_now = may_send();
    guard.unlock();
    if (send_now) pump();
    return;
  }
  if (!queues) ++in_flight_;
  guard.unlock();
  if (queues) {
    (void)list.done(
        Error{ErrorCode::kOverloaded, "redis: too many checks wait for it already, in all or of this agent", true});
    return;
  }
  const Nanos asked = list.asked;
  Lists lists;
  lists.push_back(std::move(list));
  send(std::move(lists), asked);
}

Nanos ChargeQueue::take_turn(Lists& next, Lists& late) {
  const Nanos deadline = caller_.deadline();
  const Nanos longest = deadline - deadline / 4;
  const Nanos now = steady_now();
  Nanos oldest = now;
  for (std::deque<List>* const line : {&ahead_, &queued_}) {
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

void ChargeQueue::pump() {
  std::unique_lock lock(mutex_);
  if (pumping_) return;
  pumping_ = true;
  while (may_send()) {
    Lists next;
    Lists late;
    const Nanos oldest = take_turn(next, late);
    if (!next.empty()) ++in_flight_;
    const ErrorCode why_late = in_time_ ? ErrorCode::kOverloaded : ErrorCode::kTimedOut;
    lock.unlock();
    if (!next.empty()) send(std::move(next), oldest);
    for (const List& list : late) {
      (void)list.done(Error{why_late, "redis: others were asked before, until too little time was left", true});
    }
    lock.lock();
  }
  pumping_ = false;
}

void ChargeQueue::send(Lists lists, Nanos asked) {
  const Script& script = charge_script();
  std::vector<std::string_view> keys;
  const std::string until = std::to_string(until_(asked).count() / 1000);
  std::vector<std::string_view> arguments{until};
  for (const List& list : lists) {
    keys.insert(keys.end(), list.keys.begin(), list.keys.end());
    arguments.emplace_back(list.blob);
  }
  Command command;
  append_call(script, keys, arguments, command.wire);
  command.slot = lists[0].slot;
  command.script = &script;
  command.asked = asked;
  command.hear_late = true;
  auto sent = std::make_shared<Sent>(Sent{.lists = std::move(lists)});
  caller_.call(std::move(command), [this, sent](const Result<Reply>& reply) { answered(*sent, reply); });
}

void ChargeQueue::answered(Sent& sent, const Result<Reply>& reply) {
  Lists& lists = sent.lists;
  // One text is about all of them, as is an Error.
  const bool for_all = lists.size() == 1 || !reply || reply->is_text();
  const auto part = [&](std::size_t i) -> Result<Reply> {
    if (for_all) return reply;
    if (reply->size() == lists.size()) return (*reply)[i];
    return Error{ErrorCode::kCorrupt, "redis: the script answered another number of charge lists than it was asked"};
  };
  if (std::exchange(sent.answered, true)) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].late) lists[i].late(part(i));
    }
    return;
  }
  {
    const std::lock_guard guard(mutex_);
    --in_flight_;
    in_time_ = reply || reply.error().code != ErrorCode::kTimedOut;
  }
  pump();  // before the callbacks: Redis should not wait for them
  for (std::size_t i = 0; i < lists.size(); ++i) lists[i].late = lists[i].done(part(i));
}

}  // namespace headgate::store::redis
