// Reads what a document sets besides its policies: tiers, backoff, adaptive, emergency, leases, queue, exempt, and the
// two words enforcement and mode.
#pragma once

#include <span>
#include <string>

#include "policy/scope.h"

namespace headgate::policy {

// The names of all settings, `levels`, `defaultStrategy` and `version` among them.
[[nodiscard]] std::span<const std::string> setting_names() noexcept;

// `levels` and `defaultStrategy` are not read here, since policies need them first.
void read_setting(const Scope& scope, const Entry& entry, Document& document);

}  // namespace headgate::policy
