// Reads what a document sets besides its policies: tiers, backoff, adaptive, leases, queue, exempt, and the two words
// enforcement and mode.
#pragma once

#include <span>
#include <string>

#include "policy/scope.h"

namespace headgate::policy {

// The names of all settings, `levels` and `version` among them.
[[nodiscard]] std::span<const std::string> setting_names() noexcept;

// `levels` is not read here, since policies need it first.
void read_setting(const Scope& scope, const Entry& entry, Document& document);

}  // namespace headgate::policy
