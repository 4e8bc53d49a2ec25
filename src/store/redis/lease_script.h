// Which node holds how many units of a cell: a record beside the cell, kept by a script.
//
// The record is a hash under `<cell key>:l`, in the cell's slot: for each node its units, until when they hold and the
// number of its last message; the total; and when to look for lapsed ones next. It says what may be used, not what was
// charged: the units themselves are charged to the cell and refunded to it, like any cost. A node
//   1. says hold(left, want): so many it has left, so many more it wants, if it can have a fair part of them. Its
//   record becomes what it may have from now
//      on: never so much that all records together pass the cap.
//   2. charges the cell with what it was granted. Denied: it says hold(left, 0).
//   3. uses them, until `ttl` after it *sent* hold(), which is before the record lapses.
//   4. gives back by no longer using units, saying hold(what it keeps, 0), and refunding the rest.
// A record is never less than what its node may use: a crash, a lost message or a lost answer after any step leaves it
// too large, which only keeps room from others until it lapses. Messages carry a rising number, so that one which was
// stuck on the way cannot undo a later one. What a dead node held stays charged: it may have been used.
#pragma once

#include <optional>
#include <string>

#include "base/hash.h"
#include "headgate/limit.h"
#include "store/redis/command.h"

namespace headgate::store::redis {

struct Hold {
  base::Hash128 cell;
  std::uint64_t number = 0;  // rising for each message of a node about a cell
  Units left = 0;
  Units want = 0;
  Units least = 0;  // rather none than fewer than these
  Units cap = 0;
  Nanos ttl{0};
};

struct Held {
  Units units = 0;  // what the record says now: left and granted; less than left where the room is gone
  Units out = 0;    // over all nodes
};

// `node` must be no other node's, and another after a restart.
[[nodiscard]] Command hold_command(std::string_view prefix, std::string_view node, const Hold& hold);
// Nothing: a later message has been there before, or it is no answer of the script.
[[nodiscard]] std::optional<Held> read_held(const Reply& reply);

[[nodiscard]] const Script& lease_script();

}  // namespace headgate::store::redis
