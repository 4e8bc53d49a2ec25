#include "engine/cells.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <semaphore>

#include "engine/decide.h"

namespace headgate::engine {

using policy::OnStoreFailure;
using store::RemoteStore;

namespace {

// Blocks until the answer has come.
Result<RemoteStore::Answer> answer_of(RemoteStore& store, std::span<const store::Charge> charges, const store::Ask& ask,
                                      std::span<core::Outcome> outcomes) {
  std::binary_semaphore answered{0};
  Result<RemoteStore::Answer> answer = RemoteStore::Answer{};
  store.apply(charges, ask, outcomes, [&](const Result<RemoteStore::Answer>& came) {
    answer = came;
    answered.release();
  });
  answered.acquire();
  return answer;
}

Answered deny_unanswered(CheckDecision& decision, bool late) {
  forget_outcomes(decision);
  deny(decision, late ? Why::kStoreLate : Why::kStoreAway);
  decision.retry_after = late ? Cells::kLateRetry : std::chrono::seconds{1};
  return {.by = AnsweredBy::kNone};
}

}  // namespace

Answered Cells::ask_and_wait(ChargeList& list, CheckDecision& decision) {
  assert(remote_ != nullptr);
  const std::span<core::Outcome> outcomes{decision.outcomes.data(), decision.outcomes.size()};
  return take(answer_of(*remote_, list.all(), list.ask, outcomes), list, decision);
}

Answered Cells::take(const Result<RemoteStore::Answer>& answer, ChargeList& list, CheckDecision& decision) {
  if (answer) return {answer->applied, answer->at, AnsweredBy::kRemote};
  const bool overloaded = answer.error().code == ErrorCode::kOverloaded;
  const bool late = overloaded || answer.error().code == ErrorCode::kTimedOut;
  if (late) late_.fetch_add(1, std::memory_order_relaxed);
  // An overload of this node denies under every rule: its callers can bring it about, and must gain nothing by it.
  const auto denies = [=](OnStoreFailure rule) {
    return overloaded || rule == OnStoreFailure::kClosed || (late && rule == OnStoreFailure::kLocal);
  };
  for (std::size_t j = 0; j < decision.judged.size(); ++j) {
    const Judged& judged = decision.judged[j];
    if (!denies(decision.policy(judged).on_store_failure) || judged.soft || judged.count == 0) continue;
    decision.decider = static_cast<std::int32_t>(j);
    return deny_unanswered(decision, late);
  }
  if (decision.allowance_count > 0 && denies(list.of_allowances)) return deny_unanswered(decision, late);
  if (!late) stand_ins_.fetch_add(1, std::memory_order_relaxed);
  return stand_in(list, decision);
}

Answered Cells::stand_in(ChargeList& list, CheckDecision& decision) {
  const auto is_owed = [&](const store::Charge& charge) {
    return charge.cost > 0 && charge.limit->strategy() != Strategy::kConcurrency;
  };
  // What could not be made up for later would be given twice.
  for (const store::Charge& charge : list.charges) {
    if (list.ask.effect == store::Effect::kNone || !is_owed(charge)) continue;
    if (!arrears_.has_room(charge.key, list.ask.owner)) return deny_unanswered(decision, false);
  }
  decision.stand_in = true;
  const ChargeList asked = list;
  for (const Judged& judged : decision.judged) {
    const bool local = decision.policy(judged).on_store_failure == OnStoreFailure::kLocal;
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      store::Charge& charge = list.charges[i];
      charge.limit = &list.limits[i]->local->live;
      if (!local) charge.cost = 0;
    }
  }
  for (std::size_t i = list.charges.size() - decision.allowance_count; i < list.charges.size(); ++i) {
    list.charges[i].limit = &list.limits[i]->local->live;
    if (list.of_allowances == OnStoreFailure::kOpen) list.charges[i].cost = 0;
  }
  Answered answered{.by = AnsweredBy::kStandIn};
  answered.applied = store_.apply(list.all(), list.ask, {decision.outcomes.data(), decision.outcomes.size()});
  if (!answered.admitted() || list.ask.effect == store::Effect::kNone) return answered;
  for (std::size_t i = 0; i < asked.charges.size(); ++i) {
    const store::Charge& charge = asked.charges[i];
    const bool skipped = charge.soft && !decision.outcomes[i].fits();
    if (skipped || !is_owed(charge)) continue;
    arrears_.add(charge.key, {asked.limits[i]->numbers, charge.cost, decision.wall, std::string(list.ask.owner)});
  }
  return answered;
}

