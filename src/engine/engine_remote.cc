// Plans that are judged elsewhere: asking, standing in while nobody answers, and making up for it afterwards.
#include <algorithm>
#include <semaphore>

#include "engine/engine.h"
#include "engine/owned_check.h"
#include "engine/plan.h"

namespace headgate::engine {

using store::RemoteStore;

struct Engine::Flight {
  OwnedCheck check;
  CheckDecision decision;
  Plan plan;
  Arrival arrival;
  Asker asker;
  Done done;
};

namespace {

// Asks, and waits for the answer: not for longer than the store's deadline. Never on a thread that serves connections.
Result<RemoteStore::Answer> ask_and_wait(RemoteStore& store, std::span<const store::Charge> charges,
                                         const store::Ask& ask, std::span<core::Outcome> outcomes) {
  std::binary_semaphore answered{0};
  Result<RemoteStore::Answer> answer = RemoteStore::Answer{};
  store.apply(charges, ask, outcomes, [&](const Result<RemoteStore::Answer>& came) {
    answer = came;
    answered.release();
  });
  answered.acquire();
  return answer;
}

}  // namespace

std::optional<Engine::Answered> Engine::try_far(const Plan& plan, CheckDecision& decision) {
  if (plan.holds) return std::nullopt;
  const auto applied = remote_->try_now(plan.all(), plan.ask, {decision.outcomes.data(), decision.outcomes.size()});
  if (!applied) return std::nullopt;
  return Answered{.applied = *applied, .by = AnsweredBy::kRemote};
}

Engine::Answered Engine::apply_far(Plan& plan, CheckDecision& decision) {
  if (const std::optional<Answered> answered = try_far(plan, decision)) return *answered;
  const std::span<core::Outcome> outcomes{decision.outcomes.data(), decision.outcomes.size()};
  const Result<RemoteStore::Answer> answer = ask_and_wait(*remote_, plan.all(), plan.ask, outcomes);
  if (!answer) return unanswered(answer.error(), plan, decision);
  return {answer->applied, answer->at, AnsweredBy::kRemote};
}

void Engine::deny_unanswered(CheckDecision& decision, bool late) const {
  forget_outcomes(decision);
  deny(decision, late ? Why::kStoreLate : Why::kStoreAway);
  decision.retry_after = late ? kLateRetry : std::chrono::seconds{1};
}

Engine::Answered Engine::unanswered(const Error& why, Plan& plan, CheckDecision& decision) {
  using policy::OnStoreFailure;
  const bool overloaded = why.code == ErrorCode::kOverloaded;
  const bool late = overloaded || why.code == ErrorCode::kTimedOut;
  if (late) late_.fetch_add(1, std::memory_order_relaxed);
  // An overload of this node denies under every rule: its callers can bring it about, and must gain nothing by it.
  const auto denies = [=](OnStoreFailure rule) {
    return overloaded || rule == OnStoreFailure::kClosed || (late && rule == OnStoreFailure::kLocal);
  };
  for (std::size_t j = 0; j < decision.judged.size(); ++j) {
    const Judged& judged = decision.judged[j];
    if (!denies(decision.policy(judged).on_store_failure) || judged.soft || judged.count == 0) continue;
    deny_unanswered(decision, late);
    decision.decider = static_cast<std::int32_t>(j);
    return {.by = AnsweredBy::kNobody};
  }
  if (decision.allowance_count > 0 && denies(plan.of_allowances)) {
    deny_unanswered(decision, late);
    return {.by = AnsweredBy::kNobody};
  }
  if (!late) stand_ins_.fetch_add(1, std::memory_order_relaxed);
  return stand_in(plan, decision);
}

Engine::Answered Engine::stand_in(Plan& plan, CheckDecision& decision) {
  using policy::OnStoreFailure;
  decision.stand_in = true;
  const Plan asked = plan;
  for (const Judged& judged : decision.judged) {
    const bool local = decision.policy(judged).on_store_failure == OnStoreFailure::kLocal;
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      store::Charge& charge = plan.charges[i];
      charge.limit = &plan.limits[i]->local->live;
      if (!local) charge.cost = 0;
    }
  }
  for (std::size_t i = plan.charges.size() - decision.allowance_count; i < plan.charges.size(); ++i) {
    plan.charges[i].limit = &plan.limits[i]->local->live;
    if (plan.of_allowances == OnStoreFailure::kOpen) plan.charges[i].cost = 0;
  }
  Answered answered{.by = AnsweredBy::kStandIn};
  answered.applied = store_.apply(plan.all(), plan.ask, {decision.outcomes.data(), decision.outcomes.size()});
  const store::Applied& applied = answered.applied;
  const bool admitted = (applied.wait == Nanos{0} || applied.reserved) && !applied.store_full;
  if (!admitted || plan.ask.effect == store::Effect::kNone) return answered;
  for (std::size_t i = 0; i < asked.charges.size(); ++i) {
    const store::Charge& charge = asked.charges[i];
    const bool skipped = charge.soft && !decision.outcomes[i].fits();
    if (charge.cost == 0 || skipped || charge.limit->strategy() == Strategy::kConcurrency) continue;
    arrears_.add(charge.key, asked.limits[i]->numbers, charge.cost, decision.wall);
  }
  return answered;
}

std::uint64_t Engine::check_or_wait(Nanos now, const Check& check, CheckDecision& decision,
                                    absl::FunctionRef<Done()> make_done) {
  return start(now, check, Asker::kMayWait, decision, make_done);
}

std::uint64_t Engine::check_later(Nanos now, const Check& check, CheckDecision& decision,
                                  absl::FunctionRef<Done()> make_done) {
  return start(now, check, Asker::kNow, decision, make_done);
}

