#include "api/grpc/ratelimit_service.h"

#include <envoy/service/ratelimit/v3/rls.pb.h>
#include <grpc/health/v1/health.pb.h>
#include <gtest/gtest.h>

#include "support/service.h"

namespace headgate::api {
namespace {

using namespace std::chrono_literals;
using net::GrpcStatus;
using Request = envoy::service::ratelimit::v3::RateLimitRequest;
using Response = envoy::service::ratelimit::v3::RateLimitResponse;
using Descriptor = envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
using Entries = std::vector<std::pair<std::string, std::string>>;

// As envoyproxy/ratelimit has them.
constexpr std::string_view kEnvoyDocument = R"(
domain: shop
descriptors:
  - key: path
    value: /buy
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: second, requests_per_unit: 100}
  - key: agent
    rate_limit: {unit: month, requests_per_unit: 50}
    descriptors:
      - key: plan
        value: free
        rate_limit: {unit: week, requests_per_unit: 2}
)";

struct RateLimitServiceTest : ::testing::Test {
  std::unique_ptr<test::TestService> test = std::make_unique<test::TestService>(kEnvoyDocument);
  std::unique_ptr<net::GrpcHandler> handler = make_ratelimit_service(test->service);
  net::Peer peer;
  std::vector<net::Header> metadata;
  std::string text;  // of the last answer that failed

  void serve(std::string_view policies, service::Auth auth = service::Auth::kLocal) {
    handler.reset();
    test = std::make_unique<test::TestService>(policies, auth);
    handler = make_ratelimit_service(test->service);
  }
  net::GrpcAnswer call(std::string_view path, const std::string& message) {
    peer.ip = "192.0.2.1";
    net::GrpcCall asked;
    asked.path = path;
    asked.message = message;
    asked.metadata = metadata;
    asked.peer = &peer;
    asked.now = test->clock.now();
    net::GrpcAnswer answer;
    handler->call(asked, answer);
    text = answer.text;
    return answer;
  }
  GrpcStatus status_of(const Request& request) {
    return call("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", request.SerializeAsString()).status;
  }
  Response ask(const Request& request) {
    const net::GrpcAnswer answer =
        call("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", request.SerializeAsString());
    EXPECT_EQ(answer.status, GrpcStatus::kOk) << answer.text;
    Response response;
    EXPECT_TRUE(response.ParseFromString(answer.message));
    EXPECT_EQ(response.statuses_size(), request.descriptors_size());
    return response;
  }
  static Descriptor& add(Request& request, const Entries& entries) {
    request.set_domain("shop");
    Descriptor& descriptor = *request.add_descriptors();
    for (const auto& [key, value] : entries) {
      auto& entry = *descriptor.add_entries();
      entry.set_key(key);
      entry.set_value(value);
    }
    return descriptor;
  }
  static Request request_of(const Entries& entries, std::uint32_t hits = 0) {
    Request request;
    add(request, entries);
    request.set_hits_addend(hits);
    return request;
  }
  static std::string header(const Response& response, std::string_view name) {
    for (const auto& each : response.response_headers_to_add()) {
      if (each.key() == name) return each.value();
    }
    return "(none)";
  }
};

using RateLimitService = RateLimitServiceTest;

