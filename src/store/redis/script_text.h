// The parts that the scripts are put together from.
//
// Rules of the house for these scripts: every cell is read and judged before the first is written, so that an error
// leaves nothing half done; numbers that Redis would have to print are given as text where that is possible, because
// printing one costs as much as the command; and what is rare stands in functions of its own, which the usual way never
// makes.
//
// Times are whole microseconds, exact in a double. The formats are those of charge_codec.cc and cell_codec.cc.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "store/redis/command.h"

namespace headgate::store::redis {

// For scripts of one argument: what it is, and the clock of Redis.
extern const std::string_view kTimeText;
// Whose turn it is, and by which clock.
extern const std::string_view kTermsText;
// How a sliding window lies in its string.
extern const std::string_view kLogText;
// How what was charged comes back.
extern const std::string_view kGiveBackText;

[[nodiscard]] std::string join_text(std::initializer_list<std::string_view> parts);

}  // namespace headgate::store::redis
