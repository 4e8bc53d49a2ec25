// The scripts that run inside Redis. Each is one atomic step there; what they are given and what they answer is packed
// by charge_codec.cc.
#pragma once

#include "store/redis/command.h"

namespace headgate::store::redis {

// KEYS: the cells of the charge lists; in a cluster, then the notes about each. ARGV: the instant, by the clock of
// Redis, after which nothing is done; then the charge lists. Judges and charges all of each or nothing.
[[nodiscard]] const Script& charge_script();
// KEYS: one cell. Refunds, releases, renews.
[[nodiscard]] const Script& tell_script();
// KEYS: cells, then the notes about each. Ends what a charge list over several slots has noted there.
[[nodiscard]] const Script& settle_script();
// KEYS: one cell. Puts ARGV[2] in its place for ARGV[3] milliseconds, or nothing where that is empty, if it still is
// ARGV[1]. Answers whether it was.
[[nodiscard]] const Script& replace_script();

}  // namespace headgate::store::redis
