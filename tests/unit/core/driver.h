// One cell without a store around it, and random scripts to drive it with.
#pragma once

#include <rapidcheck.h>

#include <array>
#include <optional>
#include <vector>

#include "store/memory/cell.h"
#include "support/oracles.h"

namespace headgate::testing {

using namespace std::chrono_literals;

inline Result<Limit> bucket(Units capacity, Rate rate, Units burst = 0) {
  return Limit::token_bucket({.capacity = capacity, .refill_rate = rate, .burst_allowance = burst});
}
inline Result<Limit> gcra(Units max_burst, Units count, Nanos period, Units burst = 0) {
  return Limit::gcra({.max_burst = max_burst, .count = count, .period = period, .burst_allowance = burst});
}
inline Result<Limit> leaky(Rate rate, Units queue) { return Limit::leaky_bucket({.rate = rate, .queue = queue}); }

class OneCell {
 public:
  explicit OneCell(const Limit& limit) : limit_(core::compile(limit)) {}
  explicit OneCell(const Result<Limit>& limit) : OneCell(limit.value()) {}
  OneCell(const OneCell&) = delete;
  OneCell& operator=(const OneCell&) = delete;
  ~OneCell() { store::reset_words(limit_.strategy, words_.data()); }

  [[nodiscard]] core::Outcome peek(Units cost, Nanos now) const {
    return store::judge(limit_, words_.data(), ahead_, cost, now);
  }
  // What a store does before it judges and may write.
  void see(Nanos now) { store::leave_future(limit_, words_.data(), ahead_, now); }
  core::Outcome take(Units cost, Nanos now, LeaseId lease = 0) {
    see(now);
    const core::Outcome outcome = peek(cost, now);
    if (outcome.fits() && cost > 0) charge(cost, now, false, lease);
    return outcome;
  }
  // Takes the units for the instant at which they fit, or later where another limit of the same call does not fit yet,
  // and returns it.
  Nanos reserve(Units cost, Nanos now, Nanos later = Nanos{0}) {
    const Nanos wait = peek(cost, now).wait + later;
    charge(cost, now + wait, wait > 0ns, 0);
    return now + wait;
  }
  void refund(Units units, Nanos charged_at, Nanos now) {
    store::refund(limit_, words_.data(), ahead_, units, charged_at, now);
  }
  // Whether this cell equals a new one at that instant.
  [[nodiscard]] bool reads_like_new(Nanos now) const {
    static constexpr std::array<store::Word, 4> kNew{};
    for (const Units cost : {Units{0}, Units{1}, limit_.limit, limit_.most}) {
      const core::Outcome mine = peek(cost, now);
      const core::Outcome fresh = store::judge(limit_, kNew.data(), false, cost, now);
      if (mine.wait != fresh.wait || mine.delay != fresh.delay || mine.remaining != fresh.remaining ||
          mine.burst != fresh.burst || mine.reset_after != fresh.reset_after) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] const core::CompiledLimit& limit() const { return limit_; }
  [[nodiscard]] store::Word* words() { return words_.data(); }

 private:
  void charge(Units cost, Nanos at, bool reserve, LeaseId lease) {
    if (!store::charge(limit_, words_.data(), ahead_, cost, at, reserve, lease)) throw std::bad_alloc();
  }

  core::CompiledLimit limit_;
  std::array<store::Word, 4> words_{};
  bool ahead_ = false;
};

// One line of a random script. How far time moves is said in terms of the limit and of the last answer, so that scripts
// meet the instants at which something happens.
struct Move {
  enum class By { kNothing, kOneNano, kShort, kLong, kWait, kAlmostWait, kReset, kBack };
  By by = By::kNothing;
  std::int64_t amount = 0;  // thousandths of the span meant
  Units cost = 0;           // thousandths of the most that can ever fit; 0 and 1 mean themselves
  int act = 0;              // what the test makes of it, 0 to 9

  [[nodiscard]] Nanos step(Nanos unit, Nanos whole, const core::Outcome& last) const {
    const auto part = [this](Nanos span) {
      return Nanos{static_cast<std::int64_t>(base::Wide{span.count()} * amount / 1000)};
    };
    switch (by) {
      case By::kNothing: return 0ns;
      case By::kOneNano: return 1ns;
      case By::kShort: return part(3 * unit);
      case By::kLong: return part(2 * whole);
      case By::kWait: return last.wait;
      case By::kAlmostWait: return std::max(0ns, last.wait - 1ns);
      case By::kReset: return last.reset_after;
      case By::kBack: return -part(whole);
    }
    return 0ns;
  }
  [[nodiscard]] Units units(Units most) const {
    if (cost <= 1) return cost;
    return std::clamp<Units>(static_cast<Units>(base::Wide{most} * cost / 1000), 1, most);
  }
};

inline void showValue(const Move& move, std::ostream& os) {
  static constexpr const char* kNames[] = {"nothing", "1ns", "short", "long", "wait", "wait-1ns", "reset", "back"};
  os << "{by " << kNames[static_cast<int>(move.by)] << " " << move.amount << ", cost " << move.cost << ", act "
     << move.act << "}";
}

enum class Time { kForward, kAnyWay };

inline rc::Gen<std::vector<Move>> script(Time time = Time::kForward) {
  const int kinds = time == Time::kForward ? 7 : 8;
  return rc::gen::container<std::vector<Move>>(rc::gen::build<Move>(
      rc::gen::set(&Move::by,
                   rc::gen::map(rc::gen::inRange(0, kinds), [](int by) { return static_cast<Move::By>(by); })),
      rc::gen::set(&Move::amount, rc::gen::inRange<std::int64_t>(0, 1001)),
      rc::gen::set(&Move::cost, rc::gen::weightedOneOf<Units>({{6, rc::gen::just<Units>(1)},
                                                               {1, rc::gen::just<Units>(0)},
                                                               {3, rc::gen::inRange<Units>(2, 1001)}})),
      rc::gen::set(&Move::act, rc::gen::inRange(0, 10))));
}

// Where time starts: at the epoch, today, or close enough to the end that every span still ends before it.
inline rc::Gen<Nanos> start_of_time() {
  return rc::gen::element(Nanos{0}, Nanos{1'700'000'000'123'456'789}, Nanos{kMaxTime / 2});
}

// A wait is exact when the cost fits after it and not a nanosecond earlier.
template <class Cell>
void check_wait(const Cell& cell, Units cost, Nanos now) {
  const core::Outcome outcome = cell.peek(cost, now);
  if (outcome.fits()) return;
  RC_ASSERT(outcome.wait > Nanos{0});
  RC_ASSERT(cell.peek(cost, now + outcome.wait).fits());
  RC_ASSERT(!cell.peek(cost, now + outcome.wait - Nanos{1}).fits());
}

// reset_after is exact when the cell reads like a new one after it and not a nanosecond earlier.
template <class Cell>
void check_reset(const Cell& cell, Nanos now) {
  const Nanos reset = cell.peek(0, now).reset_after;
  RC_ASSERT(cell.reads_like_new(now + reset));
  if (reset > Nanos{0}) RC_ASSERT(!cell.reads_like_new(now + reset - Nanos{1}));
}

}  // namespace headgate::testing
