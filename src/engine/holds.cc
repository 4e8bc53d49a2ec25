#include "engine/holds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/decide.h"

namespace headgate::engine {

bool Holds::take(const Request& request, const ChargeList& list, const Answered& answered, CheckDecision& decision) {
  const Nanos now = request.now;
  const Check& check = request.check;
  const store::Applied& applied = answered.applied;
  const bool remote = answered.by == AnsweredBy::kRemote;
  auto lease = std::make_shared<Lease>();
  lease->id = decision.lease;
  lease->agent = check.agent;
  lease->owner = request.owner();
  lease->slot = Leases::slot_of(lease->id);
  // Slots alone are held for as long as their limits say, however short holds on cost are.
  lease->ttl = check.hold ? decision.state().rules->rules.document().leases.ttl : core::kLongestSpan;
  for (const Judged& judged : decision.judged) {
    const WorkingPolicy& working = decision.working(judged);
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i) {
      const store::Charge& charge = list.charges[i];
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
      const WorkingLimit& limit = *list.limits[i];
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

void Holds::give_back(const Lease& lease, Nanos now, GiveBack what) {
  const Nanos wall = clock_.wall(now);
  for (const Held& held : lease.held) {
    if (held.charge.limit->strategy() == Strategy::kConcurrency) {
      release_slot(held, lease.slot, now);
    } else if (what == GiveBack::kUndo || !held.final) {
      refund_held(held, held.charge, now, wall);
    }
  }
}

store::RemoteStore::Told Holds::kick_when_told(const base::Hash128& cell) {
  return [this, cell](const Result<bool>&) {
    room_.kick(cell);
    if (wake_) wake_();
  };
}

void Holds::release_slot(const Held& held, LeaseId slot, Nanos now) {
  if (held.remote) {
    cells_.remote()->release(held.charge, slot, kick_when_told(held.charge.key));
  } else {
    cells_.memory().release(held.charge, slot, now);
    room_.kick(held.charge.key);
  }
}

void Holds::refund_held(const Held& held, const store::Charge& charge, Nanos now, Nanos wall) {
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
    cells_.remote()->refund(charge, charged_at, kick_when_told(charge.key));
  } else {
    cells_.memory().refund(charge, charged_at, limit.follows_wall() ? wall : now);
    room_.kick(charge.key);
  }
}

void Holds::expire(Nanos now) {
  while (const std::shared_ptr<Lease> lease = leases_.expire_one(now)) {
    give_back(*lease, now, GiveBack::kReturned);
    aftermath_.tell({.kind = Event::Kind::kLeaseExpired,
                     .time = clock_.wall(now),
                     .agent = lease->agent,
                     .text = lease->id,
                     .value = static_cast<double>(lease->ttl.count()) / 1e6});
  }
}

Result<Holds::Found> Holds::find(std::string_view id, std::string_view owner, Nanos now,
                                 std::unique_lock<std::mutex>& guard) {
  expire(now);
  Found found{leases_.find(id, guard), {}};
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

namespace {

// How far ahead a settlement may charge: until the limit would be used up once more. Without a bound, one caller that
// settles more than it holds closes a shared limit for years.
Nanos furthest_ahead(const core::CompiledLimit& limit, Nanos wall) noexcept {
  const auto& n = limit.numbers;
  switch (limit.strategy) {
    case Strategy::kFixedWindow:
    case Strategy::kQuota: {
      // To the middle of the next window: the clock of a remote store may be a little ahead.
      const auto next = n.window.span_at(n.window.span_at(wall).end);
      return next.start + (next.end - next.start) / 2 - wall;
    }
    case Strategy::kSlidingWindow: return n.log.window;
    case Strategy::kSlidingWindowCounter: return 2 * n.counter.window;
    default: return core::refill_time(limit, limit.most);
  }
}

}  // namespace

double Holds::settle_part(const Held& held, double actual, Nanos now, Nanos wall, LeaseId slot) {
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
  // As much as fits is charged now, the rest ahead. What does not fit there either is returned.
  const core::CompiledLimit limit = charge.limit->current();
  const Units most = limit.most;
  const Units excess = std::max<Units>(0, charge.cost - most);
  charge.cost -= excess;
  charge.soft = false;
  charge.patience = furthest_ahead(limit, wall);
  store::Ask ask{.now = now, .wall = wall, .patience = charge.patience, .lease = slot, .count_denial = false};
  if (held.remote) {
    cells_.charge_owed(charge, {held.numbers, charge.cost, wall, {}}, ask, Cells::Rest::kAhead);
    return static_cast<double>(excess) / held.scale;
  }
  const auto take = [&](Units units, store::Effect effect) {
    charge.cost = units;
    ask.effect = effect;
    core::Outcome outcome;
    const store::Applied applied = cells_.memory().apply({&charge, 1}, ask, {&outcome, 1});
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

Result<Settled> Holds::settle(std::string_view id, std::string_view owner, std::span<const Cost> actual) {
  for (const Cost& cost : actual) {
    if (!(cost.amount >= 0) || cost.amount > kMaxCost) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("cost.{} must be between 0 and {:.0f}, got {}", cost.unit, kMaxCost, cost.amount)};
    }
  }
  const Nanos now = clock_.now();
  const Nanos wall = clock_.wall(now);
  std::unique_lock<std::mutex> guard;
  Result<Found> found = find(id, owner, now, guard);
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
    aftermath_.tell({.kind = Event::Kind::kOverrun,
                     .time = wall,
                     .agent = agent,
                     .policy_id = worst,
                     .text = "the actual cost is more than the limit ever holds",
                     .value = settled.overrun});
  }
  return settled;
}

void Holds::count_final(const Lease& lease, Settled& settled) {
  for (const Held& held : lease.held) {
    if (!held.final || held.charge.limit->strategy() == Strategy::kConcurrency) continue;
    for (auto& [unit, amount] : settled.costs) {
      if (unit == held.unit) amount = std::max(amount, static_cast<double>(held.charge.cost) / held.scale);
    }
  }
}

Result<Settled> Holds::release(std::string_view id, std::string_view owner) {
  return end(id, owner, GiveBack::kReturned);
}

Result<Settled> Holds::end(std::string_view id, std::string_view owner, GiveBack what) {
  const Nanos now = clock_.now();
  std::unique_lock<std::mutex> guard;
  Result<Found> found = find(id, owner, now, guard);
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

Result<Nanos> Holds::renew(std::string_view id, std::string_view owner) {
  const Nanos now = clock_.now();
  std::unique_lock<std::mutex> guard;
  Result<Found> found = find(id, owner, now, guard);
  if (!found) return std::move(found).error();
  if (found->open == nullptr) return Error{ErrorCode::kNotFound, fmt::format("lease \"{}\" has ended", id)};
  Lease& lease = *found->open;
  for (const Held& held : lease.held) {
    if (held.charge.limit->strategy() != Strategy::kConcurrency) continue;
    if (held.remote) {
      cells_.remote()->renew(held.charge, lease.slot, {});
    } else {
      cells_.memory().renew(held.charge, lease.slot, now);
    }
  }
  leases_.renew(lease, now);
  return clock_.wall(now) + lease.ttl;
}

}  // namespace headgate::engine
