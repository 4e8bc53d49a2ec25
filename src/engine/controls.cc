#include "engine/controls.h"

#include <fmt/format.h>

#include <algorithm>

namespace headgate::engine {
namespace {

std::string numbers(const Override& override) {
  std::string text;
  for (int t = 0; t < policy::kTierCount; ++t) {
    const auto& tier = override.tiers[static_cast<std::size_t>(t)];
    if (!tier) continue;
    text += fmt::format("{}{} {} refilled at {} a minute", text.empty() ? "" : ", ",
                        policy::to_string(static_cast<policy::Tier>(t)), tier->capacity, tier->refill_per_minute);
  }
  return text;
}

}  // namespace

Controls::Controls(const Parts& parts, const Settings& settings)
    : clock_(parts.clock),
      store_(parts.store),
      aftermath_(parts.aftermath),
      room_(parts.room),
      report_ttl_(settings.report_ttl),
      book_(store_, aftermath_.counters(), settings.remote ? 1 : 0),
      overrides_(std::make_shared<OverrideTable>()) {
  const std::uint64_t seed = store_.hasher().seed();
  auto rules = std::make_shared<Ruleset>(policy::Document{}, seed);
  LimitBook::Changes none;
  book_.equip(*rules, seed, factors_, none);
  rules_ = std::move(rules);
  rebuild_exempt_locked();
  auto state = std::make_unique<State>();
  state->rules = rules_;
  state->overrides = overrides_;
  state->exempt = exempt_;
  state_ = std::make_unique<base::Published<State>>(std::move(state));
}

bool Controls::publish_locked() {
  auto state = std::make_unique<State>();
  state->number = ++states_;
  state->rules = rules_;
  state->overrides = overrides_;
  state->exempt = exempt_;
  state->surroundings = {control::level_in_force(load_.level, emergency_.active), emergency_.active};
  state->factors = factors_;
  std::optional<double> busy;  // what is reported from outside stands beside the CPU
  for (const auto& source : {load_.cpu, load_.reported}) {
    if (source) busy = std::max(busy.value_or(0), source->value);
  }
  state->throttle_factor =
      control::throttle_factor(busy, load_.memory ? std::optional<double>(load_.memory->value) : std::nullopt);
  return state_->publish(std::move(state));
}

Result<void> Controls::load(policy::Document document) {
  std::set<std::string_view> units{"requests"};
  for (const policy::Policy& policy : document.policies) units.insert(policy.unit);
  if (units.size() > kMaxUnits) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("policies must count at most {} different units, got {}", kMaxUnits, units.size())};
  }
  auto rules = std::make_shared<Ruleset>(std::move(document),
                                         store_.hasher().seed());  // the long part, before the lock is taken
  const std::lock_guard guard(mutex_);
  const std::shared_ptr<const Ruleset> before = rules_;
  const std::vector<std::string> exempt_before = document_exempt_;
  document_exempt_ = rules->rules.document().exempt;
  LimitBook::Changes changes;
  const Factors factors_before = factors_;
  factors_.sensors = rules->rules.document().adaptive.sensors;
  book_.equip(*rules, store_.hasher().seed(), factors_, changes);
  rules_ = std::move(rules);
  rebuild_exempt_locked();
  if (!publish_locked()) {
    rules_ = before;
    factors_ = factors_before;
    document_exempt_ = exempt_before;
    rebuild_exempt_locked();
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("decisions on {} earlier sets of policies are still held; let some of them go first",
                             base::Published<State>::kVersions),
                 true};
  }
  book_.apply(changes);
  const policy::Document& now = rules_->rules.document();
  aftermath_.configure(now.backoff);
  rebuild_overrides_locked();
  step_controls_locked(clock_.now());
  aftermath_.tell({.kind = Event::Kind::kReload,
                   .time = clock_.wall(clock_.now()),
                   .text = "policies were replaced",
                   .value = static_cast<double>(rules_->policies.size())});
  return {};
}

std::shared_ptr<const Ruleset> Controls::rules() const {
  const std::lock_guard guard(mutex_);
  return rules_;
}