std::optional<store::Applied> Cells::apply(std::span<const store::Charge> charges, const store::Ask& ask,
                                           std::span<core::Outcome> outcomes) {
  if (remote_ == nullptr) return store_.apply(charges, ask, outcomes);
  const Result<RemoteStore::Answer> answer = answer_of(*remote_, charges, ask, outcomes);
  if (!answer) return std::nullopt;
  return answer->applied;
}

store::Applied Cells::apply_or_stand_in(std::span<const store::Charge> charges, const store::Ask& ask,
                                        std::span<core::Outcome> outcomes) {
  if (const std::optional<store::Applied> applied = apply(charges, ask, outcomes)) return *applied;
  return store_.apply(charges, ask, outcomes);
}

store::Applied Cells::stand_in(const Error& why, const store::Charge& charge, const store::Ask& ask,
                               core::Outcome& outcome) {
  if (why.code == ErrorCode::kTimedOut || why.code == ErrorCode::kOverloaded) {
    late_.fetch_add(1, std::memory_order_relaxed);
    outcome = {};
    outcome.limit = charge.limit->current().most;
    outcome.wait = kLateRetry;
    return {.wait = kLateRetry};
  }
  stand_ins_.fetch_add(1, std::memory_order_relaxed);
  return store_.apply({&charge, 1}, ask, {&outcome, 1});
}

void Cells::refund(const store::Charge& charge, Nanos charged_at, Nanos now) {
  if (remote_ == nullptr) {
    store_.refund(charge, charged_at, now);
  } else {
    remote_->refund(charge, remote_->now_approx() - (now - charged_at), {});
  }
}

Cells::Portion::~Portion() {
  cells.making_up_.store(false);
  if (!failed.load()) cells.make_up();
}

void Cells::make_up() {
  if (arrears_.size() == 0 || making_up_.exchange(true)) return;
  const auto portion = std::make_shared<Portion>(*this);
  const Nanos wall = clock_.wall(clock_.now());
  for (auto& [cell, arrear] : arrears_.take(kPortion)) {
    store::Charge charge;
    charge.key = cell;
    charge.limit = &arrear.numbers->live;
    const core::CompiledLimit limit = charge.limit->current();
    charge.cost = std::min(still_owed(limit, arrear, wall), limit.most);
    if (charge.cost > 0) charge_owed(charge, std::move(arrear), {}, Rest::kLost, portion);
  }
}

void Cells::charge_owed(const store::Charge& charge, Arrear arrear, const store::Ask& ask, Rest rest,
                        const std::shared_ptr<Portion>& portion) {
  struct Owed {
    store::Charge charge;
    Arrear arrear;  // keeps the limit alive
    core::Outcome outcome;
  };
  arrear.units = charge.cost;
  auto owed = std::make_shared<Owed>(Owed{charge, std::move(arrear), {}});
  remote_->apply({&owed->charge, 1}, ask, {&owed->outcome, 1},
                 [this, owed, ask, rest, portion](const Result<RemoteStore::Answer>& answer) {
                   if (!answer || answer->applied.store_full) {
                     if (portion != nullptr) portion->failed.store(true);
                     arrears_.add(owed->charge.key, owed->arrear);
                     return;
                   }
                   // It may not fit: then all that is left is taken.
                   const Units left = std::max<Units>(owed->outcome.remaining, 0);
                   const bool charged = answer->applied.wait == Nanos{0} || answer->applied.reserved;
                   if (charged || left >= owed->charge.cost) return;
                   store::Charge part = owed->charge;
                   part.cost = left;
                   if (left > 0) charge_owed(part, owed->arrear, ask, Rest::kLost, portion);
                   if (rest != Rest::kAhead) return;
                   store::Ask later = ask;
                   later.effect = store::Effect::kReserve;
                   part.cost = owed->charge.cost - left;
                   charge_owed(part, owed->arrear, later, Rest::kLost, portion);
                 });
}

}  // namespace headgate::engine
