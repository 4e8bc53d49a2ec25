#include <string>
#include <vector>

#include "service/service.h"

namespace headgate::service {

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

std::uint64_t ask(const Service& service, observe::Protocol protocol, const engine::Request& request,
                  engine::CheckDecision& decision, engine::Engine::MakeDone later) {
  const Watch watch(service, request.now);
  const auto counted = [&]() -> engine::Engine::Done {
    engine::Engine::Done done = later();
    engine::Done::Valid valid = done.valid();
    return {[&service, protocol, agent = std::string(request.check.agent),
             done = std::move(done)](engine::CheckDecision& answer) {
              count(service, protocol, agent, answer, Nanos{-1});
              done(answer);
            },
            std::move(valid)};
  };
  const std::uint64_t waiting = service.engine->check_or_wait(request, decision, counted);
  if (waiting == 0) {
    count(service, protocol, request.check.agent, decision, watch.took());
  } else if (!engine::Engine::in_flight(waiting)) {
    service.wake();
  }
  return waiting;
}

void ask_all(const Service& service, observe::Protocol protocol, Nanos now, std::span<const Check> checks,
             std::string_view owner, engine::Engine::AllAnswered answered) {
  std::vector<std::string> agents;
  for (const Check& check : checks) agents.emplace_back(check.agent);
  answered.each = [&service, protocol, agents = std::move(agents), each = std::move(answered.each)](
                      std::size_t nth, const engine::CheckDecision& decision) {
    count(service, protocol, agents[nth], decision, Nanos{-1});
    each(nth, decision);
  };
  service.engine->check_all(now, checks, std::move(answered), owner);
}

}  // namespace headgate::service
