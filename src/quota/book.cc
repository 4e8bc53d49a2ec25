#include "quota/book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <mutex>
#include <set>

#include "base/suggest.h"
#include "base/utf8.h"
#include "headgate/check.h"

namespace headgate::quota {
namespace {

constexpr std::size_t kShownInBook = 60;

// A view that outlives every book. Only names of real time zones are kept, so there are some hundreds at most.
std::string_view lasting_timezone(const std::string& name) {
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  const std::scoped_lock lock(mutex);
  return name.empty() ? std::string_view() : *names.insert(name).first;
}

Error not_found(std::string message) { return {ErrorCode::kNotFound, std::move(message)}; }
Error not_valid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

void apply(const TypeChange& change, TypeRule& rule) {
  for (std::size_t i = 0; i < kPeriods.size(); ++i) {
    if (change.limits[i]) rule.limits[i] = *change.limits[i];
  }
  if (change.session) rule.session = *change.session;
}

}  // namespace

Book::Book(BookOptions options) : options_(std::move(options)) {
  assert(check_timezone(options_.timezone).has_value());
  for (const auto& [name, plan] : built_in_plans()) plans_[name] = keep(name, plan);
}

Book::PlanPointer Book::keep(const std::string& name, Plan plan) const {
  auto kept = std::make_shared<KeptPlan>();
  kept->name = name;
  kept->timezone = lasting_timezone(plan.timezone.empty() ? options_.timezone : plan.timezone);
  kept->plan = std::move(plan);
  return kept;
}

Error Book::no_plan(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [known, plan] : plans_) names.push_back(known);
  return not_found(
      fmt::format("there is no plan \"{}\"{}", base::shortened(name, kShownInBook), base::did_you_mean(name, names)));
}

Error Book::no_type(const Standpoint& of, std::string_view type) const {
  std::vector<std::string> names;
  for (const auto& [known, rule] : of.plan->plan.types) names.push_back(known);
  return not_found(fmt::format("plan \"{}\" has no type of command \"{}\"{}", of.plan->name,
                               base::shortened(type, kShownInBook), base::did_you_mean(type, names)));
}

Result<Book::Standpoint> Book::standpoint(std::string_view user, std::string_view plan) const {
  const std::shared_lock lock(mutex_);
  Standpoint found;
  const auto rule = rules_.find(user);
  if (rule != rules_.end()) {
    found.rule = rule->second;
  } else if (options_.refuse_unknown_users) {
    return not_found(
        fmt::format("there is no user \"{}\" here; give it a rule first", base::shortened(user, kShownInBook)));
  }
  if (plan.empty()) plan = options_.default_plan;
  if (found.rule && !found.rule->rule.plan.empty()) plan = found.rule->rule.plan;
  const auto at = plans_.find(plan);
  if (at == plans_.end()) return not_valid(no_plan(plan).message);
  found.plan = at->second;
  return found;
}

Allowance Book::allowance(const Standpoint& of, std::string_view type) const {
  const Plan& plan = of.plan->plan;
  Allowance found;
  found.plan = of.plan->name;
  found.timezone = of.plan->timezone;
  found.mode = std::max(options_.mode, plan.mode);
  found.weight = plan.weight;
  found.holds_plan = of.plan;
  const auto in_plan = plan.types.find(type);
  const auto other = plan.types.find(kOther);
  const auto& counted = in_plan != plan.types.end() ? *in_plan : *other;
  found.type = counted.first;
  found.rule = counted.second;
  if (!of.rule) return found;

  const UserRule& rule = of.rule->rule;
  found.ruled = true;
  if (rule.mode) found.mode = std::max(found.mode, *rule.mode);
  if (rule.weight) found.weight = *rule.weight;
  if (!of.rule->timezone.empty()) found.timezone = of.rule->timezone;
  auto change = rule.types.find(type);
  if (change != rule.types.end() && in_plan == plan.types.end()) {
    found.type = change->first;
    found.holds_rule = of.rule;
  } else if (change == rule.types.end()) {
    change = rule.types.find(found.type);
  }
  if (change != rule.types.end()) apply(change->second, found.rule);
  return found;
}

Result<Allowance> Book::find(std::string_view user, std::string_view plan, std::string_view type) const {
  const Result<Standpoint> of = standpoint(user, plan);
  if (!of) return of.error();
  Allowance found = allowance(*of, type);
  if (options_.refuse_unknown_types && found.type != type) return no_type(*of, type);
  return found;
}

