// The shapes that policies come in. Each reader appends what it can read and reports what it cannot.
#pragma once

#include <vector>

#include "policy/match_reader.h"
#include "policy/scope.h"

namespace headgate::policy {

// The list under `policies`.
void read_native(const Scope& scope, const Node& list, const Scales& scales, std::vector<Policy>& policies);

// `rateLimitPolicies` (agent by agent) and `globalPolicies`: camelCase keys, upper-case words, times in seconds.
struct S1Defaults {
  Scales scales;
  Strategy strategy = Strategy::kSlidingWindow;  // of policies that name none: `defaultStrategy`
};
void read_s1_strategy(const Scope& scope, const Node& node, Strategy& strategy);
void read_s1_agents(const Scope& scope, const Node& agents, const S1Defaults& defaults, std::vector<Policy>& policies);
void read_s1_globals(const Scope& scope, const Node& list, const S1Defaults& defaults, std::vector<Policy>& policies);

// `rate_limiting`, with its default_limits and the store it asks for.
void read_s3(const Scope& scope, const Node& settings, Document& document);

// A whole document of envoyproxy/ratelimit: `domain` and `descriptors`.
void read_envoy(const Scope& scope, const Node& document, std::vector<Policy>& policies);

// 1 to 128 letters, digits, - _ . and :.
[[nodiscard]] bool is_id(std::string_view text) noexcept;
bool read_id(const Scope& scope, const Node* node, std::string& id);
void read_escalation(const Scope& scope, const Node& node, std::string_view window, Escalation& escalation);

inline constexpr std::size_t kMaxMessageBytes = 1024;

}  // namespace headgate::policy