void Controls::rebuild_overrides_locked() {
  auto table = std::make_shared<OverrideTable>();
  LimitBook::Changes changes;
  for (const Override& override : override_list_) {
    AgentLimits& own = (*table)[override.agent];
    for (std::size_t t = 0; t < override.tiers.size(); ++t) {
      if (!override.tiers[t]) continue;
      const auto& [capacity, refill] = *override.tiers[t];
      const Result<Limit> limit = Limit::token_bucket({capacity, {refill, std::chrono::minutes{1}}, 0});
      const std::string identity = fmt::format("override\n{}\n{}", override.agent, t);
      own.tiers[t] = book_.limit(identity, *limit, store_.hasher().seed(), factors_.document(), changes);
    }
  }
  // An agent whose numbers change starts with full buckets, as with its first override.
  book_.apply(changes, OnChange::kReset);
  // The old table keeps its limits alive until here, so that those that stay keep their cells' history.
  overrides_ = std::move(table);
  (void)publish_locked();
}

Result<void> Controls::set_override(const Override& override) {
  if (override.agent.empty() || override.agent.size() > kMaxNameBytes) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("agent must be 1 to {} bytes long", kMaxNameBytes)};
  }
  for (std::size_t t = 0; t < override.tiers.size(); ++t) {
    if (!override.tiers[t]) continue;
    const auto& [capacity, refill] = *override.tiers[t];
    const char* tier = policy::to_string(static_cast<policy::Tier>(t));
    if (refill < 1) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}.refill_per_minute must be at least 1, got {}", tier, refill)};
    }
    const Result<Limit> limit = Limit::token_bucket({capacity, {refill, std::chrono::minutes{1}}, 0});
    if (!limit) return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", tier, limit.error().message)};
  }
  if (numbers(override).empty()) {
    return Error{ErrorCode::kInvalidArgument, "an override needs numbers for light, normal or heavy"};
  }
  const std::lock_guard guard(mutex_);
  std::erase_if(override_list_, [&](const Override& other) { return other.agent == override.agent; });
  override_list_.push_back(override);
  rebuild_overrides_locked();
  return {};
}

bool Controls::clear_override(std::string_view agent) {
  const std::lock_guard guard(mutex_);
  if (std::erase_if(override_list_, [&](const Override& other) { return other.agent == agent; }) == 0) return false;
  rebuild_overrides_locked();
  return true;
}

std::vector<Override> Controls::overrides() const {
  const std::lock_guard guard(mutex_);
  return override_list_;
}

void Controls::rebuild_exempt_locked() {
  auto table = std::make_shared<ExemptTable>();
  const auto add = [&](std::string_view agent) {
    table->agents.emplace(agent);
    table->hints |= base::hint_of(agent);
  };
  for (const std::string& agent : document_exempt_) add(agent);
  for (const std::string& agent : exempt_list_) add(agent);
  exempt_ = std::move(table);
}

void Controls::set_exempt(const std::vector<std::string>& agents) {
  const std::lock_guard guard(mutex_);
  exempt_list_ = {agents.begin(), agents.end()};
  rebuild_exempt_locked();
  (void)publish_locked();
}

void Controls::add_exempt(const std::string& agent) {
  const std::lock_guard guard(mutex_);
  exempt_list_.insert(agent);
  rebuild_exempt_locked();
  (void)publish_locked();
}

bool Controls::remove_exempt(const std::string& agent) {
  const std::lock_guard guard(mutex_);
  if (exempt_list_.erase(agent) == 0) return false;
  rebuild_exempt_locked();
  (void)publish_locked();
  return true;
}

std::vector<std::string> Controls::exempt() const {
  const std::lock_guard guard(mutex_);
  std::set<std::string, std::less<>> all = exempt_list_;
  all.insert(document_exempt_.begin(), document_exempt_.end());
  return {all.begin(), all.end()};
}

