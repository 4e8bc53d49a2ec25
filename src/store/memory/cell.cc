#include "store/memory/cell.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/wide.h"

namespace headgate::store {
namespace {

using base::Wide;
using core::BucketState;
using core::CompiledLimit;
using core::CounterState;
using core::GcraState;
using core::Hold;
using core::HoldTable;
using core::Outcome;
using core::Run;
using core::RunLog;
using core::WindowState;

WindowState load_window(const Word* w, bool ahead) noexcept { return {Nanos{w[0]}, w[1], ahead}; }
void save(const WindowState& s, Word* w, bool& ahead) noexcept {
  w[0] = s.end.count();
  w[1] = s.used;
  ahead = s.ahead;
}
CounterState load_counter(const Word* w, bool ahead) noexcept { return {Nanos{w[1]}, w[2], w[3], ahead}; }
void save(const CounterState& s, Nanos window, Word* w, bool& ahead) noexcept {
  w[0] = (s.start + 2 * window).count();
  w[1] = s.start.count();
  w[2] = s.previous;
  w[3] = s.current;
  ahead = s.ahead;
}

core::Step<BucketState> bucket_step(const CompiledLimit& limit, const Word* w, Units cost, Nanos now) noexcept {
  const BucketState state = load_bucket(w);
  return limit.strategy == Strategy::kLeakyBucket ? core::leaky_bucket(state, limit.numbers.bucket, cost, now)
                                                  : core::token_bucket(state, limit.numbers.bucket, cost, now);
}

// x * to / from, rounded up: a change of limits never forgets a fraction of what was used.
Units scaled(Units x, std::int64_t to, std::int64_t from) noexcept {
  if (from <= 0 || x <= 0) return 0;
  const Wide exact = (Wide{x} * to + from - 1) / from;
  return exact < kMostCounted ? static_cast<Units>(exact) : kMostCounted;
}

// The same for what passes 64 bits, and at most `most`. Exact unless the product passes 127 bits, as only the most
// extreme limits make it.
Wide scaled(Wide x, Wide to, Wide from, Wide most) noexcept {
  if (from <= 0 || x <= 0) return 0;
  constexpr Wide kRoom = Wide{1} << 126;
  if (x <= (kRoom - from) / to) return std::min((x * to + from - 1) / from, most);
  const long double near = std::ceil(static_cast<long double>(x) * static_cast<long double>(to) / from);
  return near < static_cast<long double>(most) ? static_cast<Wide>(near) : most;
}

// A bucket seen through one set of numbers, in parts of a nanosecond of which `den` make a whole.
struct BucketScale {
  Wide unit = 0;  // to refill one unit
  Wide fill = 0;  // to refill the bucket, burst allowance included
  Wide den = 1;
  Units limit = 0;
};

BucketScale scale_of(const CompiledLimit& limit) noexcept {
  if (limit.strategy == Strategy::kGcra) {
    const core::GcraNumbers& n = limit.numbers.gcra;
    return {n.interval.count(), n.tolerance.count(), 1, limit.limit};
  }
  const core::BucketNumbers& n = limit.numbers.bucket;
  return {Wide{n.whole} * n.den + n.part, Wide{n.fill} * n.den + n.fill_part, n.den, limit.limit};
}

BucketState carry_bucket(BucketState state, const BucketScale& from, const BucketScale& to, bool fraction,
                         Nanos now) noexcept {
  const Wide used = Wide{(state.full_at - now).count()} * from.den + state.carry;
  // What lies beyond an empty bucket was reserved ahead. Its instant stays, and until then nothing is admitted.
  const Wide ahead = scaled(used - from.fill, to.den, from.den, to.den * kMaxTime.count());
  const Wide drawn = std::min(used, from.fill);
  const Wide carried = fraction ? scaled(drawn, to.unit * to.limit, from.unit * from.limit, to.fill)
                                : scaled(drawn, to.unit, from.unit, to.fill);
  const Wide parts = carried + ahead;
  return {now + Nanos{static_cast<std::int64_t>(parts / to.den)}, static_cast<std::int64_t>(parts % to.den)};
}

// A bucket refills with time, so units charged a while ago may have come back already: they must not come twice. And of
// several reservations of what is yet to be refilled only the last can be given back: the others keep the instants that
// they were answered, and the refill until then is theirs. `less` is the state with all of it
// given back, `fill` the time in which the bucket refills.
BucketState refunded(BucketState state, BucketState less, Nanos fill, Nanos charged_at, Nanos now) noexcept {
  const Nanos last_acts_at = state.full_at - fill;
  if (last_acts_at > now && std::chrono::abs(last_acts_at - charged_at) > Nanos{1}) return state;
  if (now > charged_at) less.full_at += now - charged_at;
  return less.full_at < state.full_at ? less : state;
}

template <class Element>
bool grow_log_of(RunLog& log, Element*& ring, std::uint32_t capacity) noexcept {
  capacity = std::min(capacity, core::kMaxRuns);
  if (capacity <= log.capacity) return true;
  // Growing in place leaves no hole behind, so the ring is first turned to begin at its oldest element.
  if (log.head != 0) std::rotate(ring, ring + log.head, ring + log.capacity);
  log.head = 0;
  auto* memory = static_cast<Element*>(std::realloc(ring, sizeof(Element) * capacity));
  if (memory == nullptr) return false;
  ring = memory;
  log.capacity = capacity;
  return true;
}

// From instants alone to runs with totals. False: no memory, and nothing has changed.
bool widen_log(RunLog& log) noexcept {
  if (log.instants == nullptr || log.capacity == 0) return true;
  auto* runs = static_cast<Run*>(std::malloc(sizeof(Run) * log.capacity));
  if (runs == nullptr) return false;
  for (std::uint32_t i = 0; i < log.size; ++i) new (runs + i) Run(log.run(i));
  std::free(log.instants);
  log.instants = nullptr;
  log.runs = runs;
  log.head = 0;
  return true;
}

// Adds a run to a log that was judged. False: there was no memory for it; the log has the same runs, perhaps elsewhere.
bool append_run(const CompiledLimit& limit, RunLog& log, Units cost, Nanos at, bool reserve) noexcept {
  const bool first = log.capacity == 0;
  if (cost > 1 && !widen_log(log)) return false;
  if (core::sliding_window_is_full(log)) {
    const std::uint32_t more = log.capacity + std::max<std::uint32_t>(log.capacity / 2, 4);
    const auto needed = static_cast<std::uint32_t>(std::min<Units>(limit.most, core::kMaxRuns));
    const std::uint32_t capacity = log.capacity < needed ? std::min(more, needed) : more;
    const bool grown = first && cost == 1 ? grow_instants(log, capacity) : grow_log(log, capacity);
    if (!grown && first) return false;
  }
  // Full, and not to be made larger: units share the newest run from here on.
  if (log.size == log.capacity && !widen_log(log)) return false;
  core::sliding_window_charge(log, cost, at, reserve);
  return true;
}

// Adds a hold that was judged to fit. False: there was no memory for it, and nothing was written.
bool add_hold(const CompiledLimit& limit, Word* w, Units cost, Nanos at, LeaseId lease) noexcept {
  HoldTable* table = hold_table(w);
  if (table != nullptr) core::drop_expired_holds(*table, at);
  if (table == nullptr || table->size == table->capacity) {
    const std::uint32_t capacity = table == nullptr ? 2 : table->capacity * 2;
    if (!grow_holds(w, std::min<std::uint32_t>(capacity, core::kMaxHolds))) return false;
    table = hold_table(w);
  }
  const Hold hold{lease, at + limit.numbers.concurrency.ttl, cost};
  core::concurrency_charge(*table, hold);
  w[0] = std::max(w[0], hold.expires_at.count());
  return true;
}

CounterState carry_counter(CounterState state, const CompiledLimit& from, const CompiledLimit& to, Nanos now) noexcept {
  const Nanos before = from.numbers.counter.window;
  const Nanos after = to.numbers.counter.window;
  if (before == after) return state;
  // The estimate as of now becomes the current count of the new window.
  state = core::sliding_window_counter(state, from.numbers.counter, 0, now).next;
  const Nanos at = std::max(now, state.start);
  const Nanos covered = state.start + before - at;  // by the sliding window, of the window before
  const Nanos start = at - at % after;
  return {start, 0, state.current + scaled(state.previous, covered.count(), before.count()),
          state.ahead && start > now};
}

}  // namespace

bool grow_log(RunLog& log, std::uint32_t capacity) noexcept {
  return log.instants != nullptr ? grow_log_of(log, log.instants, capacity) : grow_log_of(log, log.runs, capacity);
}

bool grow_instants(RunLog& log, std::uint32_t capacity) noexcept { return grow_log_of(log, log.instants, capacity); }

bool grow_holds(Word* w, std::uint32_t capacity) noexcept {
  HoldTable* old = hold_table(w);
  if (old != nullptr && capacity <= old->capacity) return true;
  void* memory = std::malloc(sizeof(HoldTable) + sizeof(Hold) * capacity);
  if (memory == nullptr) return false;
  auto* table = new (memory) HoldTable(old != nullptr ? *old : HoldTable{});
  auto* holds = reinterpret_cast<Hold*>(table + 1);
  for (std::uint32_t i = 0; i < table->size; ++i) new (holds + i) Hold(table->holds[i]);
  table->holds = holds;
  table->capacity = capacity;
  std::free(old);
  w[1] = reinterpret_cast<Word>(table);
  return true;
}

Outcome judge(const CompiledLimit& limit, const Word* w, bool ahead, Units cost, Nanos now) noexcept {
  const auto& n = limit.numbers;
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: return bucket_step(limit, w, cost, now).outcome;
    case Strategy::kGcra: return core::gcra({Nanos{w[0]}}, n.gcra, cost, now).outcome;
    case Strategy::kFixedWindow:
    case Strategy::kQuota: return core::fixed_window(load_window(w, ahead), n.window, cost, now).outcome;
    case Strategy::kSlidingWindowCounter:
      return core::sliding_window_counter(load_counter(w, ahead), n.counter, cost, now).outcome;
    case Strategy::kSlidingWindow: {
      RunLog log = load_log(w, ahead, n.log.window);
      return core::sliding_window(log, n.log, cost, now);
    }
    case Strategy::kConcurrency: {
      const HoldTable* table = hold_table(w);
      return core::concurrency(table != nullptr ? *table : HoldTable{}, n.concurrency, cost, now);
    }
  }
  return {};
}

