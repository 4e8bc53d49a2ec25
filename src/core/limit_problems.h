// Everything that is wrong with a limit's numbers. Limit's makers report the first of it; readers of documents report
// all.
#pragma once

#include <vector>

#include "headgate/limit.h"

namespace headgate::core {

// Each message begins with the field that it is about. Empty: Limit can be made of them.
[[nodiscard]] std::vector<Error> problems_of(const TokenBucket& numbers);
[[nodiscard]] std::vector<Error> problems_of(const Gcra& numbers);
[[nodiscard]] std::vector<Error> problems_of(const Window& numbers);
[[nodiscard]] std::vector<Error> problems_of(const LeakyBucket& numbers);
[[nodiscard]] std::vector<Error> problems_of(const Concurrency& numbers);
[[nodiscard]] std::vector<Error> problems_of(const Quota& numbers);

}  // namespace headgate::core
