#include "store/memory/cell.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/wide.h"

namespace headgate::store {
namespace {

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

constexpr std::uint32_t kIndexBits = 21;
constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
static_assert(core::kMaxRuns <= kIndexMask);

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
std::int64_t scaled(std::int64_t x, std::int64_t to, std::int64_t from) noexcept {
  if (from <= 0 || x <= 0) return 0;
  return static_cast<std::int64_t>((base::Wide{x} * to + from - 1) / from);
}

std::int64_t scaled_by(std::int64_t x, long double ratio) noexcept {
  return x <= 0 ? 0 : static_cast<std::int64_t>(std::ceil(std::min<long double>(x * ratio, kMaxTime.count())));
}

long double nanos_per_unit(const core::BucketNumbers& n) noexcept {
  return static_cast<long double>(n.whole) + static_cast<long double>(n.part) / n.den;
}

}  // namespace

core::RunLog load_log(const Word* w, bool ahead, Nanos window) noexcept {
  RunLog log;
  log.runs = reinterpret_cast<Run*>(w[1]);
  const auto packed = static_cast<std::uint64_t>(w[2]);
  log.head = packed & kIndexMask;
  log.size = (packed >> kIndexBits) & kIndexMask;
  log.capacity = (packed >> (2 * kIndexBits)) & kIndexMask;
  log.gone = w[3];
  log.ahead = ahead;
  // While a reservation lies ahead nothing is admitted before it, so no other instant needs to be remembered.
  log.seen = ahead || w[0] == 0 ? Nanos{0} : Nanos{w[0]} - window;
  return log;
}

void store_log(const RunLog& log, Nanos window, Word* w, bool& ahead) noexcept {
  const Nanos last = log.ahead ? log.newest().at : log.seen;
  w[0] = (last + window).count();
  w[1] = reinterpret_cast<Word>(log.runs);
  w[2] = static_cast<Word>(std::uint64_t{log.head} | (std::uint64_t{log.size} << kIndexBits) |
                           (std::uint64_t{log.capacity} << (2 * kIndexBits)));
  w[3] = log.gone;
  ahead = log.ahead;
}

bool grow_log(RunLog& log, std::uint32_t capacity) noexcept {
  capacity = std::min(capacity, core::kMaxRuns);
  if (capacity <= log.capacity) return true;
  auto* runs = static_cast<Run*>(std::malloc(sizeof(Run) * capacity));
  if (runs == nullptr) return false;
  for (std::uint32_t i = 0; i < log.size; ++i) new (runs + i) Run(log.run(i));
  std::free(log.runs);
  log.runs = runs;
  log.head = 0;
  log.capacity = capacity;
  return true;
}

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

bool charge(const CompiledLimit& limit, Word* w, bool& ahead, Units cost, Nanos at, bool reserve,
            LeaseId lease) noexcept {
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
      if (core::sliding_window_is_full(log)) {
        const std::uint32_t more = log.capacity + std::max<std::uint32_t>(log.capacity / 2, 4);
        const auto needed = static_cast<std::uint32_t>(std::min<Units>(limit.most, core::kMaxRuns));
        const std::uint32_t capacity = log.capacity < needed ? std::min(more, needed) : more;
        if (!grow_log(log, capacity) && log.capacity == 0) return false;
      }
      core::sliding_window_charge(log, cost, at, reserve);
      store_log(log, n.log.window, w, ahead);
      return true;
    }
    case Strategy::kConcurrency: {
      HoldTable* table = hold_table(w);
      if (table != nullptr) core::drop_expired_holds(*table, at);
      if (table == nullptr || table->size == table->capacity) {
        const std::uint32_t capacity = table == nullptr ? 2 : table->capacity * 2;
        if (!grow_holds(w, std::min<std::uint32_t>(capacity, core::kMaxHolds))) return false;
        table = hold_table(w);
      }
      const Hold hold{lease, at + n.concurrency.ttl, cost};
      core::concurrency_charge(*table, hold);
      w[0] = std::max(w[0], hold.expires_at.count());
      return true;
    }
  }
  return false;
}

void refund(const CompiledLimit& limit, Word* w, bool& ahead, Units units, Nanos charged_at, Nanos now) noexcept {
  const auto& n = limit.numbers;
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: save(core::token_bucket_refund(load_bucket(w), n.bucket, units), w); return;
    case Strategy::kGcra: w[0] = core::gcra_refund({Nanos{w[0]}}, n.gcra, units).full_at.count(); return;
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
    case Strategy::kLeakyBucket: {
      const std::int64_t used = w[0] - now.count();
      const std::int64_t carried = fraction ? scaled(used, b.bucket.fill, a.bucket.fill)
                                            : scaled_by(used, nanos_per_unit(b.bucket) / nanos_per_unit(a.bucket));
      save(BucketState{now + Nanos{std::min(carried, b.bucket.fill)}, 0}, w);
      return;
    }
    case Strategy::kGcra: {
      const std::int64_t used = w[0] - now.count();
      const std::int64_t carried = fraction ? scaled(used, b.gcra.tolerance.count(), a.gcra.tolerance.count())
                                            : scaled(used, b.gcra.interval.count(), a.gcra.interval.count());
      w[0] = now.count() + std::min(carried, b.gcra.tolerance.count());
      return;
    }
    case Strategy::kFixedWindow:
    case Strategy::kQuota: {
      WindowState state = load_window(w, ahead);
      if (now >= state.end) state = {};
      state.used = units(state.used);
      if (!state.ahead && state.used > 0) state.end = b.window.span_at(now).end;
      save(state, w, ahead);
      return;
    }
    case Strategy::kSlidingWindowCounter: {
      CounterState state = load_counter(w, ahead);
      if (a.counter.window != b.counter.window) {
        // The estimate as of now becomes the current count of the new window.
        const auto read = core::sliding_window_counter(state, a.counter, 0, now);
        const Units used = a.counter.most - std::min(a.counter.most, read.outcome.remaining + a.counter.burst);
        state = {now - now % b.counter.window, 0, used, false};
      }
      state.previous = units(state.previous);
      state.current = units(state.current);
      save(state, b.counter.window, w, ahead);
      return;
    }
    case Strategy::kSlidingWindow: {
      RunLog log = load_log(w, ahead, a.log.window);
      const Units gone = log.gone;
      for (std::uint32_t i = 0; i < log.size; ++i) log.run(i).total = units(log.run(i).total - gone);
      log.gone = 0;
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