void leave_future(const CompiledLimit& limit, Word* w, bool ahead, Nanos now) noexcept {
  if (!limit.follows_wall()) return;
  const core::WindowNumbers& n = limit.numbers.window;
  if (n.lies_in_the_future(load_window(w, ahead), now)) w[0] = n.span_at(now).end.count();
}

bool charge(const CompiledLimit& limit, Word* w, bool& ahead, Units cost, Nanos at, bool reserve,
            LeaseId lease) noexcept {
  assert(cost >= 0 && cost <= limit.most);
  const auto& n = limit.numbers;
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: save(bucket_step(limit, w, cost, at).next, w); return true;
    case Strategy::kGcra: w[0] = core::gcra({Nanos{w[0]}}, n.gcra, cost, at).next.full_at.count(); return true;
    case Strategy::kFixedWindow:
    case Strategy::kQuota: {
      WindowState next = core::fixed_window(load_window(w, ahead), n.window, cost, at).next;
      next.ahead = next.ahead || reserve;
      save(next, w, ahead);
      return true;
    }
    case Strategy::kSlidingWindowCounter: {
      CounterState next = core::sliding_window_counter(load_counter(w, ahead), n.counter, cost, at).next;
      next.ahead = next.ahead || reserve;
      save(next, n.counter.window, w, ahead);
      return true;
    }
    case Strategy::kSlidingWindow: {
      RunLog log = load_log(w, ahead, n.log.window);
      // A reservation must not forget what still counts until then, so it judges nothing as of its own instant.
      if (!reserve) (void)core::sliding_window(log, n.log, cost, at);
      const bool added = append_run(limit, log, cost, at, reserve);
      if (added || log.capacity > 0) store_log(log, n.log.window, w, ahead);
      return added;
    }
    case Strategy::kConcurrency: return add_hold(limit, w, cost, at, lease);
  }
  return false;
}

