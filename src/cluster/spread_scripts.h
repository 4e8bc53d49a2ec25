// What Spread has Redis do in one step.
//
// Internal to src/server.
#pragma once

#include "store/redis/command.h"

namespace headgate::cluster {

// KEYS: version, nodes, seed. ARGV: this node, how many microseconds a silent node is counted, this node's seed, which
// is put back where Redis has forgotten it. Gives the newest version, how many nodes there are, and the seed.
[[nodiscard]] const store::redis::Script& beat_script();
// KEYS: fields, version. ARGV: this node, then for each field its name, the version of it that was seen, and "=" with
// its value or "-". Gives for each the version it was written under, or 0 where a newer one was there. Versions are
// times, so that they grow even over a Redis that was emptied.
[[nodiscard]] const store::redis::Script& put_script();

}  // namespace headgate::cluster
