#include "api/grpc/ratelimit_service.h"

#include <fmt/format.h>
#include <grpc/health/v1/health.pb.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#if __has_include(<google/protobuf/stubs/logging.h>)
#include <google/protobuf/stubs/logging.h>
#define HEADGATE_PROTOBUF_HAS_LOG_HANDLER
#endif

#include "api/grpc/ratelimit_answer.h"
#include "api/grpc/ratelimit_request.h"
#include "api/http/answer.h"

namespace headgate::api {
namespace {

using net::GrpcAnswer;
using net::GrpcCall;
using net::GrpcStatus;
using Asked = RateLimitScratch::Asked;

constexpr std::string_view kShouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
constexpr std::string_view kHealthCheck = "/grpc.health.v1.Health/Check";
constexpr std::string_view kHealthWatch = "/grpc.health.v1.Health/Watch";
constexpr std::array<std::string_view, 3> kServices{"", "envoy.service.ratelimit.v3.RateLimitService",
                                                    "grpc.health.v1.Health"};
constexpr std::size_t kKeptMessage = 16 << 10;  // larger requests do not leave their memory behind

// Protobuf has a line for standard error, where the log is, for every text that is no UTF-8: then any client could fill
// it. Versions from 22 on log by Abseil, and have no such switch.
void silence_protobuf() {
#ifdef HEADGATE_PROTOBUF_HAS_LOG_HANDLER
  [[maybe_unused]] static auto* const kBefore = google::protobuf::SetLogHandler(nullptr);
#endif
}

// One request with several descriptors, or with limits of their own, or refunds: asked one after the other, at once
// where the cells are in this process, else whenever the last one was answered.
//
// Limits of the descriptors' own first, then policies: whichever fails, what was charged before is given back. Then
// what is to be given back anyway.
class Several : public std::enable_shared_from_this<Several> {
 public:
  Several(const service::Service& service, Nanos now, std::shared_ptr<RateLimitScratch> scratch)
      : service_(service), now_(now), scratch_(std::move(scratch)) {
    for (std::size_t i = 0; i < scratch_->asked.size(); ++i) scratch_->response.add_statuses();
  }

  // As far as it goes without waiting; the answer that was waited for calls it again.
  void go_on() {
    while (step_ == Step::kOwn && at_ < scratch_->asked.size()) {
      if (!charge_own(at_)) return;
    }
    if (step_ == Step::kOwn) {
      step_ = Step::kPolicies;
      return ask_policies();
    }
    while (at_ < scratch_->asked.size()) {
      if (!give_back(at_)) return;
    }
    tell();
  }

  // The answer, if it is there by now; else it is sent when it is.
  // False: later.
  [[nodiscard]] bool give(const GrpcCall& call, GrpcAnswer& answer) {
    const std::lock_guard guard(mutex_);
    if (ready_) {
      answer = std::move(*ready_);
    } else {
      later_ = call.context->later();
    }
    return ready_.has_value();
  }

 private:
  using Engine = engine::Engine;
  enum class Step : std::uint8_t { kOwn, kPolicies, kRefunds };

  [[nodiscard]] RateLimitResponse::DescriptorStatus& status(std::size_t i) {
    return *scratch_->response.mutable_statuses(static_cast<int>(i));
  }

  // False: it is answered later.
  [[nodiscard]] bool charge_own(std::size_t i) {
    Asked& asked = scratch_->asked[i];
    if (asked.kind != Asked::Kind::kOwn) {
      ++at_;
      return true;
    }
    const bool charge = allowed_ && !scratch_->checks[i].peek && !asked.own_closed;
    const auto hear = [i, charge](Several& self, const Decision& decision) {
      Asked& about = self.scratch_->asked[i];
      about.own_decision = decision;
      about.own_charged = charge && decision.allowed();
      self.allowed_ = self.allowed_ && decision.allowed();
      ++self.at_;
      if (about.also_policies && decision.allowed()) return;  // counted with the policies
      observe::Answered answered;
      answered.protocol = observe::Protocol::kGrpc;
      answered.agent = self.scratch_->checks[i].agent;
      answered.allowed = decision.allowed();
      self.service_.traffic->add(answered, self.service_.clock->wall(self.now_));
    };
    if (asked.own_closed) {
      Decision closed;
      closed.reason = Reason::kLimited;
      closed.retry_after = kNever;
      hear(*this, closed);
      return true;
    }
    const std::optional<Decision> decision =
        use_own(asked, charge ? engine::OwnLimits::Use::kCharge : engine::OwnLimits::Use::kPeek, hear);
    if (decision) hear(*this, *decision);
    return decision.has_value();
  }

