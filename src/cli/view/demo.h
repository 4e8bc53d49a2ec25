// `headgate demo`: one pattern of calls against each strategy, in virtual time, drawn as timelines.
#pragma once

#include <string>

#include "cli/view/terminal.h"
#include "headgate/result.h"

namespace headgate::cli {

struct DemoOptions {
  std::string strategy;  // empty: all
  bool json = false;     // one object per call instead of pictures
};

// The whole output, or why there is none.
[[nodiscard]] Result<std::string> demo(const DemoOptions& options, const Terminal& terminal);

}  // namespace headgate::cli
