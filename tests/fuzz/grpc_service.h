// The gRPC service that fuzzers ask. Use one for all inputs: it takes many times as long to make as to ask.
#pragma once

#include <cstdlib>
#include <memory>
#include <string_view>

#include "api/grpc/ratelimit_service.h"
#include "policy/reader.h"

namespace headgate::test {

inline void check(bool holds) {
  if (!holds) std::abort();
}

class FuzzedService {
 public:
  FuzzedService() {
    engine::EngineOptions options;
    options.clock = &clock;
    options.seed = 1;
    options.max_cells = 1'000;
    engine_ = std::make_unique<engine::Engine>(options);
    check(engine_->load(document()).has_value());
    access_ = std::make_unique<service::Access>(*database_, service::AccessOptions{}, clock);
    service_.engine = engine_.get();
    service_.database = database_.get();
    service_.access = access_.get();
    service_.traffic = &traffic_;
    service_.clock = &clock;
    service_.wake = [] {};
    handler = api::make_ratelimit_service(service_);
  }

  ManualClock clock{std::chrono::seconds{1'700'000'000}};
  std::unique_ptr<net::GrpcHandler> handler;

 private:
  static policy::Document document() {
    policy::ReadResult read = policy::read_text(R"(
policies:
  - {id: bucket, limit: {strategy: token_bucket, capacity: 10, refill_rate: 5}}
  - {id: path, key: ["attr:path"], match: {attributes: {path: ["*"]}}, limit: 3/60s}
  - {id: month, key: [agent], match: {operations: [shop]}, limit: {strategy: quota, limit: 5, period: month}}
  - {id: spare, key: [user], limit: 2/1h, action: warn}
)",
                                                "fuzz");
    check(read.ok());
    return std::move(read.document);
  }

  std::unique_ptr<state::Database> database_ = std::move(*state::Database::open(":memory:"));
  observe::Traffic traffic_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<service::Access> access_;
  service::Service service_;
};

}  // namespace headgate::test
