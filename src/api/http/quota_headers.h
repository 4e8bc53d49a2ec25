// The headers of an answer to a quota check, as those of a check: see limit_headers.h.
//
//   RateLimit-Policy: "daily";q=500;w=86400, "weekly";q=3000;w=604800, "monthly";q=10000;w=2592000
//   RateLimit: "daily";r=497;t=3600, ...               what is left of each, and in how many seconds it begins anew
//   X-RateLimit-Limit, -Remaining, -Reset              of the period with the least left; Reset is in epoch seconds
//   Retry-After                                        seconds, rounded up, at least 1; only when denied
//
// Periods without a limit are left out, and so is what is only monitored.
#pragma once

#include <string>

#include "service/quotas.h"

namespace headgate::api {

// Whole lines.
[[nodiscard]] std::string quota_headers(const service::QuotaAnswer& answer);

}  // namespace headgate::api
