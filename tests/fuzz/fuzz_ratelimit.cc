// Any bytes as a RateLimitRequest of Envoy's: it is refused with a message, or every descriptor is answered and the
// answers agree with each other.
#include <envoy/service/ratelimit/v3/rls.pb.h>

#include <cstdint>
#include <string_view>

#include "fuzz/grpc_service.h"

namespace {

using namespace headgate;
using test::check;
using Asked = envoy::service::ratelimit::v3::RateLimitRequest;
using Answered = envoy::service::ratelimit::v3::RateLimitResponse;

void check_refusal(const net::GrpcAnswer& answer) {
  check(answer.status == net::GrpcStatus::kInvalidArgument);
  check(!answer.text.empty() && answer.text.size() < 1000 && answer.message.empty());
}

void check_answer(const Asked& request, const net::GrpcAnswer& answer) {
  Answered response;
  check(response.ParseFromString(answer.message));
  check(response.statuses_size() == request.descriptors_size());
  bool denied = false;
  for (const auto& status : response.statuses()) {
    check(status.code() == Answered::OK || status.code() == Answered::OVER_LIMIT);
    denied = denied || status.code() == Answered::OVER_LIMIT;
    check(!status.has_current_limit() || status.limit_remaining() <= status.current_limit().requests_per_unit());
  }
  check(response.overall_code() == (denied ? Answered::OVER_LIMIT : Answered::OK));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static test::FuzzedService service;
  net::Peer peer;
  net::GrpcCall call;
  call.path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
  call.message = {reinterpret_cast<const char*>(data), size};
  call.peer = &peer;
  Asked request;
  const bool parses = request.ParseFromArray(data, static_cast<int>(size));
  // More than once, so that what was charged is seen.
  for (int i = 0; i < 4; ++i) {
    call.now = service.clock.now();
    net::GrpcAnswer answer;
    service.handler->call(call, answer);
    if (answer.status != net::GrpcStatus::kOk) {
      check_refusal(answer);
      return 0;
    }
    check(parses);
    check_answer(request, answer);
    service.clock.advance(std::chrono::milliseconds{700});
  }
  return 0;
}
