#include <cassert>

#include "limiter/memory_limiter_impl.h"

namespace headgate {
namespace {

using base::Hash128;
using core::Outcome;
using store::Applied;
using store::Ask;
using store::Charge;
using store::Effect;

constexpr std::size_t kBatch = 32;  // keys whose memory is fetched ahead together
static_assert(kMaxKeysPerCall == store::kMaxCharges);

Decision refused(Verdict verdict, Reason reason) noexcept {
  Decision decision;
  decision.verdict = verdict;
  decision.reason = reason;
  decision.retry_after = verdict == Verdict::kNever ? kNever : Nanos{0};
  return decision;
}

// Of several outcomes: the least remaining, the longest reset, the longest delay.
Decision decide(const Applied& applied, const Outcome* outcomes, std::size_t count, const Ask& ask) noexcept {
  Decision decision;
  decision.limit = outcomes[0].limit;
  decision.remaining = outcomes[0].remaining;
  decision.reset_after = outcomes[0].reset_after;
  decision.delay = outcomes[0].delay;
  decision.burst = outcomes[0].burst;
  for (std::size_t i = 1; i < count; ++i) {
    if (outcomes[i].remaining < decision.remaining) {
      decision.limit = outcomes[i].limit;
      decision.remaining = outcomes[i].remaining;
    }
    decision.reset_after = std::max(decision.reset_after, outcomes[i].reset_after);
    decision.delay = std::max(decision.delay, outcomes[i].delay);
    decision.burst = decision.burst || outcomes[i].burst;
  }
  if (applied.store_full) [[unlikely]] {
    decision.verdict = Verdict::kNotYet;
    decision.reason = Reason::kTooManyKeys;
  } else if (applied.wait == Nanos{0}) [[likely]] {
    decision.verdict = Verdict::kAllowed;
    decision.lease = ask.lease;
    return decision;
  } else if (applied.wait == kNever) {
    decision.verdict = Verdict::kNever;
    decision.reason = Reason::kCostExceedsLimit;
    decision.retry_after = kNever;
  } else if (ask.effect == Effect::kReserve && applied.reserved) {
    decision.verdict = Verdict::kAllowed;
    decision.delay = std::max(decision.delay, applied.wait);
    decision.lease = ask.lease;
    return decision;
  } else {
    decision.verdict = Verdict::kNotYet;
    decision.reason = Reason::kLimited;
    decision.retry_after = applied.wait;
  }
  decision.delay = Nanos{0};
  decision.burst = false;
  return decision;
}

// The same for the outcome of the fast form.
[[gnu::always_inline]] inline Decision decide(const Outcome& outcome) noexcept {
  if (outcome.fits()) [[likely]] {
    return {Verdict::kAllowed, Reason::kOk,         outcome.burst,
            outcome.limit,     outcome.remaining,   Nanos{0},
            Nanos{0},          outcome.reset_after, 0};
  }
  return {Verdict::kNotYet, Reason::kLimited,    false, outcome.limit, outcome.remaining, outcome.wait,
          Nanos{0},         outcome.reset_after, 0};
}

}  // namespace

MemoryLimiter::Impl::Impl(const Options& options, const store::MemoryStoreOptions& store_options)
    : clock(options.clock_ != nullptr ? *options.clock_ : SystemClock::shared()),
      store(store_options),
      limits(options.limits_),
      queue({&clock, options.max_waiters_, options.own_thread_, limits.has(Strategy::kConcurrency),
             [this](const WaitQueue::Waiter& waiter, Nanos now) {
               return run(clamp(now), waiter.key, waiter.name, waiter.permits, {.count_denial = false});
             }}),
      follows_wall(limits.has(Strategy::kFixedWindow) || limits.has(Strategy::kQuota)),
      holds(limits.has(Strategy::kConcurrency)),
      only_limit(limits.size() == 1 && !options.track_keys_ ? &limits.live(0) : nullptr),
      only_bucket(limits.has(Strategy::kTokenBucket) ? only_limit : nullptr),
      only_window(limits.has(Strategy::kSlidingWindow) ? only_limit : nullptr),
      next_lease(base::random_seed() >> 8) {}

Decision MemoryLimiter::Impl::run(Nanos now, std::span<const Charge> charges, std::span<Outcome> outcomes,
                                  How how) noexcept {
  Ask ask{now, wall(now), how.effect, how.patience, 0, how.count_denial};
  const auto costs = [](const Charge& charge) { return charge.cost > 0; };
  if (holds && how.effect != Effect::kNone && std::ranges::any_of(charges, costs)) ask.lease = next_lease.fetch_add(1);
  const Applied applied = store.apply(charges, ask, outcomes);
  if (how.charged_after != nullptr) *how.charged_after = applied.wait;
  return decide(applied, outcomes.data(), charges.size(), ask);
}

Decision MemoryLimiter::Impl::run(Nanos now, Hash128 key, std::string_view name, Units permits, How how) noexcept {
  if (permits < 0) [[unlikely]]
    return refused(Verdict::kNever, Reason::kInvalidCost);
  if (limits.size() == 1) [[likely]] {
    const Charge charge{key, &limits.live(0), permits, name, true};
    Outcome outcome;
    return run(now, {&charge, 1}, {&outcome, 1}, how);
  }
  std::array<Charge, kMaxLimits> charges;
  std::array<Outcome, kMaxLimits> outcomes;
  return run(now, {charges.data(), write_charges(key, name, permits, charges.data())}, outcomes, how);
}

Decision MemoryLimiter::Impl::take(Nanos now, Hash128 key, std::string_view name, Units permits, How how) noexcept {
  if (permits > 0 && would_overtake(key)) return behind_the_queue(now, key, name, permits, how.effect);
  return run(now, key, name, permits, how);
}

Decision MemoryLimiter::Impl::behind_the_queue(Nanos now, Hash128 key, std::string_view name, Units permits,
                                               Effect effect) noexcept {
  if (effect != Effect::kNone) count_denial(key, name);
  Decision decision = run(now, key, name, permits, {.effect = Effect::kNone});
  if (!decision.allowed()) return decision;
  decision = run(now, key, name, 0, {.effect = Effect::kNone});  // as things stand
  decision.verdict = Verdict::kNotYet;
  decision.reason = Reason::kLimited;
  return decision;
}

[[gnu::always_inline]] inline Decision MemoryLimiter::Impl::take_fast(Nanos now, Hash128 hash, std::string_view key,
                                                                      Units permits) noexcept {
  if (now != clamp(now) || !queue.empty_approx()) [[unlikely]]
    return take_slowly(now, key, permits);
  Outcome outcome;
  if (only_bucket != nullptr) {
    if (!store.try_one<Strategy::kTokenBucket>(hash, *only_bucket, permits, now, outcome)) [[unlikely]]
      return take_slowly(now, key, permits);
    return decide(outcome);
  }
  if (only_window == nullptr || !store.try_one<Strategy::kSlidingWindow>(hash, *only_window, permits, now, outcome))
      [[unlikely]]
    return take_slowly(now, key, permits);
  return decide(outcome);
}

[[gnu::noinline, gnu::flatten]] Decision MemoryLimiter::Impl::take_other(Nanos now, std::string_view key,
                                                                         Units permits) noexcept {
  return take_fast(now, store.hash(key), key, permits);
}

[[gnu::noinline]] Decision MemoryLimiter::Impl::take_slowly(Nanos now, std::string_view key, Units permits) noexcept {
  now = clamp(now);
  const Hash128 hash = store.hash(key);
  if (only_limit != nullptr && queue.empty_approx()) {
    const LeaseId lease = holds ? next_lease.fetch_add(1, std::memory_order_relaxed) : 0;
    bool done = false;
    const Outcome outcome = store.try_one(hash, *only_limit, permits, wall(now), lease, done);
    if (done) return decide({outcome.wait}, &outcome, 1, {.lease = lease});
  }
  return take(now, hash, key, permits, {});
}

Result<std::unique_ptr<MemoryLimiter>> MemoryLimiter::make(const Options& options) {
  const auto bad = [](const std::string& message) { return Error{ErrorCode::kInvalidArgument, message}; };
  if (options.limits_.empty() || options.limits_.size() > kMaxLimits) {
    return bad("limits must be between 1 and 8, got " + std::to_string(options.limits_.size()));
  }
  if (options.max_cells_ < options.limits_.size() || options.max_cells_ > (std::size_t{1} << 32)) {
    return bad("max_keys must be between the number of limits and 4294967296, got " +
               std::to_string(options.max_cells_));
  }
  if (options.max_waiters_ > 1'000'000) {
    return bad("max_waiters must be between 0 and 1000000, got " + std::to_string(options.max_waiters_));
  }
  const store::MemoryStoreOptions store_options{.max_cells = options.max_cells_,
                                                .at_cap = options.at_cap_,
                                                .track_keys = options.track_keys_,
                                                .seed = options.seed_.value_or(base::random_seed())};
  return std::unique_ptr<MemoryLimiter>(new MemoryLimiter(std::make_unique<Impl>(options, store_options)));
}

MemoryLimiter::MemoryLimiter(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MemoryLimiter::~MemoryLimiter() = default;

Decision MemoryLimiter::try_acquire(std::string_view key, Units permits) noexcept {
  return try_acquire_at(impl_->clock.now(), key, permits);
}

// Both flattened so that the hash is inlined here, and only here, where the registers that a call saves would be felt.
[[gnu::flatten]] Decision MemoryLimiter::try_acquire_at(Nanos now, std::string_view key, Units permits) noexcept {
  if (!base::Hasher::is_short(key)) return impl_->take_other(now, key, permits);
  return impl_->take_fast(now, impl_->store.hasher().hash_short(key), key, permits);
}

Decision MemoryLimiter::try_acquire_all(std::span<const Request> requests) noexcept {
  return try_acquire_all_at(impl_->clock.now(), requests);
}

Decision MemoryLimiter::try_acquire_all_at(Nanos now, std::span<const Request> requests) noexcept {
  Impl& impl = *impl_;
  if (requests.empty() || requests.size() * impl.limits.size() > kMaxKeysPerCall) {
    return refused(Verdict::kNever, Reason::kInvalidCost);
  }
  now = Impl::clamp(now);
  std::array<Charge, kMaxKeysPerCall> charges;
  std::array<Outcome, kMaxKeysPerCall> outcomes;
  std::size_t count = 0;
  for (const Request& request : requests) {
    if (request.permits < 0) return refused(Verdict::kNever, Reason::kInvalidCost);
    const Hash128 key = impl.store.hash(request.key);
    if (request.permits > 0 && impl.would_overtake(key)) {
      return impl.behind_the_queue(now, key, request.key, request.permits, Effect::kCharge);
    }
    count += impl.write_charges(key, request.key, request.permits, charges.data() + count);
  }
  return impl.run(now, {charges.data(), count}, outcomes, {});
}

void MemoryLimiter::try_acquire_many(std::span<const Request> requests, std::span<Decision> decisions) noexcept {
  try_acquire_many_at(impl_->clock.now(), requests, decisions);
}

void MemoryLimiter::try_acquire_many_at(Nanos now, std::span<const Request> requests,
                                        std::span<Decision> decisions) noexcept {
  assert(decisions.size() >= requests.size());
  Impl& impl = *impl_;
  now = Impl::clamp(now);
  std::array<Hash128, kBatch> keys;
  for (std::size_t first = 0; first < requests.size(); first += kBatch) {
    const std::size_t count = std::min(kBatch, requests.size() - first);
    for (std::size_t i = 0; i < count; ++i) keys[i] = impl.store.hash(requests[first + i].key);
    impl.store.prefetch({keys.data(), count}, impl.limits.live(0).strategy());
    for (std::size_t i = 0; i < count; ++i) {
      const Request& request = requests[first + i];
      decisions[first + i] = impl.take_fast(now, keys[i], request.key, request.permits);
    }
  }
}

Decision MemoryLimiter::acquire(std::string_view key, const AcquireOptions& options) {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Decision> answer;
  acquire_async(key, options, [&](const Decision& decision) {
    // Notified under the lock: the waiter may end as soon as the lock is released.
    const std::lock_guard guard(mutex);
    answer = decision;
    answered.notify_one();
  });
  std::unique_lock lock(mutex);
  answered.wait(lock, [&] { return answer.has_value(); });
  return *answer;
}

WaitId MemoryLimiter::acquire_async(std::string_view key, const AcquireOptions& options,
                                    std::function<void(const Decision&)> done) {
  if (options.permits < 0) {
    done(refused(Verdict::kNever, Reason::kInvalidCost));
    return 0;
  }
  const Hash128 hash = impl_->store.hash(key);
  const Nanos now = Impl::clamp(impl_->clock.now());
  // An attempt that fails is not counted: a wait is one call, however often it is tried.
  auto counted = [impl = impl_.get(), hash, name = std::string(key), done = std::move(done)](const Decision& decision) {
    if (!decision.allowed()) impl->count_denial(hash, name);
    done(decision);
  };
  const Decision first = impl_->run(now, hash, key, options.permits, {.effect = Effect::kNone});
  if (first.verdict == Verdict::kNever) {
    counted(first);
    return 0;
  }
  const Nanos wait = std::clamp(options.max_wait, Nanos{0}, core::kLongestSpan);
  return impl_->queue.add({hash, std::string(key), options.permits, options.priority, now + wait, std::move(counted)});
}

bool MemoryLimiter::cancel(WaitId wait) { return impl_->queue.cancel(wait); }

Nanos MemoryLimiter::poll() { return impl_->queue.poll(); }

}  // namespace headgate