TEST_F(RateLimitService, ServesDocumentsOfEnvoysShape) {
  const Request buy = request_of({{"path", "/buy"}});
  for (int left = 2; left >= 0; --left) {
    const Response response = ask(buy);
    EXPECT_EQ(response.overall_code(), Response::OK);
    const auto& status = response.statuses(0);
    EXPECT_EQ(status.code(), Response::OK);
    EXPECT_EQ(status.current_limit().requests_per_unit(), 3U);
    EXPECT_EQ(status.current_limit().unit(), Response::RateLimit::MINUTE);
    EXPECT_EQ(status.current_limit().name(), "shop.path__buy");
    EXPECT_EQ(status.limit_remaining(), static_cast<std::uint32_t>(left));
    EXPECT_EQ(status.duration_until_reset().seconds(), 20) << "of the minute that began at 999,960 s";
  }
  const Response denied = ask(buy);
  EXPECT_EQ(denied.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(denied.statuses(0).code(), Response::OVER_LIMIT);
  EXPECT_EQ(denied.statuses(0).limit_remaining(), 0U);
  EXPECT_EQ(denied.statuses(0).current_limit().requests_per_unit(), 3U);
  test->clock.advance(20s);
  EXPECT_EQ(ask(buy).overall_code(), Response::OK);
  EXPECT_EQ(ask(request_of({{"path", "/look"}})).statuses(0).current_limit().unit(), Response::RateLimit::SECOND);
}

TEST_F(RateLimitService, KnowsTheLongerUnits) {
  EXPECT_EQ(ask(request_of({{"agent", "A"}})).statuses(0).current_limit().unit(), Response::RateLimit::MONTH);
  EXPECT_EQ(ask(request_of({{"agent", "A"}, {"plan", "free"}})).statuses(0).current_limit().unit(),
            Response::RateLimit::WEEK);
}

TEST_F(RateLimitService, LetsPassWhatNoPolicyMatches) {
  const Response response = ask(request_of({{"colour", "green"}}));
  EXPECT_EQ(response.overall_code(), Response::OK);
  EXPECT_EQ(response.statuses(0).code(), Response::OK);
  EXPECT_FALSE(response.statuses(0).has_current_limit());
  EXPECT_EQ(response.response_headers_to_add_size(), 0);
}

TEST_F(RateLimitService, ChargesAllDescriptorsOrNone) {
  Request both;
  add(both, {{"agent", "A"}, {"plan", "free"}});
  add(both, {{"path", "/buy"}});
  EXPECT_EQ(ask(both).overall_code(), Response::OK);
  EXPECT_EQ(ask(both).overall_code(), Response::OK);
  const Response denied = ask(both);
  EXPECT_EQ(denied.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(denied.statuses(0).code(), Response::OVER_LIMIT);
  EXPECT_EQ(denied.statuses(1).code(), Response::OK);
  EXPECT_EQ(ask(request_of({{"path", "/buy"}})).statuses(0).limit_remaining(), 0U)
      << "the third was not charged before";
}

TEST_F(RateLimitService, TakesHitsFromTheDescriptorThenTheRequest) {
  EXPECT_EQ(ask(request_of({{"path", "/a"}})).statuses(0).limit_remaining(), 99U);
  EXPECT_EQ(ask(request_of({{"path", "/a"}}, 10)).statuses(0).limit_remaining(), 89U);
  Request own = request_of({{"path", "/a"}}, 10);
  own.mutable_descriptors(0)->mutable_hits_addend()->set_value(4);
  EXPECT_EQ(ask(own).statuses(0).limit_remaining(), 85U);
  own.mutable_descriptors(0)->mutable_hits_addend()->set_value(0);
  ask(own);
  ask(own);
  EXPECT_EQ(ask(request_of({{"path", "/a"}})).statuses(0).limit_remaining(), 84U) << "0 only looks";
  EXPECT_EQ(ask(request_of({{"path", "/a"}}, 84)).overall_code(), Response::OK);
  EXPECT_EQ(ask(own).overall_code(), Response::OVER_LIMIT) << "and sees that there is no room";
}

TEST_F(RateLimitService, GivesBackNegativeHits) {
  const Request buy = request_of({{"path", "/buy"}}, 3);
  EXPECT_EQ(ask(buy).overall_code(), Response::OK);
  Request back = request_of({{"path", "/buy"}}, 2);
  back.mutable_descriptors(0)->set_is_negative_hits(true);
  EXPECT_EQ(ask(back).overall_code(), Response::OK);
  EXPECT_EQ(ask(request_of({{"path", "/buy"}}, 2)).overall_code(), Response::OK);
  EXPECT_EQ(ask(request_of({{"path", "/buy"}})).overall_code(), Response::OVER_LIMIT);
}

TEST_F(RateLimitService, JudgesADescriptorByTheLimitItBrings) {
  Request own = request_of({{"path", "/buy"}});
  auto& limit = *own.mutable_descriptors(0)->mutable_limit();
  limit.set_requests_per_unit(2);
  limit.set_unit(envoy::type::v3::HOUR);
  for (const auto code : {Response::OK, Response::OK, Response::OVER_LIMIT}) {
    const Response response = ask(own);
    EXPECT_EQ(response.overall_code(), code);
    EXPECT_EQ(response.statuses(0).current_limit().requests_per_unit(), 2U);
    EXPECT_EQ(response.statuses(0).current_limit().unit(), Response::RateLimit::HOUR);
    EXPECT_GT(response.statuses(0).duration_until_reset().seconds(), 0);
  }
  EXPECT_NE(header(ask(own), "retry-after"), "(none)");
  EXPECT_EQ(ask(request_of({{"path", "/buy"}})).statuses(0).limit_remaining(), 2U) << "the policy's is untouched";
  own.mutable_descriptors(0)->mutable_entries(0)->set_value("/other");
  EXPECT_EQ(ask(own).overall_code(), Response::OK) << "another key";
  own.mutable_descriptors(0)->set_is_negative_hits(true);
  EXPECT_EQ(ask(own).statuses(0).limit_remaining(), 2U);
  limit.set_requests_per_unit(0);
  own.mutable_descriptors(0)->set_is_negative_hits(false);
  EXPECT_EQ(ask(own).overall_code(), Response::OVER_LIMIT) << "none at all";
}

TEST_F(RateLimitService, GivesBackALimitItBroughtWhenAPolicyDenies) {
  Request both;
  Descriptor& own = add(both, {{"path", "/x"}});
  own.mutable_limit()->set_requests_per_unit(5);
  own.mutable_limit()->set_unit(envoy::type::v3::DAY);
  add(both, {{"agent", "A"}, {"plan", "free"}});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(both).overall_code(), Response::OK);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(both).overall_code(), Response::OVER_LIMIT);
  both.mutable_descriptors()->RemoveLast();
  EXPECT_EQ(ask(both).statuses(0).limit_remaining(), 2U);
}

