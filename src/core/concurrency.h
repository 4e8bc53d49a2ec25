// Concurrency: at most so many units held at a time. A hold ends when it is released, or when its ttl has passed
// because its holder was lost.
#pragma once

#include <algorithm>
#include <cassert>

#include "core/outcome.h"

namespace headgate::core {

struct Hold {
  LeaseId lease = 0;
  Nanos expires_at{0};
  Units units = 0;
};

// A limit of more than this is refused: releasing searches the holds one by one.
inline constexpr Units kMaxHolds = 65'536;

// The memory belongs to the store. Holds are in no order.
struct HoldTable {
  Hold* holds = nullptr;
  std::uint32_t size = 0;
  std::uint32_t capacity = 0;
  Units held = 0;
  Nanos next_expiry{kMaxTime};  // the earliest; no hold needs looking at before it
  Nanos last_expiry{0};         // the latest; nothing is held from then on
};

struct ConcurrencyNumbers {
  Units most = 0;  // max + burst
  Units burst = 0;
  Nanos ttl{0};
};

namespace detail {

inline void remove_hold(HoldTable& table, std::uint32_t i) noexcept {
  table.held -= table.holds[i].units;
  table.holds[i] = table.holds[--table.size];
}

inline void find_expiries(HoldTable& table) noexcept {
  table.next_expiry = kMaxTime;
  table.last_expiry = Nanos{0};
  for (std::uint32_t i = 0; i < table.size; ++i) {
    table.next_expiry = std::min(table.next_expiry, table.holds[i].expires_at);
    table.last_expiry = std::max(table.last_expiry, table.holds[i].expires_at);
  }
}

}  // namespace detail

inline void drop_expired_holds(HoldTable& table, Nanos now) noexcept {
  if (now < table.next_expiry) return;
  for (std::uint32_t i = table.size; i-- > 0;) {
    if (table.holds[i].expires_at <= now) detail::remove_hold(table, i);
  }
  detail::find_expiries(table);
}

namespace detail {

// How long until `units` of what is held now have expired, or longer: past a few expiries the last one is the answer.
inline Nanos wait_for_expiry(const HoldTable& table, Units units, Nanos now) noexcept {
  Nanos upto = now;
  for (int expiries = 0; expiries < 8 && units > 0; ++expiries) {
    Nanos next = kMaxTime;
    for (std::uint32_t i = 0; i < table.size; ++i) {
      if (table.holds[i].expires_at > upto) next = std::min(next, table.holds[i].expires_at);
    }
    upto = next;
    for (std::uint32_t i = 0; i < table.size; ++i) {
      if (table.holds[i].expires_at == upto) units -= table.holds[i].units;
    }
  }
  if (units > 0) {
    for (std::uint32_t i = 0; i < table.size; ++i) upto = std::max(upto, table.holds[i].expires_at);
  }
  return upto - now;
}

}  // namespace detail

// Judges the cost; changes nothing. `wait` is the longest it can take: a release may make room sooner.
// REQUIRES: 0 <= cost <= most.
[[nodiscard]] inline Outcome concurrency(const HoldTable& table, const ConcurrencyNumbers& n, Units cost,
                                         Nanos now) noexcept {
  assert(cost >= 0 && cost <= n.most);
  Units held = table.held;
  if (now >= table.next_expiry) {
    for (std::uint32_t i = 0; i < table.size; ++i) {
      if (table.holds[i].expires_at <= now) held -= table.holds[i].units;
    }
  }
  Outcome outcome;
  if (held + cost > n.most && cost > 0) outcome.wait = detail::wait_for_expiry(table, held + cost - n.most, now);
  const Units after = outcome.fits() ? held + cost : held;
  read_room(outcome, after < n.most ? n.most - after : 0, n.burst, cost);
  if (outcome.fits() && cost > 0) {
    outcome.reset_after = std::max(table.last_expiry - now, n.ttl);
  } else if (after > 0) {
    outcome.reset_after = table.last_expiry - now;
  }
  return outcome;
}

// REQUIRES: the cost was judged to fit, cost > 0, table.size < table.capacity.
inline void concurrency_charge(HoldTable& table, Hold hold) noexcept {
  assert(hold.units > 0);
  assert(table.size < table.capacity);
  table.holds[table.size++] = hold;
  table.held += hold.units;
  table.next_expiry = std::min(table.next_expiry, hold.expires_at);
  table.last_expiry = std::max(table.last_expiry, hold.expires_at);
}

// Ends what is held under that lease: one hold, or several where one call took the key more than once. False: it had
// ended already.
inline bool concurrency_release(HoldTable& table, LeaseId lease, Nanos now) noexcept {
  drop_expired_holds(table, now);
  bool found = false;
  for (std::uint32_t i = table.size; i-- > 0;) {
    if (table.holds[i].lease != lease) continue;
    found = true;
    detail::remove_hold(table, i);
  }
  if (found) detail::find_expiries(table);
  return found;
}

// Keeps what is held under that lease for another ttl. False: it had ended already.
inline bool concurrency_renew(HoldTable& table, LeaseId lease, Nanos ttl, Nanos now) noexcept {
  drop_expired_holds(table, now);
  bool found = false;
  for (std::uint32_t i = 0; i < table.size; ++i) {
    if (table.holds[i].lease != lease) continue;
    found = true;
    table.holds[i].expires_at = std::max(table.holds[i].expires_at, now + ttl);
  }
  if (found) detail::find_expiries(table);
  return found;
}

}  // namespace headgate::core