void Controls::step_controls_locked(Nanos now) {
  const control::AdaptiveSettings& settings = rules_->rules.document().adaptive;
  const Nanos wall = clock_.wall(now);
  controls_at_ = now;
  const std::optional<double> followed = load_.load(settings.sensors);
  control::Emergency emergency = emergency_;
  if (followed || now >= load_awaited_until_) {
    load_awaited_until_ = Nanos{0};
    emergency = control::follow_load(emergency_, settings, followed, wall);
  }
  const bool switched = emergency.active != emergency_.active;
  emergency_ = emergency;
  if (switched) {
    const std::string_view ended = followed ? "the load has fallen" : "the load is no longer known";
    aftermath_.tell({.kind = Event::Kind::kEmergency,
                     .time = wall,
                     .agent = emergency_.by,
                     .text = emergency_.active ? std::string_view(emergency_.reason) : ended,
                     .value = emergency_.active ? 1.0 : 0.0});
  }
  std::string why;
  const auto step = [&](control::AdaptiveState& state, bool sensors) {
    const control::AdaptiveInput input{load_.load(sensors), load_.reported.has_value()};
    const control::AdaptiveOutcome outcome = control::step(state, settings, input, now);
    state = outcome.state;
    if (outcome.changed && sensors == settings.sensors) why = control::describe(outcome, settings, input);
  };
  step(by_report_, false);
  step(by_sensors_, true);
  change_factors_locked(now, why);
}

void Controls::change_factors_locked(Nanos now, const std::string& why) {
  const control::AdaptiveSettings& settings = rules_->rules.document().adaptive;
  const Factors before = factors_;
  factors_.sensors = settings.sensors;
  factors_.reported = control::factor_in_force(by_report_.level, emergency_.active, settings);
  factors_.sensed = control::factor_in_force(by_sensors_.level, emergency_.active, settings);
  if (!(factors_ == before)) {
    scale_all_locked();
    room_.kick();
  }
  // A policy that follows the sensors on its own is no news to all others.
  if (factors_.document() != before.document()) {
    aftermath_.tell({.kind = Event::Kind::kAdaptive,
                     .time = clock_.wall(now),
                     .text = why.empty() ? "the emergency throttle changed" : std::string_view(why),
                     .value = factors_.document()});
  }
  (void)publish_locked();
}

control::LoadSettings Controls::load_settings_locked() const {
  const control::AdaptiveSettings& adaptive = rules_->rules.document().adaptive;
  control::LoadSettings settings;
  settings.normal_at = adaptive.low;
  settings.high_at = adaptive.high;
  settings.critical_at = adaptive.emergency_at;
  settings.margin = adaptive.margin;
  settings.report_ttl = report_ttl_;
  settings.sensors = adaptive.sensors;
  return settings;
}

void Controls::scale_all_locked() {
  LimitBook::Changes changes;
  book_.scale(*rules_, factors_, changes);
  for (const auto& [agent, own] : *overrides_) {
    for (const std::optional<WorkingLimit>& limit : own.tiers) {
      if (limit) book_.scale(*limit, factors_.document(), changes);
    }
  }
  for (const auto& [identity, limit] : lasting_limits_) book_.scale(*limit, 1, changes);
  book_.apply(changes);
}

void Controls::report_load(double load, Nanos age) {
  age = std::max(age, Nanos{0});  // the other node's clock may be ahead
  if (report_ttl_ > Nanos{0} && age >= report_ttl_) return;
  const std::lock_guard guard(mutex_);
  const Nanos now = clock_.now();
  control::LoadReading reading;
  reading.reported = load;
  step_load_locked(reading, now);
  if (load_.reported) load_.reported->at = now - age;
}

void Controls::clear_load_report() {
  const std::lock_guard guard(mutex_);
  load_ = control::clear_report(load_, load_settings_locked());
  load_awaited_until_ = Nanos{0};
  step_controls_locked(clock_.now());
}

void Controls::observe_load(const control::LoadReading& reading) {
  const std::lock_guard guard(mutex_);
  step_load_locked(reading, clock_.now());
}

void Controls::step_load_locked(const control::LoadReading& reading, Nanos now) {
  load_ = control::observe(load_, load_settings_locked(), reading, now);
  step_controls_locked(now);
}

