// Limits that the asker names, several checks at once, and what is given back.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "engine/check_problem.h"
#include "engine/engine.h"
#include "engine/owned_check.h"
#include "engine/plan.h"

namespace headgate::engine {

using policy::Dimension;
using policy::Fields;

namespace {

// Buckets that this thread has compiled lately: callers of CL.THROTTLE name the same few again and again. A cell knows
// no limit, only its state, so whose numbers judge it is the caller's business.
class Buckets {
 public:
  // nullptr: no such bucket can be; `error` says why.
  const store::LiveLimit* find(const Gcra& bucket, std::optional<Error>& error) {
    const std::uint64_t mixed = static_cast<std::uint64_t>(bucket.max_burst) * 0x9E3779B97F4A7C15u ^
                                static_cast<std::uint64_t>(bucket.count) * 0xC2B2AE3D27D4EB4Fu ^
                                static_cast<std::uint64_t>(bucket.period.count()) * 0x165667B19E3779F9u;
    Entry& entry = entries_[mixed >> 58];
    if (entry.live && entry.bucket.max_burst == bucket.max_burst && entry.bucket.count == bucket.count &&
        entry.bucket.period == bucket.period) [[likely]] {
      return &*entry.live;
    }
    Result<Limit> limit = Limit::gcra(bucket);
    if (!limit) {
      error = std::move(limit).error();
      return nullptr;
    }
    entry.bucket = bucket;
    entry.live.emplace(core::compile(*limit));
    return &*entry.live;
  }

