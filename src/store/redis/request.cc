#include "store/redis/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>

namespace headgate::store::redis {
namespace {

Error too_late(const Request& request) {
  const auto patience = std::chrono::duration<double, std::milli>(request.deadline - request.asked).count();
  const std::string_view who = request.carrier != nullptr ? std::string_view(request.carrier->name()) : "";
  return {ErrorCode::kTimedOut, fmt::format("redis {} did not answer within {} ms", who, patience), true};
}

}  // namespace

Nanos steady_now() noexcept {
  return std::chrono::duration_cast<Nanos>(std::chrono::steady_clock::now().time_since_epoch());
}

Requests::~Requests() {
  const Error stopped{ErrorCode::kIo, "redis: the client was stopped", true};
  calls_.splice(calls_.end(), inbox_);
  while (!own_.empty()) answer(own_.front(), stopped);
  while (!calls_.empty()) answer(calls_.front(), stopped);
}

Requests::Taken Requests::submit(Command& command, Caller::Done& done) {
  std::list<Request> fresh(1);
  Request& request = fresh.front();
  request.place = fresh.begin();
  request.owner = &calls_;
  if (outstanding_.fetch_add(1) >= bounds_.max_outstanding) {
    --outstanding_;
    return Taken::kFull;
  }
  const std::lock_guard lock(mutex_);
  // Under the lock, so that most come in the order of deadlines.
  request.asked = command.asked != Nanos{0} ? command.asked : steady_now();
  request.deadline = request.asked + bounds_.deadline;
  request.command = std::move(command);
  request.done = std::move(done);
  inbox_.splice(inbox_.end(), fresh);
  if (!asleep_) return Taken::kYes;
  asleep_ = false;
  return Taken::kYesAndWake;
}

std::list<Request> Requests::take_or_sleep() {
  std::list<Request> taken;
  const std::lock_guard lock(mutex_);
  taken.swap(inbox_);
  asleep_ = taken.empty();
  return taken;
}

void Requests::accept(std::list<Request>& fresh) noexcept {
  while (!fresh.empty()) {
    // What was asked some time ago overtakes what was asked since.
    auto behind = calls_.end();
    while (behind != calls_.begin() && std::prev(behind)->deadline > fresh.front().deadline) --behind;
    calls_.splice(behind, fresh, fresh.begin());
  }
}

Request& Requests::add_own(Command command, Caller::Done done, Nanos patience) {
  assert(own_.empty() || own_.back().deadline - own_.back().asked == patience);
  Request& request = own_.emplace_back();
  request.place = std::prev(own_.end());
  request.owner = &own_;
  request.command = std::move(command);
  request.done = std::move(done);
  request.asked = steady_now();
  request.deadline = request.asked + patience;
  return request;
}

void Requests::answer(Request& request, const Result<Reply>& result) {
  if (request.owed != nullptr) request.owed->request = nullptr;
  std::list<Request> gone;
  if (request.owner == &calls_) --outstanding_;
  gone.splice(gone.end(), *request.owner, request.place);
  request.done(result);
}

Nanos Requests::expire(Nanos now) {
  expire(calls_, now);
  expire(own_, now);
  return next_due();
}

Nanos Requests::next_due() const noexcept {
  const Nanos call = calls_.empty() ? kNotDue : calls_.front().deadline;
  return own_.empty() ? call : std::min(call, own_.front().deadline);
}

void Requests::expire(std::list<Request>& requests, Nanos now) {
  while (!requests.empty() && requests.front().deadline <= now) {
    Request& late = requests.front();
    Carrier* const carrier = late.carrier;
    if (late.command.hear_late && late.owed != nullptr) late.owed->late = late.done;
    answer(late, too_late(late));
    if (carrier != nullptr) carrier->on_late();
  }
}

}  // namespace headgate::store::redis