  // What `hear` is told later, unless it is returned; then this goes on.
  template <class Hear>
  [[nodiscard]] std::optional<Decision> use_own(const Asked& asked, engine::OwnLimits::Use use, Hear hear) {
    const service::Caller& caller = scratch_->caller;
    const bool bound = !caller.speaks_for_others() && !caller.agent.empty();
    const engine::OwnLimit own{"envoy", asked.own_key, *asked.own, bound ? caller.agent : caller.owner};
    return service_.engine->own_limits().check_or_wait(
        now_, own, static_cast<Units>(asked.hits), use, [&]() -> engine::OwnLimits::Done {
          return [self = shared_from_this(), hear](const Decision& decision) {
            hear(*self, decision);
            self->go_on();
          };
        });
  }

  void ask_policies() {
    std::vector<Check> by_policies;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < scratch_->asked.size(); ++i) {
      const Asked& asked = scratch_->asked[i];
      const bool has_passed_own = asked.also_policies && asked.own_decision.allowed();
      if (asked.kind != Asked::Kind::kPolicies && !has_passed_own) continue;
      Check& check = by_policies.emplace_back(scratch_->checks[i]);
      check.peek = check.peek || !allowed_;
      places.push_back(i);
    }
    const auto self = shared_from_this();
    Engine::AllAnswered answered;
    answered.each = [self, places = std::move(places)](std::size_t nth, const engine::CheckDecision& decision) {
      Asked& asked = self->scratch_->asked[places[nth]];
      asked.policy_denied = !decision.allowed;
      if (asked.also_policies && decision.allowed) return;  // the status is that of its own limit
      fill_status(decision, self->status(places[nth]));
      if (decision.limit > 0 && self->is_worse({decision.allowed ? 1 : 0, decision.remaining}, places[nth])) {
        self->scratch_->response.clear_response_headers_to_add();
        add_headers(decision, self->scratch_->response);
      }
    };
    answered.done = [self](bool allowed) {
      self->allowed_ = self->allowed_ && allowed;
      self->step_ = Step::kRefunds;
      self->at_ = 0;
      if (!self->allowed_) self->undo_own();
      self->go_on();
    };
    service::ask_all(service_, observe::Protocol::kGrpc, now_, by_policies, scratch_->caller.owner,
                     std::move(answered));
  }

  void undo_own() {
    for (const Asked& asked : scratch_->asked) {
      if (!asked.own_charged) continue;
      service_.engine->own_limits().refund({"envoy", asked.own_key, *asked.own}, static_cast<Units>(asked.hits), now_);
    }
  }

  // Giving back is always fine; where it stands afterwards is told as a look would. False: it is told later.
  [[nodiscard]] bool give_back(std::size_t i) {
    Asked& asked = scratch_->asked[i];
    if (asked.kind != Asked::Kind::kRefund || asked.own_closed) {
      if (asked.kind == Asked::Kind::kRefund) tell_own(i);
      if (asked.kind == Asked::Kind::kRefund) status(i).set_code(RateLimitResponse::OK);
      ++at_;
      return true;
    }
    const bool gives = allowed_ && asked.hits > 0;
    if (asked.own) {
      if (gives)
        service_.engine->own_limits().refund({"envoy", asked.own_key, *asked.own}, static_cast<Units>(asked.hits),
                                             now_);
      asked.hits = 0;
      const auto hear = [i](Several& self, const Decision& decision) {
        self.scratch_->asked[i].own_decision = decision;
        self.tell_own(i);
        self.status(i).set_code(RateLimitResponse::OK);
        ++self.at_;
      };
      const std::optional<Decision> decision = use_own(asked, engine::OwnLimits::Use::kPeek, hear);
      if (decision) hear(*this, *decision);
      return decision.has_value();
    }
    const Check& check = scratch_->checks[i];
    if (gives) service_.engine->refund(now_, check);
    Check look = check;
    look.peek = true;
    look.costs = {};
    const auto hear = [i](Several& self, const engine::CheckDecision& decided) {
      fill_status(decided, self.status(i));
      self.status(i).set_code(RateLimitResponse::OK);
      ++self.at_;
    };
    engine::CheckDecision decision;
    const engine::Account account{scratch_->caller.owner};
    const engine::Request request{now_, look, account, engine::OnDenial::kAnswer};
    const std::uint64_t waiting = service_.engine->check_or_wait(request, decision, [&]() -> Engine::Done {
      return [self = shared_from_this(), hear](const engine::CheckDecision& decided) {
        hear(*self, decided);
        self->go_on();
      };
    });
    if (waiting == 0) hear(*this, decision);
    return waiting == 0;
  }

