// Decisions as Envoy's rate limit service tells them.
//
// Internal to src/api.
#pragma once

#include <envoy/service/ratelimit/v3/rls.pb.h>

#include "engine/check_decision.h"
#include "headgate/decision.h"
#include "headgate/limit.h"

namespace headgate::api {

using RateLimitResponse = envoy::service::ratelimit::v3::RateLimitResponse;

// Of the policy that denied, or of the one with the least left; none matches: only the code.
void fill_status(const engine::CheckDecision& decision, RateLimitResponse::DescriptorStatus& status);
// Of a limit that the descriptor brought.
void fill_status(const Decision& decision, const Limit& limit, RateLimitResponse::DescriptorStatus& status);

// The headers of limit_headers.h, with names in lower case.
void add_headers(const engine::CheckDecision& decision, RateLimitResponse& response);
void add_headers(const Decision& decision, Nanos wall, RateLimitResponse& response);

}  // namespace headgate::api
