#include "cli/view/chart.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace headgate::cli {
namespace {

constexpr std::size_t kNames = 12;
constexpr std::size_t kMostColumns = 64;
constexpr int kLevels = 8;
constexpr std::array<const char*, kLevels + 1> kBars{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, kLevels + 1> kAscii{" ", ".", ":", "-", "=", "+", "*", "#", "@"};

std::vector<double> put_together(const std::vector<double>& values, std::size_t columns) {
  if (values.size() <= columns) return values;
  std::vector<double> means(columns, 0);
  std::vector<double> counts(columns, 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    means[i * columns / values.size()] += values[i];
    ++counts[i * columns / values.size()];
  }
  for (std::size_t i = 0; i < columns; ++i) means[i] /= counts[i];  // of one day, or of two
  return means;
}

}  // namespace

std::string chart(const std::vector<ChartRow>& rows, const ChartAxis& axis, const Terminal& terminal) {
  const std::size_t room = std::min(static_cast<std::size_t>(terminal.width) - kNames, kMostColumns);
  double most = 0;
  std::size_t columns = 0;
  std::vector<std::vector<double>> means;
  for (const ChartRow& row : rows) {
    means.push_back(put_together(row.values, room));
    columns = std::max(columns, means.back().size());
    for (const double value : means.back()) most = std::max(most, value);
  }
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string bars;
    std::string pending;  // blanks, drawn only if something follows them
    for (const double value : means[r]) {
      const int level = most > 0 ? static_cast<int>(std::ceil(value / most * kLevels)) : 0;
      if (level == 0) {
        pending += ' ';
        continue;
      }
      bars += pending + (terminal.unicode ? kBars : kAscii)[static_cast<std::size_t>(std::min(level, kLevels))];
      pending.clear();
    }
    std::string name = "  " + rows[r].name;
    if (!bars.empty()) name.resize(kNames, ' ');
    out += name + terminal.paint(bars, rows[r].ink) + "\n";
  }
  std::string labels = axis.from;
  const std::size_t right = std::max(columns, labels.size() + 1 + axis.to.size());
  labels.resize(right - axis.to.size(), ' ');
  out += std::string(kNames, ' ') + terminal.paint(labels + axis.to, Ink::kDim) + "\n";
  return out;
}

}  // namespace headgate::cli
