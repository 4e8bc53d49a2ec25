// Holds on cost and slots, and checks that wait for room.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "engine/plan.h"

namespace headgate::engine {

bool Engine::take_lease(Nanos now, const Check& check, const Plan& plan, const Answered& answered,
                        CheckDecision& decision) {
  const store::Applied& applied = answered.applied;
  const bool remote = answered.by == AnsweredBy::kRemote;
  auto lease = std::make_shared<Lease>();
  lease->id = decision.lease;
  lease->agent = check.agent;
  lease->owner = owner_of(check);
  lease->slot = Leases::slot_of(lease->id);
  // Slots alone are held for as long as their limits say, however short holds on cost are.
  lease->ttl = check.hold ? decision.state_->rules->rules.document().leases.ttl : core::kLongestSpan;
  for (const Judged& judged : decision.judged) {
    const WorkingPolicy& working = decision.working(judged);
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      const store::Charge& charge = plan.charges[i];
      const bool slots = charge.limit->strategy() == Strategy::kConcurrency;
      const bool charged = charge.cost > 0 && (!charge.soft || decision.outcomes[i].fits());
      if (!charged || (!check.hold && !slots)) continue;
      const core::CompiledLimit& numbers = charge.limit->current();
      if (slots) lease->ttl = std::min(lease->ttl, numbers.numbers.concurrency.ttl);
      const core::Outcome& outcome = decision.outcomes[i];
      const bool waits = applied.reserved && !outcome.fits();
      const Nanos wait = charge.limit->strategy() == Strategy::kLeakyBucket ? outcome.delay
                         : waits                                            ? applied.wait
                                                                            : Nanos{0};
      const Nanos at = remote ? answered.at : numbers.follows_wall() ? decision.wall : now;
      const WorkingLimit& limit = *plan.limits[i];
      lease->held.push_back({charge, answered.by == AnsweredBy::kStandIn ? limit.local : limit.numbers, at + wait,
                             waits ? Nanos{0} : outcome.reset_after, charge.limit->generation(), working.policy->unit,
                             working.policy->id, working.scale, remote, !working.policy->holds, working.least});
    }
  }
  if (lease->held.empty()) {
    decision.lease.clear();  // nothing that could be given back
    return true;
  }
  if (check.costs.empty()) lease->costs.emplace_back("requests", 1);
  for (const Cost& cost : check.costs) lease->costs.emplace_back(cost.unit, cost.amount);
  lease->expires = now + lease->ttl;
  if (leases_.add(lease)) return true;
  give_back(*lease, now, GiveBack::kUndo);
  decision.lease.clear();
  deny(decision, Why::kTooManyLeases);
  return false;
}

void Engine::give_back(const Lease& lease, Nanos now, GiveBack what) {
  const Nanos wall = clock_->wall(now);
  for (const Held& held : lease.held) {
    if (held.charge.limit->strategy() == Strategy::kConcurrency) {
      release_slot(held, lease.slot, now);
    } else if (what == GiveBack::kUndo || !held.final) {
      refund_held(held, held.charge, now, wall);
    }
  }
}

store::RemoteStore::Told Engine::kick_when_told(const base::Hash128& cell) {
  return [this, cell](const Result<bool>&) {
    room_.kick(cell);
    if (wake_) wake_();
  };
}

void Engine::release_slot(const Held& held, LeaseId slot, Nanos now) {
  if (held.remote) {
    remote_->release(held.charge, slot, kick_when_told(held.charge.key));
  } else {
    store_.release(held.charge, slot, now);
    room_.kick(held.charge.key);
  }
}

void Engine::refund_held(const Held& held, const store::Charge& charge, Nanos now, Nanos wall) {
  const core::CompiledLimit limit = charge.limit->current();
  Nanos charged_at = held.charged_at;
  if (held.generation == charge.limit->generation()) {
    if (limit.strategy == Strategy::kLeakyBucket) {
      charged_at += core::refill_time(limit, held.charge.cost - charge.cost);  // the units that are kept go first
    } else if (limit.strategy == Strategy::kTokenBucket || limit.strategy == Strategy::kGcra) {
      // Once the bucket would have been full without these units, the refill has brought them back. That it would not
      // have been before it had refilled all else that was drawn, whatever was drawn since.
      charged_at += std::max(held.reset_after - core::refill_time(limit, charge.cost), Nanos{0});
    }
  }
  if (held.remote) {
    remote_->refund(charge, charged_at, kick_when_told(charge.key));
  } else {
    store_.refund(charge, charged_at, limit.follows_wall() ? wall : now);
    room_.kick(charge.key);
  }
}

