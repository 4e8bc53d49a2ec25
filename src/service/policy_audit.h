// What the audit log says of a change of policies.
#pragma once

#include <string>

#include "service/json.h"
#include "service/policies.h"

namespace headgate::service {

// Of two documents: {"added": [id], "changed": [id], "removed": [id]}, without lists that would be empty. A policy that
// only stands elsewhere has not changed. Past kMostTold ids a list ends with "and 3 more".
inline constexpr std::size_t kMostTold = 50;
[[nodiscard]] Json differences(const policy::Document& before, const policy::Document& after);

// The policy as it was written: {"text"} if it was put by API, else {"source": "document", "file", "line", "policy"}.
// REQUIRES: the layers are what the policy was read from.
[[nodiscard]] Json written(const Policies::Layers& layers, const policy::Policy& policy);

}  // namespace headgate::service
