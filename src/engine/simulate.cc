#include "engine/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "policy/reader.h"

namespace headgate::engine {
namespace {

using namespace std::chrono_literals;
using Kind = TraceStep::Kind;

// Dropping idle cells changes no answer; it only keeps memory in bounds.
constexpr std::uint64_t kChecksBetweenMaintenance = 65'536;
// After a load was told the controls step every second, until they have come to rest.
constexpr Nanos kControlsRestAfter = 1h;
// poll() makes progress whenever something is due; this many times without is a mistake of ours, not a reason to hang.
constexpr int kMostIdlePolls = 1000;

// Its name where it has one: what violations are counted by, too.
std::string_view subject_name(const Check& check) noexcept {
  if (!check.agent.empty()) return check.agent;
  if (!check.user.empty()) return check.user;
  return check.ip.empty() ? std::string_view("(unidentified)") : check.ip;
}

}  // namespace

void Histogram::add(Nanos at, bool allowed) {
  auto slot = static_cast<std::size_t>(at / width_);
  while (slot >= kMost) {
    for (std::size_t i = 0; i < kMost / 2; ++i) {
      buckets_[i] = {buckets_[2 * i].allowed + buckets_[2 * i + 1].allowed,
                     buckets_[2 * i].denied + buckets_[2 * i + 1].denied};
    }
    std::fill(buckets_.begin() + kMost / 2, buckets_.end(), Bucket{});
    width_ *= 2;
    used_ = (used_ + 1) / 2;
    slot /= 2;
  }
  ++(allowed ? buckets_[slot].allowed : buckets_[slot].denied);
  used_ = std::max(used_, slot + 1);
}

Simulation::Simulation(SimulateOptions options) : options_(std::move(options)), clock_(options_.start) {
  // A seed of its own, always the same: one trace gives one answer.
  engine_ = std::make_unique<Engine>(EngineOptions{.clock = &clock_, .seed = 1, .sink = this});
  origin_ = options_.start;
  bind_policies();
}

Simulation::~Simulation() {
  // Checks that still wait are answered by the end of the engine; those answers are dropped.
  options_.on_decided = nullptr;
  engine_.reset();
}

void Simulation::on_event(const Event& event) noexcept {
  if (event.kind == Event::Kind::kEscalation) ++totals_.escalations;
  if (event.kind == Event::Kind::kWarning) ++totals_.warnings;
}

Result<void> Simulation::load(policy::Document document) {
  if (Result<void> loaded = engine_->load(std::move(document)); !loaded) return loaded;
  if (!begun_) policies_.clear();  // nothing has been asked of the built-in ones
  bind_policies();
  return {};
}

void Simulation::bind_policies() {
  bound_.clear();
  const std::shared_ptr<const Ruleset> rules = engine_->rules();
  for (const WorkingPolicy& working : rules->policies) {
    const policy::Policy& policy = *working.policy;
    const auto known = std::find_if(policies_.begin(), policies_.end(),
                                    [&](const OfPolicy& other) { return other.report.id == policy.id; });
    OfPolicy& about = known == policies_.end() ? policies_.emplace_back() : *known;
    bound_.push_back(&about);
    about.report.id = policy.id;
    about.report.unit = policy.unit;
    about.scale = working.scale;
    const std::vector<Limit>& limits =
        policy.limits.empty() && !policy.variants.empty() ? policy.variants.front().limits : policy.limits;
    about.report.limits.resize(std::max(about.report.limits.size(), limits.size()));
    for (std::size_t i = 0; i < limits.size(); ++i) {
      about.report.limits[i].limit = policy::describe(policy, limits[i]);
    }
  }
}

void Simulation::advance(Nanos to) {
  const bool controls = clock_.now() < controls_until_;
  if (controls || changed_ || next_due_ <= to) {
    for (int idle = 0; idle <= kMostIdlePolls; ++idle) {
      const Nanos now = clock_.now();
      next_due_ = engine_->poll();
      changed_ = false;
      const Nanos next = now < controls_until_ ? std::min(next_due_, now + 1s) : next_due_;
      if (next > to) break;
      if (next > now) {
        idle = 0;
        clock_.set(next);
      }
    }
  }
  if (clock_.now() < to) clock_.set(to);
}

Result<void> Simulation::step(const TraceStep& step) {
  const Nanos at = std::min(step.absolute ? step.at : options_.start + step.at, kMaxTime);
  if (!begun_) {
    begun_ = true;
    totals_.absolute = step.absolute;
    if (step.absolute) {
      origin_ = at;
      clock_.set(at);
    }
    totals_.start = origin_;
    totals_.first = at - origin_;
  }
  advance(at);
  totals_.last = at - origin_;
  ++totals_.lines;
  if (is_check_.size() <= step.index) is_check_.resize(step.index + 1);
  is_check_[step.index] = step.kind == Kind::kCheck;
  changed_ = changed_ || step.kind != Kind::kCheck;
  switch (step.kind) {
    case Kind::kCheck: ask(step); return {};
    case Kind::kLoad:
      controls_until_ = clock_.now() + kControlsRestAfter;
      engine_->controls().report_load(step.load);
      return {};
    case Kind::kEmergencyOn:
      return engine_->controls().emergency_on(
          {std::string(step.reason.empty() ? "trace" : step.reason), std::string(step.by.empty() ? "trace" : step.by)});
    case Kind::kEmergencyOff:
      engine_->controls().emergency_off(std::string(step.by.empty() ? "trace" : step.by));
      return {};
    case Kind::kOverride:
      if (!step.remove) return engine_->controls().set_override(step.numbers);
      engine_->controls().clear_override(step.agent);
      return {};
    case Kind::kExempt:
      if (step.remove) {
        engine_->controls().remove_exempt(std::string(step.agent));
      } else {
        engine_->controls().add_exempt(std::string(step.agent));
      }
      return {};
    case Kind::kSettle:
    case Kind::kRelease:
    case Kind::kRenew: return settle(step);
    case Kind::kPolicies: return reload(step.file);
  }
  return {};
}

Result<void> Simulation::settle(const TraceStep& step) {
  if (step.lease >= step.index || !is_check_[step.lease]) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("lease must be the zero-based line of an earlier check, got {}", step.lease)};
  }
  const auto held = leases_.find(step.lease);
  if (held == leases_.end()) {
    ++totals_.without_effect;  // denied this time, or not answered yet
    return {};
  }
  bool done = false;
  if (step.kind == Kind::kSettle) {
    const Result<Settled> settled = engine_->holds().settle(held->second, {}, step.costs);
    if (!settled && settled.error().code == ErrorCode::kInvalidArgument) return settled.error();
    done = settled && !settled->again;
  } else if (step.kind == Kind::kRelease) {
    const Result<Settled> released = engine_->holds().release(held->second, {});
    done = released && !released->again;
  } else {
    done = engine_->holds().renew(held->second, {}).has_value();
  }
  if (!done) ++totals_.without_effect;
  // Room may have come for those who wait, at this very instant.
  if (engine_->queue().size() > 0) advance(clock_.now());
  return {};
}

