#include "cli/bench/histogram.h"

#include <cmath>

namespace headgate::cli {

Nanos Histogram::percentile(double percent) const noexcept {
  if (total_ == 0) return Nanos{0};
  const double wanted = std::ceil(static_cast<double>(total_) * std::clamp(percent, 0.0, 100.0) / 100);
  const auto rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, total_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return Nanos{static_cast<std::int64_t>(std::min(upper_edge(i), max_))};
  }
  return max();
}

}  // namespace headgate::cli
