// A small chart: how much of each kind over time, as rows of bars.
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"

namespace headgate::cli {

struct ChartRow {
  std::string name;
  Ink ink = Ink::kPlain;
  std::vector<double> values;  // as many in every row
};

struct ChartAxis {
  std::string from;  // what the left and the right end mean
  std::string to;
};

// All rows are drawn to one scale; whatever is not nothing shows. Values are put together where they are more than the
// columns.
[[nodiscard]] std::string chart(const std::vector<ChartRow>& rows, const ChartAxis& axis, const Terminal& terminal);

}  // namespace headgate::cli
