#include "api/http/quota_headers.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/http/limit_headers.h"

namespace headgate::api {
namespace {

constexpr std::int64_t kDaySeconds = 86'400;
constexpr std::array<std::int64_t, 3> kWindows{kDaySeconds, 7 * kDaySeconds, 30 * kDaySeconds};

std::int64_t seconds_up(Nanos span) noexcept {
  return std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::seconds>(span).count());
}

}  // namespace

std::string quota_headers(const service::QuotaAnswer& answer) {
  std::string policies;
  std::string left;
  std::size_t tightest = quota::kPeriods.size();
  for (std::size_t p = 0; p < quota::kPeriods.size(); ++p) {
    if (answer.limits[p].unlimited()) continue;
    const char* comma = policies.empty() ? "" : ", ";
    policies += fmt::format("{}\"{}\";q={};w={}", comma, quota::kPeriodNames[p], answer.limits[p].value, kWindows[p]);
    left += fmt::format("{}\"{}\";r={};t={}", comma, quota::kPeriodNames[p], answer.remaining[p].value,
                        seconds_up(answer.resets_at[p] - answer.wall));
    if (tightest == quota::kPeriods.size() || answer.remaining[p].value < answer.remaining[tightest].value)
      tightest = p;
  }
  std::string out;
  if (tightest < quota::kPeriods.size()) {
    out = fmt::format(
        "RateLimit-Policy: {}\r\nRateLimit: {}\r\nX-RateLimit-Limit: {}\r\nX-RateLimit-Remaining: {}\r\n"
        "X-RateLimit-Reset: {}\r\n",
        policies, left, answer.limits[tightest].value, answer.remaining[tightest].value,
        seconds_up(answer.resets_at[tightest]));
  }
  if (!answer.allowed && answer.retry_after != kNever) append_retry_after(answer.retry_after, out);
  return out;
}

}  // namespace headgate::api