inline std::uint64_t Engine::start(Nanos now, const Check& check, Asker asker, CheckDecision& decision,
                                   absl::FunctionRef<Done()> make_done) {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  const std::uint64_t kicks = room_.kicks();
  Plan plan;
  if (!prepare(now, check, asker, plan, decision)) return 0;
  std::optional<Answered> answered;
  if (remote_ == nullptr) {
    answered = Answered{store_.apply(plan.all(), plan.ask, {decision.outcomes.data(), decision.outcomes.size()})};
  } else {
    answered = try_far(plan, decision);
  }
  if (!answered) {
    auto flight = std::make_unique_for_overwrite<Flight>();  // its arrays are large
    flight->check = OwnedCheck(check);
    flight->decision = std::move(decision);
    flight->plan = plan;
    flight->plan.ask.owner = owner_of(flight->check.get());  // of text that outlives this call
    flight->arrival = {now, kicks, room_.new_id()};
    flight->asker = asker;
    flight->done = make_done();
    const std::uint64_t id = flight->arrival.id;
    Flight* asked = flight.release();  // comes back with the answer, which comes exactly once
    remote_->apply(asked->plan.all(), asked->plan.ask,
                   {asked->decision.outcomes.data(), asked->decision.outcomes.size()},
                   [this, asked](const Result<RemoteStore::Answer>& answer) {
                     const std::unique_ptr<Flight> landing(asked);
                     land(*landing, answer);
                   });
    return kInFlight | id;
  }
  conclude(now, check, asker, *answered, plan, decision);
  if (asker != Asker::kMayWait || !decision.waits || check.peek) return 0;
  return queue_up({now, kicks, 0}, check, decision, make_done);
}

void Engine::land(Flight& flight, const Result<RemoteStore::Answer>& answer) {
  const Check& check = flight.check.get();
  const Answered answered = answer ? Answered{answer->applied, answer->at, AnsweredBy::kRemote}
                                   : unanswered(answer.error(), flight.plan, flight.decision);
  conclude(flight.arrival.now, check, flight.asker, answered, flight.plan, flight.decision);
  if (flight.asker == Asker::kMayWait && flight.decision.waits && !check.peek) {
    const auto done = [&] { return std::move(flight.done); };  // called only where it waits from then on
    if (queue_up(flight.arrival, check, flight.decision, done) != 0) {
      if (wake_) wake_();
      return;
    }
  }
  flight.done(flight.decision);
}

std::optional<store::Applied> Engine::apply_there(std::span<const store::Charge> charges, const store::Ask& ask,
                                                  std::span<core::Outcome> outcomes) {
  if (remote_ == nullptr) return store_.apply(charges, ask, outcomes);
  const Result<RemoteStore::Answer> answer = ask_and_wait(*remote_, charges, ask, outcomes);
  if (!answer) return std::nullopt;
  return answer->applied;
}

store::Applied Engine::apply_plain(std::span<const store::Charge> charges, const store::Ask& ask,
                                   std::span<core::Outcome> outcomes) {
  if (const std::optional<store::Applied> applied = apply_there(charges, ask, outcomes)) return *applied;
  return store_.apply(charges, ask, outcomes);
}

void Engine::refund_one(const store::Charge& charge, Nanos charged_at, Nanos now) {
  if (remote_ == nullptr) {
    store_.refund(charge, charged_at, now);
  } else {
    remote_->refund(charge, remote_->now_approx() - (now - charged_at), {});
  }
}

void Engine::set_local_share(double share) {
  const std::lock_guard guard(control_mutex_);
  book_.set_share(share);
  scale_all_locked();
}

void Engine::make_up() {
  for (auto& [cell, arrear] : arrears_.take_all()) {
    store::Charge charge;
    charge.key = cell;
    charge.limit = &arrear.numbers->live;
    const core::CompiledLimit limit = charge.limit->current();
    charge.cost = std::min(still_owed(limit, arrear, clock_->wall(clock_->now())), limit.most);
    if (charge.cost > 0) charge_owed(charge, std::move(arrear), {}, Rest::kLost);
  }
}

void Engine::charge_owed(const store::Charge& charge, Arrear arrear, const store::Ask& ask, Rest rest) {
  struct Owed {
    store::Charge charge;
    Arrear arrear;  // keeps the limit alive
    core::Outcome outcome;
  };
  auto owed = std::make_shared<Owed>(Owed{charge, std::move(arrear), {}});
  remote_->apply({&owed->charge, 1}, ask, {&owed->outcome, 1},
                 [this, owed, ask, rest](const Result<RemoteStore::Answer>& answer) {
                   if (!answer || answer->applied.store_full) {
                     arrears_.add(owed->charge.key, owed->arrear.numbers, owed->charge.cost, owed->arrear.last);
                     return;
                   }
                   // It may not fit: then all that is left is taken.
                   const Units left = std::max<Units>(owed->outcome.remaining, 0);
                   const bool charged = answer->applied.wait == Nanos{0} || answer->applied.reserved;
                   if (charged || left >= owed->charge.cost) return;
                   store::Charge part = owed->charge;
                   part.cost = left;
                   if (left > 0) charge_owed(part, owed->arrear, ask, Rest::kLost);
                   if (rest != Rest::kAhead) return;
                   store::Ask later = ask;
                   later.effect = store::Effect::kReserve;
                   part.cost = owed->charge.cost - left;
                   charge_owed(part, owed->arrear, later, Rest::kLost);
                 });
}

}  // namespace headgate::engine
