#include "engine/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/wide.h"
#include "policy/check_fields.h"

namespace headgate::engine {
namespace {

constexpr Units kOutOfTheWay = Units{1} << 52;  // the most that a limit may have
constexpr std::size_t kMostKeys = 1'000'000;    // per limit; further ones are left out

struct HashOfKey {
  std::size_t operator()(const base::Hash128& key) const noexcept { return key.low; }
};

// The time in which an empty bucket fills.
Nanos time_to_fill(const Limit& limit) {
  const auto nanos = static_cast<base::Wide>(limit.limit()) * limit.rate().per.count() / limit.rate().units;
  return Nanos{std::clamp<std::int64_t>(static_cast<std::int64_t>(nanos), 1'000'000, 315'360'000'000'000'000)};
}

bool is_bucket(const Limit& limit) noexcept {
  return limit.strategy() == Strategy::kTokenBucket || limit.strategy() == Strategy::kGcra;
}

// Measures what the limit would count, and never denies.
Result<Limit> observer_of(const Limit& limit) {
  switch (limit.strategy()) {
    case Strategy::kTokenBucket:
    case Strategy::kGcra: return Limit::sliding_window({kOutOfTheWay, time_to_fill(limit), 0});
    case Strategy::kSlidingWindow:
    case Strategy::kSlidingWindowCounter: return Limit::sliding_window({kOutOfTheWay, limit.window(), 0});
    case Strategy::kFixedWindow: return Limit::fixed_window({kOutOfTheWay, limit.window(), 0});
    case Strategy::kQuota: return Limit::quota({kOutOfTheWay, limit.period(), limit.timezone(), 0});
    case Strategy::kConcurrency:
    case Strategy::kLeakyBucket: break;
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("no proposals for {}", to_string(limit.strategy()))};
}

Result<Limit> with_limit(const Limit& limit, Units units) {
  const Units burst = std::min(limit.burst_allowance(), kOutOfTheWay - units);
  switch (limit.strategy()) {
    case Strategy::kTokenBucket: return Limit::token_bucket({units, {units, time_to_fill(limit)}, burst});
    case Strategy::kGcra: return Limit::gcra({units - 1, units, time_to_fill(limit), burst});
    case Strategy::kSlidingWindow: return Limit::sliding_window({units, limit.window(), burst});
    case Strategy::kSlidingWindowCounter: return Limit::sliding_window_counter({units, limit.window(), burst});
    case Strategy::kFixedWindow: return Limit::fixed_window({units, limit.window(), burst});
    case Strategy::kQuota: return Limit::quota({units, limit.period(), limit.timezone(), burst});
    case Strategy::kConcurrency:
    case Strategy::kLeakyBucket: break;
  }
  return limit;
}

// All policies spelled out, those of the tiers too, so that each can have limits of its own.
policy::Document spelled_out(const policy::Document& document) {
  policy::Document all = policy::Rules(document, 1).document();
  all.has_policies = true;
  all.has_tiers = false;
  return all;
}

policy::Document observing(policy::Document document) {
  document.enforcement = policy::Enforcement::kGraded;
  for (policy::Policy& policy : document.policies) {
    if (policy.mode != policy::Mode::kOff) policy.mode = policy::Mode::kMonitor;
    policy.tier.reset();  // overrides do not replace what is measured
    policy.variants.clear();
    policy.adaptive = false;
    policy.escalation.reset();
    policy.warn_at = 1;
    for (Limit& limit : policy.limits) {
      // One that cannot be observed is still there, so that the others keep their places.
      const Result<Limit> observer = observer_of(limit);
      limit = observer ? *observer : *Limit::fixed_window({kOutOfTheWay, std::chrono::hours{1}, 0});
    }
  }
  return document;
}

// Which cell of the policy a check uses.
base::Hash128 key_of(const policy::Policy& policy, policy::Fields& fields) {
  base::Hash128 key{};
  for (const policy::KeyPart& part : policy.key) {
    key = base::mix(key, part.dimension == policy::Dimension::kAttribute ? fields.hash(fields.attribute(part.attribute))
                                                                         : fields.hash(part.dimension));
  }
  return key;
}

// The peak use of every key, by policy and limit.
class Observations {
 public:
  explicit Observations(const policy::Document& document) : rules_(document, 1) {
    for (const policy::Policy& policy : rules_.policies()) peaks_.emplace_back(policy.limits.size());
  }
  void add(const Decided& decided) {
    if (decided.decision->outcomes.empty() || decided.check->peek) return;
    policy::Fields fields(*decided.check, rules_.hasher());
    fields.set_tier(rules_.classify(decided.check->operation).tier);
    for (const Judged& judged : decided.decision->judged) {
      if (judged.parent) continue;
      const base::Hash128 key = key_of(rules_.policies()[judged.policy], fields);
      auto& of_policy = peaks_[judged.policy];
      for (std::size_t i = 0; i < judged.count && i < of_policy.size(); ++i) {
        const core::Outcome& outcome = decided.decision->outcomes[judged.first + i];
        if (of_policy[i].size() >= kMostKeys && !of_policy[i].contains(key)) continue;
        Units& peak = of_policy[i][key];
        peak = std::max(peak, outcome.limit - outcome.remaining);
      }
    }
  }
  // In order, the least first.
  [[nodiscard]] std::vector<Units> peaks(std::size_t policy, std::size_t limit) const {
    std::vector<Units> sorted;
    for (const auto& [key, peak] : peaks_[policy][limit]) {
      if (peak > 0) sorted.push_back(peak);
    }
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

 private:
  policy::Rules rules_;
  std::vector<std::vector<absl::flat_hash_map<base::Hash128, Units, HashOfKey>>> peaks_;
};

Units at_share(const std::vector<Units>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()) - 1e-9);
  return sorted[static_cast<std::size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1];
}

Result<SimulationReport> replay(const policy::Document& document, const std::function<Result<TraceReader>()>& open,
                                const SimulateOptions& options) {
  Result<TraceReader> trace = open();
  if (!trace) return std::move(trace).error();
  Simulation simulation(options);
  if (Result<void> loaded = simulation.load(document); !loaded) return loaded.error();
  for (;;) {
    const Result<bool> more = trace->next();
    if (!more) return more.error();
    if (!*more) break;
    if (trace->step().kind == TraceStep::Kind::kPolicies) {
      return trace->error("a trace that reloads policies cannot be tuned: which of them should be?");
    }
    if (const Result<void> stepped = simulation.step(trace->step()); !stepped) {
      return trace->error(stepped.error().message);
    }
  }
  simulation.finish();
  return simulation.report();
}

std::uint64_t times_hit(const SimulationReport& report, const policy::Policy& policy, bool strict) {
  const bool soft = policy.action == policy::Action::kWarn || policy.action == policy::Action::kLog;
  const bool denies = policy.mode == policy::Mode::kEnforce && (strict || !soft);
  for (const PolicyReport& about : report.policies) {
    if (about.id != policy.id) continue;
    return denies ? about.denied : about.exceeded + about.monitored;
  }
  return 0;
}

// Fills in what the peaks of its keys suggest, and changes the limit accordingly.
void propose(const TuneOptions& options, const std::vector<Units>& peaks, const policy::Policy& policy, Limit& limit,
             Tuned& tuned) {
  const auto scale = static_cast<double>(policy::unit_scale(policy.unit));
  tuned.limit = static_cast<double>(limit.limit()) / scale;
  tuned.keys = peaks.size();
  if (policy.mode == policy::Mode::kOff) {
    tuned.note = "its mode is off";
    return;
  }
  if (const Result<Limit> observer = observer_of(limit); !observer) {
    tuned.note = observer.error().message;
    tuned.keys = 0;
    return;
  }
  if (peaks.empty()) {
    tuned.note = "not used in this trace";
    return;
  }
  const Units seen = at_share(peaks, options.percentile);
  tuned.median = static_cast<double>(at_share(peaks, 50)) / scale;
  tuned.at_percentile = static_cast<double>(seen) / scale;
  tuned.most = static_cast<double>(peaks.back()) / scale;
  const double wanted = std::ceil(static_cast<double>(seen) * options.headroom - 1e-6);
  const auto units = static_cast<Units>(std::clamp(wanted, 1.0, static_cast<double>(kOutOfTheWay >> 1)));
  const Result<Limit> proposed = with_limit(limit, units);
  if (!proposed) {
    tuned.note = proposed.error().message;
    return;
  }
  limit = *proposed;
  tuned.proposal = static_cast<double>(units) / scale;
  tuned.proposed = policy::describe(policy, limit);
  if (is_bucket(limit)) tuned.note = "fills in the same time";
}

}  // namespace

Result<TuneReport> tune(const policy::Document& document, const std::function<Result<TraceReader>()>& open,
                        const TuneOptions& options) {
  SimulateOptions simulate = options.simulate;
  simulate.on_decided = nullptr;
  const policy::Document as_is = spelled_out(document);
  const Result<SimulationReport> before = replay(as_is, open, simulate);
  if (!before) return before.error();

  Observations observations(observing(as_is));
  SimulateOptions observe = simulate;
  observe.on_decided = [&](const Decided& decided) { observations.add(decided); };
  if (const Result<SimulationReport> seen = replay(observing(as_is), open, observe); !seen) return seen.error();

  TuneReport report;
  policy::Document proposed = as_is;
  for (std::size_t p = 0; p < proposed.policies.size(); ++p) {
    policy::Policy& policy = proposed.policies[p];
    for (std::size_t i = 0; i < policy.limits.size(); ++i) {
      Tuned& tuned = report.limits.emplace_back();
      tuned.policy = policy.id;
      tuned.unit = policy.unit;
      tuned.current = policy::describe(policy, policy.limits[i]);
      if (policy.variants.empty()) {
        propose(options, observations.peaks(p, i), policy, policy.limits[i], tuned);
      } else {
        tuned.note = "no proposals for policies with variants";
      }
    }
  }
  const Result<SimulationReport> after = replay(proposed, open, simulate);
  if (!after) return after.error();
  const bool strict = document.enforcement == policy::Enforcement::kStrict;
  report.checks = before->checks;
  report.denied_before = before->denied;
  report.denied_after = after->denied;
  for (Tuned& tuned : report.limits) {
    const auto policy = std::find_if(as_is.policies.begin(), as_is.policies.end(),
                                     [&](const policy::Policy& other) { return other.id == tuned.policy; });
    tuned.before = times_hit(*before, *policy, strict);
    tuned.after = times_hit(*after, *policy, strict);
  }
  return report;
}

}  // namespace headgate::engine