Result<void> Simulation::reload(std::string_view file) {
  std::filesystem::path path(file);
  if (path.is_relative() && !options_.directory.empty()) {
    const std::filesystem::path beside = std::filesystem::path(options_.directory) / path;
    std::error_code ignored;
    if (std::filesystem::exists(beside, ignored)) path = beside;
  }
  policy::ReadResult read = policy::read_paths({path.string()});
  if (!read.ok()) return Error{ErrorCode::kInvalidArgument, read.problems.front().text()};
  return load(std::move(read.document));
}

void Simulation::ask(const TraceStep& step) {
  const std::uint64_t sequence = ++sequence_;
  ++totals_.checks;
  current_.index = step.index;
  current_.at = clock_.now() - origin_;
  asking_ = &step.check;
  // Two words: small enough for std::function to keep without allocating.
  const std::uint64_t waits = engine_->check_async(step.check, [this, sequence](const CheckDecision& decision) {
    if (asking_ != nullptr && sequence == sequence_) {
      answered(current_, *asking_, decision);
      return;
    }
    const auto found = waiting_.find(sequence);
    if (found == waiting_.end()) return;
    const std::unique_ptr<Asked> asked = std::move(found->second);
    waiting_.erase(found);
    answered(*asked, asked->check.get(), decision);
  });
  asking_ = nullptr;
  if (waits != 0) {
    ++totals_.queued;
    changed_ = true;
    waiting_.emplace(sequence, std::make_unique<Asked>(Asked{step.index, current_.at, OwnedCheck(step.check), waits}));
  }
  if (++since_maintained_ >= kChecksBetweenMaintenance) {
    since_maintained_ = 0;
    engine_->maintain();
  }
}

