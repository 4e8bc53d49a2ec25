// The shapes that policies come in. Each reader appends what it can read and reports what it cannot.
#pragma once

#include <vector>

#include "policy/match_reader.h"
#include "policy/scope.h"

namespace headgate::policy {

// The list under `policies`.
void read_native(const Scope& scope, const Node& list, const Scales& scales, std::vector<Policy>& policies);

// `rateLimitPolicies` (agent by agent) and `globalPolicies`: camelCase keys, upper-case words, times in seconds.
void read_s1_agents(const Scope& scope, const Node& agents, const Scales& scales, std::vector<Policy>& policies);
void read_s1_globals(const Scope& scope, const Node& list, const Scales& scales, std::vector<Policy>& policies);

// `rate_limiting`, with its default_limits.
void read_s3(const Scope& scope, const Node& settings, std::vector<Policy>& policies);

// A whole document of envoyproxy/ratelimit: `domain` and `descriptors`.
void read_envoy(const Scope& scope, const Node& document, std::vector<Policy>& policies);

// 1 to 128 letters, digits, - _ . and :.
[[nodiscard]] bool is_id(std::string_view text) noexcept;
bool read_id(const Scope& scope, const Node* node, std::string& id);
void read_escalation(const Scope& scope, const Node& node, std::string_view window, Escalation& escalation);

inline constexpr std::size_t kMaxMessageBytes = 1024;

}  // namespace headgate::policy
