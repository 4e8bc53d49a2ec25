// Draws what became of a series of calls along a time axis.
//
//                 x   x
//   calls         ooo oox  o o o     one mark per call, the first at the bottom
//              ---------+---------
//              0s       2s
//   remaining  8886420000112121      at the end of each column
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "headgate/limit.h"

namespace headgate::cli {

enum class Mark { kAdmitted, kDelayed, kBurst, kRefused };

struct TimelineCall {
  Nanos at{0};  // from the left edge, as all times here
  Mark mark = Mark::kAdmitted;
};

struct TimelineTick {
  Nanos at{0};
  std::string label;
};

struct Timeline {
  Nanos slot{0};  // the finest column; narrow terminals get columns of several slots
  int slots = 0;
  std::vector<TimelineCall> calls;  // in order of time
  std::vector<Nanos> acts;          // when admitted calls act; drawn if some act later than they were admitted
  std::vector<Nanos> boundaries;    // where windows begin
  std::vector<TimelineTick> ticks;
  std::vector<Units> remaining;  // at the end of each slot
  Units limit = 0;               // what remaining counts to
};

// No line is longer than terminal.width.
// REQUIRES: terminal.width >= Terminal::kLeastWidth.
[[nodiscard]] std::vector<std::string> draw(const Timeline& timeline, const Terminal& terminal);

// How many slots a column stands for on this terminal.
[[nodiscard]] int slots_per_column(int slots, const Terminal& terminal);

// What the marks mean, in lines no longer than terminal.width.
[[nodiscard]] std::vector<std::string> legend(const Terminal& terminal);

}  // namespace headgate::cli
