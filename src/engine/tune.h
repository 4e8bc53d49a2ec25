// Proposes limits from observed use: how much each key asked for at its busiest, the chosen percentile of that over all
// keys, and some headroom; with what the proposal would have denied of the same trace.
//
// Three replays: as the policies are, with every limit out of the way to see what was asked for, and as proposed. A
// bucket is looked at over the time that it takes to fill: one of that capacity which fills in the same time denies
// no agent that stays below it. Concurrency and leaky buckets get no proposal.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/simulate.h"
#include "engine/trace.h"

namespace headgate::engine {

struct TuneOptions {
  double percentile = 95;  // of the keys, in (0, 100]
  double headroom = 1.2;   // at least 1
  SimulateOptions simulate;
};

struct Tuned {
  std::string policy;
  std::string unit;
  std::string current;   // "sliding_window 50/60s"
  std::string proposed;  // empty: none, see `note`
  std::string note;
  std::size_t keys = 0;  // that used it
  double limit = 0;      // what it stands at
  double median = 0;     // peak use of the median key, of that at the percentile, and of the busiest
  double at_percentile = 0;
  double most = 0;
  double proposal = 0;
  std::uint64_t before = 0;  // how often the policy denied (or would have, if it only warns or is monitored)
  std::uint64_t after = 0;   // with all proposals in place
};

struct TuneReport {
  std::uint64_t checks = 0;
  std::uint64_t denied_before = 0;
  std::uint64_t denied_after = 0;
  std::vector<Tuned> limits;  // one for each limit of each policy, in order of judgement
};

// `open` gives the trace from its beginning, each time it is called.
[[nodiscard]] Result<TuneReport> tune(const policy::Document& document,
                                      const std::function<Result<TraceReader>()>& open, const TuneOptions& options);

}  // namespace headgate::engine
