#include "observe/history.h"

#include <algorithm>

namespace headgate::observe {
namespace {

Nanos floor_to(Nanos instant, Nanos step) noexcept { return instant - instant % step; }

}  // namespace

void History::add_to(Ring& ring, Nanos width, const Moment& what, Nanos at) {
  const Nanos start = floor_to(at, width);
  Moment& step = ring[static_cast<std::size_t>(start / width) % ring.size()];
  if (step.time != start) {
    step = Moment{};
    step.time = start;
  }
  step.allowed += what.allowed;
  step.denied += what.denied;
  step.errors += what.errors;
}

void History::add(const Moment& since_last, Nanos wall) {
  // What came in the second before the tick belongs to that second.
  const Nanos at = floor_to(std::max(wall - kFine, Nanos{0}), kFine);
  if (first_ < Nanos{0}) first_ = at;
  newest_ = std::max(newest_, at);
  add_to(fine_, kFine, since_last, newest_);
  add_to(coarse_, kCoarse, since_last, newest_);
}

Nanos History::step_of(Nanos since, Nanos step) const noexcept {
  const bool fine = is_fine(since, step);
  const Nanos width = fine ? kFine : kCoarse;
  step = std::clamp(step, width, width * static_cast<std::int64_t>(fine ? kFineSteps : kCoarseSteps));
  return (step + width - Nanos{1}) / width * width;
}

std::vector<Moment> History::since(Nanos since, Nanos step) const {
  std::vector<Moment> found;
  if (first_ < Nanos{0}) return found;
  since = std::max(since, Nanos{0});
  const bool fine = is_fine(since, step);
  const Ring& ring = fine ? fine_ : coarse_;
  const Nanos width = fine ? kFine : kCoarse;
  step = step_of(since, step);

  const Nanos oldest = std::max({floor_to(first_, width), floor_to(since, width),
                                 floor_to(newest_, width) - width * static_cast<std::int64_t>(ring.size() - 1)});
  for (Nanos at = oldest; at <= newest_; at += width) {
    const Nanos start = floor_to(at, step);
    if (found.empty() || found.back().time != start) {
      found.emplace_back();
      found.back().time = start;
    }
    const Moment& kept = ring[static_cast<std::size_t>(at / width) % ring.size()];
    if (kept.time != at) continue;  // nothing came
    found.back().allowed += kept.allowed;
    found.back().denied += kept.denied;
    found.back().errors += kept.errors;
  }
  return found;
}

}  // namespace headgate::observe
