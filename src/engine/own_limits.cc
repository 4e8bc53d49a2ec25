#include "engine/own_limits.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

namespace headgate::engine {

namespace {

// Buckets that this thread has compiled lately: callers of CL.THROTTLE name the same few again and again. A cell holds
// its state only, so each call brings the numbers that judge it.
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

// Keep keys of CL.THROTTLE and of other own limits apart from one another and from those of policies.
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

base::Hash128 OwnLimits::throttle_cell(const ThrottleKey& key) const noexcept {
  const base::Hash128 cell = base::mix(kThrottleSpace, cells_.hasher()(key.key));
  return key.owner.empty() ? cell : base::mix(cell, cells_.hasher()(key.owner));
}

store::Ask OwnLimits::ask_of(Nanos now, Use use, std::string_view owner) const {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  const store::Effect effect = use == Use::kCharge ? store::Effect::kCharge : store::Effect::kNone;
  store::Ask ask{.now = now, .wall = clock_.wall(now), .effect = effect};
  ask.owner = owner;
  return ask;
}

Decision OwnLimits::decide(const store::Applied& applied, const core::Outcome& outcome, const store::Ask& ask) const {
  Decision decision = decision_of(outcome);
  if (applied.store_full) {
    decision.verdict = Verdict::kNotYet;
    decision.reason = Reason::kTooManyKeys;
    decision.retry_after = std::chrono::seconds{1};
  }
  if (applied.share_full) aftermath_.tell_share_full(ask.owner, ask.wall);
  return decision;
}

Decision OwnLimits::apply(const store::Charge& charge, const store::Ask& ask) {
  core::Outcome outcome;
  const store::Applied applied = cells_.apply_or_stand_in({&charge, 1}, ask, {&outcome, 1});
  return decide(applied, outcome, ask);
}

void OwnLimits::ask_remote(const store::Charge& charge, const Limit& limit, const store::Ask& ask, Done done) {
  // What must live until the answer comes.
  struct Pending {
    explicit Pending(const Limit& limit) : live(core::compile(limit)) {}
    store::LiveLimit live;
    store::Charge charge;
    std::string owner;
    store::Ask ask;
    core::Outcome outcome;
    Done done;
  };
  auto pending = std::make_shared<Pending>(limit);
  pending->charge = charge;
  pending->charge.limit = &pending->live;
  pending->owner = ask.owner;
  pending->ask = ask;
  pending->ask.owner = pending->owner;
  pending->done = std::move(done);
  cells_.remote()->apply(
      {&pending->charge, 1}, pending->ask, {&pending->outcome, 1},
      [this, pending](const Result<store::RemoteStore::Answer>& answer) {
        const store::Applied applied =
            answer ? answer->applied : cells_.stand_in(answer.error(), pending->charge, pending->ask, pending->outcome);
        pending->done(decide(applied, pending->outcome, pending->ask));
      });
}

store::Charge OwnLimits::throttle_charge(const ThrottleKey& key, Units quantity) const {
  store::Charge charge;
  charge.key = throttle_cell(key);
  charge.callers = true;
  charge.cost = quantity;
  return charge;
}

Result<Decision> OwnLimits::throttle(Nanos now, const ThrottleKey& key, const Gcra& bucket, Units quantity) {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  thread_local Buckets buckets;
  std::optional<Error> error;
  const store::LiveLimit* live = buckets.find(bucket, error);
  if (live == nullptr) return std::move(*error);
  if (quantity < 0) {
    return Error{ErrorCode::kInvalidArgument, "quantity must be at least 0, got " + std::to_string(quantity)};
  }
  store::Charge charge = throttle_charge(key, quantity);
  if (!cells_.has_remote()) [[likely]] {
    bool done = false;
    const core::Outcome outcome = cells_.memory().try_one(charge.key, *live, quantity, now, 0, done);
    if (done) [[likely]]
      return decision_of(outcome);
  }
  charge.limit = live;
  return apply(charge, ask_of(now, Use::kCharge, key.share()));
}

std::optional<Result<Decision>> OwnLimits::throttle_or_wait(Nanos now, const ThrottleKey& key, const Gcra& bucket,
                                                            Units quantity, absl::FunctionRef<Done()> make_done) {
  if (!cells_.has_remote()) [[likely]]
    return throttle(now, key, bucket, quantity);
  const Result<Limit> limit = Limit::gcra(bucket);
  if (!limit || quantity < 0) return throttle(now, key, bucket, quantity);  // says what is wrong
  ask_remote(throttle_charge(key, quantity), *limit, ask_of(now, Use::kCharge, key.share()), make_done());
  return std::nullopt;
}

void OwnLimits::expect_throttle(const ThrottleKey& key) const noexcept {
  const base::Hash128 cell = throttle_cell(key);
  cells_.memory().prefetch({&cell, 1}, Strategy::kGcra);
}

store::Charge OwnLimits::charge_of(const OwnLimit& own, Units cost) const {
  store::Charge charge;
  const base::Hasher& hash = cells_.hasher();
  charge.key = base::mix(kOwnSpace, base::mix(base::mix(hash(own.space), hash(own.key)), hash(own.limit.describe())));
  charge.callers = true;
  charge.cost = cost;
  return charge;
}

void OwnLimits::refund(const OwnLimit& own, Units cost, Nanos now) {
  now = std::clamp(now, Nanos{0}, kMaxTime);
  const store::LiveLimit live(core::compile(own.limit));
  const Nanos at = live.current().follows_wall() ? clock_.wall(now) : now;
  store::Charge charge = charge_of(own, cost);
  charge.limit = &live;
  cells_.refund(charge, at, at);
}

Decision OwnLimits::check(Nanos now, const OwnLimit& own, Units cost, Use use) {
  const store::LiveLimit live(core::compile(own.limit));
  store::Charge charge = charge_of(own, cost);
  charge.limit = &live;
  return apply(charge, ask_of(now, use, own.owner));
}

std::optional<Decision> OwnLimits::check_or_wait(Nanos now, const OwnLimit& own, Units cost, Use use,
                                                 absl::FunctionRef<Done()> make_done) {
  if (!cells_.has_remote()) return check(now, own, cost, use);
  ask_remote(charge_of(own, cost), own.limit, ask_of(now, use, own.owner), make_done());
  return std::nullopt;
}

}  // namespace headgate::engine
