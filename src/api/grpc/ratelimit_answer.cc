#include "api/grpc/ratelimit_answer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "api/http/limit_headers.h"
#include "base/ascii.h"

namespace headgate::api {
namespace {

using DescriptorStatus = RateLimitResponse::DescriptorStatus;
using Unit = RateLimitResponse::RateLimit::Unit;
using engine::CheckDecision;
using engine::Judged;

constexpr std::int64_t kSecondNanos = 1'000'000'000;

std::uint32_t clamped(double amount) noexcept {
  constexpr double kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp(std::floor(amount), 0.0, kMost));
}

Unit unit_of(Nanos window) noexcept {
  using namespace std::chrono_literals;
  if (window == 1s) return RateLimitResponse::RateLimit::SECOND;
  if (window == 1min) return RateLimitResponse::RateLimit::MINUTE;
  if (window == 1h) return RateLimitResponse::RateLimit::HOUR;
  if (window == 24h) return RateLimitResponse::RateLimit::DAY;
  if (window == 7 * 24h) return RateLimitResponse::RateLimit::WEEK;
  return RateLimitResponse::RateLimit::UNKNOWN;
}

// UNKNOWN: it is no number of requests per anything that Envoy has a word for.
Unit unit_of(const Limit& limit) noexcept {
  switch (limit.strategy()) {
    case Strategy::kSlidingWindow:
    case Strategy::kSlidingWindowCounter:
    case Strategy::kFixedWindow: return unit_of(limit.window());
    case Strategy::kQuota:
      switch (limit.period()) {
        case Period::kHour: return RateLimitResponse::RateLimit::HOUR;
        case Period::kDay: return RateLimitResponse::RateLimit::DAY;
        case Period::kWeek: return RateLimitResponse::RateLimit::WEEK;
        case Period::kMonth: return RateLimitResponse::RateLimit::MONTH;
        case Period::kYear: return RateLimitResponse::RateLimit::YEAR;
      }
      break;
    default: break;
  }
  return RateLimitResponse::RateLimit::UNKNOWN;
}

void set_reset(Nanos after, DescriptorStatus& status) {
  auto& duration = *status.mutable_duration_until_reset();
  duration.set_seconds(after.count() / kSecondNanos);
  duration.set_nanos(static_cast<std::int32_t>(after.count() % kSecondNanos));
}

struct ReportedLimit {
  const Judged* judged = nullptr;
  std::size_t limit = 0;  // of the policy's
};

// The limit that a decision is reported with: of the policy that denied, the one with the longest wait; else the one
// with the least left.
ReportedLimit reported_limit(const CheckDecision& decision) noexcept {
  ReportedLimit reported;
  const core::Outcome* best = nullptr;
  for (std::size_t i = 0; i < decision.judged.size(); ++i) {
    const Judged& judged = decision.judged[i];
    if (!judged.enforced || judged.parent) continue;
    if (decision.decider >= 0 && i != static_cast<std::size_t>(decision.decider)) continue;
    for (std::size_t j = 0; j < judged.count; ++j) {
      const core::Outcome& outcome = decision.outcomes[judged.first + j];
      const bool longer = decision.decider >= 0 && best != nullptr &&
                          (outcome.wait == kNever || (best->wait != kNever && outcome.wait > best->wait));
      const bool less = decision.decider < 0 && best != nullptr && outcome.remaining < best->remaining;
      if (best != nullptr && !longer && !less) continue;
      best = &outcome;
      reported = {&judged, j};
    }
  }
  return reported;
}

void add_header(std::string_view name, std::string_view value, RateLimitResponse& response) {
  auto& header = *response.add_response_headers_to_add();
  *header.mutable_key() = base::to_lower(name);
  header.mutable_value()->assign(value);
}

}  // namespace

void fill_status(const CheckDecision& decision, DescriptorStatus& status) {
  status.set_code(decision.allowed ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
  const ReportedLimit reported = reported_limit(decision);
  if (reported.judged == nullptr) return;
  const engine::WorkingPolicy& working = decision.working(*reported.judged);
  const engine::WorkingLimit& limit = reported.judged->own != nullptr
                                          ? *reported.judged->own
                                          : working.strands[reported.judged->strand].limits[reported.limit];
  const core::Outcome& outcome = decision.outcomes[reported.judged->first + reported.limit];
  auto& current = *status.mutable_current_limit();
  current.set_requests_per_unit(clamped(static_cast<double>(outcome.limit) * limit.unit));
  current.set_unit(unit_of(limit.base));
  current.mutable_name()->assign(working.policy->id);
  status.set_limit_remaining(clamped(static_cast<double>(outcome.remaining) * limit.unit));
  set_reset(outcome.reset_after, status);
}

void fill_status(const Decision& decision, const Limit& limit, DescriptorStatus& status) {
  status.set_code(decision.allowed() ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
  auto& current = *status.mutable_current_limit();
  current.set_requests_per_unit(clamped(static_cast<double>(limit.limit())));
  current.set_unit(unit_of(limit));
  status.set_limit_remaining(clamped(static_cast<double>(decision.remaining)));
  set_reset(decision.reset_after, status);
}

void add_headers(const CheckDecision& decision, RateLimitResponse& response) {
  thread_local std::string lines;
  lines.clear();
  append_limit_headers(decision, lines);
  for (std::string_view rest = lines; !rest.empty();) {
    const std::size_t end = rest.find("\r\n");
    const std::size_t colon = rest.find(": ");
    add_header(rest.substr(0, colon), rest.substr(colon + 2, end - colon - 2), response);
    rest.remove_prefix(end + 2);
  }
}

void add_headers(const Decision& decision, Nanos wall, RateLimitResponse& response) {
  const auto seconds = [](Nanos span) { return (span.count() + kSecondNanos - 1) / kSecondNanos; };
  add_header("x-ratelimit-limit", std::to_string(decision.limit), response);
  add_header("x-ratelimit-remaining", std::to_string(std::max<Units>(decision.remaining, 0)), response);
  add_header("x-ratelimit-reset", std::to_string(seconds(wall + decision.reset_after)), response);
  if (decision.allowed() || decision.retry_after == kNever) return;
  add_header("retry-after", std::to_string(std::max<std::int64_t>(1, seconds(decision.retry_after))), response);
}

}  // namespace headgate::api