TEST_F(RateLimitService, ATokenBoundToAnAgentUsesUpNoLimitThatAnotherBrings) {
  serve("policies: []", service::Auth::kRequired);
  Request own = request_of({{"user", "bob"}});
  own.mutable_descriptors(0)->mutable_limit()->set_requests_per_unit(1);
  own.mutable_descriptors(0)->mutable_limit()->set_unit(envoy::type::v3::HOUR);
  // The last two share theirs: they speak for others.
  const std::string secrets[] = {test->token(state::Role::kAgent, "A"), test->token(state::Role::kAgent, "B"),
                                 test->token(state::Role::kGateway), test->token(state::Role::kAdmin)};
  std::vector<Response::Code> codes;
  for (const std::string& secret : secrets) {
    const std::string bearer = "Bearer " + secret;
    metadata = {{"authorization", bearer}};
    codes.push_back(ask(own).overall_code());
  }
  EXPECT_EQ(codes, (std::vector<Response::Code>{Response::OK, Response::OK, Response::OK, Response::OVER_LIMIT}));
}

TEST_F(RateLimitService, ALimitThatAnAgentBringsStandsInForNoPolicy) {
  serve("policies: [{id: three, key: [agent], limit: 3/60s}]", service::Auth::kRequired);
  Request own = request_of({{"agent", "A"}});
  auto& limit = *own.mutable_descriptors(0)->mutable_limit();
  limit.set_requests_per_unit(5);
  limit.set_unit(envoy::type::v3::HOUR);
  const std::string agent = "Bearer " + test->token(state::Role::kAgent, "A");
  const std::string gateway = "Bearer " + test->token(state::Role::kGateway);
  metadata = {{"authorization", agent}};
  for (unsigned left : {4U, 3U, 2U}) {
    const Response response = ask(own);
    EXPECT_EQ(response.overall_code(), Response::OK);
    EXPECT_EQ(response.statuses(0).limit_remaining(), left) << "of the limit that it brings";
  }
  for (int i = 0; i < 4; ++i) {
    const Response denied = ask(own);
    EXPECT_EQ(denied.overall_code(), Response::OVER_LIMIT);
    EXPECT_EQ(denied.statuses(0).code(), Response::OVER_LIMIT);
    EXPECT_EQ(denied.statuses(0).current_limit().name(), "three");
  }
  limit.set_requests_per_unit(0);
  EXPECT_EQ(ask(own).overall_code(), Response::OVER_LIMIT);
  limit.set_requests_per_unit(5);
  const auto totals = test->traffic.totals()[static_cast<std::size_t>(observe::Protocol::kGrpc)];
  EXPECT_EQ(totals.allowed, 3U);
  EXPECT_EQ(totals.denied, 5U) << "each is counted once";
  metadata = {{"authorization", gateway}};
  EXPECT_EQ(ask(own).overall_code(), Response::OK) << "a gateway chooses";
}

