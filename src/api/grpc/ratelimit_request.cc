#include "api/grpc/ratelimit_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "api/grpc/ratelimit_service.h"
#include "engine/check_problem.h"

namespace headgate::api {
namespace {

using net::GrpcStatus;
using RateLimitRequest = envoy::service::ratelimit::v3::RateLimitRequest;
using RateLimitDescriptor = envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
using envoy::type::v3::RateLimitUnit;

using Asked = RateLimitScratch::Asked;

constexpr std::string_view kGrpcChannel = "grpc";

struct EntryField {
  std::string_view name;
  std::string_view Check::*field;
};
constexpr std::array<EntryField, 7> kFields{{{"agent", &Check::agent},
                                             {"operation", &Check::operation},
                                             {"session", &Check::session},
                                             {"user", &Check::user},
                                             {"tenant", &Check::tenant},
                                             {"context", &Check::context},
                                             {"resource", &Check::resource}}};

std::optional<GrpcRefusal> read_limit(const RateLimitDescriptor::RateLimitOverride& from, Asked& asked) {
  using namespace std::chrono_literals;
  if (from.requests_per_unit() == 0) {
    asked.own_closed = true;
    return std::nullopt;
  }
  const Units count = from.requests_per_unit();
  const auto window = [&](Nanos length) { return Limit::fixed_window({count, length, 0}); };
  const auto quota = [&](Period period) { return Limit::quota({count, period, "UTC", 0}); };
  std::optional<Result<Limit>> limit;
  switch (from.unit()) {
    case RateLimitUnit::SECOND: limit = window(1s); break;
    case RateLimitUnit::MINUTE: limit = window(1min); break;
    case RateLimitUnit::HOUR: limit = window(1h); break;
    case RateLimitUnit::DAY: limit = window(24h); break;
    case RateLimitUnit::MONTH: limit = quota(Period::kMonth); break;
    case RateLimitUnit::YEAR: limit = quota(Period::kYear); break;
    default: break;
  }
  if (!limit) {
    return GrpcRefusal{GrpcStatus::kInvalidArgument,
                       fmt::format("limit.unit must be one of SECOND, MINUTE, HOUR, DAY, MONTH and YEAR, got {}",
                                   static_cast<int>(from.unit()))};
  }
  if (!*limit) return GrpcRefusal{GrpcStatus::kInvalidArgument, "limit: " + limit->error().message};
  asked.own = **limit;
  return std::nullopt;
}

// The domain and entries, each with its length, so that no two descriptors share one. A token that is bound to an agent
// has keys of its own, as for CL.THROTTLE: the agent comes first, after an empty text, which no domain is.
std::string key_of(const service::Caller& caller, const RateLimitRequest& request,
                   const RateLimitDescriptor& descriptor) {
  std::string key;
  const auto add = [&](const std::string& text) {
    fmt::format_to(std::back_inserter(key), "{}:{}", text.size(), text);
  };
  if (caller.role == state::Role::kAgent && !caller.agent.empty()) {
    add({});
    add(caller.agent);
  }
  add(request.domain());
  for (const auto& entry : descriptor.entries()) {
    add(entry.key());
    add(entry.value());
  }
  return key;
}

std::optional<GrpcRefusal> read_one(const RateLimitRequest& request, const RateLimitDescriptor& descriptor,
                                    Asked& asked, Check& check, RateLimitScratch& scratch) {
  asked.first = scratch.attributes.size();
  scratch.attributes.push_back({"domain", Value(std::string_view(request.domain()))});
  for (const auto& entry : descriptor.entries()) {
    const auto* field =
        std::find_if(kFields.begin(), kFields.end(), [&](const EntryField& each) { return each.name == entry.key(); });
    // The same key once more is but an attribute.
    if (field != kFields.end() && (check.*field->field).empty()) {
      check.*field->field = entry.value();
    } else {
      scratch.attributes.push_back({entry.key(), Value(std::string_view(entry.value()))});
    }
  }
  asked.count = scratch.attributes.size() - asked.first;
  if (check.operation.empty()) check.operation = request.domain();
  check.channel = kGrpcChannel;

  asked.hits = request.hits_addend() == 0 ? 1 : request.hits_addend();
  if (descriptor.has_hits_addend()) {
    asked.hits = static_cast<double>(descriptor.hits_addend().value());
    // Whether one more would fit.
    if (asked.hits == 0 && !descriptor.is_negative_hits()) {
      check.peek = true;
      asked.hits = 1;
    }
  }
  if (asked.hits > kMaxCost) {
    return GrpcRefusal{GrpcStatus::kInvalidArgument,
                       fmt::format("hits_addend must be at most {:.0f}, got {:.0f}", kMaxCost, asked.hits)};
  }
  scratch.costs.push_back({"requests", asked.hits});
  if (descriptor.has_limit()) {
    asked.kind = Asked::Kind::kOwn;
    asked.also_policies = !scratch.caller.speaks_for_others();
    asked.own_key = key_of(scratch.caller, request, descriptor);
    if (auto refused = read_limit(descriptor.limit(), asked)) return refused;
  }
  if (descriptor.is_negative_hits()) {
    asked.kind = Asked::Kind::kRefund;
    asked.also_policies = false;
  }
  return std::nullopt;
}

}  // namespace

GrpcRefusal grpc_refusal_of(const service::Refusal& refusal) {
  switch (refusal.status) {
    case 401: return {GrpcStatus::kUnauthenticated, refusal.message};
    case 429: return {GrpcStatus::kResourceExhausted, refusal.message};
    default: return {GrpcStatus::kPermissionDenied, refusal.message};
  }
}

std::optional<GrpcRefusal> read_descriptors(const service::Access& access, RateLimitScratch& scratch) {
  const service::Caller& caller = scratch.caller;
  const RateLimitRequest& request = scratch.request;
  if (request.domain().empty()) return GrpcRefusal{GrpcStatus::kInvalidArgument, "domain must not be empty"};
  const int count = request.descriptors_size();
  if (count < 1 || count > kMostDescriptors) {
    return GrpcRefusal{GrpcStatus::kInvalidArgument,
                       fmt::format("descriptors must be 1 to {}, got {}", kMostDescriptors, count)};
  }
  scratch.asked.clear();
  scratch.checks.clear();
  scratch.costs.clear();
  scratch.attributes.clear();
  for (const RateLimitDescriptor& descriptor : request.descriptors()) {
    const auto refuse = [&](GrpcRefusal refused) {
      refused.text = fmt::format("descriptors[{}]: {}", scratch.asked.size() - 1, refused.text);
      return refused;
    };
    Asked& asked = scratch.asked.emplace_back();
    Check& check = scratch.checks.emplace_back();
    if (auto refused = read_one(request, descriptor, asked, check, scratch)) return refuse(std::move(*refused));
    if (const auto refusal = access.believe(caller, std::nullopt, check)) return refuse(grpc_refusal_of(*refusal));
    if (asked.kind == Asked::Kind::kRefund && !caller.speaks_for_others()) {
      return refuse({GrpcStatus::kPermissionDenied, "is_negative_hits gives back, which takes role gateway or admin"});
    }
  }
  // Only now, since these do not move any more.
  for (std::size_t i = 0; i < scratch.asked.size(); ++i) {
    const Asked& asked = scratch.asked[i];
    scratch.checks[i].attributes = std::span(scratch.attributes).subspan(asked.first, asked.count);
    if (asked.hits != 1) scratch.checks[i].costs = {&scratch.costs[i], 1};
    if (engine::is_fine(scratch.checks[i])) continue;
    return GrpcRefusal{GrpcStatus::kInvalidArgument,
                       fmt::format("descriptors[{}]: {}", i, engine::problem_of(scratch.checks[i]))};
  }
  return std::nullopt;
}

}  // namespace headgate::api