void Engine::expire_leases(Nanos now) {
  while (const std::shared_ptr<Lease> lease = leases_.expire_one(now)) {
    give_back(*lease, now, GiveBack::kReturned);
    tell({.kind = Event::Kind::kLeaseExpired,
          .time = clock_->wall(now),
          .agent = lease->agent,
          .text = lease->id,
          .value = static_cast<double>(lease->ttl.count()) / 1e6});
  }
}

Result<Engine::FoundLease> Engine::find_lease(std::string_view id, std::string_view owner, Nanos now,
                                              std::unique_lock<std::mutex>& guard) {
  expire_leases(now);
  FoundLease found{leases_.find(id, guard), {}};
  const Leases::Ended* const ended = found.open == nullptr ? leases_.find_ended(id, now) : nullptr;
  if (found.open == nullptr && ended == nullptr) {
    return Error{ErrorCode::kNotFound, fmt::format("no lease \"{}\" is held: it has expired, or never was", id)};
  }
  const std::string& agent = ended == nullptr ? found.open->agent : ended->agent;
  if (!owner.empty() && !agent.empty() && owner != agent) {
    return Error{ErrorCode::kForbidden, fmt::format("lease \"{}\" belongs to another agent than \"{}\"", id, owner)};
  }
  if (ended != nullptr) {
    found.settled = ended->settled;
    found.settled.again = true;
  }
  return found;
}

// Charges or refunds the difference; returns what did not fit.
double Engine::settle_part(const Held& held, double actual, Nanos now, Nanos wall, LeaseId slot) {
  const Units used = static_cast<Units>(std::ceil(actual * held.scale - 1e-6));
  const Units wanted = std::max(used, held.final ? held.charge.cost : held.least);
  store::Charge charge = held.charge;
  charge.cost = std::abs(wanted - held.charge.cost);
  charge.counted = false;
  if (wanted < held.charge.cost) {
    refund_held(held, charge, now, wall);
    return 0;
  }
  if (charge.cost == 0) return 0;
  // What was used was used: as much as fits is charged now, the rest ahead; and what no wait could fit is told.
  const Units most = charge.limit->current().most;
  const Units excess = std::max<Units>(0, charge.cost - most);
  charge.cost -= excess;
  charge.soft = false;
  charge.patience = core::kLongestSpan;
  store::Ask ask{.now = now, .wall = wall, .patience = core::kLongestSpan, .lease = slot, .count_denial = false};
  if (held.remote) {
    charge_owed(charge, {held.numbers, charge.cost, wall}, ask, Rest::kAhead);
    return static_cast<double>(excess) / held.scale;
  }
  const auto take = [&](Units units, store::Effect effect) {
    charge.cost = units;
    ask.effect = effect;
    core::Outcome outcome;
    const store::Applied applied = store_.apply({&charge, 1}, ask, {&outcome, 1});
    const bool taken = !applied.store_full && (applied.wait == Nanos{0} || applied.reserved);
    return std::pair(taken ? units : 0, outcome.remaining);
  };
  Units rest = charge.cost;
  const auto [all, left] = take(rest, store::Effect::kCharge);
  rest -= all;
  if (rest > 0 && left > 0) rest -= take(std::min(left, rest), store::Effect::kCharge).first;
  if (rest > 0) rest -= take(rest, store::Effect::kReserve).first;
  return static_cast<double>(excess + rest) / held.scale;
}

