#include "api/ratelimit_service.h"

#include <envoy/service/ratelimit/v3/rls.pb.h>
#include <fmt/format.h>
#include <grpc/health/v1/health.pb.h>

#include <array>
#include <optional>
#include <vector>

#if __has_include(<google/protobuf/stubs/logging.h>)
#include <google/protobuf/stubs/logging.h>
#define HEADGATE_PROTOBUF_HAS_LOG_HANDLER
#endif

#include "api/ratelimit_answer.h"
#include "engine/check_problem.h"

namespace headgate::api {
namespace {

using net::GrpcAnswer;
using net::GrpcCall;
using net::GrpcStatus;
using RateLimitRequest = envoy::service::ratelimit::v3::RateLimitRequest;
using RateLimitDescriptor = envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
using envoy::type::v3::RateLimitUnit;

constexpr std::string_view kShouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
constexpr std::string_view kHealthCheck = "/grpc.health.v1.Health/Check";
constexpr std::string_view kHealthWatch = "/grpc.health.v1.Health/Watch";
constexpr std::array<std::string_view, 3> kServices{"", "envoy.service.ratelimit.v3.RateLimitService",
                                                    "grpc.health.v1.Health"};
constexpr std::string_view kGrpcChannel = "grpc";
constexpr std::size_t kKeptMessage = 16 << 10;  // larger requests do not leave their memory behind

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

// Protobuf has a line for standard error, where the log is, for every text that is no UTF-8: then any client could fill
// it. Versions from 22 on log by Abseil, and have no such switch.
void silence_protobuf() {
#ifdef HEADGATE_PROTOBUF_HAS_LOG_HANDLER
  [[maybe_unused]] static auto* const kBefore = google::protobuf::SetLogHandler(nullptr);
#endif
}

// A status and what to say with it. Refused this way, a request has charged nothing.
struct Refused {
  GrpcStatus status = GrpcStatus::kInvalidArgument;
  std::string text;
};

Refused refused_of(const Refusal& refusal) {
  switch (refusal.status) {
    case 401: return {GrpcStatus::kUnauthenticated, refusal.message};
    case 429: return {GrpcStatus::kResourceExhausted, refusal.message};
    default: return {GrpcStatus::kPermissionDenied, refusal.message};
  }
}

// One descriptor.
struct Asked {
  enum class Kind : std::uint8_t { kPolicies, kOwn, kRefund };
  Kind kind = Kind::kPolicies;
  double hits = 1;
  std::optional<Limit> own;  // with kOwn and kRefund: its own limit, if it has one
  bool own_closed = false;   // its own limit admits nothing
  std::size_t first = 0;     // of its attributes
  std::size_t count = 0;
  std::string own_key;
  Decision own_decision;
  bool own_charged = false;
};

// What one request needs, kept for the next by each thread: nothing is allocated once the largest has been seen.
struct Scratch {
  RateLimitRequest request;
  RateLimitResponse response;
  std::vector<Asked> asked;
  std::vector<Check> checks;  // one for each descriptor
  std::vector<Attribute> attributes;
  std::vector<Cost> costs;
};

std::optional<Refused> read_limit(const RateLimitDescriptor::RateLimitOverride& from, Asked& asked) {
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
    return Refused{GrpcStatus::kInvalidArgument,
                   fmt::format("limit.unit must be one of SECOND, MINUTE, HOUR, DAY, MONTH and YEAR, got {}",
                               static_cast<int>(from.unit()))};
  }
  if (!*limit) return Refused{GrpcStatus::kInvalidArgument, "limit: " + limit->error().message};
  asked.own = **limit;
  return std::nullopt;
}

// The domain and entries, each with its length, so that no two descriptors share one.
std::string key_of(const RateLimitRequest& request, const RateLimitDescriptor& descriptor) {
  std::string key;
  const auto add = [&](const std::string& text) {
    fmt::format_to(std::back_inserter(key), "{}:{}", text.size(), text);
  };
  add(request.domain());
  for (const auto& entry : descriptor.entries()) {
    add(entry.key());
    add(entry.value());
  }
  return key;
}

class RateLimitService final : public net::GrpcHandler {
 public:
  explicit RateLimitService(const Service& service) : service_(service) {}

