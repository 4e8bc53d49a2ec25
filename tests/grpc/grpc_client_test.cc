// The gRPC side of a running server, tested with libgrpc++, the client that Envoy uses.
//
// Usage: headgate_grpc_client_test HEADGATE [gtest flags]. Starts the server itself, on a free port. The only file that
// includes grpc++, which takes long to compile.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "envoy/service/ratelimit/v3/rls.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace {

using namespace std::chrono_literals;
using envoy::service::ratelimit::v3::RateLimitRequest;
using envoy::service::ratelimit::v3::RateLimitResponse;
using envoy::service::ratelimit::v3::RateLimitService;
using Descriptor = envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;

std::string binary;  // the path of headgate

constexpr const char* kPolicies = R"(
domain: shop
descriptors:
  - {key: path, value: /buy, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: path, value: /sell, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: busy, rate_limit: {unit: year, requests_per_unit: 1000000}}
)";

// A port that was free a moment ago.
std::string free_address() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

class Server {
 public:
  Server() : address(free_address()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "headgate-grpc-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ / "policies.yaml") << kPolicies;
    const std::string policies = folder_ / "policies.yaml";
    const std::string data = folder_ / "data";
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execl(binary.c_str(), binary.c_str(), "serve", "--grpc", address.c_str(), "--http", "127.0.0.1:0", "--resp",
              "off", "--policies", policies.c_str(), "--data", data.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~Server() {
    if (pid_ > 0) stop();
    std::filesystem::remove_all(folder_);
  }
  // Its exit status.
  int stop() {
    ::kill(pid_, SIGTERM);
    int status = -1;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const std::string address;

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
};

struct GrpcClient : ::testing::Test {
  static void SetUpTestSuite() { server = new Server; }
  static void TearDownTestSuite() {
    EXPECT_EQ(server->stop(), 0);
    delete server;
  }
  static std::shared_ptr<grpc::Channel> connect(const std::string& address, grpc::ChannelArguments arguments = {}) {
    auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + 20s)) << address;
    return channel;
  }

  static Descriptor& add(RateLimitRequest& request, const std::string& key, const std::string& value) {
    request.set_domain("shop");
    Descriptor& descriptor = *request.add_descriptors();
    auto& entry = *descriptor.add_entries();
    entry.set_key(key);
    entry.set_value(value);
    return descriptor;
  }
  grpc::Status ask(const RateLimitRequest& request, RateLimitResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    return stub->ShouldRateLimit(&context, request, &response);
  }

  inline static Server* server = nullptr;
  std::shared_ptr<grpc::Channel> channel = connect(server->address);
  std::unique_ptr<RateLimitService::Stub> stub = RateLimitService::NewStub(channel);
};

TEST_F(GrpcClient, IsAnsweredInOrderUntilALimitIsReached) {
  RateLimitRequest request;
  add(request, "path", "/buy");
  add(request, "nothing", "matches");
  for (const auto code :
       {RateLimitResponse::OK, RateLimitResponse::OK, RateLimitResponse::OK, RateLimitResponse::OVER_LIMIT}) {
    RateLimitResponse response;
    const grpc::Status status = ask(request, response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.overall_code(), code);
    ASSERT_EQ(response.statuses_size(), 2);
    EXPECT_EQ(response.statuses(0).code(), code);
    EXPECT_EQ(response.statuses(0).current_limit().requests_per_unit(), 3U);
    EXPECT_EQ(response.statuses(0).current_limit().unit(), RateLimitResponse::RateLimit::YEAR);
    EXPECT_GT(response.statuses(0).duration_until_reset().seconds(), 0);
    EXPECT_EQ(response.statuses(1).code(), RateLimitResponse::OK);
    EXPECT_FALSE(response.statuses(1).has_current_limit());
    EXPECT_GT(response.response_headers_to_add_size(), 0);
  }
}

TEST_F(GrpcClient, LooksWithAnExplicitZeroAndTakesBackWithNegativeHits) {
  RateLimitRequest take;
  add(take, "path", "/sell");
  take.set_hits_addend(2);
  RateLimitRequest look = take;
  look.mutable_descriptors(0)->mutable_hits_addend()->set_value(0);
  RateLimitRequest back = take;
  back.mutable_descriptors(0)->set_is_negative_hits(true);
  const auto code = [&](const RateLimitRequest& request) {
    RateLimitResponse response;
    EXPECT_TRUE(ask(request, response).ok());
    return response.overall_code();
  };
  EXPECT_EQ(code(look), RateLimitResponse::OK);
  EXPECT_EQ(code(take), RateLimitResponse::OK);
  EXPECT_EQ(code(look), RateLimitResponse::OVER_LIMIT);
  EXPECT_EQ(code(back), RateLimitResponse::OK);
  EXPECT_EQ(code(take), RateLimitResponse::OK);
}

TEST_F(GrpcClient, IsToldWhatIsWrong) {
  RateLimitResponse response;
  const grpc::Status empty = ask({}, response);
  EXPECT_EQ(empty.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(empty.error_message(), "domain must not be empty");
  RateLimitRequest large;
  add(large, "busy", std::string(2 << 20, 'x'));
  EXPECT_EQ(ask(large, response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext context;
  RateLimitRequest request;
  add(request, "busy", "x");
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const std::string repeated(5000, 'x');
  for (int i = 0; i < 5; ++i) add(request, "busy", repeated);
  EXPECT_EQ(stub->ShouldRateLimit(&context, request, &response).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  RateLimitRequest again;
  add(again, "busy", "after");
  EXPECT_TRUE(ask(again, response).ok()) << "the connection goes on";
}

TEST_F(GrpcClient, KeepsItsDeadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() - 1s);
  RateLimitRequest request;
  add(request, "busy", "late");
  RateLimitResponse response;
  EXPECT_EQ(stub->ShouldRateLimit(&context, request, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(GrpcClient, FindsTheServerHealthy) {
  const auto health = grpc::health::v1::Health::NewStub(channel);
  const auto check = [&](const std::string& service, grpc::health::v1::HealthCheckResponse& response) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    return health->Check(&context, request, &response);
  };
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(check("", response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  ASSERT_TRUE(check("envoy.service.ratelimit.v3.RateLimitService", response).ok());
  EXPECT_EQ(check("other", response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcClient, HearsThatAServerItWatchesEnds) {
  Server other;
  const auto health = grpc::health::v1::Health::NewStub(connect(other.address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  const auto watched = health->Watch(&context, grpc::health::v1::HealthCheckRequest());
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watched->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  std::thread stopper([&] { EXPECT_EQ(other.stop(), 0); });
  EXPECT_TRUE(watched->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watched->Read(&response));
  EXPECT_TRUE(watched->Finish().ok());
  stopper.join();
}

// Calls on one channel, as many at a time as there are threads; returns how many went well.
int call_at_once(const std::shared_ptr<grpc::Channel>& channel, int threads, int each) {
  std::atomic<int> well{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      const auto stub = RateLimitService::NewStub(channel);
      RateLimitRequest request;
      GrpcClient::add(request, "busy", std::to_string(i));
      for (int j = 0; j < each; ++j) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + 20s);
        RateLimitResponse response;
        const bool ok = stub->ShouldRateLimit(&context, request, &response).ok() &&
                        response.statuses(0).limit_remaining() == 999'999U - static_cast<unsigned>(j);
        well += ok ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  return well;
}

TEST_F(GrpcClient, IsServedManyCallsAtOnce) { EXPECT_EQ(call_at_once(channel, 20, 200), 4000); }

TEST_F(GrpcClient, LosesNoCallThatWasBegunWhenTheServerStops) {
  Server other;
  auto there = connect(other.address);
  std::atomic<bool> stopping{false};
  std::atomic<int> lost{0};
  std::atomic<int> well{0};
  std::thread asker([&] {
    const auto stub_there = RateLimitService::NewStub(there);
    RateLimitRequest request;
    add(request, "busy", "x");
    for (;;) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + 20s);
      RateLimitResponse response;
      const grpc::Status status = stub_there->ShouldRateLimit(&context, request, &response);
      if (status.ok()) {
        ++well;
        continue;
      }
      // Refused because there is no server any more: fine, as long as it was told to stop.
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE || !stopping) ++lost;
      return;
    }
  });
  while (well < 100 && lost == 0) std::this_thread::yield();
  stopping = true;
  EXPECT_EQ(other.stop(), 0);
  asker.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s HEADGATE\n", argv[0]);
    return 2;
  }
  binary = argv[1];
  return RUN_ALL_TESTS();
}