// One function per kind of state, each with one Outcome that is built in the caller's memory: copying it costs more
// than most of the arithmetic.
namespace {

Outcome charge_bucket(const CompiledLimit& limit, Word* w, Units cost, Nanos now) noexcept {
  const auto step = bucket_step(limit, w, cost, now);
  if (step.outcome.fits()) store::save(step.next, w);
  return step.outcome;
}

Outcome charge_gcra(const CompiledLimit& limit, Word* w, Units cost, Nanos now) noexcept {
  const auto step = core::gcra({Nanos{w[0]}}, limit.numbers.gcra, cost, now);
  if (step.outcome.fits()) w[0] = step.next.full_at.count();
  return step.outcome;
}

Outcome charge_window(const CompiledLimit& limit, Word* w, bool& ahead, Units cost, Nanos now) noexcept {
  const auto step = core::fixed_window(load_window(w, ahead), limit.numbers.window, cost, now);
  // A denied check leaves `next` as it was, but for a window from the future.
  if (step.outcome.fits() || step.next.end < Nanos{w[0]}) save(step.next, w, ahead);
  return step.outcome;
}

Outcome charge_counter(const CompiledLimit& limit, Word* w, bool& ahead, Units cost, Nanos now) noexcept {
  const auto step = core::sliding_window_counter(load_counter(w, ahead), limit.numbers.counter, cost, now);
  if (step.outcome.fits()) save(step.next, limit.numbers.counter.window, w, ahead);
  return step.outcome;
}

Outcome charge_log(const CompiledLimit& limit, Word* w, bool& ahead, Units cost, Nanos now, bool& no_memory) noexcept {
  const Nanos window = limit.numbers.log.window;
  Outcome outcome;
  if (cost == 1 && charge_unit(limit.numbers.log, w, ahead, now, outcome)) return outcome;
  RunLog log = load_log(w, ahead, window);
  outcome = core::sliding_window(log, limit.numbers.log, cost, now);
  if (outcome.fits()) {
    no_memory = !append_run(limit, log, cost, now, false);
    if (!no_memory || log.capacity > 0) store_log(log, window, w, ahead);
  }
  return outcome;
}

Outcome charge_holds(const CompiledLimit& limit, Word* w, Units cost, Nanos now, LeaseId lease,
                     bool& no_memory) noexcept {
  static constexpr HoldTable kNone;
  const HoldTable* table = hold_table(w);
  const Outcome outcome = core::concurrency(table != nullptr ? *table : kNone, limit.numbers.concurrency, cost, now);
  if (outcome.fits()) no_memory = !add_hold(limit, w, cost, now, lease);
  return outcome;
}

}  // namespace

