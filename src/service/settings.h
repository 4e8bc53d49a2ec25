// What operators have set, as the database keeps it and as other nodes hear of it.
#pragma once

#include <string>
#include <vector>

#include "service/service.h"

namespace headgate::service {

// Puts what operators have set before a restart back in force: overrides, the exempt list, the emergency throttle,
// plans and users' rules. On start, after Policies::start(). Returns what could not be read, which is left out.
[[nodiscard]] std::vector<std::string> restore_settings(Service& service);
// Puts one of these in force, or takes it back where it has no value. Any other section: nothing happens.
[[nodiscard]] Result<void> apply_setting(Service& service, const state::Setting& setting);

}  // namespace headgate::service
