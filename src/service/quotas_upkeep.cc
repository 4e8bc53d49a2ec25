// Quotas besides checks: the line of those who wait, what was run, how a user stands, and what a restart puts back.
#include <algorithm>
#include <map>

#include "service/quota_asking.h"

namespace headgate::service {

using quota::Amount;
using quota::kPeriods;

namespace {
constexpr std::string_view kGoneReason = "The token has expired or was revoked while the check waited";
// The periods that run now where a time zone is.
struct TimeZone {
  core::Calendar days;
  std::array<core::Span, 3> running;  // the periods

  // Whether what was charged on a day that began then counts in the period. A day of another time zone, because that
  // was changed since, counts wherever it reaches into: rather too much than less than was charged.
  [[nodiscard]] bool counts(Nanos day, std::size_t period) const {
    constexpr Nanos kLongestDay = std::chrono::hours{25};
    const Nanos end = days.period_at(day).start == day ? day + Nanos{1} : day + kLongestDay;
    return end > running[period].start && day < running[period].end;
  }
};

}  // namespace

void Quotas::clock_moved() noexcept {
  { const std::lock_guard guard(mutex_); }  // a thread that has read the clock waits by now
  wake_.notify_all();
}

void Quotas::serve() {
  std::unique_lock guard(mutex_);
  while (!ending_) {
    const Nanos now = service_.clock->now();
    const Nanos next = waiting_.empty() ? kMaxTime : queue_.next_step(factor(), now);
    if (next > now) {
      service_.clock->wait(guard, wake_, next);
    } else {
      move_on(guard);
    }
  }
}

void Quotas::move_on(std::unique_lock<std::mutex>& guard) {
  const Nanos now = service_.clock->now();
  const quota::RunQueue::Moved moved = queue_.step(factor(), now);
  std::vector<AskingPtr> started;
  std::vector<AskingPtr> expired;
  const auto take = [&](const std::vector<quota::Arrival>& from, std::vector<AskingPtr>& to) {
    for (const quota::Arrival& arrival : from) {
      const auto found = waiting_.find(arrival.id);
      if (found == waiting_.end()) continue;
      found->second->waited = now - found->second->arrived;
      to.push_back(std::move(found->second));
      waiting_.erase(found);
    }
  };
  take(moved.started, started);
  take(moved.expired, expired);
  guard.unlock();
  for (const AskingPtr& asking : started) {
    if (asking->ask.gone && asking->ask.gone()) {
      refuse_start(asking, std::string(kUnauthorized), std::string(kGoneReason), Nanos{0});
    } else {
      judge(asking);
    }
  }
  for (const AskingPtr& asking : expired) {
    asking->tracked = false;
    refuse_start(asking, "timed_out",
                 "It could not start in the time that it was ready to wait; try again, or wait longer", kBlockedRetry);
  }
  guard.lock();
}

std::string Quotas::find_run_locked(const std::string& run, const std::string& user) const {
  if (queue_.knows(run)) return run;
  if (!user.empty()) return run_key(user, run);
  return queue_.only_id_ending(run_key({}, run)).value_or(run);
}

bool Quotas::end(const std::string& named, const std::string& user) {
  return end(named, user, {"cancelled", "The run was ended while it waited"});
}

bool Quotas::end(const std::string& named, const std::string& user, const Ending& ending) {
  AskingPtr waited;
  std::string lease;
  {
    const std::lock_guard guard(mutex_);
    const std::string run = find_run_locked(named, user);
    if (!queue_.end(run, user, service_.clock->now())) return false;
    if (const auto held = held_.find(run); held != held_.end()) {
      lease = std::move(held->second);
      held_.erase(held);
    }
    const auto found = waiting_.find(run);
    if (found != waiting_.end()) {
      waited = std::move(found->second);
      waiting_.erase(found);
    }
  }
  wake_.notify_one();
  if (!lease.empty()) (void)service_.engine->holds().release(lease, {});
  if (waited != nullptr) {
    waited->tracked = false;
    refuse_start(waited, std::string(ending.error), std::string(ending.reason), Nanos{0});
  }
  return true;
}

bool Quotas::renew(const std::string& named, const std::string& user) {
  std::string lease;
  {
    const std::lock_guard guard(mutex_);
    const std::string run = find_run_locked(named, user);
    if (!queue_.renew(run, user, service_.clock->now())) return false;
    if (const auto held = held_.find(run); held != held_.end()) lease = held->second;
  }
  if (!lease.empty()) (void)service_.engine->holds().renew(lease, {});
  return true;
}

Quotas::Line Quotas::line(std::size_t limit, std::string_view user) const {
  const std::lock_guard guard(mutex_);
  return {queue_.waiting(factor(), service_.clock->now(), limit, user), queue_.running(limit), queue_.waiting_count(),
          queue_.running_count()};
}

void Quotas::tick() {
  std::vector<std::string> gone;
  std::vector<std::string> lapsed;  // leases of runs that are
  {
    const std::lock_guard guard(mutex_);
    for (const auto& [run, asking] : waiting_) {
      if (asking->ask.gone && asking->ask.gone()) gone.push_back(run);
    }
    queue_.forget_expired_runs(service_.clock->now());
    absl::erase_if(held_, [&](auto& each) {
      if (queue_.knows(each.first)) return false;
      lapsed.push_back(std::move(each.second));
      return true;
    });
  }
  for (const std::string& run : gone) (void)end(run, {}, {kUnauthorized, kGoneReason});
  for (const std::string& lease : lapsed) (void)service_.engine->holds().release(lease, {});
  wake_.notify_one();  // the load may have changed
}

void Quotas::record(quota::Execution execution, const About& about, quota::Ledger::Done done) {
  const Result<quota::Allowance> allowance = book_.find(execution.user, about.plan, execution.type);
  if (!allowance) return done(allowance.error());
  const Result<Numbers> day = numbers({}, Period::kDay, allowance->timezone);
  if (!day) return done(day.error());
  if (!about.run.empty()) (void)end(about.run, execution.user);
  const Nanos now = service_.clock->now();
  std::vector<quota::Alert> alerts = watch_.recorded(execution, now);
  quota::Ledger::Run entry;
  entry.key = {execution.user, std::string(allowance->type), "", day->calendar.period_at(execution.executed_at).start};
  entry.execution = std::move(execution);
  ledger_.add(std::move(entry), [this, alerts = std::move(alerts), wall = service_.clock->wall(now),
                                 done = std::move(done)](const Result<void>& kept) {
    if (kept) {
      ++counts_.recorded;
      tell(alerts, wall);
    }
    done(kept);
  });
}

std::string Quotas::local_date(const std::string& user, const std::string& type, Nanos wall) {
  const Result<quota::Allowance> allowance = book_.find(user, {}, type);
  const Result<Numbers> day =
      numbers({}, Period::kDay, allowance ? allowance->timezone : std::string_view(options_.book.timezone));
  return day ? day->calendar.date_at(wall) : std::string();
}

Amount Quotas::Use::remaining(std::size_t period) const noexcept {
  if (limits[period].unlimited()) return {};
  return {std::max<Units>(0, limits[period].value - used[period])};
}

Result<Quotas::Status> Quotas::status(const std::string& user, std::string_view plan) {
  const Result<std::vector<quota::Allowance>> all = book_.find_all(user, plan);
  if (!all) return all.error();
  Status status;
  std::vector<Allowances::One> cells;
  std::vector<core::Calendar> calendars;
  for (const quota::Allowance& allowance : *all) {
    status.plan = allowance.plan;
    status.timezone = allowance.timezone;
    status.mode = allowance.mode;
    Use& use = status.types.emplace_back();
    use.type = allowance.type;
    use.limits = allowance.rule.limits;
    const base::Hash128 whose = cells_of(user, allowance.type, {});
    for (const Period period : kPeriods) {
      const Result<Numbers> countless = numbers({}, period, allowance.timezone);
      if (!countless) return countless.error();
      cells.push_back({countless->limit, cell(whose, period)});
      calendars.push_back(countless->calendar);
    }
  }
  std::vector<core::Outcome> outcomes(cells.size());
  service_.engine->allowances().look_at(cells, outcomes);
  const Nanos wall = service_.clock->wall(service_.clock->now());
  std::string least;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Use& use = status.types[i / kPeriods.size()];
    const std::size_t p = i % kPeriods.size();
    use.used[p] = outcomes[i].limit - outcomes[i].remaining;
    use.resets_at[p] = use.used[p] > 0 ? wall + outcomes[i].reset_after : calendars[i].period_at(wall).end;
  }
  // Of the types the one with the fewest left speaks.
  const Use* tightest = nullptr;
  Amount fewest{};
  for (const Use& use : status.types) {
    for (std::size_t p = 0; p < kPeriods.size(); ++p) {
      const Amount left = use.remaining(p);
      if (left.unlimited() || (tightest != nullptr && left.value >= fewest.value)) continue;
      tightest = &use;
      fewest = left;
    }
  }
  if (tightest != nullptr) {
    status.warning =
        quota::warning_text(tightest->type, {tightest->remaining(0), tightest->remaining(1), tightest->remaining(2)},
                            tightest->limits, factor());
  } else {
    status.warning = quota::warning_text({}, {}, {}, factor());
  }
  return status;
}

