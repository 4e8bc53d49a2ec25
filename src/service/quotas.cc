#include "service/quotas.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rfc3339.h"
#include "service/quota_asking.h"

namespace headgate::service {

using quota::Amount;
using quota::kPeriods;

namespace {

constexpr std::array<std::string_view, 3> kAdjectives{"Daily", "Weekly", "Monthly"};
constexpr std::array<std::string_view, 4> kPast{"daily", "weekly", "monthly", "session"};

const char* cannot_start(double pace) {
  return pace > 0 ? "As many commands run as may; ask again, or be ready to wait"
                  : "The system is too busy: no command starts now";
}

std::string new_run() { return fmt::format("{:016x}{:016x}", base::random_seed(), base::random_seed()); }

// The limit of a period, or after these of the session.
Amount limit_of(const quota::Allowance& allowance, std::size_t which) {
  return which < kPeriods.size() ? allowance.rule.limits[which] : allowance.rule.session;
}

// "Daily quota of 5 shell commands".
std::string quota_name(const quota::Allowance& allowance, std::size_t which) {
  return fmt::format("{} quota of {} {} commands", which < kPeriods.size() ? kAdjectives[which] : "Session",
                     limit_of(allowance, which).value, allowance.type);
}

// Why a quota denies, by the outcome of its limit.
std::string why_used_up(const quota::Allowance& allowance, std::size_t which, const core::Outcome& outcome,
                        Nanos wall) {
  const std::string quota = quota_name(allowance, which);
  if (outcome.limit < limit_of(allowance, which).value) {
    // This server alone has judged: it cannot know what the others have admitted.
    return fmt::format("{}: while the store is away this server may admit {} of them, and has", quota, outcome.limit);
  }
  return fmt::format("{} used up until {}", quota,
                     base::format_rfc3339(std::chrono::ceil<std::chrono::seconds>(wall + outcome.wait)));
}

// The users, or tokens, whose records are counted; past it the one that is idle first is forgotten.
constexpr std::size_t kMostRecorders = 100'000;

std::unique_ptr<MemoryLimiter> record_limiter(const QuotasOptions::Records& records, Clock& clock) {
  constexpr Units kSecondsAtOnce = 60;
  const Limit rate = Limit::token_bucket({.capacity = kSecondsAtOnce * records.per_second,
                                          .refill_rate = {records.per_second, std::chrono::seconds{1}}})
                         .value();
  const Limit day = Limit::fixed_window({.limit = records.per_day, .window = std::chrono::hours{24}}).value();
  return MemoryLimiter::make(
             Options().limit(rate).limit(day).clock(clock).max_keys(2 * kMostRecorders, AtCap::kEvictOldest))
      .value();
}

}  // namespace

Quotas::Quotas(Service& service, quota::Ledger& ledger, QuotasOptions options)
    : service_(service),
      ledger_(ledger),
      records_(record_limiter(options.records, *service.clock)),
      token_records_(record_limiter(options.token_records, *service.clock)),
      token_refusals_(record_limiter(options.token_records, *service.clock)),
      options_(std::move(options)),
      book_(options_.book),
      watch_(options_.watch),
      queue_(options_.queue),
      thread_([this] { serve(); }) {
  service_.clock->subscribe(this);
}

Quotas::~Quotas() { stop(); }

Quotas::RecordWait Quotas::wait_to_record(const std::string& user, const std::string& recorder) noexcept {
  const auto wait_of = [](MemoryLimiter& limiter, const std::string& key) {
    const Decision decision = limiter.try_acquire(key);
    return decision.allowed() ? Nanos{0} : std::max(decision.retry_after, Nanos{1});
  };
  if (const Nanos wait = recorder.empty() ? Nanos{0} : wait_of(*token_records_, recorder); wait > Nanos{0}) {
    return {.wait = wait, .by_token = true};
  }
  return {.wait = wait_of(*records_, user), .by_token = false};
}

void Quotas::stop() {
  if (!thread_.joinable()) return;
  service_.clock->unsubscribe(this);
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
  absl::flat_hash_map<std::string, AskingPtr> left;
  {
    const std::lock_guard guard(mutex_);
    left.swap(waiting_);
  }
  for (const auto& [run, asking] : left) {
    asking->done(Error{ErrorCode::kIo, "the server is stopping; ask again", true});
  }
}

Result<Quotas::Numbers> Quotas::numbers(Amount amount, Period period, std::string_view timezone) {
  const NumbersKey key{amount.unlimited() ? kCountless : amount.value, period, std::string(timezone)};
  {
    const std::shared_lock guard(numbers_mutex_);
    const auto known = numbers_.find(key);
    if (known != numbers_.end()) return known->second;
  }
  const Result<Limit> limit = Limit::quota({.limit = key.amount, .period = period, .timezone = key.timezone});
  if (!limit) return limit.error();
  Numbers made;
  Result<core::Calendar> calendar = core::Calendar::make(period, key.timezone);
  if (!calendar) return std::move(calendar).error();
  made.calendar = *calendar;
  made.limit = service_.engine->allowances().limit(*limit);
  if (made.limit == nullptr) {
    return Error{ErrorCode::kIo,
                 fmt::format("more than {} different quotas are in use; have fewer numbers of their own",
                             engine::Controls::kMostLastingLimits)};
  }
  const std::unique_lock guard(numbers_mutex_);
  numbers_[key] = made;
  return made;
}

base::Hash128 Quotas::cells_of(std::string_view user, std::string_view type, std::string_view session) const noexcept {
  return service_.engine->allowances().cell(std::array<std::string_view, 3>{user, type, session});
}

std::optional<Error> Quotas::prepare(Asking& asking) {
  const QuotaAsk& ask = asking.ask;
  Result<quota::Allowance> found = book_.find(ask.user, ask.plan, ask.type);
  if (!found) return std::move(found).error();
  asking.allowance = *std::move(found);
  const quota::Allowance& allowance = asking.allowance;
  if (!asking.counted()) {
    for (std::size_t p = 0; p < kPeriods.size(); ++p) {
      const Result<Numbers> of = numbers({}, kPeriods[p], allowance.timezone);
      if (!of) return of.error();
      asking.calendars[p] = of->calendar;
    }
    return std::nullopt;
  }
  asking.limits.on_store_failure = options_.on_store_failure;
  const auto add = [&](Amount amount, Period period, const base::Hash128& whose) -> Result<core::Calendar> {
    const bool limits = asking.enforced() && amount.value != 0;
    const Result<Numbers> of = numbers(limits ? amount : Amount{}, period, allowance.timezone);
    if (!of) return of.error();
    Allowances::One& one = asking.limits.all.emplace_back();
    one.limit = of->limit;
    one.cell = cell(whose, period);
    return of->calendar;
  };
  const base::Hash128 whose = cells_of(ask.user, allowance.type, {});
  for (std::size_t p = 0; p < kPeriods.size(); ++p) {
    const Amount amount = allowance.rule.limits[p];
    if (amount.value == 0 && asking.enforced() && asking.none < 0) asking.none = static_cast<int>(p);
    const Result<core::Calendar> calendar = add(amount, kPeriods[p], whose);
    if (!calendar) return calendar.error();
    asking.calendars[p] = *calendar;
  }
  const Amount of_session = allowance.rule.session;
  asking.by_session = !ask.session.empty() && !of_session.unlimited();
  if (asking.by_session) {
    const base::Hash128 of_it = cells_of(ask.user, allowance.type, ask.session);
    if (const auto calendar = add(of_session, Period::kDay, of_it); !calendar) return calendar.error();
    if (of_session.value == 0 && asking.enforced() && asking.none < 0) asking.none = 3;
  }
  return std::nullopt;
}

void Quotas::check(QuotaAsk ask, Done done) {
  auto asking = std::make_shared<Asking>();
  asking->ask = std::move(ask);
  asking->done = std::move(done);
  asking->arrived = service_.clock->now();
  if (const std::optional<Error> error = prepare(*asking)) return asking->done(*error);
  if (asking->ask.peek || asking->none >= 0) return judge(asking);

  std::unique_lock guard(mutex_);
  const double pace = factor();
  const bool plain = asking->ask.run.empty() && options_.queue.concurrent == 0 && pace > 0 && waiting_.empty();
  if (plain) {
    guard.unlock();
    return judge(asking);
  }
  asking->ask.run = asking->ask.run.empty() ? new_run() : run_key(asking->ask.user, asking->ask.run);
  const QuotaAsk& asked = asking->ask;
  const quota::RunQueue::Entered entered =
      queue_.enter({.id = asked.run,
                    .user = asked.user,
                    .owner = asked.owner,
                    .type = asked.type,
                    .session = asked.session,
                    .priority = asked.priority,
                    .weight = asking->allowance.weight,
                    // What is not enforced delays no command, not even in line.
                    .until = asking->arrived + (ending_ || asking->monitored() ? Nanos{0} : asked.max_wait)},
                   pace, asking->arrived);
  using Entered = quota::RunQueue::Entered;
  asking->tracked = entered == Entered::kStarted || entered == Entered::kWaits;
  if (entered == Entered::kWaits) waiting_.emplace(asked.run, asking);
  guard.unlock();
  if (asking->monitored() && (entered == Entered::kBlocked || entered == Entered::kFull)) {
    asking->held_up = cannot_start(pace);
    return judge(asking);
  }
  switch (entered) {
    case Entered::kStarted: return judge(asking);
    case Entered::kBlocked: return refuse_start(asking, "throttled", cannot_start(pace), kBlockedRetry);
    case Entered::kFull: return refuse_start(asking, "queue_full", "As many commands wait as may wait", kBlockedRetry);
    case Entered::kTwice:
      return asking->done(
          Error{ErrorCode::kInvalidArgument,
                fmt::format("run \"{}\" waits or runs already; give each run a name of its own", run_name(asked.run))});
    case Entered::kWaits: break;
  }
  wake_.notify_one();
  // A check that will be refused does not wait.
  look(asking, [this, asking](std::span<const core::Outcome> outcomes) {
    const bool hopeless = std::any_of(outcomes.begin(), outcomes.end(),
                                      [](const core::Outcome& outcome) { return outcome.remaining == 0; });
    if (!hopeless) return;
    {
      const std::lock_guard locked(mutex_);
      if (waiting_.erase(asking->ask.run) == 0) return;  // its turn has come meanwhile
      queue_.end(asking->ask.run, {}, service_.clock->now());
      asking->tracked = false;
    }
    judge(asking);
  });
}

void Quotas::look(const AskingPtr& asking, engine::AllowanceLimits::Looked then) {
  service_.engine->allowances().look_at({asking->limits.all.data(), asking->limits.all.size()}, std::move(then));
}

std::optional<Nanos> Quotas::start_of(const Asking& asking, double pace) const {
  const std::lock_guard guard(mutex_);
  return queue_.estimate(asking.ask.user, asking.ask.priority, asking.allowance.weight, pace, service_.clock->now());
}

void Quotas::hold_for_run(const Asking& asking, QuotaAnswer& answer) {
  answer.run_ttl = options_.queue.ttl;
  if (!asking.tracked || answer.lease.empty()) return;
  const Result<Nanos> until = service_.engine->holds().renew(answer.lease, {});
  if (!until) return;
  answer.run_ttl = std::min(answer.run_ttl, *until - service_.clock->wall(service_.clock->now()));
  const std::lock_guard guard(mutex_);
  held_[asking.ask.run] = answer.lease;
}

void Quotas::judge(const AskingPtr& asking) {
  const Check check = asking->check();
  if (asking->none >= 0) {
    return look(asking, [this, asking](std::span<const core::Outcome> outcomes) {
      QuotaAnswer answer;
      answer.error = "quota_exceeded";
      answer.throttle_factor = factor();
      answer.reason = fmt::format("{} quota of {} commands is 0",
                                  asking->none < 3 ? kAdjectives[static_cast<std::size_t>(asking->none)] : "Session",
                                  asking->allowance.type);
      answer.retry_after = kNever;
      answer_standing(*asking, outcomes, service_.clock->wall(service_.clock->now()), answer);
      refuse(asking, std::move(answer));
    });
  }
  engine::CheckDecision decision;
  const auto later = [&]() -> engine::Engine::Done {
    auto send = [this, asking](const engine::CheckDecision& decided) { conclude(asking, decided); };
    if (!asking->ask.gone) return send;
    return {std::move(send), [asking] { return !asking->ask.gone(); }};
  };
  const engine::Account account = asking->account();
  const engine::Request request{service_.clock->now(), check, account, engine::OnDenial::kQueue};
  if (ask(service_, observe::Protocol::kHttp, request, decision, later) == 0) {
    conclude(asking, decision);
  }
}

void Quotas::answer_standing(Asking& asking, std::span<const core::Outcome> outcomes, Nanos wall, QuotaAnswer& answer) {
  answer.plan = asking.allowance.plan;
  answer.counted_as = asking.allowance.type;
  answer.run = asking.tracked ? std::string(run_name(asking.ask.run)) : std::string();
  answer.waited = asking.waited;
  answer.wall = wall;
  answer.monitored = asking.counted() && !asking.enforced();
  if (asking.enforced()) answer.limits = asking.allowance.rule.limits;
  const Units looking = asking.ask.peek ? 1 : 0;  // what is not charged would come on top
  for (std::size_t p = 0; p < kPeriods.size(); ++p) {
    if (p >= outcomes.size()) {
      answer.resets_at[p] = asking.calendars[p].period_at(wall).end;
      continue;
    }
    const Amount limit = asking.allowance.rule.limits[p];
    const core::Outcome& outcome = outcomes[p];
    const Units used = asking.used[p] = outcome.limit - outcome.remaining;
    if (asking.past < 0 && !limit.unlimited() && used + looking > limit.value) asking.past = static_cast<int>(p);
    // While the store is away this server has a share to give, and no more.
    const bool share = asking.enforced() && outcome.limit < limit.value;
    if (!limit.unlimited()) {
      answer.remaining[p].value = share ? outcome.remaining : std::max<Units>(0, limit.value - used);
    }
    // Where nothing was used yet, the cell has no period of its own.
    const bool begun = used > 0 && outcome.reset_after > Nanos{0};
    answer.resets_at[p] = begun ? wall + outcome.reset_after : asking.calendars[p].period_at(wall).end;
  }
  if (outcomes.size() > kPeriods.size()) {
    const core::Outcome& session = outcomes[kPeriods.size()];
    const Units used = session.limit - session.remaining;
    if (asking.past < 0 && used + looking > asking.allowance.rule.session.value) asking.past = 3;
  }
  std::string of_session;
  if (asking.enforced() && outcomes.size() > kPeriods.size()) {
    const Amount left{outcomes[kPeriods.size()].remaining};
    if (quota::few_left(left, asking.allowance.rule.session)) {
      of_session = left.value == 0 ? fmt::format("No {} commands left in this session", asking.allowance.type)
                                   : fmt::format("Only {} {} command{} left in this session", left.value,
                                                 asking.allowance.type, left.value == 1 ? "" : "s");
    }
  }
  // A quota that is only monitored does not run out.
  const bool warns = asking.enforced();
  answer.warning =
      quota::warning_text(asking.allowance.type, warns ? answer.remaining : std::array<Amount, 3>{},
                          warns ? asking.allowance.rule.limits : std::array<Amount, 3>{}, answer.throttle_factor);
  if (!of_session.empty()) answer.warning = of_session + (answer.warning.empty() ? "" : ". ") + answer.warning;
}

void Quotas::conclude(const AskingPtr& asking, const engine::CheckDecision& decision) {
  using engine::Why;
  if (decision.why == Why::kInvalid) {
    if (asking->tracked) (void)end(asking->ask.run, {});
    return asking->done(Error{ErrorCode::kInvalidArgument, decision.problem});
  }
  QuotaAnswer answer;
  answer.throttle_factor = asking->monitored() ? 1 : decision.throttle_factor;
  answer.delay = decision.delay;
  answer.lease = decision.lease;
  answer.retry_after = decision.retry_after;
  asking->waited = std::max(asking->waited, decision.waited);
  if (const policy::Policy* by = decision.denied_by()) answer.policy_id = by->id;
  // Where nothing was judged, what is left is not known; this may be the store's own thread, which cannot ask.
  const bool judged =
      decision.why != Why::kStoreAway && decision.why != Why::kStoreLate && decision.why != Why::kTooManyLeases;
  base::BoundedArray<core::Outcome, Allowances::kMost> outcomes;
  for (const core::Outcome& outcome : decision.allowances()) {
    if (!judged) break;
    core::Outcome& standing = outcomes.emplace_back() = outcome;
    if (decision.allowed && asking->ask.peek) ++standing.remaining;  // as judged it is what would be left
  }
  answer_standing(*asking, {outcomes.data(), outcomes.size()}, decision.wall, answer);
  if (decision.allowed && asking->ask.peek) {
    const std::optional<Nanos> start = start_of(*asking, decision.throttle_factor);
    if (start != Nanos{0} && asking->monitored()) {
      asking->held_up = cannot_start(decision.throttle_factor);
    } else if (start != Nanos{0}) {
      answer.error = "throttled";
      answer.reason = cannot_start(decision.throttle_factor);
      answer.retry_after = kBlockedRetry;
      answer.estimated_start = start;
      return refuse(asking, std::move(answer));
    }
  }
  if (!decision.allowed) {
    if (decision.retry_after != kNever) answer.estimated_start = decision.retry_after;
    answer.error = decision.error().empty() ? "rate_limited" : std::string(decision.error());
    answer.reason = decision.reason();
    if (decision.why == Why::kQuota) {
      const auto which = static_cast<std::size_t>(decision.denying_allowance);
      answer.reason = why_used_up(asking->allowance, which, outcomes[which], decision.wall);
    }
    return refuse(asking, std::move(answer));
  }
  answer.allowed = true;
  answer.estimated_start = decision.delay;
  if (answer.monitored && asking->past >= 0) {
    answer.would_reason = quota_name(asking->allowance, static_cast<std::size_t>(asking->past)) + " used up";
  } else if (answer.monitored) {
    answer.would_reason = asking->held_up;
  }
  hold_for_run(*asking, answer);
  if (!asking->counted()) {
    answer.reason = "Quotas are off";
  } else if (asking->past >= 0) {
    answer.reason = fmt::format("Past the {} quota of {} commands, which is only monitored",
                                kPast[static_cast<std::size_t>(asking->past)], asking->allowance.type);
  } else {
    answer.reason = "Within all quotas and policies";
  }
  if (asking->ask.peek || !asking->counted()) {
    if (!asking->ask.peek) ++counts_.allowed;
    return asking->done(answer);
  }
  // The day that the cell counts, which goes on when the clock is set back. Half a day before its end is in it, however
  // long it is and whatever this clock and the store's make of its end.
  const Nanos day = asking->calendars[0].period_at(answer.resets_at[0] - std::chrono::hours{12}).start;
  admit(asking, std::move(answer), decision.wall, day);
}

void Quotas::admit(const AskingPtr& asking, QuotaAnswer answer, Nanos wall, Nanos day) {
  const quota::Allowance& allowance = asking->allowance;
  const bool over = !answer.would_reason.empty();
  quota::Ledger::Charge charge;
  charge.key = {asking->ask.user, std::string(allowance.type), asking->by_session ? asking->ask.session : "", day};
  charge.usage.commands = 1;
  charge.usage.would_refuse = over ? 1 : 0;
  charge.usage.throttled = answer.throttle_factor < 1 ? 1 : 0;
  ledger_.add(std::move(charge), [this, asking, over, wall, answer = std::move(answer)](const Result<void>& kept) {
    if (kept) {
      ++counts_.allowed;
      if (over) ++counts_.would_refuse;
      if (answer.throttle_factor < 1) ++counts_.throttled;
      tell(watch_.admitted({asking->ask.user, asking->allowance.type, answer.throttle_factor, service_.clock->now()},
                           standings(asking->allowance, asking->used)),
           wall);
      return asking->done(answer);
    }
    // What is not kept was not charged, and so must not be answered.
    service_.engine->refund(service_.clock->now(), asking->check(), engine::GiveBack::kUndo, asking->account());
    if (!answer.lease.empty()) (void)service_.engine->holds().release(answer.lease, {});
    if (asking->tracked) (void)end(asking->ask.run, {});
    asking->done(Error{ErrorCode::kIo, "the ledger cannot be written: " + kept.error().message, true});
  });
}

void Quotas::refuse(const AskingPtr& asking, QuotaAnswer answer) {
  answer.allowed = false;
  if (asking->tracked) (void)end(asking->ask.run, {});
  answer.run.clear();
  if (!asking->ask.peek) {
    ++counts_.denied;
    // A user that was made up would add a row to the disk.
    const std::string& recorder = asking->ask.recorder;
    if (answer.error == "quota_exceeded" && (recorder.empty() || token_refusals_->try_acquire(recorder).allowed())) {
      const Nanos wall = service_.clock->wall(service_.clock->now());
      quota::Ledger::Charge charge;
      // Without the session: each made-up name would add a row to the disk, and nothing was charged to it.
      charge.key = {asking->ask.user, std::string(asking->allowance.type), "",
                    asking->calendars[0].period_at(wall).start};
      charge.usage.refused = 1;
      ledger_.add(std::move(charge), [](const Result<void>&) {});
    }
  }
  asking->done(answer);
}

void Quotas::refuse_start(const AskingPtr& asking, std::string error, std::string reason, Nanos retry_after) {
  QuotaAnswer answer;
  answer.error = std::move(error);
  answer.reason = std::move(reason);
  answer.retry_after = retry_after;
  answer.throttle_factor = factor();
  answer.estimated_start = start_of(*asking, answer.throttle_factor);
  look(asking, [this, asking, answer = std::move(answer)](std::span<const core::Outcome> outcomes) mutable {
    answer_standing(*asking, outcomes, service_.clock->wall(service_.clock->now()), answer);
    refuse(asking, std::move(answer));
  });
}

void Quotas::tell(const std::vector<quota::Alert>& alerts, Nanos wall) {
  if (service_.notices == nullptr) return;
  for (const quota::Alert& alert : alerts) {
    observe::Notice notice;
    notice.kind = alert.kind;
    notice.time = wall;
    notice.agent = alert.user;
    notice.operation = alert.type;
    notice.text = alert.text;
    notice.value = alert.value;
    service_.notices->tell(std::move(notice));
  }
}

}  // namespace headgate::service