Result<void> Controls::emergency_on(const control::EmergencyOrder& order) {
  const std::lock_guard guard(mutex_);
  const Nanos now = clock_.now();
  Result<control::Emergency> next = control::turn_on(emergency_, order, clock_.wall(now));
  if (!next) return std::move(next).error();
  emergency_ = *std::move(next);
  aftermath_.tell({.kind = Event::Kind::kEmergency,
                   .time = clock_.wall(now),
                   .agent = emergency_.by,
                   .text = emergency_.reason,
                   .value = 1});
  change_factors_locked(now, {});
  return {};
}

void Controls::emergency_off(const std::string& by) {
  const std::lock_guard guard(mutex_);
  const Nanos now = clock_.now();
  const bool was = emergency_.active;
  const control::AdaptiveSettings& settings = rules_->rules.document().adaptive;
  emergency_ = control::turn_off(emergency_, settings, load_.load(settings.sensors));
  if (was) {
    aftermath_.tell(
        {.kind = Event::Kind::kEmergency, .time = clock_.wall(now), .agent = by, .text = "turned off", .value = 0});
  }
  change_factors_locked(now, {});
}

void Controls::restore_emergency(const control::Emergency& state) {
  const std::lock_guard guard(mutex_);
  emergency_ = state;
  constexpr Nanos kAtLeast = std::chrono::seconds{60};  // where reports hold for ever
  load_awaited_until_ = clock_.now() + (report_ttl_ > Nanos{0} ? report_ttl_ : kAtLeast);
  change_factors_locked(clock_.now(), {});
}

void Controls::emergency_node_lost(std::string_view node) {
  const std::lock_guard guard(mutex_);
  if (!emergency_.active || emergency_.node != node) return;
  emergency_.node.clear();
  load_awaited_until_ = Nanos{0};
  step_controls_locked(clock_.now());
}

control::Emergency Controls::emergency() const {
  const std::lock_guard guard(mutex_);
  return emergency_;
}

Controls::Load Controls::load_state() const {
  const std::lock_guard guard(mutex_);
  return {.load = load_.load(),
          .reported = load_.load(false),
          .followed = load_.load(factors_.sensors),
          .sensors = factors_.sensors,
          .level = control::level_in_force(load_.level, emergency_.active),
          .factor = factors_.document()};
}

void Controls::follow_load(Nanos now) {
  constexpr Nanos kBetweenSteps = std::chrono::seconds{1};
  const std::lock_guard guard(mutex_);
  // What the load changed ends with it, after the dwell time: it is looked at even where no load is known.
  constexpr control::AdaptiveLevel kBase = control::AdaptiveLevel::kBase;
  const bool changed = emergency_.automatic || by_report_.level != kBase || by_sensors_.level != kBase;
  if ((load_.load() || changed) && now - controls_at_ >= kBetweenSteps) step_load_locked({}, now);
}

void Controls::rehash() {
  const std::lock_guard guard(mutex_);
  const std::uint64_t seed = store_.hasher().seed();
  auto rules = std::make_shared<Ruleset>(rules_->rules.document(), seed);
  LimitBook::Changes changes;
  book_.equip(*rules, seed, factors_, changes);
  book_.apply(changes);
  rules_ = std::move(rules);
  rebuild_exempt_locked();
  rebuild_overrides_locked();
}

const WorkingLimit* Controls::lasting_limit(const std::string& identity, const Limit& limit) {
  const std::lock_guard guard(mutex_);
  const auto known = lasting_limits_.find(identity);
  if (known != lasting_limits_.end()) return known->second.get();
  if (lasting_limits_.size() >= kMostLastingLimits) return nullptr;
  LimitBook::Changes changes;
  auto working = std::make_unique<WorkingLimit>(book_.limit(identity, limit, store_.hasher().seed(), 1, changes));
  book_.apply(changes);
  return (lasting_limits_[identity] = std::move(working)).get();
}

void Controls::set_local_share(double share) {
  const std::lock_guard guard(mutex_);
  book_.set_share(share);
  scale_all_locked();
}

}  // namespace headgate::engine
