// Slow, obvious models of the strategies, for tests to compare the real ones with. Each keeps everything it has ever
// admitted and counts it afresh for every question; none shares arithmetic or state with src/core.
//
// All have the same three calls: fits(cost, t), room(t), which counts units up to limit + burst, and charge(cost, t).
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "base/wide.h"
#include "headgate/limit.h"

namespace headgate::oracle {

using base::Wide;

inline Wide ceil_div(Wide a, Wide b) { return (a + b - 1) / b; }

// `remaining` and the burst flag of SPEC section 2, from the room that is left after a charge.
inline Units remaining(Units room, Units burst_allowance) { return std::max<Units>(0, room - burst_allowance); }
inline bool used_burst(Units room_after, Units burst_allowance) { return room_after < burst_allowance; }

// A level of tokens in units of 1/per of a token, so that every nanosecond adds a whole number of them.
// Time must not go backwards.
class TokenBucket {
 public:
  TokenBucket(Units most, Rate rate) : rate_(rate), full_(Wide{most} * rate.per.count()), level_(full_) {}

  [[nodiscard]] bool fits(Units cost, Nanos t) const { return cost == 0 || level_at(t) >= scaled(cost); }
  [[nodiscard]] Units room(Nanos t) const {
    return level_at(t) < 0 ? 0 : static_cast<Units>(level_at(t) / rate_.per.count());
  }
  void charge(Units cost, Nanos t) {
    level_ = level_at(t) - scaled(cost);
    last_ = t;
  }
  [[nodiscard]] Nanos until_full(Nanos t) const {
    return Nanos{static_cast<std::int64_t>(ceil_div(full_ - level_at(t), rate_.units))};
  }

 private:
  [[nodiscard]] Wide scaled(Units units) const { return Wide{units} * rate_.per.count(); }
  [[nodiscard]] Wide level_at(Nanos t) const {
    return std::min(full_, level_ + Wide{(t - last_).count()} * rate_.units);
  }

  Rate rate_;
  Wide full_;
  Wide level_;
  Nanos last_{0};
};

// Every unit ever admitted, with its instant. If time goes backwards, it stands still at the last admission.
class SlidingWindow {
 public:
  SlidingWindow(Units most, Nanos window) : most_(most), window_(window) {}

  [[nodiscard]] Units used(Nanos t) const {
    t = believed(t);
    Units sum = 0;
    for (const auto& [at, units] : admitted_) sum += at > t - window_ ? units : 0;
    return sum;
  }
  [[nodiscard]] bool fits(Units cost, Nanos t) const {
    if (cost == 0) return true;
    return t >= reserved_until_ && used(t) + cost <= most_;
  }
  [[nodiscard]] Units room(Nanos t) const { return std::max<Units>(0, most_ - used(t)); }
  void charge(Units cost, Nanos t) {
    if (cost > 0) admitted_.push_back({believed(t), cost});
  }
  // Nothing is admitted before a reservation that lies ahead.
  void reserve(Units cost, Nanos at) {
    charge(cost, at);
    reserved_until_ = at;
  }

  // The promise itself: the most that any interval of the window's length holds.
  [[nodiscard]] Units busiest() const {
    Units most = 0;
    for (const auto& end : admitted_) {
      Units sum = 0;
      for (const auto& [at, units] : admitted_) sum += at > end.at - window_ && at <= end.at ? units : 0;
      most = std::max(most, sum);
    }
    return most;
  }

 private:
  struct Admission {
    Nanos at;
    Units units;
  };
  [[nodiscard]] Nanos believed(Nanos t) const {
    return admitted_.empty() || reserved_until_ > t ? t : std::max(t, admitted_.back().at);
  }

  Units most_;
  Nanos window_;
  Nanos reserved_until_{0};
  std::vector<Admission> admitted_;
};

// A count per window. If time goes backwards, the last window charged stays the current one.
class FixedWindow {
 public:
  FixedWindow(Units most, Nanos window) : most_(most), window_(window) {}