  void tell_own(std::size_t i) {
    const Asked& asked = scratch_->asked[i];
    if (asked.own) return fill_status(asked.own_decision, *asked.own, status(i));
    status(i).set_code(RateLimitResponse::OVER_LIMIT);
    status(i).mutable_current_limit();
  }

  // Whether a descriptor is worse off than all before: denied (0), or else (1) with less left; of equals the first one.
  [[nodiscard]] bool is_worse(std::pair<int, double> rank, std::size_t place) {
    const std::tuple<int, double, std::size_t> whole{rank.first, rank.second, place};
    if (!(whole < worst_)) return false;
    worst_ = whole;
    return true;
  }

  // One status for each descriptor, and the headers of the one that is worst off.
  void tell() {
    RateLimitResponse& response = scratch_->response;
    response.set_overall_code(allowed_ ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
    for (std::size_t i = 0; i < scratch_->asked.size(); ++i) {
      const Asked& asked = scratch_->asked[i];
      const Decision& decision = asked.own_decision;
      if (asked.kind != Asked::Kind::kOwn || asked.policy_denied) continue;
      tell_own(i);
      if (!is_worse({decision.allowed() ? 1 : 0, static_cast<double>(decision.remaining)}, i)) continue;
      response.clear_response_headers_to_add();
      add_headers(decision, service_.clock->wall(now_), response);
    }
    GrpcAnswer answer;
    response.SerializeToString(&answer.message);
    std::shared_ptr<net::GrpcLater> later;
    {
      const std::lock_guard guard(mutex_);
      if (later_ == nullptr) {
        ready_ = std::move(answer);
        return;
      }
      later = later_;
    }
    later->send(std::move(answer));
  }

  const service::Service& service_;
  const Nanos now_;
  const std::shared_ptr<RateLimitScratch> scratch_;
  Step step_ = Step::kOwn;
  std::size_t at_ = 0;  // the descriptor that is next in this step
  bool allowed_ = true;
  std::tuple<int, double, std::size_t> worst_{2, 0, 0};
  std::mutex mutex_;  // guards the next two
  std::optional<GrpcAnswer> ready_;
  std::shared_ptr<net::GrpcLater> later_;
};

class RateLimitService final : public net::GrpcHandler {
 public:
  explicit RateLimitService(const service::Service& service) : service_(service) {}

  void call(const GrpcCall& call, GrpcAnswer& answer) override {
    try {
      if (call.path == kShouldRateLimit) {
        should_rate_limit(call, answer);
      } else if (call.path == kHealthCheck || call.path == kHealthWatch) {
        tell_health(call, answer);
      } else {
        answer.status = GrpcStatus::kUnimplemented;
        answer.text = fmt::format("there is no method {}", call.path.substr(0, 200));
      }
    } catch (const std::bad_alloc&) {
      throw;  // closes the connection
    } catch (const std::exception& error) {
      answer.status = GrpcStatus::kInternal;
      answer.text = error.what();
    }
  }