 private:
  struct Entry {
    Gcra bucket;
    std::optional<store::LiveLimit> live;
  };
  std::array<Entry, 64> entries_;
};

// Keep keys of CL.THROTTLE, and of limits of other askers, apart from one another and from those of policies.
constexpr base::Hash128 kThrottleSpace{0x48656164676174D5u, 0x436C54687274746Cu};
constexpr base::Hash128 kOwnSpace{0x48656164676174D7u, 0x4F776E4C696D6974u};

Decision decision_of(const core::Outcome& outcome) noexcept {
  Decision decision;
  decision.limit = outcome.limit;
  decision.remaining = outcome.remaining;
  decision.reset_after = outcome.reset_after;
  decision.delay = outcome.delay;
  decision.burst = outcome.burst;
  decision.retry_after = outcome.wait;
  if (outcome.fits()) {
    decision.verdict = Verdict::kAllowed;
  } else {
    decision.verdict = outcome.wait == kNever ? Verdict::kNever : Verdict::kNotYet;
    decision.reason = outcome.wait == kNever ? Reason::kCostExceedsLimit : Reason::kLimited;
  }
  return decision;
}

}  // namespace

base::Hash128 Engine::throttle_cell(const ThrottleKey& key) const noexcept {
  const base::Hash128 cell = base::mix(kThrottleSpace, hasher_(key.key));
  return key.owner.empty() ? cell : base::mix(cell, hasher_(key.owner));
}

store::Ask Engine::own_ask(Nanos now, Use use, std::string_view owner) const {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  const store::Effect effect = use == Use::kCharge ? store::Effect::kCharge : store::Effect::kNone;
  store::Ask ask{.now = now, .wall = clock_->wall(now), .effect = effect};
  ask.owner = owner;
  return ask;
}

Decision Engine::own_decision(const store::Applied& applied, const core::Outcome& outcome,
                              const store::Ask& ask) const {
  Decision decision = decision_of(outcome);
  if (applied.store_full) {
    decision.verdict = Verdict::kNotYet;
    decision.reason = Reason::kTooManyKeys;
    decision.retry_after = std::chrono::seconds{1};
  }
  if (applied.share_full) tell_share_full(ask.owner, ask.wall);
  return decision;
}

Decision Engine::apply_own(const store::Charge& charge, const store::Ask& ask) {
  core::Outcome outcome;
  const store::Applied applied = apply_plain({&charge, 1}, ask, {&outcome, 1});
  return own_decision(applied, outcome, ask);
}

void Engine::ask_own(const store::Charge& charge, const Limit& limit, const store::Ask& ask, Throttled done) {
  // What must live until the answer comes.
  struct Asked {
    explicit Asked(const Limit& limit) : live(core::compile(limit)) {}
    store::LiveLimit live;
    store::Charge charge;
    std::string owner;
    store::Ask ask;
    core::Outcome outcome;
    Throttled done;
  };
  auto asked = std::make_shared<Asked>(limit);
  asked->charge = charge;
  asked->charge.limit = &asked->live;
  asked->owner = ask.owner;
  asked->ask = ask;
  asked->ask.owner = asked->owner;
  asked->done = std::move(done);
  remote_->apply({&asked->charge, 1}, asked->ask, {&asked->outcome, 1},
                 [this, asked](const Result<store::RemoteStore::Answer>& answer) {
                   const store::Applied applied =
                       answer ? answer->applied
                              : judge_own_unanswered(answer.error(), asked->charge, asked->ask, asked->outcome);
                   asked->done(own_decision(applied, asked->outcome, asked->ask));
                 });
}

store::Applied Engine::judge_own_unanswered(const Error& why, const store::Charge& charge, const store::Ask& ask,
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

store::Charge Engine::throttle_charge(const ThrottleKey& key, Units quantity) const {
  store::Charge charge;
  charge.key = throttle_cell(key);
  charge.callers = true;
  charge.cost = quantity;
  return charge;
}

Result<Decision> Engine::throttle(Nanos now, const ThrottleKey& key, const Gcra& bucket, Units quantity) {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  thread_local Buckets buckets;
  std::optional<Error> error;
  const store::LiveLimit* live = buckets.find(bucket, error);
  if (live == nullptr) return std::move(*error);
  if (quantity < 0) {
    return Error{ErrorCode::kInvalidArgument, "quantity must be at least 0, got " + std::to_string(quantity)};
  }
  store::Charge charge = throttle_charge(key, quantity);
  if (remote_ == nullptr) [[likely]] {
    bool done = false;
    const core::Outcome outcome = store_.try_one(charge.key, *live, quantity, now, 0, done);
    if (done) [[likely]]
      return decision_of(outcome);
  }
  charge.limit = live;
  store::Ask ask = own_ask(now, Use::kCharge, key.share());
  return apply_own(charge, ask);
}

std::optional<Result<Decision>> Engine::throttle_or_wait(Nanos now, const ThrottleKey& key, const Gcra& bucket,
                                                         Units quantity, absl::FunctionRef<Throttled()> make_done) {
  if (remote_ == nullptr) [[likely]]
    return throttle(now, key, bucket, quantity);
  const Result<Limit> limit = Limit::gcra(bucket);
  if (!limit || quantity < 0) return throttle(now, key, bucket, quantity);  // says what is wrong
  store::Ask ask = own_ask(now, Use::kCharge, key.share());
  ask_own(throttle_charge(key, quantity), *limit, ask, make_done());
  return std::nullopt;
}

void Engine::expect_throttle(const ThrottleKey& key) const noexcept {
  const base::Hash128 cell = throttle_cell(key);
  store_.prefetch({&cell, 1}, Strategy::kGcra);
}

store::Charge Engine::own_charge(const OwnLimit& own, Units cost) const {
  store::Charge charge;
  charge.key =
      base::mix(kOwnSpace, base::mix(base::mix(hasher_(own.space), hasher_(own.key)), hasher_(own.limit.describe())));
  charge.callers = true;
  charge.cost = cost;
  return charge;
}

void Engine::refund_own(const OwnLimit& own, Units cost, Nanos now) {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  const store::LiveLimit live(core::compile(own.limit));
  const Nanos at = live.current().follows_wall() ? clock_->wall(now) : now;
  store::Charge charge = own_charge(own, cost);
  charge.limit = &live;
  refund_one(charge, at, at);
}

Decision Engine::check_own(Nanos now, const OwnLimit& own, Units cost, Use use) {
  const store::LiveLimit live(core::compile(own.limit));
  store::Charge charge = own_charge(own, cost);
  charge.limit = &live;
  return apply_own(charge, own_ask(now, use, own.owner));
}

std::optional<Decision> Engine::check_own_or_wait(Nanos now, const OwnLimit& own, Units cost, Use use,
                                                  absl::FunctionRef<Throttled()> make_done) {
  if (remote_ == nullptr) return check_own(now, own, cost, use);
  ask_own(own_charge(own, cost), own.limit, own_ask(now, use, own.owner), make_done());
  return std::nullopt;
}

struct Engine::Series : std::enable_shared_from_this<Series> {
  Series(Engine& e, Nanos at, std::span<const Check> all, AllAnswered to)
      : engine(e), now(at), checks(all), answered(std::move(to)) {}

  Engine& engine;
  const Nanos now;
  std::span<const Check> checks;
  AllAnswered answered;
  std::vector<OwnedCheck> owned;  // with a remote store: what `checks` are
  std::vector<Check> views;       // of these
  std::vector<std::string> holds;
  std::size_t next = 0;
  bool allowed = true;

  // One after the other, until one must be waited for.
  void go_on() {
    while (next < checks.size()) {
      // Held until all of them are known to fit. The last one need not be: nothing after it can fail.
      Check check = checks[next];
      check.hold = allowed && !check.peek && next + 1 < checks.size();
      check.peek = check.peek || !allowed;
      CheckDecision decision;
      const auto later = [&]() -> Done {
        return [self = shared_from_this()](const CheckDecision& decided) {
          self->hear(decided);
          self->go_on();
        };
      };
      if (engine.check_later(now, check, decision, later) != 0) return;
      hear(decision);
    }
    for (const std::string& hold : holds) {
      if (allowed) {
        (void)engine.settle(hold, {}, {});  // as it was charged
      } else {
        (void)engine.end_hold(hold, {}, GiveBack::kUndo);
      }
    }
    answered.done(allowed);
  }

  void hear(const CheckDecision& decision) {
    const bool held = allowed && !checks[next].peek && next + 1 < checks.size();
    allowed = allowed && decision.allowed;
    if (held && !decision.lease.empty()) holds.push_back(decision.lease);
    answered.each(next++, decision);
  }
};

void Engine::check_all(Nanos now, std::span<const Check> checks, AllAnswered answered) {
  if (remote_ == nullptr) return std::make_shared<Series>(*this, now, checks, std::move(answered))->go_on();
  std::vector<OwnedCheck> owned;
  std::vector<Check> views;
  owned.reserve(checks.size());
  views.reserve(checks.size());
  for (const Check& check : checks) owned.emplace_back(check);
  for (const OwnedCheck& check : owned) views.push_back(check.get());
  auto series = std::make_shared<Series>(*this, now, views, std::move(answered));
  series->owned = std::move(owned);
  series->views = std::move(views);
  series->checks = series->views;
  series->go_on();
}

void Engine::refund(Nanos now, const Check& check, GiveBack what) {
  if (!is_fine(check)) return;  // it cannot have been charged
  now = std::clamp(now, Nanos{0}, kMaxTime);
  CheckDecision decision;
  decision.state_ = state_->pin();
  const State& state = *decision.state_;
  Fields fields(check, hasher_);
  if (check.allowances == nullptr) fields.set_tier(state.rules->rules.classify(check.operation).tier);
  Plan plan;
  plan.as_stated = what == GiveBack::kReturned;
  if (!add_to_plan(state, fields, false, plan, decision)) return;
  if (check.allowances != nullptr && !add_allowances(*check.allowances, plan, decision)) return;
  const Nanos wall = clock_->wall(now);
  std::uint64_t keeps = 0;  // bit i: the i-th charge is of a policy with `holds: false`
  for (const Judged& judged : decision.judged) {
    if (decision.policy(judged).holds) continue;
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i)
      keeps |= std::uint64_t{1} << i;
  }
  for (std::size_t i = 0; i < plan.charges.size(); ++i) {
    const store::Charge& charge = plan.charges[i];
    if (what == GiveBack::kUndo ? charge.soft : (keeps >> i & 1) != 0) continue;
    const core::CompiledLimit& limit = charge.limit->current();
    // When it was charged nobody says: the oldest of a window's units are given back first, since those come back the
    // soonest anyway.
    const Nanos at = limit.follows_wall() ? wall : now;
    const Nanos charged = limit.strategy == Strategy::kSlidingWindow ? at - limit.numbers.log.window + Nanos{1} : at;
    refund_one(charge, charged, at);
    room_.kick(charge.key);
  }
}

std::vector<Engine::TierUsage> Engine::tier_usage(std::string_view agent, std::string_view channel) {
  std::vector<TierUsage> usages;
  const Nanos now = clock_->now();
  const Nanos wall = clock_->wall(now);
  for (int i = 0; i < policy::kTierCount; ++i) {
    const auto tier = static_cast<policy::Tier>(i);
    Check check;
    check.agent = agent;
    check.channel = channel;
    check.operation = policy::to_string(tier);
    CheckDecision decision;
    decision.state_ = state_->pin();
    const State& state = *decision.state_;
    Fields fields(check, hasher_);
    fields.set_tier(tier);
    Plan plan;
    if (!add_to_plan(state, fields, false, plan, decision)) continue;
    for (const Judged& judged : decision.judged) {
      if (!decision.policy(judged).tier || judged.count == 0) continue;
      store::Charge charge = plan.charges[judged.first];
      charge.cost = 0;
      core::Outcome outcome;
      (void)apply_plain({&charge, 1}, {now, wall, store::Effect::kNone}, {&outcome, 1});
      TierUsage& usage = usages.emplace_back();
      usage.tier = policy::to_string(tier);
      usage.limit = static_cast<double>(outcome.limit) * plan.limits[judged.first]->unit;
      usage.remaining = static_cast<double>(outcome.remaining) * plan.limits[judged.first]->unit;
      usage.reset_after = outcome.reset_after;
      usage.overridden = judged.own != nullptr;
    }
  }
  return usages;
}

}  // namespace headgate::engine
