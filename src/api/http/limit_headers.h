// The headers that tell a caller where it stands.
//
//   RateLimit-Policy: "ui-search";q=50;w=60            what each policy admits (IETF draft -11)
//   RateLimit: "ui-search";r=49;t=60                   and what is left of it, and in how many seconds it is whole
//   X-RateLimit-Limit, -Remaining, -Reset              of the policy with the least left; Reset is in epoch seconds
//   Retry-After                                        seconds, rounded up, at least 1; only when denied
//
// One item for each policy that is enforced, up to kMostItems, each by the limit of it that has the least left. What a
// policy counts other than requests is told as `headgate-unit="tokens"`; what is counted in fractions (usd) in
// millionths, with `headgate-scale=1000000`, since structured fields want whole numbers here.
#pragma once

#include <string>

#include "engine/check_decision.h"

namespace headgate::api {

inline constexpr std::size_t kMostItems = 4;

// Appends whole lines.
void append_limit_headers(const engine::CheckDecision& decision, std::string& out);

// "Retry-After: 2\r\n" for a span.
void append_retry_after(Nanos span, std::string& out);

}  // namespace headgate::api
