// Envoy's rate limit service (v3) and gRPC's health service.
//
// Each descriptor of a request is one check: its entries called agent, operation, session, user, tenant, context and
// resource are those fields, all others are attributes of its context, and the domain is the attribute `domain` (and
// the operation, if no entry says it). All descriptors are charged, or none. hits_addend is the cost in requests: 0 in
// a descriptor asks whether one more would fit, without charging it; with is_negative_hits it is given back, if the
// other descriptors are allowed. A descriptor with a limit of its own is judged by that alone if
// its caller has role gateway or admin or no token; for all others policies are charged too.
//
// Safe for concurrent use.
#pragma once

#include <memory>

#include "net/grpc.h"
#include "service/service.h"

namespace headgate::api {

// Descriptors of one request; more is kInvalidArgument.
inline constexpr int kMostDescriptors = 64;

// The service outlives it.
[[nodiscard]] std::unique_ptr<net::GrpcHandler> make_ratelimit_service(const service::Service& service);

}  // namespace headgate::api