AgentReport& Simulation::agent(const Check& check) {
  const std::string_view name = subject_name(check);
  if (const auto found = agents_.find(name); found != agents_.end()) return found->second;
  return agents_[agents_.size() < kMostAgents ? std::string(name) : std::string("(others)")];
}

void Simulation::answered(const Asked& asked, const Check& check, const CheckDecision& decision) {
  if (decision.why == Why::kInvalid) {
    ++totals_.invalid;
  } else {
    AgentReport& about = agent(check);
    ++about.checks;
    ++(decision.allowed ? totals_.allowed : totals_.denied);
    if (!decision.allowed) {
      ++about.denied;
      if (!totals_.first_denial) {
        const policy::Policy* by = decision.denied_by();
        totals_.first_denial = {asked.at, std::string(subject_name(check)), std::string(check.operation),
                                by == nullptr ? std::string() : by->id, decision.reason()};
      }
    }
    totals_.over_time.add(asked.at, decision.allowed);
    count_policies(clock_.now() - origin_, check, decision);
    if (!decision.lease.empty()) {
      leases_[asked.index] = decision.lease;
      changed_ = true;
    }
  }
  if (options_.on_decided) options_.on_decided({asked.index, asked.at, origin_ + asked.at, &check, &decision});
}

void Simulation::count_policies(Nanos at, const Check& check, const CheckDecision& decision) {
  if (decision.decider >= 0) {
    ++bound_[decision.judged[static_cast<std::size_t>(decision.decider)].policy]->report.denied;
  }
  for (const Judged& judged : decision.judged) {
    if (judged.parent) continue;
    OfPolicy& about = *bound_[judged.policy];
    PolicyReport& report = about.report;
    ++report.matched;
    if (judged.exceeded) ++(judged.enforced ? report.exceeded : report.monitored);
    if (decision.outcomes.empty() || check.peek) continue;  // a peek uses nothing
    for (std::size_t i = 0; i < judged.count && i < report.limits.size(); ++i) {
      const core::Outcome& outcome = decision.outcomes[judged.first + i];
      // What would have fitted reads as if it had been charged, and was not.
      if (!decision.allowed && outcome.fits()) continue;
      PeakUse& peak = report.limits[i].peak;
      const double used = static_cast<double>(outcome.limit - outcome.remaining) / about.scale;
      const double capacity = static_cast<double>(outcome.limit) / about.scale;
      // Compared as shares, without dividing; the first to get there is told.
      if (used * peak.capacity <= peak.used * capacity && peak.capacity > 0) continue;
      peak.used = used;
      peak.capacity = capacity;
      peak.at = at;
      peak.agent = subject_name(check);
    }
  }
}

void Simulation::finish() {
  int idle = 0;
  while (engine_->queue().size() > 0 && idle < kMostIdlePolls) {
    const Nanos now = clock_.now();
    const Nanos next = engine_->poll();
    idle = next > now ? 0 : idle + 1;
    if (next > now && engine_->queue().size() > 0) clock_.set(std::min(next, kMaxTime));
  }
  while (!waiting_.empty() && engine_->queue().cancel(waiting_.begin()->second->waiting)) {
  }
}

Result<void> Simulation::run(TraceReader& trace) {
  for (;;) {
    const Result<bool> more = trace.next();
    if (!more) return more.error();
    if (!*more) break;
    if (const Result<void> stepped = step(trace.step()); !stepped) return trace.error(stepped.error().message);
  }
  finish();
  return {};
}

SimulationReport Simulation::report() const {
  SimulationReport report = totals_;
  for (const OfPolicy& about : policies_) report.policies.push_back(about.report);
  report.agents.assign(agents_.begin(), agents_.end());
  std::sort(report.agents.begin(), report.agents.end(), [](const auto& a, const auto& b) {
    if (a.second.denied != b.second.denied) return a.second.denied > b.second.denied;
    if (a.second.checks != b.second.checks) return a.second.checks > b.second.checks;
    return a.first < b.first;
  });
  return report;
}

}  // namespace headgate::engine
