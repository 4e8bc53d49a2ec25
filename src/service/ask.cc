#include <cassert>
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

enum class Line : std::uint8_t { kMayWait, kNever };

std::uint64_t ask_engine(const Service& service, Line line, observe::Protocol protocol, Nanos now, const Check& check,
                         engine::CheckDecision& decision, absl::FunctionRef<engine::Engine::Done()> later) {
  assert(decision.judged.empty() && decision.outcomes.empty());
  const Watch watch(service, now);
  const auto counted = [&]() -> engine::Engine::Done {
    engine::Engine::Done done = later();
    engine::Done::Valid valid = done.valid();
    return {[&service, protocol, agent = std::string(check.agent),
             done = std::move(done)](const engine::CheckDecision& answer) {
              count(service, protocol, agent, answer, Nanos{-1});
              done(answer);
            },
            std::move(valid)};
  };
  const std::uint64_t waiting = line == Line::kMayWait ? service.engine->check_or_wait(now, check, decision, counted)
                                                       : service.engine->check_later(now, check, decision, counted);
  if (waiting == 0) {
    count(service, protocol, check.agent, decision, watch.took());
  } else if (!engine::Engine::in_flight(waiting)) {
    service.wake();
  }
  return waiting;
}

}  // namespace

std::uint64_t ask(const Service& service, observe::Protocol protocol, Nanos now, const Check& check,
                  engine::CheckDecision& decision, absl::FunctionRef<engine::Engine::Done()> later) {
  return ask_engine(service, Line::kMayWait, protocol, now, check, decision, later);
}

std::uint64_t ask_no_line(const Service& service, observe::Protocol protocol, Nanos now, const Check& check,
                          engine::CheckDecision& decision, absl::FunctionRef<engine::Engine::Done()> later) {
  return ask_engine(service, Line::kNever, protocol, now, check, decision, later);
}

void ask_all(const Service& service, observe::Protocol protocol, Nanos now, std::span<const Check> checks,
             engine::Engine::AllAnswered answered) {
  std::vector<std::string> agents;
  for (const Check& check : checks) agents.emplace_back(check.agent);
  answered.each = [&service, protocol, agents = std::move(agents), each = std::move(answered.each)](
                      std::size_t nth, const engine::CheckDecision& decision) {
    count(service, protocol, agents[nth], decision, Nanos{-1});
    each(nth, decision);
  };
  service.engine->check_all(now, checks, std::move(answered));
}

}  // namespace headgate::service