std::array<quota::Standing, 3> Quotas::standings(const quota::Allowance& allowance, const std::array<Units, 3>& used) {
  std::array<quota::Standing, 3> all;
  for (std::size_t p = 0; p < kPeriods.size(); ++p) all[p] = {kPeriods[p], used[p], allowance.rule.limits[p]};
  return all;
}

struct Quotas::Sums {
  std::string_view timezone;
  std::array<Units, 3> used{};
  std::map<std::string, Units> sessions;
};

Result<Quotas::SumsByType> Quotas::sum_usage(const std::vector<quota::UsageRow>& rows, Nanos wall) {
  // Rows say what their commands counted as when they were charged, whatever plan that was by. Only the time zone is to
  // be found out: where the plan was named with each check, that is the one by default.
  const auto timezone_of = [&](const quota::UsageKey& key) -> std::string_view {
    const Result<quota::Allowance> allowance = book_.find(key.user, {}, key.type);
    return allowance ? allowance->timezone : std::string_view(options_.book.timezone);
  };
  SumsByType sums;
  std::map<std::string, TimeZone, std::less<>> zones;
  for (const quota::UsageRow& row : rows) {
    if (row.usage.commands == 0) continue;
    const std::string_view timezone = timezone_of(row.key);
    auto zone = zones.find(timezone);
    if (zone == zones.end()) {
      TimeZone made;
      for (std::size_t p = 0; p < kPeriods.size(); ++p) {
        const Result<Numbers> of = numbers({}, kPeriods[p], timezone);
        if (!of) return of.error();
        if (p == 0) made.days = of->calendar;
        made.running[p] = of->calendar.period_at(wall);
      }
      zone = zones.emplace(std::string(timezone), made).first;
    }
    Sums& sum = sums[{row.key.user, row.key.type}];
    sum.timezone = timezone;
    for (std::size_t p = 0; p < kPeriods.size(); ++p) {
      if (zone->second.counts(row.key.day, p)) sum.used[p] += row.usage.commands;
    }
    if (!row.key.session.empty() && zone->second.counts(row.key.day, 0)) {
      sum.sessions[row.key.session] += row.usage.commands;
    }
  }
  return sums;
}

