// How much was answered when: by second for the last five minutes, by ten seconds for the last day.
//
// Not safe for concurrent use: its owner locks. About 300 kB, whatever happens.
#pragma once

#include <array>
#include <vector>

#include "observe/traffic.h"

namespace headgate::observe {

class History {
 public:
  static constexpr Nanos kFine{std::chrono::seconds{1}};
  static constexpr Nanos kCoarse{std::chrono::seconds{10}};
  static constexpr std::size_t kFineSteps = 300;
  static constexpr std::size_t kCoarseSteps = 8'640;

  History() : fine_(kFineSteps), coarse_(kCoarseSteps) {}

  // What has come since the last call, up to `wall`. A clock that goes back adds to the newest step there is.
  void add(const Moment& since_last, Nanos wall);
  // How far apart the points are that since() gives: `step` rounded up to what is kept of that time.
  [[nodiscard]] Nanos step_of(Nanos since, Nanos step) const noexcept;
  // Newest last, in steps of `step` rounded up to what is kept; steps in which nothing came are there too, from the
  // first one ever on.
  [[nodiscard]] std::vector<Moment> since(Nanos since, Nanos step) const;

 private:
  [[nodiscard]] bool is_fine(Nanos since, Nanos step) const noexcept {
    return step < kCoarse && since > newest_ - kFine * kFineSteps;
  }
  // Each step has one place, by its number.
  using Ring = std::vector<Moment>;
  static void add_to(Ring& ring, Nanos width, const Moment& what, Nanos at);

  Ring fine_;
  Ring coarse_;
  Nanos first_{-1};   // start of the first second; negative: none yet
  Nanos newest_{-1};  // start of the newest
};

}  // namespace headgate::observe
