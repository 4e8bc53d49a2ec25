// The decisions of a simulation as JSON lines, in the order of the checks: what a check that waits is answered comes
// before what those behind it were answered at once.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "engine/simulate.h"

namespace headgate::engine {

// Holds back the lines behind a check that has not been answered yet, and writes the rest in large pieces.
class DecisionLines {
 public:
  // False from `write`: it is of no use any more, and nothing further is written.
  explicit DecisionLines(std::function<bool(std::string_view)> write) : write_(std::move(write)) {}

  // Tells of every check, before it is stepped to.
  void asked(const TraceStep& step);
  void decided(const Decided& decided);
  // The rest, but for a check that was not answered and what stands behind it.
  void finish();
  [[nodiscard]] bool works() const noexcept { return works_; }

 private:
  struct Line {
    std::uint64_t index = 0;
    std::string text;  // empty: not answered yet
  };
  void flush_over(std::size_t most);

  std::function<bool(std::string_view)> write_;
  bool works_ = true;
  bool absolute_ = false;
  std::deque<Line> lines_;  // from the first that has not been answered on
  std::string out_;
};

}  // namespace headgate::engine