  // Health needs no token, and says nothing about the peer.
  [[nodiscard]] bool admits(const GrpcCall& head, GrpcAnswer& answer, net::Standing& standing) override {
    if (head.path != kShouldRateLimit) return true;
    const service::Admission admission = admitted(head);
    if (!admission.refusal) {
      standing = standing_of(admission.caller);
      return true;
    }
    GrpcRefusal refused = grpc_refusal_of(*admission.refusal);
    answer.status = refused.status;
    answer.text = std::move(refused.text);
    return false;
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

  [[nodiscard]] service::Admission admitted(const GrpcCall& call) const {
    constexpr std::string_view kBearer = "bearer ";
    const auto is_authorization = [](const net::Header& header) { return header.name == "authorization"; };
    if (std::count_if(call.metadata.begin(), call.metadata.end(), is_authorization) > 1) {
      // A proxy in front may have believed the other one.
      service::Admission admission;
      admission.refusal = service::Refusal{401, "unauthorized", "authorization must be given once", Nanos{0}};
      return admission;
    }
    for (const net::Header& header : call.metadata) {
      if (!is_authorization(header)) continue;
      bool bearer = header.value.size() > kBearer.size();
      for (std::size_t i = 0; bearer && i < kBearer.size(); ++i) {
        bearer = static_cast<char>(header.value[i] | ' ') == kBearer[i];
      }
      if (bearer) return service_.access->by_token(header.value.substr(kBearer.size()), call.peer->ip);
      service::Admission admission;
      admission.refusal =
          service::Refusal{401, "unauthorized", "authorization must be \"Bearer\" and a token", Nanos{0}};
      return admission;
    }
    return service_.access->without_token(view_of(*call.peer));
  }

  void should_rate_limit(const GrpcCall& call, GrpcAnswer& answer) {
    // An answer that comes later keeps it; the next request gets another.
    thread_local std::shared_ptr<RateLimitScratch> spare;
    std::shared_ptr<RateLimitScratch> scratch =
        spare != nullptr ? std::move(spare) : std::make_shared<RateLimitScratch>();
    const std::optional<GrpcRefusal> refused = decide(call, scratch, answer);
    if (refused) {
      answer.status = refused->status;
      answer.text = refused->text;
      observe::Answered answered;
      answered.protocol = observe::Protocol::kGrpc;
      answered.allowed = false;
      answered.error = true;
      service_.traffic->add(answered, service_.clock->wall(call.now));
    }
    if (scratch != nullptr && scratch.use_count() == 1 && call.message.size() <= kKeptMessage) {
      spare = std::move(scratch);
    }
  }

  std::optional<GrpcRefusal> decide(const GrpcCall& call, std::shared_ptr<RateLimitScratch>& scratch,
                                    GrpcAnswer& answer) {
    service::Admission admission = admitted(call);
    if (admission.refusal) return grpc_refusal_of(*admission.refusal);
    scratch->caller = std::move(admission.caller);
    if (!scratch->request.ParseFromArray(call.message.data(), static_cast<int>(call.message.size()))) {
      return GrpcRefusal{GrpcStatus::kInvalidArgument, "the message is no RateLimitRequest"};
    }
    if (std::optional<GrpcRefusal> refused = read_descriptors(*service_.access, *scratch)) return refused;
    scratch->response.Clear();
    const bool simple = scratch->asked.size() == 1 && scratch->asked[0].kind == Asked::Kind::kPolicies;
    if (simple) {
      decide_one(call, *scratch, answer);
    } else {
      const auto several = std::make_shared<Several>(service_, call.now, scratch);
      several->go_on();
      if (!several->give(call, answer)) scratch = nullptr;
    }
    return std::nullopt;
  }

  void decide_one(const GrpcCall& call, RateLimitScratch& scratch, GrpcAnswer& answer) const {
    const auto tell = [](const engine::CheckDecision& decision, RateLimitResponse& response, std::string& message) {
      fill_status(decision, *response.add_statuses());
      response.set_overall_code(decision.allowed ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
      add_headers(decision, response);
      response.SerializeToString(&message);
    };
    engine::CheckDecision decision;
    const auto later = [&]() -> engine::Engine::Done {
      return [tell, later = call.context->later()](const engine::CheckDecision& decided) {
        GrpcAnswer own;
        RateLimitResponse response;
        tell(decided, response, own.message);
        later->send(std::move(own));
      };
    };
    const engine::Account account{scratch.caller.owner};
    const engine::Request request{call.now, scratch.checks[0], account, engine::OnDenial::kAnswer};
    const std::uint64_t asked = service::ask(service_, observe::Protocol::kGrpc, request, decision, later);
    if (asked == 0) tell(decision, scratch.response, answer.message);
  }

  const service::Service& service_;
};

}  // namespace

std::unique_ptr<net::GrpcHandler> make_ratelimit_service(const service::Service& service) {
  silence_protobuf();
  return std::make_unique<RateLimitService>(service);
}

}  // namespace headgate::api