TEST_F(RateLimitService, FillsTheFieldsThatEntriesName) {
  serve(R"(
policies:
  - {id: all-fields, key: [agent, session, user, tenant, resource], limit: 5/7s,
     match: {operations: [OP], contexts: [CTX], channels: [grpc], attributes: {domain: shop, colour: green}}}
  - {id: by-domain, match: {operations: [shop]}, key: [], limit: 9/60s}
)");
  const Response filled = ask(request_of({{"agent", "A"},
                                          {"operation", "OP"},
                                          {"session", "s"},
                                          {"user", "u"},
                                          {"tenant", "t"},
                                          {"context", "CTX"},
                                          {"resource", "r"},
                                          {"colour", "green"}}));
  EXPECT_EQ(filled.statuses(0).current_limit().name(), "all-fields");
  EXPECT_EQ(filled.statuses(0).current_limit().unit(), Response::RateLimit::UNKNOWN) << "seven seconds have no name";
  EXPECT_EQ(filled.statuses(0).current_limit().requests_per_unit(), 5U);
  EXPECT_EQ(ask(request_of({{"x", "y"}})).statuses(0).current_limit().name(), "by-domain")
      << "without an operation the domain is it";
}

TEST_F(RateLimitService, AddsHeadersOfTheWorstDescriptor) {
  Request both;
  add(both, {{"path", "/look"}});
  add(both, {{"path", "/buy"}});
  const Response response = ask(both);
  EXPECT_EQ(header(response, "x-ratelimit-limit"), "3");
  EXPECT_EQ(header(response, "x-ratelimit-remaining"), "2");
  EXPECT_EQ(header(response, "x-ratelimit-reset"), "1000020");
  EXPECT_EQ(header(response, "ratelimit"), R"("shop.path__buy";r=2;t=20)");
  EXPECT_EQ(header(response, "ratelimit-policy"), R"("shop.path__buy";q=3;w=60)");
  EXPECT_EQ(header(response, "retry-after"), "(none)");
  ask(request_of({{"path", "/buy"}}, 2));
  EXPECT_EQ(header(ask(both), "retry-after"), "20");
}

