// What a simulation found, as JSON: the same from the command line and from the server.
#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>

#include "engine/simulate.h"

namespace headgate::engine {

// Whole where it can be, without a double's noise; null if it is not finite.
[[nodiscard]] nlohmann::ordered_json number_json(double number);

[[nodiscard]] nlohmann::ordered_json to_json(const SimulationReport& report,
                                             std::size_t most_agents = std::numeric_limits<std::size_t>::max());

}  // namespace headgate::engine
