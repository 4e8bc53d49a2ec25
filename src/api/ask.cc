#include <string>

#include "api/service.h"

namespace headgate::api {

namespace {

void count(const Service& service, observe::Protocol protocol, std::string_view agent,
           const engine::CheckDecision& decision, Nanos took) noexcept {
  observe::Answered answered;
  answered.protocol = protocol;
  answered.agent = agent;
  answered.allowed = decision.allowed;
  answered.error = decision.why == engine::Why::kInvalid;
  answered.took = took;
  service.traffic->add(answered, decision.wall);
}

// Measures what runs while it lives, if it is one to be measured.
class Watch {
 public:
  Watch(const Service& service, Nanos now)
      : clock_(service.traffic->measures(now) ? service.clock : nullptr),
        start_(clock_ != nullptr ? clock_->now() : Nanos{0}) {}
  [[nodiscard]] Nanos took() const { return clock_ != nullptr ? clock_->now() - start_ : Nanos{-1}; }

 private:
  Clock* clock_;
  Nanos start_;
};

}  // namespace

void ask(const Service& service, observe::Protocol protocol, Nanos now, const Check& check,
         engine::CheckDecision& decision) {
  const Watch watch(service, now);
  service.engine->check_at(now, check, decision);
  count(service, protocol, check.agent, decision, watch.took());
}

std::uint64_t ask(const Service& service, observe::Protocol protocol, Nanos now, const Check& check,
                  engine::CheckDecision& decision, absl::FunctionRef<engine::Engine::Done()> later) {
  const Watch watch(service, now);
  const auto counted = [&]() -> engine::Engine::Done {
    return [&service, protocol, agent = std::string(check.agent), done = later()](const engine::CheckDecision& answer) {
      count(service, protocol, agent, answer, Nanos{-1});
      done(answer);
    };
  };
  const std::uint64_t waiting = service.engine->check_or_wait(now, check, decision, counted);
  if (waiting == 0) {
    count(service, protocol, check.agent, decision, watch.took());
  } else if (!engine::Engine::in_flight(waiting)) {
    service.wake();
  }
  return waiting;
}

bool ask_all(const Service& service, observe::Protocol protocol, Nanos now, std::span<const Check> checks,
             std::span<engine::CheckDecision> decisions) {
  const Watch watch(service, now);
  const bool allowed = service.engine->check_all(now, checks, decisions);
  const Nanos took = watch.took();
  for (std::size_t i = 0; i < checks.size(); ++i) {
    count(service, protocol, checks[i].agent, decisions[i], i == 0 ? took : Nanos{-1});
  }
  return allowed;
}

}  // namespace headgate::api