  [[nodiscard]] Units used(Nanos t) const {
    const auto found = used_.find(index(t));
    return found == used_.end() ? 0 : found->second;
  }
  [[nodiscard]] bool fits(Units cost, Nanos t) const {
    return cost == 0 || (t >= reserved_until_ && used(t) + cost <= most_);
  }
  [[nodiscard]] Units room(Nanos t) const { return std::max<Units>(0, most_ - used(t)); }
  void charge(Units cost, Nanos t) {
    if (cost > 0) used_[index(t)] += cost;
  }
  void reserve(Units cost, Nanos at) {
    charge(cost, at);
    reserved_until_ = at - at % window_;
  }
  [[nodiscard]] Nanos end(Nanos t) const { return (index(t) + 1) * window_; }
  // The clock shows `t`: if the newest window is more than a whole window away, its count moves into the present one.
  void see(Nanos t) {
    if (used_.empty() || end(t) - t <= 2 * window_) return;
    used_ = {{t / window_, used_.rbegin()->second}};
  }

 private:
  [[nodiscard]] std::int64_t index(Nanos t) const {
    const std::int64_t now = t / window_;
    return used_.empty() ? now : std::max(now, used_.rbegin()->first);
  }

  Units most_;
  Nanos window_;
  Nanos reserved_until_{0};
  std::map<std::int64_t, Units> used_;
};

// A count per window; the window before counts by the part of it that a window ending now still covers.
class SlidingWindowCounter {
 public:
  SlidingWindowCounter(Units most, Nanos window) : most_(most), window_(window) {}

  [[nodiscard]] bool fits(Units cost, Nanos t) const {
    if (cost == 0) return true;
    return t >= reserved_until_ && estimate(t) + Wide{cost} * window_.count() <= Wide{most_} * window_.count();
  }
  [[nodiscard]] Units room(Nanos t) const {
    const Wide left = Wide{most_} * window_.count() - estimate(t);
    return left < 0 ? 0 : static_cast<Units>(left / window_.count());
  }
  void charge(Units cost, Nanos t) {
    if (cost > 0) used_[index(t)] += cost;
  }
  void reserve(Units cost, Nanos at) {
    charge(cost, at);
    reserved_until_ = at - at % window_;
  }

 private:
  // In units of 1/window of a unit.
  [[nodiscard]] Wide estimate(Nanos t) const {
    const std::int64_t now = index(t);
    const Nanos elapsed = std::max(t - now * window_, Nanos{0});
    return Wide{used(now)} * window_.count() + Wide{used(now - 1)} * (window_ - elapsed).count();
  }
  [[nodiscard]] Units used(std::int64_t i) const {
    const auto found = used_.find(i);
    return found == used_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::int64_t index(Nanos t) const {
    const std::int64_t now = t / window_;
    return used_.empty() ? now : std::max(now, used_.rbegin()->first);
  }

  Units most_;
  Nanos window_;
  Nanos reserved_until_{0};
  std::map<std::int64_t, Units> used_;
};

// The instants at which units leave, each one interval after the one before, in units of 1/rate.units of a nanosecond.
// Time must not go backwards.
class LeakyBucket {
 public:
  LeakyBucket(Rate rate, Units queue) : rate_(rate), queue_(queue) {}

  // The last unit may wait for at most `queue` others.
  [[nodiscard]] bool fits(Units cost, Nanos t) const {
    return cost == 0 || next_leaves(t) + Wide{cost - 1} * interval() - now(t) <= Wide{queue_} * interval();
  }
  [[nodiscard]] Units room(Nanos t) const {
    const Wide left = Wide{queue_ + 1} * interval() - (next_leaves(t) - now(t));
    return left < 0 ? 0 : static_cast<Units>(left / interval());
  }
  [[nodiscard]] Nanos delay(Nanos t) const {
    return Nanos{static_cast<std::int64_t>(ceil_div(next_leaves(t) - now(t), rate_.units))};
  }
  void charge(Units cost, Nanos t) {
    for (Units i = 0; i < cost; ++i) leaves_.push_back(next_leaves(t));
  }
  [[nodiscard]] const std::vector<Wide>& leaves() const { return leaves_; }
  [[nodiscard]] Wide interval() const { return rate_.per.count(); }

