// One picture of `headgate top`: a function of what is known and how large the terminal is, and of nothing else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/quota/quota_view.h"
#include "cli/view/overview.h"
#include "cli/view/terminal.h"

namespace headgate::cli {

enum class TopSort { kAllowed, kDenied, kName };

struct TopView {
  std::string url;
  std::optional<Overview> overview;  // nothing yet
  std::optional<QuotaQueue> queue;   // nothing: the server does not tell
  // Per second, oldest first: as many as make a minute.
  std::vector<double> checks;
  std::vector<double> denials;
  TopSort sort = TopSort::kAllowed;
  bool paused = false;
  bool help = false;
  bool keys = true;     // whether keys can be pressed
  std::string trouble;  // why the last question had no answer
};

struct TopSize {
  int columns = Terminal::kDefaultWidth;  // at least 20
  int rows = 24;                          // at least 5
};

// At most size.rows lines of at most size.columns columns each; colours and Unicode as the terminal has them.
[[nodiscard]] std::vector<std::string> top_frame(const TopView& view, TopSize size, const Terminal& terminal);

// One character for each value, the tallest for the most; more values than columns are put together by their largest.
[[nodiscard]] std::string sparkline(const std::vector<double>& values, std::size_t columns, bool unicode);

}  // namespace headgate::cli