TEST_F(RateLimitService, RefusesWhatIsNoQuestion) {
  EXPECT_EQ(status_of({}), GrpcStatus::kInvalidArgument);
  EXPECT_EQ(text, "domain must not be empty");
  Request request;
  request.set_domain("shop");
  EXPECT_EQ(status_of(request), GrpcStatus::kInvalidArgument);
  EXPECT_EQ(text, "descriptors must be 1 to 64, got 0");
  for (int i = 0; i < 65; ++i) add(request, {{"path", "/buy"}});
  EXPECT_EQ(status_of(request), GrpcStatus::kInvalidArgument);
  EXPECT_EQ(status_of(request_of({{"path", std::string(600, 'x')}})), GrpcStatus::kInvalidArgument);
  EXPECT_EQ(text, "descriptors[0]: context.path must be at most 512 bytes long, got 600");
  EXPECT_EQ(status_of(request_of({{"", "x"}})), GrpcStatus::kInvalidArgument);
  Request unit = request_of({{"path", "/buy"}});
  unit.mutable_descriptors(0)->mutable_limit()->set_requests_per_unit(1);
  EXPECT_EQ(status_of(unit), GrpcStatus::kInvalidArgument);
  EXPECT_EQ(text, "descriptors[0]: limit.unit must be one of SECOND, MINUTE, HOUR, DAY, MONTH and YEAR, got 0");
  EXPECT_EQ(call("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "\xff\xff").status,
            GrpcStatus::kInvalidArgument);
  EXPECT_EQ(call("/envoy.service.ratelimit.v3.RateLimitService/Other", "").status, GrpcStatus::kUnimplemented);
}

TEST_F(RateLimitService, NobodyFillsTheLogWithTextThatIsNoUtf8) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(call("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "\x0a\x02\xff\xff").status,
            GrpcStatus::kInvalidArgument);
  EXPECT_EQ(call("/grpc.health.v1.Health/Check", "\x0a\x02\xff\xff").status, GrpcStatus::kInvalidArgument);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(RateLimitService, NeedsAGoodTokenWhereOneIsRequired) {
  serve(kEnvoyDocument, service::Auth::kRequired);
  const Request buy = request_of({{"path", "/buy"}});
  EXPECT_EQ(status_of(buy), GrpcStatus::kUnauthenticated);
  const auto with = [&](const std::string& value) {
    static std::string kept;
    kept = value;
    metadata = {{"authorization", kept}};
  };
  with("Bearer hg_wrong");
  EXPECT_EQ(status_of(buy), GrpcStatus::kUnauthenticated);
  with("Basic abc");
  EXPECT_EQ(status_of(buy), GrpcStatus::kUnauthenticated);
  with("Bearer " + test->token(state::Role::kAgent, "A"));
  EXPECT_EQ(ask(buy).overall_code(), Response::OK);
  EXPECT_EQ(ask(request_of({{"agent", "A"}})).overall_code(), Response::OK);
  EXPECT_EQ(status_of(request_of({{"agent", "B"}})), GrpcStatus::kPermissionDenied);
  with("bearer " + test->token(state::Role::kViewer));
  EXPECT_EQ(status_of(buy), GrpcStatus::kPermissionDenied);
}

TEST_F(RateLimitService, CountsWhatItAnswers) {
  for (int i = 0; i < 4; ++i) ask(request_of({{"path", "/buy"}}));
  status_of({});
  const auto totals = test->traffic.totals()[static_cast<std::size_t>(observe::Protocol::kGrpc)];
  EXPECT_EQ(totals.allowed, 3U);
  EXPECT_EQ(totals.denied, 1U);
  EXPECT_EQ(totals.errors, 1U);
}

TEST_F(RateLimitService, SaysThatItIsWell) {
  grpc::health::v1::HealthCheckRequest request;
  for (const char* service : {"", "envoy.service.ratelimit.v3.RateLimitService"}) {
    request.set_service(service);
    const net::GrpcAnswer answer = call("/grpc.health.v1.Health/Check", request.SerializeAsString());
    EXPECT_EQ(answer.status, GrpcStatus::kOk);
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(response.ParseFromString(answer.message));
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  }
  request.set_service("other");
  EXPECT_EQ(call("/grpc.health.v1.Health/Check", request.SerializeAsString()).status, GrpcStatus::kNotFound);
}

TEST_F(RateLimitService, TellsThoseWhoWatchWhenItEnds) {
  using Health = grpc::health::v1::HealthCheckResponse;
  const auto told = [](const std::string& message) {
    Health response;
    EXPECT_TRUE(response.ParseFromString(message));
    return response.status();
  };
  grpc::health::v1::HealthCheckRequest request;
  net::GrpcAnswer answer = call("/grpc.health.v1.Health/Watch", request.SerializeAsString());
  EXPECT_EQ(answer.status, GrpcStatus::kOk);
  EXPECT_TRUE(answer.stays);
  EXPECT_EQ(told(answer.message), Health::SERVING);
  EXPECT_EQ(told(answer.last), Health::NOT_SERVING);
  request.set_service("other");
  answer = call("/grpc.health.v1.Health/Watch", request.SerializeAsString());
  EXPECT_EQ(answer.status, GrpcStatus::kOk) << "it might come; a Watch does not fail";
  EXPECT_EQ(told(answer.message), Health::SERVICE_UNKNOWN);
  EXPECT_EQ(call("/grpc.health.v1.Health/Watch", "\xff").status, GrpcStatus::kInvalidArgument);
}

}  // namespace
}  // namespace headgate::api
