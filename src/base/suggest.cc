#include "base/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace headgate::base {
namespace {

// How many letters must be put in, taken out or replaced to make one word of the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

const std::string* nearest(std::string_view typed, std::span<const std::string> candidates) {
  constexpr std::size_t kLongestWorthComparing = 64;
  if (typed.empty() || typed.size() > kLongestWorthComparing) return nullptr;
  const std::string* best = nullptr;
  std::size_t least = 0;
  for (const std::string& candidate : candidates) {
    // A beginning, such as "sliding", counts as near however much is missing.
    const bool begins = typed.size() >= 3 && candidate.starts_with(typed);
    const std::size_t distance = begins ? 1 : edit_distance(typed, candidate);
    const std::size_t near = std::max<std::size_t>(2, candidate.size() / 3);
    if (distance > near || distance >= std::max(typed.size(), candidate.size())) continue;
    if (best == nullptr || distance < least) {
      best = &candidate;
      least = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> candidates) {
  const std::string* best = nearest(typed, candidates);
  return best == nullptr ? "" : ", did you mean \"" + *best + "\"?";
}

}  // namespace headgate::base
