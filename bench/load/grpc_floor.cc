// The rival for gRPC: libgrpc++'s callback server, with a handler that answers OK and does nothing else.
//
//   grpc_floor       listens on a free port of 127.0.0.1, and prints it
#include <grpcpp/grpcpp.h>

#include <cstdio>

#include "envoy/service/ratelimit/v3/rls.grpc.pb.h"

namespace rls = envoy::service::ratelimit::v3;

class Empty final : public rls::RateLimitService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ShouldRateLimit(grpc::CallbackServerContext* context, const rls::RateLimitRequest*,
                                            rls::RateLimitResponse* response) override {
    response->set_overall_code(rls::RateLimitResponse::OK);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int main() {
  Empty service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}
