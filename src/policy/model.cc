#include "policy/model.h"

#include <algorithm>
#include <cassert>

#include "base/text.h"

namespace headgate::policy {
namespace {

constexpr Units kMillionths = 1'000'000;

// "2.5" for 2500000 millionths.
std::string in_units(Units amount, Units scale) {
  std::string text = std::to_string(amount / scale);
  Units rest = amount % scale;
  if (rest == 0) return text;
  text += '.';
  for (Units digit = scale / 10; rest > 0; digit /= 10) {
    text += static_cast<char>('0' + rest / digit);
    rest %= digit;
  }
  return text;
}

std::string rate_in_units(Rate rate, Units scale) {
  const std::string per = base::format_rate({1, rate.per});
  return in_units(rate.units, scale) + per.substr(1);
}

Policy bucket(std::string id, std::string name, TierLimit limit) {
  Policy policy;
  policy.id = std::move(id);
  policy.name = std::move(name);
  policy.built_in = true;
  const auto made = Limit::token_bucket({limit.capacity, {limit.refill_per_minute, std::chrono::minutes{1}}, 0});
  assert(made);
  if (made) policy.limits.push_back(*made);
  return policy;
}

}  // namespace

const char* to_string(Mode mode) noexcept {
  switch (mode) {
    case Mode::kEnforce: return "enforce";
    case Mode::kMonitor: return "monitor";
    case Mode::kOff: return "off";
  }
  return "unknown";
}

const char* to_string(Enforcement enforcement) noexcept {
  return enforcement == Enforcement::kGraded ? "graded" : "strict";
}

const char* to_string(Action action) noexcept {
  switch (action) {
    case Action::kBlock: return "block";
    case Action::kThrottle: return "throttle";
    case Action::kWarn: return "warn";
    case Action::kLog: return "log";
  }
  return "unknown";
}

const char* to_string(Behavior behavior) noexcept { return behavior == Behavior::kReject ? "reject" : "queue"; }

const char* to_string(Missing missing) noexcept { return missing == Missing::kSkip ? "skip" : "match"; }

const char* to_string(OnStoreFailure on_store_failure) noexcept {
  switch (on_store_failure) {
    case OnStoreFailure::kLocal: return "local";
    case OnStoreFailure::kOpen: return "open";
    case OnStoreFailure::kClosed: return "closed";
  }
  return "unknown";
}

const char* to_string(Consistency consistency) noexcept {
  return consistency == Consistency::kStrict ? "strict" : "leased";
}

const char* to_string(Tier tier) noexcept {
  switch (tier) {
    case Tier::kLight: return "light";
    case Tier::kNormal: return "normal";
    case Tier::kHeavy: return "heavy";
  }
  return "unknown";
}

const char* to_string(Dimension dimension) noexcept {
  switch (dimension) {
    case Dimension::kAgent: return "agent";
    case Dimension::kSession: return "session";
    case Dimension::kUser: return "user";
    case Dimension::kTenant: return "tenant";
    case Dimension::kPlan: return "plan";
    case Dimension::kOperation: return "operation";
    case Dimension::kTier: return "tier";
    case Dimension::kChannel: return "channel";
    case Dimension::kContext: return "context";
    case Dimension::kResource: return "resource";
    case Dimension::kIp: return "ip";
    case Dimension::kAttribute: return "attr";
  }
  return "unknown";
}

Units unit_scale(std::string_view unit) noexcept {
  // Also as the last part of a name: input_tokens, cached_tokens.
  constexpr std::array<std::string_view, 10> kWhole{"requests", "tokens", "bytes",      "calls", "messages",
                                                    "commands", "files",  "operations", "items", "characters"};
  const bool whole = std::any_of(kWhole.begin(), kWhole.end(), [&](std::string_view word) {
    return unit == word ||
           (unit.size() > word.size() && unit.ends_with(word) && unit[unit.size() - word.size() - 1] == '_');
  });
  return whole ? 1 : kMillionths;
}

Units cell_scale(const Policy& policy) noexcept {
  const bool slots_only = !policy.limits.empty() &&
                          std::all_of(policy.limits.begin(), policy.limits.end(),
                                      [](const Limit& limit) { return limit.strategy() == Strategy::kConcurrency; });
  return slots_only ? 1 : unit_scale(policy.unit);
}

double least_cost(const Policy& policy) noexcept {
  return static_cast<double>(policy.least_cost) / static_cast<double>(cell_scale(policy));
}

Tiers default_tiers() {
  Tiers tiers;
  tiers.operations = {
      Patterns{"ping", "heartbeat", "health", "status", "identify_status", "channel_history", "list_*", "get_*",
               "!get_messages", "!get_task_detail", "!get_channel_info"},
      Patterns{"message", "channel_publish", "channel_subscribe", "channel_unsubscribe", "task_accepted",
               "task_progress", "task_complete", "task_failed", "task_recovering", "post_message",
               "post_channel_publish", "post_mailbox_ack", "get_messages", "get_task_detail", "get_channel_info"},
      Patterns{"identify", "register", "registration", "onboard_register", "task_submit", "channel_create", "post_task",
               "post_channel", "post_admin_push_task", "post_onboard_register", "create_*", "delete_*", "deploy"}};
  return tiers;
}

std::vector<Policy> tier_policies(const Tiers& tiers) {
  std::vector<Policy> policies;
  for (int i = 0; i < kTierCount; ++i) {
    const auto tier = static_cast<Tier>(i);
    const std::string name = to_string(tier);
    Policy policy = bucket("tier-" + name, "Operations of the " + name + " tier", tiers.limits.at(i));
    policy.match.tiers = {name};
    policy.match.agents = {"*"};  // an absent agent is not any agent
    policy.key = {{Dimension::kAgent, {}}, {Dimension::kChannel, {}}, {Dimension::kTier, {}}};
    policy.tier = tier;
    policies.push_back(std::move(policy));
  }
  const Patterns registering{"register", "registration", "onboard_register", "post_onboard_register"};
  Policy unidentified = bucket("unidentified", "Callers without an agent", tiers.unidentified);
  unidentified.match.unidentified = true;
  for (const std::string& operation : registering) unidentified.match.operations.push_back("!" + operation);
  unidentified.key = {{Dimension::kIp, {}}};
  policies.push_back(std::move(unidentified));
  Policy registration = bucket("registration", "Registrations", tiers.registration);
  registration.match.unidentified = true;
  registration.match.operations = registering;
  registration.key = {{Dimension::kIp, {}}};
  policies.push_back(std::move(registration));
  return policies;
}

std::string describe(const Policy& policy, Units amount) { return in_units(amount, cell_scale(policy)); }

std::string describe(const Policy& policy, const Limit& limit) {
  const Units scale = unit_scale(policy.unit);
  // Slots are counted one by one whatever the unit.
  if (scale == 1 || limit.strategy() == Strategy::kConcurrency) return limit.describe();
  std::string text = std::string(to_string(limit.strategy())) + " ";
  const std::string amount = in_units(limit.limit(), scale);
  switch (limit.strategy()) {
    case Strategy::kTokenBucket:
    case Strategy::kGcra: text += amount + ", refilled at " + rate_in_units(limit.rate(), scale); break;
    case Strategy::kLeakyBucket:
      text += rate_in_units(limit.rate(), scale) + ", " + in_units(limit.limit() - 1, scale) + " may queue";
      break;
    case Strategy::kQuota: text += amount + " per " + to_string(limit.period()) + " in " + limit.timezone(); break;
    default: text += amount + "/" + base::format_duration(limit.window());
  }
  if (limit.burst_allowance() > 0) text += ", burst " + in_units(limit.burst_allowance(), scale);
  return text;
}

}  // namespace headgate::policy