[[gnu::flatten]] Outcome charge_if_fits(const CompiledLimit& limit, Word* w, bool& ahead, Units cost, Nanos now,
                                        LeaseId lease, bool& no_memory) noexcept {
  assert(cost > 0 && cost <= limit.most);
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: return charge_bucket(limit, w, cost, now);
    case Strategy::kGcra: return charge_gcra(limit, w, cost, now);
    case Strategy::kFixedWindow:
    case Strategy::kQuota: return charge_window(limit, w, ahead, cost, now);
    case Strategy::kSlidingWindowCounter: return charge_counter(limit, w, ahead, cost, now);
    case Strategy::kSlidingWindow: return charge_log(limit, w, ahead, cost, now, no_memory);
    case Strategy::kConcurrency: return charge_holds(limit, w, cost, now, lease, no_memory);
  }
  return {};
}

void refund(const CompiledLimit& limit, Word* w, bool& ahead, Units units, Nanos charged_at, Nanos now) noexcept {
  const auto& n = limit.numbers;
  // More than a bucket holds has no time to refill in that could be told in nanoseconds; windows count units.
  const Units drawn = std::min(units, limit.most);
  switch (limit.strategy) {
    case Strategy::kTokenBucket: {
      const BucketState state = load_bucket(w);
      save(refunded(state, core::token_bucket_refund(state, n.bucket, drawn), Nanos{n.bucket.fill}, charged_at, now),
           w);
      return;
    }
    case Strategy::kLeakyBucket: {
      // Only the last turn can be given back: a later one would be shared with the next charge.
      const BucketState less = core::token_bucket_refund(load_bucket(w), n.bucket, drawn);
      if (less.full_at <= charged_at) save(less, w);
      return;
    }
    case Strategy::kGcra: {
      const GcraState state{Nanos{w[0]}};
      const BucketState less{core::gcra_refund(state, n.gcra, drawn).full_at, 0};
      w[0] = refunded({state.full_at, 0}, less, n.gcra.tolerance, charged_at, now).full_at.count();
      return;
    }
    case Strategy::kFixedWindow:
    case Strategy::kQuota:
      save(core::fixed_window_refund(load_window(w, ahead), units, n.window.span_at(charged_at).end), w, ahead);
      return;
    case Strategy::kSlidingWindowCounter: {
      const Nanos start = charged_at - charged_at % n.counter.window;
      save(core::sliding_window_counter_refund(load_counter(w, ahead), n.counter, units, start), n.counter.window, w,
           ahead);
      return;
    }
    case Strategy::kSlidingWindow: {
      if (charged_at + n.log.window <= now) return;
      RunLog log = load_log(w, ahead, n.log.window);
      core::sliding_window_refund(log, units, charged_at, now);
      store_log(log, n.log.window, w, ahead);
      return;
    }
    case Strategy::kConcurrency: return;  // held by lease, given back by release
  }
}