  void call(const GrpcCall& call, GrpcAnswer& answer) noexcept override {
    try {
      if (call.path == kShouldRateLimit) {
        should_rate_limit(call, answer);
      } else if (call.path == kHealthCheck || call.path == kHealthWatch) {
        tell_health(call, answer);
      } else {
        answer.status = GrpcStatus::kUnimplemented;
        answer.text = fmt::format("there is no method {}", call.path.substr(0, 200));
      }
    } catch (const std::exception& error) {
      answer.status = GrpcStatus::kInternal;
      answer.text = error.what();
    }
  }

 private:
  // A Check is answered, and told of a service that is not there by its status. A Watch stays open: it hears how things
  // stand, and, when the server ends, that they do not any more.
  static void tell_health(const GrpcCall& call, GrpcAnswer& answer) {
    using Response = grpc::health::v1::HealthCheckResponse;
    grpc::health::v1::HealthCheckRequest request;
    if (!request.ParseFromArray(call.message.data(), static_cast<int>(call.message.size()))) {
      answer.status = GrpcStatus::kInvalidArgument;
      answer.text = "the message is no HealthCheckRequest";
      return;
    }
    answer.stays = call.path == kHealthWatch;
    const bool known = std::find(kServices.begin(), kServices.end(), request.service()) != kServices.end();
    if (!known && !answer.stays) {
      answer.status = GrpcStatus::kNotFound;
      answer.text = "there is no such service";
      return;
    }
    Response response;
    response.set_status(known ? Response::SERVING : Response::SERVICE_UNKNOWN);
    response.SerializeToString(&answer.message);
    response.set_status(known ? Response::NOT_SERVING : Response::SERVICE_UNKNOWN);
    response.SerializeToString(&answer.last);
  }

  [[nodiscard]] Admission admitted(const GrpcCall& call) const {
    constexpr std::string_view kBearer = "bearer ";
    for (const net::Header& header : call.metadata) {
      if (header.name != "authorization") continue;
      bool bearer = header.value.size() > kBearer.size();
      for (std::size_t i = 0; bearer && i < kBearer.size(); ++i) {
        bearer = static_cast<char>(header.value[i] | ' ') == kBearer[i];
      }
      if (bearer) return service_.access->by_token(header.value.substr(kBearer.size()), call.peer->ip);
      Admission admission;
      admission.refusal = Refusal{401, "unauthorized", "authorization must be \"Bearer\" and a token", Nanos{0}};
      return admission;
    }
    return service_.access->without_token(*call.peer);
  }

  void should_rate_limit(const GrpcCall& call, GrpcAnswer& answer) {
    thread_local Scratch scratch;
    const std::optional<Refused> refused = decide(call, scratch);
    if (refused) {
      answer.status = refused->status;
      answer.text = refused->text;
      observe::Answered answered;
      answered.protocol = observe::Protocol::kGrpc;
      answered.allowed = false;
      answered.error = true;
      service_.traffic->add(answered, service_.clock->wall(call.now));
    } else {
      scratch.response.SerializeToString(&answer.message);
    }
    if (call.message.size() > kKeptMessage) scratch = Scratch();
  }

  std::optional<Refused> decide(const GrpcCall& call, Scratch& scratch) {
    const Admission admission = admitted(call);
    if (admission.refusal) return refused_of(*admission.refusal);
    if (!scratch.request.ParseFromArray(call.message.data(), static_cast<int>(call.message.size()))) {
      return Refused{GrpcStatus::kInvalidArgument, "the message is no RateLimitRequest"};
    }
    if (std::optional<Refused> refused = read(admission.caller, scratch)) return refused;
    scratch.response.Clear();
    const bool simple = scratch.asked.size() == 1 && scratch.asked[0].kind == Asked::Kind::kPolicies;
    if (simple) {
      decide_one(call.now, scratch);
    } else {
      decide_all(call.now, scratch);
    }
    return std::nullopt;
  }