Result<Settled> Engine::settle(std::string_view id, std::string_view owner, std::span<const Cost> actual) {
  for (const Cost& cost : actual) {
    if (!(cost.amount >= 0) || cost.amount > kMaxCost) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("cost.{} must be between 0 and {:.0f}, got {}", cost.unit, kMaxCost, cost.amount)};
    }
  }
  const Nanos now = clock_->now();
  const Nanos wall = clock_->wall(now);
  std::unique_lock<std::mutex> guard;
  Result<FoundLease> found = find_lease(id, owner, now, guard);
  if (!found) return std::move(found).error();
  if (found->open == nullptr) return found->settled;
  Lease& lease = *found->open;
  const auto actual_of = [&](std::string_view unit) -> const Cost* {
    const auto cost = std::find_if(actual.begin(), actual.end(), [&](const Cost& each) { return each.unit == unit; });
    return cost == actual.end() ? nullptr : &*cost;
  };
  Settled settled;
  settled.costs = lease.costs;
  for (auto& [unit, amount] : settled.costs) {
    if (const Cost* cost = actual_of(unit)) amount = cost->amount;
  }
  count_final(lease, settled);
  std::string worst;
  for (const Held& held : lease.held) {
    if (held.charge.limit->strategy() == Strategy::kConcurrency) {
      release_slot(held, lease.slot, now);
      continue;
    }
    const Cost* cost = actual_of(held.unit);
    if (cost == nullptr) continue;
    const double over = settle_part(held, cost->amount, now, wall, lease.slot);
    if (over <= settled.overrun) continue;
    settled.overrun = over;
    worst = held.policy_id;
  }
  const std::string agent = lease.agent;
  leases_.end(lease, settled, now);
  guard.unlock();
  if (settled.overrun > 0) {
    tell({.kind = Event::Kind::kOverrun,
          .time = wall,
          .agent = agent,
          .policy_id = worst,
          .text = "the actual cost is more than the limit ever holds",
          .value = settled.overrun});
  }
  return settled;
}

void Engine::count_final(const Lease& lease, Settled& settled) {
  for (const Held& held : lease.held) {
    if (!held.final || held.charge.limit->strategy() == Strategy::kConcurrency) continue;
    for (auto& [unit, amount] : settled.costs) {
      if (unit == held.unit) amount = std::max(amount, static_cast<double>(held.charge.cost) / held.scale);
    }
  }
}

Result<Settled> Engine::release(std::string_view id, std::string_view owner) {
  return end_hold(id, owner, GiveBack::kReturned);
}

Result<Settled> Engine::end_hold(std::string_view id, std::string_view owner, GiveBack what) {
  const Nanos now = clock_->now();
  std::unique_lock<std::mutex> guard;
  Result<FoundLease> found = find_lease(id, owner, now, guard);
  if (!found) return std::move(found).error();
  if (found->open == nullptr) return found->settled;
  const Lease& lease = *found->open;
  Settled settled;
  settled.costs = lease.costs;
  for (auto& [unit, amount] : settled.costs) amount = 0;
  if (what == GiveBack::kReturned) count_final(lease, settled);
  give_back(lease, now, what);
  leases_.end(lease, settled, now);
  return settled;
}

Result<Nanos> Engine::renew(std::string_view id, std::string_view owner) {
  const Nanos now = clock_->now();
  std::unique_lock<std::mutex> guard;
  Result<FoundLease> found = find_lease(id, owner, now, guard);
  if (!found) return std::move(found).error();
  if (found->open == nullptr) return Error{ErrorCode::kNotFound, fmt::format("lease \"{}\" has ended", id)};
  Lease& lease = *found->open;
  for (const Held& held : lease.held) {
    if (held.charge.limit->strategy() != Strategy::kConcurrency) continue;
    if (held.remote) {
      remote_->renew(held.charge, lease.slot, {});
    } else {
      store_.renew(held.charge, lease.slot, now);
    }
  }
  leases_.renew(lease, now);
  return clock_->wall(now) + lease.ttl;
}

std::uint64_t Engine::check_async(const Check& check, const Done& done) {
  CheckDecision decision;
  const std::uint64_t waiting = check_or_wait(clock_->now(), check, decision, [&] { return done; });
  if (waiting == 0) done(decision);
  return waiting;
}

std::uint64_t Engine::queue_up(const Arrival& arrival, const Check& check, CheckDecision& decision,
                               absl::FunctionRef<Done()> make_done) {
  const Nanos now = arrival.now;
  Nanos patience = decision.patience_;
  if (check.max_wait > Nanos{0}) patience = std::min(patience, check.max_wait);
  // A wait that cannot end in time is over at once; but a slot may come free at any moment.
  const Judged& judged = decision.judged[static_cast<std::size_t>(decision.decider)];
  bool may_come_early = !room_.empty();
  for (const WorkingLimit& limit : decision.working(judged).strands[judged.strand].limits) {
    may_come_early = may_come_early || limit.base.strategy() == Strategy::kConcurrency;
  }
  const bool hopeless = decision.retry_after > patience && !may_come_early;
  const std::size_t most = decision.state_->rules->rules.document().queue.max_waiting;
  WaitingRoom::Place place;
  if (!hopeless) place = room_.take_place(most, owner_of(check));
  if (place) {
    auto waiting = std::make_shared<WaitingRoom::Waiting>();
    const std::uint64_t id = arrival.id != 0 ? arrival.id : room_.new_id();
    waiting->id = id;
    waiting->line = decision.line_;
    waiting->check = OwnedCheck(check);
    waiting->done = make_done();  // whoever has it made is answered by it, so nothing may refuse the check after this
    waiting->since = now;
    waiting->deadline = now + patience;
    waiting->retry_at = now + retry_in(decision);
    waiting->priority = check.priority;
    room_.add(std::move(place), std::move(waiting), arrival.kicks);
    return id;
  }
  if (!hopeless) decision.why = Why::kQueueFull;
  after_denial(now, check, decision);
  return 0;
}