void carry_over(const CompiledLimit& from, const CompiledLimit& to, OnChange how, Word* w, bool& ahead,
                Nanos now) noexcept {
  if (how == OnChange::kReset) {
    reset_words(to.strategy, w);
    ahead = false;
    return;
  }
  const bool fraction = how == OnChange::kKeepFraction;
  const auto& a = from.numbers;
  const auto& b = to.numbers;
  const auto units = [&](Units used) { return fraction ? scaled(used, to.limit, from.limit) : used; };
  switch (to.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket:
      save(carry_bucket(load_bucket(w), scale_of(from), scale_of(to), fraction, now), w);
      return;
    case Strategy::kGcra:
      w[0] = carry_bucket({Nanos{w[0]}, 0}, scale_of(from), scale_of(to), fraction, now).full_at.count();
      return;
    case Strategy::kFixedWindow:
    case Strategy::kQuota: {
      WindowState state = load_window(w, ahead);
      if (now >= state.end || (state.used == 0 && !state.ahead)) {
        state = {};
      } else {
        // With a reservation, or a clock that was set back, the window counted begins later than now.
        const Nanos began = a.window.span_at(state.end - Nanos{1}).start;
        state.end = b.window.span_at(std::max(now, began)).end;
        state.used = units(state.used);
      }
      save(state, w, ahead);
      return;
    }
    case Strategy::kSlidingWindowCounter: {
      CounterState state = carry_counter(load_counter(w, ahead), from, to, now);
      state.previous = units(state.previous);
      state.current = units(state.current);
      save(state, b.counter.window, w, ahead);
      return;
    }
    case Strategy::kSlidingWindow: {
      RunLog log = load_log(w, ahead, a.log.window);
      // Rounded up from the newest run backwards: whatever has left the window, what is in it is not understated.
      if (fraction && to.limit != from.limit && widen_log(log)) {
        const Units newest = log.gone + log.used();
        const Units all = units(log.used());
        for (std::uint32_t i = 0; i < log.size; ++i) {
          const Run run = log.run(i);
          log.set_run(i, {run.at, all - units(newest - run.total)});
        }
        log.gone = 0;
      }
      store_log(log, b.log.window, w, ahead);
      return;
    }
    case Strategy::kConcurrency: return;  // what is held is held
  }
}

void reset_words(Strategy strategy, Word* w) noexcept {
  if (strategy == Strategy::kSlidingWindow || strategy == Strategy::kConcurrency) {
    std::free(reinterpret_cast<void*>(w[1]));
  }
  std::memset(w, 0, sizeof(Word) * static_cast<std::size_t>(words_of(strategy)));
}

}  // namespace headgate::store