  // Descriptors into checks.
  static std::optional<Refused> read(const Caller& caller, Scratch& scratch) {
    const RateLimitRequest& request = scratch.request;
    if (request.domain().empty()) return Refused{GrpcStatus::kInvalidArgument, "domain must not be empty"};
    const int count = request.descriptors_size();
    if (count < 1 || count > kMostDescriptors) {
      return Refused{GrpcStatus::kInvalidArgument,
                     fmt::format("descriptors must be 1 to {}, got {}", kMostDescriptors, count)};
    }
    scratch.asked.clear();
    scratch.checks.clear();
    scratch.costs.clear();
    scratch.attributes.clear();
    for (const RateLimitDescriptor& descriptor : request.descriptors()) {
      const auto refuse = [&](Refused refused) {
        refused.text = fmt::format("descriptors[{}]: {}", scratch.asked.size() - 1, refused.text);
        return refused;
      };
      Asked& asked = scratch.asked.emplace_back();
      Check& check = scratch.checks.emplace_back();
      if (auto refused = read_one(request, descriptor, asked, check, scratch)) return refuse(std::move(*refused));
      if (check.agent.empty()) check.agent = caller.agent;
      if (const auto refusal = Access::speaks_for(caller, check.agent)) return refuse(refused_of(*refusal));
    }
    // Only now, since these do not move any more.
    for (std::size_t i = 0; i < scratch.asked.size(); ++i) {
      const Asked& asked = scratch.asked[i];
      scratch.checks[i].attributes = std::span(scratch.attributes).subspan(asked.first, asked.count);
      if (asked.hits != 1) scratch.checks[i].costs = {&scratch.costs[i], 1};
      if (engine::is_fine(scratch.checks[i])) continue;
      return Refused{GrpcStatus::kInvalidArgument,
                     fmt::format("descriptors[{}]: {}", i, engine::problem_of(scratch.checks[i]))};
    }
    return std::nullopt;
  }

  static std::optional<Refused> read_one(const RateLimitRequest& request, const RateLimitDescriptor& descriptor,
                                         Asked& asked, Check& check, Scratch& scratch) {
    asked.first = scratch.attributes.size();
    scratch.attributes.push_back({"domain", Value(std::string_view(request.domain()))});
    for (const auto& entry : descriptor.entries()) {
      const auto* field = std::find_if(kFields.begin(), kFields.end(),
                                       [&](const EntryField& each) { return each.name == entry.key(); });
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
      return Refused{GrpcStatus::kInvalidArgument,
                     fmt::format("hits_addend must be at most {:.0f}, got {:.0f}", kMaxCost, asked.hits)};
    }
    scratch.costs.push_back({"requests", asked.hits});
    if (descriptor.has_limit()) {
      asked.kind = Asked::Kind::kOwn;
      asked.own_key = key_of(request, descriptor);
      if (auto refused = read_limit(descriptor.limit(), asked)) return refused;
    }
    if (descriptor.is_negative_hits()) asked.kind = Asked::Kind::kRefund;
    return std::nullopt;
  }

