// The Book knows which plan and rule apply to a user's command.
//
// Safe for concurrent use: find() takes a shared lock and allocates nothing for users without a rule. A change is seen
// from the next find() on.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quota/plan.h"

namespace headgate::quota {

struct BookOptions {
  std::string default_plan = "free";
  std::string timezone = "UTC";
  Mode mode = Mode::kEnforce;         // the laxest of this, the plan's and the user's holds
  bool refuse_unknown_users = false;  // true: a user without a rule is an Error (kNotFound)
  bool refuse_unknown_types = false;  // true: so is a type that the plan does not name; false: it counts as "other"
};

// What applies to one command of one user. Holds on to the plan it came from.
struct Allowance {
  std::string_view plan;
  std::string_view type;  // that it counts as: as asked, or kOther
  TypeRule rule;
  std::string_view timezone;  // lives as long as the process
  Mode mode = Mode::kEnforce;
  double weight = 1;
  bool ruled = false;                 // the user has a rule
  std::shared_ptr<const Plan> holds;  // keeps the views alive
};

class Book {
 public:
  static constexpr std::size_t kMostUsers = 1'000'000;  // with a rule
  static constexpr std::size_t kMostPlans = 100;
  static constexpr std::size_t kMostTypes = 100;  // of a plan or a rule

  explicit Book(BookOptions options = {});

  // `plan`: what the asker says the user's is; empty: it does not say. A rule's plan goes before it.
  [[nodiscard]] Result<Allowance> find(std::string_view user, std::string_view plan, std::string_view type) const;
  // The same for every type of the user's plan, by name.
  [[nodiscard]] Result<std::vector<Allowance>> find_all(std::string_view user, std::string_view plan) const;

  [[nodiscard]] std::vector<std::pair<std::string, Plan>> plans() const;
  [[nodiscard]] std::optional<Plan> plan(std::string_view name) const;
  Result<void> set_plan(const std::string& name, Plan plan);
  // Back to the built-in one; others go, unless a rule or the default still names them.
  Result<void> clear_plan(std::string_view name);

  [[nodiscard]] std::optional<UserRule> rule(std::string_view user) const;
  // By name, those that follow on `after`.
  [[nodiscard]] std::vector<std::pair<std::string, UserRule>> rules(std::string_view after, std::size_t limit) const;
  Result<void> set_rule(const std::string& user, UserRule rule);  // an empty one clears it
  [[nodiscard]] const BookOptions& options() const noexcept { return options_; }

 private:
  const BookOptions options_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::shared_ptr<const Plan>, std::less<>> plans_;
  absl::flat_hash_map<std::string, UserRule> rules_;
};

}  // namespace headgate::quota
