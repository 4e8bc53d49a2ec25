#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "engine/check_problem.h"
#include "engine/decide.h"
#include "engine/owned_check.h"

namespace headgate::engine {

using policy::Fields;
using store::Effect;
using store::RemoteStore;

namespace {

std::size_t share_of_one_agent(const EngineOptions& options) noexcept {
  constexpr std::size_t kAtLeast = 4096;  // a tenth of a small store would be too few
  return options.max_cells_per_agent > 0 ? options.max_cells_per_agent : std::max(options.max_cells / 10, kAtLeast);
}

}  // namespace

Engine::Engine(const EngineOptions& options)
    : clock_(options.clock == nullptr ? SystemClock::shared() : *options.clock),
      wake_(options.wake),
      cells_(clock_,
             {.max_cells = options.max_cells,
              .max_caller_cells = options.max_caller_cells,
              .max_owner_cells = share_of_one_agent(options),
              .at_cap = options.at_cap,
              .track_keys = false,
              .seed = options.seed == 0 ? base::random_seed() : options.seed},
             options.remote),
      aftermath_(clock_, options.sink, cells_.hasher()),
      queue_(clock_, aftermath_, cells_.has_remote(), options.wake),
      controls_({clock_, cells_.memory(), aftermath_, queue_.room()}, {cells_.has_remote(), options.report_ttl}),
      matcher_(cells_.memory()),
      holds_(options.max_leases, {clock_, cells_, aftermath_, queue_.room(), options.wake}),
      own_limits_(clock_, cells_, aftermath_),
      allowances_(clock_, cells_, controls_) {}

Engine::~Engine() { queue_.cancel_all(); }

struct Engine::Flight {
  OwnedCheck check;
  CheckDecision decision;
  ChargeList list;
  Nanos now;
  OnDenial on_denial;
  Queue::Arrival arrival;
  Done done;

