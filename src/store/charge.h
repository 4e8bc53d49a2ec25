// What a store is asked: a short list of charges, taken all or not at all.
#pragma once

#include <string_view>

#include "base/hash.h"
#include "core/outcome.h"
#include "store/live_limit.h"

namespace headgate::store {

// One cell and what it is to be charged.
struct Charge {
  base::Hash128 key;
  const LiveLimit* limit = nullptr;
  Units cost = 0;
  std::string_view name;                // kept only by a store that tracks keys
  bool counted = true;                  // false for the further limits of a key, so that a call counts once
  bool soft = false;                    // charged if it fits, but nothing is refused because of it
  bool callers = false;                 // the limit is the caller's own: its cell is of the callers' share
  bool leased = false;                  // a remote store may answer from units it has taken ahead
  Nanos patience = core::kLongestSpan;  // with kReserve: how long this one may be waited for, if that is less
};

// More charges than this in one charge list are refused before they reach a store.
inline constexpr std::size_t kMaxCharges = 64;

enum class Effect : std::uint8_t {
  kNone,     // judge only
  kCharge,   // charge if everything fits now
  kReserve,  // charge if everything fits within `patience`, at the instant at which it does
};

struct Ask {
  Nanos now{0};   // steady timeline
  Nanos wall{0};  // the calendar's reading at `now`
  Effect effect = Effect::kCharge;
  Nanos patience{0};         // with kReserve: how long any of them may be waited for
  LeaseId lease = 0;         // under which concurrency is held
  bool count_denial = true;  // false: a denial is not the last word
  bool ahead = false;        // of those that wait for the store already: many checks depend on it
  // With kReserve: what fits now is charged now, not at the instant at which the last of them does, so that
  // other checks of these limits do not wait as well. A leaky bucket's turn comes after the wait all the same.
  bool apart = false;
  // Whose share is used: of cells in a store in memory, of places in the queue to a remote one. Empty: no share.
  std::string_view owner{};
};

// The answer for the whole charge list; each charge has an Outcome of its own.
struct Applied {
  Nanos wait{0};            // until everything fits; zero: it does (and was charged, if that was asked); kNever
  bool store_full = false;  // the store had no memory for it; nothing was charged
  bool share_full = false;  // then: because the owner has all the cells that one owner may have
  bool reserved = false;    // charged for the instant after `wait`
};

}  // namespace headgate::store
