// The Book knows which plan and rule apply to a user's command.
//
// Safe for concurrent use: find() takes a shared lock and allocates nothing, unless it fails. A change is seen from the
// next find() on.
#pragma once

#include <absl/container/btree_map.h>

#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quota/plan.h"

namespace headgate::quota {

// REQUIRES: a timezone that check_timezone() takes. Whether there is such a plan is found out when it is asked for.
struct BookOptions {
  std::string default_plan = "free";
  std::string timezone = "UTC";
  Mode mode = Mode::kEnforce;         // the laxest of this, the plan's and the user's holds
  bool refuse_unknown_users = false;  // true: a user without a rule is an Error (kNotFound)
  // True: so is a type that neither the plan nor the user's rule names; false: it counts as "other".
  bool refuse_unknown_types = false;
};

// What applies to one command of one user.
struct Allowance {
  std::string_view plan;
  std::string_view type;  // that it counts as: as asked, or kOther
  TypeRule rule;
  std::string_view timezone;  // lives as long as the process
  Mode mode = Mode::kEnforce;
  double weight = 1;
  bool ruled = false;  // the user has a rule
  // Keep the views alive: the plan, and the rule if the type is named by nothing else.
  std::shared_ptr<const void> holds_plan;
  std::shared_ptr<const void> holds_rule;
};

class Book {
 public:
  static constexpr std::size_t kMostUsers = 1'000'000;  // with a rule
  static constexpr std::size_t kMostPlans = 100;

  explicit Book(BookOptions options = {});

  // `plan`: what the asker says the user's is; empty: it does not say. A rule's plan goes before it. A plan that does
  // not exist is kInvalidArgument. A type that only the rule names is one of its own, and as the plan's kOther in what
  // the rule leaves open.
  [[nodiscard]] Result<Allowance> find(std::string_view user, std::string_view plan, std::string_view type) const;
  // The same for every type of the user's plan and rule, by name.
  [[nodiscard]] Result<std::vector<Allowance>> find_all(std::string_view user, std::string_view plan) const;

  [[nodiscard]] std::vector<std::pair<std::string, Plan>> plans() const;
  [[nodiscard]] std::optional<Plan> plan(std::string_view name) const;
  Result<void> set_plan(const std::string& name, Plan plan);
  // Back to the built-in one; others go, unless a rule or the default still names them.
  Result<void> clear_plan(std::string_view name);

  [[nodiscard]] bool has_rule(std::string_view user) const;
  [[nodiscard]] std::optional<UserRule> rule(std::string_view user) const;
  // By name, those that follow on `after`.
  [[nodiscard]] std::vector<std::pair<std::string, UserRule>> rules(std::string_view after, std::size_t limit) const;
  Result<void> set_rule(const std::string& user, UserRule rule);  // an empty one clears it
  [[nodiscard]] const BookOptions& options() const noexcept { return options_; }

 private:
  struct KeptPlan {
    std::string name;
    Plan plan;
    std::string_view timezone;
  };
  struct KeptRule {
    UserRule rule;
    std::string_view timezone;  // empty: the plan's
  };
  using PlanPointer = std::shared_ptr<const KeptPlan>;
  using RulePointer = std::shared_ptr<const KeptRule>;
  // What applies to all commands of a user.
  struct Standpoint {
    PlanPointer plan;
    RulePointer rule;  // nullptr: none
  };

  [[nodiscard]] PlanPointer keep(const std::string& name, Plan plan) const;
  [[nodiscard]] Result<Standpoint> standpoint(std::string_view user, std::string_view plan) const;
  [[nodiscard]] Allowance allowance(const Standpoint& of, std::string_view type) const;
  [[nodiscard]] Error no_plan(std::string_view name) const;
  [[nodiscard]] Error no_type(const Standpoint& of, std::string_view type) const;

  const BookOptions options_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, PlanPointer, std::less<>> plans_;
  absl::btree_map<std::string, RulePointer, std::less<>> rules_;
};

}  // namespace headgate::quota