  [[nodiscard]] Request request() const noexcept { return {now, check.get(), check.account(), on_denial}; }
};

namespace {

[[nodiscard]] bool is_to_queue(const Request& request, const CheckDecision& decision) noexcept {
  return request.on_denial == OnDenial::kQueue && decision.waits && !request.check.peek;
}

}  // namespace

std::uint64_t Engine::check_or_wait(const Request& asked, CheckDecision& decision, const MakeDone* make_done) {
  assert(decision.judged.empty() && decision.outcomes.empty());
  assert(make_done != nullptr || asked.on_denial != OnDenial::kQueue);
  const Request request{std::clamp(asked.now, Nanos{0}, kMaxTime), asked.check, asked.account, asked.on_denial};
  const std::uint64_t kicks = queue_.room().kicks();  // room that comes from now on is noticed

  // What is it to be charged?
  ChargeList list;
  if (!prepare(request, list, decision)) return 0;

  // The store judges and charges all of it, or nothing.
  std::optional<Answered> answered = cells_.try_now(list, decision);
  if (!answered) {
    if (make_done != nullptr) return take_off(request, kicks, list, decision, *make_done);  // goes on in land()
    answered = cells_.ask_and_wait(list, decision);
  }

  // What comes of it? An answer, or a place in line.
  conclude(request, *answered, list, decision);
  if (!is_to_queue(request, decision)) return 0;
  return queue_.join({kicks, 0}, request, decision, *make_done);
}

std::uint64_t Engine::take_off(const Request& request, std::uint64_t kicks, const ChargeList& list,
                               CheckDecision& decision, MakeDone make_done) {
  auto flight = std::make_unique_for_overwrite<Flight>();  // its arrays are large
  flight->check = OwnedCheck(request.check, request.account);
  flight->decision = std::move(decision);
  flight->list = list;
  flight->now = request.now;
  flight->on_denial = request.on_denial;
  flight->list.ask.owner = flight->request().owner();  // of text that outlives this call
  flight->arrival = {kicks, queue_.room().new_id()};
  flight->done = make_done();
  const std::uint64_t id = flight->arrival.id;
  Flight* asked = flight.release();  // owned by the answer, which comes exactly once
  cells_.remote()->apply(asked->list.all(), asked->list.ask,
                         {asked->decision.outcomes.data(), asked->decision.outcomes.size()},
                         [this, asked](const Result<RemoteStore::Answer>& answer) {
                           const std::unique_ptr<Flight> landing(asked);
                           land(*landing, answer);
                         });
  return Queue::kInFlight | id;
}

void Engine::land(Flight& flight, const Result<RemoteStore::Answer>& answer) {
  const Request request = flight.request();
  conclude(request, cells_.take(answer, flight.list, flight.decision), flight.list, flight.decision);
  if (is_to_queue(request, flight.decision)) {
    const auto done = [&] { return std::move(flight.done); };  // called only where it waits from then on
    if (queue_.join(flight.arrival, request, flight.decision, done) != 0) {
      if (wake_) wake_();
      return;
    }
  }
  flight.done(flight.decision);
}

bool Engine::prepare(const Request& request, ChargeList& list, CheckDecision& decision) {
  const auto& [now, check, account, on_denial] = request;
  decision.wall = clock_.wall(now);
  if (!is_fine(check)) {
    decision.problem = problem_of(check);
    decision.why = Why::kInvalid;
    return false;
  }
  decision.pin(controls_.pin());
  const State& state = decision.state();
  decision.throttle_factor = state.throttle_factor;
  // The cells that are charged last are fetched first.
  if (account.allowances != nullptr && !account.allowances->all.empty()) {
    cells_.memory().prefetch_way(account.allowances->all[0].cell);
  }
  Fields fields(check, cells_.hasher());
  if (holds_.next_expiry() <= now) holds_.expire(now);
  if (state.may_be_exempt(check.agent) && account.allowances == nullptr && state.is_exempt(check.agent)) {
    decision.allowed = true;
    decision.why = Why::kExempt;
    return false;
  }
  if (state.rules->rules.tiers_matter() && account.allowances == nullptr) {
    const auto [tier, known] = state.rules->rules.classify(check.operation);
    fields.set_tier(tier);
    decision.tier = policy::to_string(tier);
    if (!known) aftermath_.tell_unknown_operation(check, decision.wall);
  }
  if (const Nanos blocked = aftermath_.blocked_for(request); blocked > Nanos{0}) {
    deny(decision, Why::kBackingOff);
    decision.retry_after = blocked;
    return false;
  }
  if (!make_list(request, state, fields, list, decision)) {
    decision.why = Why::kInvalid;
    decision.problem = fmt::format("at most {} limits may apply to one check, and more policies than that match it",
                                   store::kMaxCharges);
    return false;
  }
  if (list.charges.empty()) {
    decision.allowed = true;
    decision.why = decision.judged.empty() ? Why::kNoPolicy : Why::kPassed;
    if (!check.peek) aftermath_.admitted(decision);
    return false;
  }
  return prepare_ask(request, list, decision);
}

inline bool Engine::make_list(const Request& request, const State& state, Fields& fields, ChargeList& list,
                              CheckDecision& decision) {
  const Check& check = request.check;
  if (!matcher_.add(state, fields, false, list, decision)) return false;
  if (!check.parent_session.empty()) {
    Check parent = check;
    parent.session = check.parent_session;
    if (!check.parent_agent.empty()) parent.agent = check.parent_agent;
    Fields parent_fields(parent, cells_.hasher());
    if (!decision.tier.empty()) parent_fields.copy_tier(fields);
    if (!matcher_.add(state, parent_fields, true, list, decision)) return false;
  }
  return request.account.allowances == nullptr || Matcher::add(*request.account.allowances, list, decision);
}

inline bool Engine::prepare_ask(const Request& request, ChargeList& list, CheckDecision& decision) {
  const Check& check = request.check;
  list.charges[0].counted = true;  // however many limits there are, it is one call
  decision.outcomes.grow_to(list.charges.size());
  // Fields are assigned one by one: building the struct elsewhere and copying it stalls store forwarding.
  list.ask.now = request.now;
  list.ask.wall = decision.wall;
  list.ask.effect = check.peek ? Effect::kNone : Effect::kCharge;
  list.ask.owner = request.owner();
  if (check.peek) return true;
  if (!queue_.empty() && request.on_denial != OnDenial::kRetry && queue_.has_line_before(check, decision, list)) {
    list.ask.effect = Effect::kNone;
    return true;
  }
  if (list.patience > Nanos{0}) {
    list.ask.effect = Effect::kReserve;
    list.ask.patience = core::kLongestSpan;
    list.ask.apart = true;
  }
  list.holds = list.holds_slots || check.hold;
  if (!list.holds) return true;
  if (holds_.full(request.owner())) {
    forget_outcomes(decision);
    deny(decision, Why::kTooManyLeases);
    return false;
  }
  decision.lease = Leases::new_id();
  list.ask.lease = Leases::slot_of(decision.lease);
  return true;
}

void Engine::conclude(const Request& request, const Answered& answered, const ChargeList& list,
                      CheckDecision& decision) {
  const bool judged = answered.by != AnsweredBy::kNone;
  const bool in_line = judged && list.line_judged >= 0;  // others wait for one of the cells: it was only looked at
  if (judged && !in_line && answered.admitted()) {
    decide_allowed(request, list, answered.applied, aftermath_, decision);
    if (list.holds && !holds_.take(request, list, answered, decision)) return;
    if (decision.exceeded && !request.check.peek) aftermath_.exceeded(request, decision);
    return;
  }
  decision.lease.clear();
  if (judged) decide_denied(list, answered.applied, decision);
  if (in_line) decide_by_line(list, decision);
  if (request.check.peek || (decision.waits && request.on_denial != OnDenial::kAnswer)) return;
  aftermath_.denied(request, decision);
}

std::uint64_t Engine::check_async(const Check& check, const Done& done) {
  CheckDecision decision;
  const Account none;
  const std::uint64_t waiting =
      check_or_wait({clock_.now(), check, none, OnDenial::kQueue}, decision, [&] { return done; });
  if (waiting == 0) done(decision);
  return waiting;
}

void Engine::refund(Nanos now, const Check& check, GiveBack what, const Account& account) {
  if (!is_fine(check)) return;  // it cannot have been charged
  now = std::clamp(now, Nanos{0}, kMaxTime);
  CheckDecision decision;
  decision.pin(controls_.pin());
  const State& state = decision.state();
  Fields fields(check, cells_.hasher());
  if (account.allowances == nullptr) fields.set_tier(state.rules->rules.classify(check.operation).tier);
  ChargeList list;
  list.as_stated = what == GiveBack::kReturned;
  if (!matcher_.add(state, fields, false, list, decision)) return;
  if (account.allowances != nullptr && !Matcher::add(*account.allowances, list, decision)) return;
  const Nanos wall = clock_.wall(now);
  std::uint64_t keeps = 0;  // bit i: the i-th charge is of a policy with `holds: false`
  for (const Judged& judged : decision.judged) {
    if (decision.policy(judged).holds) continue;
    for (std::size_t i = judged.first; i < std::size_t{judged.first} + judged.count; ++i)
      keeps |= std::uint64_t{1} << i;
  }
  for (std::size_t i = 0; i < list.charges.size(); ++i) {
    const store::Charge& charge = list.charges[i];
    if (what == GiveBack::kUndo ? charge.soft : (keeps >> i & 1) != 0) continue;
    const core::CompiledLimit& limit = charge.limit->current();
    // When it was charged is not known: the oldest of a window's units are given back first, since those come back
    // the soonest anyway.
    const Nanos at = limit.follows_wall() ? wall : now;
    const Nanos charged = limit.strategy == Strategy::kSlidingWindow ? at - limit.numbers.log.window + Nanos{1} : at;
    cells_.refund(charge, charged, at);
    queue_.room().kick(charge.key);
  }
}

Nanos Engine::poll() {
  const std::lock_guard polling(poll_mutex_);
  const Nanos now = clock_.now();
  if (holds_.next_expiry() <= now) holds_.expire(now);
  if (!queue_.empty()) {
    queue_.serve(now, [this](const Request& request, CheckDecision& decision, MakeDone make_done) {
      return check_or_wait(request, decision, &make_done) == 0;
    });
  }
  controls_.follow_load(now);
  return std::min(holds_.next_expiry(), queue_.next_due());
}

void Engine::maintain(std::size_t cells) {
  const Nanos now = clock_.now();
  cells_.memory().maintain(cells, std::min(now, clock_.wall(now)));
  aftermath_.forget_quiet(now);
  controls_.reclaim();
}

Result<void> Engine::save(const std::string& path) const {
  return cells_.memory().save(path, "headgate engine 1", clock_.now());
}

Result<std::size_t> Engine::restore(const std::string& path) {
  Result<std::size_t> restored = cells_.memory().restore(path, clock_.now(), [](std::string_view meta) -> Result<void> {
    if (meta == "headgate engine 1") return {};
    return Error{ErrorCode::kCorrupt, "the snapshot was not made by an engine of this version"};
  });
  if (restored) controls_.rehash();  // keys are hashed under the file's seed from now on
  return restored;
}

}  // namespace headgate::engine