  void decide_one(Nanos now, Scratch& scratch) const {
    engine::CheckDecision decision;
    ask(service_, observe::Protocol::kGrpc, now, scratch.checks[0], decision);
    fill_status(decision, *scratch.response.add_statuses());
    scratch.response.set_overall_code(decision.allowed ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
    add_headers(decision, scratch.response);
  }

  // Limits of the descriptors' own first, then policies: whichever fails, what was charged before is given back.
  void decide_all(Nanos now, Scratch& scratch) {
    bool allowed = true;
    std::vector<Check> by_policies;
    for (std::size_t i = 0; i < scratch.asked.size(); ++i) {
      Asked& asked = scratch.asked[i];
      if (asked.kind == Asked::Kind::kPolicies) by_policies.push_back(scratch.checks[i]);
      if (asked.kind != Asked::Kind::kOwn) continue;
      charge_own(now, scratch.checks[i], allowed, asked);
      allowed = allowed && asked.own_decision.allowed();
    }
    std::vector<engine::CheckDecision> decisions(by_policies.size());
    if (!allowed) {
      for (Check& check : by_policies) check.peek = true;
    }
    if (!by_policies.empty()) {
      allowed = ask_all(service_, observe::Protocol::kGrpc, now, by_policies, decisions) && allowed;
    }
    if (!allowed) {
      for (Asked& asked : scratch.asked) {
        if (asked.own_charged) use_own(now, asked, engine::Engine::Use::kRefund);
      }
    }
    tell(now, allowed, decisions, scratch);
  }

  void charge_own(Nanos now, const Check& check, bool charges, Asked& asked) {
    if (asked.own_closed) {
      asked.own_decision = Decision();
      asked.own_decision.reason = Reason::kLimited;
      asked.own_decision.retry_after = kNever;
    } else {
      const bool charge = charges && !check.peek;
      asked.own_decision = use_own(now, asked, charge ? engine::Engine::Use::kCharge : engine::Engine::Use::kPeek);
      asked.own_charged = charge && asked.own_decision.allowed();
    }
    observe::Answered answered;
    answered.protocol = observe::Protocol::kGrpc;
    answered.agent = check.agent;
    answered.allowed = asked.own_decision.allowed();
    service_.traffic->add(answered, service_.clock->wall(now));
  }

  Decision use_own(Nanos now, const Asked& asked, engine::Engine::Use use) {
    const engine::Engine::OwnLimit own{"envoy", asked.own_key, *asked.own};
    return service_.engine->check_own(now, own, static_cast<Units>(asked.hits), use);
  }

  // One status for each descriptor, and the headers of the one that is worst off: denied, or else with the least left.
  void tell(Nanos now, bool allowed, std::span<const engine::CheckDecision> decisions, Scratch& scratch) {
    RateLimitResponse& response = scratch.response;
    response.set_overall_code(allowed ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
    const engine::CheckDecision* worst_policy = nullptr;
    const Decision* worst_own = nullptr;
    std::pair<int, double> worst{2, 0};  // 0: denied, 1: allowed; what is left
    for (std::size_t i = 0, next = 0; i < scratch.asked.size(); ++i) {
      Asked& asked = scratch.asked[i];
      auto& status = *response.add_statuses();
      switch (asked.kind) {
        case Asked::Kind::kPolicies: {
          const engine::CheckDecision& decision = decisions[next++];
          fill_status(decision, status);
          const std::pair<int, double> rank{decision.allowed ? 1 : 0, decision.remaining};
          if (decision.limit <= 0 || !(rank < worst)) break;
          worst = rank;
          worst_policy = &decision;
          worst_own = nullptr;
          break;
        }
        case Asked::Kind::kOwn: {
          tell_own(asked, status);
          const Decision& decision = asked.own_decision;
          const std::pair<int, double> rank{decision.allowed() ? 1 : 0, static_cast<double>(decision.remaining)};
          if (!(rank < worst)) break;
          worst = rank;
          worst_own = &decision;
          worst_policy = nullptr;
          break;
        }
        case Asked::Kind::kRefund: give_back(now, allowed, scratch.checks[i], asked, status); break;
      }
    }
    if (worst_policy != nullptr) add_headers(*worst_policy, response);
    if (worst_own != nullptr) add_headers(*worst_own, service_.clock->wall(now), response);
  }

  static void tell_own(const Asked& asked, RateLimitResponse::DescriptorStatus& status) {
    if (asked.own) return fill_status(asked.own_decision, *asked.own, status);
    status.set_code(RateLimitResponse::OVER_LIMIT);
    status.mutable_current_limit();
  }

  // Giving back is always fine; where it stands afterwards is told as a look would.
  void give_back(Nanos now, bool allowed, const Check& check, Asked& asked,
                 RateLimitResponse::DescriptorStatus& status) {
    const bool gives = allowed && asked.hits > 0;
    if (asked.own_closed) {
      tell_own(asked, status);
    } else if (asked.own) {
      using Use = engine::Engine::Use;
      if (gives) use_own(now, asked, Use::kRefund);
      asked.hits = 0;
      asked.own_decision = use_own(now, asked, Use::kPeek);
      tell_own(asked, status);
    } else {
      if (gives) service_.engine->refund(now, check);
      Check look = check;
      look.peek = true;
      look.costs = {};
      engine::CheckDecision decision;
      service_.engine->check_at(now, look, decision);
      fill_status(decision, status);
    }
    status.set_code(RateLimitResponse::OK);
  }

  const Service& service_;
};

}  // namespace

std::unique_ptr<net::GrpcHandler> make_ratelimit_service(const Service& service) {
  silence_protobuf();
  return std::make_unique<RateLimitService>(service);
}

}  // namespace headgate::api