 private:
  [[nodiscard]] Wide now(Nanos t) const { return Wide{t.count()} * rate_.units; }
  [[nodiscard]] Wide next_leaves(Nanos t) const {
    return leaves_.empty() ? now(t) : std::max(now(t), leaves_.back() + interval());
  }

  Rate rate_;
  Units queue_;
  std::vector<Wide> leaves_;
};

// CL.THROTTLE as redis-cell computes it, in the order in which it does: the interval is a floating-point quotient cut
// to nanoseconds, the number remaining a quotient of whole microseconds, and a refusal answers as things stand.
class RedisCell {
 public:
  struct Answer {
    bool limited = false;
    Units limit = 0;
    Units remaining = 0;
    Nanos retry_after{-1};  // -1ns: allowed, or no wait could help
    Nanos reset_after{0};
  };

  RedisCell(Units max_burst, Units count, Nanos period)
      : limit_(max_burst + 1),
        interval_(static_cast<std::int64_t>(static_cast<double>(period.count()) / static_cast<double>(count))) {}

  Answer throttle(Units quantity, Nanos now) {
    const Nanos tolerance = interval_ * limit_;
    const Nanos increment = interval_ * quantity;
    const Nanos tat = stored_ < Nanos{0} ? now : stored_;
    const Nanos new_tat = std::max(now, tat) + increment;
    Answer answer;
    answer.limit = limit_;
    Nanos ttl{0};
    if (now < new_tat - tolerance) {
      answer.limited = true;
      if (increment <= tolerance) answer.retry_after = new_tat - tolerance - now;
      ttl = tat - now;
    } else {
      stored_ = new_tat;
      ttl = new_tat - now;
    }
    const Nanos next = tolerance - ttl;
    if (next > -interval_) {
      answer.remaining =
          static_cast<Units>(static_cast<double>(next.count() / 1000) / static_cast<double>(interval_.count() / 1000));
    }
    answer.reset_after = ttl;
    return answer;
  }
  // Redis forgets a key when its time to live is over.
  void expire(Nanos now) {
    if (stored_ <= now) stored_ = Nanos{-1};
  }
  [[nodiscard]] Nanos interval() const { return interval_; }

 private:
  Units limit_;
  Nanos interval_;
  Nanos stored_{-1};
};

// Holds with their ends.
class Concurrency {
 public:
  Concurrency(Units most, Nanos ttl) : most_(most), ttl_(ttl) {}

  [[nodiscard]] Units held(Nanos t) const {
    Units sum = 0;
    for (const auto& hold : holds_) sum += hold.expires_at > t ? hold.units : 0;
    return sum;
  }
  [[nodiscard]] bool fits(Units cost, Nanos t) const { return cost == 0 || held(t) + cost <= most_; }
  [[nodiscard]] Units room(Nanos t) const { return std::max<Units>(0, most_ - held(t)); }
  void charge(Units cost, Nanos t, std::uint64_t lease) { holds_.push_back({lease, t + ttl_, cost}); }
  void forget_expired(Nanos t) {
    std::erase_if(holds_, [&](const Hold& hold) { return hold.expires_at <= t; });
  }
  bool release(std::uint64_t lease, Nanos t) {
    return std::erase_if(holds_, [&](const Hold& hold) { return hold.expires_at > t && hold.lease == lease; }) > 0;
  }
  bool renew(std::uint64_t lease, Nanos t) {
    bool found = false;
    for (Hold& hold : holds_) {
      if (hold.expires_at <= t || hold.lease != lease) continue;
      hold.expires_at = std::max(hold.expires_at, t + ttl_);
      found = true;
    }
    return found;
  }

 private:
  struct Hold {
    std::uint64_t lease;
    Nanos expires_at;
    Units units;
  };
  Units most_;
  Nanos ttl_;
  std::vector<Hold> holds_;
};

}  // namespace headgate::oracle