Result<std::size_t> Quotas::restore(const std::function<bool()>& go_on) {
  (void)ledger_.flush();  // what this server has answered is to be among it; if it cannot be written, reading says why
  const Nanos wall = service_.clock->wall(service_.clock->now());
  constexpr Nanos kLongestPeriod = std::chrono::hours{24 * 33};  // a month, and a day for time zones
  quota::Ledger::UsageQuery query;
  query.since = wall - kLongestPeriod;
  query.sessions = true;
  query.limit = 100'000'000;
  const Result<std::vector<quota::UsageRow>> rows = ledger_.usage(query);
  if (!rows) return rows.error();
  const Result<SumsByType> sums = sum_usage(*rows, wall);
  if (!sums) return sums.error();
  for (const auto& [key, sum] : *sums) {
    const std::string& user = key.first;
    const std::string& type = key.second;
    const std::string_view timezone = sum.timezone;
    if (const Result<quota::Allowance> allowance = book_.find(user, {}, type); allowance && allowance->type == type) {
      watch_.found({user, type, 1, service_.clock->now()}, standings(*allowance, sum.used));
    }
    std::vector<Allowances::One> cells;
    std::vector<Units> wanted;
    const auto add = [&](Period period, const std::string& session, Units used) -> Result<void> {
      const Result<Numbers> countless = numbers({}, period, timezone);
      if (!countless) return countless.error();
      cells.push_back({countless->limit, cell(cells_of(user, type, session), period)});
      wanted.push_back(used);
      return {};
    };
    for (std::size_t p = 0; p < kPeriods.size(); ++p) {
      if (Result<void> added = add(kPeriods[p], {}, sum.used[p]); !added) return std::move(added).error();
    }
    for (const auto& [session, used] : sum.sessions) {
      if (Result<void> added = add(Period::kDay, session, used); !added) return std::move(added).error();
    }
    if (!go_on()) return Error{ErrorCode::kIo, "another server is to go on", true};
    // All of them in one look: mostly nothing is missing.
    std::vector<core::Outcome> outcomes(cells.size());
    service_.engine->allowances().look_at(cells, outcomes);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (outcomes[i].limit - outcomes[i].remaining >= wanted[i]) continue;
      if (!service_.engine->allowances().raise_to(cells[i], wanted[i])) {
        return Error{ErrorCode::kIo, "the store did not answer in time", true};
      }
    }
  }
  return sums->size();
}

}  // namespace headgate::service
