// Requests of Envoy's rate limit service, read into checks.
//
// Internal to src/api.
#pragma once

#include <envoy/service/ratelimit/v3/rls.pb.h>

#include <optional>
#include <string>
#include <vector>

#include "api/grpc/ratelimit_answer.h"
#include "headgate/check.h"
#include "net/grpc.h"
#include "service/access.h"

namespace headgate::api {

// A status and what to say with it. Refused this way, a request has charged nothing.
struct GrpcRefusal {
  net::GrpcStatus status = net::GrpcStatus::kInvalidArgument;
  std::string text;
};

[[nodiscard]] GrpcRefusal grpc_refusal_of(const service::Refusal& refusal);

// What one request needs, kept for the next by each thread: nothing is allocated once the largest has been seen.
struct RateLimitScratch {
  // One descriptor.
  struct Asked {
    enum class Kind : std::uint8_t { kPolicies, kOwn, kRefund };
    Kind kind = Kind::kPolicies;
    double hits = 1;
    std::optional<Limit> own;  // with kOwn and kRefund: its own limit, if it has one
    bool own_closed = false;   // its own limit admits nothing
    // With kOwn: policies are charged too, since its caller may not choose its own limits.
    bool also_policies = false;
    bool policy_denied = false;
    std::size_t first = 0;  // of its attributes
    std::size_t count = 0;
    std::string own_key;
    Decision own_decision;
    bool own_charged = false;
  };

  envoy::service::ratelimit::v3::RateLimitRequest request;
  RateLimitResponse response;
  service::Caller caller;  // checks borrow the names that its token binds, also while an answer is still to come
  std::vector<Asked> asked;
  std::vector<Check> checks;  // one for each descriptor
  std::vector<Attribute> attributes;
  std::vector<Cost> costs;
};

// Reads the descriptors of scratch.request into its other fields. REQUIRES: scratch.caller is the caller.
[[nodiscard]] std::optional<GrpcRefusal> read_descriptors(const service::Access& access, RateLimitScratch& scratch);

}  // namespace headgate::api