Nanos Engine::retry_in(const CheckDecision& decision) const noexcept {
  // What is given back here kicks the line. Other nodes give back without a word.
  constexpr Nanos kRemoteRetry = std::chrono::seconds{1};
  const Nanos longest = remote_ != nullptr ? kRemoteRetry : kMaxTime;
  return std::clamp(decision.retry_after, Nanos{1}, longest);
}

bool Engine::cancel(std::uint64_t waiting) { return take_off(waiting, Why::kCancelled); }

bool Engine::take_off(std::uint64_t waiting, Why why) {
  const std::shared_ptr<WaitingRoom::Waiting> taken = room_.take(waiting & ~kInFlight);
  if (taken == nullptr) return false;
  answer_uncharged(*taken, why, clock_->now());
  return true;
}

void Engine::answer_uncharged(const WaitingRoom::Waiting& waiting, Why why, Nanos now) const {
  CheckDecision decision;
  decision.wall = clock_->wall(now);
  decision.why = why;
  decision.waited = now - waiting.since;
  waiting.done(decision);
}

std::size_t Engine::revoke_invalid() {
  if (room_.empty()) return 0;
  std::size_t revoked = 0;
  for (const std::shared_ptr<const WaitingRoom::Waiting>& waiting : room_.revocable()) {
    if (!waiting->done.is_valid() && take_off(waiting->id, Why::kRevoked)) ++revoked;
  }
  return revoked;
}

void Engine::serve_lines(Nanos now) {
  for (;;) {
    const std::uint64_t kicks = room_.kicks();
    const std::shared_ptr<WaitingRoom::Waiting> waiting = room_.take_first_due(now);
    if (waiting == nullptr) break;
    if (!waiting->done.is_valid()) {
      answer_uncharged(*waiting, Why::kRevoked, now);
      continue;
    }
    CheckDecision decision;
    judge(now, waiting->check.get(), Asker::kFromLine, decision);
    if (decision.waits && waiting->deadline > now) {
      waiting->retry_at = now + retry_in(decision);
      // The line of the cell that it waits for now: at the head of another it would keep others from room that is
      // there.
      waiting->line = decision.line_;
      if (room_.put_back(waiting, kicks)) continue;
      deny(decision, Why::kCancelled);
    } else if (decision.waits) {
      decision.why = Why::kTimedOut;
      after_denial(now, waiting->check.get(), decision);
    }
    decision.waited = now - waiting->since;
    waiting->done(decision);
  }
  while (const std::shared_ptr<WaitingRoom::Waiting> waiting = room_.take_overdue(now)) {
    if (!waiting->done.is_valid()) {
      answer_uncharged(*waiting, Why::kRevoked, now);
      continue;
    }
    Check peek = waiting->check.get();
    peek.peek = true;
    CheckDecision decision;
    judge(now, peek, Asker::kFromLine, decision);
    deny(decision, Why::kTimedOut);
    after_denial(now, waiting->check.get(), decision);
    decision.waited = now - waiting->since;
    waiting->done(decision);
  }
}

Nanos Engine::poll() {
  const std::lock_guard polling(poll_mutex_);
  const Nanos now = clock_->now();
  if (leases_.next_expiry() <= now) expire_leases(now);
  if (!room_.empty()) serve_lines(now);
  constexpr Nanos kBetweenSteps = std::chrono::seconds{1};
  {
    const std::lock_guard guard(control_mutex_);
    // What the load changed ends with it, after the dwell time: it is looked at even where no load is known.
    constexpr control::AdaptiveLevel kBase = control::AdaptiveLevel::kBase;
    const bool changed = emergency_.automatic || by_report_.level != kBase || by_sensors_.level != kBase;
    if ((load_.load() || changed) && now - controls_at_ >= kBetweenSteps) {
      step_load_locked({}, now);
    }
  }
  return std::min(leases_.next_expiry(), room_.empty() ? kMaxTime : room_.next_due());
}

}  // namespace headgate::engine