Result<std::vector<Allowance>> Book::find_all(std::string_view user, std::string_view plan) const {
  const Result<Standpoint> of = standpoint(user, plan);
  if (!of) return of.error();
  std::set<std::string_view> types;
  for (const auto& [type, rule] : of->plan->plan.types) types.insert(type);
  if (of->rule) {
    for (const auto& [type, change] : of->rule->rule.types) types.insert(type);
  }
  std::vector<Allowance> all;
  all.reserve(types.size());
  for (const std::string_view type : types) all.push_back(allowance(*of, type));
  return all;
}

std::vector<std::pair<std::string, Plan>> Book::plans() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::pair<std::string, Plan>> all;
  for (const auto& [name, kept] : plans_) all.emplace_back(name, kept->plan);
  return all;
}

std::optional<Plan> Book::plan(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  const auto at = plans_.find(name);
  if (at == plans_.end()) return std::nullopt;
  return at->second->plan;
}

Result<void> Book::set_plan(const std::string& name, Plan plan) {
  if (Result<void> fits = check_name("the name of a plan", name); !fits) return fits;
  if (Result<void> fits = check_plan(plan); !fits) return fits;
  PlanPointer kept = keep(name, std::move(plan));
  const std::unique_lock lock(mutex_);
  if (plans_.size() >= kMostPlans && !plans_.contains(name)) {
    return not_valid(fmt::format("there may be at most {} plans; delete one first", kMostPlans));
  }
  plans_[name] = std::move(kept);
  return {};
}

Result<void> Book::clear_plan(std::string_view name) {
  const auto built_in = built_in_plans().find(name);
  const std::unique_lock lock(mutex_);
  const auto at = plans_.find(name);
  if (at == plans_.end()) return no_plan(name);
  if (built_in != built_in_plans().end()) {
    at->second = keep(at->first, built_in->second);
    return {};
  }
  if (name == options_.default_plan) {
    return not_valid(fmt::format("plan \"{}\" is the default one (quotas.default_plan)", name));
  }
  const auto uses = [&](const auto& entry) { return entry.second->rule.plan == name; };
  const auto user = std::find_if(rules_.begin(), rules_.end(), uses);
  if (user != rules_.end()) {
    return not_valid(fmt::format("plan \"{}\" is still that of {} users, such as \"{}\"; give them another first", name,
                                 std::count_if(user, rules_.end(), uses), user->first));
  }
  plans_.erase(at);
  return {};
}

bool Book::has_rule(std::string_view user) const {
  const std::shared_lock lock(mutex_);
  return rules_.contains(user);
}

std::optional<UserRule> Book::rule(std::string_view user) const {
  const std::shared_lock lock(mutex_);
  const auto at = rules_.find(user);
  if (at == rules_.end()) return std::nullopt;
  return at->second->rule;
}

std::vector<std::pair<std::string, UserRule>> Book::rules(std::string_view after, std::size_t limit) const {
  const std::shared_lock lock(mutex_);
  std::vector<std::pair<std::string, UserRule>> page;
  for (auto at = rules_.upper_bound(after); at != rules_.end() && page.size() < limit; ++at) {
    page.emplace_back(at->first, at->second->rule);
  }
  return page;
}

Result<void> Book::set_rule(const std::string& user, UserRule rule) {
  if (user.empty() || user.size() > kMaxNameBytes || !base::is_plain_text(user)) {
    return not_valid(fmt::format("user must be 1 to {} bytes of UTF-8 without control characters", kMaxNameBytes));
  }
  if (Result<void> fits = check_rule(rule); !fits) return fits;
  auto kept = std::make_shared<KeptRule>();
  kept->timezone = lasting_timezone(rule.timezone);
  kept->rule = std::move(rule);
  const std::unique_lock lock(mutex_);
  if (kept->rule.empty()) {
    rules_.erase(user);
    return {};
  }
  if (!kept->rule.plan.empty() && !plans_.contains(kept->rule.plan)) return not_valid(no_plan(kept->rule.plan).message);
  if (rules_.size() >= kMostUsers && !rules_.contains(user)) {
    return not_valid(fmt::format("there may be rules for at most {} users; delete one first", kMostUsers));
  }
  rules_[user] = std::move(kept);
  return {};
}

}  // namespace headgate::quota
