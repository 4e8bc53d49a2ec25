// The scripts that run inside Redis. Each is one atomic step there; what they are given and what they answer is packed
// by plan_codec.cc.
#pragma once

#include "store/redis/command.h"

namespace headgate::store::redis {

// KEYS: the cells of a plan. Judges and charges all of it or nothing.
[[nodiscard]] const Script& plan_script();
// KEYS: one cell. Refunds, releases, renews.
[[nodiscard]] const Script& tell_script();
// KEYS: one cell. Puts ARGV[2] in its place for ARGV[3] milliseconds, or nothing where that is empty, if it still is
// ARGV[1]. Answers whether it was.
[[nodiscard]] const Script& replace_script();

}  // namespace headgate::store::redis
